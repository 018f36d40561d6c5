"""Rows of divided arrays that other processes have, fetched by exchanges between pairs of processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.ops.dynamic import dynamic_slice
from rlx.ops.families import full_like
from rlx.ops.gather import gather
from rlx.ops.index_windows import GatherDimensionNumbers
from rlx.ops.process_collective import process_copy, process_permute
from rlx.ops.shape import broadcast_in_dim, concatenate, reshape, slice_along
from rlx.ops.spanning_axis import SpanningAxis
from rlx.trace.primitive import type_of

__all__ = ["fetched_rows", "most_fetched", "taken"]

_FEW = 4  # runs of rows that are joined as slices; more are taken by their numbers


class _Edge(NamedTuple):
    """Rows [start, stop) of the sender's block that another process needs."""

    sender: int
    receiver: int
    start: int
    stop: int


def taken(x: Any, index: Any, axis: int) -> Any:
    """The rows of these numbers, which exist, along an axis."""
    shape = type_of(x).shape
    sizes = tuple(1 if a == axis else n for a, n in enumerate(shape))
    others = tuple(a for a in range(len(shape)) if a != axis)
    return gather(
        x,
        reshape(index, shape=(type_of(index).size, 1)),
        dimension_numbers=GatherDimensionNumbers(others, (axis,), (axis,)),
        slice_sizes=sizes,
        mode="promise_in_bounds",
        fill_value=None,
    )


def fetched_rows(
    arrays: Sequence[tuple[Any, bool]], axis: int, over: SpanningAxis, wanted: np.ndarray, fill: Any = None
) -> Any:
    """This process's rows of the joined arrays, along one axis.

    Args:
      arrays: this process's block of an array with True, a whole array with False.
      over: the processes that have the blocks.
      wanted: for each process the numbers of rows, as many in each; -1 for a row of `fill`.
    """
    members = over.members
    total = sum(type_of(x).shape[axis] * (members if divided else 1) for x, divided in arrays)
    position = np.full((members, total + 1), -1)  # in the pool of each process, by row
    pool: list[Any] = []
    size, first = 0, 0

    def add(part: Any) -> int:
        nonlocal size
        pool.append(part)
        size += type_of(part).shape[axis]
        return size - type_of(part).shape[axis]

    for x, divided in arrays:
        block, start = type_of(x).shape[axis], add(x)
        if not divided:
            position[:, first : first + block] = np.arange(start, start + block)
            first += block
            continue
        for p in range(members):
            position[p, first + p * block : first + (p + 1) * block] = np.arange(start, start + block)
        for edges in _rounds(wanted - first, block):
            length = max(e.stop - e.start for e in edges)
            starts = {e.sender: min(e.start, block - length) for e in edges}
            own = starts.get(over.index, 0)
            pairs = tuple((e.sender, e.receiver) for e in edges)
            start = add(process_permute(slice_along(x, own, own + length, axis), pairs=pairs, **over.params))
            for e in edges:
                at = first + e.sender * block + starts[e.sender]
                position[e.receiver, at : at + length] = np.arange(start, start + length)
        first += block * members
    if (wanted < 0).any():
        type = type_of(pool[0])
        row = type.update(shape=tuple(1 if a == axis else n for a, n in enumerate(type.shape)), weak=False)
        position[:, total] = add(
            full_like(row, 0) if fill is None else broadcast_in_dim(fill, shape=row.shape, dims=())
        )
    index = np.take_along_axis(position, np.where(wanted < 0, total, wanted), 1)
    assert (index >= 0).all(), "every row is here or has been fetched"
    return _chosen(pool, axis, over, index)


def _rounds(wanted: np.ndarray, block: int) -> list[list[_Edge]]:
    """The exchanges that bring rows of others: in each round a process sends to one at most, and receives from one."""
    members = len(wanted)
    edges = []
    for receiver, rows in enumerate(wanted):
        for sender in range(members):
            own = rows[(rows >= sender * block) & (rows < (sender + 1) * block)] - sender * block
            if sender != receiver and own.size:
                edges.append(_Edge(sender, receiver, int(own.min()), int(own.max()) + 1))
    edges.sort(key=lambda e: (e.start - e.stop, (e.sender - e.receiver) % members, e.receiver))
    rounds: list[list[_Edge]] = []
    for edge in edges:
        for found in rounds:
            if all(edge.sender != e.sender and edge.receiver != e.receiver for e in found):
                found.append(edge)
                break
        else:
            rounds.append([edge])
    return rounds


def most_fetched(wanted: np.ndarray, block: int) -> int:
    """The number of rows that a process receives in all rounds."""
    return sum(max(e.stop - e.start for e in edges) for edges in _rounds(wanted, block))


def _chosen(pool: Sequence[Any], axis: int, over: SpanningAxis, index: np.ndarray) -> Any:
    """Rows of the joined parts of a pool, by their numbers in each process.

    What all processes do alike is a slice. Other numbers are unknown while programs are optimised, so that an exchange
    is not removed in some processes only.
    """
    (own,) = index[over.index : over.index + 1]
    if (index == own).all():
        runs = _runs(pool, axis, own)
        if len(runs) <= _FEW:
            parts = [slice_along(pool[number], start, stop, axis) for number, start, stop in runs]
            return parts[0] if len(parts) == 1 else concatenate(*parts, axis=axis)
    joined = concatenate(*pool, axis=axis) if len(pool) > 1 else pool[0]
    if (np.diff(index, axis=1) == 1).all():
        ndim, first = type_of(joined).ndim, _unknown(np.int64(own[0]), over)
        starts = [first if a == axis else np.int64(0) for a in range(ndim)]
        sizes = tuple(len(own) if a == axis else n for a, n in enumerate(type_of(joined).shape))
        return dynamic_slice(joined, *starts, sizes=sizes)
    return taken(joined, _unknown(own.astype(np.int64), over), axis)


def _unknown(value: Any, over: SpanningAxis) -> Any:
    """A constant of this process that the compiler does not look at."""
    return process_copy(value, group=over.group, members=over.members)


def _runs(pool: Sequence[Any], axis: int, index: np.ndarray) -> list[tuple[int, int, int]]:
    """Consecutive rows as slices: the number of the part, the start and the stop in it."""
    bounds = np.cumsum([0, *(type_of(x).shape[axis] for x in pool)])
    runs: list[tuple[int, int, int]] = []
    for row in index.tolist():
        number = int(np.searchsorted(bounds, row, "right")) - 1
        at = row - int(bounds[number])
        if runs and runs[-1][0] == number and runs[-1][2] == at:
            runs[-1] = (number, runs[-1][1], at + 1)
        else:
            runs.append((number, at, at + 1))
    return runs
