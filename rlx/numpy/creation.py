"""Creation of arrays: from values, filled, and ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import (
    Array,
    array_of_type,
    asarray_numpy,
    is_array,
    is_array_or_numpy,
    is_concrete,
    is_divided,
    is_plain,
    memory_of,
    narrowed,
    owned,
    unshared,
    wrap,
)
from rlx.config import config
from rlx.errors import DtypeError, DtypeOverflowError, InputTypeError, ShapeError
from rlx.ir.types import TensorType, float0, promote_dtypes, scalar_dtype
from rlx.numpy.placement import check_placement, divided_like, made_like, placed
from rlx.numpy.promotion import (
    SCALARS,
    broadcast_array,
    canonical_shape,
    convert_to,
    fill,
    inexact_dtype,
    narrows,
    not_made,
    operand,
    result_of,
    to_dtype,
)
from rlx.ops import copy as copies
from rlx.ops import shape as shapes
from rlx.trace.flat import shared_array
from rlx.trace.hooks import execution

__all__ = [
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
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


# ------------------------------------------------------------------ from values
def array(
    object: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """An array of the given values.

    Args: object: number, array, or nested sequence of these, which may be traced; dtype: of the
    result; copy: True copies, None copies memory that other code can write to, False shares memory with
    a NumPy array of that dtype; ndmin: minimum number of axes.
    Returns: an array; Python numbers without dtype give weak ones.
    Raises: InputTypeError for values that are not numbers; ShapeError for ragged sequences.

    >>> import rlx.numpy as jnp
    >>> jnp.array([1, 2.5])
    Array([1. , 2.5], dtype=float32)
    """
    check_placement(device, out_sharding)
    result = _from_object(object, None if dtype is None else to_dtype(dtype), copy)
    if result.ndim < ndmin:
        result = shapes.reshape(result, shape=(1,) * (ndmin - result.ndim) + result.shape)
    return placed(result, device, out_sharding, object)


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """An array of the given values.

    Args: a: number, array, or nested sequence of these; dtype: of the result; copy: True copies,
    None copies a NumPy array that can be written to, False shares its memory (later writes to it
    change the result) and raises ValueError if a copy is needed.
    Returns: an array; an rlx array of the right dtype is returned unchanged.
    Raises: as `array`.

    >>> import rlx.numpy as jnp
    >>> jnp.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    check_placement(device, out_sharding)
    wanted = None if dtype is None else to_dtype(dtype)
    if copy is False and wanted is not None and is_array_or_numpy(a) and a.dtype != wanted:
        raise ValueError(f"asarray cannot make {wanted.name} of {a.dtype.name} without a copy: leave copy=False out.")
    return placed(_from_object(a, wanted, copy), device, out_sharding, a)


def _from_object(value: Any, dtype: np.dtype | None, copy: bool | None) -> Array:
    if isinstance(value, (list, tuple)):
        return _from_sequence(value, dtype)
    if dtype is not None and isinstance(value, SCALARS):
        plain = value.item() if isinstance(value, np.generic) else value
        return convert_to(plain, dtype)
    if isinstance(value, bytearray):
        value = np.asarray(value)
    if value is None:
        raise InputTypeError("None is not an array.", "Pass numbers or arrays.")
    given = shared_array(value)
    result = given if dtype is None else convert_to(given, dtype)
    if copy is False or result is not given or isinstance(value, SCALARS):
        return result
    if not is_concrete(given) or memory_of(given) is not None:
        return copies.copy(given) if copy else given
    if not copy:
        return given if given is value else owned(given)
    try:
        made = array_of_type(given.numpy().copy(), given.type)
        return made.with_sharding(given._sharding) if is_divided(given) else made
    except MemoryError as error:
        raise not_made(error, given.shape, given.dtype) from None


def _leaves(value: Any, found: list[Any]) -> list[Any]:
    if isinstance(value, (list, tuple)):
        for part in value:
            _leaves(part, found)
    else:
        found.append(value)
    return found


def _from_sequence(value: Any, dtype: np.dtype | None) -> Array:
    leaves = _leaves(value, [])
    if any(is_array(x) or hasattr(x, "__jax_array__") for x in leaves):
        return _stack_nested(value, dtype)
    if not leaves:
        return convert_to(wrap(np.asarray(value, config.default_float)), dtype or config.default_float)
    kinds = set(map(type, leaves))
    if type(None) in kinds:
        raise DtypeError("array got None among its values.", "Use rlx.numpy.nan for a missing number.")
    try:
        plain = np.asarray(value)
    except ValueError:
        raise ShapeError(
            "array got a nested sequence whose parts differ in length.",
            "Pad the rows to one length, or keep them in a list.",
        ) from None
    if plain.dtype == object and kinds <= {bool, int}:
        raise DtypeOverflowError("array got a Python integer of more than 64 bits.", "Pass a float.")
    if kinds <= {bool, int, float, complex}:
        # by JAX's rule: Python numbers take the default dtypes
        wanted = dtype or _default_of(plain, leaves)
        return _cast_plain(plain, wanted)
    result = wrap(asarray_numpy(plain))
    return convert_to(result, _joined(leaves) if dtype is None else dtype)


def _joined(leaves: list[Any]) -> np.dtype:
    """The promoted dtype of NumPy's arrays and scalars, with Python's numbers among them."""
    kinds = {(type(x), getattr(x, "dtype", None)): x for x in leaves}
    strong = [(narrowed(dtype), False) for _, dtype in kinds if dtype is not None]
    weak = [(scalar_dtype(x, config.default_float, config.default_int), True) for x in kinds.values()
            if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)]  # fmt: skip
    return promote_dtypes([*strong, *weak], config.default_float, config.default_int)[0]


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
            raise DtypeOverflowError(f"A value of the sequence does not fit {dtype.name}.", "Pass a wider dtype.")
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
    check_placement(device)
    value = operand(x, "astype")
    return convert_to(value, inexact_dtype(np.dtype(bool)) if dtype is None else to_dtype(dtype))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array over the memory of another library's array: writes to that array change the result.

    Arrays of CuPy or torch on a GPU stay there: the result is on the device cuda or rocm of the same number, and
    waits for operations that the other library has queued. An array whose address is not a multiple of 16 bytes is
    copied, because kernels load 16 bytes at once.

    Args: x: an object with __dlpack__, or on CUDA with __cuda_array_interface__; copy: True copies, False raises
      BufferError if a copy is needed. Returns: an array.

    Raises: BufferError for an array on a GPU that is not contiguous, or whose dtype rlx does not have; DeviceError for
      an array on a device that rlx cannot reach.

    >>> import numpy as np, rlx.numpy as jnp
    >>> jnp.from_dlpack(np.ones(2, np.float32))
    Array([1., 1.], dtype=float32)
    """
    check_placement(device)
    if is_array(x):
        return placed(_from_object(x, None, copy), device, None, x)
    found = execution.adopted(x) if copy else execution.borrowed(x, copy is None)
    if found is not None:
        return placed(found, device, None, found)
    return placed(wrap(asarray_numpy(np.from_dlpack(x, copy=copy))), device)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """An array of the bytes of a buffer, which are copied if they can be written to.

    Args: buffer: bytes; dtype; count: of elements; offset: in bytes. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.frombuffer(b"ab", dtype=jnp.uint8)
    Array([97, 98], dtype=uint8)
    """
    wanted = to_dtype(dtype)
    try:
        return placed(wrap(unshared(np.frombuffer(buffer, wanted, count, offset))))
    except ValueError as error:
        raise ShapeError(
            f"frombuffer cannot read elements of {wanted.name} ({wanted.itemsize} bytes each) from"
            f" {memoryview(buffer).nbytes} bytes: {error}.",
            "Pass the dtype of the bytes, for instance dtype=rlx.numpy.uint8, with count= and offset= that fit.",
        ) from None


def fromiter(iter: Any, dtype: Any, count: int = -1) -> Array:
    """An array of the numbers of an iterator.

    Args: iter: iterable of numbers; dtype; count: their number. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.fromiter(iter([1, 2]), jnp.int32)
    Array([1, 2], dtype=int32)
    """
    return placed(wrap(np.fromiter(iter, to_dtype(dtype), count)))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Array:
    """An array of the numbers in a string.

    Args: string: the numbers; dtype; count: number of elements; sep: the separator. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.fromstring("1 2", jnp.int32, sep=" ")
    Array([1, 2], dtype=int32)
    """
    return placed(wrap(np.fromstring(string, to_dtype(dtype), count, sep=sep)))


# ------------------------------------------------------------------ filled
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of one value.

    Args: shape: int or ints; fill_value: number or array that broadcasts; dtype: of the result
    (None: the value's). Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.full((2,), 7)
    Array([7, 7], dtype=int32, weak_type=True)
    """
    check_placement(device, out_sharding)
    sizes = canonical_shape(shape, "full")
    value = _from_object(fill_value, None if dtype is None else to_dtype(dtype), None)
    if is_plain(value) and value.ndim == 0:
        filled = fill(sizes, value.numpy(), value.dtype, value.weak_type and dtype is None)
    else:
        filled = broadcast_array(value, sizes, "full")
    return placed(filled, device, out_sharding)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of zeros.

    Args: shape: int or ints; dtype: of the result (None: the default float). Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.zeros(2)
    Array([0., 0.], dtype=float32)
    """
    check_placement(device, out_sharding)
    if isinstance(dtype, np.dtype) and dtype == float0:
        empty: Any = np.zeros(canonical_shape(shape, "zeros"), float0)  # programs have no arrays of this dtype
        return empty
    wanted = config.default_float if dtype is None else to_dtype(dtype)
    return placed(fill(canonical_shape(shape, "zeros"), 0, wanted), device, out_sharding)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of ones.

    Args: shape: int or ints; dtype: of the result (None: the default float). Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.ones((1, 2), jnp.int32)
    Array([[1, 1]], dtype=int32)
    """
    check_placement(device, out_sharding)
    wanted = config.default_float if dtype is None else to_dtype(dtype)
    return placed(fill(canonical_shape(shape, "ones"), 1, wanted), device, out_sharding)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of zeros: arrays are immutable, so uninitialised memory would be useless.

    Args: shape: int or ints; dtype: of the result. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.empty((2, 0)).shape
    (2, 0)
    """
    return zeros(shape, dtype, device=device, out_sharding=out_sharding)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """An array of one value with the shape and dtype of another.

    Args: a: array; fill_value: number or array that broadcasts; dtype, shape: instead of a's.
    Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.full_like(jnp.ones(2), 3)
    Array([3., 3.], dtype=float32)
    """
    check_placement(device, out_sharding)
    like = _type_like(a)
    sizes = like.shape if shape is None else canonical_shape(shape, "full_like")
    wanted = like.dtype if dtype is None else to_dtype(dtype)
    weak = dtype is None and like.weak
    if isinstance(fill_value, SCALARS) and not narrows(fill_value, wanted):
        return made_like(lambda part: fill(part, fill_value, wanted, weak), sizes, a, device, out_sharding)
    value = convert_to(_from_object(fill_value, None, None), wanted, weak)
    if value.ndim == 0 and is_concrete(value):  # of others derivatives are summed over processes
        return made_like(lambda part: broadcast_array(value, part, "full_like"), sizes, a, device, out_sharding)
    filled = broadcast_array(value, sizes, "full_like")
    return placed(filled, device, divided_like(a, sizes) if out_sharding is None else out_sharding, a)


def _type_like(a: Any) -> TensorType:
    """The type of an array, or of an object that has a shape and a dtype without being one."""
    if not (is_array_or_numpy(a) or isinstance(a, np.generic)) and hasattr(a, "shape") and hasattr(a, "dtype"):
        return TensorType(tuple(a.shape), to_dtype(a.dtype), bool(getattr(a, "weak_type", False)))
    return shared_array(a).type


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros with the shape and dtype of another array.

    Args: a: array; dtype, shape: instead of a's. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.zeros_like(jnp.array([1, 2]))
    Array([0, 0], dtype=int32)
    """
    return full_like(a, 0, dtype, shape, device=device, out_sharding=out_sharding)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Ones with the shape and dtype of another array.

    Args: a: array; dtype, shape: instead of a's. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.ones_like(jnp.array([1, 2]))
    Array([1, 1], dtype=int32)
    """
    return full_like(a, 1, dtype, shape, device=device, out_sharding=out_sharding)


def empty_like(
    prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """Zeros with the shape and dtype of another array; see `empty`.

    Args: prototype: array; dtype, shape: instead of the prototype's. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.empty_like(jnp.ones((2, 1))).shape
    (2, 1)
    """
    return full_like(prototype, 0, dtype, shape, device=device, out_sharding=out_sharding)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """The result of calling a function on arrays of the indices.

    Args: function: of one index array per axis; shape; dtype: of the index arrays.
    Returns: the function's result.

    >>> import rlx.numpy as jnp
    >>> jnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int)
    Array([[0, 1],
           [1, 2]], dtype=int32)
    """
    sizes = canonical_shape(shape, "fromfunction")
    wanted = to_dtype(dtype)
    return function(*[count_along(sizes, axis, wanted) for axis in range(len(sizes))], **kwargs)


def count_along(shape: tuple[int, ...], axis: int, dtype: np.dtype) -> Array:
    """An array whose elements are their index along an axis."""
    return shapes.iota(type=TensorType(shape, dtype), axis=axis)
