"""Names and docstrings for functions that are made from tables or have several names."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

__all__ = ["alias", "document"]

_ARGUMENTS = {1: "x: an array or number", 2: "x, y: arrays or numbers that broadcast"}


def alias(function: Any, name: str) -> Callable[..., Any]:
    """The same function under another name, which is also what it calls itself.

    Args: function: a Python function; name. Returns: a function with the same code and docstring.

    >>> from rlx.numpy.elementwise import arcsin
    >>> alias(arcsin, "asin").__name__
    'asin'
    """
    copy = types.FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__dict__.update(function.__dict__)
    copy.__doc__, copy.__module__, copy.__qualname__ = function.__doc__, function.__module__, name
    return copy


def document(function: Any, name: str, summary: str, example: str, result: str, arity: int) -> Callable[..., Any]:
    """Give a function its name and a docstring with an example that runs as a doctest."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = "rlx.numpy"
    function.__doc__ = (
        f"{summary}\n\n"
        f"    Args: {_ARGUMENTS[arity]}.\n"
        "    Returns: an array of the broadcast shape and the promoted dtype.\n"
        "    Raises: DtypeError for a dtype that the function does not take"
        f"{'; ShapeError where shapes do not broadcast' if arity == 2 else ''}.\n\n"
        "    >>> import rlx.numpy as jnp\n"
        f"    >>> {example}\n"
        f"    {result}\n    "
    )
    return function
