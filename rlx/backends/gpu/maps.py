"""Maps: every iteration writes its own elements. Work-items take vectors; transposes use a group's memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, Grid, collapsed, group_number, permuted
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, arrays_of, ceiling, code_step, element_bytes, is_wide, position_dtype
from rlx.backends.gpu.tile_sizes import MAP_ELEMENTS, MAP_ROWS
from rlx.backends.loops.walk import Mapping, Walk, kernel_parameters
from rlx.code.tree import (
    Aligned,
    Allocate,
    Array,
    Barrier,
    Block,
    Both,
    Element,
    Expression,
    Register,
    VectorRead,
    VectorWrite,
    minimum,
    substituted,
)
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Access, Loops, Store
from rlx.ir.types import element_dtype

__all__ = ["map_step"]



def map_step(grid: Grid, limits: Limits, dialect: DeviceDialect) -> LaunchStep | None:
    """The launch of a map over contiguous elements; None if its grid of points is as good."""
    kernel = grid.kernel
    plain = all(s.address is None and s.guard is None and s.accumulate is None for s in kernel.stores)
    if grid.lanes > 1 or kernel.chunks > 1 or len(grid.opened) < len(kernel.sizes) or not plain or not kernel.sizes:
        return None
    if grid.points == 0:
        return None
    kernel = collapsed(_with_stores_inside(kernel))
    if not all(s.access.strides[-1] == 1 for s in kernel.stores):
        return None
    return _tiled(kernel, limits, dialect) or _vectors(kernel, limits, dialect)


def _with_stores_inside(kernel: Loops) -> Loops:
    """The kernel with its dimensions in the order in which the first store walks memory."""
    strides = kernel.stores[0].access.strides
    order = sorted(range(len(strides)), key=lambda d: (-abs(strides[d]), d))
    return replace(permuted(kernel, order), outer=len(order), parallel=0)


class _Points(Mapping):
    """A map's body with known indices: the walk opens no loops. `elements`: the elements that replace an access's."""

    def __init__(self, elements: dict[Access, Element]) -> None:
        self.elements = elements

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Nothing to do: all dimensions are open."""
        return range(len(walk.loops.sizes))

    def element(self, walk: Walk, access: Access, extra: Expression | None = None) -> Element:
        """The access's element, or the copy in the work-item's vector or the group's tile."""
        if extra is None and access in self.elements:
            return self.elements[access]
        return super().element(walk, access, extra)


# ------------------------------------------------------------------ vectors
@dataclass(frozen=True, slots=True)
class _Vector:
    """An access to contiguous elements, and the variable that holds some of them."""

    access: Access
    array: Array
    written: bool


def _whole(access: Access, width: int) -> bool:
    """Whether vectors of a width are aligned in every row."""
    return access.strides[-1] == 1 and all(s % width == 0 for s in (access.offset, *access.strides[:-1]))


def _vectors(kernel: Loops, limits: Limits, dialect: DeviceDialect) -> LaunchStep | None:
    """The launch in which each work-item takes as many elements as it loads at once."""
    plain = [i.attribute for i in kernel.instructions if i.op == "load" and not i.args]
    stores = [s.access for s in kernel.stores]
    near = [a for a in (*plain, *stores) if a.strides[-1] == 1]
    width = min(MAP_ELEMENTS, limits.vector // max(element_bytes(kernel.operands[a.operand]) for a in near))
    inner, points = kernel.sizes[-1], math.prod(kernel.sizes)
    if len(kernel.sizes) > 1 and inner % width:
        return None
    if width < 2 or points // width < limits.vector_points or not all(_whole(a, width) for a in stores):
        return None
    found = [a for a in dict.fromkeys(plain) if _whole(a, width)]
    vectors = [_Vector(a, _vector_of(kernel, a, f"from{n}", width), False) for n, a in enumerate(found)]
    vectors += [_Vector(a, _vector_of(kernel, a, f"to{n}", width), True) for n, a in enumerate(stores)]
    if len({v.access for v in vectors if v.written}) < len(stores):
        return None
    code = _vector_code(kernel, vectors, width, limits)
    groups = ceiling(ceiling(points, width), limits.group)
    parameters, arrays = kernel_parameters(kernel), arrays_of(kernel)
    return code_step(kernel.label, "vectors", dialect, parameters, arrays, code, groups, limits.group)


def _vector_of(kernel: Loops, access: Access, name: str, width: int) -> Array:
    """An work-item's vector of the elements of an access."""
    return Array(name, element_dtype(kernel.operands[access.operand].dtype), "item", (width,), vector=True)


def _vector_code(kernel: Loops, vectors: Sequence[_Vector], width: int, limits: Limits) -> Block:
    """Each work-item computes a vector of elements, one by one where the vector is not whole or not aligned."""
    code, position = CodeWriter(), position_dtype(is_wide(kernel, limits))
    part = Register(np.dtype(np.int32), "part")
    loads, stores = ({v.access: v.array[part] for v in vectors if v.written == side} for side in (False, True))
    fast = Walk(kernel, code, _VectorPoints(loads, stores), position)
    plain = Walk(kernel, code, _Points({}), position)
    inner, points, last = kernel.sizes[-1], math.prod(kernel.sizes), len(kernel.sizes) - 1
    point = code.declare("point", group_number(fast) * limits.group + ITEM)
    rest: Expression = point
    if last:
        first = code.declare("first", point % (inner // width) * width, position)
        rest = code.declare("above", point // (inner // width))
    else:
        first = code.declare("first", point * width, position)
    with code.when(point < ceiling(points, width)):
        if last:
            names = [fast.index(dimension).name for dimension in range(last)]
            code.declare_digits(rest, kernel.sizes[:last], names, position)
        arrays = tuple(dict.fromkeys(fast.arrays[v.access.operand] for v in vectors))
        whole: Expression = Aligned(np.dtype(bool), arrays, limits.vector)
        if points % width:
            whole = Both(np.dtype(bool), first + width <= inner, whole)
        with code.when(whole):
            for v in vectors:
                place = _from_first(fast, v.access, first)
                code.add(Allocate(v.array) if v.written else VectorRead(v.array, fast.arrays[v.access.operand], place))
            with code.loop(part, 0, width, unrolled=True):
                code.declare(fast.index(last).name, first + part, position)
                fast.row()
            for v in vectors:
                if v.written:
                    place = _from_first(fast, v.access, first)
                    code.add(VectorWrite(fast.arrays[v.access.operand], place, v.array))
        with code.otherwise():
            end = code.declare("end", minimum(first + width, inner))
            with code.loop(plain.index(last), first, end):
                plain.row()
    return code.block


class _VectorPoints(_Points):
    """The body of a vector: loads and stores use registers."""

    def __init__(self, loads: dict[Access, Element], stores: dict[Access, Element]) -> None:
        super().__init__(loads)
        self.stores = stores

    def overwrite(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Store to the work-item's vector."""
        walk.code.write(self.stores[store.access], value)


def _from_first(walk: Walk, access: Access, first: Register) -> Expression:
    """The position of a vector's first element."""
    return substituted(walk.place(access), {walk.index(len(access.strides) - 1): first})


# ------------------------------------------------------------------ tiles
def _tiled(kernel: Loops, limits: Limits, dialect: DeviceDialect) -> LaunchStep | None:
    """Loads along a different dimension than the stores use tiles in the memory that a group shares."""
    tile, last = limits.tile, len(kernel.sizes) - 1
    plain = [i.attribute for i in kernel.instructions if i.op == "load" and not i.args]
    across = [a for a in dict.fromkeys(plain) if a.strides[-1] not in (0, 1) and 1 in a.strides[:-1]]
    if not across or kernel.sizes[last] < tile:
        return None
    dimension = across[0].strides.index(1)
    across = [a for a in across if a.strides[dimension] == 1]
    if kernel.sizes[dimension] < tile or len(across) * tile * (tile + 1) * 8 > 1 << 15:
        return None
    sizes = (kernel.sizes[dimension], kernel.sizes[last])
    tiles = (ceiling(sizes[0], tile), ceiling(sizes[1], tile))
    others = [d for d in range(last) if d != dimension]
    code = _tile_code(kernel, across, dimension, others, tiles, limits)
    groups = math.prod(tiles) * math.prod(kernel.sizes[d] for d in others)
    items = tile * MAP_ROWS
    parameters, arrays = kernel_parameters(kernel), arrays_of(kernel)
    return code_step(kernel.label, "tiles", dialect, parameters, arrays, code, groups, items)


def _tile_code(
    kernel: Loops,
    across: Sequence[Access],
    dimension: int,
    others: Sequence[int],
    tiles: tuple[int, int],
    limits: Limits,
) -> Block:
    """A group copies tiles of the arrays that are read across, then computes the tile's elements."""
    code, tile, last = CodeWriter(), limits.tile, len(kernel.sizes) - 1
    position = position_dtype(is_wide(kernel, limits))
    row = Register(np.dtype(np.int32), "row")
    copies = {a: _tile_of(kernel, a, f"tile{n}", tile) for n, a in enumerate(across)}
    column = Register(np.dtype(np.int32), "across")
    walk = Walk(kernel, code, _Points({a: array[column, row] for a, array in copies.items()}), position)
    i, j = walk.index(dimension), walk.index(last)
    for array in copies.values():
        code.allocate(array)
    code.declare(column.name, ITEM % tile)
    down = code.declare("down", ITEM // tile)
    point = code.declare("point", group_number(walk))
    first_j = code.declare(f"{j.name}_first", point % tiles[1] * tile, position)
    first_i = code.declare(f"{i.name}_first", point // tiles[1] % tiles[0] * tile, position)
    rest = point // (tiles[0] * tiles[1])
    for d in reversed(others):
        code.declare(walk.index(d).name, rest % kernel.sizes[d], position)
        rest = rest // kernel.sizes[d]
    inside = Both(np.dtype(bool), i < kernel.sizes[dimension], j < kernel.sizes[last])
    with code.loop(row, down, tile, MAP_ROWS):
        code.declare(i.name, first_i + column, position)
        code.declare(j.name, first_j + row, position)
        with code.when(inside):
            for access, array in copies.items():
                code.write(array[row, column], walk.arrays[access.operand].code(walk.place(access)))
    code.add(Barrier())
    with code.loop(row, down, tile, MAP_ROWS):
        code.declare(i.name, first_i + row, position)
        code.declare(j.name, first_j + column, position)
        with code.when(inside):
            walk.row()
    return code.block


def _tile_of(kernel: Loops, access: Access, name: str, tile: int) -> Array:
    """A tile of an array in the group's memory; the padding keeps columns in different banks."""
    return Array(name, element_dtype(kernel.operands[access.operand].dtype), "group", (tile, tile + 1))
