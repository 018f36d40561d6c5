"""Maps: every iteration writes its own elements. Items take vectors; transposes use a group's memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rlx.backends.c.types import memory_type
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import Grid, collapsed, permuted
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, arrays_of, ceiling, element_bytes, is_wide, step_of
from rlx.backends.loops.walk import Lines, Mapping, Walk, kernel_parameters
from rlx.ir.kernels import Access, Buffer, Loops, Store
from rlx.ir.types import element_dtype

__all__ = ["map_step"]

_MOST = 8  # elements that an item takes at once
_ROWS = 8  # rows of a tile that the items of a group load at once


def map_step(grid: Grid, limits: Limits, dialect: DeviceDialect) -> Step | None:
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
    """A map's body with known indices: the walk opens no loops. `places`: positions that replace those of accesses."""

    def __init__(self, places: dict[Access, tuple[str, str]]) -> None:
        self.places = places

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Nothing to do: all dimensions are open."""
        return range(len(walk.loops.sizes))

    def memory(self, walk: Walk, access: Access, extra: str | None = None) -> tuple[str, str]:
        """The access's position, replaced by the item's vector or the group's tile."""
        if extra is None and access in self.places:
            return self.places[access]
        return super().memory(walk, access, extra)


# ------------------------------------------------------------------ vectors
@dataclass(frozen=True, slots=True)
class _Vector:
    """An access to contiguous elements, and the variable that holds some of them."""

    access: Access
    buffer: Buffer
    name: str
    written: bool


def _whole(access: Access, width: int) -> bool:
    """Whether vectors of a width are aligned in every row."""
    return access.strides[-1] == 1 and all(s % width == 0 for s in (access.offset, *access.strides[:-1]))


def _vectors(kernel: Loops, limits: Limits, dialect: DeviceDialect) -> Step | None:
    """The launch in which each item takes as many elements as it loads at once."""
    plain = [i.attribute for i in kernel.instructions if i.op == "load" and not i.args]
    stores = [s.access for s in kernel.stores]
    near = [a for a in (*plain, *stores) if a.strides[-1] == 1]
    width = min(_MOST, limits.vector // max(element_bytes(kernel.operands[a.operand]) for a in near))
    inner, points = kernel.sizes[-1], math.prod(kernel.sizes)
    if len(kernel.sizes) > 1 and inner % width:
        return None
    if width < 2 or points // width < limits.vector_points or not all(_whole(a, width) for a in stores):
        return None
    found = [a for a in dict.fromkeys(plain) if _whole(a, width)]
    vectors = [_Vector(a, kernel.operands[a.operand], f"from{n}", False) for n, a in enumerate(found)]
    vectors += [_Vector(a, kernel.operands[a.operand], f"to{n}", True) for n, a in enumerate(stores)]
    if len({v.access for v in vectors if v.written}) < len(stores):
        return None
    with dialect.positions(is_wide(kernel, limits)):
        lines = _vector_lines(kernel, vectors, width, limits, dialect)
    groups = ceiling(ceiling(points, width), limits.group)
    parameters = kernel_parameters(kernel)
    label = kernel.label
    return step_of(label, "vectors", dialect, parameters, arrays_of(kernel), lines, groups, limits.group)


def _vector_lines(
    kernel: Loops, vectors: Sequence[_Vector], width: int, limits: Limits, dialect: DeviceDialect
) -> list[str]:
    lines = Lines(dialect)
    inner, points = kernel.sizes[-1], math.prod(kernel.sizes)
    places = {v.access: (f"{v.name}.of", "part") for v in vectors if not v.written}
    stored = {v.access: (f"{v.name}.of", "part") for v in vectors if v.written}
    fast = Walk(kernel, dialect, lines, _VectorPoints(places, stored))
    plain = Walk(kernel, dialect, lines, _Points({}))
    group, item = dialect.group_number(), dialect.number_in_group()
    lines.add(dialect.number("point", f"({dialect.number_type}){group} * {limits.group} + {item}"))
    rest, last = "point", len(kernel.sizes) - 1
    if last:
        lines.add(dialect.fixed("first", f"point % {inner // width}u * {width}"))
        lines.add(dialect.number("above", f"point / {inner // width}u"))
        rest = "above"
    else:
        lines.add(dialect.fixed("first", f"point * {width}"))
    with lines.block(dialect.condition(f"point < {ceiling(points, width)}")):
        for dimension in reversed(range(last)):
            name, size = fast.index(dimension), kernel.sizes[dimension]
            lines.add(dialect.fixed(name, f"{rest} % {size}u" if dimension else rest))
            if dimension:
                lines.add(dialect.number(f"above_{name}", f"{rest} / {size}u"))
                rest = f"above_{name}"
        ends = "" if points % width == 0 else f"first + {width} <= {inner} && "
        pointers = dict.fromkeys(fast.arrays[v.access.operand] for v in vectors)
        bits = " | ".join(f"(size_t){name}" for name in pointers)
        with lines.block(dialect.condition(f"{ends}(({bits}) & {limits.vector - 1}) == 0")):
            index = fast.index(last)
            for v in vectors:
                kind = dialect.vector(element_dtype(v.buffer.dtype), width)
                place = _from_first(fast, v.access)
                pointer = f"{dialect.global_space} {'' if v.written else 'const '}{kind} *"
                begin = f"*({pointer})({fast.arrays[v.access.operand]} + {place})"
                lines.add(f"{kind} {v.name};" if v.written else f"const {kind} {v.name} = {begin};".replace("( ", "("))
            lines.add(dialect.unroll)
            with lines.block(f"for (int part = 0; part < {width}; ++part) {{"):
                lines.add(dialect.fixed(index, "first + part"))
                fast.row()
            for v in vectors:
                if v.written:
                    kind = dialect.vector(element_dtype(v.buffer.dtype), width)
                    place = _from_first(fast, v.access)
                    target = f"*({dialect.global_space} {kind} *)({fast.arrays[v.access.operand]} + {place})"
                    lines.add(f"{target} = {v.name};".replace("( ", "("))
        with lines.block(dialect.otherwise()):
            stop = str(inner)
            end = f"first + {width} < {stop} ? first + {width} : {stop}"
            lines.add(dialect.fixed("end", end))
            with lines.block(dialect.loop(plain.index(last), "first", "end")):
                plain.row()
    return lines.text


class _VectorPoints(_Points):
    """The body of a vector: loads and stores use registers."""

    def __init__(self, loads: dict[Access, tuple[str, str]], stores: dict[Access, tuple[str, str]]) -> None:
        super().__init__(loads)
        self.stores = stores

    def overwrite(self, walk: Walk, store: Store, array: str, place: str, value: str) -> None:
        """Store to the item's vector."""
        array, place = self.stores[store.access]
        walk.write(store, value, place, array=array)


def _from_first(walk: Walk, access: Access) -> str:
    """The position of a vector's first element."""
    terms = [
        (stride, "first" if d == len(access.strides) - 1 else walk.index(d))
        for d, stride in enumerate(access.strides)
        if stride
    ]
    return walk.dialect.position(terms, access.offset)


# ------------------------------------------------------------------ tiles
def _tiled(kernel: Loops, limits: Limits, dialect: DeviceDialect) -> Step | None:
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
    with dialect.positions(is_wide(kernel, limits)):
        lines = _tile_lines(kernel, across, dimension, others, tiles, limits, dialect)
    groups = math.prod(tiles) * math.prod(kernel.sizes[d] for d in others)
    items = tile * _ROWS
    return step_of(
        kernel.label, "tiles", dialect, kernel_parameters(kernel), arrays_of(kernel), lines, groups, items
    )


def _tile_lines(
    kernel: Loops,
    across: Sequence[Access],
    dimension: int,
    others: Sequence[int],
    tiles: tuple[int, int],
    limits: Limits,
    dialect: DeviceDialect,
) -> list[str]:
    lines, tile, last = Lines(dialect), limits.tile, len(kernel.sizes) - 1
    places = {a: (f"tile{n}[column]", "line") for n, a in enumerate(across)}
    walk = Walk(kernel, dialect, lines, _Points(places))
    i, j = walk.index(dimension), walk.index(last)
    for n, access in enumerate(across):
        kind = memory_type(element_dtype(kernel.operands[access.operand].dtype))
        lines.add(f"{dialect.group_space} {kind} tile{n}[{tile}][{tile + 1}];")
    item = dialect.number_in_group()
    lines.add(f"const int across = {item} % {tile}, down = {item} / {tile};")
    lines.add(dialect.number("point", f"({dialect.number_type}){dialect.group_number()}"))
    lines.add(dialect.fixed(f"{j}_first", f"point % {tiles[1]}u * {tile}"))
    lines.add(dialect.fixed(f"{i}_first", f"point / {tiles[1]}u % {tiles[0]}u * {tile}"))
    rest = f"point / {tiles[0] * tiles[1]}u"
    for d in reversed(others):
        lines.add(dialect.fixed(walk.index(d), f"{rest} % {kernel.sizes[d]}u"))
        rest = f"{rest} / {kernel.sizes[d]}u"
    inside = f"{i} < {kernel.sizes[dimension]} && {j} < {kernel.sizes[last]}"
    step = f"for (int row = down; row < {tile}; row += {_ROWS}) {{"
    with lines.block(step):
        lines.add(dialect.fixed(i, f"{i}_first + across"), dialect.fixed(j, f"{j}_first + row"))
        with lines.block(dialect.condition(inside)):
            for n, access in enumerate(across):
                lines.add(f"tile{n}[row][across] = {walk.arrays[access.operand]}[{walk.place(access)}];")
    lines.add(dialect.barrier())
    with lines.block(step):
        lines.add("const int column = across, line = row;")
        lines.add(dialect.fixed(i, f"{i}_first + row"), dialect.fixed(j, f"{j}_first + across"))
        with lines.block(dialect.condition(inside)):
            walk.row()
    return lines.text
