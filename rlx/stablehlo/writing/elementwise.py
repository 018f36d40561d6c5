"""Elementwise operations as StableHLO, by the scalar alphabet; operations on complex numbers use CHLO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Equation
from rlx.ir.types import dtype_kind, is_complex
from rlx.stablehlo.text import Value
from rlx.stablehlo.writing.writer import BOOL, FLOAT32, FLOAT64, FORMAT, Values, Writer
from rlx.standalone.special_functions import has_special_program, special_program
from rlx.standalone.spelling import refused, scalar_code

__all__ = ["elementwise", "is_complex_function", "write_complex"]

_SAME = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negate",
    "abs": "abs",
    "sign": "sign",
    "pow": "power",
    "atan2": "atan2",
    "floor": "floor",
    "ceil": "ceil",
    "round_even": "round_nearest_even",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "cbrt": "cbrt",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "tanh": "tanh",
    "logistic": "logistic",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "not": "not",
    "shift_left": "shift_left",
    "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "population_count": "popcnt",
    "count_leading_zeros": "count_leading_zeros",
    "rem": "remainder",
    "min": "minimum",
    "max": "maximum",
    "select": "select",
    "real": "real",
    "imag": "imag",
    "complex": "complex",
}
_CHLO = "asin acos atan sinh cosh asinh acosh atanh erf erfc erf_inv".split()
_SPECIAL = {
    "lgamma": "lgamma",
    "digamma": "digamma",
    "polygamma": "polygamma",
    "zeta": "zeta",
    "bessel_i1e": "bessel_i1e",
}
_COMPARED = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


def elementwise(w: Writer, equation: Equation, inputs: Values) -> Values:
    """Write each step."""
    code = scalar_code(equation)
    shape = np.broadcast_shapes(*(x.shape for x in inputs)) if inputs else equation.outputs[0].type.shape
    found: dict[int, Value] = {}
    waiting = list(enumerate(code.steps))
    while waiting:
        later, calls = [], {}
        for number, step in waiting:
            if not all(a in found for a in step.args):
                later.append((number, step))
                continue
            args = [found[a] for a in step.args]
            if step.op == "input":
                found[number] = w.spread(inputs[step.attribute], shape)
            elif step.op == "constant":
                scalar = w.constant(step.attribute, step.dtype)
                found[number] = w.broadcast(scalar, shape, ()) if shape else scalar
            elif step.op == "special" and step.attribute not in _SPECIAL and has_special_program(step.attribute):
                calls.setdefault(step.attribute, {})[number] = args
            else:
                found[number] = _step(w, equation, step, args, shape)
        for name, operands in calls.items():
            found.update(zip(operands, _special(w, name, list(operands.values())), strict=True))
        waiting = later
    return [found[at] for at in code.results]


def _special(w: Writer, name: str, calls: Sequence[Values]) -> Values:
    """The results of all calls of a special function in one program, as it is long."""
    (shape, dtype), count = (calls[0][0].shape, calls[0][0].dtype), len(calls)
    computed = FLOAT32 if w.emulates_float64 and dtype != FLOAT64 else FLOAT64
    operands = []
    for parts in zip(*calls, strict=True):
        rows = [w.reshape(w.convert(x, computed), (1, *shape)) for x in parts]
        operands.append(w.op("stablehlo.concatenate", rows, (count, *shape), computed, dimension="0 : i64"))
    (found,) = w.program(special_program(name, (count, *shape), dtype=computed), operands)
    rest = [0] * len(shape)
    rows = [w.slice(found, (n, *rest), (n + 1, *shape)) for n in range(count)]
    return [w.convert(w.reshape(row, shape), dtype) for row in rows]


def _step(w: Writer, equation: Equation, step: Any, args: Values, shape: tuple[int, ...]) -> Value:
    op, dtype = step.op, step.dtype
    if op in _COMPARED:
        return w.compare(_COMPARED[op], *args)
    if op == "cast":
        return w.convert(args[0], dtype)
    if op == "bitcast":
        return w.op("stablehlo.bitcast_convert", args, shape, dtype)
    if op == "is_finite":
        return w.op("stablehlo.is_finite", args, shape, BOOL)
    if op == "fma":
        return w.binary("add", w.binary("multiply", *args[:2]), args[2])
    if op == "trunc":
        return w.binary("multiply", w.op("stablehlo.sign", args, shape, dtype), _of_size(w, "floor", args[0]))
    if op in ("exp2", "log2"):
        factor = w.spread(w.constant(np.log(2.0), dtype), shape)
        if op == "exp2":
            return w.binary("power", w.spread(w.constant(2, dtype), shape), args[0])
        return w.binary("divide", w.op("stablehlo.log", args, shape, dtype), factor)
    if op == "sign" and dtype_kind(dtype) == "u":
        return w.binary("minimum", args[0], w.constant(1, dtype))
    if op == "copysign":
        return _copysign(w, *args)
    if op in _CHLO:
        return w.op(f"chlo.{op}", args, shape, dtype)
    if op == "nextafter":
        return w.op("chlo.next_after", args, shape, dtype)
    if op == "special" and step.attribute in _SPECIAL:
        return w.op(f"chlo.{_SPECIAL[step.attribute]}", args, shape, dtype)
    if op not in _SAME:
        raise refused(equation, FORMAT, f"there is no {step.attribute if op == 'special' else op}")
    return w.op(f"stablehlo.{_SAME[op]}", args, shape, dtype)


def _of_size(w: Writer, name: str, x: Value) -> Value:
    return w.op(f"stablehlo.{name}", [w.op("stablehlo.abs", [x], x.shape, x.dtype)], x.shape, x.dtype)


def _copysign(w: Writer, x: Value, sign: Value) -> Value:
    """Copy the sign bit, as zeros and NaN have signs."""
    bits = np.dtype(f"u{x.dtype.itemsize}")
    top = w.spread(w.constant(1 << (8 * bits.itemsize - 1), bits), x.shape)
    rest = w.spread(w.constant((1 << (8 * bits.itemsize - 1)) - 1, bits), x.shape)
    first, second = (w.op("stablehlo.bitcast_convert", [v], v.shape, bits) for v in (x, sign))
    joined = w.binary("or", w.binary("and", first, rest), w.binary("and", second, top))
    return w.op("stablehlo.bitcast_convert", [joined], x.shape, x.dtype)


_COMPLEX = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "divide": "divide",
    "negative": "negate",
    "exp": "exponential",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "tanh": "tanh",
    "power": "power",
    "absolute": "abs",
    "real": "real",
    "imag": "imag",
    "complex": "complex",
    "logistic": "logistic",
    "expm1": "exponential_minus_one",
    "log1p": "log_plus_one",
    "square": "",
    "conj": "",
    "convert": "",
    "select": "",
    "equal": "",
    "not_equal": "",
    "integer_power": "",
    "exp2": "",
}
_COMPLEX_CHLO = "asin acos atan sinh cosh asinh acosh atanh".split()


def is_complex_function(equation: Equation) -> bool:
    """Whether an equation uses complex numbers and has an operation in StableHLO or CHLO."""
    types = [*(a.type for a in equation.inputs), *(v.type for v in equation.outputs)]
    name = equation.primitive.name
    return any(is_complex(t.dtype) for t in types) and (name in _COMPLEX or name in _COMPLEX_CHLO)


def write_complex(w: Writer, e: Equation, xs: Values) -> Values:
    """An operation on complex numbers."""
    return [_complex(w, e, xs)]


def _complex(w: Writer, e: Equation, xs: Values) -> Value:
    name, dtype = e.primitive.name, e.outputs[0].type.dtype
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    xs = [w.spread(x, shape) for x in xs]
    if name == "select":
        return w.select(*xs)
    if name in ("equal", "not_equal"):
        return w.compare("EQ" if name == "equal" else "NE", *xs)
    if name in _COMPLEX_CHLO:
        return w.op(f"chlo.{name}", xs, shape, dtype)
    if name == "exp2":
        return w.op(
            "stablehlo.exponential", [w.binary("multiply", xs[0], w.constant(np.log(2.0), dtype))], shape, dtype
        )
    if name == "square":
        return w.binary("multiply", xs[0], xs[0])
    if name == "integer_power":
        return w.binary("power", xs[0], w.constant(e.params["exponent"], dtype))
    if name == "convert":
        real = xs[0]
        if is_complex(real.dtype) and not is_complex(dtype):
            real = w.op("stablehlo.real", [real], shape, np.dtype(f"f{real.dtype.itemsize // 2}"))
        return w.convert(real, dtype)
    if name == "conj":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        real, imaginary = (w.op(f"stablehlo.{n}", xs, shape, part) for n in ("real", "imag"))
        return w.op("stablehlo.complex", [real, w.op("stablehlo.negate", [imaginary], shape, part)], shape, dtype)
    return w.op(f"stablehlo.{_COMPLEX[name]}", xs, shape, dtype)
