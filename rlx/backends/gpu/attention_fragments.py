"""Attention on a device's matrix unit: scores are fragments in a warp's registers, and the attention weights computed
from them are fragments of the next product.

Operands have 16 bits, sums are float32. A warp has 16 or 32 rows; two or four work-items share a row of scores, and
read nothing from other warps except the tiles that the group loads. If only the transposed product can be chained
(`Chain`), all products are transposed, and a work-item holds columns of a single row.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import numpy as np

from rlx.backends.gpu.attention_schedule import AttentionCode, C, E, R, Tile, every
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import FRAGMENT_ROWS, FRAGMENT_WORDS, LANE, NUMBER, Fragments
from rlx.backends.gpu.grid import ITEM
from rlx.backends.gpu.steps import ceiling
from rlx.backends.gpu.tile_sizes import (
    FRAGMENT_BYTES,
    FRAGMENT_LOADS,
    FRAGMENT_PADDING,
    FRAGMENT_WARPS,
    MANY_FEATURES,
    MOST_FEATURES,
)
from rlx.code.tree import (
    Apply,
    Array,
    AsyncCopy,
    AwaitCopies,
    Barrier,
    CloseCopies,
    Element,
    Expression,
    FragmentProduct,
    LoadMatrix,
    Number,
    PackedPair,
    Register,
    Shuffle,
    VectorRead,
    index,
    substituted,
)
from rlx.ir.kernels import Library, Operand

__all__ = ["FragmentSizes", "FragmentTiles", "fragments_of", "is_crowded", "most_features"]

_DEEP = 2 * FRAGMENT_WORDS  # 16-bit floats that one matrix instruction multiplies
_WIDE = 64  # work-items of a warp in which each work-item has half the numbers
_MULTIPLIED = ("query", "key", "value", "cotangent")
_INT32, _UINT32 = np.dtype(np.int32), np.dtype(np.uint32)
_HALF = Number(_UINT32, 16)  # bits
_ROWS = 8  # rows of a matrix that a warp loads
_NUMBER_BYTES = 24  # of a column's numbers in two tiles
# a work-item's warp; a fragment of its rows, of columns and of the depth; one of its words; one of the codes that it
# loads
_WARP, _B, _P, _K, _N, _PART = (Register(_INT32, name) for name in ("warp", "b", "p", "k", "n", "part"))


def fragments_of(kernel: Library, dialect: DeviceDialect) -> Fragments | None:
    """The matrix unit for a call of attention, or of its gradient: all operands have one 16-bit dtype."""
    given = dict(zip(kernel.attributes["operands"], kernel.inputs, strict=True))
    (dtype, *others) = {given[name].buffer.dtype for name in _MULTIPLIED if name in given}
    if others or dtype.itemsize != 2:
        return None
    fragments = dialect.fragments(dtype)
    return fragments if given["query"].shape[-1] <= most_features(fragments) else None


def most_features(fragments: Fragments | None) -> int:
    """The largest number of features for attention with fragments; 0 if fragments cannot be used."""
    if fragments is None or fragments.chain is None:
        return 0
    return MANY_FEATURES if _is_repeated(fragments) else MOST_FEATURES


def is_crowded(fragments: Fragments) -> bool:
    """Whether the rows or sums of more than `MANY_FEATURES` features leave few registers to a work-item."""
    return fragments.items < _WIDE


def _is_repeated(fragments: Fragments) -> bool:
    """Whether the work-items that share a row hold all of its words, which do not fit in registers."""
    return len(fragments.left) == FRAGMENT_WORDS


class FragmentSizes(NamedTuple):
    """The tile of a group: it has `columns` columns, and a warp `blocks` fragments of rows. slices: see Tile."""

    columns: int
    blocks: int = 1
    slices: int = 1


class FragmentTiles(AttentionCode):
    """Tiles of all columns of an iteration are in the group's memory together; rows, and attention weights, are in
    registers.

    Tiles are words: of operands that are multiplied for two neighbouring features, of operands that are mixed for two
    neighbouring columns.
    """

    def __init__(
        self, kernel: Library, dialect: DeviceDialect, wide: bool, fragments: Fragments, sizes: FragmentSizes
    ) -> None:
        chain = fragments.chain
        assert chain is not None
        each_row = fragments.sums // chain.rows
        sharing = fragments.columns // each_row
        tile = Tile(chain.rows * sizes.blocks, sizes.columns // sharing, sizes.slices)
        items = FRAGMENT_WARPS * fragments.items
        super().__init__(kernel, dialect, wide, tile, items, sharing, chain.apart, fragments.name)
        self._fragments, self._turned, self._blocks, self._each_row = fragments, chain.turned, sizes.blocks, each_row
        self._held = self.given["query"].buffer.dtype
        self._repeated = _is_repeated(fragments)
        # the words that a warp reads, and those that it holds
        self._moved, self._kept = fragments.right, fragments.left
        row, column = fragments.row, fragments.column
        if chain.turned:
            row, column, self._moved, self._kept = column, row, self._kept, self._moved
        self._block = R // chain.rows
        self._number: Expression = R % chain.rows * each_row if chain.rows > 1 else Number(_INT32, 0)
        self.row = self._row_of(self._block, substituted(row, {NUMBER: self._number}))
        self.column, feature = (
            n // each_row * fragments.columns + substituted(column, {NUMBER: n % each_row}) for n in (C, E)
        )
        self._wide = ceiling(self.features, _DEEP) * _DEEP  # features, padded to whole fragments
        self._made = self.parts * sharing  # the features that the group mixes, starting at `_ahead`
        self._ahead: Expression = self.slice * self._made if sizes.slices > 1 else Number(self.position, 0)
        self.feature = self._ahead + feature
        self._multiplied: Sequence[str] = ()
        self._mixed: Sequence[str] = ()
        self._numbers: Mapping[str, Operand] = {}
        self._stages = 0  # tiles of each operand; 0: they are not copied, but loaded through registers
        self._stage: Expression = Number(_INT32, 0)

    # ------------------------------------------------------------------ places
    def number_items(self) -> None:
        """Each warp has rows, which its work-items share."""
        size = self._fragments.items
        self.code.declare(LANE.name, ITEM % size)
        self.code.declare(_WARP.name, ITEM // size)
        self.code.declare("across", LANE // self.apart % self.sharing)

    def _row_of(self, block: Expression, row: Expression) -> Expression:
        """The row in the tile of a row in one of a warp's fragments."""
        return _WARP * (self._blocks * FRAGMENT_ROWS) + block * FRAGMENT_ROWS + row

    def registers(self, name: str, each: int) -> Array:
        """An work-item's sums of fragments."""
        return self.numbers(name, self._blocks * each // self._each_row, self._fragments.sums)

    def cell(self, array: Array, number: Register) -> Element:
        """One of a work-item's sums."""
        fragment = self._block * (array.shape[0] // self._blocks) + number // self._each_row
        return array[fragment, self._number + number % self._each_row]

    # ------------------------------------------------------------------ memory
    def _along(self, name: str) -> Array:
        return Array(f"{name}_words", _UINT32, "group", (self.columns, self._wide // 2 + FRAGMENT_PADDING))

    def _across(self, name: str) -> Array:
        return Array(f"mixed_{name}", _UINT32, "group", (self._made, self.columns // 2 + FRAGMENT_PADDING))

    def _rows_of(self, name: str) -> Array:
        """The group's rows as words of fragments; in the group's memory if a work-item would hold whole rows."""
        if self._repeated:
            return Array(f"{name}_rows", _UINT32, "group", (self.rows, self._wide // 2 + FRAGMENT_PADDING))
        return Array(f"{name}_rows", _UINT32, "item", (self._blocks, self._wide // _DEEP, len(self._kept)))

    def declare_columns(self, multiplied: Sequence[str], mixed: Sequence[str] = ()) -> None:
        """Declare a tile of each operand; two, if copies to one overlap with products of the other one."""
        self._multiplied, self._mixed = multiplied, mixed
        names = self._copied()
        moves = self._fragments.moves and self.tile.slices == 1  # sums of groups that share features take all registers
        if moves and all(_is_whole(self.given[name], FRAGMENT_LOADS) for name in names):
            nbytes = sum(self._copy_of(name).nbytes for name in names)
            self._stages = 2 if 2 * nbytes + _NUMBER_BYTES * self.columns <= FRAGMENT_BYTES else 1
            for name in names:
                self.code.allocate(self._copy_of(name))
            return
        for tile in (*map(self._along, multiplied), *map(self._across, mixed)):
            self.code.allocate(tile)

    def _copied(self) -> list[str]:
        return list(dict.fromkeys((*self._multiplied, *self._mixed)))

    def _copy_of(self, name: str) -> Array:
        """Tiles of an operand as it is in memory; rows of an odd number of 16 bytes have the words that a warp loads at
        once in different banks."""
        width = (self._wide // FRAGMENT_LOADS | 1) * FRAGMENT_LOADS
        return Array(f"{name}_tile", self._held, "group", (max(self._stages, 1), self.columns, width))

    def declare_numbers(self, operands: Mapping[str, Operand]) -> None:
        """Declare tiles of numbers."""
        if self._stages:
            self._numbers = operands
            for name in operands:
                self.code.allocate(self._number_tile(name))

    def _number_tile(self, name: str) -> Array:
        return Array(f"{name}_numbers", self.dtype, "group", (self._stages, self.columns))

    @property
    def copied_numbers(self) -> bool:
        """Whether numbers are copied."""
        return bool(self._numbers)

    def copied_number(self, name: str) -> Expression:
        """A number in its tile."""
        return self._number_tile(name)[self._stage, self.column]

    def declare_rows(self, *names: str) -> None:
        """Declare the rows."""
        for name in names:
            self.code.allocate(self._rows_of(name))

    def load_rows(self, *names: str) -> None:
        """Load the rows."""
        for name in names:
            self._load_along(self._rows_of(name), name, self.first_row) if self._repeated else self._load_held(name)

    def load_columns(self, *rows: str) -> None:
        """Load all tiles."""
        self.code.add(Barrier())
        self.load_rows(*rows)
        if self._stages:
            self._begin_copies(self._stage, self.first_column)
            self.code.add(AwaitCopies(), Barrier())
            return
        for name in self._multiplied:
            self._load_along(self._along(name), name, self.first_column)
        for name in self._mixed:
            self._load_across(self._across(name), name)
        self.code.add(Barrier())

    @contextmanager
    def over_columns(self, start: Expression | int, stop: Expression, again: bool = False) -> Generator[None]:
        """A loop over tiles of columns; if there are two tiles of each operand, the next one is copied meanwhile."""
        if self._stages < 2:
            with super().over_columns(start, stop):
                yield
            return
        code = self.code
        if again:
            code.add(Barrier())
        self._begin_copies(Number(_INT32, 0), index(start, self.position))
        stage = code.declare("stage", Number(_INT32, 0), changes=True)
        with code.loop(self.first_column, start, stop, self.columns):
            following = code.declare("following_column", self.first_column + self.columns)
            code.add(AwaitCopies(), Barrier())
            with code.when(following < stop):
                self._begin_copies(1 - stage, following)
            self._stage = stage
            yield
            self._stage = Number(_INT32, 0)
            code.assign(stage, 1 - stage)

    def _begin_copies(self, stage: Expression, first: Expression) -> None:
        """Begin to copy the tiles of columns from the first one on."""
        code, part = self.code, Register(_INT32, "part")
        each = self._wide // FRAGMENT_LOADS
        total = self.columns * each
        for name in self._copied():
            with code.loop(part, 0, ceiling(total, self.items), unrolled=True):
                at = code.declare("at", ITEM + part * self.items)
                row, d = at // each, at % each * FRAGMENT_LOADS
                if self.items % each == 0:
                    row, d = ITEM // each + part * (self.items // each), ITEM % each * FRAGMENT_LOADS
                with code.when(at < total) if total % self.items else nullcontext():
                    self._copy(name, stage, first, code.declare("f", row), code.declare("d", d))
        if self._numbers:
            with code.when(ITEM < self.columns):
                place = code.declare("place", first + ITEM)
                for name, operand in self._numbers.items():
                    array = self.parameter(f"{name}_of_rows", operand.buffer)
                    source = self.at(operand, (self.batch, place, self.query_head))
                    target = (stage, ITEM)
                    code.add(AsyncCopy(self._number_tile(name), target, array, source, 1, place < self.queries))
        code.add(CloseCopies())

    def _copy(self, name: str, stage: Expression, first: Expression, f: Register, d: Register) -> None:
        """Begin to copy features of a row of a tile."""
        operand = self.given[name]
        place = self.code.declare("place", first + f)
        conditions = self.counted(name, place)
        if self.features < self._wide:
            conditions.append(d < self.features)
        source = self.at(operand, (self.batch, place, self.head_of(name), d))
        array = self.parameter(name, operand.buffer)
        tile = self._copy_of(name)
        self.code.add(AsyncCopy(tile, (stage, f, d), array, source, FRAGMENT_LOADS, every(*conditions)))

    def _load_held(self, name: str) -> None:
        """Load rows into registers."""
        code, rows = self.code, self._rows_of(name)
        with self.over(_B, self._blocks), self.over(_K, self._wide // _DEEP):
            for number, (row, word) in enumerate(self._kept):
                place = code.declare(f"place{number}", self.first_row + self._row_of(_B, row))
                first = code.declare(f"first{number}", _K * _DEEP + 2 * word)
                codes = self._load_codes(f"codes{number}", name, 2, place, first)
                code.write(rows[_B, _K, number], _word(codes.code(0), codes.code(1)))

    def _load_along(self, tile: Array, source: str, first: Register) -> None:
        """Load a tile with a word for two features of a row."""
        code, width = self.code, self._at_once(source, 2)
        each = self._wide // width
        with self._every(tile.shape[0] * each) as at:
            d, f = code.declare("d", at % each * width), code.declare("f", at // each)
            place = code.declare("place", first + f)
            codes = self._load_codes("codes", source, width, place, d)
            with self.over(_PART, width // 2):
                code.write(tile[f, d // 2 + _PART], _word(codes.code(_PART * 2), codes.code(_PART * 2 + 1)))

    def _load_across(self, tile: Array, source: str) -> None:
        """Load a tile with a word for two rows of a feature."""
        code, width, pairs = self.code, self._at_once(source, 1), self.columns // 2
        with self._every(pairs * self._made // width) as at:
            near, far = at % pairs, at // pairs * width
            if width == 1:  # coalesced
                near, far = at // self._made, at % self._made
            f, d = code.declare("f", near), code.declare("d", far)
            feature = code.declare("feature", self._ahead + d)
            low, high = (
                self._load_codes(
                    name, source, width, code.declare(f"{name}_place", self.first_column + 2 * f + more), feature
                )
                for more, name in enumerate(("low", "high"))
            )
            with self.over(_PART, width):
                code.write(tile[d + _PART, f], _word(low.code(_PART), high.code(_PART)))

    @contextmanager
    def _every(self, count: int) -> Generator[Register]:
        """A loop whose iterations are divided among the group's work-items."""
        at = Register(_INT32, "at")
        with self.code.loop(at, ITEM, count, self.items):
            yield at

    def _at_once(self, name: str, least: int) -> int:
        """The number of an operand's features that a work-item loads at once."""
        return FRAGMENT_LOADS if _is_whole(self.given[name], FRAGMENT_LOADS) else least

    def _load_codes(self, name: str, source: str, width: int, place: Expression, feature: Expression) -> Array:
        """The codes of contiguous features of a row, zero outside the bounds."""
        code, codes = self.code, self.code.allocate(Array(name, self._held, "item", (width,)))
        operand, zero = self.given[source], Number(self._held, 0)
        array, counted = self.parameter(source, operand.buffer), self.counted(source, place)
        before = self.batch, place, self.head_of(source)
        if not _is_whole(operand, width):
            with self.over(_PART, width):
                with code.when(every(*counted, feature + _PART < self.features)):
                    code.write(codes.code(_PART), array.code(self.at(operand, (*before, feature + _PART))))
                with code.otherwise():
                    code.write(codes.code(_PART), zero)
            return codes
        if self.features < max(self._wide, self._made * self.tile.slices):
            counted.append(feature < self.features)
        vector = Array(f"{name}_vector", self._held, "item", (width,), vector=True)
        with code.when(every(*counted)):
            code.add(VectorRead(vector, array, self.at(operand, (*before, feature))))
            with self.over(_PART, width):
                code.write(codes.code(_PART), vector.code(_PART))
        with code.otherwise(), self.over(_PART, width):
            code.write(codes.code(_PART), zero)
        return codes

    # ------------------------------------------------------------------ products
    def multiply(self, products: Array, rows: str, columns: str) -> None:
        """Multiply the rows by columns whose words run along the features."""
        self.clear(products, C, self.tile.columns)
        held, tile, count = self._rows_of(rows), self._along(columns), len(self._kept)
        with self.over(_K, self._wide // _DEEP):
            words = [held[_B, _K, n] for n in range(count)] if not self._repeated else self._reread(held)
            if self._stages:
                row = _P * _ROWS + LANE // 16 * _ROWS + LANE % _ROWS
                feature = _K * _DEEP + LANE // _ROWS % 2 * FRAGMENT_LOADS
                self._multiply_copied(products, words, self._copy_of(columns), (row, feature), turned=False)
            else:
                self._multiply(products, words, tile)

    def _reread(self, rows: Array) -> list[Element]:
        """Read the words of a fragment of rows from the group's memory."""
        held = self.code.allocate(Array("held", _UINT32, "item", (self._blocks, len(self._kept))))
        with self.over(_B, self._blocks):
            for n, (row, word) in enumerate(self._kept):
                self.code.write(held[_B, n], rows[self._row_of(_B, row), _K * FRAGMENT_WORDS + word])
        return [held[_B, n] for n in range(len(self._kept))]

    def mix(self, sums: Array, weights: Array, columns: str) -> None:
        """Multiply weights, rounded to the columns' dtype, by columns whose words run along the columns."""
        left = Array("left", _UINT32, "item", (self._blocks, len(self._kept)))
        with self.over(_K, self.columns // _DEEP):
            self.code.allocate(left)
            with self.over(_B, self._blocks):
                self._pack(left, weights)
            words = [left[_B, n] for n in range(len(self._kept))]
            if self._stages:
                row = _K * _DEEP + LANE // _ROWS % 2 * _ROWS + LANE % _ROWS
                feature = self._ahead + _P * FRAGMENT_LOADS + LANE // 16 * FRAGMENT_LOADS
                self._multiply_copied(sums, words, self._copy_of(columns), (row, feature), turned=True)
            else:
                self._multiply(sums, words, self._across(columns))

    def _multiply_copied(
        self, sums: Array, held: Sequence[Expression], tile: Array, position: tuple[Expression, Expression],
        turned: bool,
    ) -> None:  # fmt: skip
        """Multiply two column fragments of a tile at a time, whose matrices begin at a position of each work-item."""
        code, width = self.code, sums.shape[0] // self._blocks
        moved = Array("moved", _UINT32, "item", (4,))
        with code.loop(_P, 0, width, 2, unrolled=True):
            code.allocate(moved)
            code.add(LoadMatrix(moved, tile, (self._stage, *position), turned))
            with self.over(_B, self._blocks), self.over(_N, 2):
                words = (*held, moved[_N * 2], moved[_N * 2 + 1])
                code.add(FragmentProduct(self._fragments, self._held, sums, _B * width + _P + _N, words))

    def _pack(self, left: Array, weights: Array) -> None:
        """The sums of column fragments k as the words of an operand."""
        code, sums, fragments = self.code, self._fragments.sums, _DEEP // self._fragments.columns
        given, first = sums * fragments // 2, _B * (weights.shape[0] // self._blocks) + _K * fragments
        with self.over(_N, given):
            low, high = (weights[first + _N * 2 // sums, _N * 2 % sums + more] for more in (0, 1))
            packed = PackedPair(_UINT32, self._held, low, high)
            if given == len(self._kept):
                code.write(left[_B, _N], packed)
                return
            assert 2 * given == len(self._kept), "a work-item has every second number"
            own = code.declare("own", packed)
            other = code.declare("other", Shuffle(_UINT32, own, Number(_INT32, self.apart), self._fragments.items))
            second = self.across.differs(0)
            even = code.declare("even", Apply(_UINT32, "select", (second, other, own)))
            odd = code.declare("odd", Apply(_UINT32, "select", (second, own, other)))
            halves = ((even, 0xFFFF), (odd, 0xFFFF0000))
            near, far = (_bits("and", word, Number(_UINT32, bits)) for word, bits in halves)
            code.write(left[_B, _N * 2], _bits("or", near, _bits("shift_left", odd, _HALF)))
            code.write(left[_B, _N * 2 + 1], _bits("or", _bits("shift_right_logical", even, _HALF), far))

    def _multiply(self, sums: Array, held: Sequence[Expression], tile: Array) -> None:
        """Multiply each column fragment of a tile, at words k, with each row fragment."""
        code, width = self.code, sums.shape[0] // self._blocks
        with self.over(_P, width):
            moved = [
                code.declare(f"moved{n}", tile[_P * self._fragments.columns + column, _K * FRAGMENT_WORDS + word])
                for n, (column, word) in enumerate(self._moved)
            ]
            words = (*moved, *held) if self._turned else (*held, *moved)
            with self.over(_B, self._blocks):
                code.add(FragmentProduct(self._fragments, self._held, sums, _B * width + _P, words))


def _is_whole(operand: Operand, width: int) -> bool:
    """Whether `width` features are contiguous and aligned for one load."""
    apart = [stride for size, stride in zip(operand.shape[:-1], operand.strides[:-1], strict=True) if size > 1]
    others = (operand.shape[-1], operand.offset, *apart)
    return operand.strides[-1] == 1 and all(number % width == 0 for number in others)


def _bits(op: str, *arguments: Expression) -> Apply:
    return Apply(_UINT32, op, arguments)


def _word(low: Expression, high: Expression) -> Expression:
    """Two codes as a word."""
    left, right = (
        _bits("cast", Apply(np.dtype(np.uint16), "bitcast", (code,))) for code in (low, high)
    )
    return _bits("or", left, _bits("shift_left", right, _HALF))
