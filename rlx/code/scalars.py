"""The scalar alphabet in NumPy: one function of arrays for each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from rlx.ir.kernels import Instruction
from rlx.ir.scalar import SPECIAL, USER_FUNCTIONS, neutral
from rlx.ir.types import dtype_kind, is_float, is_integer, is_narrow

__all__ = ["OPERATIONS", "apply", "cast", "identity", "reducer_function"]


def apply(instruction: Instruction, arguments: Sequence[np.ndarray]) -> np.ndarray:
    """The value of an instruction of the scalar alphabet, broadcasting its arguments."""
    if instruction.op == "cast":
        return cast(arguments[0], instruction.dtype)
    if instruction.op == "bitcast":
        return arguments[0].view(instruction.dtype)
    if instruction.op == "special":
        return _special(instruction.attribute, arguments, instruction.dtype)
    return np.asarray(OPERATIONS[instruction.op](*arguments))


# ------------------------------------------------------------------ casts
def cast(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`value` in another dtype: floats become integers by truncation, saturating, NaN as 0."""
    if value.dtype == dtype:
        return value
    if dtype.kind == "b":
        return np.asarray(value != 0)
    if is_integer(dtype) and is_float(value.dtype):
        return _saturating_cast(value, dtype)
    if not is_float(value.dtype) and is_narrow(dtype) and is_float(dtype):
        value = value.astype(np.float32)
    return value.astype(dtype)


def _saturating_cast(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    wide = value.astype(np.float64)
    info = ml_dtypes.iinfo(dtype)
    # float(2**63 - 1) is 2**63, which overflows: only values strictly inside are converted
    low, high = wide <= float(info.min), wide >= float(info.max)
    inside = np.where(low | high | np.isnan(wide), 0.0, wide)
    result = np.trunc(inside).astype(dtype)
    result = np.where(low, dtype.type(info.min), result)
    return np.where(high, dtype.type(info.max), result)


# ------------------------------------------------------------------ arithmetic
def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if is_float(x.dtype):
        return np.divide(x, y)
    zero = y == 0
    divisor = np.where(zero, y.dtype.type(1), y)
    quotient = np.floor_divide(x - np.fmod(x, divisor), divisor)
    return np.where(zero, _all_ones(x.dtype), quotient)


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if is_float(x.dtype):
        return np.fmod(x, y)
    zero = y == 0
    return np.where(zero, x.dtype.type(0), np.fmod(x, np.where(zero, y.dtype.type(1), y)))


def _sign(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, x, np.sign(x))


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return np.divide(x.dtype.type(1), np.sqrt(x))


def _logistic(x: np.ndarray) -> np.ndarray:
    one = x.dtype.type(1)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, one, small) / (one + small)


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    if x.dtype == np.float32:
        return _fma_single(*(a.astype(np.float64) for a in (x, y, z)))
    return np.asarray(_fma_double(x, y, z), np.float64)


def _fma_single(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The product is exact in float64; the sum rounds to odd, which makes a second rounding harmless."""
    product = x * y
    total = product + z
    part = total - product
    error = (product - (total - part)) + (z - part)
    inexact = np.isfinite(total) & (error != 0) & ((np.asarray(total).view(np.int64) & 1) == 0)
    towards = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact, np.nextafter(total, towards), total).astype(np.float32)


def _fma_scalar(x: float, y: float, z: float) -> float:
    rounded = x * y + z
    if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
        return rounded
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return rounded  # the sign of zero
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


_fma_double = np.frompyfunc(_fma_scalar, 3, 1)


# ------------------------------------------------------------------ bits
def _all_ones(dtype: np.dtype) -> Any:
    return dtype.type(-1) if dtype_kind(dtype) == "i" else dtype.type(ml_dtypes.iinfo(dtype).max)


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _in_width(amount: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether the shift amount, read as unsigned, is below the width; and a safe amount."""
    bits = _unsigned(amount)
    inside = bits < amount.dtype.itemsize * 8
    return inside, np.where(inside, bits, bits.dtype.type(0))


def _shift_left(x: np.ndarray, amount: np.ndarray) -> np.ndarray:
    inside, safe = _in_width(amount)
    shifted = np.left_shift(_unsigned(x), safe)
    return np.where(inside, shifted, shifted.dtype.type(0)).view(x.dtype)


def _shift_right_logical(x: np.ndarray, amount: np.ndarray) -> np.ndarray:
    inside, safe = _in_width(amount)
    shifted = np.right_shift(_unsigned(x), safe)
    return np.where(inside, shifted, shifted.dtype.type(0)).view(x.dtype)


def _shift_right_arithmetic(x: np.ndarray, amount: np.ndarray) -> np.ndarray:
    inside, safe = _in_width(amount)
    signed = x.view(np.dtype(f"i{x.dtype.itemsize}"))
    last = signed.dtype.type(x.dtype.itemsize * 8 - 1)
    steps = np.where(inside, safe.view(signed.dtype), last)
    return np.asarray(np.right_shift(signed, steps)).view(x.dtype)


def _population_count(x: np.ndarray) -> np.ndarray:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _count_leading_zeros(x: np.ndarray) -> np.ndarray:
    bits = _unsigned(x)
    width = x.dtype.itemsize * 8
    step = 1
    while step < width:
        bits = bits | (bits >> bits.dtype.type(step))
        step *= 2
    return (width - np.bitwise_count(bits)).astype(x.dtype)


# ------------------------------------------------------------------ SciPy's functions
def _scipy(name: str) -> Callable[..., np.ndarray]:
    def call(*arguments: np.ndarray) -> np.ndarray:
        import scipy.special

        wide = [a.astype(np.float64) for a in arguments]
        return np.asarray(getattr(scipy.special, name)(*wide)).astype(arguments[0].dtype)

    return call


def _special(name: str, arguments: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    if name in USER_FUNCTIONS:
        return USER_FUNCTIONS[name].evaluate(*arguments)
    return SPECIAL[name].evaluate(*arguments).astype(dtype)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": _remainder,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
    "abs": np.absolute,
    "sign": _sign,
    "pow": np.power,
    "atan2": np.arctan2,
    "nextafter": np.nextafter,
    "copysign": np.copysign,
    "fma": _fma,
    "floor": np.floor,
    "ceil": np.ceil,
    "round_even": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _scipy("erf"),
    "erfc": _scipy("erfc"),
    "erf_inv": lambda x: np.copysign(_scipy("erfinv")(x), x),  # SciPy has 0. at -0.
    "logistic": _logistic,
    "is_finite": np.isfinite,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": _shift_left,
    "shift_right_logical": _shift_right_logical,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "population_count": _population_count,
    "count_leading_zeros": _count_leading_zeros,
    "select": np.where,
}

_REDUCER_FUNCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reducer_function(reducer: str) -> np.ufunc:
    """The ufunc that combines two values under a reducer."""
    return _REDUCER_FUNCTIONS[reducer]


def identity(reducer: str, dtype: np.dtype) -> Any:
    """The value that leaves others unchanged under a reducer, as a scalar of `dtype`."""
    return dtype.type(neutral(reducer, dtype))
