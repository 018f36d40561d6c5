"""Transposing maps run tile by tile, so that every cache line is used whole while it is near.

A map that walks one buffer along rows and another along columns gets its two critical dimensions
split in blocks; the blocks are outer dimensions, all of them parallel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlx.ir.kernels import Access, Loops

__all__ = ["Tiling", "tiled"]

_TILE = 32
_LEAST_SIZE = 2 * _TILE


@dataclass(frozen=True, slots=True)
class Tiling:
    """A kernel to run instead, with `blocks`: inner dimension -> (its block dimension, full size).

    Inner dimensions run over at most `tile` iterations, to the end of the full size."""

    kernel: Loops
    blocks: dict[int, tuple[int, int]]
    tile: int = _TILE


def tiled(kernel: Loops) -> Tiling:
    """The kernel in tiles if it transposes something large, else the kernel itself."""
    pair = _critical_pair(kernel) if _is_free_map(kernel) else None
    return Tiling(kernel, {}) if pair is None else _split(kernel, *pair)


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
    return Tiling(split, {count + 2: (count, pair[0]), count + 3: (count + 1, pair[1])})
