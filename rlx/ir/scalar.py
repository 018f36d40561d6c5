"""The closed scalar alphabet: what every backend spells, and nothing else.

An operation works on scalars of one dtype (that of its operands). Complex numbers and floats
narrower than 32 bits do not occur: `ScalarBuilder` in passes computes them in real parts and in
float32; only `load`, `store`, `cast` and `bitcast` know the narrow dtypes: a `cast` to one rounds,
and its result can only be an argument of `cast`, `bitcast` or `store`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["ALPHABET", "REDUCERS", "SPECIAL", "USER_FUNCTIONS", "ScalarOperation", "UserFunction"]


class ScalarOperation(NamedTuple):
    """arity, dtype kinds accepted (b: bool, i: signed, u: unsigned, f: float), result."""

    arity: int
    kinds: str
    result: str  # "same", "bool", or "attribute" (the instruction's own dtype)


_unary_float = (
    "floor ceil round_even trunc sqrt rsqrt cbrt exp exp2 expm1 log log1p log2 sin cos tan asin "
    "acos atan sinh cosh tanh asinh acosh atanh erf erfc erf_inv logistic"
).split()

ALPHABET: dict[str, ScalarOperation] = {
    # integer add, sub, mul wrap; div and rem truncate; for integers x div 0 has all bits set (-1,
    # or the unsigned maximum) and x rem 0 is 0; the least integer div -1 is itself
    **{n: ScalarOperation(2, "iuf", "same") for n in ("add", "sub", "mul", "div", "rem")},
    # min and max give NaN when either operand is NaN; on bool they are and, or
    **{n: ScalarOperation(2, "biuf", "same") for n in ("min", "max")},
    "neg": ScalarOperation(1, "iuf", "same"),
    "abs": ScalarOperation(1, "iuf", "same"),
    "sign": ScalarOperation(1, "iuf", "same"),  # NaN at NaN, keeps the sign of zero
    "pow": ScalarOperation(2, "f", "same"),
    "atan2": ScalarOperation(2, "f", "same"),
    "nextafter": ScalarOperation(2, "f", "same"),
    "copysign": ScalarOperation(2, "f", "same"),
    "fma": ScalarOperation(3, "f", "same"),
    **{n: ScalarOperation(1, "f", "same") for n in _unary_float},
    "is_finite": ScalarOperation(1, "f", "bool"),
    **{n: ScalarOperation(2, "biuf", "bool") for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{n: ScalarOperation(2, "biu", "same") for n in ("and", "or", "xor")},
    "not": ScalarOperation(1, "biu", "same"),
    # a shift by the width or more gives 0 (or the sign for shift_right_arithmetic); the amount is
    # read as unsigned; logical and arithmetic say how the bits are read, whatever the dtype's sign
    "shift_left": ScalarOperation(2, "iu", "same"),
    "shift_right_logical": ScalarOperation(2, "iu", "same"),
    "shift_right_arithmetic": ScalarOperation(2, "iu", "same"),
    "population_count": ScalarOperation(1, "iu", "same"),
    "count_leading_zeros": ScalarOperation(1, "iu", "same"),
    "select": ScalarOperation(3, "biuf", "same"),  # (bool, if true, if false); result as operand 1
    # float to integer truncates and saturates (NaN gives 0); narrow floats round to nearest even;
    # integer to integer wraps, to a narrow float goes through float32; to bool is `!= 0`
    "cast": ScalarOperation(1, "biuf", "attribute"),
    "bitcast": ScalarOperation(1, "iuf", "attribute"),  # same width
    "special": ScalarOperation(-1, "f", "same"),  # attribute: a name of SPECIAL, or of USER_FUNCTIONS
}

REDUCERS = ("add", "mul", "min", "max", "and", "or", "xor")

# Functions off the hot path: SciPy's, called natively per element (float64 inside).
SPECIAL: dict[str, int] = {
    "lgamma": 1,
    "digamma": 1,
    "polygamma": 2,
    "zeta": 2,
    "igamma": 2,
    "igammac": 2,
    "bessel_i0e": 1,
    "bessel_i1e": 1,
    "betainc": 3,
    "igamma_inverse": 2,
    "ndtri": 1,
}


class UserFunction(NamedTuple):
    """A compiled function of a user's, by its types; unlike SPECIAL's it has operands of any dtype."""

    operands: tuple[np.dtype, ...]
    result: np.dtype
    evaluate: Callable[..., np.ndarray]  # of arrays that broadcast
    address: Callable[[], int]  # of a C function of the scalars, made when first asked for


USER_FUNCTIONS: dict[str, UserFunction] = {}
