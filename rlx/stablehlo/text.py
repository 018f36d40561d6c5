"""Types, numbers and operations in MLIR's generic form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError
from rlx.ir.types import TensorType, dtype_kind

__all__ = ["Value", "array_attribute", "element", "literal", "number", "tensor"]

_NAMES = {
    "bool": "i1",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2fnuz": "f8E5M2FNUZ",
    "float8_e4m3b11fnuz": "f8E4M3B11FNUZ",
    "float8_e4m3": "f8E4M3",
    "float8_e3m4": "f8E3M4",
    "float8_e8m0fnu": "f8E8M0FNU",
    "float4_e2m1fn": "f4E2M1FN",
}
DTYPES = {text: name for name, text in _NAMES.items()}


def element(dtype: np.dtype) -> str:
    """The name of a dtype."""
    name = dtype.name
    if name in _NAMES:
        return _NAMES[name]
    if name.startswith("uint"):
        return f"ui{name[4:]}"
    if name.startswith("int"):
        return f"i{name[3:]}"
    raise DtypeError(f"StableHLO has no {name}.", "Convert with .astype(...) before.")


def tensor(shape: Sequence[int], dtype: np.dtype) -> str:
    """The type of an array."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element(dtype)}>"


class Value(str):
    """The name of a value, with its shape and dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __new__(cls, name: str, shape: Iterable[int], dtype: Any) -> Value:
        found = super().__new__(cls, name)
        found.shape, found.dtype = tuple(shape), dtype
        return found

    @property
    def type(self) -> str:
        """The type as text."""
        return tensor(self.shape, self.dtype)

    @property
    def tensor_type(self) -> TensorType:
        """The type as an rlx TensorType."""
        return TensorType(self.shape, self.dtype)


def number(value: Any, dtype: np.dtype) -> str:
    """A number, exact bit for bit."""
    kind = dtype_kind(dtype)
    item = np.asarray(value, dtype).reshape(())
    if kind == "b":
        return "true" if item else "false"
    if kind in "iu":
        return str(int(item))
    if kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return f"({number(item.real, part)}, {number(item.imag, part)})"
    bits = int.from_bytes(item.tobytes(), "little")
    return f"0x{bits:0{2 * dtype.itemsize}X}"


def literal(array: np.ndarray) -> str:
    """The elements of an array: a single one if all are equal, or its bytes."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.size:
        return "dense<>"
    if flat.size == 1 or flat.tobytes() == flat[:1].tobytes() * flat.size:
        return f"dense<{number(flat[0], array.dtype)}>"
    if array.dtype.name == "bool" or array.dtype.itemsize * 8 != _bits(array.dtype):
        return f"dense<{_nested(array)}>"
    return f'dense<"0x{flat.tobytes().hex().upper()}">'


def _bits(dtype: np.dtype) -> int:
    digits = "".join(c for c in element(dtype).split("<")[-1].partition("E")[0] if c.isdigit())
    return int(digits) * (2 if dtype.kind == "c" else 1)


def _nested(array: np.ndarray) -> str:
    if not array.ndim:
        return number(array, array.dtype)
    return f"[{', '.join(_nested(part) for part in array)}]"


def array_attribute(values: Iterable[int]) -> str:
    """A list of sizes or axes."""
    listed = ", ".join(map(str, values))
    return f"array<i64: {listed}>" if listed else "array<i64>"


def attributes(values: Mapping[str, str]) -> str:
    """Attributes of an operation."""
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return f" <{{{listed}}}>" if listed else ""
