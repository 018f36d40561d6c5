"""Docstrings for functions that are made from tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["document"]

_ARGUMENTS = {1: "x: an array or number", 2: "x, y: arrays or numbers that broadcast"}


def document(
    function: Any, name: str, summary: str, example: str, result: str, arity: int
) -> Callable[..., Any]:
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
