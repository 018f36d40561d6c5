"""NumPy's functions and ufuncs on rlx arrays: `np.sort(x)`, `np.sin(x)`.

For arrays with values they return NumPy arrays that the caller may write to, as third-party code expects. For traced
arrays, and arrays that are divided over processes, they are the functions of rlx.numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from rlx import errors
from rlx.array import Array, is_array, is_concrete
from rlx.trees import tree

__all__ = ["install_protocols"]

_REPLACED = "Write x = rlx.numpy.where(condition, values, x)."
# NumPy's functions that write into their first argument, and replacements of those that rlx.numpy lacks
_WRITERS = {
    "copyto": _REPLACED,
    "putmask": _REPLACED,
    "fill_diagonal": "",
    "place": "",
    "put": "",
    "put_along_axis": "",
}
_UFUNC_NAMES = {"true_divide": "divide"}
_OF_TYPES = frozenset(("shape", "ndim", "size"))  # functions that need no values
_OPERATORS = frozenset(
    "add subtract multiply divide true_divide floor_divide remainder divmod power matmul left_shift right_shift"
    " bitwise_and bitwise_or bitwise_xor equal not_equal less less_equal greater greater_equal".split()
)


def install_protocols(target: Any, front: ModuleType) -> None:
    """Define NumPy's functions and ufuncs on a class of arrays; `front` is rlx.numpy."""

    def array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in _WRITERS and is_array(next(iter((*args, *kwargs.values())))):
            raise errors.immutable(func.__name__, _WRITERS[func.__name__])
        function = _counterpart(func, front)
        if function is None or not (func.__name__ in _OF_TYPES or _traced((args, kwargs))):
            return _numpys(func, args, kwargs)
        try:
            return function(*args, **kwargs)
        except errors.InputTypeError:
            pass  # NumPy takes lists where rlx.numpy does not
        return _numpys(func, args, kwargs)

    def array_ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "at" and is_array(inputs[0]):
            raise errors.ImmutableArrayError(
                f"np.{ufunc.__name__}.at writes into its argument, and rlx arrays are immutable.",
                f"Use x = rlx.numpy.{ufunc.__name__}.at(x, indices, values, inplace=False).",
            )
        numpys = ufunc if method == "__call__" else getattr(ufunc, method)
        function = getattr(front, _UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__), None)
        if method != "__call__":
            function = getattr(function, method, None) if method != "at" else None
        elif kwargs:
            function = None
        if function is None or not (_is_operator(ufunc, inputs) or _traced((inputs, kwargs))):
            return _numpys(numpys, inputs, kwargs)
        try:
            return function(*inputs, **kwargs)
        except errors.InputTypeError:
            pass  # NumPy takes lists where rlx.numpy does not
        return _numpys(numpys, inputs, kwargs)

    target.__array_function__ = array_function
    target.__array_ufunc__ = array_ufunc


def _is_operator(ufunc: np.ufunc, inputs: Sequence[Any]) -> bool:
    """Whether a ufunc may be called by an operator of NumPy's left operand: such operators return rlx arrays.

    `a + x` and `np.add(a, x)` cannot be distinguished here.
    """
    return ufunc.__name__ in _OPERATORS and isinstance(inputs[0], (np.ndarray, np.generic))


def _counterpart(func: Any, front: ModuleType) -> Callable[..., Any] | None:
    """The function of rlx.numpy, rlx.numpy.linalg or rlx.numpy.fft with the name of NumPy's."""
    package, _, part = func.__module__.partition(".")
    if package != "numpy":
        return None
    if part in ("linalg", "fft"):
        return getattr(getattr(front, part), func.__name__, None)
    return None if part else getattr(front, func.__name__, None)


def _arrays(arguments: Any) -> list[Array]:
    return [x for x in tree.leaves(arguments) if is_array(x)]


def _traced(arguments: Any) -> bool:
    """Whether an argument is an array without values in this process: it is traced, or divided over processes."""
    return not all(is_concrete(x) for x in _arrays(arguments))


def _numpys(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of a NumPy function on the values of arrays: NumPy arrays that share no memory with them."""
    if _arrays(kwargs.get("out")):
        raise errors.UnsupportedError("rlx arrays are immutable: out= cannot be an rlx array.", "Omit out=.")
    lent: list[np.ndarray] = []

    def values(x: Any) -> Any:
        if not is_array(x):
            return x
        lent.append(np.asarray(x))
        return lent[-1]

    args, kwargs = tree.map(values, (args, kwargs))
    return tree.map(lambda x: _own(x, lent), function(*args, **kwargs))


def _own(result: Any, lent: Sequence[np.ndarray]) -> Any:
    """A part of a result, copied if it is a view of an rlx array's memory, which cannot be written to.

    Results that NumPy broadcasts stay views, which are also read-only for its own arrays.
    """
    if not isinstance(result, np.ndarray) or result.flags.writeable:
        return result
    broadcast = any(stride == 0 and size > 1 for stride, size in zip(result.strides, result.shape, strict=True))
    if broadcast or (result.size and not any(np.may_share_memory(result, x) for x in lent)):
        return result
    return np.array(result)
