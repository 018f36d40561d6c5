"""Kernels that walk across memory run in tiles or panels: every cache line is used while near.

A map that reads along rows and writes along columns gets its two critical dimensions split in
blocks; the blocks are outer dimensions, all of them parallel. A row kernel with strided rows
gets its contiguous dimension split, with the inner part as innermost loop. A scatter of rows gets
its columns split in bands: different bands write different elements, so threads take bands, and each
element still adds its updates in their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rlx.backends.cpu.runtime.threads import get_num_threads
from rlx.ir.dims import is_sized
from rlx.ir.kernels import Access, Loops, Store, reaches_apart

__all__ = ["Tiling", "tiled"]

_TILE = 32
_LEAST_SIZE = 2 * _TILE
_PANEL = 64
_LEAST_PANEL = 8
_BAND = 16  # columns: a cache line of float32
_LEAST_SCATTERED = 1 << 14  # elements


@dataclass(frozen=True, slots=True)
class Tiling:
    """A kernel to run instead, with `blocks`: inner dimension -> (its block dimension, full size).

    Inner dimensions run over at most `tile` iterations, to the end of the full size; 0: over at most their own size,
    which is an argument of the code. With `panel` the last dimension is added to the dimensions of `source`, and
    belongs to the outer ones.
    """

    source: Loops
    kernel: Loops
    blocks: dict[int, tuple[int, int]]
    tile: int = _TILE
    panel: bool = False


def tiled(kernel: Loops) -> Tiling:
    """The kernel in tiles or panels if it walks across large memory, else the kernel itself."""
    pair = _critical_pair(kernel) if _is_free_map(kernel) else None
    if pair is not None:
        return _split(kernel, *pair)
    threads = get_num_threads()
    if threads > 1 and _scatters_rows(kernel):
        return _banded(kernel, threads)
    across = _panel_dimension(kernel)
    return Tiling(kernel, kernel, {}) if across is None else _panels(kernel, across)


def _is_free_map(kernel: Loops) -> bool:
    """Whether the iterations may run in any order and none writes where another one does."""
    dimensions = range(len(kernel.sizes))
    return (
        kernel.chunks == 1
        and len(kernel.sizes) >= 2
        and all(i.op not in ("reduce", "cumulate", "index") for i in kernel.instructions)
        and all(
            s.accumulate is None
            and s.address is None
            and all(s.access.strides[d] for d in dimensions)
            for s in kernel.stores
        )
    )


def _critical_pair(kernel: Loops) -> tuple[int, int] | None:
    """The dimension along which the first store is dense, and the one along which a load is."""
    large = [d for d, size in enumerate(kernel.sizes) if size >= _LEAST_SIZE]
    if len(large) < 2 or not kernel.stores:
        return None
    stored = _densest(kernel.stores[0].access, large)
    for access in kernel.accesses:
        dense = _densest(access, large)
        if dense not in (None, stored) and stored is not None and dense is not None:
            if abs(access.strides[stored]) > abs(access.strides[dense]) and access.strides[stored]:
                return dense, stored
    return None


def _densest(access: Access, among: list[int]) -> int | None:
    moving = [d for d in among if access.strides[d]]
    return min(moving, key=lambda d: abs(access.strides[d]), default=None)


def _split(kernel: Loops, outside: int, inside: int) -> Tiling:
    """Dimensions: the others, the blocks of both, then within blocks `outside` and `inside`."""
    others = [d for d in range(len(kernel.sizes)) if d not in (outside, inside)]

    def strides(access: Access) -> Access:
        moved = access.strides
        near = (moved[outside], moved[inside])
        far = tuple(_TILE * stride for stride in near)
        return replace(access, strides=(*(moved[d] for d in others), *far, *near))

    count = len(others)
    pair = (kernel.sizes[outside], kernel.sizes[inside])
    blocks = tuple(-(-size // _TILE) for size in pair)
    instructions = tuple(
        i if i.op != "load" else replace(i, attribute=strides(i.attribute))
        for i in kernel.instructions
    )
    split = Loops(
        sizes=(*(kernel.sizes[d] for d in others), *blocks, _TILE, _TILE),
        outer=count + 4,
        operands=kernel.operands,
        instructions=instructions,
        stores=tuple(replace(s, access=strides(s.access)) for s in kernel.stores),
        parallel=count + 2,
    )
    return Tiling(split, split, {count + 2: (count, pair[0]), count + 3: (count + 1, pair[1])})


def _panel_dimension(kernel: Loops) -> int | None:
    """The parallel dimension along memory, where most loads cross it along the row."""
    last = len(kernel.sizes) - 1
    if kernel.chunks > 1 or not kernel.parallel or kernel.outer > last:
        return None
    loads = [i.attribute for i in kernel.instructions if i.op == "load" and not i.args]
    crossing = [a for a in loads if abs(a.strides[last]) > 1]
    candidates = [d for d in range(kernel.parallel) if kernel.sizes[d] >= _LEAST_PANEL]
    for dimension in candidates:
        dense = [a for a in crossing if abs(a.strides[dimension]) == 1]
        if dense and 2 * len(dense) > sum(1 for a in loads if a.strides[last]):
            return dimension
    return None


def _panels(kernel: Loops, dimension: int) -> Tiling:
    def strides(access: Access) -> Access:
        near = access.strides[dimension]
        moved = list(access.strides)
        moved[dimension] = _PANEL * near
        return replace(access, strides=(*moved, near))

    size, rank = kernel.sizes[dimension], len(kernel.sizes)
    sizes = [*kernel.sizes, _PANEL]
    sizes[dimension] = -(-size // _PANEL)
    split = Loops(
        sizes=tuple(sizes),
        outer=kernel.outer,
        operands=kernel.operands,
        instructions=tuple(
            i if i.op != "load" else replace(i, attribute=strides(i.attribute))
            for i in kernel.instructions
        ),
        stores=tuple(replace(s, access=strides(s.access)) for s in kernel.stores),
        parallel=kernel.parallel,
    )
    return Tiling(kernel, split, {rank: (dimension, size)}, _PANEL, panel=True)


# ------------------------------------------------------------------ scatters of rows
def _scatters_rows(kernel: Loops) -> bool:
    """Whether a serial kernel scatters rows whose columns are independent and long enough for bands."""
    last = len(kernel.sizes) - 1
    return (
        kernel.chunks == 1
        and not kernel.parallel
        and last > 0
        and kernel.outer >= last
        and kernel.sizes[last] >= 2 * _BAND
        and math.prod(kernel.sizes) >= _LEAST_SCATTERED
        and all(i.op not in ("reduce", "cumulate", "index") for i in kernel.instructions)
        and all(_has_own_columns(kernel, store) for store in kernel.stores)
    )


def _has_own_columns(kernel: Loops, store: Store) -> bool:
    """Whether different positions along the last dimension never write the same element, which is not read."""
    access, last = store.access, len(kernel.sizes) - 1
    if store.address is None or store.once or not access.strides[last] or min(access.strides) < 0:
        return False
    loads = [i.attribute.operand for i in kernel.instructions if i.op == "load"]
    if access.operand in loads or any(_moves(kernel, n, last) for n in (store.address, store.guard) if n is not None):
        return False
    rows = _divisor(kernel, store.address)
    reach = sum(stride * (size - 1) for stride, size in zip(access.strides, kernel.sizes, strict=True))
    moving = [(s, n) for s, n in zip(access.strides, kernel.sizes, strict=True) if s]
    return access.offset % max(rows, 1) + reach < rows and reaches_apart(*zip(*moving, strict=True))


def _moves(kernel: Loops, number: int, dimension: int) -> bool:
    """Whether an instruction's value differs along a dimension."""
    instruction = kernel.instructions[number]
    own = instruction.op == "load" and bool(instruction.attribute.strides[dimension])
    return own or any(_moves(kernel, n, dimension) for n in instruction.args)


def _divisor(kernel: Loops, number: int) -> int:
    """A number that divides an integer instruction's value; 0 if the value is 0."""
    instruction = kernel.instructions[number]
    if instruction.op == "constant" and is_sized(instruction.attribute):
        return 1
    if instruction.op == "constant":
        return abs(int(np.frombuffer(instruction.attribute, instruction.dtype)[0]))
    if instruction.op == "cast" and instruction.dtype.itemsize < 8:  # may drop bits
        return 1
    divisors = [_divisor(kernel, n) for n in instruction.args]
    if instruction.op == "mul":
        return math.prod(divisors)
    if instruction.op == "select":
        return math.gcd(*divisors[1:])
    return math.gcd(*divisors) if instruction.op in ("add", "sub", "min", "max", "cast") else 1


def _banded(kernel: Loops, threads: int) -> Tiling:
    """Dimensions: the bands, one for each thread, then the kernel's."""
    last = len(kernel.sizes) - 1
    size = kernel.sizes[last]
    width = _BAND * -(-size // (_BAND * threads))

    def strides(access: Access) -> Access:
        return replace(access, strides=(width * access.strides[last], *access.strides))

    split = replace(
        kernel,
        sizes=(-(-size // width), *kernel.sizes[:last], width),
        outer=kernel.outer + 1,
        instructions=tuple(
            i if i.op != "load" else replace(i, attribute=strides(i.attribute)) for i in kernel.instructions
        ),
        stores=tuple(replace(s, access=strides(s.access)) for s in kernel.stores),
        parallel=1,
    )
    return Tiling(split, split, {last + 1: (0, size)}, tile=0)
