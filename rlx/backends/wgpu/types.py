"""Dtypes as WGSL types, and numbers as WGSL literals."""

from __future__ import annotations

import math

import numpy as np

from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.types import compute_dtype, dtype_kind, element_dtype

__all__ = ["RESERVED", "literal", "memory_bits", "type_name", "wrapped"]

_SUFFIX = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu", "f32": "f", "f64": "lf"}
# keywords, reserved words and built-in functions that a kernel could be named after
RESERVED = frozenset(
    """alias break case const const_assert continue continuing default diagnostic discard else enable false fn for
    if let loop override requires return struct switch true var while abs all any ceil clamp cos exp floor fma length
    log max min mix pow round select sign sin sqrt step tan trunc launch item group grid_place grid_size
    local_item""".split()
)


def type_name(dtype: np.dtype, longs: bool) -> str:
    """The type of a register; codes of narrow numbers are words. longs: whether there are 64-bit integers."""
    if dtype.kind == "b":
        return "bool"
    if dtype in FLOAT_FORMATS:
        return "u32"
    dtype = element_dtype(compute_dtype(dtype))
    if dtype.kind == "f":
        return f"f{8 * dtype.itemsize}"
    return f"{dtype_kind(dtype)}{64 if dtype.itemsize == 8 and longs else 32}"


def memory_bits(dtype: np.dtype) -> int:
    """Bits of an element in memory."""
    return 8 * element_dtype(dtype).itemsize


def wrapped(value: str, dtype: np.dtype) -> str:
    """The value of an integer register modulo two to the dtype's width."""
    if dtype_kind(dtype) not in "iu" or dtype.itemsize >= 4 or dtype in INTEGER_FORMATS:
        return value
    bits = 8 * dtype.itemsize
    if dtype.kind == "u":
        return f"({value} & {(1 << bits) - 1}u)"
    return f"(({value} << {32 - bits}u) >> {32 - bits}u)"


def literal(number: bool | int | float, kind: str) -> str:
    """A literal of a type; numbers without one are made of their bits, where compilers do not see that."""
    if kind == "bool":
        return "true" if number else "false"
    if kind[0] == "f":
        return _real(float(number), kind)
    value, bits = int(number), int(kind[1:])
    assert -(1 << (bits - 1)) <= value < 1 << bits, f"{value} is not an {kind}"
    if value == -(1 << (bits - 1)):
        return f"({literal(value + 1, kind)} - {literal(1, kind)})"
    text = f"{value}{_SUFFIX[kind]}"
    return f"({text})" if value < 0 else text


def _real(value: float, kind: str) -> str:
    if not math.isfinite(value):
        bits = int(np.float32(value).view(np.uint32))
        text = f"bitcast<f32>(rlx_bits({bits:#x}u))"
        return text if kind == "f32" else f"f64({text})"
    number = np.float32(value) if kind == "f32" else np.float64(value)
    text = np.format_float_scientific(number, trim="0") if number and not 1e-4 < abs(number) < 1e6 else str(number)
    return f"({text}{_SUFFIX[kind]})" if text.startswith("-") else text + _SUFFIX[kind]
