"""The options of jit: static and donated arguments, and the memory limit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import OptionError
from rlx.trace.flat import function_name

__all__ = ["chosen_arguments", "memory_limit_of", "names_of", "numbers_of", "refuse_both", "refuse_uncallable"]

_Named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_Positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def numbers_of(value: int | Sequence[int] | None) -> tuple[int, ...]:
    """Argument positions as a tuple."""
    return () if value is None else (value,) if isinstance(value, int) else tuple(value)


def names_of(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Argument names as a tuple."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def memory_limit_of(limit: Any) -> int | None:
    """A number of bytes, or None; OptionError for anything else."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 0:
        raise OptionError(f"jit got memory_limit={limit!r}.", "Pass a number of bytes, for instance 512 * 2**20.")
    return int(limit)


def refuse_uncallable(fun: Any) -> None:
    """Raises OptionError unless `fun` is a function that can be traced."""
    if not callable(fun) or isinstance(fun, staticmethod):
        raise OptionError(f"jit takes a function, got {type(fun).__name__}.", "Write rlx.jit(f) or @rlx.jit.")
    if inspect.isgeneratorfunction(fun):
        raise OptionError(
            f"jit takes a function that returns arrays; {function_name(fun)} is a generator function.",
            "Return its values as a tuple or list.",
        )


def parameter_at(fun: Callable[..., Any], number: int) -> str | None:
    """The name of a function's positional parameter; None if it has no name, or is unknown."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return None
    positional = [p.name for p in parameters if p.kind in _Positional]
    return positional[number] if number < len(positional) else None


def chosen_arguments(
    fun: Callable[..., Any], kind: str, argnums: Sequence[int], argnames: Sequence[str]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of arguments that an option (`kind`: "static" or "donate") speaks of.

    Each is inferred from the other if the function's signature is known. Raises OptionError for an argument
    that the function does not have.
    """
    if not argnums and not argnames:
        return (), ()
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return tuple(argnums), tuple(argnames)
    positional = [p.name for p in parameters if p.kind in _Positional]
    kinds = {p.kind for p in parameters}
    names = {p.name for p in parameters if p.kind in _Named}
    for number in argnums:
        if inspect.Parameter.VAR_POSITIONAL not in kinds and not -len(positional) <= number < len(positional):
            raise OptionError(
                f"jit got {kind}_argnums={number}, but {function_name(fun)} takes {len(positional)} positional"
                f" argument{'s' if len(positional) != 1 else ''}.",
                f"{kind}_argnums counts positional arguments from 0.",
            )
    for name in argnames:
        if name not in names and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise OptionError(
                f"jit got {kind}_argnames={name!r}, but {function_name(fun)} has no such argument.",
                f"Its arguments are: {', '.join(sorted(names))}.",
            )
    numbers = list(argnums) + [positional.index(n) for n in argnames if n in positional]
    found = list(argnames) + [positional[i] for i in argnums if -len(positional) <= i < len(positional)]
    return tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(found))


def refuse_both(static: Sequence[Any], donated: Sequence[Any]) -> None:
    """Raises OptionError for an argument that is both static and given away."""
    both = [x for x in donated if x in static]
    if both:
        raise OptionError(
            f"jit got the argument {both[0]!r} both as static and as one to donate.",
            "A static argument is part of the cache key and has no memory to give.",
        )
