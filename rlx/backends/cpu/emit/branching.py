"""Sine and cosine for loops that run one element at a time.

The latency from argument to result counts there, not the number of instructions. Small arguments, which
need no reduction, take a separate branch that the processor predicts. float32 is reduced and
evaluated in float64, by two fused multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx.backends.cpu.emit.ir_text import Value
from rlx.backends.cpu.emit.polynomials import horner
from rlx.backends.cpu.emit.trigonometry import COSINE, QUARTER, SINE, repair, vector_cos, vector_sin

__all__ = ["FUNCTIONS"]

_SHIFTER = 6755399441055744.0


def _polynomial(z: Value, coefficients: Sequence[float]) -> Value:
    """By Estrin's scheme for short polynomials: half the dependent steps."""
    if len(coefficients) != 3:
        return horner(z, coefficients)
    first, second, third = coefficients
    return (z * z).fma(z.lift(third), z.fma(second, z.lift(first)))


def _sine(r: Value, kind: str) -> Value:
    z = r * r
    return (z * r).fma(_polynomial(z, SINE[kind]), r)


def _cosine(r: Value, kind: str) -> Value:
    z = r * r
    return (z * z).fma(_polynomial(z, COSINE[kind]), z.fma(-0.5, r.lift(1.0)))


def _single(name: str, x: Value) -> Value:
    """Of a float32."""
    code = x.code
    result = code.stack_slot("double")
    wide = x.convert("fpext", "double")
    small = abs(x) <= math.pi / 4
    core = _sine if name == "sin" else _cosine
    with code.when(small):
        code.store(core(wide, "float"), result)
    with code.when(~small):
        shifted = wide.fma(2.0 / math.pi, _SHIFTER)
        n = shifted.bits()
        if name == "cos":
            n = n + 1
        count, (high, low, _) = shifted - _SHIFTER, QUARTER["double"]
        r = count.fma(-low, count.fma(-high, wide))
        chosen = (n & 1).not_equal(0).where(_cosine(r, "float"), _sine(r, "float"))
        code.store((n & 2).not_equal(0).where(-chosen, chosen), result)
    rounded = code.load("double", result).convert("fptrunc", "float")
    return repair(name, x, x.equal(0.0).where(x, rounded) if name == "sin" else rounded)


def _sin_soon(x: Value) -> Value:
    return _single("sin", x) if x.kind == "float" else vector_sin(x)


def _cos_soon(x: Value) -> Value:
    return _single("cos", x) if x.kind == "float" else vector_cos(x)


FUNCTIONS: dict[str, Callable[..., Value]] = {"sin": _sin_soon, "cos": _cos_soon}
