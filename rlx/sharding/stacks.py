"""Arrays whose specs have unreduced or reduced axes: the values on each device, and conversions to other shardings."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, wrap
from rlx.errors import UnsupportedError
from rlx.ir.types import is_inexact
from rlx.ops.conversion import select
from rlx.ops.families import full_like
from rlx.ops.reduction import reduce_sum
from rlx.ops.shape import broadcast_in_dim, reshape, slice
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import names_in, names_of_entry
from rlx.trace.primitive import type_of
from rlx.trace.spanning import local_of
from rlx.trace.stacked import is_stacked, stacked_array
from rlx.trace.tracing import place_of

__all__ = ["first_along", "restacked", "stack_axes", "stacked_as"]


def stack_axes(sharding: Any) -> dict[Any, str]:
    """The axes with several members along which devices have parts of a sum, or copies: "unreduced" or "reduced".

    In the mesh's order. Axes of one device have nothing to sum. Raises UnsupportedError for meshes over processes.
    """
    if not isinstance(sharding, NamedSharding):
        return {}
    mesh, spec = sharding.mesh, sharding.spec
    kinds = {**dict.fromkeys(spec.unreduced, "unreduced"), **dict.fromkeys(spec.reduced, "reduced")}
    if kinds and isinstance(mesh, Mesh) and mesh.is_multi_process:
        raise UnsupportedError(
            f"{sharding!r} has unreduced or reduced axes, and spans several processes.",
            "Sum in the function: rlx.lax.psum(x, axis).",
        )
    sizes = mesh.shape
    return {name: kinds[name] for name in mesh.axis_names if name in kinds and sizes[name] > 1}


def stacked_as(local: Any, sharding: NamedSharding) -> ConcreteArray:
    """The array whose devices have these values, stacked along leading axes."""
    type = type_of(local)
    whole = type.update(shape=type.shape[len(stack_axes(sharding)) :])
    return stacked_array(local, whole.placed(sharding=sharding))


def restacked(x: Any, sharding: Any) -> Array:
    """An array, with the same sum of its parts, under another sharding.

    Along a new unreduced axis, the first device has the value, and the others have zeros. If the array was divided
    over that axis, each device keeps its part and has zeros elsewhere. The result is an ordinary array if the sharding
    has no unreduced or reduced axes.
    """
    have = stack_axes(x._sharding) if is_stacked(x) else {}
    want = stack_axes(sharding)
    if have and want and x._sharding.mesh.shape_tuple != sharding.mesh.shape_tuple:
        x, have = restacked(x, None), {}
    local: Any = local_of(x) if have else x
    for at, (name, kind) in reversed(list(enumerate(have.items()))):
        if want.get(name) != kind:
            divides = isinstance(sharding, NamedSharding) and name in names_in(sharding.spec.partitions)
            if kind == "reduced" and divides and is_inexact(x.dtype):
                local, kind = _own_parts(local, at, name, sharding, x.ndim), "unreduced"  # its part of its copy
            local = reduce_sum(local, axes=(at,)) if kind == "unreduced" else first_along(local, at)
    for at, (name, kind) in enumerate(want.items()):
        if have.get(name) != kind:
            local = _with_axis(local, at, sharding.mesh.shape[name])
            if kind == "unreduced":
                local = _own_parts(local, at, name, place_of(x), x.ndim)
    return stacked_as(local, sharding) if want else local


def _with_axis(x: Any, at: int, size: int) -> Any:
    """The array as copies along a new axis."""
    shape = type_of(x).shape
    kept = (*range(at), *range(at + 1, len(shape) + 1))
    return broadcast_in_dim(x, shape=(*shape[:at], size, *shape[at:]), dims=kept)


def _own_parts(copies: Any, at: int, name: Any, place: Any, ndim: int) -> Any:
    """A device's own part of copies along an axis, and zeros elsewhere: `place` describes how the array is divided."""
    shape = type_of(copies).shape
    entries = list(map(names_of_entry, place.spec.partitions)) if isinstance(place, NamedSharding) else []
    axis = next((i for i, names in enumerate(entries) if name in names), None)
    if axis is None:
        own, kept = np.arange(shape[at]) == 0, (at,)
    else:
        counts = [place.mesh.shape[other] for other in entries[axis]]
        inside = prod(counts[entries[axis].index(name) + 1 :])  # parts along axes of the mesh after this one
        axis += len(shape) - ndim
        part = np.arange(shape[axis]) // (shape[axis] // prod(counts))
        own, kept = np.arange(shape[at])[:, None] == part // inside % shape[at], (at, axis)
    mask = broadcast_in_dim(wrap(own), shape=shape, dims=kept)
    return select(mask, copies, full_like(type_of(copies).update(shape=()), 0))


def first_along(x: Any, at: int) -> Any:
    """The first slice along an axis."""
    shape = type_of(x).shape
    limits = tuple(1 if i == at else d for i, d in enumerate(shape))
    taken = slice(x, starts=(0,) * len(shape), limits=limits, strides=(1,) * len(shape))
    return reshape(taken, shape=shape[:at] + shape[at + 1 :])
