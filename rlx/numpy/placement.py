"""The device, sharding and out arguments of functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rlx.array import Array, is_array, is_concrete, is_divided, memory_of, moved
from rlx.config import config
from rlx.errors import DeviceError, UnsupportedError
from rlx.trace.builder import is_traced, state
from rlx.trace.hooks import execution
from rlx.trace.places import HOST
from rlx.trace.spanning import is_spanning
from rlx.transforms.varying import varying_like

__all__ = [
    "HOST",
    "arrays_and_shardings",
    "asks_for_parts",
    "check_placement",
    "divided_like",
    "made_like",
    "placed",
    "refuse_out",
    "sums_in_parts",
]

Shape = tuple[int, ...]


def arrays_and_shardings() -> Any:
    """The module rlx.sharding.arrays, which is loaded when it is needed."""
    return importlib.import_module("rlx.sharding.arrays")


def check_placement(device: Any = None, out_sharding: Any = None) -> None:
    """Refuse a device that does not exist, and a sharding that is not one.

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
    """Whether a sharding (already checked by check_placement) has unreduced axes: the sum of the result is deferred.

    >>> asks_for_parts(None)
    False
    """
    return out_sharding is not None and bool(getattr(out_sharding, "spec", out_sharding).unreduced)


def sums_in_parts() -> Any:
    """The module rlx.sharding.stack_products, which is loaded when it is needed."""
    return importlib.import_module("rlx.sharding.stack_products")


def placed(x: Any, device: Any = None, out_sharding: Any = None, like: Any = None) -> Any:
    """The new array x on the requested device or sharding; else where the array `like` is, or on the default device.

    Args: as for check_placement. Raises: ShardingError for a sharding that does not fit the array's shape.

    >>> placed(3.0)
    3.0
    """
    place = device if out_sharding is None else out_sharding
    if place is not None:
        return arrays_and_shardings().device_put(x, place)
    if like is not None and state.axes:
        return varying_like(x, like)
    memory = memory_of(like)
    if memory is None and not config.watched:
        return x  # on the host
    if not is_concrete(x) or state.builder is not None:
        return x
    if not is_concrete(like):
        memory = execution.default_memory((x,))
    return x if memory is None else moved(x, memory)


def divided_like(like: Any, shape: Shape) -> Any:
    """The sharding of an array, or of a description of one, if it has this shape; None if it is unknown.

    Traced values report it in the outermost program only: inner programs are reused for other shardings.

    >>> import rlx
    >>> divided_like(rlx.numpy.ones(2), (2,)) is None
    True
    """
    if state.axes or tuple(like.shape if hasattr(like, "shape") else ()) != tuple(shape):
        return None
    if is_spanning(like) or is_divided(like):
        return like._sharding
    if is_traced(like):
        given = like.builder.given or () if like.builder.parent is None else ()
        asked = any(map(is_divided, given))
        return importlib.import_module("rlx.sharding.traced_places").traced_sharding(like) if asked else None
    found = None if is_array(like) else getattr(like, "sharding", None)
    return found if isinstance(found, arrays_and_shardings().Sharding) else None


def made_like(
    make: Callable[[Shape], Array], shape: Shape, like: Any, device: Any = None, out_sharding: Any = None
) -> Array:
    """make(shape), placed as by `placed`; if processes divide `like`, each one makes its own part.

    Args: make: returns an array of one value of the given shape; the others: as for `placed`.

    >>> import rlx
    >>> made_like(rlx.numpy.zeros, (2,), rlx.numpy.ones(2)).tolist()
    [0.0, 0.0]
    """
    sharding = divided_like(like, shape) if device is None and out_sharding is None else None
    if sharding is None:
        return placed(make(shape), device, out_sharding, like)
    return arrays_and_shardings().made_of_parts(make, shape, sharding)


def refuse_out(name: str, out: Any) -> None:
    """Refuse an array to write a function's result into.

    Args: name: of the function; out: None. Raises: UnsupportedError.

    >>> refuse_out("sum", None)
    """
    if out is not None:
        raise UnsupportedError(f"{name} got out=: arrays cannot be written to.", "Use the result.")
