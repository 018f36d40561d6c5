"""Arrays for which devices along some axes of a mesh have parts of a sum, or copies of one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from rlx.array import ConcreteArray, ValuesOfParts, array_of_type, parts_of, values_of_parts, wrap
from rlx.errors import ShardingError
from rlx.ir.types import TensorType, float0
from rlx.trace.spanning import local_of, of_parts, span_of
from rlx.trees import tree

__all__ = [
    "as_duals",
    "dual",
    "is_stacked",
    "local_axis",
    "seed_of",
    "span_with_axis",
    "span_without",
    "stacked_array",
]


def stacked_array(local: Any, type: TensorType) -> ConcreteArray:
    """An array whose spec has unreduced or reduced axes: `local` stacks the parts of the devices along them.

    The mesh axes with several members are its leading axes, in the mesh's order. Along unreduced axes it has
    parts of a sum, along reduced axes equal copies, so that the cotangents of one kind are of the other.
    """
    return of_parts(local, type.placed(sharding=type.device_sharding, parts="stacked"))


def is_stacked(x: Any) -> TypeGuard[ConcreteArray]:
    """Whether the spec of this array has unreduced or reduced axes."""
    return parts_of(x) == "stacked"


def local_axis(x: Any, axis: int) -> int:
    """The position of an axis of a stacked array in the local one."""
    return local_of(x).ndim - x.ndim + axis % x.ndim


def span_without(x: Any, axis: int | None) -> TensorType:
    """The span of a stacked array's slices along an axis; None: its own."""
    if axis is None:
        return span_of(x)
    kept = [i for i in range(x.ndim) if i != axis % x.ndim]
    entries = _entries(x)
    return _changed(x, [x.shape[i] for i in kept], [entries[i] for i in kept])


def span_with_axis(x: Any, axis: int, size: int) -> TensorType:
    """The span of a stacked array with a further axis, which is not divided."""
    at, entries = axis % (x.ndim + 1), _entries(x)
    return _changed(x, (*x.shape[:at], size, *x.shape[at:]), [*entries[:at], None, *entries[at:]])


def _entries(x: Any) -> Sequence[Any]:
    return span_of(x).device_sharding.spec.partitions


def _changed(x: Any, shape: Sequence[int], entries: Sequence[Any]) -> TensorType:
    sharding = x._sharding.update(spec=x._sharding.spec.update(entries))
    return x.type.update(shape=tuple(shape)).placed(sharding=sharding, parts="stacked")


def _known(x: ConcreteArray) -> ConcreteArray | None:
    return None if x._sharding.spec.unreduced else _first(x, local_of(x).known())


def _needed(x: ConcreteArray) -> ConcreteArray | None:
    if x._sharding.spec.unreduced:
        return _concrete(x)
    return _first(x, local_of(x).needed())


def _concrete(x: ConcreteArray) -> ConcreteArray:
    """The values, which every device has a copy of. Raises ShardingError if they are not yet summed."""
    if x._sharding.spec.unreduced:
        raise ShardingError(
            f"The values of a {x.type!r} are needed here, but its sharding is {x._sharding.spec!r}: devices"
            " have parts of a sum that is not yet computed.",
            "Sum them before: rlx.reshard(x, rlx.P()). The parts are in x.addressable_shards.",
        )
    found = _first(x, local_of(x).concrete())
    assert found is not None
    return found


def _first(x: ConcreteArray, copies: ConcreteArray | None) -> ConcreteArray | None:
    return None if copies is None else array_of_type(copies.numpy()[(0,) * (copies.ndim - x.ndim)], x.type)


values_of_parts["stacked"] = ValuesOfParts(_concrete, _known, _needed)


def dual(x: Any) -> Any:
    """An array as cotangents of arrays with its sharding: unreduced along the axes that it is reduced along, and vice
    versa."""
    if not is_stacked(x):
        return x
    if local_of(x).dtype == float0:
        return np.zeros(x.shape, float0)
    sharding = span_of(x).device_sharding
    spec = sharding.spec.update(unreduced=sharding.spec.reduced, reduced=sharding.spec.unreduced)
    return stacked_array(local_of(x), x.type.placed(sharding=sharding.update(spec=spec)))


def as_duals(values: Any) -> Any:
    """A tree with `dual` of its leaves."""
    return tree.map(dual, values) if any(map(is_stacked, tree.leaves(values))) else values


def seed_of(result: ConcreteArray, type: TensorType) -> ConcreteArray:
    """The local part of the cotangent 1 of a number, of this type. With copies, the first has it."""
    mesh, spec = result._sharding.mesh, result._sharding.spec
    names = [n for n in mesh.axis_names if n in spec.unreduced | spec.reduced and mesh.shape[n] > 1]
    seed = np.zeros(type.shape, type.dtype)
    seed[tuple(0 if name in spec.reduced else slice(None) for name in names)] = 1
    return wrap(seed)
