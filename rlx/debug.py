"""Looking at values while a program runs: debug.print and debug.callback."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial
from typing import Any

from rlx.callback import host_function
from rlx.ops.callback import debug_callback
from rlx.trace.flat import flatten_call

__all__ = ["callback", "print"]


def callback(
    function: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any
) -> None:
    """Call a Python function on values, each time the program runs; its result is dropped.

    Works eagerly, under jit, under grad (with the values themselves), and under vmap (one call for
    each element).

    >>> import rlx
    >>> seen = []
    >>> def f(x):
    ...     rlx.debug.callback(lambda v: seen.append(float(v)), x)
    ...     return x * x
    >>> _ = rlx.jit(rlx.grad(f))(3.0)
    >>> seen
    [3.0]
    """
    leaves, in_tree = flatten_call(args, kwargs, "an argument of debug.callback")
    host = host_function(function, in_tree, (), None)
    debug_callback(*leaves, function=host, ordered=bool(ordered))


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print values, formatted by str.format, each time the program runs.

    Args:
      fmt: a format string; braces stand for the values.
      ordered: accepted for JAX's sake: prints keep their order always.

    >>> import rlx
    >>> _ = rlx.jit(lambda x: rlx.debug.print("x = {}, {y:.2f}", x, y=x / 3))(2.0)
    x = 2.0, 0.67
    """
    if not isinstance(fmt, str):
        raise TypeError(f"debug.print takes a format string first, got a {type(fmt).__name__}")
    callback(partial(_print, fmt), *args, ordered=ordered, **kwargs)


def _print(fmt: str, *args: Any, **kwargs: Any) -> None:
    builtins.print(fmt.format(*args, **kwargs))
