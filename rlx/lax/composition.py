"""Functions that stay whole: composite, stage; and a choice of function by platform."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rlx.array import Array
from rlx.config import config
from rlx.errors import UnsupportedError
from rlx.lax.bodies import check_callable, trace_flat
from rlx.lax.conditional import choose_known
from rlx.lax.operands import as_array
from rlx.ops.blocks import block
from rlx.trace.builder import state
from rlx.trace.flat import flatten_call
from rlx.trace.hooks import execution
from rlx.trace.places import HOST, common_memory
from rlx.trees import tree

__all__ = ["composite", "platform_dependent", "stage"]

_HOSTS = {"reference": "cpu"}  # devices that are the processor


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """A function whose name survives as a named call, which a backend may replace by its own kernel.

    Args:
      decomposition: the same function as other operations. Its keyword arguments are attributes:
        constants, not traced.
      name: the name of the call. version: its version, 0 or more.

    >>> from rlx import lax
    >>> double = lax.composite(lambda x: x + x, "my.double")
    >>> float(double(2.0))
    4.0
    """
    check_callable("composite", decomposition=decomposition)

    @wraps(decomposition, updated=())
    def function(*args: Any, **attributes: Any) -> Any:
        leaves, in_tree = flatten_call(args, {}, f"an argument of the composite {name}")
        flat, program, captured = trace_flat(
            "composite", lambda *values: decomposition(*values, **attributes), in_tree, [x.type for x in leaves]
        )
        label = name if version == 0 else f"{name}.v{version}"
        return flat.unflatten(block(*captured, *leaves, program=program, name=label, attributes=attributes))

    return function


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """The result of the function for the platform that the program is compiled for.

    Outside of a program it is the platform of the arguments.

    Args:
      args: arguments of every function.
      default: the function for platforms that are not named.
      per_platform: functions by platform: cpu=..., mlx=..., cuda=.... All return one structure,
        and equal shapes and dtypes.

    Raises: UnsupportedError if neither the platform nor a default is given; ControlFlowTypeError if the
      results differ.

    >>> from rlx import lax
    >>> float(lax.platform_dependent(1.0, cpu=lambda x: x + 1.0, default=lambda x: x - 1.0))
    2.0
    """
    platform = _platform(args)
    names = [*per_platform, *(["default"] if default is not None else [])]
    functions = [*per_platform.values(), *([default] if default is not None else [])]
    check_callable("platform_dependent", **dict(zip(names, functions, strict=True)))
    if platform not in per_platform and default is None:
        raise UnsupportedError(
            f"lax.platform_dependent has no function for the platform {platform!r}, only for {', '.join(names)}.",
            "Pass one as default=.",
        )
    chosen = names.index(platform if platform in per_platform else "default")
    return choose_known("platform_dependent", chosen, functions, names, args)


def _platform(args: tuple[Any, ...]) -> str:
    """The name of the platform that a program being traced is for, or of the memory of concrete arguments."""
    name = config.device
    if state.builder is None:
        memory = common_memory("platform_dependent", tree.leaves(args))
        host = name if execution.default_memory(()) is None else HOST.platform
        name = host if memory is None else memory.device.platform
    platform = name.partition(":")[0]
    return _HOSTS.get(platform, platform)


def stage(x: Any, /) -> Array:
    """x as an array, or unchanged if it is traced.

    >>> from rlx import lax
    >>> lax.stage(2.0).shape
    ()
    """
    return as_array(x)
