"""Names and docstrings for functions that are generated from tables or have several names."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["alias", "document"]

F = TypeVar("F", bound=Callable[..., Any])
_ARGUMENTS = {1: "x: an array or number", 2: "x, y: arrays or numbers that broadcast"}


def alias(function: F, name: str) -> F:
    """The same function with another name and `__name__`.

    Args: function: a Python function; name. Returns: a function with the same code and docstring.

    >>> from rlx.numpy.elementwise import arcsin
    >>> alias(arcsin, "asin").__name__
    'asin'
    """
    of: Any = function
    copy: Any = types.FunctionType(of.__code__, of.__globals__, name, of.__defaults__, of.__closure__)
    copy.__kwdefaults__, copy.__annotations__ = of.__kwdefaults__, of.__annotations__
    copy.__dict__.update(of.__dict__)
    copy.__doc__, copy.__module__, copy.__qualname__ = of.__doc__, of.__module__, name
    return copy


def document(function: F, name: str, summary: str, example: str, result: str, arity: int) -> F:
    """Give a function its name and a docstring with an example that runs as a doctest."""
    named: Any = function
    named.__name__ = named.__qualname__ = name
    function.__module__ = "rlx.numpy"
    function.__doc__ = (
        f"{summary}\n\n"
        f"    Args: {_ARGUMENTS[arity]}.\n"
        "    Returns: an array of the broadcast shape and the promoted dtype.\n"
        "    Raises: DtypeError for a dtype that the function does not take"
        f"{'; ShapeError if the shapes do not broadcast' if arity == 2 else ''}.\n\n"
        "    >>> import rlx.numpy as jnp\n"
        f"    >>> {example}\n"
        f"    {result}\n    "
    )
    return function
