"""The scalar operations as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.backends.cpu.emit import branching, error_functions, polynomials, trigonometry
from rlx.backends.cpu.emit.ir_text import Code, Value, bit_width, is_real
from rlx.backends.cpu.emit.narrow import decode, encode, round_to_odd, saturate
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.scalar import USER_FUNCTIONS
from rlx.ir.types import compute_dtype, dtype_kind, is_narrow

__all__ = [
    "combine",
    "load_scalar",
    "nextafter",
    "register_kind",
    "rounded",
    "spell",
    "storage_kind",
    "store_scalar",
    "widened",
]

Argument = tuple[Value, np.dtype]


def register_kind(dtype: np.dtype) -> str:
    """The LLVM type of a value in a register: of a narrow float it is the code, as in memory."""
    if dtype.kind == "b":
        return "i1"
    if dtype in FLOAT_FORMATS:
        return f"i{8 * dtype.itemsize}"
    dtype = compute_dtype(dtype)
    if dtype.kind == "f":
        return {4: "float", 8: "double"}[dtype.itemsize]
    return f"i{8 * dtype.itemsize}"


def storage_kind(dtype: np.dtype) -> str:
    """The LLVM type of an element in memory (of the real parts of complex ones)."""
    if dtype.kind == "c":
        return {8: "float", 16: "double"}[dtype.itemsize]
    if dtype.kind == "b" or is_narrow(dtype):
        return f"i{8 * dtype.itemsize}"
    return register_kind(dtype)


def load_scalar(code: Code, dtype: np.dtype, pointer: str, metadata: str = "") -> Value:
    """Load an element of a buffer of `dtype`."""
    stored = code.load(storage_kind(dtype), pointer, metadata)
    if dtype.kind == "b":
        return stored.not_equal(0)
    return decode(dtype, stored) if is_narrow(dtype) else stored


def store_scalar(
    code: Code, dtype: np.dtype, value: Value, pointer: str, metadata: str = ""
) -> None:
    """Store a register value in a buffer of `dtype`, rounded if that is a narrow float."""
    if dtype.kind == "b":
        value = value.convert("zext", "i8")
    elif is_narrow(dtype) and not _is_code(dtype, value):
        value = encode(dtype, value)
    code.store(value, pointer, metadata)


def widened(dtype: np.dtype, value: Value) -> Value:
    """A value of `dtype` in the dtype that is computed with."""
    return decode(dtype, value) if _is_code(dtype, value) else value


def rounded(dtype: np.dtype, value: Value) -> Value:
    """A value stored in a buffer of `dtype`, converted to the computation dtype."""
    if not is_narrow(dtype):
        return value
    return decode(dtype, value if _is_code(dtype, value) else encode(dtype, value))


def _is_code(dtype: np.dtype, value: Value) -> bool:
    """Whether a value of a narrow float is its code, not the float32 that it is computed in."""
    return dtype in FLOAT_FORMATS and not is_real(value.kind)


def combine(reducer: str, dtype: np.dtype, left: Value, right: Value, ordered: bool) -> Value:
    """left (reducer) right; `ordered` forbids the reassociation of float sums and products."""
    code = left.code
    if dtype.kind == "b":
        spelled = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(reducer, reducer)
        return code.binary(spelled, left, right)
    if reducer in ("min", "max"):
        if is_real(left.kind):  # in any order, so the sign of a zero is not determined
            return code.intrinsic(f"{reducer}imum", left, right, flags="nsz")
        return _extremum(reducer, dtype, left, right)
    flags = "" if ordered or not is_real(left.kind) else "reassoc contract"
    return code.binary(reducer, left, right, flags)


def _extremum(name: str, dtype: np.dtype, left: Value, right: Value) -> Value:
    code = left.code
    if dtype.kind == "b":
        return code.binary("and" if name == "min" else "or", left, right)
    if is_real(left.kind):
        # NaN in either operand is the result; of zeros it is the right one, as in NumPy
        chosen = left.compare("olt" if name == "min" else "ogt", right)
        return left.compare("uno", left).where(left, chosen.where(left, right))
    return code.intrinsic(f"{'u' if dtype.kind == 'u' else 's'}{name}", left, right)


def spell(code: Code, op: str, target: np.dtype, attribute: Any, arguments: list[Argument]) -> Value:
    """The value of an operation of the alphabet; a "summed" product may be added without being rounded."""
    if op in ("cast", "bitcast"):
        return (_cast if op == "cast" else _bitcast)(target, *arguments[0])
    values = [value for value, _ in arguments]
    if op == "special":
        return _special(code, attribute, target, values)
    if attribute == "summed":
        return code.binary(op, *values, "contract")
    if op == "select":
        return values[0].where(values[1], values[2])
    dtype = arguments[0][1]
    if op in ("min", "max"):
        return _extremum(op, dtype, *values)
    if op in _COMPARISONS:
        return _compare(op, dtype, *values)
    if is_real(values[0].kind):
        return _real(code, op, values)
    return _INTEGER[op](dtype, *values)


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _compare(op: str, dtype: np.dtype, left: Value, right: Value) -> Value:
    if is_real(left.kind):
        return left.compare("une" if op == "ne" else "o" + op, right)
    if op in ("eq", "ne"):
        return left.compare(op, right)
    return left.compare(("s" if dtype.kind == "i" else "u") + op, right)


_INTRINSICS = {
    "floor": "floor",
    "ceil": "ceil",
    "round_even": "roundeven",
    "trunc": "trunc",
    "sqrt": "sqrt",
    "abs": "fabs",
    "copysign": "copysign",
    "fma": "fma",
}


def _real(code: Code, op: str, values: list[Value]) -> Value:
    if op in ("add", "sub", "mul"):
        return code.binary(op, values[0], values[1])
    if op == "div":
        return values[0] / values[1]
    if op == "neg":
        return -values[0]
    if op in _INTRINSICS:
        return code.intrinsic(_INTRINSICS[op], *values)
    functions = branching.FUNCTIONS if code.module.scalar and op in branching.FUNCTIONS else _REAL_FUNCTIONS
    return code.function(functions[op], *values)


def _sign(x: Value) -> Value:
    one = x.code.intrinsic("copysign", x.lift(1.0), x)
    return (x.equal(0.0) | x.is_nan()).where(x, one)


def _is_finite(x: Value) -> Value:
    return abs(x).compare("olt", float("inf"))


def _rsqrt(x: Value) -> Value:
    return 1.0 / x.call("sqrt")


def _rem(x: Value, y: Value) -> Value:
    return x.code.binary("rem", x, y)


def nextafter(x: Value, y: Value) -> Value:
    """The next number after x, towards y."""
    bits = x.bits()
    grows = (x < y).compare("eq", x > 0.0)
    moved = bits + grows.where(x.bits().lift(1), -1)
    sign = y.bits() & -(1 << (bit_width(x.kind) - 1))
    moved = x.equal(0.0).where(sign | 1, moved)
    stepped = x.equal(y).where(y, moved.as_float())
    return (x.is_nan() | y.is_nan()).where(x + y, stepped)


_REAL_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "sign": _sign,
    "is_finite": _is_finite,
    "rsqrt": _rsqrt,
    "rem": _rem,
    "nextafter": nextafter,
    **polynomials.FUNCTIONS,
    **trigonometry.FUNCTIONS,
    **error_functions.FUNCTIONS,
}


def _divide(dtype: np.dtype, left: Value, right: Value) -> Value:
    """Division by zero gives all ones; the least number divided by -1 wraps."""
    zero = right.equal(0)
    if dtype.kind == "u":
        return zero.where(-1, left.code.binary("udiv", left, zero.where(1, right)))
    minus = right.equal(-1)
    quotient = left.code.binary("sdiv", left, (zero | minus).where(1, right))
    return zero.where(-1, minus.where(-left, quotient))


def _remainder(dtype: np.dtype, left: Value, right: Value) -> Value:
    zero = right.equal(0)
    if dtype.kind == "u":
        return zero.where(0, left.code.binary("urem", left, zero.where(1, right)))
    trivial = zero | right.equal(-1)
    return trivial.where(0, left.code.binary("srem", left, trivial.where(1, right)))


def _shift(command: str) -> Callable[[np.dtype, Value, Value], Value]:
    def emit(dtype: np.dtype, left: Value, right: Value) -> Value:
        width = bit_width(left.kind)
        inside = right.compare("ult", width)
        if command == "ashr":
            return left.arithmetic_shift(inside.where(right, width - 1))
        return inside.where(left.code.binary(command, left, inside.where(right, 0)), 0)

    return emit


def _integer_sign(dtype: np.dtype, x: Value) -> Value:
    positive = x.not_equal(0).convert("zext", x.kind)
    return positive if dtype.kind == "u" else (x < 0).where(-1, positive)


def _integer_abs(dtype: np.dtype, x: Value) -> Value:
    return x if dtype.kind == "u" else (x < 0).where(-x, x)


def _count_leading_zeros(dtype: np.dtype, x: Value) -> Value:
    code, kind = x.code, x.kind
    code.module.declare(f"llvm.ctlz.{kind}", kind, (kind, "i1"))
    return code.emit(kind, f"call {kind} @llvm.ctlz.{kind}({kind} {x.name}, i1 false)")


_INTEGER: dict[str, Callable[..., Value]] = {
    "add": lambda _, x, y: x + y,
    "sub": lambda _, x, y: x - y,
    "mul": lambda _, x, y: x * y,
    "div": _divide,
    "rem": _remainder,
    "neg": lambda _, x: -x,
    "abs": _integer_abs,
    "sign": _integer_sign,
    "and": lambda _, x, y: x & y,
    "or": lambda _, x, y: x | y,
    "xor": lambda _, x, y: x ^ y,
    "not": lambda _, x: ~x,
    "shift_left": _shift("shl"),
    "shift_right_logical": _shift("lshr"),
    "shift_right_arithmetic": _shift("ashr"),
    "population_count": lambda _, x: x.call("ctpop"),
    "count_leading_zeros": _count_leading_zeros,
}


def _cast(target: np.dtype, value: Value, source: np.dtype) -> Value:
    kind = register_kind(compute_dtype(target))
    if source in FLOAT_FORMATS:
        value = decode(source, value)
    if target.kind == "b":
        return value.not_equal(0)
    if is_real(value.kind):
        if not is_real(kind):
            return _saturate(target, value)
        if target.name == "float16" and value.kind == "double":
            number = round_to_odd(value)
        else:  # ml_dtypes also converts float64 to the other narrow floats via float32
            number = value.convert("fpext" if kind == "double" else "fptrunc", kind)
    elif is_real(kind):
        # a direct conversion to a narrow float would round twice; 24 bits are ample for the check
        number = value.convert("uitofp" if dtype_kind(source) in "bu" else "sitofp", kind)
    elif bit_width(kind) < bit_width(value.kind):
        number = value.convert("trunc", kind)
    else:
        number = value.convert("zext" if dtype_kind(source) in "bu" else "sext", kind)
    if target in FLOAT_FORMATS:
        return encode(target, number)
    return decode(target, encode(target, number)) if is_narrow(target) else number


def _saturate(target: np.dtype, value: Value) -> Value:
    kind = register_kind(target)
    name = f"fpto{'u' if dtype_kind(target) == 'u' else 's'}i.sat"
    suffix = {"float": "f32", "double": "f64"}[value.kind]
    number = value.code.call(f"llvm.{name}.{kind}.{suffix}", kind, value)
    return saturate(INTEGER_FORMATS[target], number) if target in INTEGER_FORMATS else number


def _bitcast(target: np.dtype, value: Value, source: np.dtype) -> Value:
    stored = encode(source, value) if source in INTEGER_FORMATS else value
    if target in INTEGER_FORMATS:
        return decode(target, stored)
    if stored.kind == register_kind(target):
        return stored
    return stored.convert("bitcast", register_kind(target))


def _special(code: Code, name: str, dtype: np.dtype, values: list[Value]) -> Value:
    """A function bound at run time, which works in float64, or in the dtypes of a user's function."""
    kind = register_kind(dtype)
    if name in USER_FUNCTIONS:
        return code.call(f"rlx_special_{name}", kind, *values)
    wide = [v.convert("fpext", "double") for v in values]
    return code.call(f"rlx_special_{name}", "double", *wide).convert("fptrunc", kind)
