"""Dtypes as C types, and numbers as C literals."""

from __future__ import annotations

import math

import numpy as np

from rlx.ir.formats import FLOAT_FORMATS
from rlx.ir.types import compute_dtype, dtype_kind, is_complex, is_narrow

__all__ = ["helper_name", "literal", "memory_type", "register_type", "suffix", "unsigned"]


def helper_name(operation: str, *dtypes: np.dtype) -> str:
    """The name of the helper for an operation on these dtypes."""
    return "_".join(["rlx", operation, *(d.name for d in dtypes)])


def register_type(dtype: np.dtype) -> str:
    """The type of a register: the compute type, or, for narrow floats, the type of their codes."""
    if dtype.kind == "b":
        return "bool"
    if dtype in FLOAT_FORMATS:
        return f"uint{8 * dtype.itemsize}_t"
    dtype = compute_dtype(dtype)
    if dtype.kind == "f":
        return "float" if dtype.itemsize == 4 else "double"
    return f"{dtype.name}_t"


def memory_type(dtype: np.dtype) -> str:
    """The type of an element in memory; for complex arrays, the type of their parts."""
    if dtype.kind == "b":
        return "uint8_t"
    if is_narrow(dtype) and not is_complex(dtype):
        return f"uint{8 * dtype.itemsize}_t"
    return register_type(dtype)


def unsigned(dtype: np.dtype) -> str:
    """The unsigned type, of at least 32 bits, in which integers of `dtype` are computed without overflow."""
    return f"uint{max(32, 8 * dtype.itemsize)}_t"


def suffix(dtype: np.dtype) -> str:
    """The suffix of libm's function names."""
    return "f" if dtype.itemsize == 4 else ""


def literal(dtype: np.dtype, value: bool | int | float) -> str:
    """A literal for a register of dtype."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype_kind(dtype) == "f":
        wide = dtype.name == "float64"
        return _real(float(value), wide)
    return _integer(int(value), 8 * compute_dtype(dtype).itemsize, dtype_kind(dtype) == "u")


def _real(value: float, wide: bool) -> str:
    end = "" if wide else "f"
    if math.isnan(value) or math.isinf(value):
        name = "NAN" if math.isnan(value) else "INFINITY"
        text = f"(double){name}" if wide else name
        return f"(-{text})" if value < 0 else f"({text})" if wide else text
    text = f"{value:.1f}" if abs(value) < 1e4 else ""
    if not text or float(text) != value or value * 2 != int(value * 2):
        mantissa, exponent = float(value).hex().split("p")
        text = f"{mantissa.rstrip('0') if '.' in mantissa else mantissa}p{exponent}".replace(".p", "p")
    return f"({text}{end})" if text.startswith("-") else text + end


def _integer(value: int, bits: int, is_unsigned: bool) -> str:
    if is_unsigned:
        return f"UINT64_C({value})" if bits == 64 else f"{value}u" if bits == 32 else str(value)
    if bits >= 32 and value == -(1 << (bits - 1)):
        return f"INT{bits}_MIN"
    text = f"INT64_C({value})" if bits == 64 else str(value)
    return f"({text})" if value < 0 else text
