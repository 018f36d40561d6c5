"""Elementwise operations as ONNX, by the scalar alphabet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Equation
from rlx.onnx.exporting.writer import FORMAT, WIDE, Names, Parts, Writer, flat, paired
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
        else:
            found.append(_step(w, equation, step, args, operands))
        shapes.append(_shape(equation, step, [shapes[a] for a in step.args]))
    results = []
    for at, variable in zip(code.results, equation.outputs, strict=True):
        whole = shapes[at] == variable.type.shape
        texts = flat([found[at]])
        texts = texts if whole else [w.node("Expand", text, w.integers(variable.type.shape)) for text in texts]
        results += paired(texts, [variable.type])
    return results


def _shape(equation: Equation, step: ScalarStep, shapes: Sequence[Any]) -> Any:
    """The shape of a step's array, which may be smaller than the result; None if unknown."""
    if step.op == "input":
        return equation.inputs[step.attribute].type.shape
    if None in shapes or (step.op == "complex" and shapes[0] != shapes[1]):
        return None
    return np.broadcast_shapes(*shapes)


def _step(w: Writer, equation: Equation, step: Any, args: Names, operands: list[np.dtype]) -> str:
    op, dtype = step.op, step.dtype
    one = w.constant(1, dtype) if dtype.kind in "iuf" else ""
    if op in _BITS:
        return w.node(_BITS[op][dtype.kind != "b"], *args)
    if op in _SHIFTS:
        return _shift(w, op, args, dtype)
    if op == "cast":
        return _converted(w, args[0], operands[0], dtype)
    if op == "bitcast":
        if operands[0] != np.uint32 or dtype != np.float32:
            raise refused(equation, FORMAT, f"it reads the bits of {operands[0]} as {dtype}")
        return _float_of_bits(w, args[0])
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
        size, sign = w.node("Abs", args[0]), w.node("Less", args[1], w.constant(0, dtype))
        return w.node("Where", sign, w.node("Neg", size), size)
    if op == "cbrt":
        root = w.node("Pow", w.node("Abs", args[0]), w.constant(1 / 3, dtype))
        return w.node("Mul", w.node("Sign", args[0]), root)
    if op == "atan2":
        return _atan2(w, args[0], args[1], dtype)
    if op not in _SAME:
        raise refused(equation, FORMAT, f"there is no {op}")
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
    inside = w.node("Less", w.cast(by, np.int64), w.constant(bits, np.int64))
    low = w.node("Where", inside, by, w.constant(0, unsigned))
    found = w.node("Where", inside, w.node("BitShift", x, low, direction=_SHIFTS[op]), w.constant(0, unsigned))
    return found if dtype == unsigned else w.cast(found, dtype)


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
    base = w.node("Atan", w.node("Div", y, safe))
    below = w.node("Less", y, zero)
    left = w.node("Where", below, w.node("Sub", base, pi), w.node("Add", base, pi))
    half = w.constant(np.pi / 2, dtype)
    middle = w.node("Where", below, w.node("Neg", half), w.node("Where", w.node("Equal", y, zero), zero, half))
    return w.node("Where", w.node("Less", x, zero), left, w.node("Where", w.node("Equal", x, zero), middle, base))
