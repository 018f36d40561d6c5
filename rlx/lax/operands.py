"""Conversion and checks of the arguments of rlx.lax functions: arrays, dtypes, axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, is_array, is_array_or_numpy, keys_of_number, number_array, wrap
from rlx.config import config
from rlx.errors import DtypeError, ShapeError
from rlx.ir.size_functions import whole_number
from rlx.ir.types import is_complex, is_float, is_key, promote_dtypes, scalar_dtype
from rlx.numpy import promotion
from rlx.numpy.promotion import yielding
from rlx.ops.conversion import convert
from rlx.trace.flat import as_array

__all__ = [
    "as_array",
    "as_dtype",
    "canonical_axes",
    "canonical_axis",
    "canonical_shape",
    "fits",
    "new_shape",
    "operands",
]

_SCALARS = (bool, int, float, complex)


def as_dtype(dtype: Any) -> np.dtype:
    """A dtype argument as a NumPy dtype, narrowed if config.narrow is set; Python's types mean the defaults."""
    return promotion.to_dtype(dtype)


def operands(name: str, *values: Any) -> list[Any]:
    """Operands of one dtype: Python numbers and weak arrays yield to the others' dtype.

    Raises DtypeError if two arrays differ, or if a number does not fit the arrays' dtype.
    """
    if any(is_array_or_numpy(v) for v in values):
        values = tuple(map(yielding, values))
    arrays = [v if _is_plain(v) else as_array(v) for v in values]
    if not arrays:
        return arrays
    first = arrays[0]
    if is_array(first):
        dtype = first.dtype
        if all(is_array(a) and a.dtype == dtype for a in arrays):
            return arrays
    known = {a.dtype for a in arrays if is_array(a)}
    if not known and len({type(a) for a in arrays}) > 1:
        raise DtypeError(
            f"lax.{name} got Python numbers of types {', '.join(type(a).__name__ for a in arrays)}.",
            f"rlx.lax functions do not promote: write numbers of one type, or use rlx.numpy.{name}.",
        )
    if len(known) == 1:
        (dtype,) = known
        if all(is_array(a) or fits(a, dtype) for a in arrays):
            return arrays  # elementwise primitives give numbers the dtype of the arrays
    pairs = [_dtype_and_weakness(a) for a in arrays]
    strong = {d for d, weak in pairs if not weak}
    try:
        dtype, _ = promote_dtypes(pairs, config.default_float, config.default_int)
    except TypeError:
        strong = {d for d, _ in pairs}
    if len(strong) > 1 or (strong and dtype not in strong):
        raise DtypeError(
            f"lax.{name} got operands of dtypes {', '.join(d.name for d, _ in pairs)}.",
            f"rlx.lax functions do not promote: convert with .astype(...), or use rlx.numpy.{name},"
            " which promotes for you.",
        )
    return [_of_dtype(a, dtype) for a in arrays]


def _is_plain(value: Any) -> bool:
    """Whether an operand is an array, or a Python number."""
    return is_array(value) or (isinstance(value, _SCALARS) and not isinstance(value, np.generic))


def fits(number: Any, dtype: np.dtype) -> bool:
    """Whether arrays of `dtype` keep it when combined with a Python number."""
    if isinstance(number, int):
        return dtype.kind != "b" or isinstance(number, bool)
    return is_complex(dtype) or (isinstance(number, float) and is_float(dtype))


def _dtype_and_weakness(value: Any) -> tuple[np.dtype, bool]:
    if is_array(value):
        return value.dtype, value.weak_type
    return scalar_dtype(value, config.default_float, config.default_int), not isinstance(value, bool)


def _of_dtype(value: Any, dtype: np.dtype) -> Any:
    if not is_array(value):
        return ConcreteArray(np.asarray(value, dtype), True)
    return value if value.dtype == dtype else convert(value, dtype=dtype, weak=value.weak_type)


def canonical_axis(name: str, axis: Any, ndim: int) -> int:
    """An axis counted from the front; AxisError if the array does not have it."""
    return promotion.canonical_axis(axis, ndim, f"lax.{name}")


def canonical_axes(name: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Several axes counted from the front, or one given as an int."""
    if not isinstance(axes, (tuple, list)):
        axes = np.atleast_1d(axes).tolist()
    return tuple(canonical_axis(name, a, ndim) for a in axes)


def canonical_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of Python ints; one int is a shape of one axis."""
    if isinstance(shape, Sequence) or (is_array_or_numpy(shape) and shape.ndim):
        return tuple(whole_number(d) for d in shape)
    return (whole_number(shape),)


def new_shape(name: str, shape: Any) -> tuple[int, ...]:
    """The shape of a new array; ShapeError for a negative size."""
    sizes = canonical_shape(shape)
    if any(n < 0 for n in sizes):
        raise ShapeError(f"lax.{name} got the shape {sizes}.", "Sizes must be 0 or more.")
    return sizes


def scalar_of(value: Any, dtype: np.dtype) -> Array:
    """A scalar argument (a fill or padding value) as a 0-d array of `dtype`."""
    limit = isinstance(value, float) and dtype.kind in "iu" and not math.isfinite(value)  # as in conversions
    if isinstance(value, _SCALARS) and not limit:
        return keys_of_number((), value, dtype) if is_key(dtype) else wrap(number_array(value, dtype))
    array = as_array(value)
    return array if array.dtype == dtype else convert(array, dtype=dtype, weak=False)
