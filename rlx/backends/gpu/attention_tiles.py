"""The common part of attention kernels with a matrix unit: the rules of a call, and the sizes of all kernels.

A group holds a tile of rows and iterates over the columns tile by tile. A work-item has every sixteenth row and column;
a score is in the registers of the item that has its row and its column.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.c.types import literal, register_type, suffix
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.steps import LaunchStep, ceiling, step_of
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.lines import Lines
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import compute_dtype

__all__ = ["ACROSS", "HIDDEN", "ITEMS", "AttentionText", "Tile", "tile_width", "window_of"]

ACROSS = 16  # items that share a row, and rows of a group that are computed at a time
ITEMS = ACROSS * ACROSS
HIDDEN = -0.7 * float(np.finfo(np.float32).max)  # the score of a masked key
_OF_KEYS = frozenset({"key", "value"})


class Tile(NamedTuple):
    """How many rows and columns of a tile an item has: every sixteenth one.

    slices: the number of groups that divide the mixed features and share the attention weights.
    """

    rows: int
    columns: int
    slices: int = 1


def tile_width(features: int) -> int:
    """The row pitch of a tile of columns: odd, so that neighbouring items read different banks."""
    return ceiling(features, ACROSS) * ACROSS + 1


def window_of(attributes: Mapping[str, Any]) -> tuple[int, int] | None:
    """The numbers of keys before and after its own position that a query sees."""
    size = attributes["local_window_size"]
    return (size, size) if isinstance(size, int) else size


class AttentionText(ABC):
    """The statements of an attention kernel. `parameters`: the arrays that the kernel takes.

    shape: batch, queries, heads, features. count, shared_by: the number of keys, and of query heads for each key head.
    tile: rows and columns of an item; rows, columns: of a group. parts: features of an item.

    The remaining fields describe how work is divided; FragmentText sets them. items: the size of a group;
    sharing, apart: the number of items that have parts of one row, and the distance between them. row, column, feature:
    the position in the group's tile of an item's row r, column c and feature e. at_column, at_feature: the register of
    an array that holds them. unit: the matrix unit that computes the products.
    """

    items: int
    sharing: int
    apart: int
    row: str
    column: str
    feature: str
    at_column: str
    at_feature: str
    unit: str

    def __init__(self, kernel: Library, dialect: DeviceDialect) -> None:
        self.dialect, self.attributes = dialect, kernel.attributes
        self.given = dict(zip(kernel.attributes["operands"], kernel.inputs, strict=True))
        query, key = self.given["query"], self.given["key"]
        tile = self.tile_of(query)
        assert tile is not None, "the claim checked that a tile fits"
        self.tile = tile
        self.shape = ((1,) * (4 - len(query.shape)) + query.shape)[-4:]
        self.count, self.shared_by = key.shape[-3], query.shape[-2] // key.shape[-2]
        self.dtype = compute_dtype(query.buffer.dtype)
        self.rows, self.columns = self.items // self.sharing * tile.rows, self.sharing * tile.columns
        self.parts = ceiling(self.shape[-1], ACROSS * tile.slices) * ACROSS // self.sharing
        self.lines = Lines(dialect)
        self.parameters: dict[Parameter, Buffer] = {}

    @abstractmethod
    def tile_of(self, query: Operand) -> Tile | None:
        """The tile of a work-item; None if none fits."""

    def combine(self, name: str, reducer: str) -> None:
        """Combine a variable of the items that share a row."""
        shared = self.dialect.combine_group(name, reducer, self.dtype, self.sharing, self.sharing, self.apart)
        self.lines.add(*shared)

    def step(self, strategy: str, groups: int) -> LaunchStep:
        """The launch of the statements written so far."""
        arrays, text = [*self.parameters.values()], self.lines.text
        return step_of(
            "attention", strategy, self.dialect, [*self.parameters], arrays, text, groups, self.items, roomy=1,
            unit=self.unit,
        )  # fmt: skip

    # ------------------------------------------------------------------ positions
    def place(self, count: int, heads: int) -> int:
        """Declare the rows of a group and their head and batch (first_row, head, batch); return the number of groups.

        With several slices, also declare `slice`, the group's.
        """
        dialect, tiles, slices = self.dialect, ceiling(count, self.rows), self.tile.slices
        number = f"({dialect.number_type}){dialect.group_number()}"
        if slices > 1:
            self.lines.add(dialect.fixed("slice", f"{number} % {slices}u"))
        self.lines.add(
            dialect.number("point", f"{number} / {slices}u" if slices > 1 else number),
            dialect.fixed("first_row", f"point % {tiles}u * {self.rows}"),
            dialect.fixed("head", f"point / {tiles}u % {heads}u"),
            dialect.fixed("batch", f"point / {tiles * heads}u"),
        )
        return self.shape[0] * heads * tiles * slices

    def each(self, name: str, count: int) -> Any:
        """A loop over registers, unrolled by the compiler."""
        return self.lines.block(self.dialect.unroll, f"for (int {name} = 0; {name} < {count}; ++{name}) {{")

    def every_column(self, start: str, stop: str) -> Any:
        """A loop over the tiles of columns from start to stop."""
        head = self.dialect.loop("first_column", start, stop)
        return self.lines.block(head.replace("++first_column", f"first_column += {self.columns}"))

    def sees_all(self) -> bool:
        """Whether a group iterates over all columns: if a query may see no key, all keys have the same weight."""
        window = window_of(self.attributes)
        masks = {"mask", "query_seq_lengths", "key_value_seq_lengths"} & self.given.keys()
        return bool(masks) or (window is not None and self.shape[1] - 1 - window[0] >= self.count)

    def range(self, before: int | None, after: int | None, count: int) -> tuple[str, str]:
        """The columns that a group iterates over: the numbers before its first row and after its last; None: all."""
        if self.sees_all():
            return "0", str(count)
        start, stop = "0", str(count)
        if before is not None:
            start = f"(first_row > {before} ? first_row - {before} : 0)"
        if after is not None:
            self.lines.add(self.dialect.fixed("beyond", f"first_row + {self.rows + after}"))
            stop = f"(beyond < {count} ? beyond : {count})"
        return start, stop

    @property
    def first(self) -> str:
        """The condition under which an item writes the numbers that belong to a whole row."""
        return "across == 0" + (" && slice == 0" if self.tile.slices > 1 else "")

    # ------------------------------------------------------------------ memory
    def parameter(self, name: str, buffer: Buffer, written: bool = False) -> str:
        """The name of an array that the kernel takes; operands that share an array share a name."""
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
        """The position of an element."""
        rank = len(operand.shape)
        sides = zip(operand.shape, operand.strides, axes[len(axes) - rank :], strict=True)
        return self.dialect.position([(stride, axis) for size, stride, axis in sides if size > 1], operand.offset)

    def ends(self, name: str) -> tuple[str, int]:
        """The head of an operand that belongs to queries or keys, and its number of queries or keys."""
        return ("key_head", self.count) if name in _OF_KEYS else ("query_head", self.shape[1])

    def ended(self, name: str, place: str) -> str:
        """The condition under which an operand's query or key counts; empty if all of them count."""
        return ""

    def write_to(self, name: str, operand: Operand, value: str, *axes: str) -> None:
        """An element of a result."""
        array = self.parameter(name, operand.buffer, True)
        place = self.position(operand, axes)
        self.lines.add(self.dialect.store(operand.buffer.dtype, self.dtype, array, place, f"({value})"))

    # ------------------------------------------------------------------ numbers
    def function(self, name: str, argument: str) -> str:
        """A function of C's library."""
        return f"{name}{suffix(self.dtype)}({argument})"

    def registers(self, name: str, each: int) -> None:
        """Declare an array of `each` registers for each row."""
        self.lines.add(f"{register_type(self.dtype)} {name}[{self.tile.rows}][{each}];")

    def sums(self, names: Iterable[str]) -> None:
        """Declare the registers in which rows are mixed."""
        for name in names:
            self.registers(name, self.parts)
            with self.each("r", self.tile.rows), self.each("e", self.parts):
                self.lines.add(f"{name}{self.at_feature} = {literal(self.dtype, 0)};")

    def store_row(self, name: str, operand: Operand, value: str, number: str, head: str) -> None:
        """Store a row of a result: `value` for each feature e of an item."""
        with self.each("e", self.parts):
            self.lines.add(self.dialect.fixed("d", self.feature))
            with self.lines.block(self.dialect.condition(f"d < {self.shape[-1]}")):
                self.write_to(name, operand, value, "batch", number, head, "d")

    # ------------------------------------------------------------------ rules
    @property
    def factor(self) -> str:
        """The factor of the products."""
        scale = self.attributes["scale"]
        return literal(self.dtype, 1.0 / math.sqrt(self.shape[-1]) if scale is None else scale)

    def capped(self, score: str) -> str:
        """A score, capped if there is a cap, with its bias."""
        cap = self.attributes["softcap"]
        if cap is not None:
            number = literal(self.dtype, cap)
            score = f"{self.function('tanh', f'{score} / {number}')} * {number}"
        return f"{score} + {self.at_score('bias')}" if "bias" in self.given else score

    def at_score(self, name: str) -> str:
        """The element of a bias or a mask that applies to a score."""
        return self.element(name, "batch", "query_head", "query_number", "key_number")

    def seen(self) -> str:
        """The condition under which a query sees a key; empty if it always does."""
        conditions, window = [], window_of(self.attributes)
        if "mask" in self.given:
            conditions.append(self.at_score("mask"))
        if self.attributes["is_causal"]:
            conditions.append("query_number >= key_number")
        if window is not None:
            conditions.append(f"query_number <= key_number + {window[0]} && query_number >= key_number - {window[1]}")
        for name, number in (("query_seq_lengths", "query_number"), ("key_value_seq_lengths", "key_number")):
            if name in self.given:
                conditions.append(f"{number} < {self.element(name, 'batch')}")
        return " && ".join(conditions)
