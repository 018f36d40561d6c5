"""Linear algebra of 16-bit floats, computed in float32 because the routines have no narrower form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from rlx.array import is_array, is_array_or_numpy
from rlx.ir.types import bfloat16, is_inexact
from rlx.numpy.promotion import convert_to
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["in_single"]

P = ParamSpec("P")
R = TypeVar("R")

_HALVES = frozenset((np.dtype(np.float16), bfloat16))
_SINGLE = np.dtype(np.float32)


def in_single(function: Callable[P, R]) -> Callable[P, R]:
    """A function that computes arrays of float16 or bfloat16 in float32, and gives its results back in their dtype.

    With arrays of another floating dtype they promote as usual.
    """

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> R:
        floats = {x.dtype for x in _arrays((*args, *kwargs.values())) if x.ndim and is_inexact(x.dtype)}
        if len(floats) != 1 or not floats <= _HALVES:
            return function(*args, **kwargs)
        (half,) = floats
        wide, named = tree.map(_widened, (args, kwargs))
        return tree.map(lambda x: _narrowed(x, half), function(*wide, **named))

    return computed


def _arrays(values: tuple[Any, ...]) -> Iterator[Any]:
    for value in values:
        if is_array_or_numpy(value):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _arrays(tuple(value))


def _widened(x: Any) -> Any:
    return convert_to(as_array(x), _SINGLE) if getattr(x, "dtype", None) in _HALVES else x


def _narrowed(x: Any, dtype: np.dtype) -> Any:
    return convert_to(x, dtype) if is_array(x) and x.dtype == _SINGLE else x
