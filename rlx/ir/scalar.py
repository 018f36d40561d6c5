"""The closed set of scalar operations that every backend implements.

An operation works on scalars of one dtype (the operands' dtype). Complex numbers and narrow ones
(ir.formats) do not occur: `ScalarBuilder` in passes computes complex ones in real parts, floats of
less than 32 bits in float32, integers of less than 8 bits in bytes. Only `load`, `store`, `cast`
and `bitcast` know the narrow dtypes: a `cast` to one rounds or wraps, and its result can only be an
argument of `cast`, `bitcast` or `store`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from rlx.ir.formats import FLOAT_FORMATS
from rlx.ir.types import dtype_kind

__all__ = [
    "ALPHABET",
    "EXPENSIVE",
    "REDUCERS",
    "SPECIAL",
    "USER_FUNCTIONS",
    "ScalarOperation",
    "SpecialFunction",
    "UserFunction",
    "neutral",
    "operation_cost",
]


class ScalarOperation(NamedTuple):
    """Properties of an operation that hold on every backend.

    arity, dtype kinds accepted (b: bool, i: signed, u: unsigned, f: float), result.
    cost: in units of one vectorised arithmetic operation. flops: floating-point operations that it counts for;
    transcendental ones are counted separately. ulp: the largest error of float32 and float64, in ulps.
    exact_at: arguments with an exact result.
    """

    arity: int
    kinds: str
    result: str  # "same", "bool", or "attribute" (the instruction's own dtype)
    cost: int = 1
    flops: int = 0
    transcendental: bool = False
    ulp: tuple[float, float] = (0.5, 0.5)
    exact_at: tuple[tuple[float, ...], ...] = ()


def _function(
    cost: int, *exact_at: float, ulp: tuple[float, float] = (2.0, 2.0), transcendental: bool = True
) -> ScalarOperation:
    """A function of one float."""
    places = tuple((x,) for x in exact_at)
    return ScalarOperation(1, "f", "same", cost, int(not transcendental), transcendental, ulp, places)


ALPHABET: dict[str, ScalarOperation] = {
    # integer add, sub, mul wrap; div and rem truncate; for integers x div 0 has all bits set (-1,
    # or the unsigned maximum) and x rem 0 is 0; the least integer div -1 is itself
    **{n: ScalarOperation(2, "iuf", "same", flops=1) for n in ("add", "sub", "mul")},
    "div": ScalarOperation(2, "iuf", "same", cost=2, flops=1),
    "rem": ScalarOperation(2, "iuf", "same", cost=16, flops=1),
    # min and max give NaN when either operand is NaN; on bool they are and, or
    **{n: ScalarOperation(2, "biuf", "same", flops=1) for n in ("min", "max")},
    "neg": ScalarOperation(1, "iuf", "same", flops=1),
    "abs": ScalarOperation(1, "iuf", "same", flops=1),
    "sign": ScalarOperation(1, "iuf", "same", flops=1),  # NaN at NaN, keeps the sign of zero
    "pow": ScalarOperation(
        2, "f", "same", 16, 0, True, (2.5, 2.5), ((2.0, 10.0), (3.0, 2.0), (0.5, -3.0), (-2.0, 3.0), (7.0, 0.0))
    ),
    "atan2": ScalarOperation(2, "f", "same", 12, 0, True, (2.5, 2.5), ((0.0, 1.0), (-0.0, 3.0))),
    "nextafter": ScalarOperation(2, "f", "same", cost=2, flops=1),
    "copysign": ScalarOperation(2, "f", "same", flops=1),
    "fma": ScalarOperation(3, "f", "same", flops=2),
    **{n: ScalarOperation(1, "f", "same", flops=1) for n in ("floor", "ceil", "round_even", "trunc")},
    "sqrt": _function(2, 0.0, 4.0, 0.25, 9.0, ulp=(0.5, 0.5), transcendental=False),
    "rsqrt": _function(2, 1.0, 4.0, 0.25, transcendental=False),
    "cbrt": _function(10, 0.0, 1.0, 8.0, -27.0),
    "exp": _function(6, 0.0, -0.0),
    "exp2": _function(6, 0.0, 1.0, -1.0, 10.0),
    "expm1": _function(6, 0.0, -0.0),
    "log": _function(6, 1.0),
    "log1p": _function(6, 0.0, -0.0),
    "log2": _function(6, 1.0, 2.0, 8.0, 0.5),
    "sin": _function(10, 0.0, -0.0),
    "cos": _function(10, 0.0),
    "tan": _function(12, 0.0, -0.0, ulp=(2.0, 2.6)),
    "asin": _function(12, 0.0, -0.0),
    "acos": _function(12, 1.0),
    "atan": _function(12, 0.0, -0.0),
    "sinh": _function(10, 0.0, -0.0),
    "cosh": _function(10, 0.0),
    "tanh": _function(10, 0.0, -0.0, ulp=(2.2, 2.3)),
    "asinh": _function(10, 0.0, -0.0),
    "acosh": _function(12, 1.0),
    "atanh": _function(12, 0.0, -0.0),
    "erf": _function(10, 0.0, -0.0),
    "erfc": _function(16, 0.0, ulp=(2.0, 4.0)),
    "erf_inv": _function(16, 0.0, ulp=(2.5, 4.0)),
    "logistic": _function(6, 0.0),
    "is_finite": ScalarOperation(1, "f", "bool"),
    **{n: ScalarOperation(2, "biuf", "bool") for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{n: ScalarOperation(2, "biu", "same") for n in ("and", "or", "xor")},
    "not": ScalarOperation(1, "biu", "same"),
    # a shift by the width or more gives 0 (or the sign for shift_right_arithmetic); the amount is
    # read as unsigned; logical and arithmetic set how the bits are read, regardless of the dtype's sign
    "shift_left": ScalarOperation(2, "iu", "same"),
    "shift_right_logical": ScalarOperation(2, "iu", "same"),
    "shift_right_arithmetic": ScalarOperation(2, "iu", "same"),
    "population_count": ScalarOperation(1, "iu", "same"),
    "count_leading_zeros": ScalarOperation(1, "iu", "same"),
    "select": ScalarOperation(3, "biuf", "same"),  # (bool, if true, if false); result as operand 1
    # float to integer truncates and saturates (NaN gives 0); narrow floats round to nearest even;
    # integer to integer wraps, to a narrow float converts through float32; to bool is `!= 0`
    "cast": ScalarOperation(1, "biuf", "attribute"),
    "bitcast": ScalarOperation(1, "iuf", "attribute"),  # same width
    # attribute: a name of SPECIAL, or of USER_FUNCTIONS
    "special": ScalarOperation(-1, "f", "same", cost=100, transcendental=True),
}
_NO_WORK = frozenset(("load", "constant", "index", "affine"))
# a value of at least this cost is stored rather than recomputed
EXPENSIVE = 6


def operation_cost(op: str) -> int:
    """The cost of an instruction in units of one vectorised operation; memory traffic is weighed by callers."""
    if op in _NO_WORK:
        return 0
    return ALPHABET[op].cost if op in ALPHABET else 1


REDUCERS = ("add", "mul", "min", "max", "and", "or", "xor")
_NEUTRAL = {"add": 0, "mul": 1, "or": 0, "xor": 0}


def neutral(reducer: str, dtype: np.dtype) -> int | float:
    """The number that a reducer leaves every number of `dtype` unchanged with, NaN included; `dtype` has it.

    Extrema of complex numbers begin at an infinity without imaginary part.
    """
    if reducer in _NEUTRAL:
        return _NEUTRAL[reducer]
    kind, greatest = dtype_kind(dtype), reducer != "max"
    if kind == "b":
        return int(greatest)
    if kind in "iu":
        info = ml_dtypes.iinfo(dtype)
        return -1 if reducer == "and" and kind == "i" else int(info.max if greatest else info.min)
    form = FLOAT_FORMATS.get(dtype)
    if form is None or form.special == "IEEE":
        return float("inf") if greatest else float("-inf")
    bounds = ml_dtypes.finfo(dtype)
    return float(bounds.max if greatest else bounds.min)


class SpecialFunction(NamedTuple):
    """A function of SciPy's, seen as one of float64 numbers: complex ones are two each."""

    ufunc: str  # its name in scipy.special
    signature: str = "d->d"  # types of the ufunc's loop in NumPy's letters: d real, D complex
    part: int = 0  # which number of the ufunc's results

    @property
    def taken(self) -> str:
        """Letters of the operands."""
        return self.signature.split("->")[0]

    @property
    def given(self) -> str:
        """Letters of the results."""
        return self.signature.split("->")[1]

    @property
    def arity(self) -> int:
        """The number of real operands."""
        return len(self.taken) + self.taken.count("D")

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        """On NumPy arrays that broadcast, in float64."""
        import scipy.special

        numbers = iter([np.asarray(a, np.float64) for a in arrays])
        operands = [_paired(next(numbers), next(numbers)) if t == "D" else next(numbers) for t in self.taken]
        with np.errstate(all="ignore"):
            results = getattr(scipy.special, self.ufunc)(*operands)
        flat: list[np.ndarray] = []
        for result in results if len(self.given) > 1 else (results,):
            flat += [result.real, result.imag] if np.iscomplexobj(result) else [result]
        return np.asarray(flat[self.part])


def _paired(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    """Complex numbers of their parts, infinite ones included."""
    result = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.complex128)
    result.real, result.imag = real, imaginary
    return result


# Functions off the hot path: SciPy's, called natively per element (float64 inside).
SPECIAL: dict[str, SpecialFunction] = {
    "lgamma": SpecialFunction("gammaln"),
    "digamma": SpecialFunction("psi"),
    "polygamma": SpecialFunction("polygamma", "dd->d"),
    "zeta": SpecialFunction("zeta", "dd->d"),
    "gamma": SpecialFunction("gamma"),
    "igamma": SpecialFunction("gammainc", "dd->d"),
    "igammac": SpecialFunction("gammaincc", "dd->d"),
    "igamma_inverse": SpecialFunction("gammaincinv", "dd->d"),
    "beta": SpecialFunction("beta", "dd->d"),
    "log_beta": SpecialFunction("betaln", "dd->d"),
    "betainc": SpecialFunction("betainc", "ddd->d"),
    "betaincc": SpecialFunction("betaincc", "ddd->d"),
    "binomial": SpecialFunction("binom", "dd->d"),
    "pochhammer": SpecialFunction("poch", "dd->d"),
    "bessel_i0": SpecialFunction("i0"),
    "bessel_i1": SpecialFunction("i1"),
    "bessel_i0e": SpecialFunction("i0e"),
    "bessel_i1e": SpecialFunction("i1e"),
    "bessel_j": SpecialFunction("jv", "dd->d"),
    "ndtri": SpecialFunction("ndtri"),
    "log_ndtr": SpecialFunction("log_ndtr"),
    "owens_t": SpecialFunction("owens_t", "dd->d"),
    "erfcx": SpecialFunction("erfcx"),
    "dawson": SpecialFunction("dawsn"),
    "spence": SpecialFunction("spence"),
    "expint_one": SpecialFunction("exp1"),
    "expint_i": SpecialFunction("expi"),
    "expint_n": SpecialFunction("expn", "dd->d"),
    "sine_integral": SpecialFunction("sici", "d->dd", 0),
    "cosine_integral": SpecialFunction("sici", "d->dd", 1),
    "fresnel_sine": SpecialFunction("fresnel", "d->dd", 0),
    "fresnel_cosine": SpecialFunction("fresnel", "d->dd", 1),
    "confluent_hypergeometric": SpecialFunction("hyp1f1", "ddd->d"),
    "hypergeometric": SpecialFunction("hyp2f1", "dddd->d"),
}
_COMPLEX = {
    "complex_digamma": "psi",
    "complex_gamma": "gamma",
    "complex_loggamma": "loggamma",
    "faddeeva": "wofz",
}
for _name, _ufunc in _COMPLEX.items():
    SPECIAL[f"{_name}_real_part"] = SpecialFunction(_ufunc, "D->D", 0)
    SPECIAL[f"{_name}_imaginary_part"] = SpecialFunction(_ufunc, "D->D", 1)


class UserFunction(NamedTuple):
    """A compiled function of a user's, by its types; unlike SPECIAL's it has operands of any dtype."""

    operands: tuple[np.dtype, ...]
    result: np.dtype
    evaluate: Callable[..., np.ndarray]  # of arrays that broadcast
    address: Callable[[], int]  # of a C function of the scalars, made when first asked for


USER_FUNCTIONS: dict[str, UserFunction] = {}
