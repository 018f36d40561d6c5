"""Attention as one launch: a group goes over the keys tile by tile, and scores exist in its registers only.

A group takes a tile of one head's queries. Of each tile of keys it keeps the largest score of every query, the sum of
exponentials and the mixture of values; both are scaled where a larger score comes (Dao et al., FlashAttention, 2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.c.types import literal, register_type, suffix
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, ceiling, step_of
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.walk import Lines
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import TensorType, compute_dtype

__all__ = ["BLOCKS", "attention_step", "fits"]

_ATTENTION = "dot_product_attention"
BLOCKS = frozenset({_ATTENTION})
_ACROSS = 16  # items that share a query, and queries that the items of a group have at a time
_ITEMS = _ACROSS * _ACROSS
_SHARED = 40 << 10  # bytes of a group's memory that tiles may take
_SUMS = 32  # of the mixture, in an item's registers
_LEAST = 16  # fewer queries leave most of a group idle
_HIDDEN = -0.7 * float(np.finfo(np.float32).max)  # the score of a key that a query does not see
_FLOATS = ("float16", "bfloat16", "float32", "float64")


class _Tile(NamedTuple):
    """How many queries and keys an item has of a tile, every sixteenth one."""

    queries: int
    keys: int

    def fits(self, features: int, itemsize: int) -> bool:
        """Whether the tiles of queries, keys or values, and shares fit in the memory of a group."""
        queries, keys = _ACROSS * self.queries, _ACROSS * self.keys
        numbers = queries * features + keys * _width(features) + queries * keys
        return numbers * itemsize <= _SHARED and self.queries * ceiling(features, _ACROSS) <= _SUMS


def _width(features: int) -> int:
    """The width of a tile of keys: odd, so that neighbours read different banks."""
    return ceiling(features, _ACROSS) * _ACROSS + 1


def _tile(features: int, dtype: np.dtype) -> _Tile | None:
    tiles = (_Tile(4, 2), _Tile(2, 2), _Tile(1, 2), _Tile(1, 1))
    return next((t for t in tiles if t.fits(features, compute_dtype(dtype).itemsize)), None)


def fits(name: str, types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> bool:
    """Whether a call of a block is one launch: attention of as many queries as fill a group."""
    assert name in BLOCKS
    given = dict(zip(attributes["operands"], types, strict=True))
    query, key = given["query"], given["key"]
    if 0 in (*query.shape, *key.shape) or query.shape[-3] < _LEAST or query.dtype.name not in _FLOATS:
        return False
    summed = compute_dtype(query.dtype)
    added = [given[n].dtype for n in ("bias", "sinks") if n in given]
    lengths = [given[n].dtype for n in ("query_seq_lengths", "key_value_seq_lengths") if n in given]
    return (
        given.keys() <= {*_NAMES} and len(given) == len(types)
        and all(dtype.name in _FLOATS and dtype.itemsize <= summed.itemsize for dtype in added)
        and all(dtype == np.int32 for dtype in lengths)
        and min(_window(attributes) or (0, 0)) >= 0
        and _tile(query.shape[-1], query.dtype) is not None
    )  # fmt: skip


_NAMES = ("query", "key", "value", "bias", "mask", "query_seq_lengths", "key_value_seq_lengths", "sinks")


def _window(attributes: Mapping[str, Any]) -> tuple[int, int] | None:
    """How many keys before and after itself a query sees."""
    size = attributes["local_window_size"]
    return (size, size) if isinstance(size, int) else size


def attention_step(kernel: Library, limits: Limits, dialect: DeviceDialect) -> Step:
    """The launch of a claimed call of attention."""
    largest = max(o.buffer.size for o in (*kernel.inputs, *kernel.outputs))
    with dialect.positions(limits.wide or largest + _ITEMS * _ITEMS >= 1 << 30):
        text = _Text(kernel, dialect)
        text.write()
    batch, queries, heads, _ = text.shape
    groups = batch * heads * ceiling(queries, text.queries)
    arrays = [*text.parameters.values()]
    return step_of(
        "attention", "attention", dialect, [*text.parameters], arrays, text.lines.text, groups, _ITEMS
    )


class _Text:
    """The statements of attention. `parameters`: the arrays that the kernel takes.

    shape: batch, queries, heads, features. queries, keys: those of a tile.
    """

    def __init__(self, kernel: Library, dialect: DeviceDialect) -> None:
        self.dialect, self.attributes = dialect, kernel.attributes
        self.given = dict(zip(kernel.attributes["operands"], kernel.inputs, strict=True))
        self.mixed, *self.residual = kernel.outputs
        query, key = self.given["query"], self.given["key"]
        self.shape = ((1,) * (4 - len(query.shape)) + query.shape)[-4:]
        self.count, self.shared_by = key.shape[-3], query.shape[-2] // key.shape[-2]
        self.dtype = compute_dtype(query.buffer.dtype)
        tile = _tile(self.shape[-1], self.dtype)
        assert tile is not None, "the claim has asked"
        self.tile = tile
        self.queries, self.keys = _ACROSS * tile.queries, _ACROSS * tile.keys
        self.columns = ceiling(self.shape[-1], _ACROSS)  # of the mixture, in an item
        self.lines = Lines(dialect)
        self.parameters: dict[Parameter, Buffer] = {}

    def write(self) -> None:
        """All of them."""
        add, kind, item = self.lines.add, register_type(self.dtype), self.dialect.number_in_group()
        features, zero, low = self.shape[-1], literal(self.dtype, 0), literal(self.dtype, -np.inf)
        space, r = self.dialect.group_space, self.tile.queries
        add(f"{space} {kind} query_tile[{self.queries}][{features}];")
        add(f"{space} {kind} tile[{self.keys}][{_width(features)}];")
        add(f"{space} {kind} shares[{self.queries}][{self.keys}];")
        if not self.dialect.shuffles:
            add(*(self.dialect.group_array(name, self.dtype, _ITEMS) for name in ("largest", "sum")))
        self.place()
        add(f"const int across = {item} % {_ACROSS}, down = {item} / {_ACROSS};")
        self.load("query_tile", "query", "first_query", self.queries, self.shape[1], features)
        add(f"{kind} highest[{r}], total[{r}], mixed[{r}][{self.columns}];")
        with self.each("r", r):
            sunk = "sinks" in self.given
            add(f"highest[r] = {self.element('sinks', 'head') if sunk else low};")
            add(f"total[r] = {literal(self.dtype, 1) if sunk else zero};")
            add(f"for (int e = 0; e < {self.columns}; ++e) mixed[r][e] = {zero};")
        start, stop = self.range()
        with self.lines.block(
            self.dialect.loop("first_key", start, stop).replace("++first_key", f"first_key += {self.keys}")
        ):
            add(self.dialect.barrier())
            self.load("tile", "key", "first_key", self.keys, self.count, features)
            add(self.dialect.barrier())
            self.score()
            self.share()
            add(self.dialect.barrier())
            self.load("tile", "value", "first_key", self.keys, self.count, self.columns * _ACROSS)
            add(self.dialect.barrier())
            self.mix()
        self.store()

    def each(self, name: str, count: int) -> Any:
        """A loop over what lies in registers, written out by the compiler."""
        return self.lines.block(self.dialect.unroll, f"for (int {name} = 0; {name} < {count}; ++{name}) {{")

    def place(self) -> None:
        """Which queries of which head a group has."""
        dialect, tiles = self.dialect, ceiling(self.shape[1], self.queries)
        self.lines.add(
            dialect.number("point", f"({dialect.number_type}){dialect.group_number()}"),
            dialect.fixed("first_query", f"point % {tiles}u * {self.queries}"),
            dialect.fixed("head", f"point / {tiles}u % {self.shape[2]}u"),
            dialect.fixed("batch", f"point / {tiles * self.shape[2]}u"),
        )

    def range(self) -> tuple[str, str]:
        """The keys that a group goes over: all, where a query may see none, and all of them count alike."""
        window, causal = _window(self.attributes), self.attributes["is_causal"]
        every = {"mask", "query_seq_lengths", "key_value_seq_lengths"} & self.given.keys()
        blind = window is not None and self.shape[1] - 1 - window[0] >= self.count
        start, stop = "0", str(self.count)
        if every or blind:
            return start, stop
        if window is not None:
            start = f"first_query > {window[0]} ? first_query - {window[0]} : 0"
        if causal or window is not None:
            beyond = self.queries + (0 if causal or window is None else window[1])
            self.lines.add(self.dialect.fixed("beyond", f"first_query + {beyond}"))
            stop = f"(beyond < {self.count} ? beyond : {self.count})"
        return start, stop

    # ------------------------------------------------------------------ memory
    def parameter(self, name: str, buffer: Buffer, written: bool = False) -> str:
        """The name of an array that the kernel takes; operands that are one array have one name."""
        found = next((p.name for p, other in self.parameters.items() if other is buffer), None)
        if found is None:
            self.parameters[Parameter(name, buffer.dtype, written)] = buffer
        return found or name

    def element(self, name: str, *axes: str) -> str:
        """An element of an operand whose last axes have these indices; axes of size 1 are broadcast."""
        operand = self.given[name]
        array = self.parameter(name, operand.buffer)
        return self.dialect.load(operand.buffer.dtype, array, self.position(operand, axes))

    def position(self, operand: Operand, axes: Sequence[str]) -> str:
        """Where an element lies."""
        rank = len(operand.shape)
        sides = zip(operand.shape, operand.strides, axes[len(axes) - rank :], strict=True)
        return self.dialect.position([(stride, axis) for size, stride, axis in sides if size > 1], operand.offset)

    def load(self, tile: str, name: str, first: str, rows: int, count: int, width: int) -> None:
        """A tile of queries, keys or values: zero beyond their ends."""
        head = f"head / {self.shared_by}" if name != "query" and self.shared_by > 1 else "head"
        loop = f"for (int at = {self.dialect.number_in_group()}; at < {rows * width}; at += {_ITEMS}) {{"
        inside = f"place < {count}" + (f" && d < {self.shape[-1]}" if width > self.shape[-1] else "")
        with self.lines.block(loop):
            self.lines.add(f"const int d = at % {width}, f = at / {width};")
            self.lines.add(self.dialect.fixed("place", f"{first} + f"))
            value = self.element(name, "batch", "place", f"({head})", "d")
            self.lines.add(f"{tile}[f][d] = {inside} ? {value} : {literal(self.dtype, 0)};")

    def at_score(self, name: str) -> str:
        """The element of a bias or a mask that a score meets."""
        return self.element(name, "batch", "head", "query_number", "key_number")

    # ------------------------------------------------------------------ numbers
    def function(self, name: str, argument: str) -> str:
        """A function of C's library."""
        return f"{name}{suffix(self.dtype)}({argument})"

    def score(self) -> None:
        """The scores of a tile, in registers: of each item some queries and keys."""
        add, kind, tile = self.lines.add, register_type(self.dtype), self.tile
        add(f"{kind} scores[{tile.queries}][{tile.keys}];")
        zero = literal(self.dtype, 0)
        add(f"for (int r = 0; r < {tile.queries}; ++r) for (int c = 0; c < {tile.keys}; ++c) scores[r][c] = {zero};")
        with self.lines.block(f"for (int d = 0; d < {self.shape[-1]}; ++d) {{"):
            add(f"{kind} left[{tile.queries}], right[{tile.keys}];")
            add(f"for (int r = 0; r < {tile.queries}; ++r) left[r] = query_tile[down + {_ACROSS} * r][d];")
            add(f"for (int c = 0; c < {tile.keys}; ++c) right[c] = tile[across + {_ACROSS} * c][d];")
            product = f"fma{suffix(self.dtype)}(left[r], right[c], scores[r][c])"
            add(f"for (int r = 0; r < {tile.queries}; ++r)")
            add(f"    for (int c = 0; c < {tile.keys}; ++c) scores[r][c] = {product};")
        with self.each("r", tile.queries), self.each("c", tile.keys):
            add(self.dialect.fixed("query_number", f"first_query + down + {_ACROSS} * r"))
            add(self.dialect.fixed("key_number", f"first_key + across + {_ACROSS} * c"))
            inside = f"query_number < {self.shape[1]} && key_number < {self.count}"
            with self.lines.block(self.dialect.condition(inside)):
                self.adjust()
            with self.lines.block(self.dialect.otherwise()):
                add(f"scores[r][c] = {literal(self.dtype, -np.inf)};")

    def adjust(self) -> None:
        """A score by the rules of the call."""
        scale, cap = self.attributes["scale"], self.attributes["softcap"]
        factor = 1.0 / math.sqrt(self.shape[-1]) if scale is None else scale
        score = f"scores[r][c] * {literal(self.dtype, factor)}"
        if cap is not None:
            number = literal(self.dtype, cap)
            score = f"{self.function('tanh', f'{score} / {number}')} * {number}"
        if "bias" in self.given:
            score = f"{score} + {self.at_score('bias')}"
        seen = " && ".join(self.seen())
        self.lines.add(f"scores[r][c] = {f'{seen} ? {score} : {literal(self.dtype, _HIDDEN)}' if seen else score};")

    def seen(self) -> list[str]:
        """Conditions under which a query sees a key."""
        conditions, window = [], _window(self.attributes)
        if "mask" in self.given:
            conditions.append(self.at_score("mask"))
        if self.attributes["is_causal"]:
            conditions.append("query_number >= key_number")
        if window is not None:
            conditions.append(f"query_number <= key_number + {window[0]} && query_number >= key_number - {window[1]}")
        for name, number in (("query_seq_lengths", "query_number"), ("key_value_seq_lengths", "key_number")):
            if name in self.given:
                conditions.append(f"{number} < {self.element(name, 'batch')}")
        return conditions

    def share(self) -> None:
        """What each key of the tile counts for, by the largest score so far; what was mixed before is scaled to it."""
        add, kind, dtype = self.lines.add, register_type(self.dtype), self.dtype
        low, zero = literal(dtype, -np.inf), literal(dtype, 0)
        with self.each("r", self.tile.queries):
            add(f"{kind} largest = scores[r][0], sum = {zero};")
            larger = self.dialect.combine("max", dtype, "largest", "scores[r][c]")
            add(f"for (int c = 1; c < {self.tile.keys}; ++c) largest = {larger};")
            add(*self.dialect.combine_group("largest", "max", dtype, _ACROSS, _ACROSS))
            add(f"largest = {self.dialect.combine('max', dtype, 'largest', 'highest[r]')};")
            add(f"const {kind} base = largest == {low} ? {zero} : largest;")
            add(f"const {kind} before = {self.function('exp', 'highest[r] - base')};")
            with self.lines.block(f"for (int c = 0; c < {self.tile.keys}; ++c) {{"):
                add(f"const {kind} share = {self.function('exp', 'scores[r][c] - base')};")
                add(f"shares[down + {_ACROSS} * r][across + {_ACROSS} * c] = share;", "sum += share;")
            add(*self.dialect.combine_group("sum", "add", dtype, _ACROSS, _ACROSS))
            add("total[r] = total[r] * before + sum;", "highest[r] = largest;")
            add(f"for (int e = 0; e < {self.columns}; ++e) mixed[r][e] *= before;")

    def mix(self) -> None:
        """The tile's values, by their shares."""
        tile, kind = self.tile, register_type(self.dtype)
        with self.lines.block(f"for (int k = 0; k < {self.keys}; ++k) {{"):
            self.lines.add(
                f"{kind} left[{tile.queries}], right[{self.columns}];",
                f"for (int r = 0; r < {tile.queries}; ++r) left[r] = shares[down + {_ACROSS} * r][k];",
                f"for (int e = 0; e < {self.columns}; ++e) right[e] = tile[k][across + {_ACROSS} * e];",
                f"for (int r = 0; r < {tile.queries}; ++r)",
                f"    for (int e = 0; e < {self.columns}; ++e)",
                f"        mixed[r][e] = fma{suffix(self.dtype)}(left[r], right[e], mixed[r][e]);",
            )

    def store(self) -> None:
        """The mixture, and the logarithm of what it was divided by where that is asked for."""
        with self.each("r", self.tile.queries):
            self.lines.add(self.dialect.fixed("query_number", f"first_query + down + {_ACROSS} * r"))
            with self.lines.block(self.dialect.condition(f"query_number < {self.shape[1]}")):
                counted = "mixed[r][e] / total[r]"
                if "query_seq_lengths" in self.given:
                    length = self.element("query_seq_lengths", "batch")
                    counted = f"query_number < {length} ? {counted} : {literal(self.dtype, 0)}"
                with self.each("e", self.columns):
                    self.lines.add(self.dialect.fixed("d", f"across + {_ACROSS} * e"))
                    with self.lines.block(self.dialect.condition(f"d < {self.shape[-1]}")):
                        self.write_to("mixed_values", self.mixed, counted, "batch", "query_number", "head", "d")
                for residual in self.residual:
                    with self.lines.block(self.dialect.condition("across == 0")):
                        sum_of_all = f"highest[r] + {self.function('log', 'total[r]')}"
                        self.write_to("residual", residual, sum_of_all, "batch", "query_number", "head")

    def write_to(self, name: str, operand: Operand, value: str, *axes: str) -> None:
        """An element of a result."""
        array = self.parameter(name, operand.buffer, True)
        place = self.position(operand, axes)
        self.lines.add(self.dialect.store(operand.buffer.dtype, self.dtype, array, place, f"({value})"))
