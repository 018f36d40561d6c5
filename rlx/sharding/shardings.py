"""Shardings: which device has which part of an array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.array import Device
from rlx.backends import own_devices
from rlx.errors import InputTypeError, ShardingError
from rlx.forks import cached_property
from rlx.sharding.mesh import AbstractMesh, Mesh, local_devices
from rlx.sharding.spec import UNCONSTRAINED, PartitionSpec, names_in, names_of_entry

__all__ = ["NamedSharding", "Sharding", "SingleDeviceSharding", "make_single_device_sharding"]

Shape = Sequence[int]
_MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # names of the only memory


def _memory_kind(kind: str | None) -> str | None:
    if kind is not None and kind not in _MEMORY_KINDS:
        raise ShardingError(
            f"There is no memory of kind {kind!r}; there are: {', '.join(_MEMORY_KINDS)}.", "Leave memory_kind out."
        )
    return kind


class Sharding:
    """Which device has which part of an array; the base of NamedSharding and SingleDeviceSharding.

    >>> import rlx
    >>> isinstance(rlx.numpy.ones(2).sharding, rlx.sharding.Sharding)
    True
    """

    memory_kind: str | None

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices, in the order of their parts."""
        raise NotImplementedError

    def part_numbers(self, ndim: int) -> tuple[tuple[int, ...], np.ndarray]:
        """The number of parts of each axis, and for each device the numbers of its part."""
        raise NotImplementedError

    def check_rank(self, owner: str, shape: Shape) -> None:
        """Raises ShardingError if an array of this shape has too few axes."""

    @property
    def device_set(self) -> set[Device]:
        """The devices."""
        return set(self.devices)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process."""
        return set(own_devices(list(self.devices)))

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process has any of the devices."""
        return bool(self.addressable_devices)

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return len(self.devices)

    @property
    def is_default(self) -> bool:
        """Whether it names one device, the first of its process, where arrays are that have no sharding."""
        return self.num_devices == 1 and (self.is_abstract or self.devices[0].local_hardware_id == 0)

    @property
    def is_abstract(self) -> bool:
        """Whether it is over a mesh without devices: it specifies the division of an array, not its placement."""
        return False

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process has every device."""
        return bool(self.devices) and len(own_devices(list(self.devices))) == len(self.devices)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has the whole array."""
        return self.num_devices == 1

    def shard_shape(self, global_shape: Shape) -> tuple[int, ...]:
        """The shape of one part. Raises ShardingError if an axis cannot be divided evenly."""
        shape = tuple(global_shape)
        self.check_rank("shard_shape", shape)
        counts, _ = self.part_numbers(len(shape))
        for axis, (size, count) in enumerate(zip(shape, counts, strict=True)):
            if size % count:
                raise ShardingError(
                    f"{self!r} divides axis {axis} of an array of shape {shape} by {count}, which leaves a rest.",
                    "Pad the array, or divide it otherwise.",
                )
        return tuple(size // count for size, count in zip(shape, counts, strict=True))

    def devices_indices_map(self, global_shape: Shape) -> Mapping[Device, tuple[slice, ...]]:
        """For each device the index of its part in an array of this shape."""
        part = self.shard_shape(global_shape)
        counts, numbers = self.part_numbers(len(part))

        def index(own: Sequence[int]) -> tuple[slice, ...]:
            places = zip(own, part, counts, strict=True)
            return tuple(slice(None) if c == 1 else slice(int(n) * s, (int(n) + 1) * s) for n, s, c in places)

        return {device: index(own) for device, own in zip(self.devices, numbers.tolist(), strict=True)}

    def addressable_devices_indices_map(self, global_shape: Shape) -> Mapping[Device, tuple[slice, ...]]:
        """The same for the devices of this process."""
        own = self.addressable_devices
        return {device: index for device, index in self.devices_indices_map(global_shape).items() if device in own}

    def _devices_or_none(self) -> tuple[Device, ...] | None:
        return self.devices

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether each device has the same part of an array of `ndim` axes under both."""
        (own_counts, own), (counts, numbers) = self.part_numbers(ndim), other.part_numbers(ndim)
        return (
            self.memory_kind == other.memory_kind
            and self._devices_or_none() == other._devices_or_none()
            and own_counts == counts
            and np.array_equal(own, numbers)
        )


class SingleDeviceSharding(Sharding):
    """The whole array on one device.

    Args:
      device: the device. memory_kind: a name of its memory; it has one.

    Raises: InputTypeError if `device` is not a device.

    >>> import rlx
    >>> rlx.sharding.SingleDeviceSharding(rlx.devices()[0])
    SingleDeviceSharding(device=Device(cpu:0), memory_kind=device)
    """

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        if not isinstance(device, Device):
            raise InputTypeError(f"SingleDeviceSharding got {device!r:.60}.", "Pass a device of rlx.devices().")
        self._device = device
        self.memory_kind = _memory_kind(memory_kind) or "device"

    @property
    def devices(self) -> tuple[Device, ...]:
        """The device."""
        return (self._device,)

    def part_numbers(self, ndim: int) -> tuple[tuple[int, ...], np.ndarray]:
        """One part."""
        return (1,) * ndim, np.zeros((1, ndim), int)

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """The sharding with another name for the memory."""
        return SingleDeviceSharding(self._device, memory_kind=kind)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, SingleDeviceSharding) and self._device == other._device
        return same and self.memory_kind == other.memory_kind

    def __hash__(self) -> int:
        return hash((self._device, self.memory_kind))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self.memory_kind})"


class NamedSharding(Sharding):
    """An array divided over the axes of a mesh according to a partition spec.

    Args:
      mesh: a Mesh, or an AbstractMesh, which has no devices.
      spec: for each axis of the array the mesh axes that it is divided over.
      memory_kind: a name of the devices' memory; they have only one.

    Raises: ShardingError if the spec names an axis that the mesh does not have, or an axis twice.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> mesh = rlx.make_mesh((1, 1), ("data", "model"))
    >>> sharding = rlx.NamedSharding(mesh, rlx.P("data", "model"))
    >>> x = rlx.device_put(jnp.ones((4, 2)), sharding)
    >>> x.sharding == sharding, x.sharding.shard_shape(x.shape)
    (True, (4, 2))
    """

    def __init__(self, mesh: Mesh | AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None) -> None:
        if not isinstance(mesh, (Mesh, AbstractMesh)):
            raise InputTypeError(f"NamedSharding got {mesh!r:.60} as its mesh.", "Pass a Mesh or an AbstractMesh.")
        if not isinstance(spec, PartitionSpec):
            raise InputTypeError(
                f"NamedSharding got {spec!r:.60}, a {type(spec).__name__}, as its spec.",
                "Pass a PartitionSpec: rlx.P('x').",
            )
        check_names("NamedSharding", mesh, spec)
        self.mesh = mesh
        self.spec = spec
        found = _memory_kind(memory_kind)
        self.memory_kind = "device" if found is None and isinstance(mesh, Mesh) and not mesh.empty else found

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of the mesh. Raises ShardingError for an AbstractMesh."""
        if isinstance(self.mesh, AbstractMesh):
            raise ShardingError(f"The mesh of {self!r} has no devices.", "Use a NamedSharding of a Mesh.")
        return tuple(self.mesh.all_devices)

    def _devices_or_none(self) -> tuple[Device, ...] | None:
        return None if self.is_abstract else self.devices

    @property
    def is_abstract(self) -> bool:
        """Whether the mesh has no devices: the sharding specifies the division of an array, not its placement."""
        return isinstance(self.mesh, AbstractMesh)

    @property
    def num_devices(self) -> int:
        """How many devices the mesh has, or describes."""
        return self.mesh.size

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has the whole array."""
        sizes = self.mesh.shape
        divided = math.prod(sizes[name] for name in names_in(self.spec.partitions)) > 1
        return self.mesh.size == 1 or not (divided or self.spec.unreduced)

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """The axes of the mesh that the spec does not name."""
        named = {*names_in(self.spec.partitions), *self.spec.unreduced, *self.spec.reduced}
        return frozenset(self.mesh.axis_names) - named

    def check_rank(self, owner: str, shape: Shape) -> None:
        """Raises ShardingError if the spec has more entries than an array of this shape has axes."""
        if len(shape) < len(self.spec):
            raise ShardingError(
                f"{owner} got {self!r}, whose spec has {len(self.spec)} entries, for an array of shape {tuple(shape)}.",
                "A spec has at most as many entries as the array has axes; for a scalar it is P().",
            )

    @cached_property
    def _positions(self) -> np.ndarray:
        """For each device its position along each axis of the mesh."""
        sizes = self.mesh.axis_sizes
        return np.indices(sizes).reshape(len(sizes), -1).T if sizes else np.zeros((max(self.mesh.size, 1), 0), int)

    def part_numbers(self, ndim: int) -> tuple[tuple[int, ...], np.ndarray]:
        """The number of parts of each axis, and for each device the numbers of its part."""
        sizes, names = self.mesh.shape, self.mesh.axis_names
        counts = [1] * ndim
        numbers = np.zeros((len(self._positions), ndim), int)
        for axis, entry in enumerate(self.spec.partitions[:ndim]):
            for name in names_of_entry(entry):
                counts[axis] *= sizes[name]
                numbers[:, axis] = numbers[:, axis] * sizes[name] + self._positions[:, names.index(name)]
        return tuple(counts), numbers

    def update(self, **changes: Any) -> NamedSharding:
        """The sharding with another mesh=, spec= or memory_kind=."""
        spec = changes.get("spec", self.spec)
        return NamedSharding(
            changes.get("mesh", self.mesh),
            spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec),
            memory_kind=changes.get("memory_kind", self.memory_kind),
        )

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """The sharding with another name for the memory."""
        return self.update(memory_kind=kind)

    def _key(self) -> tuple[Any, ...]:
        return self.mesh, self.spec, self.memory_kind

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, NamedSharding) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        kind = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh!s}, spec={self.spec}{kind})"


def make_single_device_sharding(device: Device, *, memory_kind: str | None = None) -> SingleDeviceSharding:
    """SingleDeviceSharding(device, memory_kind=memory_kind).

    >>> import rlx
    >>> rlx.sharding.make_single_device_sharding(rlx.devices()[0]).num_devices
    1
    """
    return SingleDeviceSharding(device, memory_kind=memory_kind)


def default_sharding() -> SingleDeviceSharding:
    """The sharding of arrays that were not placed."""
    return SingleDeviceSharding(local_devices()[0])


def check_names(owner: str, mesh: Mesh | AbstractMesh, spec: PartitionSpec) -> None:
    """Raises ShardingError if a spec names an axis that the mesh lacks, or an axis twice."""
    named = names_in(spec.partitions)
    unknown = [n for n in (*named, *spec.unreduced, *spec.reduced) if n not in mesh.axis_names]
    if unknown:
        raise ShardingError(
            f"{owner} got {spec!r} for a mesh with the axes {mesh.axis_names}.",
            f"The mesh has no axis {unknown[0]!r}.",
        )
    twice = [n for n in named if named.count(n) > 1]
    if twice:
        raise ShardingError(
            f"{owner} got {spec!r}, which names the axis {twice[0]!r} twice.",
            "A mesh axis divides one axis of the array.",
        )
    if UNCONSTRAINED in spec.partitions and mesh.axis_types and not mesh.auto_axes:
        raise ShardingError(
            f"{owner} got {spec!r} for {mesh}, none of whose axes is Auto.",
            "The compiler chooses how arrays are divided only for Auto axes.",
        )
    reserved = [n for n in (*spec.unreduced, *spec.reduced) if n not in mesh.explicit_axes]
    if reserved:
        raise ShardingError(
            f"{owner} got {spec!r} for {mesh}.", f"Axes in unreduced and reduced are Explicit; {reserved[0]!r} is not."
        )
