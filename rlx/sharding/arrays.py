"""Arrays and their shardings: the parts of an array, and arrays built from parts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, Device, array_of_type, is_concrete, memory_of, parts_of
from rlx.backends import device_named
from rlx.errors import ConcretizationTypeError, DeviceError, InputTypeError, ShardingError, UnexpectedTracerError
from rlx.ir.collectives import communicator
from rlx.ir.types import dtype_of
from rlx.sharding.blocks import (
    array_of_block,
    block_shape,
    blocks_along,
    check_move,
    check_reach,
    local_sharding,
    process_block,
    spans,
)
from rlx.sharding.context import get_abstract_mesh
from rlx.sharding.memory import Space
from rlx.sharding.mesh import AbstractMesh
from rlx.sharding.partition import rolled
from rlx.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, default_sharding
from rlx.sharding.spec import PartitionSpec, names_of_entry
from rlx.sharding.stacks import stack_axes, stacked_as
from rlx.sharding.traced_places import here, traced_sharding
from rlx.sharding.trees import check_shape, placed, resolve, resolve_explicit, spread
from rlx.trace.builder import Tracer, state
from rlx.trace.flat import as_array
from rlx.trace.spanning import local_of
from rlx.trace.stacked import is_stacked
from rlx.trace.tracing import devices_in_scope
from rlx.trees import tree

__all__ = [
    "Shard",
    "device_put",
    "make_array_from_callback",
    "make_array_from_process_local_data",
    "make_array_from_single_device_arrays",
    "rolled",
    "shards_of",
    "sharding_of",
]


class Shard:
    """The part of an array on one device: `device`, `index` (in the whole array), `replica_id` and `data`.

    `data` is None on a device of another process (in `global_shards`).

    >>> import rlx
    >>> (part,) = rlx.numpy.ones((2, 3)).addressable_shards
    >>> part.device, part.index, part.replica_id, part.data.shape
    (Device(cpu:0), (slice(None, None, None), slice(None, None, None)), 0, (2, 3))
    """

    def __init__(self, device: Device, index: tuple[slice, ...], replica_id: int, data: Any) -> None:
        self.device = device
        self.index = index
        self.replica_id = replica_id
        self.data = data

    def __repr__(self) -> str:
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={self.data})"


def _concrete(x: Array, attribute: str, error: type[Exception] = ConcretizationTypeError) -> ConcreteArray:
    if is_concrete(x):
        return x
    message = f"A traced {x.type!r} has no {attribute}: only concrete arrays are placed on devices."
    raise error(message)


def sharding_of(x: Any) -> Sharding:
    """The sharding of an array: as requested, or whole on its device. AttributeError for traced values."""
    if parts_of(x):
        return x._sharding
    value = _concrete(x, "sharding", AttributeError)
    memory = memory_of(value)
    placed_by_default = default_sharding if memory is None else lambda: SingleDeviceSharding(memory.device)
    return getattr(value, "_sharding", None) or placed_by_default()


def abstract_sharding(x: Array) -> NamedSharding:
    """How an array's axes are divided by its type: over Explicit axes of a mesh without devices."""
    found = here(traced_sharding(x))
    if not isinstance(found, NamedSharding):
        mesh = get_abstract_mesh() if isinstance(x, Tracer) else AbstractMesh((), ())
        return NamedSharding(mesh, PartitionSpec(*[None] * x.ndim))
    return explicit_part(found, x.ndim)


def explicit_part(found: NamedSharding, ndim: int) -> NamedSharding:
    """The part of a sharding that an array's type records: one entry for each of `ndim` axes, Explicit axes only."""
    mesh, spec = found.mesh.abstract_mesh, found.spec
    entries = [tuple(n for n in names_of_entry(e) if n in mesh.explicit_axes) for e in spec.partitions]
    return NamedSharding(mesh, spec.update([*entries, *[None] * (ndim - len(entries))]))


def is_committed(x: Array) -> bool:
    """Whether the array was placed explicitly."""
    return bool(parts_of(x)) or hasattr(_concrete(x, "committed"), "_sharding")


def shards_of(x: Array) -> list[Shard]:
    """The parts of an array that this process has, in the order of the sharding's devices; they share its memory."""
    value = _concrete(local_of(x), "addressable_shards")
    sharding = sharding_of(x)
    indices = sharding.devices_indices_map(x.shape)
    if is_stacked(x):
        return _shards_of_stack(x, value, indices)
    if len(indices) == 1:
        asked = is_committed(x)
        return [Shard(device, index, 0, placed(value, device) if asked else x) for device, index in indices.items()]
    inside = _inside(sharding, value.shape)
    copies: Counter[str] = Counter()
    shards = []
    for device, index in indices.items():
        if device in inside:
            own = inside[device]
            part = array_of_type(value.numpy()[own], value.type.update(shape=_shape(value.shape, own)))
            shards.append(Shard(device, index, copies[str(index)], placed(part, device)))
        copies[str(index)] += 1
    return shards


def global_shards_of(x: Array) -> list[Shard]:
    """The parts of an array on all devices, in the order of the sharding's; `data` is None for other processes'."""
    own = {shard.device: shard for shard in shards_of(x)}
    sharding = sharding_of(x)
    if sharding.is_fully_addressable:
        return [*own.values()]
    copies: Counter[str] = Counter()
    shards = []
    for device, index in sharding.devices_indices_map(x.shape).items():
        shards.append(own.get(device) or Shard(device, index, copies[str(index)], None))
        copies[str(index)] += 1
    return shards


def _shards_of_stack(x: ConcreteArray, value: ConcreteArray, indices: Mapping[Device, Any]) -> list[Shard]:
    """The parts of an array with unreduced or reduced axes: each device's own values."""
    mesh = x._sharding.mesh
    along = [mesh.axis_names.index(name) for name in stack_axes(x._sharding)]
    copies: Counter[str] = Counter()
    shards = []
    for position, (device, index) in zip(np.ndindex(*mesh.axis_sizes), indices.items(), strict=True):
        own = value.numpy()[tuple(position[number] for number in along)][index]
        part = array_of_type(own, x.type.update(shape=_shape(x.shape, index)))
        shards.append(Shard(device, index, copies[str(index)], placed(part, device)))
        copies[str(index)] += 1
    return shards


def _inside(sharding: Sharding, block: Sequence[int]) -> dict[Device, tuple[slice, ...]]:
    """The index of each of this process's devices in its block, which has this shape."""
    several = isinstance(sharding, NamedSharding) and not sharding.is_fully_addressable
    return dict((local_sharding(sharding) if several else sharding).devices_indices_map(block))


def _shape(shape: Sequence[int], index: Sequence[slice]) -> tuple[int, ...]:
    return tuple(len(range(*part.indices(size))) for size, part in zip(shape, index, strict=True))


def part_of(x: Array, index: int) -> Array:
    """The part of the array with this number. Raises IndexError if there is no such part."""
    return shards_of(x)[index].data


# ------------------------------------------------------------- placing arrays
def names_a_place(x: Any) -> bool:
    """Whether this is a device, a sharding or a PartitionSpec. Raises DeviceError for a device that does not exist."""
    return isinstance(x, (Sharding, PartitionSpec)) or (isinstance(x, (str, Device)) and bool(device_named(x)))


def check_out_sharding(owner: str, out_sharding: Any) -> None:
    """Raises if this is not a sharding, or names axes that are not Explicit."""
    resolve_explicit(owner, out_sharding)


def _is_target(x: Any) -> bool:
    return x is None or isinstance(x, (Sharding, PartitionSpec, Device, Space, str))


def _target(entry: Any) -> Sharding | None:
    """A target of device_put, as a sharding."""
    if not _is_target(entry):
        raise DeviceError(
            f"device_put got {entry!r:.60}, a {type(entry).__name__}, as a place.",
            "Pass a device, its name, a sharding, a PartitionSpec under rlx.set_mesh, or a tree of them.",
        )
    if isinstance(entry, Space):
        return None
    if isinstance(entry, (str, Device)):
        return SingleDeviceSharding(device_named(entry))
    return resolve("device_put", entry)


def device_put(x: Any, target: Any) -> Any:
    """The tree `x` with its leaves as arrays placed by `target` (one target, or a tree of them)."""
    leaves, treedef = tree.flatten(x)
    places = [_target(entry) for entry in spread("device_put's tree of places", target, x, _is_target)]
    arrays = [as_array(leaf) for leaf in leaves]
    for array, place in zip(arrays, places, strict=True):
        if place is not None:
            check_move(array, place)
            _check_addressable(place)
            _check_place_inside(place)
            check_shape("device_put", place, array.shape)
            _check_equal(array, place)
    return tree.unflatten(treedef, [placed(a, p) for a, p in zip(arrays, places, strict=True)])


def _check_addressable(sharding: Sharding) -> None:
    """Raises ShardingError for a sharding without devices, or over some processes only, or over another process."""
    if not sharding.devices:
        raise ShardingError(f"{sharding!r} has no devices.", "Pass one with a mesh of devices.")
    check_reach(sharding)


def _check_place_inside(sharding: Sharding) -> None:
    """Raises ShardingError if the program of several devices would put each device's value on a single one."""
    at_once = state.builder is not None and state.builder.parent is None and devices_in_scope() > 1
    if at_once and sharding.num_devices == 1:
        raise ShardingError(
            f"device_put in a shard_map got the device {sharding.devices[0]!r}; its values are on the mesh's devices.",
            "Leave the device out, or place the arguments of the shard_map.",
        )


def _check_equal(x: Array, sharding: Sharding) -> None:
    """Raises CollectiveError if processes place unequal arrays on devices of all processes."""
    if is_concrete(x) and not sharding.is_fully_addressable:
        digest = hashlib.blake2b(repr(x.type).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(x.numpy()).tobytes())
        said = f"a {x.type!r}, whose values have the digest {digest.hexdigest()[:8]}"
        communicator().compare(digest.digest(), f"device_put as {sharding!r}", said)


# ------------------------------------------------------------- arrays from their parts
def made_of_parts(make: Callable[[tuple[int, ...]], Array], shape: Sequence[int], sharding: Sharding) -> Array:
    """An array of equal elements with this sharding; `make` returns an array of the shape that it is called with."""
    check_shape("full_like", sharding, shape)
    if not spans(sharding):
        return placed(make(tuple(shape)), sharding)
    assert isinstance(sharding, NamedSharding)
    return array_of_block(make(block_shape(sharding, shape)), shape, sharding)


def _sharding(owner: str, sharding: Any) -> Sharding:
    """A sharding; a device or a spec (with the mesh in force) is converted. Raises InputTypeError for anything else."""
    found = SingleDeviceSharding(sharding) if isinstance(sharding, Device) else resolve(owner, sharding)
    if found is None:
        raise InputTypeError(f"{owner} got {sharding!r:.60} as the sharding.", "Pass a rlx.sharding.Sharding.")
    check_reach(found)
    return found


def _check_part(owner: str, part: Array, shape: Sequence[int], dtype: Any) -> None:
    if part.shape != tuple(shape):
        raise ShardingError(f"{owner} got a part of shape {part.shape}; the sharding requires {tuple(shape)}.")
    if dtype is not None and part.dtype != dtype_of(dtype):
        raise ShardingError(f"{owner} got a part of dtype {part.dtype}, not {dtype_of(dtype)}.", "Convert it first.")


def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable[[Any], Any], dtype: Any = None
) -> Array:
    """An array whose parts a function provides.

    Args:
      shape: of the whole array. sharding: which device has which part.
      data_callback: takes the index of a part (a tuple of slices), returns its values.
      dtype: the dtype that the values must have; None accepts any.

    Raises: ShardingError if a part has another shape or dtype; InputTypeError if `sharding` is not a sharding.

    >>> import numpy as np
    >>> import rlx
    >>> values = np.arange(4.0)
    >>> sharding = rlx.NamedSharding(rlx.make_mesh((1,), ("x",)), rlx.P("x"))
    >>> rlx.make_array_from_callback(values.shape, sharding, lambda index: values[index]).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    owner = "make_array_from_callback"
    sharding = _sharding(owner, sharding)
    part_shape = sharding.shard_shape(shape)
    indices = list(sharding.addressable_devices_indices_map(shape).values())
    parts: list[ConcreteArray] = []
    for index in indices[:1] if sharding.is_fully_replicated else indices:
        part = as_array(data_callback(index))
        if not is_concrete(part):
            what = f"{owner} got a traced value from its callback."
            raise UnexpectedTracerError(what, "Return NumPy arrays from it.")
        _check_part(owner, part, part_shape, dtype if not parts else parts[0].dtype)
        parts.append(part)
    return _of_parts(shape, sharding, parts)


def _of_parts(shape: Sequence[int], sharding: Sharding, parts: Sequence[ConcreteArray]) -> Array:
    """The array with these parts on the devices of this process; one part if all are equal."""
    if stack_axes(sharding):
        assert isinstance(sharding, NamedSharding)
        return _stack_of(shape, sharding, parts)
    if not spans(sharding):
        indices = list(sharding.addressable_devices_indices_map(shape).values())
        return placed(_whole(shape, indices, parts), sharding)
    assert isinstance(sharding, NamedSharding)
    block = block_shape(sharding, shape)
    return array_of_block(_whole(block, [*_inside(sharding, block).values()], parts), shape, sharding)


def _stack_of(shape: Sequence[int], sharding: NamedSharding, parts: Sequence[ConcreteArray]) -> Array:
    """The array whose devices have these parts of a sum, or copies; one part if all are equal."""
    mesh = sharding.mesh
    along = [mesh.axis_names.index(name) for name in stack_axes(sharding)]
    every = list(parts) * (mesh.size // len(parts))
    values = np.empty((*(mesh.axis_sizes[number] for number in along), *shape), every[0].numpy().dtype)
    indices = sharding.devices_indices_map(shape).values()
    for position, index, part in reversed(list(zip(np.ndindex(*mesh.axis_sizes), indices, every, strict=True))):
        values[(*(position[number] for number in along), *index)] = part.numpy()
    return stacked_as(array_of_type(values, every[0].type.update(shape=values.shape)), sharding)


def _whole(shape: Sequence[int], indices: Sequence[tuple[slice, ...]], parts: Sequence[ConcreteArray]) -> ConcreteArray:
    """The array with these parts. If several parts have one index, they are copies, and the first is used."""
    if len(parts) == 1:
        return parts[0].with_sharding(None)
    first = parts[0].numpy()
    values = np.empty(tuple(shape), first.dtype)
    for index, part in reversed(list(zip(indices, parts, strict=True))):
        values[index] = part.numpy()
    return array_of_type(values, parts[0].type.update(shape=tuple(shape)))


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *, dtype: Any = None
) -> Array:
    """An array from one array on each device of this process.

    Args: shape: of the whole array; sharding: of the whole array; arrays: its parts; dtype: of the parts.

    Raises: ShardingError if the number, shapes or dtypes do not match; InputTypeError if the parts are not arrays.

    >>> import rlx
    >>> sharding = rlx.NamedSharding(rlx.make_mesh((1,), ("x",)), rlx.P("x"))
    >>> rlx.make_array_from_single_device_arrays((2,), sharding, [rlx.numpy.ones(2)]).tolist()
    [1.0, 1.0]
    """
    owner = "make_array_from_single_device_arrays"
    if not isinstance(arrays, (list, tuple)) or not all(isinstance(x, Array) for x in arrays):
        raise InputTypeError(f"{owner} got {arrays!r:.60} as arrays.", "Pass a list of rlx arrays.")
    parts = [x for x in arrays if is_concrete(x)]
    if len(parts) < len(arrays):
        raise ShardingError(f"{owner} got a traced value.", "Build arrays from parts outside traced functions.")
    sharding = _sharding(owner, sharding)
    part_shape = sharding.shard_shape(shape)
    indices = sharding.addressable_devices_indices_map(shape)
    if len(parts) != len(indices):
        what = f"{owner} got {len(parts)} arrays for {len(indices)} device{'s' if len(indices) > 1 else ''}."
        raise ShardingError(what, "Pass one for each device.")
    for part in parts:
        _check_part(owner, part, part_shape, parts[0].dtype if dtype is None else dtype)
    if len(parts) > 1:
        by_device = {sharding_of(x).devices[0]: x for x in parts}
        missing = [device for device in indices if device not in by_device]
        if missing:
            what = f"{owner} got no array on {missing[0]!r}."
            raise ShardingError(what, "Put each part on its device: rlx.device_put(part, device).")
        parts = [by_device[device] for device in indices]
    return _of_parts(shape, sharding, parts)


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """Arrays from the data of each process. A single process passes all the data.

    Args:
      sharding: a sharding, a device, or a PartitionSpec under rlx.set_mesh, or a tree of them.
      local_data: an array, or a tree of them: the parts of this process's devices, one after another along the axes
        processes divide. Along the other axes, all of the array.
      global_shape: the arrays' shapes. Along an axis where the data has this length, it is the whole array, and the
        process's part is taken. If left out, processes compare the shapes of their data, except in threads other than
        the one that called rlx.distributed.initialize.

    Raises: ShardingError if the shape does not match the data; CollectiveError if processes have data of unequal
      shapes or dtypes.

    >>> import numpy as np
    >>> import rlx
    >>> sharding = rlx.NamedSharding(rlx.make_mesh((1,), ("x",)), rlx.P("x"))
    >>> rlx.make_array_from_process_local_data(sharding, np.ones((4, 2))).shape
    (4, 2)
    """
    owner = "make_array_from_process_local_data"
    shapes = spread(f"{owner}'s global_shape", global_shape, local_data, lambda s: isinstance(s, tuple))
    places: list[Any] = [_sharding(owner, place) for place in spread(f"{owner}'s sharding", sharding, local_data)]
    if any(not place.is_fully_addressable for place in places):
        leaves, treedef = tree.flatten(local_data)
        triples = zip(leaves, shapes, places, strict=True)
        return tree.unflatten(treedef, [_of_local_data(owner, as_array(x), shape, s) for x, shape, s in triples])
    for shape, leaf in zip(shapes, tree.leaves(local_data), strict=True):
        if shape is not None and tuple(shape) != np.shape(leaf):
            raise ShardingError(
                f"{owner} got global_shape={shape} for data of shape {np.shape(leaf)}.",
                "With one process both are equal; leave global_shape out.",
            )
    return device_put(local_data, sharding)


def _check_rows(owner: str, x: Array, sharding: NamedSharding) -> None:
    """Raises CollectiveError if processes have unequal shapes or dtypes.

    Only the thread that created the group compares: others, such as data loaders, run in any order.
    """
    group = communicator()
    if not sharding.is_fully_addressable and group.is_own_thread:
        said = f"data of shape {x.shape} and dtype {x.dtype}"
        mark = hashlib.blake2b(said.encode(), digest_size=16).digest()
        group.compare(mark, f"{owner} as {sharding!r}", said)


def _of_local_data(owner: str, x: Array, shape: Sequence[int] | None, sharding: NamedSharding) -> Array:
    """The array with this process's data x; `shape` is the array's shape, if known."""
    if shape is None:
        _check_rows(owner, x, sharding)
    counts = blocks_along(sharding, x.ndim)
    whole = tuple(d * n for d, n in zip(x.shape, counts, strict=True)) if shape is None else tuple(shape)
    own = tuple(d // n for d, n in zip(whole, counts, strict=True)) if len(whole) == x.ndim else ()
    if len(own) != x.ndim or any(d not in sizes for d, *sizes in zip(x.shape, own, whole, strict=True)):
        raise ShardingError(
            f"{owner} got data of shape {x.shape} for an array of shape {whole}, where this process's part is {own}.",
            "Pass this process's part, or leave global_shape out.",
        )
    check_shape(owner, sharding, whole)
    index = tuple(
        slice(None) if d == n else slice(at * n, (at + 1) * n)
        for d, n, at in zip(x.shape, own, process_block(sharding, x.ndim), strict=True)
    )
    block = x[index]
    return array_of_block(block, whole, sharding) if spans(sharding) else placed(block, sharding)
