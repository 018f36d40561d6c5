"""Arrays for which devices along some axes of a mesh have parts of a sum, or copies of one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import ConcreteArray, array_of_type, wrap
from rlx.errors import ShardingError
from rlx.ir.types import TensorType, float0
from rlx.trace.spanning import ArrayOfParts
from rlx.trees import tree

__all__ = ["StackedArray", "as_duals", "dual", "seed_of"]


class StackedArray(ArrayOfParts):
    """An array whose spec has unreduced or reduced axes: `local` stacks the parts of the devices along them.

    The mesh axes with several members are its leading axes, in the mesh's order. Along unreduced axes it has
    parts of a sum, along reduced axes equal copies, so that the cotangents of one kind are of the other.
    """

    __slots__ = ()

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process has every part."""
        return True

    @property
    def span(self) -> TensorType:
        """With an entry of the spec for each axis."""
        spec = self._sharding.spec
        entries = (*spec.partitions, *[None] * (self.ndim - len(spec)))
        return self.type.placed(sharding=self._sharding.update(spec=spec.update(entries)))

    def axis(self, axis: int) -> int:
        """The position of an axis in the local array."""
        return self.local.ndim - self.ndim + axis % self.ndim

    def without(self, axis: int | None) -> TensorType:
        """The span of its slices along an axis; None: its own."""
        if axis is None:
            return self.span
        entries = self.span.device_sharding.spec.partitions
        kept = [i for i in range(self.ndim) if i != axis % self.ndim]
        return self._changed([self.shape[i] for i in kept], [entries[i] for i in kept])

    def with_axis(self, axis: int, size: int) -> TensorType:
        """The span of the array with a further axis, which is not divided."""
        at = axis % (self.ndim + 1)
        entries = self.span.device_sharding.spec.partitions
        shape = (*self.shape[:at], size, *self.shape[at:])
        return self._changed(shape, [*entries[:at], None, *entries[at:]])

    def _changed(self, shape: Sequence[int], entries: Sequence[Any]) -> TensorType:
        sharding = self.span.device_sharding
        divided = sharding.update(spec=sharding.spec.update(entries))
        return self.type.update(shape=tuple(shape)).placed(sharding=divided)

    def known(self) -> ConcreteArray | None:
        """The values, if every copy has them and they are known."""
        if self._sharding.spec.unreduced:
            return None
        return self._first_of(self.local if isinstance(self.local, ConcreteArray) else self.local.known())

    def needed(self) -> ConcreteArray | None:
        """The values of every copy, if they are known or can be computed now; raises like `concrete`."""
        if self._sharding.spec.unreduced or isinstance(self.local, ConcreteArray):
            return self.concrete()
        return self._first_of(self.local.needed())

    def concrete(self) -> ConcreteArray:
        """The values, which every device has a copy of. Raises ShardingError if they are not yet summed."""
        if self._sharding.spec.unreduced:
            raise ShardingError(
                f"The values of a {self.type!r} are needed here, but its sharding is {self._sharding.spec!r}: devices"
                " have parts of a sum that is not yet computed.",
                "Sum them before: rlx.reshard(x, rlx.P()). The parts are in x.addressable_shards.",
            )
        found = self._first_of(self.local.concrete())
        assert found is not None
        return found

    def _first_of(self, copies: ConcreteArray | None) -> ConcreteArray | None:
        if copies is None:
            return None
        return array_of_type(copies.numpy()[(0,) * (copies.ndim - self.ndim)], self.type)

    def __repr__(self) -> str:
        known = self.known()
        return super().__repr__() if known is None else repr(known)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self) if self._sharding.spec.unreduced else format(self.concrete(), spec)

    def __reduce__(self) -> Any:
        return self.concrete().__reduce__()

    def numpy(self) -> np.ndarray:
        """The values as a NumPy array; raises as `concrete`."""
        return self.concrete().numpy()


def dual(x: Any) -> Any:
    """An array as cotangents of arrays with its sharding: unreduced along the axes that it is reduced along, and vice
    versa."""
    if type(x) is not StackedArray:
        return x
    if x.local.dtype == float0:
        return np.zeros(x.shape, float0)
    sharding = x.span.device_sharding
    spec = sharding.spec.update(unreduced=sharding.spec.reduced, reduced=sharding.spec.unreduced)
    return StackedArray(x.local, x.type.placed(sharding=sharding.update(spec=spec)))


def as_duals(values: Any) -> Any:
    """A tree with `dual` of its leaves."""
    return tree.map(dual, values) if any(type(x) is StackedArray for x in tree.leaves(values)) else values


def seed_of(result: StackedArray, type: TensorType) -> ConcreteArray:
    """The local part of the cotangent 1 of a number, of this type. With copies, the first has it."""
    mesh, spec = result._sharding.mesh, result._sharding.spec
    names = [n for n in mesh.axis_names if n in spec.unreduced | spec.reduced and mesh.shape[n] > 1]
    seed = np.zeros(type.shape, type.dtype)
    seed[tuple(0 if name in spec.reduced else slice(None) for name in names)] = 1
    return wrap(seed)
