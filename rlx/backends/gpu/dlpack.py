"""DLPack: capsules over memory of ours, and what is in those of other libraries, as the structures of its header."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rlx.ir.types import dtype_of

__all__ = ["KINDS", "Lent", "borrowed_by_interface", "lend", "taken"]

KINDS = {"cuda": 2, "opencl": 4, "rocm": 10}  # DLDeviceType
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLDataTypeCode by the kind of a dtype
_NAMED_CODES = {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14,
}  # fmt: skip
_READ_ONLY = 1  # of the flags
_VERSION = (1, 0)


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)), ("byte_offset", c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
        ("tensor", _Tensor),
    )  # fmt: skip


_Record = _Managed | _Versioned
_RECORDS: dict[bytes, type[_Record]] = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
_USED = {name: b"used_" + name for name in _RECORDS}
_Function = ctypes.CFUNCTYPE(None, c_void_p)


def _api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _api("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
_pointer = _api("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_is_valid = _api("PyCapsule_IsValid", c_int, py_object, c_char_p)
_rename = _api("PyCapsule_SetName", c_int, py_object, c_char_p)
# of a capsule that is going: nothing may refer to it again
_was_valid = _api("PyCapsule_IsValid", c_int, c_void_p, c_char_p)
_last_pointer = _api("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)

# ------------------------------------------------------------------ ours
_lent: dict[int, tuple[object, ...]] = {}  # what a record that was handed out stands on, by its address


@_Function
def _deleter(address: int) -> None:
    _lent.pop(address, None)


@_Function
def _capsule_goes(capsule: int) -> None:
    """Nobody has taken the record."""
    for name in _RECORDS:
        if _was_valid(capsule, name):
            _lent.pop(_last_pointer(capsule, name), None)


def lend(
    owner: object,
    pointer: int,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
    device: tuple[int, int],
    max_version: Any,
) -> Any:
    """A capsule over dense memory, which `owner` keeps as long as somebody has the capsule or what was in it.

    Its tensor is read-only where its version can say so. Raises BufferError for a dtype that DLPack has not.
    """
    plain = isinstance(dtype, np.dtype) and dtype.isbuiltin == 1
    code = _CODES.get(dtype.kind) if plain else _NAMED_CODES.get(dtype.name)
    if code is None:
        raise BufferError(f"DLPack has no {dtype.name}: convert the array first, x.astype(...)")
    name = b"dltensor_versioned" if max_version is not None and max_version[0] >= _VERSION[0] else b"dltensor"
    record = _RECORDS[name]()
    sizes = (c_int64 * len(shape))(*shape)
    strides = (c_int64 * len(shape))(*(prod(shape[n + 1 :]) for n in range(len(shape))))
    record.tensor = _Tensor(pointer, *device, len(shape), code, 8 * dtype.itemsize, 1, sizes, strides, offset)
    record.deleter = ctypes.cast(_deleter, c_void_p)
    if isinstance(record, _Versioned):
        record.major, record.minor = _VERSION
        record.flags = _READ_ONLY
    address = ctypes.addressof(record)
    _lent[address] = record, sizes, strides, owner
    return _new(address, name, ctypes.cast(_capsule_goes, c_void_p))


# ------------------------------------------------------------------ other libraries'
@dataclass(frozen=True, slots=True)
class Lent:
    """What a capsule held: dense memory from `pointer` + `offset` on. `release` is called once, when it has been read.

    >>> Lent(4096, 0, (2, 3), np.dtype("float32"), lambda: None).nbytes
    24
    """

    pointer: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype
    release: Callable[[], None]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize


def taken(array: Any, stream: int | None) -> Lent:
    """The memory of another library's array; what is queued on `stream` comes after what that library has queued.

    Raises: BufferError for what is not dense, or of a dtype that rlx has not.
    """
    try:
        capsule = array.__dlpack__(stream=stream, max_version=_VERSION)
    except TypeError:  # from before version 1.0
        capsule = None
    return _held(array.__dlpack__(stream=stream) if capsule is None else capsule)


def _held(capsule: Any) -> Lent:
    """What is in a capsule, which is used up."""
    name = next((name for name in _RECORDS if _is_valid(capsule, name)), None)
    if name is None:
        raise BufferError("a DLPack capsule can be taken once")
    address = _pointer(capsule, name)
    record = _RECORDS[name].from_address(address)
    if isinstance(record, _Versioned) and record.major > _VERSION[0]:
        raise BufferError(f"DLPack {record.major}.{record.minor} is newer than what rlx reads, 1.x")
    tensor = record.tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    dtype = _dtype(tensor.code, tensor.bits, tensor.lanes)
    _check_dense(shape, strides, 1)
    _rename(capsule, _USED[name])
    deleter = record.deleter

    def release() -> None:
        if deleter:
            _Function(deleter)(address)

    return Lent(tensor.data or 0, tensor.byte_offset, shape, dtype, release)


def _dtype(code: int, bits: int, lanes: int) -> np.dtype:
    kinds = {number: kind for kind, number in _CODES.items()}
    names = {number: name for name, number in _NAMED_CODES.items()}
    try:
        found = dtype_of(names[code]) if code in names else np.dtype(f"{kinds[code]}{bits // 8}")
    except (KeyError, TypeError):
        found = None
    if found is None or lanes != 1 or 8 * found.itemsize != bits:
        raise BufferError(f"rlx has no dtype for DLPack's type {code} of {bits} bits and {lanes} lanes")
    return found


def _check_dense(shape: tuple[int, ...], strides: tuple[int, ...] | None, unit: int) -> None:
    """Raises BufferError for strides, counted in `unit`, with gaps between the elements, or another order of axes."""
    if strides is None or 0 in shape:
        return
    expected = [unit * prod(shape[n + 1 :]) for n in range(len(shape))]
    if any(size > 1 and found != wanted for size, found, wanted in zip(shape, strides, expected, strict=True)):
        raise BufferError(
            f"an array of shape {shape} and strides {strides} is not contiguous: pass cupy.ascontiguousarray(x)"
            " or x.contiguous()"
        )


def borrowed_by_interface(array: Any) -> Lent:
    """The memory of an array that describes itself by CUDA's array interface; its stream has to be waited for.

    Raises: BufferError for what is not dense, or of a dtype that rlx has not.
    """
    described = array.__cuda_array_interface__
    found = np.dtype(described["typestr"])
    if described.get("mask") is not None or not found.isnative:
        raise BufferError("rlx has neither masked arrays nor bytes in the other order")
    try:
        dtype = dtype_of(found)
    except TypeError:
        raise BufferError(f"rlx has no dtype for {found}") from None
    shape = tuple(described["shape"])
    _check_dense(shape, described.get("strides"), dtype.itemsize)
    held = [array]
    return Lent(described["data"][0], 0, shape, dtype, held.clear)
