"""Making arrays: from values, filled, and ranges."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, asarray_numpy, wrap
from rlx.config import config
from rlx.errors import DtypeError, InputTypeError, ShapeError
from rlx.ir.types import TensorType, is_complex, is_inexact
from rlx.numpy.promotion import (
    SCALARS,
    broadcast_array,
    canonical_axis,
    canonical_shape,
    concretization_error,
    convert_to,
    fill,
    inexact_dtype,
    operand,
    promote,
    promote_inexact,
    result_of,
    scalar_array,
    to_dtype,
)
from rlx.ops import arithmetic, transcendental
from rlx.ops import shape as shapes
from rlx.trace.builder import Tracer, state
from rlx.trace.flat import as_array

__all__ = [
    "arange",
    "array",
    "asarray",
    "astype",
    "copy",
    "empty",
    "empty_like",
    "from_dlpack",
    "frombuffer",
    "fromfunction",
    "fromiter",
    "fromstring",
    "full",
    "full_like",
    "geomspace",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


# ------------------------------------------------------------------ from values
def array(object: Any, dtype: Any = None, copy: bool = True, order: str | None = "K", ndmin: int = 0) -> Array:
    """An array of the given values.

    Args: object: number, array, or nested sequence of them (traced ones too); dtype: of the
    result; copy: whether a NumPy array is copied; ndmin: least number of axes.
    Returns: an array; Python numbers without dtype give weak ones.
    Raises: InputTypeError for what is not numbers; ShapeError for ragged sequences.

    >>> import rlx.numpy as jnp
    >>> jnp.array([1, 2.5])
    Array([1. , 2.5], dtype=float32)
    """
    result = _from_object(object, None if dtype is None else to_dtype(dtype), copy)
    if result.ndim < ndmin:
        result = shapes.reshape(result, shape=(1,) * (ndmin - result.ndim) + result.shape)
    return result


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None) -> Array:
    """An array of the given values, sharing memory with NumPy arrays.

    Args: a: number, array, or nested sequence of them; dtype: of the result; copy: True copies.
    Returns: an array; an rlx array of the right dtype is returned as it is.
    Raises: as `array`.

    >>> import rlx.numpy as jnp
    >>> jnp.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    return _from_object(a, None if dtype is None else to_dtype(dtype), bool(copy))


def _from_object(value: Any, dtype: np.dtype | None, copy: bool) -> Array:
    if isinstance(value, (list, tuple)):
        return _from_sequence(value, dtype)
    if dtype is not None and isinstance(value, SCALARS):
        plain = value.item() if isinstance(value, np.generic) else value
        return convert_to(plain, dtype)
    if value is None:
        raise InputTypeError("None is not an array.", "Pass numbers or arrays.")
    result = as_array(value)
    if copy and type(result) is ConcreteArray and not isinstance(value, SCALARS):
        result = ConcreteArray(result.numpy().copy(), result.weak_type)
    if dtype is None:
        return result
    return convert_to(result, dtype)


def _leaves(value: Any, found: list[Any]) -> list[Any]:
    if isinstance(value, (list, tuple)):
        for part in value:
            _leaves(part, found)
    else:
        found.append(value)
    return found


def _from_sequence(value: Any, dtype: np.dtype | None) -> Array:
    leaves = _leaves(value, [])
    if any(isinstance(x, Array) or hasattr(x, "__jax_array__") for x in leaves):
        return _stack_nested(value, dtype)
    if not leaves:
        return convert_to(wrap(np.asarray(value, config.default_float)), dtype or config.default_float)
    kinds = set(map(type, leaves))
    try:
        plain = np.asarray(value)
    except ValueError:
        raise ShapeError(
            "array got a nested sequence whose parts differ in length.",
            "Pad the rows to one length, or keep them in a list.",
        ) from None
    if kinds <= {bool, int, float, complex}:
        # by JAX's rule: Python numbers take the default dtypes
        wanted = dtype or _default_of(plain, leaves)
        return _cast_plain(plain, wanted)
    result = wrap(asarray_numpy(plain))
    return result if dtype is None else convert_to(result, dtype)


def _default_of(plain: np.ndarray, leaves: list[Any]) -> np.dtype:
    kind = plain.dtype.kind
    if kind == "b":
        return plain.dtype
    if kind == "f":
        return config.default_float
    if kind == "c":
        return np.dtype("c16") if config.default_float.itemsize == 8 else np.dtype("c8")
    return result_of(*leaves)[0]


def _cast_plain(plain: np.ndarray, dtype: np.dtype) -> Array:
    if plain.dtype.kind in "iu" and dtype.kind in "iu" and plain.size:
        info = np.iinfo(dtype)
        if int(plain.min()) < info.min or int(plain.max()) > info.max:
            raise DtypeError(f"A value of the sequence does not fit {dtype.name}.", "Pass a wider dtype.")
    return convert_to(wrap(asarray_numpy(plain)), dtype)


def _stack_nested(value: Any, dtype: np.dtype | None) -> Array:
    """Nested sequences with arrays among the leaves."""
    leaves = [operand(x, "array") for x in _leaves(value, [])]
    wanted = result_of(*leaves)[0] if dtype is None else dtype

    def build(part: Any) -> Array:
        if not isinstance(part, (list, tuple)):
            return convert_to(operand(part, "array"), wanted)
        rows = [build(p) for p in part]
        if any(r.shape != rows[0].shape for r in rows):
            raise ShapeError(
                f"array got parts of different shapes: {[r.shape for r in rows]}.",
                "Broadcast or pad them to one shape first.",
            )
        if not rows:
            return fill((0,), 0, wanted)
        rows = [shapes.reshape(r, shape=(1, *r.shape)) for r in rows]
        return shapes.concatenate(*rows, axis=0)

    return build(value)


def copy(a: Any, order: str | None = None) -> Array:
    """A copy of an array.

    Args: a: array or number. Returns: an array of the same type that shares no memory.

    >>> import rlx.numpy as jnp
    >>> jnp.copy(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    return _from_object(a, None, True)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Array:
    """An array in another dtype.

    Args: x: array; dtype: of the result. Floats truncate and saturate to integers.
    Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.astype(jnp.array([1.7, -1.7]), jnp.int32)
    Array([ 1, -1], dtype=int32)
    """
    x = operand(x, "astype")
    return convert_to(x, inexact_dtype(np.dtype(bool)) if dtype is None else to_dtype(dtype))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array over the memory of another library's array.

    Args: x: an object with __dlpack__; copy: True copies. Returns: an array.

    >>> import numpy as np, rlx.numpy as jnp
    >>> jnp.from_dlpack(np.ones(2, np.float32))
    Array([1., 1.], dtype=float32)
    """
    if isinstance(x, Array):
        return _from_object(x, None, bool(copy))
    return wrap(asarray_numpy(np.from_dlpack(x, copy=copy)))


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """An array over the bytes of a buffer.

    Args: buffer: bytes; dtype; count: of elements; offset: in bytes. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.frombuffer(b"ab", dtype=jnp.uint8)
    Array([97, 98], dtype=uint8)
    """
    return wrap(np.frombuffer(buffer, to_dtype(dtype), count, offset))


def fromiter(iter: Any, dtype: Any, count: int = -1) -> Array:
    """An array of the numbers that an iterator gives.

    Args: iter: iterable of numbers; dtype; count: how many. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.fromiter(iter([1, 2]), jnp.int32)
    Array([1, 2], dtype=int32)
    """
    return wrap(np.fromiter(iter, to_dtype(dtype), count))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Array:
    """An array of the numbers in a text.

    Args: string: text; dtype; count: how many; sep: what separates them. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.fromstring("1 2", jnp.int32, sep=" ")
    Array([1, 2], dtype=int32)
    """
    return wrap(np.fromstring(string, to_dtype(dtype), count, sep=sep))


# ------------------------------------------------------------------ filled
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array of one value.

    Args: shape: int or ints; fill_value: number or array that broadcasts; dtype: of the result
    (None: the value's). Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.full((2,), 7)
    Array([7, 7], dtype=int32, weak_type=True)
    """
    sizes = canonical_shape(shape, "full")
    value = _from_object(fill_value, None if dtype is None else to_dtype(dtype), False)
    if type(value) is ConcreteArray and value.ndim == 0:
        return fill(sizes, value.numpy(), value.dtype, value.weak_type and dtype is None)
    return broadcast_array(value, sizes, "full")


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array of zeros.

    Args: shape: int or ints; dtype: of the result (None: the default float). Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.zeros(2)
    Array([0., 0.], dtype=float32)
    """
    wanted = config.default_float if dtype is None else to_dtype(dtype)
    return fill(canonical_shape(shape, "zeros"), 0, wanted)


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array of ones.

    Args: shape: int or ints; dtype: of the result (None: the default float). Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.ones((1, 2), jnp.int32)
    Array([[1, 1]], dtype=int32)
    """
    wanted = config.default_float if dtype is None else to_dtype(dtype)
    return fill(canonical_shape(shape, "ones"), 1, wanted)


def empty(shape: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array of zeros: arrays cannot be written to, so nothing is gained by leaving them out.

    Args: shape: int or ints; dtype: of the result. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.empty((2, 0)).shape
    (2, 0)
    """
    return zeros(shape, dtype)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """An array of one value with the shape and dtype of another.

    Args: a: array; fill_value: number or array that broadcasts; dtype, shape: in place of a's.
    Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.full_like(jnp.ones(2), 3)
    Array([3., 3.], dtype=float32)
    """
    like = as_array(a)
    sizes = like.shape if shape is None else canonical_shape(shape, "full_like")
    wanted = like.dtype if dtype is None else to_dtype(dtype)
    if isinstance(fill_value, (bool, int, float)) and not (
        is_inexact(wanted) is False and isinstance(fill_value, float)
    ):
        return fill(sizes, fill_value, wanted, dtype is None and like.weak_type)
    value = convert_to(_from_object(fill_value, None, False), wanted, dtype is None and like.weak_type)
    return broadcast_array(value, sizes, "full_like")


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """Zeros with the shape and dtype of another array.

    Args: a: array; dtype, shape: in place of a's. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.zeros_like(jnp.array([1, 2]))
    Array([0, 0], dtype=int32)
    """
    return full_like(a, 0, dtype, shape)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """Ones with the shape and dtype of another array.

    Args: a: array; dtype, shape: in place of a's. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.ones_like(jnp.array([1, 2]))
    Array([1, 1], dtype=int32)
    """
    return full_like(a, 1, dtype, shape)


def empty_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """Zeros with the shape and dtype of another array; see `empty`.

    Args: a: array; dtype, shape: in place of a's. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.empty_like(jnp.ones((2, 1))).shape
    (2, 1)
    """
    return full_like(a, 0, dtype, shape)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """What a function gives on arrays of the indices.

    Args: function: of one index array per axis; shape; dtype: of the index arrays.
    Returns: what the function returns.

    >>> import rlx.numpy as jnp
    >>> jnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int)
    Array([[0, 1],
           [1, 2]], dtype=int32)
    """
    sizes = canonical_shape(shape, "fromfunction")
    wanted = to_dtype(dtype)
    return function(*[count_along(sizes, axis, wanted) for axis in range(len(sizes))], **kwargs)


# ------------------------------------------------------------------ ranges
def count_along(shape: tuple[int, ...], axis: int, dtype: np.dtype) -> Array:
    """An array whose elements are their index along an axis."""
    return shapes.iota(type=TensorType(shape, dtype), axis=axis)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None) -> Array:
    """Numbers from start up to, not including, stop.

    Args: start, stop, step: numbers known while tracing; one argument is the stop.
    dtype: of the result. Returns: a 1-d array.
    Raises: ConcretizationTypeError if a bound is traced.

    >>> import rlx.numpy as jnp
    >>> jnp.arange(1, 7, 2)
    Array([1, 3, 5], dtype=int32)
    """
    bounds = [_static_number(v) for v in (start, stop, step) if v is not None]
    given = [operand(v, "arange") for v in (start, stop, step) if v is not None]
    wanted = result_of(*given)[0] if dtype is None else to_dtype(dtype)
    if stop is None and step is not None:
        bounds, stop = [0, bounds[0], bounds[1]], 0
    simple = len(bounds) == 1 and stop is None and wanted.kind != "b" and not is_complex(wanted)
    if simple and state.builder is not None:
        size = max(0, math.ceil(bounds[0]))
        return count_along((size,), 0, wanted)
    if is_inexact(wanted) and not is_complex(wanted) and wanted.itemsize < 8:
        return wrap(np.arange(*[np.float64(b) for b in bounds]).astype(wanted))
    return wrap(np.arange(*bounds, dtype=wanted))


def _static_number(value: Any) -> Any:
    if isinstance(value, Tracer):
        known = value.known()
        if known is None:
            raise concretization_error(
                "arange got a traced bound: the length of its result would depend on values.",
                "Pass Python numbers, mark the argument static in jit, or use rlx.lax.fori_loop.",
            )
        value = known
    if isinstance(value, (Array, np.ndarray, np.generic)):
        return np.asarray(value.numpy() if isinstance(value, ConcreteArray) else value).item()
    return value if isinstance(value, SCALARS) else operator.index(value)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """Evenly spaced numbers from start to stop.

    Args: start, stop: numbers or arrays that broadcast; num: how many; endpoint: whether stop is
    the last one; retstep: return the step too; axis: where the new axis goes.
    Returns: an array, or (array, step). Raises: ShapeError for negative num.

    >>> import rlx.numpy as jnp
    >>> jnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num = operator.index(num)
    if num < 0:
        raise ShapeError(f"linspace got num={num}.", "The number of samples cannot be negative.")
    first, last = promote_inexact("linspace", start, stop)
    computed, sizes = first.dtype, np.broadcast_shapes(first.shape, last.shape)
    wanted = computed if dtype is None else to_dtype(dtype)
    first, last = [broadcast_array(convert_to(x, computed), sizes) for x in (first, last)]
    divisor = num - 1 if endpoint else num
    if num > 1:
        step = arithmetic.divide(arithmetic.subtract(last, first), scalar_array(divisor, computed, True))
        values = _between(first, last, num, divisor, endpoint)
    else:
        step = fill(sizes, np.nan, computed)
        if num == 1 and not endpoint:
            step = arithmetic.subtract(last, first)
        values = broadcast_array(shapes.reshape(first, shape=(1, *sizes)), (1, *sizes)) if num else None
    if values is None:
        values = fill((0, *sizes), 0, computed)
    values = _move_first(values, canonical_axis(axis, values.ndim, "linspace"))
    if not is_inexact(wanted) and wanted.kind in "iu":
        values = arithmetic.floor(values)
    values = convert_to(values, wanted)
    return (values, step) if retstep else values


def _between(first: Any, last: Any, num: int, divisor: int, endpoint: bool) -> Any:
    """start * (1 - t) + stop * t with t = i / divisor; the last one exactly stop."""
    dtype, sizes = first.dtype, first.shape
    real = np.dtype(f"f{dtype.itemsize // 2}") if is_complex(dtype) else dtype
    index = count_along((num if not endpoint else num - 1,), 0, real)
    step = arithmetic.divide(index, scalar_array(divisor, real, True))
    step = shapes.reshape(convert_to(step, dtype), shape=(index.shape[0], *(1,) * len(sizes)))
    front, back = [shapes.reshape(x, shape=(1, *sizes)) for x in (first, last)]
    one = scalar_array(1, dtype, True)
    values = arithmetic.add(arithmetic.multiply(front, arithmetic.subtract(one, step)), arithmetic.multiply(back, step))
    return shapes.concatenate(values, back, axis=0) if endpoint else values


def _move_first(x: Any, axis: int) -> Any:
    if axis == 0:
        return x
    order = list(range(1, x.ndim))
    order.insert(axis, 0)
    return shapes.transpose(x, permutation=tuple(order))


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """base to the powers linspace(start, stop).

    Args: as linspace, and base: a number. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.logspace(0, 2, 3, base=2.0)
    Array([1., 2., 4.], dtype=float32)
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    base, exponents = promote("logspace", operand(base), exponents)
    values = arithmetic.power(base, exponents)
    return values if dtype is None else convert_to(values, to_dtype(dtype))


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """Numbers from start to stop, each a constant multiple of the one before.

    Args: as linspace. Returns: an array. The ends are exact.

    >>> import rlx.numpy as jnp
    >>> jnp.geomspace(1, 8, 4).round(4)
    Array([1., 2., 4., 8.], dtype=float32)
    """
    first, last = promote_inexact("geomspace", start, stop)
    computed, sizes = first.dtype, np.broadcast_shapes(first.shape, last.shape)
    first, last = [broadcast_array(convert_to(x, computed), sizes) for x in (first, last)]
    signs = arithmetic.sign(first)
    logs = [transcendental.log(arithmetic.divide(x, signs)) for x in (first, last)]
    exponents = linspace(*logs, num=num, endpoint=endpoint)
    values = arithmetic.multiply(transcendental.exp(exponents), signs)
    values = _with_exact_ends(values, first, last, num, endpoint)
    values = _move_first(values, canonical_axis(axis, values.ndim, "geomspace"))
    return values if dtype is None else convert_to(values, to_dtype(dtype))


def _with_exact_ends(values: Any, first: Any, last: Any, num: int, endpoint: bool) -> Any:
    if num == 0:
        return values
    parts = [shapes.reshape(first, shape=(1, *first.shape))]
    inner = num - 1 if endpoint and num > 1 else num
    parts.append(shapes.slice_along(values, 1, inner, 0))
    if inner < num:
        parts.append(shapes.reshape(last, shape=(1, *last.shape)))
    return shapes.concatenate(*parts, axis=0)
