"""Where results go: the device, sharding and out arguments of functions."""

from __future__ import annotations

import importlib
from typing import Any

from rlx.array import Device
from rlx.errors import DeviceError, UnsupportedError

__all__ = ["HOST", "arrays_and_shardings", "check_placement", "placed", "refuse_out"]

HOST = Device("cpu")


def arrays_and_shardings() -> Any:
    """The module rlx.sharding.arrays, which is loaded when it is needed."""
    return importlib.import_module("rlx.sharding.arrays")


def check_placement(device: Any = None, out_sharding: Any = None) -> None:
    """Refuse a device that holds no arrays, and what is no sharding.

    Args: device: None, "cpu", a Device of that platform, or a sharding; out_sharding: None, a sharding, or a
      PartitionSpec under rlx.set_mesh.
    Raises: DeviceError; ShardingError and InputTypeError for shardings.

    >>> check_placement("cpu")
    """
    if device is not None and device != HOST and device != "cpu:0":
        if isinstance(device, (str, Device)) or not arrays_and_shardings().names_a_place(device):
            raise DeviceError(
                f"Arrays cannot be put on {device!r}.",
                'Arrays live in host memory: use device="cpu", or leave it out.',
            )
    if out_sharding is not None:
        arrays_and_shardings().check_out_sharding("out_sharding", out_sharding)


def placed(x: Any, device: Any = None, out_sharding: Any = None) -> Any:
    """The array x, known to lie where a device or a sharding says.

    Args: as of check_placement. Raises: ShardingError for a sharding that does not fit the array's shape.

    >>> placed(3.0)
    3.0
    """
    place = device if out_sharding is None else out_sharding
    if place is None:
        return x
    return arrays_and_shardings().device_put(x, HOST if isinstance(place, str) else place)


def refuse_out(name: str, out: Any) -> None:
    """Refuse an array to write a function's result into.

    Args: name: of the function; out: None. Raises: UnsupportedError.

    >>> refuse_out("sum", None)
    """
    if out is not None:
        raise UnsupportedError(f"{name} got out=: arrays cannot be written to.", "Use the result.")
