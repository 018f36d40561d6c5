"""Conversion of arrays to Python and NumPy: numbers, lists and buffers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlx import errors
from rlx.array import ConcreteArray, is_concrete, is_plain, memory_of
from rlx.ir.types import bits_of, compute_dtype, dtype_kind, is_complex, is_key
from rlx.numpy.bits import cast_bits
from rlx.numpy.placement import placed
from rlx.numpy.promotion import convert_to
from rlx.ops import arithmetic, comparison
from rlx.ops import copy as copies
from rlx.ops import shape as shapes
from rlx.ops.conversion import bitcast
from rlx.trace.builder import is_traced, state
from rlx.transforms.moving import refuse_moving

__all__ = ["view"]


# ------------------------------------------------------------------ values of tracers
def _value(
    x: Any, error: type[errors.ConcretizationTypeError], what: str, instead: str, inspects: bool = False
) -> np.ndarray:
    """The values of an array, or of a tracer if they are known and have no derivative; else the error.

    inspects: the result is a bool or an int, which has no derivative.
    """
    if is_plain(x):
        return x.numpy()
    if is_key(x.dtype):
        raise errors.DtypeError(
            f"{what} does not take {x.type!r}: keys are not numbers.",
            "Draw numbers from them with rlx.random, or take their words: rlx.random.key_data(keys).",
        )
    if is_concrete(x):
        return x.numpy()
    known = x.needed()  # raises for values that processes or devices divide
    if known is None:
        raise error(f"{what} needs the value of a traced {x.type!r}, which is not known while tracing.", instead)
    if not inspects:
        refuse_moving(x, what, error)
    return known.numpy()


def _scalar(
    x: Any, name: str, error: type[errors.ConcretizationTypeError], instead: str, inspects: bool = False
) -> Any:
    if x.size != 1:
        raise errors.ShapeError(
            f"{name} got {errors.describe(x)}: only arrays with one element can be converted.",
            "Pick an element, x[i], or reduce the array, for instance with .sum().",
        )
    return _value(x, error, name, instead, inspects).reshape(())[()]


_NUMBER = (
    "Keep it an array: rlx.numpy functions take 0-d arrays wherever they take numbers."
    " If it is a setting, mark it static in jit (static_argnums / static_argnames)."
)
_TRUTH = (
    "Use rlx.numpy.where(condition, x, y) to choose between values, rlx.lax.cond to choose between"
    " computations, rlx.lax.while_loop for loops, or & | ~ in place of and / or / not."
)
_INDEX = (
    "A traced value cannot be a Python index, a size or an argument of range(): use x[i] on an rlx array,"
    " rlx.lax.dynamic_slice, rlx.lax.fori_loop, or mark the argument static (static_argnums)."
)


def to_bool(self: Any) -> bool:
    """bool(x) of an array with one element."""
    if self.size != 1 and self.size != 0:
        raise errors.ShapeError(
            f"The truth value of an array with more than one element is ambiguous: {errors.describe(self)}.",
            "Use x.any() or x.all().",
        )
    if self.size == 0:
        raise errors.ShapeError("The truth value of an empty array is ambiguous.", "Use x.size > 0.")
    return bool(_scalar(self, "bool()", errors.TracerBoolConversionError, _TRUTH, True))


def to_int(self: Any) -> int:
    """int(x) of an array with one element."""
    return int(_scalar(self, "int()", errors.TracerIntegerConversionError, _NUMBER, True))


def to_float(self: Any) -> float:
    """float(x) of an array with one element."""
    return float(_scalar(self, "float()", errors.ConcretizationTypeError, _NUMBER))


def to_complex(self: Any) -> complex:
    """complex(x) of an array with one element."""
    return complex(_scalar(self, "complex()", errors.ConcretizationTypeError, _NUMBER))


def to_index(self: Any) -> int:
    """operator.index(x) of a 0-d integer array."""
    if self.ndim != 0 or dtype_kind(self.dtype) not in "iu":
        raise errors.DtypeError(
            f"An index, a size or an axis must be an integer; this array is {errors.describe(self)}.",
            "Pass a Python integer, or x.item() of an integer array with one element.",
        )
    return operator.index(_scalar(self, "index()", errors.TracerIntegerConversionError, _INDEX))


def item(self: Any, *args: Any) -> Any:
    """The one element (or the one at the given index) as a Python number.

    >>> import rlx.numpy as jnp
    >>> jnp.array([3.0]).item()
    3.0
    """
    values = _value(self, errors.ConcretizationTypeError, "item()", _NUMBER)
    if not args and values.size != 1:
        raise errors.ShapeError(f"item() of {errors.describe(self)}.", "Select one element: x.item(index).")
    return values.item(*args)


def to_list(self: Any) -> Any:
    """The elements as nested lists of Python numbers."""
    return _value(self, errors.ConcretizationTypeError, "tolist()", _NUMBER).tolist()


def to_bytes(self: Any, order: Any = "C") -> bytes:
    """The elements as bytes, in row-major order, or with order="F" in column-major order."""
    return _value(self, errors.ConcretizationTypeError, "tobytes()", _NUMBER).tobytes(order)


def byteswap(self: Any) -> Any:
    """The elements with their bytes in reverse order."""
    if is_complex(self.dtype):
        return arithmetic.complex(byteswap(arithmetic.real(self)), byteswap(arithmetic.imag(self)))
    size = self.dtype.itemsize
    if size == 1:
        return self
    unsigned = np.dtype(f"u{size}")
    bits = self if self.dtype == unsigned else bitcast(self, dtype=unsigned)
    swapped: Any = None
    for place in range(size):
        far = 8 * (size - 1 - place)
        shift, back = [np.asarray(n, unsigned) for n in (8 * place, far)]
        byte = comparison.bitwise_and(comparison.shift_right_logical(bits, shift), np.asarray(255, unsigned))
        moved = comparison.shift_left(byte, back)
        swapped = moved if swapped is None else comparison.bitwise_or(swapped, moved)
    return swapped if self.dtype == unsigned else bitcast(swapped, dtype=self.dtype)


# ------------------------------------------------------------------ protocols
_DLPACK_HOST = (1, 0)


def to_numpy_array(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """np.asarray(x): a read-only view if possible.

    A traced number with a derivative is refused even if its value is known, as NumPy's result would lose the
    derivative. A function with a custom derivative rule may convert it.
    """
    instead = "Use the function of the same name in rlx.numpy or rlx.scipy, or rlx.pure_callback for NumPy code."
    values = _value(self, errors.TracerArrayConversionError, "A NumPy function (np.asarray or another)", instead)
    if dtype is not None and np.dtype(dtype) != values.dtype:
        if copy is False:
            raise ValueError("A change of dtype needs a copy, but copy=False was given.")
        return values.astype(dtype)
    if copy:
        return values.copy()
    view = values.view()
    view.flags.writeable = False
    return view


def to_dlpack(
    self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """The memory as a DLPack capsule; with dl_device=(1, 0) a copy on the host if the array is on another device.

    Raises: BufferError for the memory of a device that other libraries cannot read.
    """
    if memory_of(self) is not None:
        if dl_device is None or tuple(dl_device) != _DLPACK_HOST:
            given = copies.copy(self) if copy else self
            return given._type.memory.dlpack(given.storage(), given.shape, given.dtype, stream, max_version)
        if copy is False:
            raise BufferError(f"values on {self.device!r} come to the host as a copy only")
        copy, stream = True, None
    values = _value(self, errors.TracerArrayConversionError, "DLPack", "Convert arrays outside of jit.")
    if copy or not values.flags.writeable:
        values = values.copy()  # consumers may ask for writable memory
    return values.__dlpack__(stream=stream)


def dlpack_device(self: Any) -> tuple[int, int]:
    """DLPack's (device type, device number). Raises BufferError if other libraries cannot read the memory."""
    memory = memory_of(self)
    return _DLPACK_HOST if memory is None else memory.dlpack_device()


def to_mlx(self: Any) -> Any:
    """The array as an mx.array, for MLX's functions: without a copy on the device mlx, else copied.

    Raises: DtypeError for a dtype that MLX does not have; TracerArrayConversionError for a traced array.
    """
    if is_traced(self):
        _value(self, errors.TracerArrayConversionError, "A function of MLX", "Use rlx.mlx_call inside of jit.")
        self = self.known()
    memory = memory_of(self)
    if memory is None or memory.device.platform != "mlx":
        self = placed(self, "mlx")
        memory = memory_of(self)
    assert memory is not None
    return memory.lend(self.storage(), self.shape, self.dtype)


def view(x: Any, dtype: np.dtype) -> Any:
    """The same bits as another dtype; widths may differ along the last axis."""
    if dtype == x.dtype:
        return x
    have, want = bits_of(x.dtype), bits_of(dtype)
    if x.ndim == 0 and want != have:
        raise errors.ShapeError(f"A 0-d array has no axis to view as {dtype.name}.", "Reshape it first.")
    if have < want and (want % have or x.shape[-1] % (want // have)):
        raise errors.ShapeError(
            f"{errors.describe(x)} cannot be viewed as {dtype.name}: its last axis has {x.shape[-1] * have} bits.",
            "Their number must be a multiple of the wider dtype's.",
        )
    whole = have % 8 == want % 8 == 0  # NumPy stores each number of less than 8 bits in a whole byte
    if whole and is_plain(x) and state.builder is None:
        values = x.numpy()
        bools = dtype.kind == "b"
        read = np.ascontiguousarray(values).reshape(values.shape).view(np.uint8 if bools else dtype)
        return ConcreteArray(read != 0 if bools else read)  # the byte of a bool is 0 or 1
    if x.ndim == 0:
        return shapes.reshape(view(shapes.reshape(x, shape=(1,)), dtype), shape=())
    return _of_real_parts(_view_of_numbers(_real_parts(x), _part_dtype(dtype)), dtype)


def _part_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of numbers that have bits: the parts of complex ones, bytes for bools."""
    return np.dtype(np.uint8) if dtype.kind == "b" else compute_dtype(dtype) if is_complex(dtype) else dtype


def _real_parts(x: Any) -> Any:
    if is_complex(x.dtype):
        parts = [shapes.expand_dims(part(x), (x.ndim,)) for part in (arithmetic.real, arithmetic.imag)]
        joined = shapes.concatenate(*parts, axis=x.ndim)
        return shapes.reshape(joined, shape=(*x.shape[:-1], 2 * x.shape[-1]))
    return convert_to(x, np.dtype(np.uint8)) if x.dtype.kind == "b" else x


def _view_of_numbers(x: Any, dtype: np.dtype) -> Any:
    have, want = bits_of(x.dtype), bits_of(dtype)
    if have < want:
        x = shapes.reshape(x, shape=(*x.shape[:-1], x.shape[-1] * have // want, want // have))
    result = cast_bits(x, dtype)
    if have <= want:
        return result
    return shapes.reshape(result, shape=(*result.shape[:-2], result.shape[-2] * result.shape[-1]))


def _of_real_parts(x: Any, dtype: np.dtype) -> Any:
    if not is_complex(dtype):
        return convert_to(x, dtype)
    pairs = shapes.reshape(x, shape=(*x.shape[:-1], x.shape[-1] // 2, 2))
    real, imaginary = [shapes.slice_along(pairs, i, i + 1, pairs.ndim - 1) for i in range(2)]
    return shapes.squeeze(arithmetic.complex(real, imaginary), (pairs.ndim - 1,))
