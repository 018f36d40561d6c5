"""Where results go: the device, sharding and out arguments of functions."""

from __future__ import annotations

from typing import Any

from rlx.array import Device
from rlx.errors import DeviceError, UnsupportedError

__all__ = ["HOST", "check_placement", "refuse_out"]

HOST = Device("cpu")


def check_placement(device: Any = None, out_sharding: Any = None) -> None:
    """Refuse a device that holds no arrays, and any sharding.

    Args: device: None, "cpu", or a Device of that platform; out_sharding: None.
    Raises: DeviceError, UnsupportedError.

    >>> check_placement("cpu")
    """
    if device is not None and device != HOST and device != "cpu:0":
        raise DeviceError(
            f"Arrays cannot be put on {device!r}.", 'Arrays live in host memory: use device="cpu", or leave it out.'
        )
    if out_sharding is not None:
        raise UnsupportedError(
            f"out_sharding={out_sharding!r}: rlx does not divide arrays among devices.", "Leave out_sharding away."
        )


def refuse_out(name: str, out: Any) -> None:
    """Refuse an array to write a function's result into.

    Args: name: of the function; out: None. Raises: UnsupportedError.

    >>> refuse_out("sum", None)
    """
    if out is not None:
        raise UnsupportedError(f"{name} got out=: arrays cannot be written to.", "Use the result.")
