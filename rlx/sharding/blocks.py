"""Blocks: the part that one process has of an array divided over a mesh of several processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray
from rlx.errors import ShardingError
from rlx.ir.collectives import WORLD, communicator, group_among
from rlx.ir.types import is_inexact
from rlx.ops.process_collective import process_copy, process_same
from rlx.ops.shape import reshape, transpose
from rlx.ops.spanning_axis import SpanningAxis
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding, Sharding
from rlx.sharding.spec import names_in, names_of_entry
from rlx.trace.builder import Tracer
from rlx.trace.primitive import type_of
from rlx.trace.spanning import is_spanning, spanning_array

__all__ = [
    "array_of_block",
    "as_each_ones",
    "as_one",
    "block_shape",
    "blocks_along",
    "check_move",
    "check_processes",
    "check_reach",
    "local_sharding",
    "own_block",
    "own_rows",
    "process_block",
    "spanning_axes",
    "spans",
    "whole_of_blocks",
    "whole_shape",
]


def spans(sharding: Sharding | None) -> bool:
    """Whether processes have different parts of an array with this sharding."""
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return False
    counts = _process_counts(sharding)
    return any(counts[name] > 1 for name in names_in(sharding.spec.partitions))


def local_sharding(sharding: NamedSharding) -> NamedSharding:
    """How this process's devices divide its block."""
    assert isinstance(sharding.mesh, Mesh)
    return sharding.update(mesh=sharding.mesh.local_mesh)


def _split(sharding: NamedSharding, shape: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """The shape with two axes for each mesh axis that divides one, over processes and inside them, then the remainder.

    Also the positions of the axes over processes, each with the number of its mesh axis.
    """
    mesh = sharding.mesh
    assert isinstance(mesh, Mesh)
    parts: list[int] = []
    over: list[tuple[int, int]] = []
    entries = [*sharding.spec.partitions, *[None] * (len(shape) - len(sharding.spec))]
    for size, entry in zip(shape, entries, strict=True):
        for name in names_of_entry(entry):
            number = mesh.axis_names.index(name)
            over.append((len(parts), number))
            parts += [mesh.process_counts[number], mesh.local_sizes[number]]
            size //= mesh.axis_sizes[number]
        parts.append(size)
    return parts, over


def blocks_along(sharding: NamedSharding, ndim: int) -> list[int]:
    """The number of processes that each axis of an array is divided over."""
    counts = _process_counts(sharding)
    entries = [*sharding.spec.partitions, *[None] * (ndim - len(sharding.spec))]
    return [math.prod(counts[name] for name in names_of_entry(entry)) for entry in entries]


def process_block(sharding: NamedSharding, ndim: int) -> list[int]:
    """The number of this process's block along each axis of an array."""
    assert isinstance(sharding.mesh, Mesh)
    counts = _process_counts(sharding)
    position = dict(zip(sharding.mesh.axis_names, sharding.mesh.process_position, strict=True))
    numbers = [0] * ndim
    for axis, entry in enumerate(sharding.spec.partitions):
        for name in names_of_entry(entry):
            numbers[axis] = numbers[axis] * counts[name] + position[name]
    return numbers


def _process_counts(sharding: NamedSharding) -> dict[Any, int]:
    """The number of processes that each axis of the mesh is divided over."""
    assert isinstance(sharding.mesh, Mesh)
    return dict(zip(sharding.mesh.axis_names, sharding.mesh.process_counts, strict=True))


def block_shape(sharding: NamedSharding, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a process's block of an array of this shape."""
    return tuple(d // n for d, n in zip(shape, blocks_along(sharding, len(shape)), strict=True))


def whole_shape(sharding: NamedSharding, block: Sequence[int]) -> tuple[int, ...]:
    """The shape of an array whose blocks have this shape."""
    return tuple(d * n for d, n in zip(block, blocks_along(sharding, len(block)), strict=True))


def as_each_ones(x: Any, axes: Sequence[SpanningAxis]) -> Any:
    """A value shared by the processes along some axes, as each process's own: derivatives are summed over them."""
    for axis in axes if _moves(x) else ():
        x = process_copy(x, group=axis.group, members=axis.members)
    return x


def as_one(x: Any, axes: Sequence[SpanningAxis]) -> Any:
    """A value that is equal in the processes along some axes, as one value: its derivative counts once."""
    for axis in axes if _moves(x) else ():
        x = process_same(x, group=axis.group, members=axis.members)
    return x


def _moves(x: Any) -> bool:
    """Whether a derivative may be taken by a value."""
    return isinstance(x, Tracer) and is_inexact(x.dtype)


def own_block(x: Array, sharding: NamedSharding) -> Array:
    """This process's block of an array that all processes have, traced or not."""
    assert isinstance(sharding.mesh, Mesh)
    named = {axis.name: axis for axis in spanning_axes(sharding.mesh)}
    parts, over = _split(sharding, x.shape)
    axes = [(at, named.get(sharding.mesh.axis_names[number])) for at, number in over]
    rows = own_rows(reshape(x, shape=tuple(parts)), {at: axis for at, axis in axes if axis is not None})
    return reshape(rows, shape=block_shape(sharding, x.shape))


def own_rows(x: Any, axes: Mapping[int, SpanningAxis]) -> Any:
    """This process's part of a value that all processes have: of each of these axes its row, without the axis."""
    for at in sorted(axes, reverse=True):  # earlier axes keep their positions
        front = (at, *(axis for axis in range(type_of(x).ndim) if axis != at))
        x = axes[at].own_row(transpose(x, permutation=front))
    return x


def array_of_block(block: Array, shape: Sequence[int], sharding: NamedSharding) -> ConcreteArray:
    """The array of this shape whose block in this process is given."""
    return spanning_array(block, block.type.update(shape=tuple(shape)).placed(sharding=sharding))


def whole_of_blocks(blocks: np.ndarray, shape: Sequence[int], sharding: NamedSharding) -> np.ndarray:
    """The array with these blocks, stacked by rank along a new first axis."""
    mesh = sharding.mesh
    assert isinstance(mesh, Mesh)
    parts, over = _split(sharding, shape)
    whole = np.empty(parts, blocks.dtype)
    processes = {at for at, _ in over}
    inside = [n for at, n in enumerate(parts) if at not in processes]
    for position in np.ndindex(*mesh.process_counts):
        place: list[Any] = [np.s_[:]] * len(parts)
        for at, number in over:
            place[at] = position[number]
        whole[tuple(place)] = blocks[mesh.processes[position]].reshape(inside)
    return whole.reshape(tuple(shape))


def spanning_axes(mesh: Mesh) -> list[SpanningAxis]:
    """The axes of a mesh that span processes, with this process's groups. All processes call it.

    Raises as `check_processes`.
    """
    check_processes(mesh)
    ranks = mesh.processes
    found = []
    for number, (name, count) in enumerate(zip(mesh.axis_names, mesh.process_counts, strict=True)):
        if count > 1:
            group = _group_along(ranks, number)
            local = mesh.local_sizes[number]
            found.append(SpanningAxis(name, count * local, local, group, mesh.process_position[number]))
    return found


def check_processes(mesh: Mesh) -> None:
    """Raises ShardingError for a mesh on only some processes, or on another process, before anything is sent."""
    own, size, ranks = communicator().rank, communicator().size, mesh.processes
    if ranks.size not in (1, size):
        raise ShardingError(
            f"{mesh} is on {ranks.size} of {size} processes.", "Take devices of all processes, or of only one."
        )
    if own not in ranks:
        raise ShardingError(
            f"{mesh} is on process {ranks.item()}, and this is process {own}.",
            "Call it in that process only, or take devices of all processes.",
        )


def check_reach(sharding: Sharding | None) -> None:
    """Raises as `check_processes`, for a sharding over a mesh of devices."""
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        check_processes(sharding.mesh)


def check_move(x: Any, sharding: Sharding | None) -> None:
    """Raises ShardingError, in all processes, if one of them would get an array that all of them divide."""
    if not is_spanning(x) or not isinstance(sharding, NamedSharding):
        return
    if isinstance(sharding.mesh, Mesh) and sharding.mesh.processes.size == 1:
        raise ShardingError(
            f"A {x.type!r} is divided over {communicator().size} processes, and {sharding.mesh} is on process"
            f" {sharding.mesh.processes.item()} only.",
            "Take devices of all processes, or call rlx.experimental.multihost_utils.process_allgather in all of them.",
        )


def _group_along(ranks: np.ndarray, axis: int) -> str:
    """The group of this process and its neighbours along an axis of the grid of processes."""
    own = communicator().rank
    lines = np.moveaxis(ranks, axis, -1).reshape(-1, ranks.shape[axis]).tolist()
    if lines == [list(range(ranks.size))]:
        return WORLD
    names = [group_among(line) for line in lines]  # all processes create all groups
    return next(name for name, line in zip(names, lines, strict=True) if own in line)
