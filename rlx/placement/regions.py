"""Regions of a traced function that the user puts on a device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from rlx.backends import backend_named, device_named
from rlx.call.jit import jit
from rlx.ops.call import placed_call
from rlx.storage import Device
from rlx.trace.builder import Builder, state

__all__ = ["on", "place"]


@contextmanager
def place(device: str | Device) -> Generator[None]:
    """Run the operations inside a `with` block, or in a decorated function, on a device, as part of a program.

    The program's other operations stay on the program's device, and its results are returned there. Values are copied
    between the devices when the program runs. Transforms keep the region: its derivative also runs on the device.
    A region may not be inside a loop or a branch that runs on another device. It applies to traced functions, as
    under jit or grad. Other operations run in the memory of their operands, with or without it.

    Raises: DeviceError for an unknown device, or, when the program is compiled, for a region in a loop's body.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> @rlx.jit
    ... def step(x):
    ...     y = x @ x
    ...     with rlx.place("reference"):
    ...         z = jnp.linalg.cholesky(y)
    ...     return z.sum()
    >>> float(step(jnp.eye(3)))
    3.0
    """
    name = _checked(device)
    opened = [(builder, len(builder.equations)) for builder in _builders()]
    yield
    for builder, start in opened:
        builder.enclose(start, placed_call, {"device": name})


def on(device: str | Device) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: inside a traced function, a region as `rlx.place` makes it; called alone, rlx.jit with this device.

    Raises: DeviceError for an unknown device.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> total = rlx.on("reference")(lambda x: x.sum())
    >>> float(total(jnp.ones(3))), float(rlx.jit(lambda x: total(x) * 2.0)(jnp.ones(3)))
    (3.0, 6.0)
    """
    name = _checked(device)

    def placed(function: Callable[..., Any]) -> Callable[..., Any]:
        alone = jit(function, device=name)

        def called(*args: Any, **kwargs: Any) -> Any:
            if state.builder is None:
                return alone(*args, **kwargs)
            with place(name):
                return function(*args, **kwargs)

        return called

    return placed


def _checked(device: str | Device) -> str:
    """The name of an existing device. Raises DeviceError."""
    name = device if isinstance(device, str) else device_named(device).name
    backend_named(name)
    return name


def _builders() -> Iterator[Builder]:
    """The open builders of this thread, the innermost first."""
    builder = state.builder
    while builder is not None:
        yield builder
        builder = builder.parent
