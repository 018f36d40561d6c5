"""Elementwise operations as ONNX, by the scalar alphabet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Equation
from rlx.onnx.exporting.writer import FORMAT, WIDE, Names, Parts, Writer, flat, has_operator, paired
from rlx.standalone.special_functions import has_special_program, special_program
from rlx.standalone.spelling import ScalarStep, refused, scalar_code

__all__ = ["elementwise", "log1p"]

_SAME = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "abs": "Abs", "sign": "Sign", "pow": "Pow",
    "floor": "Floor", "ceil": "Ceil", "round_even": "Round", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "logistic": "Sigmoid",
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "select": "Where",
    "min": "Min", "max": "Max",
}  # fmt: skip
_BITS = {
    "and": ("And", "BitwiseAnd"),
    "or": ("Or", "BitwiseOr"),
    "xor": ("Xor", "BitwiseXor"),
    "not": ("Not", "BitwiseNot"),
}
_FLOAT64 = np.dtype(np.float64)
_ORDERED = ("lt", "le", "gt", "ge", "min", "max")
_SHIFTS = {"shift_left": "LEFT", "shift_right_logical": "RIGHT"}


def elementwise(w: Writer, equation: Equation, inputs: Names) -> Names:
    """Write each step; bool and narrow integers are computed in int64, which the operators support."""
    code = scalar_code(equation)
    found: Names = []
    shapes: list[Any] = []
    dtypes = [step.dtype for step in code.steps]
    for step in code.steps:
        args = [found[a] for a in step.args]
        operands = [dtypes[a] for a in step.args]
        if step.op == "input":
            found.append(inputs[step.attribute])
        elif step.op == "constant":
            found.append(w.constant(step.attribute, step.dtype))
        elif step.op in ("real", "imag"):
            found.append(getattr(args[0], step.op))
        elif step.op == "complex":
            found.append(Parts(*args))
        elif (name := _special_name(step)) is not None:
            whole = equation.outputs[0].type.shape
            args = [x if shapes[a] == whole else w.spread(x, whole) for x, a in zip(args, step.args, strict=True)]
            found.append(_special(w, name, args, step.dtype, whole))
            shapes.append(whole)
            continue
        else:
            found.append(_step(w, equation, step, args, operands))
        shapes.append(_shape(equation, step, [shapes[a] for a in step.args]))
    results = []
    for at, variable in zip(code.results, equation.outputs, strict=True):
        whole = shapes[at] == variable.type.shape
        texts = flat([found[at]])
        texts = texts if whole else [w.spread(text, variable.type.shape) for text in texts]
        results += paired(texts, [variable.type])
    return results


def _shape(equation: Equation, step: ScalarStep, shapes: Sequence[Any]) -> Any:
    """The shape of a step's array, which may be smaller than the result; None if unknown."""
    if step.op == "input":
        return equation.inputs[step.attribute].type.shape
    if None in shapes or (step.op == "complex" and shapes[0] != shapes[1]):
        return None
    return np.broadcast_shapes(*shapes)


def _special_name(step: ScalarStep) -> str | None:
    """The function of `special_program` that computes a step, if there is one. Runtimes lack erf of float64."""
    if step.op == "special":
        return step.attribute if has_special_program(step.attribute, plain=True) else None
    return step.op if step.op == "erf_inv" or (step.op in ("erf", "erfc") and step.dtype == _FLOAT64) else None


def _special(w: Writer, name: str, args: Names, dtype: np.dtype, shape: tuple[int, ...]) -> str:
    wide = args if dtype == _FLOAT64 else [w.cast(x, _FLOAT64) for x in args]
    (found,) = w.program(special_program(name, shape, plain=True), wide)
    return found if dtype == _FLOAT64 else w.cast(found, dtype)


def _step(w: Writer, equation: Equation, step: Any, args: Names, operands: list[np.dtype]) -> str:
    op, dtype = step.op, step.dtype
    one = w.constant(1, dtype) if dtype.kind in "iuf" else ""
    if op in _BITS:
        return w.node(_BITS[op][dtype.kind != "b"], *args)
    if op in _SHIFTS:
        return _shift(w, op, args, dtype)
    if op == "shift_right_arithmetic":
        return _shift_signed(w, args, dtype)
    if op in ("population_count", "count_leading_zeros"):
        return _count_bits(w, op, args[0], dtype)
    if op == "nextafter":
        return _next_after(w, args, dtype)
    if op == "cast":
        return _converted(w, args[0], operands[0], dtype)
    if op == "bitcast":
        if operands[0] == np.uint32 and dtype == np.float32 and not has_operator("BitCast", w.opset):
            return _float_of_bits(w, args[0])
        return w.bits(args[0], dtype)
    if op == "ne":
        return w.node("Not", _step(w, equation, step._replace(op="eq"), args, operands))
    if op == "trunc":
        return w.node("Mul", w.node("Sign", args[0]), w.node("Floor", w.node("Abs", args[0])))
    if op == "rsqrt":
        return w.node("Div", one, w.node("Sqrt", args[0]))
    if op == "fma":
        return w.node("Add", w.node("Mul", *args[:2]), args[2])
    if op == "log1p":
        return log1p(w, args[0], dtype)
    if op == "expm1":
        return _expm1(w, args[0], dtype)
    if op == "exp2":
        return w.node("Exp", w.node("Mul", args[0], w.constant(np.log(2.0), dtype)))
    if op == "log2":
        return w.node("Div", w.node("Log", args[0]), w.constant(np.log(2.0), dtype))
    if op == "erfc":
        return w.node("Sub", one, w.node("Erf", args[0]))
    if op == "is_finite":
        return w.node("Not", w.node("Or", w.node("IsInf", args[0]), w.node("IsNaN", args[0])))
    if op in ("rem", "div", "pow") and dtype == np.uint64:
        raise refused(equation, FORMAT, f"there is no {op} of uint64")
    if op == "rem":
        return w.node("Mod", *args, fmod=1)
    if op == "copysign":
        size = w.node("Abs", args[0])
        return w.node("Where", _is_negative(w, args[1], dtype), w.node("Neg", size), size)
    if op == "cbrt":
        root = w.node("Pow", w.node("Abs", args[0]), w.constant(1 / 3, dtype))
        return w.node("Mul", w.node("Sign", args[0]), root)
    if op == "atan2":
        return _atan2(w, args[0], args[1], dtype)
    if op in _DOUBLE and dtype == _FLOAT64:
        return _DOUBLE[op](w, args[0])
    if op not in _SAME:
        raise refused(equation, FORMAT, f"there is no {step.attribute if op == 'special' else op}")
    if op == "select":
        if dtype.kind not in "iu" or dtype in (*WIDE, np.uint8):
            return w.node("Where", *args)
        return w.narrowed(w.node("Where", args[0], *(w.widened(x, dtype) for x in args[1:])), dtype)
    working = operands[0]
    if working.kind in "iub" and working not in WIDE:
        wide = [w.cast(a, np.int64) for a in args]
        if working == np.uint64 and op in _ORDERED:  # compare, or choose, the numbers less 2 ** 63
            least = w.constant(np.iinfo(np.int64).min, np.int64)
            found = w.node(_SAME[op], *(w.node("Add", x, least) for x in wide))
            return found if op not in ("min", "max") else w.cast(w.node("Sub", found, least), dtype)
        found = w.node(_SAME[op], *wide)
        return found if dtype.kind == "b" and op in ("eq", "lt", "le", "gt", "ge") else w.cast(found, dtype)
    return w.node(_SAME[op], *args)


def _converted(w: Writer, x: str, given: np.dtype, wanted: np.dtype) -> str:
    """Float to integer conversion saturates, and NaN becomes 0; ONNX leaves both undefined."""
    if given.kind == "f" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        high = np.nextafter(given.type(2.0 ** (limits.bits - (wanted.kind == "i"))), given.type(0))
        known = w.node("Where", w.node("IsNaN", x), w.constant(0, given), x)
        x = w.node("Clip", known, w.constant(limits.min, given), w.constant(high, given))
    return w.cast(x, wanted)


def _float_of_bits(w: Writer, bits: str) -> str:
    """The float32 number of 32 bits, from its sign, exponent and fraction."""
    wide = w.cast(bits, np.int64)

    def number(value: float) -> str:
        return w.constant(value, np.float32)

    def part(shift: int, size: int) -> str:
        return w.node("Mod", w.node("Div", wide, w.constant(1 << shift, np.int64)), w.constant(1 << size, np.int64))

    fraction = w.node("Mul", w.cast(part(0, 23), np.float32), number(2.0**-23))
    power = part(23, 8)
    normal = w.node("Greater", power, w.constant(0, np.int64))
    whole = w.node("Where", normal, w.node("Add", fraction, number(1)), fraction)
    exponent = w.cast(w.node("Max", power, w.constant(1, np.int64)), np.float32)
    size = w.node("Mul", whole, w.node("Pow", number(2), w.node("Sub", exponent, number(127))))
    odd = w.node("Equal", power, w.constant(255, np.int64))
    infinite = w.node("Where", w.node("Equal", fraction, number(0)), number(np.inf), number(np.nan))
    size = w.node("Where", odd, infinite, size)
    return w.node("Where", w.node("Equal", part(31, 1), w.constant(1, np.int64)), w.node("Neg", size), size)


def _shift(w: Writer, op: str, args: Names, dtype: np.dtype) -> str:
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = dtype.itemsize * 8
    x, by = [*args] if dtype == unsigned else [w.cast(a, unsigned) for a in args]
    amount, zero = w.cast(by, np.int64), w.constant(0, np.int64)
    # the amount is read as unsigned; runtimes choose between few unsigned dtypes
    inside = w.node("And", w.node("Less", amount, w.constant(bits, np.int64)), w.node("LessOrEqual", zero, amount))
    low = w.cast(w.node("Where", inside, amount, zero), unsigned)
    found = w.cast(w.node("BitShift", x, low, direction=_SHIFTS[op]), np.int64)
    return w.cast(w.node("Where", inside, found, zero), dtype)


def _shift_signed(w: Writer, args: Names, dtype: np.dtype) -> str:
    """A negative number x becomes -1 - x, which has no sign bit, and back."""
    signed = np.dtype(f"i{dtype.itemsize}")
    wide = w.cast(w.cast(args[0], signed), np.int64)
    minus, below = w.constant(-1, np.int64), w.node("Less", wide, w.constant(0, np.int64))

    def turned(x: str) -> str:
        return w.node("Where", below, w.node("Sub", minus, x), x)

    found = _shift(w, "shift_right_logical", [w.cast(turned(wide), dtype), args[1]], dtype)
    return w.cast(turned(w.cast(found, np.int64)), dtype)


def _count_bits(w: Writer, op: str, x: str, dtype: np.dtype) -> str:
    """The number of ones; or of zeros before the first one, where shifted numbers are 0."""
    width = 8 * dtype.itemsize
    if op == "population_count":
        return w.cast(w.reduction("ReduceSum", w.unpacked(x, dtype), [-1]), dtype)
    rest = w.cast(w.cast(w.shifted(x, dtype), np.bool_), np.int64)
    return w.cast(w.node("Sub", w.constant(width, np.int64), w.reduction("ReduceSum", rest, [-1])), dtype)


def _next_after(w: Writer, args: Names, dtype: np.dtype) -> str:
    """The bits plus or minus one: away from zero if both are on one side and the other is farther."""
    (x, y), zero = args, w.constant(0, dtype)
    whole = np.dtype(f"i{dtype.itemsize}")
    up, right = w.node("Less", x, y), w.node("Less", zero, x)
    step = w.node("Where", w.node("Xor", up, right), w.constant(-1, whole), w.constant(1, whole))
    moved = w.bits(w.node("Add", w.bits(x, whole), step), dtype)
    least = w.constant(np.nextafter(dtype.type(0), dtype.type(1)), dtype)
    moved = w.node("Where", w.node("Equal", x, zero), w.node("Where", up, least, w.node("Neg", least)), moved)
    missing = w.node("Or", w.node("IsNaN", x), w.node("IsNaN", y))
    kept = w.node("Where", missing, w.node("Add", x, y), y)
    return w.node("Where", w.node("Or", missing, w.node("Equal", x, y)), kept, moved)


def _is_negative(w: Writer, x: str, dtype: np.dtype) -> str:
    """Whether a number has a minus: the reciprocal of -0 is below zero."""
    zero = w.constant(0, dtype)
    return w.node("Or", w.node("Less", x, zero), w.node("Less", w.node("Div", w.constant(1, dtype), x), zero))


def log1p(w: Writer, x: str, dtype: np.dtype) -> str:
    """log(u) x / (u - 1) with u = 1 + x, whose errors cancel; x if u is 1."""
    one = w.constant(1, dtype)
    u = w.node("Add", x, one)
    past = w.node("Sub", u, one)
    plain = w.node("Or", w.node("Equal", past, w.constant(0, dtype)), w.node("IsInf", u))
    corrected = w.node("Mul", w.node("Log", u), w.node("Div", x, w.node("Where", plain, one, past)))
    return w.node("Where", w.node("IsInf", u), u, w.node("Where", plain, x, corrected))


def _expm1(w: Writer, x: str, dtype: np.dtype) -> str:
    """tanh(x / 2) (exp(x) + 1), which is exact near zero."""
    half = w.node("Tanh", w.node("Mul", x, w.constant(0.5, dtype)))
    power = w.node("Exp", x)
    near = w.node("Mul", half, w.node("Add", power, w.constant(1, dtype)))
    small = w.node("Less", w.node("Abs", x), w.constant(1, dtype))
    return w.node("Where", small, near, w.node("Sub", power, w.constant(1, dtype)))


def _atan2(w: Writer, y: str, x: str, dtype: np.dtype) -> str:
    zero, pi = w.constant(0, dtype), w.constant(np.pi, dtype)
    safe = w.node("Where", w.node("Equal", x, zero), w.constant(1, dtype), x)
    ratio = w.node("Div", y, safe)
    base = _atan_double(w, ratio) if dtype == _FLOAT64 else w.node("Atan", ratio)
    below = w.node("Less", y, zero)
    left = w.node("Where", below, w.node("Sub", base, pi), w.node("Add", base, pi))
    half = w.constant(np.pi / 2, dtype)
    middle = w.node("Where", below, w.node("Neg", half), w.node("Where", w.node("Equal", y, zero), zero, half))
    return w.node("Where", w.node("Less", x, zero), left, w.node("Where", w.node("Equal", x, zero), middle, base))


# ------------------------------------------------------------------ functions that runtimes lack for float64
def _number(w: Writer, value: float) -> str:
    return w.constant(value, _FLOAT64)


def _tan_double(w: Writer, x: str) -> str:
    return w.node("Div", w.node("Sin", x), w.node("Cos", x))


def _atan_double(w: Writer, x: str) -> str:
    """A guess in float32, and the angle between its direction and that of x."""
    guess = w.cast(w.node("Atan", w.cast(x, np.float32)), _FLOAT64)
    sine, cosine = w.node("Sin", guess), w.node("Cos", guess)
    top = w.node("Sub", w.node("Mul", x, cosine), sine)
    rest = w.node("Div", top, w.node("Add", cosine, w.node("Mul", x, sine)))
    bend = w.node("Mul", rest, w.node("Mul", rest, rest))
    better = w.node("Add", guess, w.node("Sub", rest, w.node("Div", bend, _number(w, 3))))
    large = w.node("Less", _number(w, 1e30), w.node("Abs", x))
    limit = w.node("Mul", w.node("Sign", x), _number(w, np.pi / 2))
    tiny = w.node("Less", w.node("Abs", x), _number(w, 1e-9))
    return w.node("Where", large, limit, w.node("Where", tiny, x, better))


def _leg(w: Writer, x: str) -> str:
    """sqrt(1 - x^2)."""
    one = _number(w, 1)
    return w.node("Sqrt", w.node("Mul", w.node("Sub", one, x), w.node("Add", one, x)))


def _asin_double(w: Writer, x: str) -> str:
    return _atan_double(w, w.node("Div", x, _leg(w, x)))


def _acos_double(w: Writer, x: str) -> str:
    return _atan2(w, _leg(w, x), x, _FLOAT64)


def _sinh_double(w: Writer, x: str) -> str:
    """(u + u / (u + 1)) / 2 with u = exp(|x|) - 1; u / 2 where it may be infinite."""
    size = w.node("Abs", x)
    grown = _expm1(w, size, _FLOAT64)
    ratio = w.node("Div", grown, w.node("Add", grown, _number(w, 1)))
    whole = w.node("Where", w.node("Less", _number(w, 40), size), grown, w.node("Add", grown, ratio))
    tiny = w.node("Less", size, _number(w, 1e-9))
    return w.node("Where", tiny, x, w.node("Mul", w.node("Sign", x), w.node("Mul", _number(w, 0.5), whole)))


def _cosh_double(w: Writer, x: str) -> str:
    return w.node("Mul", _number(w, 0.5), w.node("Add", w.node("Exp", x), w.node("Exp", w.node("Neg", x))))


def _asinh_double(w: Writer, x: str) -> str:
    """log(1 + a + a^2 / (1 + sqrt(a^2 + 1))) with a = |x|; log(2 a) where squares overflow."""
    one, size = _number(w, 1), w.node("Abs", x)
    square = w.node("Mul", size, size)
    root = w.node("Sqrt", w.node("Add", square, one))
    near = log1p(w, w.node("Add", size, w.node("Div", square, w.node("Add", one, root))), _FLOAT64)
    far = w.node("Add", w.node("Log", size), _number(w, np.log(2.0)))
    large = w.node("Less", _number(w, 1e100), size)
    return w.node("Mul", w.node("Sign", x), w.node("Where", large, far, near))


def _acosh_double(w: Writer, x: str) -> str:
    """log(1 + t + sqrt(t) sqrt(t + 2)) with t = x - 1; log(2 x) where squares overflow."""
    past = w.node("Sub", x, _number(w, 1))
    root = w.node("Mul", w.node("Sqrt", past), w.node("Sqrt", w.node("Add", past, _number(w, 2))))
    far = w.node("Add", w.node("Log", x), _number(w, np.log(2.0)))
    large = w.node("Less", _number(w, 1e100), x)
    return w.node("Where", large, far, log1p(w, w.node("Add", past, root), _FLOAT64))


def _atanh_double(w: Writer, x: str) -> str:
    """log(1 + 2 x / (1 - x)) / 2 of |x|."""
    size = w.node("Abs", x)
    ratio = w.node("Div", w.node("Add", size, size), w.node("Sub", _number(w, 1), size))
    return w.node("Mul", w.node("Sign", x), w.node("Mul", _number(w, 0.5), log1p(w, ratio, _FLOAT64)))


_DOUBLE = {
    "tan": _tan_double, "asin": _asin_double, "acos": _acos_double, "atan": _atan_double, "sinh": _sinh_double,
    "cosh": _cosh_double, "asinh": _asinh_double, "acosh": _acosh_double, "atanh": _atanh_double,
}  # fmt: skip
