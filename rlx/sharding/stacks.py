"""Arrays whose specs have unreduced or reduced axes: what devices have of them, and how it becomes what others ask for."""

from __future__ import annotations

from typing import Any

from rlx.array import Array, Span
from rlx.errors import UnsupportedError
from rlx.ops.families import full_like
from rlx.ops.reduction import reduce_sum
from rlx.ops.shape import broadcast_in_dim, pad, reshape, slice
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding
from rlx.trace.primitive import type_of
from rlx.trace.stacked import StackedArray

__all__ = ["first_along", "restacked", "stack_axes", "stacked_as"]


def stack_axes(sharding: Any) -> dict[Any, str]:
    """The axes of several members along which devices have parts of a sum, or copies: "unreduced" or "reduced".

    In the mesh's order. Axes of one device have nothing to sum. Raises UnsupportedError for meshes over processes.
    """
    if not isinstance(sharding, NamedSharding):
        return {}
    mesh, spec = sharding.mesh, sharding.spec
    kinds = {**dict.fromkeys(spec.unreduced, "unreduced"), **dict.fromkeys(spec.reduced, "reduced")}
    if kinds and isinstance(mesh, Mesh) and mesh.is_multi_process:
        raise UnsupportedError(
            f"{sharding!r} has unreduced or reduced axes, and is over several processes.",
            "Sum in the function: rlx.lax.psum(x, axis).",
        )
    sizes = mesh.shape
    return {name: kinds[name] for name in mesh.axis_names if name in kinds and sizes[name] > 1}


def stacked_as(local: Any, sharding: NamedSharding) -> StackedArray:
    """The array of which devices have this, one behind another along leading axes."""
    type = type_of(local)
    return StackedArray(local, Span(type.update(shape=type.shape[len(stack_axes(sharding)) :]), sharding))


def restacked(x: Any, sharding: Any) -> Array:
    """An array, with the same sum of its parts, of which devices have what a sharding asks for.

    Along an axis that is unreduced from now on, the first device has the value, and the others zeros. It is an ordinary
    array where the sharding asks for neither parts nor copies.
    """
    have = stack_axes(x._sharding) if type(x) is StackedArray else {}
    want = stack_axes(sharding)
    if have and want and x._sharding.mesh.shape_tuple != sharding.mesh.shape_tuple:
        x, have = restacked(x, None), {}
    local = x.local if have else x
    for at, (name, kind) in reversed(list(enumerate(have.items()))):
        if want.get(name) != kind:
            local = reduce_sum(local, axes=(at,)) if kind == "unreduced" else first_along(local, at)
    for at, (name, kind) in enumerate(want.items()):
        if have.get(name) != kind:
            local = _with_axis(local, at, sharding.mesh.shape[name], kind)
    return stacked_as(local, sharding) if want else local


def _with_axis(x: Any, at: int, size: int, kind: str) -> Any:
    """The array as copies along a new axis, or as the first of parts of a sum."""
    type = type_of(x)
    shape = (*type.shape[:at], 1, *type.shape[at:])
    if kind == "reduced":
        kept = tuple(i for i in range(len(shape)) if i != at)
        return broadcast_in_dim(x, shape=(*shape[:at], size, *shape[at + 1 :]), dims=kept)
    config = tuple((0, size - 1 if i == at else 0, 0) for i in range(len(shape)))
    return pad(reshape(x, shape=shape), full_like(type.update(shape=()), 0), config=config)


def first_along(x: Any, at: int) -> Any:
    """The first slice along an axis."""
    shape = type_of(x).shape
    limits = tuple(1 if i == at else d for i, d in enumerate(shape))
    taken = slice(x, starts=(0,) * len(shape), limits=limits, strides=(1,) * len(shape))
    return reshape(taken, shape=shape[:at] + shape[at + 1 :])
