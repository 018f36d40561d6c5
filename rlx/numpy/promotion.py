"""Operands of array functions: conversion, dtype promotion, axes and shapes."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.array import (
    Array,
    ConcreteArray,
    is_array,
    is_array_or_numpy,
    is_concrete,
    is_plain,
    keys_of_number,
    narrowed,
    number_array,
)
from rlx.config import config
from rlx.errors import (
    AxisError,
    ConcretizationTypeError,
    DtypeError,
    InputTypeError,
    RlxError,
    ShapeError,
    TypePromotionError,
    describe,
    did_you_mean,
    entered,
    out_of_memory,
)
from rlx.ir.size_functions import whole_number
from rlx.ir.types import (
    TensorType,
    broadcast_sizes,
    dtype_of,
    is_complex,
    is_inexact,
    is_key,
    promote_dtypes,
    scalar_dtype,
    supported_dtypes,
)
from rlx.ops.arithmetic import convert
from rlx.ops.conversion import convert_array
from rlx.ops.shape import broadcast_in_dim, reshape
from rlx.trace.builder import Tracer, is_traced, sized_tracer, state
from rlx.trace.flat import as_array, shared_array
from rlx.trace.strictness import check_dtypes, check_ranks

__all__ = [
    "beside_arrays",
    "broadcast_array",
    "broadcast_operands",
    "canonical_axes",
    "canonical_axis",
    "canonical_shape",
    "canonical_size",
    "complex_dtype",
    "convert_to",
    "fill",
    "float_of",
    "inexact",
    "inexact_dtype",
    "known_numpy",
    "narrows",
    "operand",
    "promote",
    "promote_inexact",
    "promote_numeric",
    "result_of",
    "scalar_array",
    "shared",
    "to_dtype",
]

SCALARS = (bool, int, float, complex)
# NumPy's results of computing with Python's numbers: with arrays they yield like Python's
WIDE_SCALARS = (np.float64, np.int64, np.complex128)
_FLOAT32, _FLOAT64 = np.dtype("f4"), np.dtype("f8")
_INT32 = np.dtype("i4")
_YIELDING = frozenset((*SCALARS, *WIDE_SCALARS))
Pair = tuple[np.dtype, bool]
# reductions that other libraries also call with two arrays -> rlx's functions of two arrays
_PAIRS = {"max": "maximum", "min": "minimum", "all": "logical_and", "any": "logical_or"}
# functions with a dtype in a place that is not taken for a size
_REDUCERS = frozenset("array asarray sum prod mean std var nansum nanmean cumsum cumprod trace astype".split())
_SHAPE = "A shape is one argument: zeros((2, 3)), not zeros(2, 3). x.reshape(shape) changes the shape of an array."


# ------------------------------------------------------------------ dtypes
def to_dtype(value: Any) -> np.dtype:
    """A dtype argument as a NumPy dtype; Python's own types mean the default dtypes."""
    if type(value) is np.dtype:
        return available(dtype_of(value))
    if value is float:
        return config.default_float
    if value is int:
        return config.default_int
    if value is complex:
        return complex_dtype(config.default_float)
    try:
        return available(dtype_of(value))
    except TypeError:
        raise DtypeError(
            f"{value!r} is not a dtype that rlx has.",
            (did_you_mean(value, (d.name for d in supported_dtypes), repr) if isinstance(value, str) else "")
            or (_SHAPE if isinstance(value, (int, np.integer)) and entered() not in _REDUCERS else "")
            or "The dtype is the argument in this place: pass one such as rlx.numpy.float32.",
        ) from None


def available(dtype: np.dtype) -> np.dtype:
    """A requested dtype, or its half if config.narrow is set; then with a UserWarning, as in JAX."""
    found = narrowed(dtype)
    if found is not dtype:
        warnings.warn(
            f"Explicitly requested dtype {dtype} is not available, and will be truncated to dtype {found}."
            " To enable more dtypes, set the jax_enable_x64 configuration option.",
            UserWarning,
            stacklevel=4,
        )
    return found


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype that holds values of a real one."""
    if is_complex(dtype):
        return dtype
    return np.dtype("c16") if dtype.itemsize == 8 and is_inexact(dtype) else np.dtype("c8")


def inexact_dtype(dtype: np.dtype) -> np.dtype:
    """`dtype` itself if floating or complex, else the float that its integers become (JAX's table)."""
    if is_inexact(dtype):
        return dtype
    return _FLOAT64 if dtype.itemsize == 8 else _FLOAT32


def float_of(dtype: np.dtype) -> np.dtype:
    """The floating dtype for magnitudes and counts of values of `dtype`."""
    return np.dtype(f"f{dtype.itemsize // 2}") if is_complex(dtype) else inexact_dtype(dtype)


@lru_cache(maxsize=4096)
def _join(pairs: tuple[Pair, ...], default_float: np.dtype, default_int: np.dtype) -> Pair:
    return promote_dtypes(pairs, default_float, default_int)


def wide_scalars_yield() -> bool:
    """Whether NumPy's 64-bit numbers are weak with arrays: as in JAX not with 64-bit defaults, or if they narrow."""
    return config.default_float.itemsize < 8 and not config.narrow


def _number_dtype(value: Any) -> np.dtype:
    """The dtype of a number: a Python number has a default one."""
    if isinstance(value, np.generic):
        return narrowed(value.dtype)
    return scalar_dtype(value, config.default_float, config.default_int)


def result_of(*values: Any) -> Pair:
    """The dtype and weakness that operands promote to.

    A NumPy number of 64 bits is weak with arrays, and strong without any: it keeps its own dtype either way.
    """
    pairs: Any = []
    wide = False
    for v in values:
        if is_array(v):
            pairs.append((v.dtype, v.weak_type))
        else:
            pairs.append((_number_dtype(v), True))
            wide = wide or isinstance(v, np.generic)
    if wide and not (wide_scalars_yield() and any(is_array(v) for v in values)):
        pairs = [(d, w and not isinstance(v, np.generic)) for v, (d, w) in zip(values, pairs, strict=True)]
    pairs = tuple(pairs)
    if config.numpy_dtype_promotion == "strict":
        check_dtypes(pairs)
    try:
        return _join(pairs, config.default_float, config.default_int)
    except TypeError:
        keys = any(is_key(dtype) for dtype, _ in pairs)
        raise TypePromotionError(
            f"No implicit promotion between {', '.join(map(describe, values))}.",
            "Keys are not numbers: make others with rlx.random.split(key) or rlx.random.fold_in(key, number)."
            if keys
            else "Convert one operand with .astype(...).",
        ) from None


# ------------------------------------------------------------------ values
def operand(value: Any, name: str = "the function") -> Any:
    """A function's argument as an rlx array, or a number, which yields to arrays (see `result_of`)."""
    kind = type(value)
    if kind is ConcreteArray or kind is Tracer:
        return value
    if kind in _YIELDING:
        return value
    if isinstance(value, (list, tuple)):
        raise InputTypeError(
            f"{name} got a {kind.__name__}; rlx functions take arrays and numbers.",
            "Convert it with rlx.numpy.asarray(...) first.",
        )
    return as_array(value, f"an argument of {name}")


def shared(value: Any) -> Any:
    """An operand, without a copy if it is a NumPy array; others unchanged.

    For functions whose results are always new memory. Others copy (`operand`).
    """
    return shared_array(value) if type(value) is np.ndarray else value


def yielding(number: Any) -> Any:
    """A NumPy number of 64 bits used with an array as a Python number, which yields; anything else unchanged."""
    return number.item() if isinstance(number, WIDE_SCALARS) and wide_scalars_yield() else number


def beside_arrays(*values: Any) -> list[Any]:
    """Values of one call, with numbers as 0-d arrays if other values are arrays or NumPy's numbers.

    These arrays are weak, of the common dtype: a number that is converted alone would get its default dtype.
    """
    numbers = [type(v) in _YIELDING for v in values]
    if True not in numbers:
        return list(values)
    arrays = [shared_array(v) for v in values if is_array_or_numpy(v)]
    if not (arrays or any(isinstance(v, WIDE_SCALARS) for v in values)):
        return list(values)
    dtype, _ = result_of(*arrays, *[v for v, number in zip(values, numbers, strict=True) if number])
    plain = [yielding(v) for v in values] if arrays else values
    return [
        scalar_array(_plain(v), dtype, not isinstance(v, np.generic)) if number else v
        for v, number in zip(plain, numbers, strict=True)
    ]


def scalar_array(value: Any, dtype: np.dtype, weak: bool) -> Array:
    """A Python number as a 0-d array, traced if it is a symbolic size; DtypeOverflowError if it does not fit."""
    sized = sized_tracer(value, dtype, weak)
    if sized is not None:
        return sized
    try:
        return ConcreteArray(number_array(value, dtype), weak)
    except TypeError:
        if not is_key(dtype):
            raise
    return keys_of_number((), value, dtype)


def convert_to(value: Any, dtype: np.dtype, weak: bool = False) -> Any:
    """An operand in another dtype; itself if it has that one."""
    if not is_array(value):
        if isinstance(value, SCALARS) and narrows(value, dtype):
            value = scalar_array(value, _number_dtype(value), True)
        else:
            return scalar_array(_plain(value), dtype, weak)
    if value.dtype == dtype and value.weak_type == weak:
        return value
    if is_plain(value) and state.builder is None:
        with np.errstate(all="ignore"):
            return ConcreteArray(convert_array(value.numpy(), dtype), weak)
    return convert(value, dtype=dtype, weak=weak)


def narrows(value: Any, dtype: np.dtype) -> bool:
    """Whether NumPy would raise or warn: complex to real, or an inexact number to an integer."""
    if isinstance(value, complex):
        return not is_complex(dtype)
    return isinstance(value, float) and not is_inexact(dtype)


def _bring(value: Any, dtype: np.dtype, weak: bool) -> Any:
    """An operand in the promoted dtype; its weakness matters only if it is converted."""
    if is_array(value):
        return value if value.dtype == dtype else convert_to(value, dtype, weak)
    return scalar_array(_plain(value), dtype, weak)


def _plain(number: Any) -> Any:
    """A number as a Python number, which is refused if it does not fit; NumPy's would wrap around."""
    return number.item() if isinstance(number, np.generic) else number


def promote(name: str, *values: Any) -> list[Any]:
    """Operands of an elementwise function as arrays of one dtype (shapes still to broadcast)."""
    operands = [operand(v, name) for v in values]
    dtype, weak = result_of(*operands)
    return [_bring(v, dtype, weak) for v in operands]


def promote_inexact(name: str, *values: Any) -> list[Any]:
    """As promote, with integers and bools becoming the default float."""
    operands = [operand(v, name) for v in values]
    dtype, weak = result_of(*operands)
    dtype = inexact_dtype(dtype)
    return [_bring(v, dtype, weak) for v in operands]


def promote_numeric(name: str, *values: Any) -> list[Any]:
    """As promote, with bools becoming int32."""
    return [convert_to(v, _INT32, v.weak_type) if v.dtype.kind == "b" else v for v in promote(name, *values)]


def inexact(value: Any, name: str = "the function") -> Array:
    """One operand as a floating or complex array."""
    return promote_inexact(name, value)[0]


def known_numpy(value: Any, name: str, instead: str) -> np.ndarray:
    """The values of an argument that must be known while tracing, for instance a size."""
    if is_traced(value):
        known = value.known()
        if known is None:
            from_tracer = f"{name} needs values that are not known while tracing: {value.type!r}."
            raise concretization_error(from_tracer, instead)
        return known.numpy()
    if is_concrete(value):
        return value.numpy()
    return np.asarray(value)


def concretization_error(what: str, instead: str) -> Exception:
    """The error for a traced value if a concrete one is needed."""
    return ConcretizationTypeError(what, instead)


# ------------------------------------------------------------------ axes and shapes
def canonical_axis(axis: Any, ndim: int, name: str = "the function") -> int:
    """A nonnegative axis number; AxisError if there is no such axis."""
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise AxisError(
            f"{name} got axis {number} for an array of {ndim} dimensions.",
            f"Axes count from {-ndim} to {ndim - 1}." if ndim else "A 0-d array has no axes.",
        )
    return number % ndim


def canonical_axes(axis: Any, ndim: int, name: str = "the function") -> tuple[int, ...]:
    """An axis argument (None, int, or sequence of ints) as a tuple of different axis numbers."""
    if axis is None:
        return tuple(range(ndim))
    if name in _PAIRS and is_array(axis) and axis.ndim:
        raise DtypeError(
            f"{name} got an array as axis: {axis.type!r}.", f"Use rlx.numpy.{_PAIRS[name]}(x, y) to compare two arrays."
        )
    if not isinstance(axis, (tuple, list, range)):
        return (canonical_axis(axis, ndim, name),)
    axes = tuple(canonical_axis(a, ndim, name) for a in axis)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name} got an axis twice: {tuple(axis)}.", "Name each axis once.")
    return axes


def canonical_shape(shape: Any, name: str = "the function", what: str = "shape", smallest: int = 0) -> tuple[int, ...]:
    """A shape argument (or `what` else has sizes) as a tuple of ints, none of them below `smallest`."""
    if is_array_or_numpy(shape):
        sizes = known_numpy(shape, name, "Shapes are static: pass Python integers.").tolist()
        shape = sizes if isinstance(sizes, list) else (sizes,)
    elif not isinstance(shape, Iterable):
        shape = (shape,)
    sizes = tuple(shape)
    try:
        result = tuple(map(whole_number, sizes))
    except RlxError:  # traced sizes say more themselves
        raise
    except TypeError:
        raise ShapeError(
            f"{name} got the {what} {sizes!r:.80}.", "Sizes must be integers: use // to divide, or int(...)."
        ) from None
    if any(n < smallest for n in result):
        raise ShapeError(f"{name} got the {what} {result}.", "Sizes cannot be negative.")
    return result


def canonical_size(size: Any, name: str = "the function") -> int:
    """The size of one axis as an int; ShapeError for a negative one."""
    number = whole_number(size)
    if number < 0:
        raise ShapeError(f"{name} got the size {number}.", "Sizes cannot be negative.")
    return number


def broadcast_array(x: Any, shape: tuple[int, ...], name: str = "broadcast_to") -> Any:
    """`x` broadcast to `shape` by NumPy's rule."""
    own = x.shape
    if own == shape:
        return x
    lead = len(shape) - len(own)
    if lead < 0 or any(d not in (1, shape[lead + i]) for i, d in enumerate(own)):
        raise ShapeError(
            f"{name} cannot broadcast shape {own} to {shape}.",
            "Axes are aligned from the last one and must be equal or 1.",
        )
    keep = tuple(i for i, d in enumerate(own) if d == shape[lead + i])
    if len(keep) != len(own):
        x = reshape(x, shape=tuple(own[i] for i in keep))
    return broadcast_in_dim(x, shape=shape, dims=tuple(lead + i for i in keep))


def broadcast_operands(arrays: Sequence[Any], name: str) -> list[Any]:
    """Arrays broadcast against one another."""
    try:
        shape = broadcast_sizes(*[x.shape for x in arrays])
    except ValueError:
        raise ShapeError(
            f"{name} got shapes that do not broadcast: {', '.join(str(x.shape) for x in arrays)}.",
            "Axes are aligned from the last one and must be equal or 1.",
        ) from None
    check_ranks(name, [x.shape for x in arrays])
    return [broadcast_array(x, shape, name) for x in arrays]


def not_made(error: Exception, shape: tuple[int, ...], dtype: np.dtype) -> Exception:
    """The error if NumPy could not allocate an array: the shape is invalid, or there is no memory."""
    try:
        type = TensorType(shape, dtype)
    except ShapeError as refusal:
        return refusal
    return out_of_memory((type,)) if isinstance(error, MemoryError) else error


def fill(shape: tuple[int, ...], value: Any, dtype: np.dtype, weak: bool = False) -> Any:
    """An array of one number."""
    if state.builder is None and not is_key(dtype):
        try:
            return ConcreteArray(np.full(shape, value, dtype), weak)
        except (MemoryError, ValueError) as error:
            raise not_made(error, shape, dtype) from None
        except OverflowError:
            number_array(value, dtype)  # raises with the number that does not fit
            raise
    scalar = scalar_array(value, dtype, weak)
    return broadcast_in_dim(scalar, shape=shape, dims=()) if shape else scalar
