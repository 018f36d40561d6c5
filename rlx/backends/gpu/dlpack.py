"""DLPack: capsules over rlx's memory, and the contents of other libraries' capsules, as structures of its header."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from rlx.backends.cpu.runtime.compile import compile_ir
from rlx.ir.types import dtype_of

__all__ = ["KINDS", "Lent", "borrowed_by_interface", "lend", "taken"]

KINDS = {"cuda": 2, "opencl": 4, "rocm": 10}  # DLDeviceType
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLDataTypeCode by the kind of a dtype
_NAMED_CODES = {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14,
}  # fmt: skip
_READ_ONLY = 1  # a bit of the flags
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
# the argument is a capsule being destroyed: no new reference may be taken
_was_valid = _api("PyCapsule_IsValid", c_int, c_void_p, c_char_p)
_last_pointer = _api("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)

# ------------------------------------------------------------------ capsules of rlx's arrays
_lent: dict[int, tuple[object, ...]] = {}  # the objects that an exported record needs, by the record's address


@_Function
def _deleter(address: int) -> None:
    _lent.pop(address, None)


@_Function
def _release(capsule: int) -> None:
    """Drop the record of a capsule that is deleted, unless another library has taken it."""
    for name in _RECORDS:
        if _was_valid(capsule, name):
            _lent.pop(_last_pointer(capsule, name), None)


@cache
def _destructor() -> int:
    """The address of capsules' destructor.

    Python cannot run while an error is set, for example when NumPy drops a capsule of a device that it refuses. So the
    destructor is native code that saves and restores the error.
    """
    functions = (ctypes.pythonapi.PyErr_Fetch, _release, ctypes.pythonapi.PyErr_Restore)
    fetch, release, restore = (f"inttoptr (i64 {ctypes.cast(f, c_void_p).value} to ptr)" for f in functions)
    text = f"""
define void @rlx_delete_capsule(ptr %capsule) {{
  %kind = alloca ptr
  %value = alloca ptr
  %trace = alloca ptr
  call void {fetch}(ptr %kind, ptr %value, ptr %trace)
  call void {release}(ptr %capsule)
  %first = load ptr, ptr %kind
  %second = load ptr, ptr %value
  %third = load ptr, ptr %trace
  call void {restore}(ptr %first, ptr %second, ptr %third)
  ret void
}}"""
    return compile_ir(text, "rlx_delete_capsule")[1]


def lend(
    owner: object,
    pointer: int,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
    device: tuple[int, int],
    max_version: Any,
) -> Any:
    """A capsule over dense memory; `owner` is kept until the capsule, or the tensor taken from it, is freed.

    Its tensor is read-only if the capsule's version can express that. Raises BufferError for a dtype missing in DLPack.
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
    return _new(address, name, _destructor())


# ------------------------------------------------------------------ other libraries'
@dataclass(frozen=True, slots=True)
class Lent:
    """The contents of a capsule: dense memory at `pointer` + `offset`. `release` is called once, after it was read.

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
        """The size of the elements in bytes."""
        return prod(self.shape) * self.dtype.itemsize


def taken(array: Any, stream: int | None) -> Lent:
    """The memory of another library's array; work queued on `stream` later runs after that library's work.

    Raises: BufferError for an array that is not dense, or whose dtype rlx does not have.
    """
    try:
        capsule = array.__dlpack__(stream=stream, max_version=_VERSION)
    except TypeError:  # from before version 1.0
        capsule = None
    return _held(array.__dlpack__(stream=stream) if capsule is None else capsule)


def _held(capsule: Any) -> Lent:
    """The contents of a capsule, which is consumed."""
    name = next((name for name in _RECORDS if _is_valid(capsule, name)), None)
    if name is None:
        raise BufferError("a DLPack capsule can be taken once")
    address = _pointer(capsule, name)
    record = _RECORDS[name].from_address(address)
    if isinstance(record, _Versioned) and record.major > _VERSION[0]:
        raise BufferError(f"DLPack {record.major}.{record.minor} is newer than the version that rlx reads, 1.x")
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
    """The memory of an array that has CUDA's array interface; the caller has to wait for its stream.

    Raises: BufferError for an array that is not dense, or whose dtype rlx does not have.
    """
    described = array.__cuda_array_interface__
    found = np.dtype(described["typestr"])
    if described.get("mask") is not None or not found.isnative:
        raise BufferError("rlx supports neither masked arrays nor swapped byte order")
    try:
        dtype = dtype_of(found)
    except TypeError:
        raise BufferError(f"rlx has no dtype for {found}") from None
    shape = tuple(described["shape"])
    _check_dense(shape, described.get("strides"), dtype.itemsize)
    held = [array]
    return Lent(described["data"][0], 0, shape, dtype, held.clear)
