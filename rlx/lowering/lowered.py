"""Lowered values: lazy scalar expressions over their own index space, and views of buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.kernels import Buffer
from rlx.ir.types import TensorType
from rlx.lowering.nodes import IndexMap, Node, NodeTable, leaves, rewrite

__all__ = [
    "BufferView",
    "LoweredValue",
    "StrideMap",
    "dense_strides",
    "is_dense",
    "natural_order",
    "remap",
    "reshape_map",
    "view_nodes",
    "view_of",
]

# (strides, offset) over one index space -> the same element over another; None: not affine there
StrideMap = Callable[[tuple[int, ...], int], "tuple[tuple[int, ...], int] | None"]


class LoweredValue:
    """A tensor that has been lowered: one scalar node (complex: two) over the axes of `type`.

    A value that lives in memory is a plain "load" (see view_of). Realising a value replaces its
    nodes, so that later users read the buffer.
    """

    __slots__ = ("nodes", "sources", "type")

    def __init__(self, type: TensorType, nodes: tuple[Node, ...], sources: tuple[Any, ...] = ()) -> None:
        self.type = type
        self.nodes = nodes
        self.sources = sources

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the value."""
        return self.type.dtype

    @property
    def weight(self) -> int:
        """Upper bound of the number of operations that computing an element takes."""
        return sum(node.weight for node in self.nodes)

    def __repr__(self) -> str:
        return f"Lowered({self.type!r}, {self.nodes[0].op})"


class BufferView(NamedTuple):
    """A strided window on a buffer, in elements of its dtype."""

    buffer: Buffer
    strides: tuple[int, ...]
    offset: int


def dense_strides(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Strides of a gapless array whose axes are in `order` in memory (outermost first)."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides describe a row-major array (ignoring axes of size 1)."""
    wanted = dense_strides(shape)
    return all(n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True))


def view_nodes(table: NodeTable, view: BufferView) -> tuple[Node, ...]:
    """The loads that read a view: one, or the real and the imaginary part."""
    buffer, strides, offset = view
    if buffer.dtype.kind != "c":
        return (table.load(IndexMap(*view)),)
    doubled = tuple(2 * s for s in strides)
    return tuple(table.load(IndexMap(buffer, doubled, 2 * offset + part)) for part in (0, 1))


def view_of(value: LoweredValue) -> BufferView | None:
    """The view, if a value is only a view of a buffer with the value's dtype."""
    node = value.nodes[0]
    if node.op != "load" or node.args or node.attribute.buffer.dtype != value.dtype:
        return None
    buffer, strides, offset = node.attribute
    if len(value.nodes) == 1:
        return BufferView(buffer, strides, offset)
    other = value.nodes[1]
    if offset % 2 or other.op != "load" or other.args:
        return None
    if other.attribute != (buffer, strides, offset + 1):
        return None
    return BufferView(buffer, tuple(s // 2 for s in strides), offset // 2)


class _NotAffine(Exception):
    """A leaf of the expression cannot follow the map."""


def remap(table: NodeTable, nodes: Sequence[Node], stride_map: StrideMap) -> tuple[Node, ...] | None:
    """Expressions read through an index map, or None if a leaf cannot follow it."""
    cache: dict[tuple[Any, ...], tuple[tuple[int, ...], int]] = {}

    def moved(strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
        key = (strides, offset)
        result = cache.get(key)
        if result is None:
            mapped = stride_map(strides, offset)
            if mapped is None:
                raise _NotAffine
            result = cache[key] = mapped
        return result

    def replace(leaf: Node, args: tuple[Node, ...]) -> Node:
        if leaf.op == "affine":
            return table.affine(*moved(*leaf.attribute))
        buffer, strides, offset = leaf.attribute
        return table.load(IndexMap(buffer, *moved(strides, offset)), *args)

    try:
        done = rewrite(table, nodes, replace)
        table.carry_marks(done)
    except _NotAffine:
        return None
    return tuple(done[node] for node in nodes)


def _matching_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Cut two shapes of equal size into shortest runs of axes with equal products."""
    groups: list[tuple[list[int], list[int]]] = []
    sources = [axis for axis, size in enumerate(old) if size != 1]
    targets = [axis for axis, size in enumerate(new) if size != 1]
    i = j = 0
    while i < len(sources):
        first, second = [sources[i]], [targets[j]]
        have, want = old[sources[i]], new[targets[j]]
        i, j = i + 1, j + 1
        while have != want:
            if have < want:
                have *= old[sources[i]]
                first.append(sources[i])
                i += 1
            else:
                want *= new[targets[j]]
                second.append(targets[j])
                j += 1
        groups.append((first, second))
    return groups


def reshape_map(old: Sequence[int], new: Sequence[int]) -> StrideMap:
    """The index map of a row-major reshape between shapes without zero sizes."""
    groups = _matching_groups(old, new)
    rank = len(new)

    def stride_map(strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int] | None:
        result = [0] * rank
        for sources, targets in groups:
            for outer, inner in pairwise(sources):
                if strides[outer] != strides[inner] * old[inner]:
                    return None
            step = strides[sources[-1]]
            for axis in reversed(targets):
                result[axis] = step
                step *= new[axis]
        return tuple(result), offset

    return stride_map


def natural_order(value: LoweredValue) -> list[int]:
    """The axes in the memory order of an expression's largest operand."""
    shape = value.shape
    axes = list(range(len(shape)))
    best: tuple[int, tuple[int, ...]] | None = None
    for leaf in leaves(value.nodes):
        strides = leaf.attribute.strides
        covered = 1
        for size, stride in zip(shape, strides, strict=True):
            covered *= size if stride else 1
        if not leaf.args and (best is None or covered > best[0]):
            best = (covered, strides)
    if best is None:
        return axes
    strides = best[1]
    moving = [axis for axis in axes if shape[axis] != 1 and strides[axis]]
    if len(moving) < sum(size != 1 for size in shape):
        return axes
    return sorted(axes, key=cmp_to_key(lambda first, second: _compare_axes(first, second, shape, strides)))


def _compare_axes(first: int, second: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Negative if the first axis is the outer one in memory; for overlapping windows, if it is the shorter one."""
    if shape[first] == 1 or shape[second] == 1:
        return (shape[first] != 1) - (shape[second] != 1)
    inner, outer = sorted((first, second), key=lambda axis: abs(strides[axis]))
    if abs(strides[outer]) < abs(strides[inner]) * shape[inner]:
        return shape[first] - shape[second]
    return abs(strides[second]) - abs(strides[first])
