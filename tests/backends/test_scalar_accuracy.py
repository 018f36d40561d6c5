"""Errors of the transcendental functions, in units of the last place, over their whole range."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.special
from native_loops import run_native

from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Store
from rlx.ir.scalar import ALPHABET

FLOAT, DOUBLE = np.dtype("f4"), np.dtype("f8")
WIDE = np.longdouble

UNARY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "log2": np.log2, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "sqrt": np.sqrt,
    "cbrt": np.cbrt, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": scipy.special.erf,
    "erfc": scipy.special.erfc, "erf_inv": scipy.special.erfinv, "logistic": scipy.special.expit,
}  # fmt: skip
SPECIAL_VALUES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.0, -2.0, 1e-40, -1e-40]


def compute(op, dtype, *arrays):
    """The native function over arrays."""
    size = arrays[0].size
    operands = tuple(Buffer(dtype, size) for _ in range(len(arrays) + 1))
    loads = tuple(Instruction("load", (), dtype, Access(n, (1,))) for n in range(len(arrays)))
    count = len(arrays)
    instructions = (*loads, Instruction(op, tuple(range(count)), dtype))
    store = Store(count, Access(count, (1,)))
    result = np.zeros(size, dtype)
    run_native(Loops((size,), 1, operands, instructions, (store,), 1), [*arrays, result])
    return result


def points(dtype, size=20000):
    """Every exponent, the usual magnitudes, and the special values."""
    random = np.random.default_rng(7)
    bits = np.dtype(f"u{dtype.itemsize}")
    anything = random.integers(0, np.iinfo(bits).max, size, bits, endpoint=True).view(dtype)
    usual = random.normal(size=size) * 10.0 ** random.uniform(-5, 3, size)
    unit = random.uniform(-1, 1, size)
    near_one = 1 + random.normal(size=size) * 10.0 ** random.uniform(-8, 0, size)
    whole = np.arange(-200.0, 200.0) * np.pi / 4
    parts = [anything, usual, unit, near_one, whole, SPECIAL_VALUES]
    with np.errstate(all="ignore"):
        return np.concatenate(parts).astype(dtype)


def errors(got, exact):
    """Distances in units of the last place; infinity where the kind of value is wrong."""
    dtype = got.dtype
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
        unit = np.spacing(np.abs(rounded)).astype(exact.dtype)
        distance = np.abs(got.astype(exact.dtype) - exact) / unit
    same = (np.isnan(got) & np.isnan(rounded)) | (got == rounded)
    zero = same & (rounded == 0)
    wrong = ~np.isfinite(got) | ~np.isfinite(rounded)
    distance = np.where(same, 0, np.where(wrong, np.inf, distance))
    misfit = zero & (np.signbit(got) != np.signbit(rounded))
    return np.where(misfit, np.inf, distance)


def worst(got, exact, *arguments):
    found = errors(got, exact)
    at = int(np.argmax(found))
    return float(found[at]), [float(a[at]) for a in arguments], float(got[at]), float(exact[at])


@pytest.mark.parametrize("op", sorted(UNARY))
def test_single(op):
    x = points(FLOAT)
    with np.errstate(all="ignore"):
        exact = UNARY[op](x.astype("f8"))
    if op == "erf_inv":
        exact = np.copysign(exact, x)
    found = worst(compute(op, FLOAT, x), exact, x)
    assert found[0] <= ALPHABET[op].ulp[0], found


SLOW = {
    "erf": mpmath.erf, "erfc": mpmath.erfc, "erf_inv": mpmath.erfinv,
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
}  # fmt: skip


def slowly(op, x):
    """High precision results as extended floats."""
    mpmath.mp.dps = 40

    def one(number):
        if np.isnan(number) or (op == "erf_inv" and abs(number) > 1):
            return WIDE("nan")
        if op == "erf_inv" and abs(number) == 1:
            return WIDE(np.inf) * WIDE(number)
        if op in ("erf", "erf_inv") and number == 0:
            return WIDE(number)
        if abs(number) > {"logistic": 800, "erf_inv": 1}.get(op, 30):
            return WIDE({"erf": np.sign(number), "erfc": 1 - np.sign(number)}.get(op, number > 0))
        return WIDE(mpmath.nstr(SLOW[op](mpmath.mpf(float(number))), 25))

    with np.errstate(all="ignore"):
        return np.array([one(number) for number in x])


@pytest.mark.skipif(np.finfo(WIDE).eps > 1e-18, reason="needs extended precision")
@pytest.mark.parametrize("op", sorted(UNARY))
def test_double(op):
    x = points(DOUBLE)
    if op in SLOW:
        x = np.concatenate([x[:: len(x) // 600], SPECIAL_VALUES])
        exact = slowly(op, x)
    else:
        with np.errstate(all="ignore"):
            exact = UNARY[op](x.astype(WIDE))
    found = worst(compute(op, DOUBLE, x), exact, x)
    assert found[0] <= ALPHABET[op].ulp[1], found


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE], ids=str)
@pytest.mark.parametrize("op", ["pow", "atan2"])
def test_binary(op, dtype):
    random = np.random.default_rng(11)
    size = 30000
    x = random.choice(points(dtype), size)
    y = random.choice(points(dtype), size)
    usual = size // 2
    x[:usual] = np.exp(random.normal(size=usual) * 3)
    y[:usual] = random.normal(size=usual) * 20
    y[usual : usual + 2000] = random.integers(-9, 9, 2000)
    grid = np.array(SPECIAL_VALUES + [3.0, -3.0, 2.5, 1e9, -1e9], dtype)
    x = np.concatenate([x, np.repeat(grid, grid.size)])
    y = np.concatenate([y, np.tile(grid, grid.size)])
    wide = np.dtype("f8") if dtype == FLOAT else np.dtype(WIDE)
    function = {"pow": np.power, "atan2": np.arctan2}[op]
    with np.errstate(all="ignore"):
        exact = function(x.astype(wide), y.astype(wide))
    found = worst(compute(op, dtype, x, y), exact, x, y)
    assert found[0] <= ALPHABET[op].ulp[dtype == DOUBLE], found
