"""Where results go: the device, sharding and out arguments of functions."""

from __future__ import annotations

import importlib
from typing import Any

from rlx.array import ConcreteArray, DeviceArray, memory_of, moved
from rlx.config import config
from rlx.errors import DeviceError, UnsupportedError
from rlx.trace.builder import state
from rlx.trace.places import HOST, execution
from rlx.transforms.varying import varying_like

__all__ = ["HOST", "arrays_and_shardings", "asks_for_parts", "check_placement", "placed", "refuse_out", "sums_in_parts"]



def arrays_and_shardings() -> Any:
    """The module rlx.sharding.arrays, which is loaded when it is needed."""
    return importlib.import_module("rlx.sharding.arrays")


def check_placement(device: Any = None, out_sharding: Any = None) -> None:
    """Refuse a device that there is not, and what is no sharding.

    Args: device: None, a Device or its name, or a sharding; out_sharding: None, a sharding, or a PartitionSpec under
      rlx.set_mesh.
    Raises: DeviceError; ShardingError and InputTypeError for shardings.

    >>> check_placement("cpu")
    """
    if device is not None and device != HOST and not arrays_and_shardings().names_a_place(device):
        raise DeviceError(
            f"Arrays cannot be put on {device!r}.", "Pass a device of rlx.devices(), its name, or leave it out."
        )
    if out_sharding is not None:
        arrays_and_shardings().check_out_sharding("out_sharding", out_sharding)


def asks_for_parts(out_sharding: Any) -> bool:
    """Whether a sharding that check_placement has let pass has unreduced axes: a result's sum is left to be made.

    >>> asks_for_parts(None)
    False
    """
    return out_sharding is not None and bool(getattr(out_sharding, "spec", out_sharding).unreduced)


def sums_in_parts() -> Any:
    """The module rlx.sharding.stack_products, which is loaded when it is needed."""
    return importlib.import_module("rlx.sharding.stack_products")


def placed(x: Any, device: Any = None, out_sharding: Any = None, like: Any = None) -> Any:
    """The new array x where a device or a sharding says; else where the array `like` lies, or on the default device.

    Args: as of check_placement. Raises: ShardingError for a sharding that does not fit the array's shape.

    >>> placed(3.0)
    3.0
    """
    place = device if out_sharding is None else out_sharding
    if place is not None:
        return arrays_and_shardings().device_put(x, place)
    if like is not None and state.axes:
        return varying_like(x, like)
    if type(like) is not DeviceArray and not config.watched:
        return x  # on the host
    if not isinstance(x, ConcreteArray) or state.builder is not None:
        return x
    memory = memory_of(like) if isinstance(like, ConcreteArray) else execution.default_memory((x,))
    return x if memory is None else moved(x, memory)


def refuse_out(name: str, out: Any) -> None:
    """Refuse an array to write a function's result into.

    Args: name: of the function; out: None. Raises: UnsupportedError.

    >>> refuse_out("sum", None)
    """
    if out is not None:
        raise UnsupportedError(f"{name} got out=: arrays cannot be written to.", "Use the result.")
