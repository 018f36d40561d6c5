"""Devices: which there are, which one is the default, moving arrays, waiting for them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from rlx import tree
from rlx.array import Array
from rlx.backends import backend_named, device_names
from rlx.config import config, scoped
from rlx.trace.flat import as_array

__all__ = ["Device", "block_until_ready", "default_backend", "default_device", "device_get", "device_put", "devices"]


class Device:
    """A device that programs run on: its platform name and number."""

    __slots__ = ("id", "platform")

    def __init__(self, platform: str, id: int = 0) -> None:
        self.platform = platform
        self.id = id

    @property
    def device_kind(self) -> str:
        """The kind of device."""
        return self.platform

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.platform, self.id) == (other.platform, other.id)

    def __hash__(self) -> int:
        return hash((self.platform, self.id))

    def __repr__(self) -> str:
        return f"Device({self.platform}:{self.id})"


def devices(platform: str | None = None) -> list[Device]:
    """The devices of a platform, or all that this installation can use.

    >>> import rlx
    >>> rlx.devices("cpu")
    [Device(cpu:0)]
    """
    if platform is not None:
        backend_named(platform)
        return [Device(platform)]
    return [Device(name) for name in device_names() if name != "reference"]


def default_backend() -> str:
    """Platform of the default device.

    >>> import rlx
    >>> rlx.default_backend()
    'cpu'
    """
    return config.device


def default_device(device: str | Device) -> AbstractContextManager[None]:
    """Compile for another device inside a `with` block. Raises DeviceError if there is none.

    >>> import rlx
    >>> with rlx.default_device("reference"):
    ...     float(rlx.jit(lambda x: x + 1.0)(1.0))
    2.0
    """
    name = device.platform if isinstance(device, Device) else device
    backend_named(name)
    return scoped(device=name)


def device_put(x: Any, device: Any = None, **_: Any) -> Any:
    """The tree `x` with its leaves as rlx arrays, on a device.

    >>> import rlx, numpy as np
    >>> rlx.device_put(np.ones(2, np.float32))
    Array([1., 1.], dtype=float32)
    """
    if device is not None:
        backend_named(device.platform if isinstance(device, Device) else device)
    return tree.map(as_array, x)


def device_get(x: Any) -> Any:
    """The tree `x` with its arrays as NumPy arrays.

    >>> import rlx
    >>> rlx.device_get({"a": rlx.numpy.zeros(2)})
    {'a': array([0., 0.], dtype=float32)}
    """
    return tree.map(lambda v: np.asarray(v) if isinstance(v, Array) else v, x)


def block_until_ready(x: Any) -> Any:
    """Wait until every array of a tree is there; returns the tree. (CPU calls are never pending.)

    >>> import rlx
    >>> rlx.block_until_ready(rlx.numpy.zeros(()))
    Array(0., dtype=float32)
    """
    for leaf in tree.leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x
