"""Matrix products: tiles of the result in registers, of the operands in a group's memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import FRAGMENT_ROWS, FRAGMENT_WORDS, LANE, NUMBER, Fragments
from rlx.backends.gpu.grid import ITEM, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, code_step, is_wide, parameter_array, position_dtype
from rlx.backends.gpu.tile_sizes import (
    COPIED_DEPTH,
    COPIED_SLICES,
    FRAGMENT_LOADS,
    LARGE_PRODUCT_TILE,
    LEAST_PART,
    LEAST_PRODUCT,
    LEAST_PRODUCT_TILE,
    LONG_SUM,
    PRODUCT_DEPTH,
    PRODUCT_EACH,
    PRODUCT_TILE,
    PRODUCT_WARPS,
)
from rlx.backends.loops.decompose import contract_as_loops
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.walk import Mapping, Walk
from rlx.code.tree import (
    Apply,
    Array,
    AsyncCopy,
    AwaitCopies,
    Barrier,
    Both,
    CloseCopies,
    Coordinate,
    Element,
    Expression,
    FragmentProduct,
    Linear,
    LoadMatrix,
    Number,
    Register,
    index,
    minimum,
    substituted,
)
from rlx.code.writing import CodeWriter
from rlx.ir.fused_products import Digit, FusedProduct, fused_product, operand_digits, result_digits, with_stores
from rlx.ir.kernels import Access, Buffer, Contract, Instruction, Loops, Operand, RowTiles, Store
from rlx.ir.narrowing import narrowed
from rlx.ir.types import compute_dtype, is_narrow

__all__ = ["is_mixed", "product_as_loops", "product_steps", "tiled_product"]

_FRAGMENT_BYTES = 4 * FRAGMENT_WORDS
_ITEMS = PRODUCT_TILE * PRODUCT_TILE // (PRODUCT_EACH * PRODUCT_EACH)
_BOOL, _INT32 = np.dtype(bool), np.dtype(np.int32)
# a work-item's place in its tile, in a slice, among its sums, and its warp
_ACROSS, _DOWN, _D, _F, _R, _C, _WARP = (
    Register(_INT32, name) for name in ("across", "down", "d", "f", "r", "c", "warp")
)


def product_as_loops(kernel: Contract, limits: Limits) -> Loops | None:
    """A nest for a product; None if tiles are better."""
    dtype = kernel.out.buffer.dtype
    results = kernel.batches * kernel.rows * kernel.columns
    if is_mixed(kernel):  # rounded operands, or wider sums: tiles support them
        return None
    plain = dtype.kind == "f" and kernel.summed_in == dtype
    if plain and results < limits.units * limits.group and kernel.depth >= LONG_SUM and _is_thin(kernel):
        return _as_rows(kernel)
    if plain and not _is_thin(kernel) and kernel.depth and results:
        return None
    return contract_as_loops(kernel)


def is_mixed(kernel: Contract) -> bool:
    """Whether operands are narrower than their sums, or rounded before they are multiplied."""
    return kernel.tf32 or kernel.lhs.buffer.dtype != kernel.summed_in


def _is_thin(kernel: Contract) -> bool:
    return min(kernel.rows, kernel.columns) < LEAST_PRODUCT


def _as_rows(kernel: Contract) -> Loops:
    """Every element of the result as a reduced row."""
    shape = (*kernel.out.shape[:-2], kernel.rows, kernel.columns, kernel.depth)
    dtype = kernel.out.buffer.dtype

    def strides(operand: Operand, row: int, column: int, deep: int) -> tuple[int, ...]:
        return (*operand.strides[:-2], row, column, deep)

    left = Access(0, strides(kernel.lhs, kernel.lhs.strides[-2], 0, kernel.lhs.strides[-1]), kernel.lhs.offset)
    right = Access(1, strides(kernel.rhs, 0, kernel.rhs.strides[-1], kernel.rhs.strides[-2]), kernel.rhs.offset)
    out = Access(2, strides(kernel.out, kernel.out.strides[-2], kernel.out.strides[-1], 0), kernel.out.offset)
    instructions = (
        Instruction("load", (), dtype, left),
        Instruction("load", (), dtype, right),
        Instruction("mul", (0, 1), dtype),
        Instruction("reduce", (2,), dtype, "add"),
    )
    added = "add" if kernel.accumulate else None
    return Loops(
        shape, len(shape) - 1, (kernel.lhs.buffer, kernel.rhs.buffer, kernel.out.buffer), instructions,
        (Store(3, out, accumulate=added, once=kernel.accumulate),), len(shape) - 1,
        origins=kernel.origins, label=kernel.label or "matmul", equations=kernel.equations,
    )  # fmt: skip


def product_steps(kernel: RowTiles, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """A product with its fused nests as one launch; None if each of them is launched separately."""
    fused = fused_product(kernel)
    if fused is None or not (dialect.fuses(fused) and all(map(dialect.spells, _nests(fused)))):
        return None
    spread = fused.grows and fused.contract.summed_in.kind == "f"  # thin, but of windows that are not stored
    if product_as_loops(fused.contract, limits) is not None and not spread:
        return None
    return tiled_product(fused, limits, dialect, kernel.label)


def _nests(fused: FusedProduct) -> list[Loops]:
    return [nest for nest in (fused.lhs, fused.rhs, fused.reader) if nest is not None]


def tiled_product(fused: FusedProduct, limits: Limits, dialect: DeviceDialect, label: str = "") -> list[LaunchStep]:
    """A group computes 64 rows and columns of a result, or as many elements of a thin one; a work-item 4 of each.
    Operands are read in slices of 16.

    If a result has few tiles, several groups share one: each sums a part of the depth, a second launch adds their sums.
    """
    product = fused.contract
    operands = (product.lhs, product.rhs, product.out)
    tile = _tile(product, limits, dialect)
    groups = _groups(product, tile)
    parts = max(1, min(limits.units // groups, product.depth // LEAST_PART))
    results = product.batches * product.rows * product.columns
    partial = Buffer(product.summed_in, parts * results)
    largest = max(partial.size, *(o.buffer.size for o in operands)) + PRODUCT_TILE * PRODUCT_TILE
    wide = limits.wide or largest >= 1 << 30 or any(is_wide(nest, limits) for nest in _nests(fused))
    position = position_dtype(wide)
    made = MatrixProductCode if _moves(product, dialect) else ProductCode
    code = made(fused, dialect, tile, parts, partial, position)
    code.make()
    last = made(fused, dialect, tile, parts, partial, position)
    if parts > 1:
        last.add_parts(limits.group)
    strategy = "tiled product" + (" of computed operands" if fused.lhs or fused.rhs else "")
    end = " with an epilogue" if fused.reader else ""
    name = label or product.label or "matmul"

    def step(made: ProductCode, how: str, groups: int, items: int) -> LaunchStep:
        parameters, buffers = [*made.parameters], [*made.parameters.values()]
        unit = made.units.name if made.units else ""
        return code_step(name, how, dialect, parameters, buffers, made.code.block, groups, items, unit)

    if parts == 1:
        return [step(code, strategy + end, groups, _ITEMS)]
    first = step(code, f"{strategy} in parts", groups * parts, _ITEMS)
    return [first, step(last, f"sum of parts{end}", ceiling(results, limits.group), limits.group)]


def _tile(product: Contract, limits: Limits, dialect: DeviceDialect) -> tuple[int, int]:
    """Rows and columns that a group computes: for a thin result fewer of one and more of the other, if there are
    enough groups then; if units are idle, square tiles take no longer."""
    if _moves(product, dialect):
        large = LARGE_PRODUCT_TILE, LARGE_PRODUCT_TILE
        return large if 2 * _groups(product, large) >= limits.units else (PRODUCT_TILE, PRODUCT_TILE)
    side, least = LEAST_PRODUCT_TILE, min(product.rows, product.columns)
    while side < min(least, PRODUCT_TILE):
        side *= 2
    long = PRODUCT_TILE * PRODUCT_TILE // side
    tile = (side, long) if product.rows <= product.columns else (long, side)
    if _fragments(product, dialect) or _groups(product, tile) < limits.units:
        return PRODUCT_TILE, PRODUCT_TILE
    return tile


def _fragments(product: Contract, dialect: DeviceDialect) -> Fragments | None:
    """The device's matrix unit for a product's operands, if it has one."""
    units = dialect.fragments(product.lhs.buffer.dtype) if is_mixed(product) else None
    return units if units is not None and product.summed_in.name == units.summed_in else None


def _moves(product: Contract, dialect: DeviceDialect) -> bool:
    """Whether a warp loads matrices of the operands."""
    units = _fragments(product, dialect)
    return units is not None and units.moves


def _groups(product: Contract, tile: tuple[int, int]) -> int:
    return math.prod(_tiles(product, tile)) * product.batches


def _tiles(product: Contract, tile: tuple[int, int]) -> tuple[int, int]:
    return ceiling(product.rows, tile[0]), ceiling(product.columns, tile[1])


class ProductCode:
    """The code of a product. `parameters`: the arrays that the kernel takes. tile: rows and columns of a group.

    parts: the number of groups that share a tile; their sums are stored in `partial`, one after the other.
    """

    def __init__(
        self,
        fused: FusedProduct,
        dialect: DeviceDialect,
        tile: tuple[int, int],
        parts: int,
        partial: Buffer,
        position: np.dtype,
    ) -> None:
        self.fused = fused
        self.parts, self.partial = parts, partial
        self.product = fused.contract
        self.position = position
        self.code = CodeWriter()
        self.dtype = self.product.summed_in
        self.held = self.product.lhs.buffer.dtype
        self.units = _fragments(self.product, dialect)
        self.slice = max(PRODUCT_DEPTH, _FRAGMENT_BYTES // self.held.itemsize) if self.units else PRODUCT_DEPTH
        self.tiles = _tiles(self.product, tile)
        self.rows, self.columns = tile
        self.held_sums = self.of_warps() if self.units else (PRODUCT_EACH, PRODUCT_EACH)
        self.down, self.across = self.rows // PRODUCT_EACH, self.columns // PRODUCT_EACH  # work-items along each axis
        self.parameters: dict[Parameter, Buffer] = {}
        self.axes = [Register(position, f"batch{n}") for n in range(len(self.product.out.shape) - 2)]
        self.row, self.column = Register(position, "row"), Register(position, "column")
        self.sums = Array("sums", self.dtype, "item", self.held_sums)
        self.sum: Expression = self.sums[_R, _C]
        self.first_depth: Register = Register(position, "depth")

    def make(self) -> None:
        """All statements of the kernel."""
        code = self.code
        self.allocate_tiles()
        point = code.declare("point", Coordinate(unsigned(self.position), "group"))
        self._declare_tile(point)
        start, stop = self._part_of_depth(point)
        if self.units:
            code.declare(LANE.name, ITEM % self.units.items)
            code.declare(_WARP.name, ITEM // self.units.items)
        else:
            code.declare(_ACROSS.name, ITEM % self.across)
            code.declare(_DOWN.name, ITEM // self.across)
        code.allocate(self.sums)
        with code.loop(_R, 0, self.held_sums[0]), code.loop(_C, 0, self.held_sums[1]):
            code.write(self.sums[_R, _C], self.zero)
        self.add_slices(start, stop)
        self.store()

    def allocate_tiles(self) -> None:
        """Declare the group's memory."""
        for name in ("lhs", "rhs"):
            self.code.allocate(self.words(name) if self.units else self.tile(name))

    def add_slices(self, start: Expression | int, stop: Expression | int) -> None:
        """Add the products of a range of the depth, slice by slice."""
        code, product = self.code, self.product
        with code.loop(self.first_depth, start, stop, self.slice):
            self.load("lhs", product.lhs, self.fused.lhs, self.row, product.rows)
            self.load("rhs", product.rhs, self.fused.rhs, self.column, product.columns)
            code.add(Barrier())
            self.multiply_fragments() if self.units else self.multiply()
            code.add(Barrier())

    @property
    def zero(self) -> Number:
        """The start of a sum."""
        return Number(self.dtype, 0)

    def _declare_tile(self, point: Register) -> None:
        """The first row and column of the group's tile, and the indices of its batch."""
        code = self.code
        code.declare("first_column", point % self.tiles[1] * self.columns, self.position)
        code.declare("first_row", point // self.tiles[1] % self.tiles[0] * self.rows, self.position)
        rest = point // math.prod(self.tiles)
        for axis, size in reversed([*zip(self.axes, self.product.out.shape[:-2], strict=True)]):
            code.declare(axis.name, rest % size, self.position)
            rest = rest // size
        if self.parts > 1:
            code.declare("part_number", rest, self.position)

    def _part_of_depth(self, point: Register) -> tuple[Expression | int, Expression | int]:
        """The range of the depth that the group sums."""
        depth = self.product.depth
        if self.parts == 1:
            return 0, depth
        span = ceiling(ceiling(depth, self.parts), self.slice) * self.slice
        start = self.code.declare("start", Register(self.position, "part_number") * span, self.position)
        return start, self.code.declare("stop", minimum(start + span, depth))

    def load(self, name: str, operand: Operand, maker: Loops | None, free: Register, size: int) -> None:
        """Load a slice of an operand; accesses are coalesced along either axis."""
        code = self.code
        deep = 1 if name == "lhs" else 0  # which of the operand's two axes
        side = self.rows if deep else self.columns
        near = self.is_near(name, operand, maker)
        walk = None if maker is None else self.walk(name, maker, _Slice(self, name))
        digits = [] if maker is None else operand_digits(maker, operand) or []
        at, depth = Register(_INT32, "at"), Register(self.position, "deep")
        with code.loop(at, ITEM, side * self.slice, _ITEMS):
            code.declare(_D.name, at % self.slice if near else at // side)
            code.declare(_F.name, at // self.slice if near else at % side)
            code.declare(free.name, Register(self.position, f"first_{free.name}") + _F)
            code.declare(depth.name, self.first_depth + _D)
            with code.when(Both(_BOOL, free < size, depth < self.product.depth)):
                axes = [*self.axes, *((free, depth) if deep else (depth, free))]
                if walk is None:
                    element = self.parameter(name, operand.buffer, False)[self.place(operand, axes)]
                    whole = self.units is not None and self.held == operand.buffer.dtype
                    self.fill(name, replace(element, dtype=self.held) if whole else element)
                else:
                    self.indices(walk, digits, axes)
                    walk.row()
            with code.otherwise():
                self.put(name, Number(self.held if self.units else self.dtype, 0))

    def is_near(self, name: str, operand: Operand, maker: Loops | None) -> bool:
        """Whether an operand is contiguous along the depth, not along its other axis."""
        deep = 1 if name == "lhs" else 0
        if maker is None:
            return operand.strides[-2 + deep] == 1 and operand.strides[-1 - deep] != 1
        digits, batches = operand_digits(maker, operand) or [], len(self.axes)
        return _run(maker, digits, batches + deep) > _run(maker, digits, batches + 1 - deep)

    def place(self, operand: Operand, axes: Sequence[Expression]) -> Linear:
        """The position of an element of an operand."""
        terms = tuple((s, axis) for s, axis in zip(operand.strides, axes, strict=True) if s)
        return Linear(self.position, terms, operand.offset)

    # ------------------------------------------------------------------ tiles
    def tile(self, name: str) -> Array:
        """A group's slice of an operand, by depth; the padding keeps columns in different banks."""
        size = self.rows if name == "lhs" else self.columns
        return Array(f"{name}_tile", self.dtype, "group", (self.slice, size + 1))

    def words(self, name: str) -> Array:
        """A group's slice of an operand in words, from which fragments are read."""
        size = self.rows if name == "lhs" else self.columns
        return Array(f"{name}_words", np.dtype(np.uint32), "group", (size, self._words + 4))

    @property
    def _words(self) -> int:
        """The number of words of a row of a tile from which fragments are read."""
        return self.slice * self.held.itemsize // 4

    def put(self, name: str, value: Expression) -> None:
        """Store an element in a tile: a number, or its code for fragments."""
        if self.units:
            words = self.words(name)
            if self.held.itemsize < 4:
                each = 4 // self.held.itemsize
                shape = words.shape[0], each * words.shape[1]
                words = replace(words, dtype=self.held, words=words.dtype, shape=shape)
            self.code.write(words[_F, _D], value)
        else:
            self.code.write(self.tile(name)[_D, _F], value)

    def fill(self, name: str, value: Expression) -> None:
        """Store an element in a tile, rounded to the operand's dtype."""
        narrow = is_narrow(self.held)
        if narrow and value.dtype != self.held:
            value = Apply(self.held, "cast", (value,))
        if narrow and not self.units:
            value = Apply(compute_dtype(self.held), "cast", (value,))
        if self.product.tf32:
            code = _rounded_to_tf32(self.code, value)
            value = code if self.units else Apply(np.dtype(np.float32), "bitcast", (code,))
        self.put(name, value)

    def of_warps(self) -> tuple[int, int]:
        """The number of a warp's adjacent fragments of sums, and of a work-item's sums in each."""
        assert self.units is not None
        warps = _ITEMS // self.units.items
        return self.rows * self.columns // (warps * FRAGMENT_ROWS * self.units.columns), self.units.sums

    def row_of_warp(self, row: Expression, part: Expression) -> Expression:
        """The row in the tile of a row of a warp's fragment."""
        del part
        return _WARP % (self.rows // FRAGMENT_ROWS) * FRAGMENT_ROWS + row

    def column_of_warp(self, column: Expression, part: Expression) -> Expression:
        """The column in the tile of a column of a warp's fragment: warps of other rows have the same columns."""
        assert self.units is not None
        width = self.units.columns
        return _WARP // (self.rows // FRAGMENT_ROWS) * (self.held_sums[0] * width) + part * width + column

    def multiply_fragments(self) -> None:
        """A slice's products on the matrix unit."""
        units, part = self.units, Register(_INT32, "part")
        assert units is not None
        lhs, rhs = self.words("lhs"), self.words("rhs")
        for first in range(0, self._words, FRAGMENT_WORDS):
            left = [lhs[self.row_of_warp(row, part), word + first] for row, word in units.left]
            right = [rhs[self.column_of_warp(column, part), word + first] for column, word in units.right]
            with self.code.loop(part, 0, self.held_sums[0], unrolled=True):
                self.code.add(FragmentProduct(units, self.held, self.sums, part, (*left, *right)))

    def multiply(self) -> None:
        """A slice's products."""
        code, e = self.code, Register(_INT32, "e")
        left, right = (Array(name, self.dtype, "item", (PRODUCT_EACH,)) for name in ("left", "right"))
        with code.loop(_D, 0, self.slice, unrolled=True):
            code.allocate(left)
            code.allocate(right)
            with code.loop(e, 0, PRODUCT_EACH):
                code.write(left[e], self.tile("lhs")[_D, _DOWN + self.down * e])
                code.write(right[e], self.tile("rhs")[_D, _ACROSS + self.across * e])
            with code.loop(_R, 0, PRODUCT_EACH), code.loop(_C, 0, PRODUCT_EACH):
                code.write(self.sums[_R, _C], self._added(left[_R], right[_C]))

    def _added(self, left: Expression, right: Expression) -> Expression:
        if self.dtype.kind == "f":
            return Apply(self.dtype, "fma", (left, right, self.sum))
        return Apply(self.dtype, "add", (self.sum, Apply(self.dtype, "mul", (left, right))))

    def store(self) -> None:
        """Store the tile's part of the result, or the values that its reader computes from it."""
        code, product, (parts, sums) = self.code, self.product, self.held_sums
        how = {"unrolled": self.units is not None}
        with code.loop(_R, 0, parts, **how), code.loop(_C, 0, sums, **how):
            row: Expression = _DOWN + self.down * _R
            column: Expression = _ACROSS + self.across * _C
            if self.units:
                row = self.row_of_warp(substituted(self.units.row, {NUMBER: _C}), _R)
                column = self.column_of_warp(substituted(self.units.column, {NUMBER: _C}), _R)
            code.declare("row", Register(self.position, "first_row") + row)
            code.declare("column", Register(self.position, "first_column") + column)
            with code.when(Both(_BOOL, self.row < product.rows, self.column < product.columns)):
                self.finish() if self.parts == 1 else self.keep()

    def keep(self) -> None:
        """Store a partial sum for the launch that adds them."""
        shape = self.product.out.shape
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        axes = [Register(self.position, "part_number"), *self.axes, self.row, self.column]
        place = Linear(self.position, tuple(zip([math.prod(shape), *strides], axes, strict=True)))
        self.code.write(self.parameter("partial", self.partial, True)[place], self.sum)

    def add_parts(self, items: int) -> None:
        """The launch that adds the partial sums: a work-item for each element of the result."""
        code, shape = self.code, self.product.out.shape
        count = math.prod(shape)
        partial = self.parameter("partial", self.partial, False)
        point = code.declare("point", Coordinate(unsigned(self.position), "group") * items + ITEM)
        with code.when(point < count):
            rest: Expression = point
            for axis, size in reversed([*zip([*self.axes, self.row, self.column], shape, strict=True)]):
                code.declare(axis.name, rest % size, self.position)
                rest = rest // size
            total = code.declare("total", partial[point], changes=True)
            part = Register(self.position, "part")
            with code.loop(part, 1, self.parts):
                added = partial[Linear(self.position, ((count, part), (1, point)))]
                code.assign(total, Apply(self.dtype, "add", (total, added)))
            self.sum = total
            self.finish()

    def finish(self) -> None:
        """Store an element of the result, or the values that its reader computes from it."""
        code, product, reader = self.code, self.product, self.fused.reader
        axes, kept = [*self.axes, self.row, self.column], product.out.buffer.dtype
        if self.fused.stored:
            element = self.parameter("out", product.out.buffer, True)[self.place(product.out, axes)]
            total = Apply(self.dtype, "add", (element, self.sum)) if product.accumulate else self.sum
            code.write(element, total)
        if reader is None:
            return
        read = self.sum
        if is_narrow(kept):
            rounded = code.declare("rounded", Apply(kept, "cast", (self.sum,)))
            read = Apply(compute_dtype(kept), "cast", (rounded,))
        walk = self.walk("out", reader, _Result(reader, product.out.buffer, read))
        self.indices(walk, result_digits(reader, product.out) or [], axes)
        walk.row()

    # ------------------------------------------------------------------ nests
    def parameter(self, name: str, buffer: Buffer, written: bool) -> Array:
        """An array that the kernel takes."""
        return parameter_array(self.parameters, name, buffer, written)

    def walk(self, name: str, nest: Loops, mapping: Mapping) -> Walk:
        """The walk that makes the code of a nest inside the kernel, for one iteration: its indices are known."""
        walk = Walk(replace(nest, outer=len(nest.sizes), parallel=0), self.code, mapping, self.position)
        written = {s.access.operand for s in nest.stores}
        made = self.product.out.buffer if nest is self.fused.reader else nest.operands[nest.stores[0].access.operand]
        for number, buffer in enumerate(nest.operands):
            if buffer is not made:
                walk.arrays[number] = self.parameter(f"{name}_{walk.arrays[number].name}", buffer, number in written)
        return walk

    def indices(self, walk: Walk, digits: Sequence[Sequence[Digit]], axes: Sequence[Register]) -> None:
        """The indices of a nest's loops, as digits of the axes."""
        for dimension, parts in enumerate(digits):
            terms = tuple((digit.weight, self._digit(digit, axes[digit.axis])) for digit in parts)
            self.code.declare(walk.index(dimension).name, Linear(self.position, terms), self.position)

    def _digit(self, digit: Digit, axis: Register) -> Expression:
        if digit.divisor == 1 and digit.modulus is None:
            return axis
        number: Expression = Apply(unsigned(self.position), "cast", (axis,)) // digit.divisor
        return number if digit.modulus is None else number % digit.modulus


class MatrixProductCode(ProductCode):
    """A product on a matrix unit that loads matrices from the group's memory: the next slices are copied meanwhile.

    Tiles are as in memory, contiguous along the depth or along the other axis. The places of 16 bytes in a row are
    exchanged, so that 8 rows of a matrix are in different banks. An operand that is computed, or not aligned, is stored
    element by element.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        operands = {"lhs": (self.product.lhs, self.fused.lhs), "rhs": (self.product.rhs, self.fused.rhs)}
        self.slice, self._stages = COPIED_DEPTH, COPIED_SLICES
        self._near = {name: self.is_near(name, *operand) for name, operand in operands.items()}
        self._copied = {name: self._is_copied(name, *operand) for name, operand in operands.items()}
        self._stage: Expression = Number(_INT32, 0)

    def _is_copied(self, name: str, operand: Operand, maker: Loops | None) -> bool:
        """Whether all pieces of 16 bytes are aligned, and inside or outside of the operand as a whole."""
        if maker is not None:
            return self._pieces(name, operand, maker) is not None
        if operand.buffer.dtype != self.held:
            return False
        deep = self._near[name]
        long = self.product.depth if deep else self.product.rows if name == "lhs" else self.product.columns
        along = -1 if (name == "lhs") == deep else -2
        others = [stride for n, stride in enumerate(operand.strides) if n != along % len(operand.strides)]
        pieces = (long, operand.offset, *others)
        return operand.strides[along] == 1 and all(number % FRAGMENT_LOADS == 0 for number in pieces)

    def of_warps(self) -> tuple[int, int]:
        """The fragments of a warp, by rows, and a work-item's sums of each."""
        assert self.units is not None
        self._down = self.rows // (PRODUCT_WARPS[0] * FRAGMENT_ROWS)  # a warp's fragments along each axis
        self._across = self.columns // (PRODUCT_WARPS[1] * self.units.columns)
        return self._down * self._across, self.units.sums

    def row_of_warp(self, row: Expression, part: Expression) -> Expression:
        """The row in the tile of a row of one of a warp's fragments."""
        warp = _WARP // PRODUCT_WARPS[1] * (self._down * FRAGMENT_ROWS)
        return warp + part // self._across * FRAGMENT_ROWS + row

    def column_of_warp(self, column: Expression, part: Expression) -> Expression:
        """The column in the tile of a column of one of a warp's fragments."""
        assert self.units is not None
        width = self.units.columns
        return _WARP % PRODUCT_WARPS[1] * (self._across * width) + part % self._across * width + column

    # ------------------------------------------------------------------ tiles
    def _matrix(self, name: str) -> Array:
        side = self.rows if name == "lhs" else self.columns
        shape = (side, self.slice) if self._near[name] else (self.slice, side)
        return Array(f"{name}_tile", self.held, "group", (self._stages, *shape))

    def allocate_tiles(self) -> None:
        """Declare the slices of both operands."""
        for name in self._near:
            self.code.allocate(self._matrix(name))

    def _exchanged(self, name: str, row: Expression, piece: Expression) -> Expression:
        """The place of a row's piece of 16 bytes."""
        mask = row // 2 % 4 if self._near[name] else row % 8
        return Apply(_INT32, "xor", (piece, mask)) * FRAGMENT_LOADS

    def put(self, name: str, value: Expression) -> None:
        """Store an element of the slice that is loaded."""
        row, along = (_F, _D) if self._near[name] else (_D, _F)
        place = self._exchanged(name, row, along // FRAGMENT_LOADS) + along % FRAGMENT_LOADS
        self.code.write(self._matrix(name)[self._stage, row, place], value)

    # ------------------------------------------------------------------ slices
    def add_slices(self, start: Expression | int, stop: Expression | int) -> None:
        """Copy slices ahead of the one that is multiplied."""
        code, stages, ahead = self.code, self._stages, self._stages - 1
        for number in range(ahead):
            first = code.declare(f"depth{number}", index(start, self.position) + number * self.slice)
            with code.when(first < stop):
                self._load_slice(Number(_INT32, number), first)
            code.add(CloseCopies())
        stage = code.declare("stage", Number(_INT32, 0), changes=True)
        with code.loop(Register(self.position, "depth"), start, stop, self.slice):
            code.add(AwaitCopies(ahead - 1), Barrier())
            following = code.declare("following_depth", Register(self.position, "depth") + ahead * self.slice)
            with code.when(following < stop):
                free = code.declare("free_stage", _wrapped(stage + ahead, stages))
                self._load_slice(free, following)
            code.add(CloseCopies())
            self._multiply_slice(stage)
            code.assign(stage, _wrapped(stage + 1, stages))

    def _pieces(self, name: str, operand: Operand, maker: Loops) -> Loops | None:
        """A nest that stores, at the first element of a piece, the condition with which a window copies the piece, or
        0; None if an operand's nest is not such a window."""
        if {b.dtype for b in maker.operands} != {self.held}:
            return None
        instructions, (store,) = maker.instructions, maker.stores
        made, condition = instructions[store.value], None
        if made.op == "select" and _is_zero(instructions[made.args[2]]):
            condition, made = made.args[0], instructions[made.args[1]]
        if made.op != "load" or not _starts_at(instructions, made.args, condition):
            return None
        digits, axis = operand_digits(maker, operand) or [], len(self.axes) + ((name == "lhs") == self._near[name])
        near = [d for d, parts in enumerate(digits) if any(p[:2] == (axis, 1) and p.weight == 1 for p in parts)]
        if len(near) != 1 or len(digits[near[0]]) > 1 or condition is None:
            return None
        (along,), access = near, made.attribute
        size = digits[along][0].modulus or maker.sizes[along]
        pieces = (size, access.offset, *(s for d, s in enumerate(access.strides) if d != along))
        if access.strides[along] != 1 or any(number % FRAGMENT_LOADS for number in pieces):
            return None
        moved = replace(store, value=condition, access=access)
        nest = narrowed(with_stores(maker, (moved,)))
        inside = any(i.op == "index" and i.attribute == along for i in nest.instructions)
        return None if inside else nest

    def _load_slice(self, stage: Expression, first: Register) -> None:
        """Begin to copy a slice, or store it."""
        product = self.product
        self._stage, self.first_depth = stage, first
        for name, operand, maker, free, size in (
            ("lhs", product.lhs, self.fused.lhs, self.row, product.rows),
            ("rhs", product.rhs, self.fused.rhs, self.column, product.columns),
        ):
            if self._copied[name]:
                self._copy(name, operand, free, size, maker)
            else:
                self.load(name, operand, maker, free, size)

    def _copy(self, name: str, operand: Operand, free: Register, size: int, maker: Loops | None) -> None:
        """Begin to copy a slice of an operand, or of the array whose windows it has."""
        code, tile, near = self.code, self._matrix(name), self._near[name]
        (_, rows, width), part = tile.shape, Register(_INT32, "part")
        each = width // FRAGMENT_LOADS
        with code.loop(part, 0, rows * each // _ITEMS, unrolled=True):
            # rows of a part have the same places of pieces
            place = self._exchanged(name, ITEM // each, ITEM % each)
            row = ITEM // each + part * (_ITEMS // each)
            along = ITEM % each * FRAGMENT_LOADS
            f, d = (row, along) if near else (along, row)
            code.declare(free.name, Register(self.position, f"first_{free.name}") + f)
            depth = code.declare("deep", self.first_depth + d)
            conditions: list[Expression] = []
            if size % (self.rows if name == "lhs" else self.columns):
                conditions.append(free < size)
            if self.product.depth % self.slice:
                conditions.append(depth < self.product.depth)
            condition = Both(_BOOL, *conditions) if conditions[1:] else conditions[0] if conditions else None
            axes = [*self.axes, *((free, depth) if name == "lhs" else (depth, free))]
            target = tile, (self._stage, row, place)
            if maker is None:
                array, source = self.parameter(name, operand.buffer, False), self.place(operand, axes)
                code.add(AsyncCopy(*target, array, source, FRAGMENT_LOADS, condition))
            else:
                self._copy_window(name, operand, maker, axes, target, condition)

    def _copy_window(
        self, name: str, operand: Operand, maker: Loops, axes: Sequence[Register],
        target: tuple[Array, tuple[Expression, ...]], condition: Expression | None,
    ) -> None:  # fmt: skip
        """Begin to copy a piece of a window."""
        nest = self._pieces(name, operand, maker)
        assert nest is not None
        mapping = _WindowPiece(target, condition)
        walk = Walk(replace(nest, outer=len(nest.sizes), parallel=0), self.code, mapping, self.position)
        for number, buffer in enumerate(nest.operands):
            walk.arrays[number] = self.parameter(f"{name}_{walk.arrays[number].name}", buffer, False)
        self.indices(walk, operand_digits(maker, operand) or [], axes)
        walk.row()

    # ------------------------------------------------------------------ products
    def _multiply_slice(self, stage: Expression) -> None:
        """Multiply a slice: all fragments of a warp's rows and columns at a depth are in registers."""
        code, units, words = self.code, self.units, np.dtype(np.uint32)
        assert units is not None
        step, p, q = Register(_INT32, "step"), Register(_INT32, "p"), Register(_INT32, "q")
        left, right = Array("left", words, "item", (4,)), Array("right", words, "item", (4,))
        near, far = LANE // 8 % 2, LANE // 16
        lefts = [replace(left, name=f"left{n}") for n in range(self._down)]
        with code.loop(step, 0, self.slice // (2 * FRAGMENT_WORDS), unrolled=True):
            for n, array in enumerate(lefts):
                code.allocate(array)
                row = self.row_of_warp(Number(_INT32, 0), Number(_INT32, n * self._across))
                self._load_matrix(array, "lhs", stage, row, near, step, far)
            with code.loop(q, 0, self._across // 2, unrolled=True):
                code.allocate(right)
                column = self.column_of_warp(Number(_INT32, 0), q * 2)
                self._load_matrix(right, "rhs", stage, column, far, step, near)
                for n, array in enumerate(lefts):
                    with code.loop(p, 0, 2, unrolled=True):
                        operands = (*(array[k] for k in range(4)), right[p * 2], right[p * 2 + 1])
                        part = q * 2 + p + n * self._across
                        code.add(FragmentProduct(units, self.held, self.sums, part, operands))

    def _load_matrix(
        self, target: Array, name: str, stage: Expression, free: Expression, half: Expression, step: Register,
        deep: Expression,
    ) -> None:  # fmt: skip
        """Load four matrices: of two halves of 16 rows or columns from `free` on, and of a depth of 16."""
        inner = LANE % 8
        if self._near[name]:
            row, piece = free + half * 8 + inner, step * 2 + deep
        else:
            row, piece = step * 16 + deep * 8 + inner, free // FRAGMENT_LOADS + half
        position = (stage, row, self._exchanged(name, inner, piece))
        self.code.add(LoadMatrix(target, self._matrix(name), position, turned=not self._near[name]))


def _wrapped(stage: Expression, count: int) -> Expression:
    """The number of a slice, from one that is less than twice the count."""
    return Apply(stage.dtype, "select", (stage < count, stage, stage - count))


def _rounded_to_tf32(code: CodeWriter, value: Expression) -> Expression:
    """The bits of a float32 with ten bits of mantissa, rounded to nearest, ties to even; infinities and NaN stay."""
    kind = np.dtype(np.uint32)

    def number(bits: int) -> Number:
        return Number(kind, bits)

    def apply(op: str, *arguments: Expression) -> Apply:
        return Apply(kind, op, arguments)

    bits = code.declare("bits", apply("bitcast", value))
    odd = apply("and", apply("shift_right_logical", bits, number(13)), number(1))
    rounded = apply("and", apply("add", apply("add", bits, number(0xFFF)), odd), number(0xFFFFE000))
    special = apply("and", bits, number(0x7F800000)).equals(0x7F800000)
    return apply("select", special, bits, rounded)


def _run(maker: Loops, digits: Sequence[Sequence[Digit]], axis: int) -> int:
    """The number of neighbours along an operand's axis that are contiguous in memory."""
    loads = [i.attribute for i in maker.instructions if i.op == "load"]
    for dimension, parts in enumerate(digits):
        first = [digit for digit in parts if digit.axis == axis and digit.divisor == 1 and digit.weight == 1]
        if first and any(a.strides[dimension] == 1 for a in loads):
            return first[0].modulus or maker.sizes[dimension]
    return 0


class _Inside(Mapping):
    """The body of a map with known indices."""

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Nothing to do: all dimensions are open."""
        return range(len(walk.loops.sizes))


class _Slice(_Inside):
    """A nest that computes an operand: its stores write to the tile."""

    def __init__(self, product: ProductCode, name: str) -> None:
        self.product, self.name = product, name

    def overwrite(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Store to the tile."""
        self.product.fill(self.name, value)


class _WindowPiece(_Inside):
    """A nest that computes whether a piece of a window is copied."""

    def __init__(self, target: tuple[Array, tuple[Expression, ...]], condition: Expression | None) -> None:
        self.target, self.condition = target, condition

    def overwrite(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Begin to copy."""
        holds = value if self.condition is None else Both(_BOOL, self.condition, value)
        walk.code.add(AsyncCopy(*self.target, element.array, *element.position, FRAGMENT_LOADS, holds))


def _is_zero(instruction: Instruction) -> bool:
    return instruction.op == "constant" and not any(instruction.attribute)


def _starts_at(instructions: Sequence[Instruction], moved: Sequence[int], condition: int | None) -> bool:
    """Whether a load's position is that of its access wherever a condition holds."""
    if not moved:
        return True
    (extra,) = (instructions[number] for number in moved)
    return extra.op == "select" and extra.args[0] == condition and _is_zero(instructions[extra.args[1]])


class _Result(_Inside):
    """A nest that reads a result, which is in registers."""

    def __init__(self, reader: Loops, result: Buffer, value: Expression) -> None:
        self.reader, self.result, self.value = reader, result, value

    def loaded(self, walk: Walk, access: Access, extra: Expression | None = None) -> Expression:
        """The work-item's sum, or an element of memory."""
        if walk.loops.operands[access.operand] is self.result:
            return self.value
        return super().loaded(walk, access, extra)

    def overwrite(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Write a value; one that does not depend on a dimension is written for its first index only."""
        with ExitStack() as nest:
            for dimension, stride in enumerate(store.access.strides):
                if not stride and walk.loops.sizes[dimension] > 1:
                    nest.enter_context(walk.code.when(walk.index(dimension).equals(0)))
            super().overwrite(walk, store, element, value)
