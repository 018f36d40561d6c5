"""The error function, its complement and its inverse as straight-line code."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.backends.cpu.emit.ir_text import Value
from rlx.backends.cpu.emit.polynomials import exp, horner, log, log1p
from rlx.backends.loops.tables import INVERSE_ERF_CENTRAL, INVERSE_ERF_FAR, INVERSE_ERF_TAIL

__all__ = ["FUNCTIONS"]

# erf(x) / x - 1 in z = x^2, for |x| <= 1
_CENTRAL = {
    "float": (
        0.1283791657267974, -0.376126258246751, 0.11283585151233505, -0.026853811990321785,
        0.005188327729379839, -0.0008010193658509674, 7.853860631578005e-05,
    ),
    "double": (
        0.1283791670955126, -0.3761263890318375, 0.11283791670954857, -0.026866170645072896,
        0.005223977624780875, -0.0008548326978742633, 0.00012055331036913792,
        -1.492559350719062e-05, 1.646097282118407e-06, -1.635002526004923e-07,
        1.4657880051957014e-08, -1.1365666624435217e-09, 5.945262640543105e-11,
    ),
}  # fmt: skip
# (1 + 2 x) exp(x^2) erfc(x) in t = (x - 4) / (x + 4), for x >= 0.45
_COMPLEMENT = {
    "float": (
        1.2329951524734497, -0.1396210938692093, 0.015379988588392735, 0.0680963546037674,
        -0.10104568302631378, 0.09374071657657623, -0.06628255546092987, 0.03713110461831093,
        -0.016355521976947784, 0.005108934827148914, -0.0005133081576786935,
        -0.00027070590294897556,
    ),
    "double": (
        1.2329951186255526, -0.1396211168405625, 0.015379652102618775, 0.06809705425469158,
        -0.10103906603623823, 0.09373283499840032, -0.06633036581397445, 0.037167515536371744,
        -0.016197734033896245, 0.00503196999178002, -0.000757773478288796,
        -0.0001992568003667642, 0.0001506226164865682, -2.4398689218527332e-05,
        -1.1225038446482904e-05, 5.7080085039750944e-06, 3.0002271391310597e-07,
        -8.21716978471211e-07, 6.663529698465129e-08, 1.0504988588379304e-07,
        -1.2085929680474095e-08, -1.0273346003452953e-08,
    ),
}  # fmt: skip
_FARTHEST = {"float": 10.5, "double": 27.5}


def _central(x: Value) -> Value:
    return x.fma(horner(x * x, _CENTRAL[x.kind]), x)


def _complement(a: Value) -> Value:
    """erfc(a) for a >= 0.45."""
    a = (a > _FARTHEST[a.kind]).where(_FARTHEST[a.kind], a)
    square = a * a
    lost = a.fma(a, -square)
    bell = exp(-square)
    bell = bell.fma(-lost, bell)
    t = (a - 4.0) / (a + 4.0)
    return bell * (horner(t, _COMPLEMENT[a.kind]) / a.fma(2.0, 1.0))


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
