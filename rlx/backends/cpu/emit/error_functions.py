"""The error function, its complement and its inverse as straight-line code."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.backends.cpu.emit.ir_text import Value
from rlx.backends.cpu.emit.polynomials import exp, horner, log, log1p
from rlx.code.tables import (
    ERF_CENTRAL,
    ERF_COMPLEMENT,
    ERF_FARTHEST,
    INVERSE_ERF_CENTRAL,
    INVERSE_ERF_FAR,
    INVERSE_ERF_TAIL,
)

__all__ = ["FUNCTIONS"]


def _central(x: Value) -> Value:
    return x.fma(horner(x * x, ERF_CENTRAL[x.kind]), x)


def _complement(a: Value) -> Value:
    """erfc(a) for a >= 0.45."""
    a = (a > ERF_FARTHEST[a.kind]).where(ERF_FARTHEST[a.kind], a)
    square = a * a
    lost = a.fma(a, -square)
    bell = exp(-square)
    bell = bell.fma(-lost, bell)
    t = (a - 4.0) / (a + 4.0)
    return bell * (horner(t, ERF_COMPLEMENT[a.kind]) / a.fma(2.0, 1.0))


def _erf(x: Value) -> Value:
    a = abs(x)
    outer = 1.0 - _complement(a)
    return (a > 1.0).where(outer.call("copysign", x), _central(x))


def _erfc(x: Value) -> Value:
    # the product of three rounded factors needs more than float32 to keep its last place
    wide = x.convert("fpext", "double")
    far = _complement(abs(wide))
    signed = (wide < 0.0).where(2.0 - far, far)
    result = (abs(wide) < 0.5).where(1.0 - _central(wide), signed)
    return result.convert("fptrunc", x.kind)


def _erf_inv(x: Value) -> Value:
    a = abs(x)
    w = -log((1.0 - a) * (1.0 + a))
    if x.kind == "float":
        w = (a < 0.5).where(-log1p(-(a * a)), w)
    tail = INVERSE_ERF_TAIL if x.kind == "float" else INVERSE_ERF_FAR
    center = 3.0 if x.kind == "float" else 4.0
    far = horner(w.call("sqrt") - center, tail)
    ratio = (w < 5.0).where(horner(w - 2.5, INVERSE_ERF_CENTRAL), far)
    result = a * ratio
    if x.kind == "double":
        result = _refined_inverse(a, result)
    result = a.equal(1.0).where(float("inf"), result)
    result = (a > 1.0).where(float("nan"), result)
    return result.call("copysign", x)


def _refined_inverse(a: Value, guess: Value) -> Value:
    """One step of Halley's method, which triples the good digits."""
    outer = guess > 0.5
    excess = outer.where((1.0 - a) - _complement(guess), _central(guess) - a)
    slope = exp(-(guess * guess)) * (2.0 / math.sqrt(math.pi))
    step = excess / slope
    return guess - step / (guess * step + 1.0)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "erf": _erf,
    "erfc": _erfc,
    "erf_inv": _erf_inv,
}
