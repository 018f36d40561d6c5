"""The gradient of attention as two launches: shares are made again in registers, from scores and what they summed to.

For the queries, rows are queries and columns are keys, as ahead; for keys and values it is the other way round, and a
group goes over the queries of all heads that share its keys, so that nobody else adds to its rows: no sum depends on
an order (Dao et al., FlashAttention, 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlx.backends.c.types import literal, register_type
from rlx.backends.gpu.attention_tiles import ACROSS, HIDDEN, ITEMS, AttentionText, Tile, tile_width, window_of
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.steps import Step, ceiling
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import TensorType, compute_dtype

__all__ = ["gradient_fits", "gradient_steps"]

_SHARED = 44 << 10  # bytes of a group's memory that tiles may take
_SUMS = 32  # of both gradients, in an item's registers
_ROW = ("batch", "query_number", "query_head")
_TILES = (Tile(4, 2), Tile(2, 4), Tile(2, 2), Tile(2, 1), Tile(1, 2), Tile(1, 1))


def _tile(features: int, dtype: np.dtype) -> Tile | None:
    """The largest tile that fits in the memory of a group: two of rows, one of columns, and shares."""

    def taken(tile: Tile) -> bool:
        rows, columns = ACROSS * tile.rows, ACROSS * tile.columns
        numbers = 2 * rows * features + columns * tile_width(features) + rows * columns
        return numbers * itemsize <= _SHARED and 2 * tile.rows * ceiling(features, ACROSS) <= _SUMS

    itemsize = compute_dtype(dtype).itemsize
    return next(filter(taken, _TILES), None)


def gradient_fits(query: TensorType, wanted: Sequence[str]) -> bool:
    """Whether the gradient is kernels: of queries, keys and values, whose tiles fit in a group."""
    return {*wanted} <= {"query", "key", "value"} and _tile(query.shape[-1], query.dtype) is not None


def gradient_steps(kernel: Library, dialect: DeviceDialect) -> list[Step]:
    """The gradient of the queries; then that of keys and values, if it is wanted.

    The first launch also sums the products of each row of the result and its cotangent, which both need.
    """
    wanted = dict(zip(kernel.attributes["wanted"], kernel.outputs, strict=True))
    largest = kernel.inputs[kernel.attributes["operands"].index("largest")]
    scratch = Buffer(largest.buffer.dtype, largest.buffer.size, name="row_products")
    summed = replace(largest, buffer=scratch)
    steps = [_OfQueries(kernel, dialect, wanted, summed).written()]
    if {"key", "value"} & wanted.keys():
        steps.append(_OfKeys(kernel, dialect, wanted, summed).written())
    return steps


class _Gradient(AttentionText):
    """What both launches have in common.

    A share is made of the product of a row of `near` and one of the columns' own; its cotangent of the product of what
    is `beside` them: of queries the cotangents of results, of keys the values. index: of a query in registers.
    """

    near: str
    beside: str
    index: str

    def __init__(self, kernel: Library, dialect: DeviceDialect, wanted: dict[str, Operand], summed: Operand) -> None:
        query = kernel.inputs[kernel.attributes["operands"].index("query")]
        super().__init__(kernel, dialect, _tile(query.shape[-1], query.buffer.dtype))
        self.wanted, self.summed = wanted, summed

    def start(self) -> None:
        """The memory of the group."""
        features = self.shape[-1]
        self.begin(
            near_tile=(self.rows, features), beside_tile=(self.rows, features),
            tile=(self.columns, tile_width(features)), shares=(self.rows, self.columns),
        )  # fmt: skip

    def load_rows(self) -> None:
        """The rows of the group."""
        self.load_of(self.near, "near_tile", "first_row", self.rows, self.shape[-1])
        self.load_of(self.beside, "beside_tile", "first_row", self.rows, self.shape[-1])

    def load_columns(self, name: str, handed: str = "") -> None:
        """Columns of one kind, in place of others; and numbers of registers that the group is handed with them."""
        self.lines.add(self.dialect.barrier())
        if handed:
            self.hand(handed)
        self.load_of(name, "tile", "first_column", self.columns, self.parts * ACROSS)
        self.lines.add(self.dialect.barrier())

    def load_of(self, name: str, tile: str, first: str, rows: int, width: int) -> None:
        """A tile; cotangents of results that are 0 for being too far count as 0."""
        ended = name == "cotangent" and "query_seq_lengths" in self.given
        condition = f"place < {self.element('query_seq_lengths', 'batch')}" if ended else ""
        self.load(tile, name, first, rows, width, condition)

    def declare(self, count: int) -> None:
        """What is in registers: of each query what its softmax was made of."""
        kind, (rows, columns) = register_type(self.dtype), self.tile
        self.lines.add(f"{kind} scores[{rows}][{columns}], pulled[{rows}][{columns}];")
        self.lines.add(f"{kind} highest[{count}], total[{count}], inner[{count}];")

    def load_sums(self, count: int, first: str, *names: str) -> None:
        """What the softmax of each query was made of."""
        sources = {"highest": self.given["largest"], "total": self.given["total"], "inner": self.summed}
        zero = literal(self.dtype, 0)
        with self.each(self.index, count):
            self.lines.add(self.dialect.fixed("query_number", f"{first} + {ACROSS} * {self.index}"))
            for name in names:
                buffer, place = sources[name].buffer, self.position(sources[name], _ROW)
                value = self.dialect.load(buffer.dtype, self.parameter(f"{name}_of_rows", buffer), place)
                self.lines.add(f"{name}[{self.index}] = query_number < {self.shape[1]} ? {value} : {zero};")

    def pull(self, query: str, key: str) -> None:
        """scores: the cotangents of products of queries and keys. pulled: the shares."""
        add, kind, tile, zero = self.lines.add, register_type(self.dtype), self.tile, literal(self.dtype, 0)
        seen, cap, at = self.seen(), self.attributes["softcap"], self.index
        with self.each("r", tile.rows), self.each("c", tile.columns):
            add(self.dialect.fixed("query_number", query), self.dialect.fixed("key_number", key))
            add(f"{kind} share = {zero}, moved = {zero};")
            with self.lines.block(
                self.dialect.condition(f"query_number < {self.shape[1]} && key_number < {self.count}")
            ):
                add(f"const {kind} score = scores[r][c] * {self.factor};")
                adjusted = self.capped("score")
                adjusted = f"({seen} ? {adjusted} : {literal(self.dtype, HIDDEN)})" if seen else adjusted
                add(f"share = {self.function('exp', f'{adjusted} - highest[{at}]')} / total[{at}];")
                slope = self.factor
                if cap is not None:
                    add(f"const {kind} bent = {self.function('tanh', f'score / {literal(self.dtype, cap)}')};")
                    slope = f"{slope} * ({literal(self.dtype, 1)} - bent * bent)"
                pushed = f"share * (pulled[r][c] - inner[{at}]) * ({slope})"
                add(f"moved = {f'{seen} ? {pushed} : {zero}' if seen else pushed};")
            add("scores[r][c] = moved;", "pulled[r][c] = share;")

    def hand(self, name: str) -> None:
        """Numbers of registers for the whole group to read."""
        with self.each("r", self.tile.rows):
            place = f"shares[down + {ACROSS} * r][across + {ACROSS} * c]"
            self.lines.add(f"for (int c = 0; c < {self.tile.columns}; ++c) {place} = {name}[r][c];")

    def store(self, results: dict[str, str], count: int) -> None:
        """Gradients of rows, by the registers that hold them."""
        with self.each("r", self.tile.rows):
            self.lines.add(self.dialect.fixed("row", f"first_row + down + {ACROSS} * r"))
            with self.lines.block(self.dialect.condition(f"row < {count}")):
                for name, sums in results.items():
                    self.store_row(f"{name}_gradient", self.wanted[name], f"{sums}[r][e]", "row", "head")


class _OfQueries(_Gradient):
    """Rows are queries."""

    near, beside, index = "query", "cotangent", "r"

    def written(self) -> Step:
        """The statements."""
        add, dialect, rows = self.lines.add, self.dialect, self.tile.rows
        if not dialect.shuffles:
            add(dialect.group_array("sum", self.dtype, ITEMS))
        self.start()
        groups = self.place(self.shape[1], self.shape[2])
        add(dialect.fixed("query_head", "head"), dialect.fixed("key_head", f"head / {self.shared_by}"))
        self.load_rows()
        self.declare(rows)
        add(dialect.barrier())
        self.sum_rows()
        if "query" in self.wanted:
            self.load_sums(rows, "first_row + down", "highest", "total")
            self.sums(["near_sum"])
            window, causal = window_of(self.attributes), self.attributes["is_causal"]
            after = 0 if causal else None if window is None else window[1]
            with self.every_column(*self.range(None if window is None else window[0], after, self.count)):
                self.load_columns("value")
                self.product("pulled", "beside_tile", "tile")
                self.load_columns("key")
                self.product("scores", "near_tile", "tile")
                self.pull(f"first_row + down + {ACROSS} * r", f"first_column + across + {ACROSS} * c")
                self.hand("scores")
                add(dialect.barrier())
                self.mix("near_sum")
            self.store({"query": "near_sum"}, self.shape[1])
        return self.step("gradient of queries", groups)

    def sum_rows(self) -> None:
        """inner: the sum of products of a row of the result and its cotangent; kept for the other launch."""
        add, kind = self.lines.add, register_type(self.dtype)
        with self.each("r", self.tile.rows):
            add(self.dialect.fixed("query_number", f"first_row + down + {ACROSS} * r"))
            add(f"{kind} sum = {literal(self.dtype, 0)};")
            with self.lines.block(self.dialect.condition(f"query_number < {self.shape[1]}")):
                value = self.element("output", "batch", "query_number", "query_head", "d")
                add(f"for (int d = across; d < {self.shape[-1]}; d += {ACROSS})")
                add(f"    sum += beside_tile[down + {ACROSS} * r][d] * {value};")
            add(*self.dialect.combine_group("sum", "add", self.dtype, ACROSS, ACROSS))
            add("inner[r] = sum;")
            with self.lines.block(self.dialect.condition(f"across == 0 && query_number < {self.shape[1]}")):
                self.write_to("row_products", self.summed, "sum", *_ROW)


class _OfKeys(_Gradient):
    """Rows are keys, and the values beside them."""

    near, beside, index = "key", "value", "c"

    def written(self) -> Step:
        """The statements."""
        add, dialect, columns, shared = self.lines.add, self.dialect, self.tile.columns, self.shared_by
        results = {"key": "near_sum", "value": "beside_sum"}
        results = {name: sums for name, sums in results.items() if name in self.wanted}
        self.start()
        groups = self.place(self.count, self.shape[2] // shared)
        add(dialect.fixed("key_head", "head"))
        self.load_rows()
        self.declare(columns)
        self.sums(results.values())
        window, causal = window_of(self.attributes), self.attributes["is_causal"]
        before = 0 if causal else None if window is None else window[1]
        start, stop = self.range(before, None if window is None else window[0], self.shape[1])
        with self.lines.block(dialect.loop("query_head", f"head * {shared}", f"(head + 1) * {shared}")):
            with self.every_column(start, stop):
                self.load_columns("cotangent")
                self.load_sums(columns, "first_column + across", "highest", "total", "inner")
                self.product("pulled", "beside_tile", "tile")
                self.load_columns("query")
                self.product("scores", "near_tile", "tile")
                self.pull(f"first_column + across + {ACROSS} * c", f"first_row + down + {ACROSS} * r")
                if "key" in results:
                    self.hand("scores")
                    add(dialect.barrier())
                    self.mix("near_sum")
                if "value" in results:
                    self.load_columns("cotangent", "pulled")
                    self.mix("beside_sum")
        self.store(results, self.count)
        return self.step("gradient of keys and values", groups)
