"""Attention's gradient in a few launches: attention weights are recomputed in registers from scores and their sums.

For queries, rows are queries and columns are keys, as in the forward pass. For keys and values it is the reverse: a
group iterates over the queries of all heads that share its keys, so no other group adds to its rows and no sum depends
on an order (Dao et al., FlashAttention, 2022). For a bias, a group has a tile of the bias and iterates over the heads
and batches that share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.c.types import literal, register_type
from rlx.backends.gpu.attention_fragments import MANY, FragmentText, takes_fragments
from rlx.backends.gpu.attention_schedule import AttentionCode, C, R, attention_code, every
from rlx.backends.gpu.attention_tiles import ACROSS, HIDDEN, Tile, tile_width, window_of
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import unsigned
from rlx.backends.gpu.steps import LaunchStep, ceiling
from rlx.code.tree import Array, Barrier, Coordinate, Expression, Register, minimum
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import TensorType, compute_dtype

__all__ = ["gradient_fits", "gradient_steps"]

_SHARED = 44 << 10  # bytes of a group's memory for tiles
_SUMS = 32  # registers of an item for both gradients
_FRAGMENT_COLUMNS = 32  # columns of a group, with fragments
_FEW = 64  # features: up to this many, twice the keys fit in registers, and both sums do; with more, each has a launch
_ROW = ("batch", "query_number", "query_head")
_TILES = (Tile(4, 2), Tile(2, 4), Tile(2, 2), Tile(2, 1), Tile(1, 2), Tile(1, 1))


def _tile(features: int, dtype: np.dtype) -> Tile | None:
    """The largest tile that fits in the memory of a group: two tiles of rows, one of columns, and attention weights."""

    def taken(tile: Tile) -> bool:
        rows, columns = ACROSS * tile.rows, ACROSS * tile.columns
        numbers = 2 * rows * features + columns * tile_width(features) + rows * columns
        return numbers * itemsize <= _SHARED and 2 * tile.rows * ceiling(features, ACROSS) <= _SUMS

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

    The first launch also sums the products of each row of the result and its cotangent, which the other launches need.
    """
    wanted = dict(zip(kernel.attributes["wanted"], kernel.outputs, strict=True))
    given = dict(zip(kernel.attributes["operands"], kernel.inputs, strict=True))
    largest, query = given["largest"], given["query"]
    scratch = Buffer(largest.buffer.dtype, largest.buffer.size, name="row_products")
    summed = replace(largest, buffer=scratch)
    columns = {name: result for name, result in wanted.items() if name in ("key", "value")}
    if takes_fragments(kernel, dialect):
        with dialect.positions(wide):
            return _steps_by_fragments(kernel, dialect, wanted, summed)

    def start() -> AttentionCode:
        return attention_code(kernel, dialect, wide, _tile(query.shape[-1], query.buffer.dtype))

    steps = [_of_queries(start(), wanted.get("query"), summed)]
    if columns:
        steps.append(_of_keys(start(), columns, summed))
    if "bias" in wanted:
        steps.append(_of_bias(start(), wanted["bias"], summed))
    return steps


# ------------------------------------------------------------------ without a matrix unit
class _Tiles(NamedTuple):
    """The group's memory: its rows of two operands, a tile of columns, and a number for each row and column."""

    near: Array
    beside: Array
    columns: Array
    weights: Array


class _Sums(NamedTuple):
    """Registers of queries: softmax maximum and sum, and the products of the result's row and its cotangent."""

    highest: Array
    total: Array
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


def _tiles(it: AttentionCode) -> _Tiles:
    return _Tiles(it.row_tile("near_tile"), it.row_tile("beside_tile"), it.column_tile(), it.weights_tile())


def _pulled(it: AttentionCode, queries: int, of_products: bool = True) -> _Pulled:
    """Declare the registers of scores; an item has this many queries."""
    scores, weights = (it.registers(name, it.tile.rows, it.tile.columns) for name in ("scores", "pulled"))
    return _Pulled(scores, weights, _Sums(*(it.registers(name, queries) for name in _Sums._fields)), of_products)


def _load_sums(it: AttentionCode, sums: _Sums, summed: Operand, line: Register, names: Sequence[str]) -> None:
    """Load numbers of each query: of rows, or of columns."""
    sources = {"highest": it.given["largest"], "total": it.given["total"], "inner": summed}
    number = it.first_row + it.row if line == R else it.first_column + it.column
    with it.over(line, sums.highest.shape[0]):
        place = it.code.declare("place", number)
        it.code.declare("query_number", minimum(place, it.queries - 1))  # reads are clamped to the last query
        for name in names:
            array: Array = getattr(sums, name)
            read = it.parameter(f"{name}_of_rows", sources[name].buffer)[it.at(sources[name], it.query_axes)]
            it.code.write(array[line], read)


def _pull(it: AttentionCode, pulled: _Pulled, rows: Register, columns: Register) -> None:
    """Replace products by their cotangents, and cotangents of attention weights by the weights."""
    code, apply, line = it.code, it.apply, R if rows == it.query_number else C
    highest, total, inner = (array[line] for array in pulled.sums)
    product, cotangent = pulled.scores[R, C], pulled.weights[R, C]
    with it.over_scores():
        with it.numbered(rows, columns):
            score = code.declare("score", apply("mul", product, it.factor))
            share = apply("div", apply("exp", apply("sub", it.adjusted(score), highest)), total)
            weight = code.declare("share", share)
            moved = apply("mul", weight, apply("sub", cotangent, inner))
            if pulled.of_products:
                moved = apply("mul", moved, _slope(it, score))
            code.write(product, it.if_seen(moved, 0))
            code.write(cotangent, weight)
        with code.otherwise():
            code.write(product, it.number(0))
            code.write(cotangent, it.number(0))


def _slope(it: AttentionCode, score: Expression) -> Expression:
    """The derivative of a capped score by its product."""
    if it.attributes["softcap"] is None:
        return it.factor
    bent = it.code.declare("bent", it.bent(score))
    return it.apply("mul", it.factor, it.apply("sub", it.number(1), it.apply("mul", bent, bent)))


def _of_queries(it: AttentionCode, result: Operand | None, summed: Operand) -> LaunchStep:
    """The gradient of the queries, and the sums of products of rows, which the other launches need."""
    code, memory, tiles = it.code, it.exchange("sum"), _tiles(it)
    groups = it.place(it.query_head, it.shape[2], it.queries)
    code.declare("key_head", it.query_head // it.shared_by, it.position)
    pulled = _pulled(it, it.tile.rows)
    _sum_rows(it, pulled.sums.inner, summed, memory)
    if result is not None:
        _load_rows(it, tiles, "query", "cotangent")
        _load_sums(it, pulled.sums, summed, R, ("highest", "total"))
        sums = it.zeros("near_sum", it.parts)
        with code.loop(it.first_column, *it.seen_keys(), it.columns):
            _multiply_keys(it, tiles, pulled)
            it.share_with_group(tiles.weights, pulled.scores)
            code.add(Barrier())
            it.mix(sums, tiles.weights, tiles.columns)
        with it.over(R, it.tile.rows), it.numbered(it.query_number):
            it.store_row("query_gradient", result, sums, _same, it.query_number, it.query_head)
    return it.step("gradient of queries", groups)


def _same(value: Expression) -> Expression:
    return value


def _load_rows(it: AttentionCode, tiles: _Tiles, near: str, beside: str) -> None:
    """Load the group's rows."""
    it.load_tile(tiles.near, near, it.first_row)
    it.load_tile(tiles.beside, beside, it.first_row)


def _multiply_keys(it: AttentionCode, tiles: _Tiles, pulled: _Pulled) -> None:
    """Cotangents of scores of a tile of keys, which stays in the group's memory."""
    it.reload(tiles.columns, "value")
    it.multiply(pulled.weights, tiles.beside, tiles.columns)
    it.reload(tiles.columns, "key")
    it.multiply(pulled.scores, tiles.near, tiles.columns)
    _pull(it, pulled, it.query_number, it.key_number)


def _sum_rows(it: AttentionCode, inner: Array, summed: Operand, memory: Array) -> None:
    """The sum of products of a row of the result and its cotangent; stored for the other launches."""
    code, d = it.code, Register(it.position, "d")
    with it.over(R, it.tile.rows):
        query = code.declare("query_number", it.first_row + it.row)
        total = code.declare("sum", it.number(0), changes=True)
        with code.when(every(*it.counted("cotangent", query))), code.loop(d, it.across, it.features, ACROSS):
            cotangent, value = (it.element(name, *it.query_axes, d) for name in ("cotangent", "output"))
            code.assign(total, it.apply("add", total, it.apply("mul", cotangent, value)))
        it.reduce_row(total, "add", memory)
        code.write(inner[R], total)
        with code.when(every(it.is_first(), query < it.queries)):
            it.write_to("row_products", summed, total, *it.query_axes)


def _of_keys(it: AttentionCode, wanted: Mapping[str, Operand], summed: Operand) -> LaunchStep:
    """The gradients of keys and values: rows are keys, together with their values."""
    code, tiles, shared = it.code, _tiles(it), it.shared_by
    groups = it.place(it.key_head, it.shape[2] // shared, it.count)
    _load_rows(it, tiles, "key", "value")
    pulled = _pulled(it, it.tile.columns)
    sums = {name: it.zeros(f"{name}_sum", it.parts) for name in ("key", "value") if name in wanted}
    start, stop = it.seeing_queries()
    with (
        code.loop(it.query_head, it.key_head * shared, it.key_head * shared + shared),
        code.loop(it.first_column, start, stop, it.columns),
    ):
        it.reload(tiles.columns, "cotangent")
        _load_sums(it, pulled.sums, summed, C, _Sums._fields)
        it.multiply(pulled.weights, tiles.beside, tiles.columns)
        it.reload(tiles.columns, "query")
        it.multiply(pulled.scores, tiles.near, tiles.columns)
        _pull(it, pulled, it.key_number, it.query_number)
        if "key" in sums:
            it.share_with_group(tiles.weights, pulled.scores)
            code.add(Barrier())
            it.mix(sums["key"], tiles.weights, tiles.columns)
        if "value" in sums:
            code.add(Barrier())
            it.share_with_group(tiles.weights, pulled.weights)
            it.load_tile(tiles.columns, "cotangent", it.first_column)
            code.add(Barrier())
            it.mix(sums["value"], tiles.weights, tiles.columns)
    with it.over(R, it.tile.rows), it.numbered(it.key_number):
        for name, made in sums.items():
            it.store_row(f"{name}_gradient", wanted[name], made, _same, it.key_number, it.key_head)
    return it.step("gradient of keys and values", groups)


def _of_bias(it: AttentionCode, result: Operand, summed: Operand) -> LaunchStep:
    """A group has a tile of the bias (rows: queries, columns: keys) and adds in the order of batches and heads."""
    code, tiles, (batches, heads) = it.code, _tiles(it), (1, 1, *result.shape[:-2])[-2:]
    groups = _place_bias(it, batches, heads)
    pulled = _pulled(it, it.tile.rows, of_products=False)
    sums = it.zeros("bias_sum", it.tile.columns)
    start, stop = it.seen_keys()
    bias_batch, bias_head = (Register(it.position, f"bias_{name}") for name in ("batch", "head"))
    seen = every(it.first_column < stop, it.first_column + it.columns > start)
    with (
        code.when(seen),
        code.loop(it.batch, *((0, it.shape[0]) if batches == 1 else (bias_batch, bias_batch + 1))),
        code.loop(it.query_head, *((0, it.shape[2]) if heads == 1 else (bias_head, bias_head + 1))),
    ):
        code.declare("key_head", it.query_head // it.shared_by, it.position)
        code.add(Barrier())
        _load_rows(it, tiles, "query", "cotangent")
        _load_sums(it, pulled.sums, summed, R, _Sums._fields)
        _multiply_keys(it, tiles, pulled)
        with it.over_scores():
            code.write(sums[R, C], it.apply("add", sums[R, C], pulled.scores[R, C]))
    with it.over_scores(), it.numbered(it.query_number, it.key_number):
        it.write_to("bias_gradient", result, sums[R, C], bias_batch, bias_head, it.query_number, it.key_number)
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


# ------------------------------------------------------------------ with a matrix unit
def _steps_by_fragments(
    kernel: Library, dialect: DeviceDialect, wanted: dict[str, Operand], summed: Operand
) -> list[LaunchStep]:
    """The launches whose products use fragments."""
    steps = [_OfQueriesByFragments(kernel, dialect, wanted, summed).written()]
    columns = {name: result for name, result in wanted.items() if name in ("key", "value")}
    apart = kernel.inputs[kernel.attributes["operands"].index("query")].shape[-1] > _FEW
    for results in ([{name: result} for name, result in columns.items()] if apart else [columns]):
        if results:
            steps.append(_OfKeysByFragments(kernel, dialect, results, summed).written())
    if "bias" in wanted:
        steps.append(_OfBiasByFragments(kernel, dialect, wanted, summed).written())
    return steps


class _Gradient(FragmentText):
    """The common part of both launches.

    index: of a query's numbers in registers.
    """

    index: str
    of_products: bool = True  # or the cotangents of the bias that is added to them

    def __init__(self, kernel: Library, dialect: DeviceDialect, wanted: dict[str, Operand], summed: Operand) -> None:
        self.wanted, self.summed = wanted, summed
        super().__init__(kernel, dialect)

    def ended(self, name: str, place: str) -> str:
        """The condition under which cotangents count: results past the sequence's end are 0."""
        ends = name == "cotangent" and "query_seq_lengths" in self.given
        return f"{place} < {self.element('query_seq_lengths', 'batch')}" if ends else ""

    def declare(self, count: int) -> None:
        """Declare the registers: for each query, its softmax maximum and sum."""
        for name in ("scores", "pulled"):
            self.registers(name, self.tile.columns)
        self.lines.add(f"{register_type(self.dtype)} highest[{count}], total[{count}], inner[{count}];")

    def load_sums(self, count: int, first: str, *names: str) -> None:
        """Load each query's softmax maximum and sum."""
        sources = {"highest": self.given["largest"], "total": self.given["total"], "inner": self.summed}
        last = self.shape[1] - 1  # reads are clamped to the last query
        with self.each(self.index, count):
            self.lines.add(self.dialect.fixed("place", first))
            self.lines.add(self.dialect.fixed("query_number", f"place < {last} ? place : {last}"))
            for name in names:
                buffer, place = sources[name].buffer, self.position(sources[name], _ROW)
                value = self.dialect.load(buffer.dtype, self.parameter(f"{name}_of_rows", buffer), place)
                self.lines.add(f"{name}[{self.index}] = {value};")

    def pull(self, query: str, key: str) -> None:
        """Replace `scores` by the cotangents of the query-key products, and `pulled` by the attention weights."""
        add, kind, tile, zero = self.lines.add, register_type(self.dtype), self.tile, literal(self.dtype, 0)
        seen, cap, at = self.seen(), self.attributes["softcap"], self.index
        scores, pulled = f"scores{self.at_column}", f"pulled{self.at_column}"
        with self.each("r", tile.rows), self.each("c", tile.columns):
            add(self.dialect.fixed("query_number", query), self.dialect.fixed("key_number", key))
            add(f"{kind} share = {zero}, moved = {zero};")
            with self.lines.block(
                self.dialect.condition(f"query_number < {self.shape[1]} && key_number < {self.count}")
            ):
                add(f"const {kind} score = {scores} * {self.factor};")
                adjusted = self.capped("score")
                adjusted = f"({seen} ? {adjusted} : {literal(self.dtype, HIDDEN)})" if seen else adjusted
                add(f"share = {self.function('exp', f'{adjusted} - highest[{at}]')} / total[{at}];")
                slope = self.factor
                if cap is not None and self.of_products:
                    add(f"const {kind} bent = {self.function('tanh', f'score / {literal(self.dtype, cap)}')};")
                    slope = f"{slope} * ({literal(self.dtype, 1)} - bent * bent)"
                pushed = f"share * ({pulled} - inner[{at}])" + (f" * ({slope})" if self.of_products else "")
                add(f"moved = {f'{seen} ? {pushed} : {zero}' if seen else pushed};")
            add(f"{scores} = moved;", f"{pulled} = share;")

    def store(self, results: dict[str, str], count: int) -> None:
        """Store the gradients of rows from registers."""
        with self.each("r", self.tile.rows):
            self.lines.add(self.dialect.fixed("row", f"first_row + {self.row}"))
            with self.lines.block(self.dialect.condition(f"row < {count}")):
                for name, sums in results.items():
                    self.store_row(f"{name}_gradient", self.wanted[name], f"{sums}{self.at_feature}", "row", "head")


class _OfQueriesByFragments(_Gradient):
    """The gradient of the queries: rows are queries."""

    index = "r"

    def tile_of(self, query: Operand) -> Tile | None:
        """The tile of a work-item."""
        if query.shape[-1] > MANY and self.crowded:
            return self.fragment_tile(_FRAGMENT_COLUMNS // 2, slices=3)
        return self.fragment_tile(_FRAGMENT_COLUMNS if query.shape[-1] > _FEW else 2 * _FRAGMENT_COLUMNS)

    def start(self) -> None:
        """Declare the group's memory."""
        self.begin_words(key_words=self.along, value_words=self.along, mixed_keys=self.across)

    def load_rows(self) -> None:
        """Load the rows into registers."""
        self.hold("query_words", "query")
        self.hold("cotangent_words", "cotangent")

    def written(self) -> LaunchStep:
        """The statements."""
        add, dialect, rows = self.lines.add, self.dialect, self.tile.rows
        self.start()
        groups = self.place(self.shape[1], self.shape[2])
        add(dialect.fixed("query_head", "head"), dialect.fixed("key_head", f"head / {self.shared_by}"))
        self.load_rows()
        self.declare(rows)
        self.sum_rows()
        if "query" in self.wanted:
            self.load_sums(rows, f"first_row + {self.row}", "highest", "total")
            self.sums(["near_sum"])
            window, causal = window_of(self.attributes), self.attributes["is_causal"]
            after = 0 if causal else None if window is None else window[1]
            with self.every_column(*self.range(None if window is None else window[0], after, self.count)):
                self.turn()
            self.store({"query": "near_sum"}, self.shape[1])
        return self.step("gradient of queries by fragments", groups)

    def turn(self) -> None:
        """Add the contribution of a tile of keys."""
        self.lines.add(self.dialect.barrier())
        self.load_along("key_words", "key", "first_column")
        self.load_along("value_words", "value", "first_column")
        self.load_across("mixed_keys", "key", "first_column")
        self.lines.add(self.dialect.barrier())
        self.fragment_product("pulled", "cotangent_words", "value_words")
        self.fragment_product("scores", "query_words", "key_words")
        self.pull_tile()
        self.fragment_mix("near_sum", "scores", "mixed_keys")

    def pull_tile(self) -> None:
        """Compute attention weights, and cotangents of scores."""
        self.pull(f"first_row + {self.row}", f"first_column + {self.column}")

    def sum_rows(self) -> None:
        """inner: the sum of products of a row of the result and its cotangent; stored for the other launches."""
        add, kind = self.lines.add, register_type(self.dtype)
        with self.each("r", self.tile.rows):
            add(self.dialect.fixed("query_number", f"first_row + {self.row}"))
            add(f"{kind} sum = {literal(self.dtype, 0)};")
            counts = self.ended("cotangent", "query_number")
            inside = f"query_number < {self.shape[1]}" + (f" && {counts}" if counts else "")
            with self.lines.block(self.dialect.condition(inside)):
                value, cotangent = (
                    self.element(name, "batch", "query_number", "query_head", "d") for name in ("output", "cotangent")
                )
                add(f"for (int d = across; d < {self.shape[-1]}; d += {self.sharing})")
                add(f"    sum += {cotangent} * {value};")
            self.combine("sum", "add")
            add("inner[r] = sum;")
            with self.lines.block(self.dialect.condition(f"{self.first} && query_number < {self.shape[1]}")):
                self.write_to("row_products", self.summed, "sum", *_ROW)


class _OfBiasByFragments(_OfQueriesByFragments):
    """A group has a tile of the bias (rows: queries, columns: keys) and adds in the order of batches and heads."""

    of_products = False

    def tile_of(self, query: Operand) -> Tile | None:
        """The tile of a work-item."""
        fewer = 2 if query.shape[-1] > MANY and self.crowded else 1
        return self.fragment_tile(_FRAGMENT_COLUMNS // fewer)

    def start(self) -> None:
        """Declare the group's memory and registers."""
        self.begin_words(key_words=self.along, value_words=self.along)
        for name in ("query_words", "cotangent_words"):
            self.declare_held(name)

    def load_rows(self) -> None:
        """Load the rows into registers."""
        self.load_held("query_words", "query")
        self.load_held("cotangent_words", "cotangent")

    def written(self) -> LaunchStep:
        """The statements."""
        add, dialect, tile = self.lines.add, self.dialect, self.tile
        self.start()
        (batches, heads), groups = self.place_tile()
        self.declare(tile.rows)
        self.registers("bias_sum", tile.columns)
        with self.each("r", tile.rows), self.each("c", tile.columns):
            add(f"bias_sum{self.at_column} = {literal(self.dtype, 0)};")
        with self.lines.block(dialect.condition(self.is_seen())):
            with self.over("batch", batches, self.shape[0]), self.over("query_head", heads, self.shape[2]):
                add(dialect.fixed("key_head", f"query_head / {self.shared_by}"), dialect.barrier())
                self.load_rows()
                self.load_sums(tile.rows, f"first_row + {self.row}", "highest", "total", "inner")
                self.turn()
        result = self.wanted["bias"]
        with self.each("r", tile.rows), self.each("c", tile.columns):
            add(dialect.fixed("row", f"first_row + {self.row}"))
            add(dialect.fixed("column", f"first_column + {self.column}"))
            with self.lines.block(dialect.condition(f"row < {self.shape[1]} && column < {self.count}")):
                value = f"bias_sum{self.at_column}"
                self.write_to("bias_gradient", result, value, "bias_batch", "bias_head", "row", "column")
        return self.step("gradient of a bias by fragments", groups)

    def place_tile(self) -> tuple[tuple[int, int], int]:
        """The group's tile of the bias; returns the bias's numbers of batches and heads, and the number of groups."""
        dialect, shape = self.dialect, self.wanted["bias"].shape
        batches, heads = (1, 1, *shape[:-2])[-2:]
        tiles = ceiling(self.shape[1], self.rows), ceiling(self.count, self.columns)
        self.lines.add(
            dialect.number("point", f"({dialect.number_type}){dialect.group_number()}"),
            dialect.fixed("first_column", f"point % {tiles[1]}u * {self.columns}"),
            dialect.fixed("first_row", f"point / {tiles[1]}u % {tiles[0]}u * {self.rows}"),
            dialect.fixed("bias_head", f"point / {tiles[0] * tiles[1]}u % {heads}u"),
            dialect.fixed("bias_batch", f"point / {tiles[0] * tiles[1] * heads}u"),
        )
        return (batches, heads), batches * heads * tiles[0] * tiles[1]

    def is_seen(self) -> str:
        """The condition that a query of the tile may see a key of the tile."""
        window, causal = window_of(self.attributes), self.attributes["is_causal"]
        after = 0 if causal else None if window is None else window[1]
        start, stop = self.range(None if window is None else window[0], after, self.count)
        return f"first_column < {stop} && first_column + {self.columns} > {start}"

    def over(self, name: str, kept: int, count: int) -> Any:
        """A loop over the batches or heads that share the group's tile; only the group's own one if none do."""
        first, last = ("0", str(count)) if kept == 1 else (f"bias_{name.removeprefix('query_')}", "")
        return self.lines.block(self.dialect.loop(name, first, last or f"{first} + 1"))

    def turn(self) -> None:
        """Add the contribution of a head."""
        self.load_along("key_words", "key", "first_column")
        self.load_along("value_words", "value", "first_column")
        self.lines.add(self.dialect.barrier())
        self.fragment_product("pulled", "cotangent_words", "value_words")
        self.fragment_product("scores", "query_words", "key_words")
        self.add_tile()

    def add_tile(self) -> None:
        """Add the cotangents of scores."""
        self.pull_tile()
        with self.each("r", self.tile.rows), self.each("c", self.tile.columns):
            self.lines.add(f"bias_sum{self.at_column} += scores{self.at_column};")


class _OfKeysByFragments(_Gradient):
    """Rows are keys, together with their values. results: the registers of each wanted result, by name."""

    index = "c"

    def tile_of(self, query: Operand) -> Tile | None:
        """The tile of a work-item."""
        if query.shape[-1] <= MANY or not self.crowded:
            return self.fragment_tile(_FRAGMENT_COLUMNS)
        keys = "key" in self.wanted  # if so, values are kept as well
        return self.fragment_tile(_FRAGMENT_COLUMNS // 2 if keys else _FRAGMENT_COLUMNS, slices=3 if keys else 2)

    def mixes(self) -> list[tuple[str, str, str, str]]:
        """For each result: the array that is mixed, its tile, the registers of the weights and those of the result."""
        mixed = {"key": ("query", "mixed_queries", "scores"), "value": ("cotangent", "mixed_cotangents", "pulled")}
        return [(*mixed[name], sums) for name, sums in self.results.items()]

    def start(self) -> None:
        """Declare the group's memory."""
        tiles = {tile: self.across for _, tile, _, _ in self.mixes()}
        if "key" in self.results:
            tiles["cotangent_words"] = self.along
        self.begin_words(query_words=self.along, **tiles)

    def load_rows(self) -> None:
        """Load the rows into registers."""
        self.hold("key_words", "key")
        if "key" in self.results:
            self.hold("value_words", "value")

    def written(self) -> LaunchStep:
        """The statements."""
        add, dialect, columns, shared = self.lines.add, self.dialect, self.tile.columns, self.shared_by
        results = {"key": "near_sum", "value": "beside_sum"}
        self.results = {name: sums for name, sums in results.items() if name in self.wanted}
        self.start()
        groups = self.place(self.count, self.shape[2] // shared)
        add(dialect.fixed("key_head", "head"))
        self.load_rows()
        self.declare(columns)
        self.sums(self.results.values())
        window, causal = window_of(self.attributes), self.attributes["is_causal"]
        before = 0 if causal else None if window is None else window[1]
        start, stop = self.range(before, None if window is None else window[0], self.shape[1])
        with self.lines.block(dialect.loop("query_head", f"head * {shared}", f"(head + 1) * {shared}")):
            with self.every_column(start, stop):
                self.turn()
        self.store(self.results, self.count)
        return self.step("gradient of keys and values by fragments", groups)

    def turn(self) -> None:
        """Add the contribution of a tile of queries."""
        self.lines.add(self.dialect.barrier())
        self.load_along("query_words", "query", "first_column")
        if "key" in self.results:
            self.load_along("cotangent_words", "cotangent", "first_column")
        for source, tile, _, _ in self.mixes():
            self.load_across(tile, source, "first_column")
        self.lines.add(self.dialect.barrier())
        self.load_queries()
        self.zero("pulled")
        if "key" in self.results:
            self.add_fragments("pulled", "value_words", "cotangent_words")
        self.fragment_product("scores", "key_words", "query_words")
        self.pull_tile()
        for _, tile, shares, sums in self.mixes():
            self.fragment_mix(sums, shares, tile)

    def load_queries(self) -> None:
        """Load each query's softmax maximum and sum."""
        self.load_sums(self.tile.columns, f"first_column + {self.column}", "highest", "total", "inner")

    def pull_tile(self) -> None:
        """Compute attention weights and cotangents of scores."""
        self.pull(f"first_column + {self.column}", f"first_row + {self.row}")
