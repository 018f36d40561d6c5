"""Attention without a matrix unit: each work-item multiplies numbers of tiles in the group's memory.

A work-item has every sixteenth row and column of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.gpu.attention_schedule import AttentionCode, C, E, R, Tile, every
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM
from rlx.backends.gpu.steps import ceiling
from rlx.backends.gpu.tile_sizes import ACROSS, ATTENTION_TURNS
from rlx.code.tree import Array, Barrier, Element, Register
from rlx.ir.kernels import Library

__all__ = ["ITEMS", "ItemTiles", "tile_width"]

ITEMS = ACROSS * ACROSS
_INT32 = np.dtype(np.int32)
_ACROSS, _DOWN = Register(_INT32, "across"), Register(_INT32, "down")  # a work-item's first column and row


def tile_width(features: int) -> int:
    """The row pitch of a tile of columns: odd, so that neighbouring work-items read different banks."""
    return ceiling(features, ACROSS) * ACROSS + 1


class ItemTiles(AttentionCode):
    """Tiles of one operand's columns after another have the same memory; attention weights are in memory as well."""

    row, column, feature = (start + axis * ACROSS for start, axis in ((_DOWN, R), (_ACROSS, C), (_ACROSS, E)))

    def __init__(self, kernel: Library, dialect: DeviceDialect, wide: bool, tile: Tile | None) -> None:
        assert tile is not None, "the claim checked that a tile fits"
        super().__init__(kernel, dialect, wide, tile, ITEMS, ACROSS)
        self._tile = Array("tile", self.dtype, "group", (self.columns, tile_width(self.features)))
        self._weights = Array("shares", self.dtype, "group", (self.rows, self.columns))
        # in this iteration: the operand that is in the tile, and whether weights are in memory
        self._loaded, self._mixed = "", False

    def number_items(self) -> None:
        """Declare the work-item's first row and column."""
        self.code.declare("across", ITEM % ACROSS)
        self.code.declare("down", ITEM // ACROSS)

    def registers(self, name: str, each: int) -> Array:
        """An work-item's array by rows."""
        return self.numbers(name, self.tile.rows, each)

    def cell(self, array: Array, number: Register) -> Element:
        """An element of the array."""
        return array[R, number]

    def _rows_of(self, name: str) -> Array:
        return Array(f"{name}_tile", self.dtype, "group", (self.rows, self.features))

    def declare_columns(self, multiplied: Sequence[str], mixed: Sequence[str] = ()) -> None:
        """Declare the tile, and the memory of attention weights."""
        self.code.allocate(self._tile)
        if mixed:
            self.code.allocate(self._weights)

    def declare_rows(self, *names: str) -> None:
        """Declare tiles of rows."""
        for name in names:
            self.code.allocate(self._rows_of(name))

    def load_rows(self, *names: str) -> None:
        """Load tiles of rows."""
        for name in names:
            self._load(self._rows_of(name), name, self.first_row)

    def load_columns(self, *rows: str) -> None:
        """Load rows; columns are loaded where they are used."""
        self._loaded, self._mixed = "", False
        if rows:
            self.code.add(Barrier())
            self.load_rows(*rows)

    def multiply(self, products: Array, rows: str, columns: str) -> None:
        """Load the columns and multiply."""
        self.code.add(Barrier())
        self._load_columns(columns)
        self.code.add(Barrier())
        self.clear(products, C, self.tile.columns)
        d = Register(_INT32, "d")
        with self.over(d, self.features, ATTENTION_TURNS):
            self._add_products(products, self._rows_of(rows)[self.row, d], self._tile[_ACROSS + E * ACROSS, d])

    def mix(self, sums: Array, weights: Array, columns: str) -> None:
        """Write the weights to memory that the whole group reads, load the columns, and multiply."""
        code = self.code
        if self._mixed or self._loaded != columns:
            code.add(Barrier())
        with self.over_scores():
            code.write(self._weights[self.row, self.column], weights[R, C])
        if self._loaded != columns:
            self._load_columns(columns)
        self._mixed = True
        code.add(Barrier())
        k = Register(_INT32, "k")
        with self.over(k, self.columns, ATTENTION_TURNS):
            self._add_products(sums, self._weights[self.row, k], self._tile[k, self.feature])

    def _load_columns(self, name: str) -> None:
        self._load(self._tile, name, self.first_column)
        self._loaded = name

    def _load(self, tile: Array, name: str, first: Register) -> None:
        """Load a tile of an operand of queries or keys: zero outside its bounds and where its rows do not count."""
        code, (rows, width) = self.code, tile.shape
        width = width if width == self.features else self.parts * ACROSS
        with code.loop(Register(_INT32, "at"), ITEM, rows * width, ITEMS):
            d = code.declare("d", Register(_INT32, "at") % width)
            f = code.declare("f", Register(_INT32, "at") // width)
            place = code.declare("place", first + f)
            inside = [d < self.features] if width > self.features else []
            with code.when(every(*self.counted(name, place), *inside)):
                code.write(tile[f, d], self.element(name, self.batch, place, self.head_of(name), d))
            with code.otherwise():
                code.write(tile[f, d], self.number(0))

    def _add_products(self, sums: Array, left: Element, right: Element) -> None:
        """Add the products of elements of each row R of a work-item and of each of its columns, or features, E."""
        code, (rows, columns) = self.code, sums.shape
        lefts, rights = self.numbers("left", rows), self.numbers("right", columns)
        with code.loop(R, 0, rows):
            code.write(lefts[R], left)
        with code.loop(E, 0, columns):
            code.write(rights[E], right)
        with code.loop(R, 0, rows), code.loop(E, 0, columns):
            code.write(sums[R, E], self.apply("fma", lefts[R], rights[E], sums[R, E]))
