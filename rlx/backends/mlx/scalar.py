"""The scalar alphabet over MLX: one function of arrays for each operation, correct even where MLX differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rlx.backends.loops.straight_line import straight_line
from rlx.backends.mlx import functions
from rlx.backends.mlx.library import ALIKE, MxArray, dtype_of_memory, mx
from rlx.backends.mlx.narrow import decode
from rlx.code.functions import Function
from rlx.code.tree import Apply, Declare, Expression, Number, Register, Return
from rlx.ir.formats import INTEGER_FORMATS
from rlx.ir.kernels import Instruction
from rlx.ir.types import compute_dtype, dtype_kind, is_float, is_narrow

__all__ = ["ScalarArray", "combine", "constant", "encode", "operation"]


class ScalarArray:
    """A scalar over the iteration space: its array, its dtype, and its number if it is the same everywhere."""

    __slots__ = ("array", "dtype", "known")

    def __init__(self, array: MxArray, dtype: np.dtype, known: Any = None) -> None:
        self.array = array
        self.dtype = dtype
        self.known = known


def constant(number: Any, dtype: np.dtype) -> MxArray:
    """A number as an array without dimensions, exactly."""
    return mx.array(np.array(number, dtype), dtype_of_memory(dtype))


def operation(instruction: Instruction, arguments: Sequence[ScalarArray]) -> MxArray:
    """The array of an instruction of the scalar alphabet."""
    name, dtype = instruction.op, instruction.dtype
    if name == "cast":
        return _cast(arguments[0], dtype)
    if name == "bitcast":
        wanted = dtype_of_memory(dtype)
        array = arguments[0].array
        return array if array.dtype == wanted else mx.view(array, wanted)
    kind = dtype_kind(arguments[-1].dtype)
    if kind in "iu" and name in _INTEGERS:
        return _INTEGERS[name](*arguments)
    return _OPERATIONS[name](*(a.array for a in arguments))


def combine(reducer: str, x: MxArray, y: MxArray) -> MxArray:
    """Combine two arrays with a reducer."""
    return _OPERATIONS[reducer](x, y)


def _evaluated(function: Function, x: MxArray) -> MxArray:
    """The result of a straight-line function of one array."""
    (parameter,) = function.parameters
    found = {parameter.name: ScalarArray(x, parameter.dtype)}

    def value(expression: Expression) -> ScalarArray:
        match expression:
            case Register(_, name):
                return found[name]
            case Number(dtype, number):
                return ScalarArray(constant(number, dtype), dtype, number)
            case Apply(dtype, op, arguments, attribute):
                instruction = Instruction(op, tuple(range(len(arguments))), dtype, attribute)
                return ScalarArray(operation(instruction, [*map(value, arguments)]), dtype)
        raise AssertionError(f"{expression} is not of a straight-line function")

    for statement in function.body:
        match statement:
            case Declare(register, computed):
                found[register.name] = value(computed)
            case Return(result):
                return value(result).array
    raise AssertionError(f"{function.name} ends without a result")


# ------------------------------------------------------------------ casts
def encode(dtype: np.dtype, numbers: MxArray) -> MxArray:
    """The codes nearest to float numbers, ties to even; the low bits of integers."""
    if dtype in INTEGER_FORMATS:
        return mx.bitwise_and(numbers.astype(mx.uint8), (1 << INTEGER_FORMATS[dtype].bits) - 1)
    if numbers.dtype == mx.float64:
        half = dtype.name == "float16"
        numbers = _evaluated(straight_line("round_to_odd_float64"), numbers) if half else numbers.astype(mx.float32)
    if dtype.name in ALIKE:
        return mx.view(numbers.astype(ALIKE[dtype.name]), mx.uint16)
    return _evaluated(straight_line(f"encode_{dtype.name}"), numbers)


def _cast(value: ScalarArray, dtype: np.dtype) -> MxArray:
    source, array = value.dtype, value.array
    if source == dtype:
        return array
    if is_narrow(source):
        source, array = compute_dtype(source), decode(source, array)
    if dtype_kind(dtype) == "b":
        return array != 0
    if dtype_kind(dtype) in "iu" and is_float(source):
        target = compute_dtype(dtype)
        number = _saturated(array, source, dtype)
        return encode(dtype, number) if is_narrow(dtype) else number.astype(dtype_of_memory(target))
    if is_narrow(dtype):
        return encode(dtype, array.astype(mx.float32) if is_float(dtype) and not is_float(source) else array)
    return array.astype(dtype_of_memory(dtype))


def _saturated(array: MxArray, source: np.dtype, dtype: np.dtype) -> MxArray:
    """Floats as integers of `dtype` (of its byte, if it is narrower): truncated, clamped, 0 for NaN."""
    info = ml_dtypes.iinfo(dtype)
    least, most = int(info.min), int(info.max)
    target = compute_dtype(dtype)
    low, high = array <= constant(least, source), array >= constant(float(most), source)
    outside = mx.logical_or(mx.logical_or(low, high), mx.isnan(array))
    whole = mx.where(outside, constant(0, source), array).astype(dtype_of_memory(target))
    whole = mx.where(high, constant(most, target), whole)
    return mx.where(low, constant(least, target), whole)


# ------------------------------------------------------------------ integers
def _width(dtype: np.dtype) -> int:
    return 8 * dtype.itemsize


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"u{dtype.itemsize}")


def _number(value: ScalarArray) -> int | None:
    return None if value.known is None else int(value.known)


def _same(array: MxArray, number: int, dtype: np.dtype) -> MxArray:
    return array == constant(number, dtype)


def _quotient(x: ScalarArray, y: ScalarArray) -> MxArray:
    """Truncating division; the divisor is neither 0 nor -1. MLX rounds down, since recent versions."""
    quotient = mx.floor_divide(x.array, y.array)
    if dtype_kind(x.dtype) == "u":
        return quotient
    rest = x.array - quotient * y.array
    one, zero = constant(1, x.dtype), constant(0, x.dtype)
    return quotient + mx.where(mx.logical_and(rest != 0, (rest < 0) != (x.array < 0)), one, zero)


def _guarded(y: ScalarArray) -> tuple[MxArray | None, MxArray | None, ScalarArray]:
    """The masks of divisors 0 and -1 (None: nowhere), and a divisor that is neither."""
    number, signed = _number(y), dtype_kind(y.dtype) == "i"
    if number is not None and (number > 0 or (signed and number < -1)):
        return None, None, y
    zero = _same(y.array, 0, y.dtype)
    minus = _same(y.array, -1, y.dtype) if signed else None
    unsafe = zero if minus is None else mx.logical_or(zero, minus)
    return zero, minus, ScalarArray(mx.where(unsafe, constant(1, y.dtype), y.array), y.dtype)


def _divide(x: ScalarArray, y: ScalarArray) -> MxArray:
    zero, minus, safe = _guarded(y)
    quotient = _quotient(x, safe)
    if minus is not None:
        quotient = mx.where(minus, mx.negative(x.array), quotient)
    if zero is None:
        return quotient
    ones = -1 if dtype_kind(x.dtype) == "i" else int(ml_dtypes.iinfo(x.dtype).max)
    return mx.where(zero, constant(ones, x.dtype), quotient)


def _remainder(x: ScalarArray, y: ScalarArray) -> MxArray:
    zero, minus, safe = _guarded(y)
    rest = x.array - _quotient(x, safe) * safe.array
    if zero is None:
        return rest
    nothing = zero if minus is None else mx.logical_or(zero, minus)
    return mx.where(nothing, constant(0, x.dtype), rest)


def _shifted(
    x: MxArray, amount: ScalarArray, shift: Callable[..., MxArray], beyond: int | None, dtype: np.dtype
) -> MxArray:
    """x shifted by an unsigned amount; for amounts from the width on `beyond`, or (None) the shift by width - 1."""
    width, number = _width(dtype), _number(amount)
    if number is not None:
        if 0 <= number < width:
            return shift(x, constant(number, dtype))
        if beyond is None:
            return shift(x, constant(width - 1, dtype))
        return mx.broadcast_to(constant(beyond, dtype), x.shape)
    bits = amount.array.astype(dtype_of_memory(_unsigned(amount.dtype)))
    inside = bits < constant(width, _unsigned(amount.dtype))
    steps = mx.where(inside, amount.array, constant(width - 1, amount.dtype)).astype(x.dtype)
    shifted = shift(x, steps)
    return shifted if beyond is None else mx.where(inside, shifted, constant(beyond, dtype))


def _shift_left(x: ScalarArray, amount: ScalarArray) -> MxArray:
    return _shifted(x.array, amount, mx.left_shift, 0, x.dtype)


def _shift_right_logical(x: ScalarArray, amount: ScalarArray) -> MxArray:
    unsigned = _unsigned(x.dtype)
    bits = _recast(x.array, unsigned)
    return _recast(_shifted(bits, amount, mx.right_shift, 0, unsigned), x.dtype)


def _shift_right_arithmetic(x: ScalarArray, amount: ScalarArray) -> MxArray:
    signed = np.dtype(f"i{x.dtype.itemsize}")
    number = _recast(x.array, signed)
    return _recast(_shifted(number, amount, mx.right_shift, None, signed), x.dtype)


def _recast(array: MxArray, dtype: np.dtype) -> MxArray:
    """Integers of the same width and bits."""
    wanted = dtype_of_memory(dtype)
    return array if array.dtype == wanted else array.astype(wanted)


def _count_ones(bits: MxArray, dtype: np.dtype) -> MxArray:
    """The number of set bits of unsigned integers, by sums of halves, quarters, ..."""
    width, full = _width(dtype), (1 << _width(dtype)) - 1

    def number(value: int) -> MxArray:
        return constant(value & full, dtype)

    def shift(x: MxArray, by: int) -> MxArray:
        return mx.right_shift(x, number(by))

    pairs, fours, eights = (number(full // 3), number(full // 5), number(full // 17))
    bits = bits - mx.bitwise_and(shift(bits, 1), pairs)
    bits = mx.bitwise_and(bits, fours) + mx.bitwise_and(shift(bits, 2), fours)
    bits = mx.bitwise_and(bits + shift(bits, 4), eights)
    return shift(bits * number(full // 255), width - 8) if width > 8 else bits


def _population_count(x: ScalarArray) -> MxArray:
    unsigned = _unsigned(x.dtype)
    return _recast(_count_ones(_recast(x.array, unsigned), unsigned), x.dtype)


def _count_leading_zeros(x: ScalarArray) -> MxArray:
    unsigned, width, step = _unsigned(x.dtype), _width(x.dtype), 1
    bits = _recast(x.array, unsigned)
    while step < width:
        bits = mx.bitwise_or(bits, mx.right_shift(bits, constant(step, unsigned)))
        step *= 2
    return _recast(constant(width, unsigned) - _count_ones(bits, unsigned), x.dtype)


def _integer_absolute(x: ScalarArray) -> MxArray:
    return x.array if dtype_kind(x.dtype) == "u" else mx.abs(x.array)


_INTEGERS: dict[str, Callable[..., MxArray]] = {
    "div": _divide,
    "rem": _remainder,
    "abs": _integer_absolute,
    "sign": lambda x: mx.sign(x.array),
    "shift_left": _shift_left,
    "shift_right_logical": _shift_right_logical,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "population_count": _population_count,
    "count_leading_zeros": _count_leading_zeros,
}


# ------------------------------------------------------------------ floats, and all dtypes
def _sign(x: MxArray) -> MxArray:
    return mx.where(mx.logical_or(x == 0, mx.isnan(x)), x, mx.sign(x))


_OPERATIONS: dict[str, Callable[..., MxArray]] = {
    "add": mx.add,
    "sub": mx.subtract,
    "mul": mx.multiply,
    "div": mx.divide,
    "rem": functions.fmod,
    "min": mx.minimum,
    "max": mx.maximum,
    "neg": mx.negative,
    "abs": mx.abs,
    "sign": _sign,
    "pow": mx.power,
    "atan2": mx.arctan2,
    "nextafter": functions.nextafter,
    "copysign": functions.copysign,
    "fma": functions.fma,
    "floor": mx.floor,
    "ceil": mx.ceil,
    "round_even": mx.round,
    "trunc": mx.trunc,
    "sqrt": mx.sqrt,
    "rsqrt": mx.rsqrt,
    "cbrt": functions.cbrt,
    "exp": functions.exp,
    "exp2": functions.exp2,
    "expm1": mx.expm1,
    "log": mx.log,
    "log1p": mx.log1p,
    "log2": mx.log2,
    "sin": functions.sin,
    "cos": functions.cos,
    "tan": mx.tan,
    "asin": mx.arcsin,
    "acos": mx.arccos,
    "atan": mx.arctan,
    "sinh": mx.sinh,
    "cosh": mx.cosh,
    "tanh": mx.tanh,
    "asinh": mx.arcsinh,
    "acosh": mx.arccosh,
    "atanh": mx.arctanh,
    "erf": functions.erf,
    "erfc": functions.erfc,
    "erf_inv": functions.erf_inv,
    "logistic": functions.logistic,
    "is_finite": lambda x: mx.abs(x) < float("inf"),
    "eq": mx.equal,
    "ne": mx.not_equal,
    "lt": mx.less,
    "le": mx.less_equal,
    "gt": mx.greater,
    "ge": mx.greater_equal,
    "and": mx.bitwise_and,
    "or": mx.bitwise_or,
    "xor": mx.bitwise_xor,
    "not": mx.bitwise_invert,
    "select": mx.where,
}
