"""The common part of attention kernels: their arrays and layouts, the rules of a call, and the schedule over tiles.

A group holds a tile of rows and iterates over the columns tile by tile. A work-item has every sixteenth row and column;
a score is in the registers of the item that has its row and its column.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from rlx.backends.gpu.attention_tiles import ACROSS, HIDDEN, ITEMS, Tile, tile_width, window_of
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, combine_group, unsigned
from rlx.backends.gpu.steps import LaunchStep, ceiling, code_step, position_dtype
from rlx.backends.loops.dialect import Parameter
from rlx.code.tree import (
    Apply,
    Array,
    Barrier,
    Both,
    Coordinate,
    Element,
    Expression,
    Linear,
    Number,
    Register,
    minimum,
)
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import compute_dtype

__all__ = ["AttentionCode", "C", "R", "attention_code", "every"]

_TURNS = 4  # unroll factor of loops over features and columns: more would not fit in registers
_BOOL, _INT32 = np.dtype(bool), np.dtype(np.int32)
# a row, a column and a feature of an item; the item's place among those that share a row, and its first row
R, C, _E, _ACROSS, _DOWN = (Register(_INT32, name) for name in ("r", "c", "e", "across", "down"))
_ROW, _COLUMN, _FEATURE = (start + axis * ACROSS for start, axis in ((_DOWN, R), (_ACROSS, C), (_ACROSS, _E)))


def every(*conditions: Expression) -> Expression:
    """Whether all conditions hold."""
    return reduce(lambda left, right: Both(_BOOL, left, right), conditions)


@dataclass
class AttentionCode:
    """The code of an attention kernel, and the facts about its call.

    shape: batch, queries, heads, features. count, shared_by: the number of keys, and of query heads for each key head.
    tile: rows and columns of an item. parameters: the arrays that the kernel takes.
    """

    kernel: Library
    dialect: DeviceDialect
    position: np.dtype
    tile: Tile
    code: CodeWriter = field(default_factory=CodeWriter)
    parameters: dict[Parameter, Buffer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.attributes = self.kernel.attributes
        self.given = dict(zip(self.attributes["operands"], self.kernel.inputs, strict=True))
        query, key = self.given["query"], self.given["key"]
        self.shape = ((1,) * (4 - len(query.shape)) + query.shape)[-4:]
        self.queries, self.features = self.shape[1], self.shape[3]
        self.count, self.shared_by = key.shape[-3], query.shape[-2] // key.shape[-2]
        self.dtype = compute_dtype(query.buffer.dtype)
        self.rows, self.columns = ACROSS * self.tile.rows, ACROSS * self.tile.columns
        self.parts = ceiling(self.features, ACROSS)
        self.row, self.column, self.across = _ROW, _COLUMN, _ACROSS
        names = ("batch", "query_head", "key_head", "query_number", "key_number", "first_row", "first_column")
        (
            self.batch, self.query_head, self.key_head, self.query_number, self.key_number, self.first_row,
            self.first_column,
        ) = (Register(self.position, name) for name in names)  # fmt: skip
        self.query_axes = self.batch, self.query_number, self.query_head

    def step(self, strategy: str, groups: int) -> LaunchStep:
        """The launch of the code."""
        arrays = [*self.parameters.values()]
        return code_step(
            "attention", strategy, self.dialect, [*self.parameters], arrays, self.code.block, groups, ITEMS, roomy=1
        )

    # ------------------------------------------------------------------ arrays
    def group_tile(self, name: str, rows: int, width: int) -> Array:
        """A tile in the group's memory."""
        return self.code.allocate(Array(name, self.dtype, "group", (rows, width)))

    def row_tile(self, name: str) -> Array:
        """A tile of the group's rows."""
        return self.group_tile(name, self.rows, self.features)

    def column_tile(self) -> Array:
        """A tile of columns."""
        return self.group_tile("tile", self.columns, tile_width(self.features))

    def weights_tile(self) -> Array:
        """A number for each row and column, which the group reads."""
        return self.group_tile("shares", self.rows, self.columns)

    def exchange(self, name: str) -> Array:
        """The memory in which items that share a row combine a register, on devices without shuffles."""
        array = Array(f"group_{name}", self.dtype, "group", (ITEMS,))
        return array if self.dialect.shuffles else self.code.allocate(array)

    def registers(self, name: str, *shape: int) -> Array:
        """An item's array."""
        return self.code.allocate(Array(name, self.dtype, "item", shape))

    def zeros(self, name: str, each: int) -> Array:
        """An item's array of `each` zeros for each of its rows."""
        array = self.registers(name, self.tile.rows, each)
        with self.over(R, self.tile.rows), self.over(_E, each):
            self.code.write(array[R, _E], self.number(0))
        return array

    def parameter(self, name: str, buffer: Buffer, written: bool = False) -> Array:
        """An array that the kernel takes; operands that share an array share a name."""
        found = next((p.name for p, other in self.parameters.items() if other is buffer), None)
        if found is None:
            self.parameters[Parameter(name, buffer.dtype, written)] = buffer
        return Array(found or name, buffer.dtype)

    def at(self, operand: Operand, axes: Sequence[Expression]) -> Linear:
        """The position of the element whose last axes have these indices; axes of size 1 are broadcast."""
        sides = zip(operand.shape, operand.strides, axes[len(axes) - len(operand.shape) :], strict=True)
        terms = tuple((stride, axis) for size, stride, axis in sides if size > 1 and stride)
        return Linear(self.position, terms, operand.offset)

    def element(self, name: str, *axes: Expression) -> Expression:
        """An element of an operand, in the dtype of sums."""
        operand = self.given[name]
        value = self.parameter(name, operand.buffer)[self.at(operand, axes)]
        return value if value.dtype in (self.dtype, _BOOL) else Apply(self.dtype, "cast", (value,))

    def length(self, name: str) -> Expression:
        """The length of the batch's sequence."""
        operand = self.given[name]
        value = self.parameter(name, operand.buffer)[self.at(operand, (self.batch,))]
        return value if value.dtype == self.position else Apply(self.position, "cast", (value,))

    def write_to(self, name: str, operand: Operand, value: Expression, *axes: Expression) -> None:
        """An element of a result."""
        self.code.write(self.parameter(name, operand.buffer, True)[self.at(operand, axes)], value)

    # ------------------------------------------------------------------ numbers
    def number(self, value: float) -> Number:
        """A constant."""
        return Number(self.dtype, float(value))

    def apply(self, op: str, *arguments: Expression) -> Apply:
        """An operation of numbers."""
        return Apply(self.dtype, op, arguments)

    # ------------------------------------------------------------------ places
    def place(self, head: Register, heads: int, count: int) -> int:
        """Declare the item's first row and column, and the group's rows, head and batch; the number of groups."""
        code, tiles = self.code, ceiling(count, self.rows)
        self.number_items()
        point = code.declare("point", Coordinate(unsigned(self.position), "group"))
        code.declare("first_row", point % tiles * self.rows, self.position)
        code.declare(head.name, point // tiles % heads, self.position)
        code.declare("batch", point // (tiles * heads), self.position)
        return self.shape[0] * heads * tiles

    def number_items(self) -> None:
        """Declare the item's first row and column."""
        self.code.declare("across", ITEM % ACROSS)
        self.code.declare("down", ITEM // ACROSS)

    @contextmanager
    def over(self, register: Register, count: int, unrolled: int = True) -> Generator[None]:
        """A loop over registers."""
        with self.code.loop(register, 0, count, unrolled=unrolled):
            yield

    @contextmanager
    def over_scores(self) -> Generator[None]:
        """A loop over the scores of an item."""
        with self.over(R, self.tile.rows), self.over(C, self.tile.columns):
            yield

    @contextmanager
    def numbered(self, rows: Register, columns: Register | None = None) -> Generator[None]:
        """Declare the row, and the column, of an item's registers: what follows runs if they are queries and keys."""
        code, limits = self.code, {self.query_number: self.queries, self.key_number: self.count}
        code.declare(rows.name, self.first_row + _ROW)
        if columns is not None:
            code.declare(columns.name, self.first_column + _COLUMN)
        found = [number for number in (rows, columns) if number is not None]
        with code.when(every(*(number < limits[number] for number in found))):
            yield

    def seen_range(self, before: int | None, after: int | None, count: int) -> tuple[Expression | int, Expression]:
        """The columns that a group iterates over: the numbers before its first row and after its last; None: all."""
        end, first = Number(self.position, count), self.first_row
        if self._sees_all():
            return 0, end
        start: Expression | int = 0
        if before is not None:
            start = Apply(self.position, "select", (first > before, first - before, Number(self.position, 0)))
        return start, end if after is None else minimum(first + (self.rows + after), count)

    def _sees_all(self) -> bool:
        """Whether a group iterates over all columns: if a query may see no key, all keys have the same weight."""
        window = window_of(self.attributes)
        masks = {"mask", "query_seq_lengths", "key_value_seq_lengths"} & self.given.keys()
        return bool(masks) or (window is not None and self.queries - 1 - window[0] >= self.count)

    def seen_keys(self) -> tuple[Expression | int, Expression]:
        """The keys that the group's queries see."""
        window = window_of(self.attributes)
        after = 0 if self.attributes["is_causal"] else None if window is None else window[1]
        return self.seen_range(None if window is None else window[0], after, self.count)

    def seeing_queries(self) -> tuple[Expression | int, Expression]:
        """The queries that see the group's keys."""
        window = window_of(self.attributes)
        before = 0 if self.attributes["is_causal"] else None if window is None else window[1]
        return self.seen_range(before, None if window is None else window[0], self.queries)

    # ------------------------------------------------------------------ rules
    @property
    def factor(self) -> Number:
        """The factor of the products."""
        scale = self.attributes["scale"]
        return self.number(1.0 / math.sqrt(self.features) if scale is None else scale)

    def bent(self, score: Expression) -> Expression:
        """The hyperbolic tangent of a score divided by the cap."""
        return self.apply("tanh", self.apply("div", score, self.number(self.attributes["softcap"])))

    def adjusted(self, score: Expression) -> Expression:
        """A scaled score, capped if there is a cap, with its bias; of a key that the query does not see, HIDDEN."""
        if self.attributes["softcap"] is not None:
            score = self.apply("mul", self.bent(score), self.number(self.attributes["softcap"]))
        if "bias" in self.given:
            score = self.apply("add", score, self._at_score("bias"))
        return self.if_seen(score, HIDDEN)

    def if_seen(self, value: Expression, hidden: float) -> Expression:
        """The value if the query sees the key."""
        conditions = [*self._conditions()]
        return self.apply("select", every(*conditions), value, self.number(hidden)) if conditions else value

    def _at_score(self, name: str) -> Expression:
        return self.element(name, self.batch, self.query_head, self.query_number, self.key_number)

    def _conditions(self) -> Generator[Expression]:
        query, key, window = self.query_number, self.key_number, window_of(self.attributes)
        if "mask" in self.given:
            yield self._at_score("mask")
        if self.attributes["is_causal"]:
            yield query >= key
        if window is not None:
            yield query <= key + window[0]
            yield query + window[1] >= key
        for name, number in (("query_seq_lengths", query), ("key_value_seq_lengths", key)):
            if name in self.given:
                yield number < self.length(name)

    def counted(self, name: str, place: Expression) -> list[Expression]:
        """The conditions that an operand's query or key has numbers: cotangents past a sequence's end are 0."""
        conditions = [place < (self.count if name in ("key", "value") else self.queries)]
        if name == "cotangent" and "query_seq_lengths" in self.given:
            conditions.append(place < self.length("query_seq_lengths"))
        return conditions

    # ------------------------------------------------------------------ the schedule over tiles
    def load_tile(self, tile: Array, name: str, first: Register) -> None:
        """Load a tile of an operand of queries or keys: zero outside its bounds and where its rows do not count."""
        code, (rows, width) = self.code, tile.shape
        width = width if width == self.features else self.parts * ACROSS
        head = self.key_head if name in ("key", "value") else self.query_head
        with code.loop(Register(_INT32, "at"), ITEM, rows * width, ITEMS):
            d = code.declare("d", Register(_INT32, "at") % width)
            f = code.declare("f", Register(_INT32, "at") // width)
            place = code.declare("place", first + f)
            inside = [d < self.features] if width > self.features else []
            with code.when(every(*self.counted(name, place), *inside)):
                code.write(tile[f, d], self.element(name, self.batch, place, head, d))
            with code.otherwise():
                code.write(tile[f, d], self.number(0))

    def reload(self, tile: Array, name: str) -> None:
        """Load one kind of columns in place of another."""
        self.code.add(Barrier())
        self.load_tile(tile, name, self.first_column)
        self.code.add(Barrier())

    def multiply(self, scores: Array, rows: Array, columns: Array) -> None:
        """Multiply the rows and columns of two tiles into registers."""
        with self.over_scores():
            self.code.write(scores[R, C], self.number(0))
        d = Register(_INT32, "d")
        with self.over(d, self.features, _TURNS):
            self._add_products(scores, rows[_ROW, d], columns[_ACROSS + _E * ACROSS, d])

    def mix(self, sums: Array, weights: Array, columns: Array) -> None:
        """Add columns, weighted by numbers of the group, to rows in registers."""
        k = Register(_INT32, "k")
        with self.over(k, self.columns, _TURNS):
            self._add_products(sums, weights[_ROW, k], columns[k, _FEATURE])

    def _add_products(self, sums: Array, left: Element, right: Element) -> None:
        """Add the products of elements of each row R of an item and of each of its columns, or features, E."""
        code, (rows, columns) = self.code, sums.shape
        lefts, rights = self.registers("left", rows), self.registers("right", columns)
        with code.loop(R, 0, rows):
            code.write(lefts[R], left)
        with code.loop(_E, 0, columns):
            code.write(rights[_E], right)
        with code.loop(R, 0, rows), code.loop(_E, 0, columns):
            code.write(sums[R, _E], self.apply("fma", lefts[R], rights[_E], sums[R, _E]))

    def share_with_group(self, weights: Array, scores: Array) -> None:
        """Write an item's numbers to memory that the whole group reads."""
        with self.over_scores():
            self.code.write(weights[_ROW, _COLUMN], scores[R, C])

    def reduce_row(self, register: Register, reducer: str, memory: Array) -> None:
        """Combine a register of the items that share a row."""
        combine_group(self.code, register, reducer, ACROSS, ACROSS, self.dialect.shuffles, memory)

    def scale_row(self, sums: Array, factor: Expression) -> None:
        """Multiply a row in registers."""
        with self.over(_E, sums.shape[1]):
            self.code.write(sums[R, _E], self.apply("mul", sums[R, _E], factor))

    def is_first(self) -> Expression:
        """Whether an item writes the numbers that belong to a whole row."""
        return _ACROSS.equals(0)

    def store_row(self, name: str, operand: Operand, sums: Array, value: Any, *axes: Expression) -> None:
        """Store a row of a result: a value of each sum of an item."""
        with self.over(_E, self.parts):
            d = self.code.declare("d", _FEATURE)
            with self.code.when(d < self.features):
                self.write_to(name, operand, value(sums[R, _E]), self.batch, *axes, d)


def attention_code(kernel: Library, dialect: DeviceDialect, wide: bool, tile: Tile | None) -> AttentionCode:
    """The beginning of a kernel."""
    assert tile is not None, "the claim checked that a tile fits"
    return AttentionCode(kernel, dialect, position_dtype(wide), tile)
