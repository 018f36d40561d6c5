"""The representation of arrays."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, fate, is_concrete, parts_of
from rlx.ir.types import compute_dtype, is_key
from rlx.trace.builder import is_traced

__all__ = ["array_repr", "array_str", "get_printoptions", "printoptions", "set_printoptions"]

set_printoptions = np.set_printoptions
get_printoptions = np.get_printoptions


@contextmanager
def printoptions(*args: Any, **kwargs: Any) -> Generator[Any]:
    """Print options of NumPy inside a `with` block.

    >>> import rlx.numpy as jnp
    >>> with jnp.printoptions(precision=2):
    ...     print(jnp.array([1 / 3]))
    [0.33]
    """
    with np.printoptions(*args, **kwargs) as options:
        yield options


def show(array: Array) -> str:
    """The representation of an array: its values, or the traced value's type, and its value if known."""
    if is_traced(array):
        known = None if array.builder.closed else array.known()
        return f"Traced<{array.type!r}>" + ("" if known is None else f" with value {_values(known)}")
    if parts_of(array):
        whole: Any = array
        known = whole.known()
        described = f"Array(shape={whole.shape}, dtype={whole.dtype}, sharding={whole.sharding!r})"
        return described if known is None else show(known)
    if not is_concrete(array):
        return object.__repr__(array)
    if array.is_deleted():
        return f"Array({fate(array)}, shape={array.shape}, dtype={array.dtype.name})"
    if is_key(array.dtype):
        return f"Array({array.shape}, dtype={array.dtype}) overlaying:\n{_words(array)}"
    weak = ", weak_type=True" if array.weak_type and array.dtype.kind != "b" else ""
    values = array.numpy()
    if values.size == 0:
        return f"Array([], shape={values.shape}, dtype={values.dtype.name}{weak})"
    text = _text(values, "Array(", "")
    return f"Array({text}, dtype={values.dtype.name}{weak})"


def _printable(values: np.ndarray) -> np.ndarray:
    """Numbers of other packages' dtypes in those they are computed in: NumPy prints them like its own."""
    return values.astype(compute_dtype(values.dtype)) if values.dtype.isbuiltin != 1 else values


def _text(values: np.ndarray, prefix: str, suffix: str) -> str:
    return np.array2string(_printable(values), separator=", ", prefix=prefix, suffix=suffix)


def _words(keys: ConcreteArray) -> str:
    dtype: Any = keys.dtype
    return str(dtype.words_of(keys.numpy()))


def _values(array: ConcreteArray) -> str:
    if is_key(array.dtype):
        return _words(array)
    return _text(array.numpy(), "", "")


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The representation of an array.

    Args: arr: array. Returns: a str.

    >>> import rlx.numpy as jnp
    >>> jnp.array_repr(jnp.ones(1))
    'Array([1.], dtype=float32)'
    """
    return repr(arr)


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The values of an array as text.

    Args: a: array. Returns: a str.

    >>> import rlx.numpy as jnp
    >>> jnp.array_str(jnp.ones(2))
    '[1. 1.]'
    """
    return str(a)
