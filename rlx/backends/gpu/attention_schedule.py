"""The common part of attention kernels: the rules of a call, the places of its numbers, and the schedule over tiles.

A group holds a tile of rows and iterates over the columns tile by tile. Some work-items share a row; a score is in the
registers of the work-item that has its row and its column. Single work-items multiply tiles (`ItemTiles`), or warps
with a matrix unit (`FragmentTiles`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import combine_group, unsigned
from rlx.backends.gpu.steps import LaunchStep, ceiling, code_step, parameter_array, position_dtype
from rlx.backends.gpu.tile_sizes import ACROSS
from rlx.backends.loops.dialect import Parameter
from rlx.code.tree import (
    LOOSE,
    Apply,
    Array,
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

__all__ = ["HIDDEN", "LOG2_E", "AttentionCode", "C", "E", "R", "Tile", "every", "window_of"]

LOG2_E = math.log2(math.e)
HIDDEN = -0.7 * float(np.finfo(np.float32).max)  # the score of a masked key
_OF_KEYS = frozenset({"key", "value"})
_BOOL, _INT32 = np.dtype(bool), np.dtype(np.int32)
# a row, a column and a feature of a work-item, and the work-item's place among those that share a row
R, C, E, _ACROSS = (Register(_INT32, name) for name in ("r", "c", "e", "across"))


class Tile(NamedTuple):
    """How many rows and columns of a tile a work-item has.

    slices: the number of groups that divide the mixed features and share the attention weights.
    """

    rows: int
    columns: int
    slices: int = 1


def window_of(attributes: Mapping[str, Any]) -> tuple[int, int] | None:
    """The numbers of keys before and after its own position that a query sees."""
    size = attributes["local_window_size"]
    return (size, size) if isinstance(size, int) else size


def every(*conditions: Expression) -> Expression:
    """Whether all conditions hold."""
    return reduce(lambda left, right: Both(_BOOL, left, right), conditions)


class AttentionCode(ABC):
    """The code of an attention kernel, and the facts about its call.

    items, sharing, apart: the size of a group; the number of work-items that share a row, and the distance between
    them. unit: the matrix unit. shape: batch, queries, heads, features. count, shared_by: the number of keys, and of
    query heads for each key head. tile: rows and columns of a work-item; rows, columns: of a group. parts: features of
    a work-item, of those that its group mixes. parameters: the arrays that the kernel takes.
    """

    row: Expression  # the position in the tile of a work-item's row R, column C and feature E
    column: Expression
    feature: Expression

    def __init__(
        self, kernel: Library, dialect: DeviceDialect, wide: bool, tile: Tile, items: int, sharing: int,
        apart: int = 1, unit: str = "",
    ) -> None:  # fmt: skip
        self.kernel, self.dialect, self.tile, self.attributes = kernel, dialect, tile, kernel.attributes
        self.items, self.sharing, self.apart, self.unit = items, sharing, apart, unit
        self.position = position_dtype(wide)
        self.code = CodeWriter()
        self.parameters: dict[Parameter, Buffer] = {}
        self.given = dict(zip(self.attributes["operands"], kernel.inputs, strict=True))
        query, key = self.given["query"], self.given["key"]
        self.shape = ((1,) * (4 - len(query.shape)) + query.shape)[-4:]
        self.queries, self.features = self.shape[1], self.shape[3]
        self.count, self.shared_by = key.shape[-3], query.shape[-2] // key.shape[-2]
        self.dtype = compute_dtype(query.buffer.dtype)
        self.rows, self.columns = items // sharing * tile.rows, sharing * tile.columns
        self.parts = ceiling(self.features, ACROSS * tile.slices) * ACROSS // sharing
        self.across = _ACROSS
        names = (
            "batch", "query_head", "key_head", "query_number", "key_number", "first_row", "first_column", "slice",
        )  # fmt: skip
        (
            self.batch, self.query_head, self.key_head, self.query_number, self.key_number, self.first_row,
            self.first_column, self.slice,
        ) = (Register(self.position, name) for name in names)  # fmt: skip
        self.query_axes = self.batch, self.query_number, self.query_head

    def step(self, strategy: str, groups: int) -> LaunchStep:
        """The launch of the code."""
        how, arrays = strategy + (" by fragments" if self.unit else ""), [*self.parameters.values()]
        return code_step(
            "attention", how, self.dialect, [*self.parameters], arrays, self.code.block, groups, self.items, self.unit,
            roomy=1,
        )  # fmt: skip

    # ------------------------------------------------------------------ tiles
    @abstractmethod
    def number_items(self) -> None:
        """Declare `across`, and the registers on which the positions of rows and columns depend."""

    @abstractmethod
    def registers(self, name: str, each: int) -> Array:
        """An work-item's array, of `each` numbers for each of its rows."""

    @abstractmethod
    def cell(self, array: Array, number: Register) -> Element:
        """A number of a work-item's row R in such an array."""

    @abstractmethod
    def declare_columns(self, multiplied: Sequence[str], mixed: Sequence[str] = ()) -> None:
        """Declare the group's memory for tiles of columns of these operands."""

    @abstractmethod
    def declare_rows(self, *names: str) -> None:
        """Declare the memory for the group's rows of operands."""

    @abstractmethod
    def load_rows(self, *names: str) -> None:
        """Load the group's rows."""

    @abstractmethod
    def load_columns(self, *rows: str) -> None:
        """The beginning of an iteration: the next tiles of columns are used; and other rows, of these operands."""

    def declare_numbers(self, operands: Mapping[str, Operand]) -> None:
        """Declare tiles of numbers of each column, if such tiles are loaded with those of columns."""
        del operands

    @property
    def copied_numbers(self) -> bool:
        """Whether there are such tiles."""
        return False

    def copied_number(self, name: str) -> Expression:
        """A number of column C in such a tile."""
        raise NotImplementedError

    @contextmanager
    def over_columns(self, start: Expression | int, stop: Expression, again: bool = False) -> Generator[None]:
        """A loop over tiles of columns, which are loaded. again: whether another loop used the tiles before."""
        del again
        with self.code.loop(self.first_column, start, stop, self.columns):
            self.load_columns()
            yield

    @abstractmethod
    def multiply(self, products: Array, rows: str, columns: str) -> None:
        """Multiply the rows of an operand by a tile of columns of another one into registers."""

    @abstractmethod
    def mix(self, sums: Array, weights: Array, columns: str) -> None:
        """Add a tile of columns, weighted by numbers in registers, to sums of rows in registers."""

    # ------------------------------------------------------------------ arrays
    def exchange(self, name: str) -> Array:
        """The memory in which work-items that share a row combine a register, on devices without shuffles."""
        array = Array(f"group_{name}", self.dtype, "group", (self.items,))
        return array if self.dialect.shuffles else self.code.allocate(array)

    def numbers(self, name: str, *shape: int) -> Array:
        """An work-item's array."""
        return self.code.allocate(Array(name, self.dtype, "item", shape))

    def zeros(self, name: str, each: int) -> Array:
        """An work-item's array of `each` zeros for each of its rows."""
        array = self.registers(name, each)
        self.clear(array, E, each)
        return array

    def clear(self, array: Array, number: Register, each: int) -> None:
        """Set a work-item's array to zeros."""
        with self.over(R, self.tile.rows), self.over(number, each):
            self.code.write(self.cell(array, number), self.number(0))

    def parameter(self, name: str, buffer: Buffer, written: bool = False) -> Array:
        """An array that the kernel takes."""
        return parameter_array(self.parameters, name, buffer, written)

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
        """Declare the work-item's place, and the group's rows, head, batch and slice; the number of groups."""
        code, tiles, slices = self.code, ceiling(count, self.rows), self.tile.slices
        self.number_items()
        number = Coordinate(unsigned(self.position), "group")
        if slices > 1:
            code.declare("slice", number % slices, self.position)
        point = code.declare("point", number // slices)
        code.declare("first_row", point % tiles * self.rows, self.position)
        code.declare(head.name, point // tiles % heads, self.position)
        code.declare("batch", point // (tiles * heads), self.position)
        return self.shape[0] * heads * tiles * slices

    @contextmanager
    def over(self, register: Register, count: int, unrolled: int = True) -> Generator[None]:
        """A loop over registers."""
        with self.code.loop(register, 0, count, unrolled=unrolled):
            yield

    @contextmanager
    def over_scores(self) -> Generator[None]:
        """A loop over the scores of a work-item."""
        with self.over(R, self.tile.rows), self.over(C, self.tile.columns):
            yield

    @contextmanager
    def numbered(self, rows: Register, columns: Register | None = None) -> Generator[None]:
        """Declare the row, and the column, of a work-item's registers: what follows runs if they are queries and
        keys."""
        code, limits = self.code, {self.query_number: self.queries, self.key_number: self.count}
        code.declare(rows.name, self.first_row + self.row)
        if columns is not None:
            code.declare(columns.name, self.first_column + self.column)
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

    @property
    def unscaled(self) -> bool:
        """Whether scores stay products, and their factor is a part of the exponentials' base: of 16-bit operands, if
        nothing else changes the scores, and the factor keeps their order and the finite score of masked keys."""
        changed = self.attributes["softcap"] is not None or bool({"bias", "sinks"} & self.given.keys())
        return bool(self.unit) and not changed and 0 < self.factor.value <= 1

    def scaled(self, score: Expression) -> Expression:
        """A score from registers with its factor."""
        return self.apply("mul", score, self.factor) if self.unscaled else score

    @property
    def _rate(self) -> Number:
        """The factor of scores in registers in exponents of 2."""
        return self.number(LOG2_E * (self.factor.value if self.unscaled else 1.0))

    def exponential(self, difference: Expression) -> Expression:
        """The exponential of a difference of scores; of 16-bit operands with the error of a device's instruction."""
        if not self.unit:
            return self.apply("exp", difference)
        return self._power(self.apply("mul", difference, self._rate))

    def _power(self, exponent: Expression) -> Expression:
        return Apply(self.dtype, "exp2", (exponent,), LOOSE)

    def larger(self, left: Expression, right: Expression) -> Expression:
        """The larger one of two numbers; if one of them is NaN, so is a sum of exponentials."""
        return Apply(self.dtype, "max", (left, right), LOOSE)

    def row_numbers(self, largest: Expression, total: Expression) -> tuple[Expression, Expression]:
        """Two numbers with which `weight` computes a row's weights, from its largest score and sum of exponentials.

        Without a matrix unit these are the score and the reciprocal of the sum. Else they are the score and the
        logarithm of the reciprocal; of unscaled scores the logarithm of the reciprocal of the sum of all exponentials,
        and the weight of masked keys, which is not 0 if the query sees no key. Logarithms are added, not subtracted:
        Intel's compiler for processors moves a negation out of a loop with barriers, and warps then share its result.
        """
        inverse = self.apply("div", self.number(1), total)
        if not self.unit:
            return largest, inverse
        logarithm = self.apply("log2", inverse)
        if not self.unscaled:
            return largest, logarithm
        hidden = largest <= self.apply("mul", self.number(HIDDEN), self.factor)
        shift = self.apply("fma", largest, self.number(-LOG2_E), logarithm)
        return shift, self.apply("select", hidden, inverse, self.number(0))

    def weight(self, product: Expression, first: Expression, second: Expression, whole: bool) -> Expression:
        """The weight of a key, from its product and a row's numbers. whole: all queries of the tile see all keys."""
        if self.unscaled:
            weight = self._power(self.apply("fma", product, self._rate, first))
            seen = None if whole else self.seen()
            return weight if seen is None else self.apply("select", seen, weight, second)
        difference = self.apply("sub", self.adjusted(product, whole), first)
        if not self.unit:
            return self.apply("mul", self.apply("exp", difference), second)
        return self._power(self.apply("fma", difference, self._rate, second))

    def bent(self, score: Expression) -> Expression:
        """The hyperbolic tangent of a scaled score divided by the cap."""
        return self.apply("tanh", self.apply("div", score, self.number(self.attributes["softcap"])))

    def adjusted(self, product: Expression, whole: bool = False) -> Expression:
        """A score from its product: with its factor, capped if there is a cap, and with its bias, or only the product
        if it stays unscaled; of a key that the query does not see, HIDDEN. whole: see `weight`."""
        score = product if self.unscaled else self.apply("mul", product, self.factor)
        if self.attributes["softcap"] is not None:
            score = self.apply("mul", self.bent(score), self.number(self.attributes["softcap"]))
        if "bias" in self.given:
            score = self.apply("add", score, self._at_score("bias"))
        return score if whole else self.if_seen(score, HIDDEN)

    def seen(self) -> Expression | None:
        """Whether the query sees the key; None: always."""
        conditions = [*self._conditions()]
        return every(*conditions) if conditions else None

    def if_seen(self, value: Expression, hidden: float) -> Expression:
        """The value if the query sees the key."""
        seen = self.seen()
        return value if seen is None else self.apply("select", seen, value, self.number(hidden))

    def is_whole(self, rows: Register) -> Expression | None:
        """Whether all queries of the tile see all its keys, and its columns are within bounds; None: not known.

        rows: the number of a row, of a query or of a key.
        """
        if "mask" in self.given:
            return None
        ends = self.first_row + self.rows, self.first_column + self.columns
        by_query = rows == self.query_number
        (query, key), (last_query, last_key) = (
            (first, second) if by_query else (second, first)
            for first, second in ((self.first_row, self.first_column), ends)
        )
        conditions: list[Expression] = [ends[1] <= (self.count if by_query else self.queries)]
        if "bias" in self.given:  # which rows beyond the last one do not have
            conditions.append(ends[0] <= (self.queries if by_query else self.count))
        window = window_of(self.attributes)
        after = 0 if self.attributes["is_causal"] else None if window is None else window[1]
        if after is not None:
            conditions.append(query + (after + 1) >= last_key)
        if window is not None:
            conditions.append(last_query <= key + (window[0] + 1))
        for name, end in (("query_seq_lengths", last_query), ("key_value_seq_lengths", last_key)):
            if name in self.given:
                conditions.append(end <= self.length(name))
        return every(*conditions)

    @contextmanager
    def at_scores(self, rows: Register, columns: Register) -> Generator[None]:
        """A loop over the scores of a tile that are all seen, with the numbers of queries and keys."""
        with self.over_scores():
            self.code.declare(rows.name, self.first_row + self.row)
            self.code.declare(columns.name, self.first_column + self.column)
            yield

    def head_of(self, name: str) -> Register:
        """The head of an operand that belongs to queries or keys."""
        return self.key_head if name in _OF_KEYS else self.query_head

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
        conditions = [place < (self.count if name in _OF_KEYS else self.queries)]
        if name == "cotangent" and "query_seq_lengths" in self.given:
            conditions.append(place < self.length("query_seq_lengths"))
        return conditions

    # ------------------------------------------------------------------ rows
    def reduce_row(self, register: Register, reducer: str, memory: Array) -> None:
        """Combine a register of the work-items that share a row."""
        combine_group(
            self.code, register, reducer, self.sharing, self.sharing, self.dialect.shuffles, memory, self.apart
        )

    def scale_row(self, sums: Array, factor: Expression) -> None:
        """Multiply a row in registers."""
        with self.over(E, self.parts):
            self.code.write(self.cell(sums, E), self.apply("mul", self.cell(sums, E), factor))

    def is_first(self) -> Expression:
        """Whether a work-item writes the numbers that belong to a whole row."""
        first = _ACROSS.equals(0)
        return every(first, self.slice.equals(0)) if self.tile.slices > 1 else first

    def store_row(self, name: str, operand: Operand, sums: Array, value: Any, *axes: Expression) -> None:
        """Store a row of a result: a value of each sum of a work-item."""
        with self.over(E, self.parts):
            d = self.code.declare("d", self.feature)
            with self.code.when(d < self.features):
                self.write_to(name, operand, value(self.cell(sums, E)), self.batch, *axes, d)
