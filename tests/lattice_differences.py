"""Where results at the lattice may differ from jax's, or between devices: a reason for each row.

Nothing else may: `tests/test_lattice.py` compares every element of values, tangents and cotangents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from rlx.ir.types import is_inexact

__all__ = ["EXCLUDED", "NARROW_WITHOUT_JAX", "UP_TO_SIGNS", "WITHOUT_JAX", "allowed", "tolerance"]


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


SUMS = _names(
    "reduce_sum cumsum dot_general conv_general_dilated scatter_add reduce_window select_and_scatter_add"
    " select_and_gather_add overlap_add cumlogsumexp csr_product sampled_product"
    " process_all_reduce process_reduce_scatter process_total reduce fft"
)
PRODUCTS = _names("reduce_prod cumprod scatter_mul")
FACTORISATIONS = _names(
    "qr packed_qr pivoted_qr householder_product cholesky lu eigh svd eig schur hessenberg tridiagonal matrix_sqrt"
)
SOLVES = _names(
    "triangular_solve tridiagonal_solve sylvester csr_solve csr_lstsq csr_logdet csr_triangular_solve csr_incomplete_lu"
)
SPECIAL = _names(
    "lgamma digamma polygamma zeta gamma pochhammer binomial igamma igammac igamma_grad_a random_gamma_grad beta"
    " log_beta betainc betaincc bessel_i0 bessel_i1 bessel_i0e bessel_i1e bessel_j erfcx dawson expint_i"
    " expint_one expint_n sine_integral cosine_integral fresnel_sine fresnel_cosine spence ndtri"
    " log_ndtr owens_t confluent_hypergeometric"
    " hypergeometric complex_gamma complex_loggamma complex_digamma faddeeva"
)


class Excluded(NamedTuple):
    """Fillings that some primitives are not given."""

    names: frozenset[str]
    fillings: tuple[str, ...]  # how their names begin
    reason: str


EXCLUDED = (
    Excluded(SUMS, ("in turn", "all largest"), "sums of the largest numbers depend on their order"),
    Excluded(PRODUCTS, ("in turn", "all least", "all largest"), "products of extremes depend on their order"),
    Excluded(
        FACTORISATIONS, ("all 0", "all -0", "all 1", "all inf", "all -inf", "all l", "in turn", "repeats", "zeros",
                "one"),
        "singular matrices have no unique factors, and LAPACK's are not defined for infinities",
    ),
    Excluded(
        SOLVES, ("all 0", "all -0", "all 1", "all l", "in turn", "repeats", "zeros", "one 0"),
        "a singular system has no solution; its pivots are zeros or roundings of zero",
    ),
    Excluded(SOLVES, ("all inf", "all -inf", "one inf", "one -inf"), "elimination orders differ: 0 * inf or 0 first"),
)  # fmt: skip

# whose oracle is SciPy alone (the device `reference`)
WITHOUT_JAX: dict[str, str] = {
    **dict.fromkeys(SPECIAL - _names("bessel_i0 bessel_i1 bessel_i0e bessel_i1e erfcx ndtri log_ndtr"),
                    "JAX's approximations have other limits at poles and infinities; its gradients are compared"
                    " inside the domains (test_primitives_jax.py)"),
    **dict.fromkeys(FACTORISATIONS - {"cholesky"}, "factors are compared with jax's in tests/linalg"),
    **dict.fromkeys(SOLVES, "JAX computes by other orders of elimination; compared with jax's in tests/linalg"),
    "select_and_gather_add": "JAX has it as a derivative only: tests/ops compares the windows' derivatives",
    "select_and_scatter_add": "JAX has it as a derivative only: tests/ops compares the windows' derivatives",
    "reduce": "takes a program of rlx",
}  # fmt: skip


# which jax does not compute in 16 bits, or in another order: products of the samples leave the range of float16
NARROW_WITHOUT_JAX = _names("ndtri log_ndtr reduce_prod")
# whose vectors are determined up to their signs, which differ between devices; tests/linalg multiplies the factors
UP_TO_SIGNS = _names("eigh svd")


def tolerance(
    name: str, what: str, oracle: str, expected: np.ndarray, operands: Sequence[np.ndarray]
) -> tuple[float, float]:
    """Units in the last place, and an absolute error below which numbers are equal.

    Derivatives subtract numbers near 1 (1 - tanh(x) ** 2): they are exact to places of the tangents, which are near 1.
    XLA flushes subnormal numbers to zero, also between operations.
    """
    if not is_inexact(expected.dtype):
        return 0.0, 0.0
    info = ml_dtypes.finfo(expected.dtype)
    eps, floor = float(info.eps), 4 * float(info.smallest_normal) if oracle == "jax" else 0.0
    ulps = 512.0 if name in SPECIAL else 8.0
    if what != "value":
        ulps *= 16
        floor = max(floor, 16 * eps)
    if name in SUMS | PRODUCTS | FACTORISATIONS | SOLVES:
        wide = [np.abs(a.astype(np.complex128)) for a in (*operands, expected) if is_inexact(a.dtype)]
        sizes = [float(a[np.isfinite(a)].max(initial=0.0)) for a in wide]
        floor = max(floor, (64 if name in FACTORISATIONS | SOLVES else 16) * eps * max(sizes, default=0.0))
    return ulps, floor


class Allowed(NamedTuple):
    """A difference that is known."""

    names: frozenset[str]
    oracle: str  # "jax", "reference", or "" for both
    kinds: frozenset[str]
    reason: str
    what: str = ""  # "value", "jvp", "vjp", "derivative", or "" for all
    where: Callable[[str, Sequence[Any]], bool] = lambda filling, at: True


def _any(test: Callable[[float], bool]) -> Callable[[str, Sequence[Any]], bool]:
    """Where an operand passes a test."""
    return lambda filling, at: any(test(float(x)) for x in at if np.ndim(x) == 0 and not np.iscomplexobj(x))


_zero = _any(lambda x: x == 0)


def _extreme(filling: str, at: Sequence[Any]) -> bool:
    """Where an operand, its square or its exponential is near an end of the dtype's range."""
    scalars = [x for x in at if np.ndim(x) == 0 and not np.iscomplexobj(x)]
    return any(not (0.01 < abs(x) < 29 if x.dtype == np.float16 else 1e-30 < abs(x) < 1e30) for x in scalars)


def _filled(*words: str) -> Callable[[str, Sequence[Any]], bool]:
    """Fillings whose names begin so."""
    return lambda filling, at: filling.startswith(words)


_EXTREMA = _names("maximum minimum clamp reduce_max reduce_min cummax cummin scatter_max scatter_min reduce_window")
_ZERO, _NAN, _NUMBERS = frozenset({"zero"}), frozenset({"nan"}), frozenset({"nan", "inf", "ulp"})
_ALL = _NUMBERS | _ZERO

_COMPLEX = _names("sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh")

ALLOWED: tuple[Allowed, ...] = (
    Allowed(_EXTREMA, "", _ZERO, "IEEE 754 leaves the sign of an extremum of zeros open; XLA orders them"),
    Allowed(SUMS, "", _ZERO, "a sum of negative zeros is 0. if it begins with 0., and -0. if it begins with a term"),
    Allowed(PRODUCTS | FACTORISATIONS | SOLVES, "", _ZERO, "zeros' signs depend on the order of operations"),
    Allowed(_names("entr"), "jax", _ZERO, "JAX has -0. at 0"),
    Allowed(_names("top_k"), "jax", frozenset({"zero", "integer", "ulp"}),
            "zeros of both signs tie here, as in sort; XLA's CPU orders them", "", _filled("zeros", "in turn")),
    Allowed(_names("divide"), "jax", _NUMBERS, "JAX computes -x / (y * y), whose square over- or underflows",
            "derivative", _extreme),
    Allowed(_names("power"), "jax", _NAN, "x ** 0 is 1 for every x, also at 0, where JAX's derivative is NaN",
            "derivative", _zero),
    Allowed(_names("power"), "jax", _NUMBERS, "XLA flushes an intermediate power to 0", "derivative", _extreme),
    Allowed(_names("logaddexp"), "jax", _NUMBERS,
            "JAX has e ** x, not 0, beside an infinity; 1 or NaN for each of two equal ones, not the limit 1/2",
            "derivative", _extreme),
    Allowed(_names("reduce_prod"), "jax", _NAN, "the product of the other infinities, which JAX multiplies by 0",
            "derivative", _filled("all inf", "all -inf")),
    Allowed(_names("reduce_prod cumprod"), "jax", _NUMBERS, "JAX's products by halves meet 0 * inf in other places",
            "", _filled("one inf", "one -inf")),
    Allowed(_names("reduce_max reduce_min"), "jax", _NAN,
            "0 / 0, the share of a NaN that equals nothing; XLA folds the product by a mask away", "vjp",
            _filled("all nan", "one nan", "in turn")),
    Allowed(_names("cumlogsumexp"), "jax", _NAN, "the limit, where JAX has -inf - -inf", "derivative",
            _filled("all inf", "all -inf", "one inf", "one -inf")),
    Allowed(_names("conv_general_dilated"), "jax", _NAN, "JAX multiplies the zeros between dilated elements",
            "", _filled("all inf", "all -inf", "all nan", "one")),
    Allowed(_names("cholesky"), "jax", _NAN, "tangents above the diagonal are of a NaN matrix, not 0", "jvp"),
    Allowed(_names("fft"), "", _NUMBERS, "which parts of the sums of an infinity are NaN depends on the algorithm", "",
            _filled("all inf", "all -inf", "all nan", "one")),
    Allowed(_names("erfcx xlogy xlog1py log_ndtr entr ndtri bessel_i0"), "jax", _NUMBERS,
            "XLA flushes, or JAX multiplies, a 0 by an infinity where the derivative's limit is finite or infinite",
            "derivative", _extreme),
    Allowed(_names("entr"), "jax", _NAN, "entr is -inf below 0, without a slope; JAX's vjp has 0 * NaN", "vjp",
            _any(lambda x: x < 0)),
    Allowed(_names("ndtri"), "jax", frozenset({"inf"}), "the limit at 1 is infinite; JAX has 0", "derivative"),
    Allowed(_names("bessel_i0"), "jax", frozenset({"ulp"}),
            "an even function's derivative at 0 is 0; JAX has that of e ** |x|",
            "derivative", _zero),
    Allowed(_names("polygamma"), "reference", _ALL, "SciPy's orders are whole numbers", "",
            lambda filling, at: not 0 <= float(at[0]) < 1e3 or float(at[0]) % 1 != 0),
    Allowed(_names("confluent_hypergeometric hypergeometric"), "reference", _ALL,
            "derivatives are limits at poles and infinities", "derivative",
            _any(lambda x: math.isinf(x) or x <= 0 or x == 1)),
    Allowed(_names("zeta pochhammer binomial beta log_beta betainc betaincc bessel_i0 bessel_i1 spence"),
            "reference", _ALL,
            "kernels have the limit, and NaN for a NaN, where SciPy has NaN, or loses the NaN beside a pole", "",
            _any(lambda x: not 1e-30 < x < 1e30)),
    Allowed(_names("householder_product"), "reference", _NAN, "LAPACK does not read the triangle above the reflectors"),
    Allowed(_COMPLEX, "reference", _NAN | _ZERO, "where a part is NaN, which of the result's parts are NaN is open", "",
            lambda filling, at: not np.isfinite(at).all()),
)  # fmt: skip


def allowed(
    name: str, oracle: str, device: str, what: str, number: int, kind: str, filling: str, at: Sequence[Any]
) -> bool:
    """Whether a row says that an element may differ."""
    return any(
        name in row.names
        and row.oracle in ("", oracle)
        and kind in row.kinds
        and row.what in ("", what, "derivative" if what != "value" else "")
        and row.where(filling, at)
        for row in ALLOWED
    )
