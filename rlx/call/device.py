"""Devices: which there are, which one is the default, moving arrays, waiting for them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from rlx.array import Device, is_array, is_concrete, memory_of, moved
from rlx.backends import backend_named, device_named, devices_of, loaded_backends
from rlx.call.default_place import default_memory
from rlx.call.hooks import sharding_hooks
from rlx.config import config, initial_device, scoped
from rlx.errors import DeviceError
from rlx.ir.collectives import communicator
from rlx.ir.types import is_key
from rlx.trace.builder import is_traced
from rlx.trace.flat import as_array, shared_array
from rlx.trees import tree

__all__ = [
    "Device",
    "block_until_ready",
    "copy_to_host_async",
    "default_backend",
    "default_device",
    "device_count",
    "device_get",
    "device_put",
    "devices",
    "effects_barrier",
    "host_count",
    "host_id",
    "host_ids",
    "local_device_count",
    "local_devices",
    "process_count",
    "process_index",
    "process_indices",
]


def devices(backend: str | None = None) -> list[Device]:
    """The devices of a platform, or of the default platform, of all processes.

    >>> import rlx
    >>> rlx.devices("cpu")
    [Device(cpu:0)]
    """
    return devices_of(backend)


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process, or of another one. Raises DeviceError if there is no such process.

    host_id: JAX's former name of process_index.

    >>> import rlx
    >>> rlx.local_devices() == rlx.devices()
    True
    """
    here = communicator()
    process_index = host_id if process_index is None else process_index
    wanted = here.rank if process_index is None else process_index
    if not 0 <= wanted < here.size:
        raise DeviceError(f"There is no process {process_index} among {here.size}.", "They are numbered from 0 on.")
    return [device for device in devices(backend) if device.process_index == wanted]


def device_count(backend: str | None = None) -> int:
    """The number of devices, in all processes.

    >>> import rlx
    >>> rlx.device_count("cpu")
    1
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """The number of devices of this process.

    >>> import rlx
    >>> rlx.local_device_count("cpu")
    1
    """
    return len(local_devices(backend=backend))


def process_count(backend: str | None = None) -> int:
    """The number of processes that compute together: 1, unless rlx.distributed.initialize has joined others.

    >>> import rlx
    >>> rlx.process_count()
    1
    """
    return communicator().size


def process_index(backend: str | None = None) -> int:
    """The number of this process: 0, 1, ...

    >>> import rlx
    >>> rlx.process_index()
    0
    """
    return communicator().rank


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of the processes that compute together.

    >>> import rlx
    >>> rlx.process_indices()
    [0]
    """
    return list(range(process_count(backend)))


# JAX's older names
host_count, host_id, host_ids = process_count, process_index, process_indices


def default_backend() -> str:
    """Platform of the default device.

    >>> import rlx
    >>> rlx.default_backend()
    'cpu'
    """
    return config.device


def default_device(new_val: str | Device | None) -> AbstractContextManager[None]:
    """Make arrays on, and compile for, another device inside a `with` block. Raises DeviceError if there is none.

    Programs and operations on NumPy arrays and numbers run on it; others run on the device of their
    arrays. None is the device that is the default when rlx is imported. "auto" chooses a device for each jitted
    program whose arguments are not on a device (see rlx.placement); arrays are made on the device of None.

    >>> import rlx
    >>> with rlx.default_device("reference"):
    ...     float(rlx.jit(lambda x: x + 1.0)(1.0))
    2.0
    """
    if new_val == "auto":
        return scoped(device="auto")
    name = initial_device() if new_val is None else device_named(new_val).name
    backend_named(name)
    return scoped(device=name)


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: bool = False, may_alias: bool | None = None
) -> Any:
    """The tree `x` with its leaves as rlx arrays, on a device.

    Args:
      x: a tree of arrays and numbers.
      device: a Device, its name, a rlx.memory.Space, a sharding, a PartitionSpec under rlx.set_mesh, or a tree of
        these that is a prefix of x. Values are copied to that device unless they are there, and the arrays'
        `.sharding` is the requested one. None leaves arrays where they are; other values are put on the default device.
      may_alias: True shares the memory of NumPy arrays: writing to them changes the result. Otherwise
        writable memory is copied.
      src, donate: accepted for JAX compatibility.

    Raises: DeviceError for an invalid place; ShardingError for a sharding that does not fit an array.

    >>> import rlx, numpy as np
    >>> rlx.device_put(np.ones(2, np.float32))
    Array([1., 1.], dtype=float32)
    >>> mesh = rlx.make_mesh((1,), ("x",))
    >>> rlx.device_put(np.ones(2), rlx.NamedSharding(mesh, rlx.P("x"))).sharding.spec
    P('x',)
    """
    if donate and may_alias:
        raise DeviceError("device_put got donate=True and may_alias=True.", "Memory is shared or given away, not both.")
    arrays = tree.map(shared_array if may_alias else as_array, x)
    if device is None:
        return arrays if default_memory() is None else tree.map(_settled, x, arrays)
    return sharding_hooks.device_put(arrays, device)


def _settled(given: Any, made: Any) -> Any:
    """The array made on the default device from a value without a place; a given array is returned unchanged."""
    if is_array(given) or memory_of(made) is not None or not is_concrete(made):
        return made
    memory = default_memory((made,))
    return made if memory is None else moved(made, memory)


def device_get(x: Any) -> Any:
    """The tree `x` with its arrays as NumPy arrays; random keys, which NumPy does not have, and traced values stay.

    >>> import rlx
    >>> rlx.device_get({"a": rlx.numpy.zeros(2)})
    {'a': array([0., 0.], dtype=float32)}
    """

    def fetched(v: Any) -> Any:
        return np.asarray(v) if is_array(v) and not is_traced(v) and not is_key(v.dtype) else v

    return tree.map(fetched, x)


def block_until_ready(x: Any) -> Any:
    """Wait until every array of a tree is computed; returns the tree. (On the CPU calls are never pending.)

    Raises: the error of the run that should have computed an array.

    >>> import rlx
    >>> rlx.block_until_ready(rlx.numpy.zeros(()))
    Array(0., dtype=float32)
    """
    for leaf in tree.leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x


def copy_to_host_async(x: Any) -> Any:
    """The tree itself. Its arrays are copied to the host when they are read.

    >>> import rlx
    >>> rlx.copy_to_host_async(rlx.numpy.zeros(()))
    Array(0., dtype=float32)
    """
    return x


def effects_barrier() -> None:
    """Wait until callbacks and prints of all calls have happened. (On the CPU they have when a call returns.)

    >>> import rlx
    >>> rlx.effects_barrier()
    """
    for backend in loaded_backends():
        backend.memory.synchronize()
