"""Attention as one launch: a group iterates over the keys tile by tile and holds the scores only in its registers.

A group processes a tile of one head's queries. For each tile of keys it updates the largest score of every query, the
sum of exponentials and the mixture of values; the last two are rescaled when the maximum grows (Dao et al.,
FlashAttention, 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.gpu.attention_fragments import (
    FragmentSizes,
    FragmentTiles,
    fragments_of,
    is_crowded,
)
from rlx.backends.gpu.attention_gradient import gradient_fits, gradient_steps
from rlx.backends.gpu.attention_schedule import AttentionCode, C, R, Tile, window_of
from rlx.backends.gpu.attention_tiles import ITEMS, ItemTiles, tile_width
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling
from rlx.backends.gpu.tile_sizes import (
    ACROSS,
    ATTENTION_BYTES,
    ATTENTION_SUMS,
    FEW_FEATURES,
    FRAGMENT_KEYS,
    FRAGMENT_ONE_EACH,
    LEAST_QUERIES,
    MANY_FEATURES,
)
from rlx.code.tree import Apply, Array, Element, Expression, Register
from rlx.ir.kernels import Library
from rlx.ir.types import TensorType, compute_dtype

__all__ = ["BLOCKS", "attention_steps", "fits"]

_ATTENTION, _WITH_SUMS, _GRADIENT = "dot_product_attention", "attention_and_sums", "dot_product_attention_gradient"
BLOCKS = frozenset({_ATTENTION, _WITH_SUMS, _GRADIENT})
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_NAMES = ("query", "key", "value", "bias", "mask", "query_seq_lengths", "key_value_seq_lengths", "sinks")
_OF_RESULT = ("output", "largest", "total", "cotangent")


def _tile(features: int, dtype: np.dtype) -> Tile | None:
    """The largest tile of queries whose keys or values, and attention weights, fit in the memory of a group."""

    def taken(tile: Tile) -> bool:
        queries, keys = ACROSS * tile.rows, ACROSS * tile.columns
        numbers = queries * features + keys * tile_width(features) + queries * keys
        return numbers * itemsize <= ATTENTION_BYTES and tile.rows * ceiling(features, ACROSS) <= ATTENTION_SUMS

    itemsize = compute_dtype(dtype).itemsize
    return next(filter(taken, (Tile(4, 2), Tile(2, 2), Tile(1, 2), Tile(1, 1))), None)


def fits(name: str, types: tuple[TensorType, ...], attributes: Mapping[str, Any], most: int = 0) -> bool:
    """Whether a call of a block becomes kernels: attention with enough queries to fill a group, and its gradient.

    most: the largest number of 16-bit features that the device's matrix unit supports.
    """
    assert name in BLOCKS
    given = dict(zip(attributes["operands"], types, strict=True))
    query, key = given["query"], given["key"]
    if 0 in (*query.shape, *key.shape) or query.shape[-3] < LEAST_QUERIES or query.dtype.name not in _FLOATS:
        return False
    summed, by_fragments = compute_dtype(query.dtype), query.dtype.itemsize == 2 and query.shape[-1] <= most
    added = [given[n].dtype for n in ("bias", "sinks") if n in given]
    lengths = [given[n].dtype for n in ("query_seq_lengths", "key_value_seq_lengths") if n in given]
    return (
        given.keys() <= {*_NAMES, *(_OF_RESULT if name == _GRADIENT else ())} and len(given) == len(types)
        and all(dtype.name in _FLOATS and dtype.itemsize <= summed.itemsize for dtype in added)
        and all(dtype == np.int32 for dtype in lengths)
        and min(window_of(attributes) or (0, 0)) >= 0
        and (by_fragments or _tile(query.shape[-1], query.dtype) is not None)
        and (name != _GRADIENT or gradient_fits(given, attributes["wanted"], by_fragments))
    )  # fmt: skip


def attention_steps(kernel: Library, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep]:
    """The launches of a claimed call of attention, or of its gradient."""
    largest = max(o.buffer.size for o in (*kernel.inputs, *kernel.outputs))
    wide = limits.wide or largest + ITEMS * ITEMS >= 1 << 30
    if kernel.routine == _GRADIENT:
        return gradient_steps(kernel, dialect, wide)
    query = kernel.inputs[kernel.attributes["operands"].index("query")]
    features = query.shape[-1]
    fragments = fragments_of(kernel, dialect)
    if fragments is None:
        return [_forward(ItemTiles(kernel, dialect, wide, _tile(features, query.buffer.dtype)))]
    fewer = 1 if features <= MANY_FEATURES else 4 if is_crowded(fragments) else 2
    if fragments.moves and features > FEW_FEATURES:  # two tiles of keys and of values fit
        fewer = max(fewer, 2)
    twice = features <= FEW_FEATURES and query.shape[-3] > FRAGMENT_ONE_EACH
    sizes = FragmentSizes(FRAGMENT_KEYS // fewer, 2 if twice else 1)
    return [_forward(FragmentTiles(kernel, dialect, wide, fragments, sizes))]


def _forward(it: AttentionCode) -> LaunchStep:
    """The launch of attention: rows are queries, columns are keys."""
    code, rows = it.code, it.tile.rows
    largest, total = it.exchange("largest"), it.exchange("sum")
    it.declare_columns(multiplied=("key",), mixed=("value",))
    it.declare_rows("query")
    groups = it.place(it.query_head, it.shape[2], it.queries)
    code.declare("key_head", it.query_head // it.shared_by, it.position)
    it.load_rows("query")
    state = _Softmax(it.numbers("highest", rows), it.numbers("total", rows), largest, total)
    _start(it, state)
    scores, mixed = it.registers("scores", it.tile.columns), it.zeros("mixed", it.parts)
    with it.over_columns(*it.seen_keys()):
        it.multiply(scores, "query", "key")
        _adjust(it, scores)
        _weigh(it, state, scores, mixed)
        it.mix(mixed, scores, "value")
    _store(it, state, mixed)
    return it.step("attention", groups)


class _Softmax(NamedTuple):
    """The largest score of each row and the sum of its exponentials; and the memory in which work-items combine
    them."""

    highest: Array
    total: Array
    largest_memory: Array
    sum_memory: Array


def _start(it: AttentionCode, state: _Softmax) -> None:
    """The softmax of no keys, or of sinks."""
    sunk = "sinks" in it.given
    with it.over(R, it.tile.rows):
        it.code.write(state.highest[R], it.element("sinks", it.query_head) if sunk else it.number(-np.inf))
        it.code.write(state.total[R], it.number(1 if sunk else 0))


def _adjust(it: AttentionCode, scores: Array) -> None:
    """The scores of a tile from its products; a tile without masked keys has less work."""
    code, score, whole = it.code, it.cell(scores, C), it.is_whole(it.query_number)
    if whole is None:
        _mask(it, score)
    elif it.unscaled:
        with code.when(Apply(whole.dtype, "not", (whole,))):
            _mask(it, score)
    else:
        with code.when(whole), it.at_scores(it.query_number, it.key_number):
            code.write(score, it.adjusted(score, whole=True))
        with code.otherwise():
            _mask(it, score)


def _mask(it: AttentionCode, score: Element) -> None:
    """Scores of a tile in which some keys are masked, or there are none."""
    with it.over_scores():
        with it.numbered(it.query_number, it.key_number):
            it.code.write(score, it.adjusted(score))
        with it.code.otherwise():
            it.code.write(score, it.number(-np.inf))


def _weigh(it: AttentionCode, state: _Softmax, scores: Array, mixed: Array) -> None:
    """The weight of each key of the tile, relative to the largest score so far; the earlier mixture is rescaled."""
    code, apply, low = it.code, it.apply, it.number(-np.inf)
    highest, total, score = state.highest[R], state.total[R], it.cell(scores, C)
    with it.over(R, it.tile.rows):
        largest = code.declare("largest", low, changes=True)
        with it.over(C, it.tile.columns):
            code.assign(largest, it.larger(largest, score))
        it.reduce_row(largest, "max", state.largest_memory)
        code.assign(largest, it.larger(largest, highest))
        base = code.declare("base", apply("select", largest.equals(low), it.number(0), largest))
        before = code.declare("before", it.exponential(apply("sub", highest, base)))
        added = code.declare("sum", it.number(0), changes=True)
        with it.over(C, it.tile.columns):
            code.write(score, it.exponential(apply("sub", score, base)))
            code.assign(added, apply("add", added, score))
        it.reduce_row(added, "add", state.sum_memory)
        code.write(total, apply("add", apply("mul", total, before), added))
        code.write(highest, largest)
        it.scale_row(mixed, before)


def _store(it: AttentionCode, state: _Softmax, mixed: Array) -> None:
    """The mixture; on request, the logarithm of its divisor, or the maximum and sum the divisor is built from."""
    result, *more = it.kernel.outputs
    highest, total = it.scaled(state.highest[R]), state.total[R]
    values = [highest, total] if len(more) > 1 else [it.apply("add", highest, it.apply("log", total))]
    inverse = Register(it.dtype, "inverse")

    def value(summed: Expression) -> Expression:
        quotient = it.apply("mul", summed, inverse)
        if "query_seq_lengths" not in it.given:
            return quotient
        return it.apply("select", it.query_number < it.length("query_seq_lengths"), quotient, it.number(0))

    with it.over(R, it.tile.rows), it.numbered(it.query_number):
        it.code.declare(inverse.name, it.apply("div", it.number(1), total))
        it.store_row("mixed_values", result, mixed, value, it.query_number, it.query_head)
        for name, operand, number in zip(("largest_score", "sum_of_all"), more, values, strict=False):
            with it.code.when(it.is_first()):
                it.write_to(name, operand, number, it.batch, it.query_number, it.query_head)

