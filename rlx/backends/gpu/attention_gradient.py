"""Attention's gradient in a few launches: attention weights are recomputed in registers from scores and their sums.

For queries, rows are queries and columns are keys, as in the forward pass. For keys and values it is the reverse: a
group iterates over the queries of all heads that share its keys, so no other group adds to its rows and no sum depends
on an order (Dao et al., FlashAttention, 2022). For a bias, a group has a tile of the bias and iterates over the heads
and batches that share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rlx.backends.gpu.attention_fragments import FragmentSizes, FragmentTiles, fragments_of, is_crowded
from rlx.backends.gpu.attention_schedule import AttentionCode, C, R, Tile, every
from rlx.backends.gpu.attention_tiles import ItemTiles, tile_width
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import unsigned
from rlx.backends.gpu.steps import LaunchStep, ceiling
from rlx.backends.gpu.tile_sizes import (
    ACROSS,
    ATTENTION_SUMS,
    FEW_FEATURES,
    GRADIENT_BYTES,
    GRADIENT_COLUMNS,
    MANY_FEATURES,
)
from rlx.code.tree import Array, Coordinate, Expression, Register, minimum
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import TensorType, compute_dtype

__all__ = ["gradient_fits", "gradient_steps"]

_MIXED = {"key": "query", "value": "cotangent"}  # the columns whose sums are a gradient of rows
_TILES = (Tile(4, 2), Tile(2, 4), Tile(2, 2), Tile(2, 1), Tile(1, 2), Tile(1, 1))


def _tile(features: int, dtype: np.dtype) -> Tile | None:
    """The largest tile that fits in the memory of a group: two tiles of rows, one of columns, and attention weights."""

    def taken(tile: Tile) -> bool:
        rows, columns = ACROSS * tile.rows, ACROSS * tile.columns
        numbers = 2 * rows * features + columns * tile_width(features) + rows * columns
        return numbers * itemsize <= GRADIENT_BYTES and 2 * tile.rows * ceiling(features, ACROSS) <= ATTENTION_SUMS

    itemsize = compute_dtype(dtype).itemsize
    return next(filter(taken, _TILES), None)


def gradient_fits(given: Mapping[str, TensorType], wanted: Sequence[str], by_fragments: bool) -> bool:
    """Whether the gradient becomes kernels: of queries, keys and values, if tiles fit in a group or are fragments; and
    of a bias, if it has a number for each query and key."""
    query, key = given["query"], given["key"]
    fitting = by_fragments or _tile(query.shape[-1], query.dtype) is not None
    whole = "bias" not in wanted or given["bias"].shape[-2:] == (query.shape[-3], key.shape[-3])
    return fitting and whole and {*wanted} <= {"query", "key", "value", "bias"}


def gradient_steps(kernel: Library, dialect: DeviceDialect, wide: bool) -> list[LaunchStep]:
    """The gradient of the queries; then, if wanted, the gradients of keys and values: in one launch if their sums fit
    in registers.

    The first launch also computes the numbers of each query that the other launches need.
    """
    wanted = dict(zip(kernel.attributes["wanted"], kernel.outputs, strict=True))
    given = dict(zip(kernel.attributes["operands"], kernel.inputs, strict=True))
    largest, query = given["largest"], given["query"]
    features, fragments = query.shape[-1], fragments_of(kernel, dialect)
    summed = {
        name: replace(largest, buffer=Buffer(largest.buffer.dtype, largest.buffer.size, name=f"{name}_of_rows"))
        for name in _Sums._fields
    }

    def start(launch: str) -> AttentionCode:
        if fragments is None:
            return ItemTiles(kernel, dialect, wide, _tile(features, query.buffer.dtype))
        return FragmentTiles(kernel, dialect, wide, fragments, _fragment_sizes(launch, features, is_crowded(fragments)))

    steps = [_of_queries(start("query"), wanted.get("query"), summed)]
    columns = {name: result for name, result in wanted.items() if name in ("key", "value")}
    apart = fragments is not None and features > FEW_FEATURES
    for results in [{name: result} for name, result in columns.items()] if apart else [columns]:
        if results:
            steps.append(_of_keys(start(min(results)), results, summed))
    if "bias" in wanted:
        steps.append(_of_bias(start("bias"), wanted["bias"], summed))
    return steps


def _fragment_sizes(launch: str, features: int, crowded: bool) -> FragmentSizes:
    """The tile of a launch for the gradient of an operand; if there are many features, groups share them."""
    columns = 2 * GRADIENT_COLUMNS if launch == "query" and features <= FEW_FEATURES else GRADIENT_COLUMNS
    if features <= MANY_FEATURES or not crowded:
        return FragmentSizes(columns)
    if launch == "value":
        return FragmentSizes(columns, slices=2)
    return FragmentSizes(columns // 2, slices=1 if launch == "bias" else 3)


class _Sums(NamedTuple):
    """Registers of queries: the numbers from which weights are computed (`AttentionCode.row_numbers`), and the
    negated sum of products of the result's row and its cotangent, with the factor of unscaled scores."""

    first: Array
    second: Array
    inner: Array


@dataclass(frozen=True, slots=True)
class _Pulled:
    """The registers of scores: products, then their cotangents; cotangents of weights, then the weights.

    of_products: whether the cotangents are those of products, or those of the bias that is added to them.
    """

    scores: Array
    weights: Array
    sums: _Sums
    of_products: bool = True


def _pulled(it: AttentionCode, queries: int, of_products: bool = True) -> _Pulled:
    """Declare the registers of scores; a work-item has this many queries."""
    scores, weights = (it.registers(name, it.tile.columns) for name in ("scores", "pulled"))
    return _Pulled(scores, weights, _Sums(*(it.numbers(name, queries) for name in _Sums._fields)), of_products)


def _load_sums(it: AttentionCode, sums: _Sums, summed: Mapping[str, Operand], line: Register) -> None:
    """Load the numbers of each query: of rows, or of columns."""
    number = it.first_row + it.row if line == R else it.first_column + it.column
    with it.over(line, sums.first.shape[0]):
        place = it.code.declare("place", number)
        it.code.declare("query_number", minimum(place, it.queries - 1))  # reads are clamped to the last query
        for name in sums._fields:
            array: Array = getattr(sums, name)
            it.code.write(array[line], _of_query(it, name, summed[name]))


def _of_query(it: AttentionCode, name: str, operand: Operand) -> Expression:
    """A number of a query."""
    return it.parameter(f"{name}_of_rows", operand.buffer)[it.at(operand, it.query_axes)]


def _start_sums(it: AttentionCode, sums: _Sums, summed: Mapping[str, Operand]) -> None:
    """Compute the numbers of rows, and store them for the launches that follow."""
    with it.over(R, it.tile.rows):
        place = it.code.declare("place", it.first_row + it.row)
        it.code.declare("query_number", minimum(place, it.queries - 1))
        largest, total = (_of_query(it, name, it.given[name]) for name in ("largest", "total"))
        for name, number in zip(("first", "second"), it.row_numbers(largest, total), strict=True):
            array: Array = getattr(sums, name)
            it.code.write(array[R], number)
            with it.code.when(every(it.is_first(), place < it.queries)):
                it.write_to(f"{name}_of_rows", summed[name], array[R], *it.query_axes)


def _pull(it: AttentionCode, pulled: _Pulled, rows: Register, columns: Register) -> None:
    """Replace products by their cotangents, and cotangents of attention weights by the weights."""
    code, whole = it.code, it.is_whole(rows)
    if whole is not None:
        with code.when(whole), it.at_scores(rows, columns):
            _pull_one(it, pulled, R if rows == it.query_number else C, whole=True)
        with code.otherwise():
            _pull_masked(it, pulled, rows, columns)
    else:
        _pull_masked(it, pulled, rows, columns)


def _pull_masked(it: AttentionCode, pulled: _Pulled, rows: Register, columns: Register) -> None:
    """The same for a tile in which some keys are masked, or there are none."""
    with it.over_scores():
        with it.numbered(rows, columns):
            _pull_one(it, pulled, R if rows == it.query_number else C, whole=False)
        with it.code.otherwise():
            it.code.write(it.cell(pulled.scores, C), it.number(0))
            it.code.write(it.cell(pulled.weights, C), it.number(0))


def _pull_one(it: AttentionCode, pulled: _Pulled, line: Register, whole: bool) -> None:
    """The cotangent of a product and the weight of a key."""
    code, apply = it.code, it.apply
    copied = line == C and it.copied_numbers
    names = _Sums._fields
    first, second, inner = (it.copied_number(n) if copied else getattr(pulled.sums, n)[line] for n in names)
    product, cotangent = it.cell(pulled.scores, C), it.cell(pulled.weights, C)
    weight = code.declare("share", it.weight(product, first, second, whole))
    if it.unscaled:
        moved = apply("mul", weight, apply("fma", cotangent, it.factor, inner))
    else:
        moved = apply("mul", weight, apply("add", cotangent, inner))
        if pulled.of_products:
            moved = apply("mul", moved, _slope(it, product))
    code.write(product, moved if whole else it.if_seen(moved, 0))
    code.write(cotangent, weight)


def _slope(it: AttentionCode, product: Expression) -> Expression:
    """The derivative of a capped score by its product."""
    if it.attributes["softcap"] is None:
        return it.factor
    bent = it.code.declare("bent", it.bent(it.apply("mul", product, it.factor)))
    return it.apply("mul", it.factor, it.apply("sub", it.number(1), it.apply("mul", bent, bent)))


def _of_queries(it: AttentionCode, result: Operand | None, summed: Mapping[str, Operand]) -> LaunchStep:
    """The gradient of the queries, and the numbers of rows, which the other launches need."""
    code, memory = it.code, it.exchange("sum")
    if result is not None:
        it.declare_columns(multiplied=("key", "value"), mixed=("key",))
        it.declare_rows("query", "cotangent")
    groups = it.place(it.query_head, it.shape[2], it.queries)
    code.declare("key_head", it.query_head // it.shared_by, it.position)
    pulled = _pulled(it, it.tile.rows)
    _sum_rows(it, pulled.sums.inner, summed["inner"], memory)
    _start_sums(it, pulled.sums, summed)
    if result is not None:
        it.load_rows("query", "cotangent")
        sums = it.zeros("near_sum", it.parts)
        with it.over_columns(*it.seen_keys()):
            _pull_keys(it, pulled)
            it.mix(sums, pulled.scores, "key")
        with it.over(R, it.tile.rows), it.numbered(it.query_number):
            it.store_row("query_gradient", result, sums, _same, it.query_number, it.query_head)
    return it.step("gradient of queries", groups)


def _same(value: Expression) -> Expression:
    return value


def _pull_keys(it: AttentionCode, pulled: _Pulled) -> None:
    """Cotangents of scores of a tile of keys."""
    it.multiply(pulled.weights, "cotangent", "value")
    it.multiply(pulled.scores, "query", "key")
    _pull(it, pulled, it.query_number, it.key_number)


def _sum_rows(it: AttentionCode, inner: Array, summed: Operand, memory: Array) -> None:
    """The negated sum of products of a row of the result and its cotangent; stored for the other launches."""
    code, d = it.code, Register(it.position, "d")
    with it.over(R, it.tile.rows):
        query = code.declare("query_number", it.first_row + it.row)
        total = code.declare("sum", it.number(0), changes=True)
        with code.when(every(*it.counted("cotangent", query))), code.loop(d, it.across, it.features, it.sharing):
            cotangent, value = (it.element(name, *it.query_axes, d) for name in ("cotangent", "output"))
            code.assign(total, it.apply("sub", total, it.apply("mul", cotangent, value)))
        it.reduce_row(total, "add", memory)
        code.write(inner[R], it.scaled(total))
        with code.when(every(it.is_first(), query < it.queries)):
            it.write_to("inner_of_rows", summed, inner[R], *it.query_axes)


def _of_keys(it: AttentionCode, wanted: Mapping[str, Operand], summed: Mapping[str, Operand]) -> LaunchStep:
    """The gradients of keys and values: rows are keys, together with their values if cotangents of scores are used."""
    code, shared = it.code, it.shared_by
    rows, multiplied = (("key", "value"), ("query", "cotangent")) if "key" in wanted else (("key",), ("query",))
    it.declare_columns(multiplied, [_MIXED[name] for name in wanted])
    it.declare_numbers(summed)
    it.declare_rows(*rows)
    groups = it.place(it.key_head, it.shape[2] // shared, it.count)
    it.load_rows(*rows)
    pulled = _pulled(it, it.tile.columns)
    sums = {name: it.zeros(f"{name}_sum", it.parts) for name in _MIXED if name in wanted}
    start, stop = it.seeing_queries()
    with (
        code.loop(it.query_head, it.key_head * shared, it.key_head * shared + shared),
        it.over_columns(start, stop, again=True),
    ):  # fmt: skip
        if not it.copied_numbers:
            _load_sums(it, pulled.sums, summed, C)
        if "key" in wanted:
            it.multiply(pulled.weights, "value", "cotangent")
        else:
            it.clear(pulled.weights, C, it.tile.columns)
        it.multiply(pulled.scores, "key", "query")
        _pull(it, pulled, it.key_number, it.query_number)
        for name, made in sums.items():
            it.mix(made, pulled.scores if name == "key" else pulled.weights, _MIXED[name])
    with it.over(R, it.tile.rows), it.numbered(it.key_number):
        for name, made in sums.items():
            it.store_row(f"{name}_gradient", wanted[name], made, _same, it.key_number, it.key_head)
    return it.step("gradient of keys and values", groups)


def _of_bias(it: AttentionCode, result: Operand, summed: Mapping[str, Operand]) -> LaunchStep:
    """A group has a tile of the bias (rows: queries, columns: keys) and adds in the order of batches and heads."""
    code, (batches, heads) = it.code, (1, 1, *result.shape[:-2])[-2:]
    it.declare_columns(multiplied=("key", "value"))
    it.declare_rows("query", "cotangent")
    groups = _place_bias(it, batches, heads)
    pulled = _pulled(it, it.tile.rows, of_products=False)
    sums = it.zeros("bias_sum", it.tile.columns)
    total = it.cell(sums, C)
    start, stop = it.seen_keys()
    bias_batch, bias_head = (Register(it.position, f"bias_{name}") for name in ("batch", "head"))
    seen = every(it.first_column < stop, it.first_column + it.columns > start)
    with (
        code.when(seen),
        code.loop(it.batch, *((0, it.shape[0]) if batches == 1 else (bias_batch, bias_batch + 1))),
        code.loop(it.query_head, *((0, it.shape[2]) if heads == 1 else (bias_head, bias_head + 1))),
    ):
        code.declare("key_head", it.query_head // it.shared_by, it.position)
        it.load_columns("query", "cotangent")
        _load_sums(it, pulled.sums, summed, R)
        _pull_keys(it, pulled)
        with it.over_scores():
            code.write(total, it.apply("add", total, it.cell(pulled.scores, C)))
    with it.over_scores(), it.numbered(it.query_number, it.key_number):
        it.write_to("bias_gradient", result, total, bias_batch, bias_head, it.query_number, it.key_number)
    return it.step("gradient of a bias", groups)


def _place_bias(it: AttentionCode, batches: int, heads: int) -> int:
    """Declare the group's tile of the bias; the number of groups."""
    code, down, across = it.code, ceiling(it.queries, it.rows), ceiling(it.count, it.columns)
    it.number_items()
    point = code.declare("point", Coordinate(unsigned(it.position), "group"))
    code.declare("first_column", point % across * it.columns, it.position)
    code.declare("first_row", point // across % down * it.rows, it.position)
    code.declare("bias_head", point // (across * down) % heads, it.position)
    code.declare("bias_batch", point // (across * down * heads), it.position)
    return batches * heads * down * across
