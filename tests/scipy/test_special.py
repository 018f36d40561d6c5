"""rlx.scipy.special: every function against SciPy (and mpmath where SciPy has none), in both precisions."""

from __future__ import annotations

from typing import Any

import jax.scipy.special
import mpmath
import numpy as np
import pytest
import scipy.special

import rlx
from rlx import errors
from rlx.scipy import special
from rlx.testing import check_grads

generator = np.random.default_rng(0)
EDGES = np.array([0.0, -0.0, 1.0, 2.0, -1.5, 30.0, -30.0, 1e-10, 700.0, np.inf, -np.inf, np.nan])
LINE = np.concatenate([generator.uniform(-5, 5, 20), EDGES])
POSITIVE = np.abs(LINE)
UNIT = np.array([0.0, 1e-300, 1e-5, 0.3, 0.49999, 0.5, 0.7, 0.99999, 1.0, -0.5, 1.5, np.nan])
GRID = np.meshgrid([0.0, 1.0, -1.0, 2.5, 40.0, np.inf, np.nan], [0.0, 1.0, -1.0, 0.3, 12.0, np.inf, np.nan])
PAIR = (generator.uniform(0.1, 5, 12), generator.uniform(0.1, 5, 12))
PLANE = generator.normal(size=12) * 2 + 1j * generator.normal(size=12) * 2

# where to look at each function; and one smooth point for its derivatives, with the operands that have one
VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys("gamma gammaln gammasgn digamma erf erfc erfcx dawsn ndtr log_ndtr expi exp1".split(), (LINE,)),
    **dict.fromkeys("sici fresnel spence i0 i0e i1 i1e entr expit factorial".split(), (LINE,)),
    **dict.fromkeys("logit ndtri erfinv".split(), (UNIT,)),
    **dict.fromkeys("loggamma".split(), (POSITIVE,)),
    **dict.fromkeys("xlogy xlog1py rel_entr kl_div gammainc gammaincc owens_t comb betaln beta".split(), tuple(GRID)),
    **dict.fromkeys("poch boxcox boxcox1p".split(), PAIR),
    "betainc": (*PAIR, generator.uniform(0, 1, 12)),
    "zeta": (PAIR[0] + 1, PAIR[1]),
    "polygamma": (np.array([0, 1, 2, 3]), np.array([0.5, 1.0, 3.0, 20.0])),
    "expn": (np.array([0, 1, 2, 5]), np.array([0.5, 1.0, 3.0, 2.0])),
    "hyp1f1": (*PAIR, generator.uniform(-3, 10, 12)),
    "hyp2f1": (PAIR[0] / 5, PAIR[1] / 5, generator.uniform(0.1, 2, 12), generator.uniform(0, 0.9, 12)),
    "wofz": (PLANE,),
}
SMOOTH: dict[str, tuple[float, ...]] = {
    **dict.fromkeys("gamma gammaln loggamma digamma erf erfc erfcx dawsn ndtr log_ndtr expi exp1".split(), (1.3,)),
    **dict.fromkeys("sici fresnel spence i0 i0e i1 i1e entr expit factorial".split(), (1.3,)),
    **dict.fromkeys("logit ndtri erfinv".split(), (0.4,)),
    **dict.fromkeys("xlogy xlog1py rel_entr kl_div gammainc gammaincc owens_t betaln beta poch".split(), (1.3, 0.6)),
    **dict.fromkeys("boxcox boxcox1p comb".split(), (2.3, 0.6)),
    "betainc": (1.3, 0.6, 0.4),
    "zeta": (2.3, 0.6),
    "hyp1f1": (1.3, 0.6, 0.4),
    "hyp2f1": (1.3, 0.6, 0.7, 0.4),
}


def flat(result: Any) -> list[np.ndarray]:
    """One array or several as a list."""
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def test_every_name_of_jax_is_there() -> None:
    names = {n for n in dir(jax.scipy.special) if not n.startswith("_")}
    deprecated = {"lpmn", "lpmn_values"}  # found by getattr in JAX, not listed
    assert names | deprecated == set(special.__all__)


@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_of_scipy(name: str) -> None:
    args = VALUES[name]
    with np.errstate(all="ignore"):
        expected = flat(getattr(scipy.special, name)(*args))
    if name == "gammaln":
        expected = [np.where(np.isneginf(args[0]), np.inf, e) for e in expected]  # as in C and JAX
    for result, value in zip(flat(getattr(special, name)(*args)), expected, strict=True):
        # betaln crosses 0
        np.testing.assert_allclose(result, value, 1e-12, 2e-14 if name == "betaln" else 1e-300)
    narrow = [a.astype(np.complex64 if a.dtype.kind == "c" else np.float32) for a in args if a.dtype.kind in "fc"]
    if len(narrow) < len(args):
        return
    wide = [a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in narrow]
    with np.errstate(all="ignore"):
        expected = [e.astype(narrow[0].dtype) for e in flat(getattr(scipy.special, name)(*wide))]
    if name == "gammaln":
        expected = [np.where(np.isneginf(args[0]), np.inf, e).astype(e.dtype) for e in expected]
    tolerance = {"kl_div": 1e-5, "rel_entr": 1e-5, "boxcox": 1e-5, "boxcox1p": 1e-5, "ndtr": 2e-4}.get(name, 5e-7)
    for result, value in zip(flat(getattr(special, name)(*narrow)), expected, strict=True):
        assert result.dtype == narrow[0].dtype
        np.testing.assert_allclose(result, value, tolerance, 1e-37)


@pytest.mark.parametrize("name", VALUES)
def test_compiled_and_mapped(name: str) -> None:
    function, args = getattr(special, name), VALUES[name]
    for other in (rlx.jit(function), rlx.vmap(function)):
        for result, value in zip(flat(other(*args)), flat(function(*args)), strict=True):
            np.testing.assert_allclose(result, value, 1e-13, 1e-300)


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_finite_differences(name: str) -> None:
    check_grads(getattr(special, name), [np.array(x) for x in SMOOTH[name]], order=2)


@pytest.mark.parametrize("name", ["gamma", "loggamma", "erfcx", "wofz"])
def test_complex_values_and_derivatives(name: str) -> None:
    expected = getattr(scipy.special, name)(PLANE)
    np.testing.assert_allclose(getattr(special, name)(PLANE), expected, 1e-12)
    np.testing.assert_allclose(rlx.jit(getattr(special, name))(PLANE), expected, 1e-12)
    check_grads(getattr(special, name), [np.array(1.2 + 0.4j)], order=2)


# ------------------------------------------------------------- derivatives in parameters, against mpmath
def derivatives(function: Any, args: tuple[float, ...], order: tuple[int, ...]) -> float:
    with mpmath.workdps(40):
        return float(mpmath.diff(function, [mpmath.mpf(a) for a in args], order))


BETA_POINTS = [
    (2.0, 3.0, 0.4),
    (0.3, 0.2, 0.9),
    (1e-3, 5.0, 0.1),
    (50.0, 0.5, 0.99),
    (2.0, 3.0, 1e-20),
    (2.0, 1e4, 1e-4),
]


@pytest.mark.parametrize("args", BETA_POINTS)
def test_betainc_in_its_shapes(args: tuple[float, ...]) -> None:
    def exact(a: Any, b: Any, x: Any) -> Any:
        return mpmath.betainc(a, b, 0, x, regularized=True)

    slopes = rlx.grad(special.betainc, argnums=(0, 1, 2))(*map(np.array, args))
    for number, slope in enumerate(slopes):
        order = tuple(int(n == number) for n in range(3))
        np.testing.assert_allclose(slope, derivatives(exact, args, order), 1e-10)


def test_betainc_at_its_ends() -> None:
    for x in (0.0, 1.0):
        slopes = rlx.grad(special.betainc, argnums=(0, 1))(np.array(2.0), np.array(3.0), np.array(x))
        assert [s.item() for s in slopes] == [0.0, 0.0]
    assert np.isnan(rlx.grad(special.betainc)(np.array(-1.0), np.array(3.0), np.array(0.5)).item())


@pytest.mark.parametrize("args", [(0.5, 0.3), (0.01, 2.0), (3.0, 1.5), (40.0, 60.0)])
def test_second_derivative_of_gammainc(args: tuple[float, ...]) -> None:
    def exact(a: Any, x: Any) -> Any:
        return mpmath.gammainc(a, 0, x, regularized=True)

    slope = rlx.grad(rlx.grad(special.gammainc))(*map(np.array, args))
    np.testing.assert_allclose(slope, derivatives(exact, args, (2, 0)), 1e-7)


@pytest.mark.parametrize("args", [(1.01, 0.5), (2.0, 1.0), (20.0, 0.3), (3.0, 1e3)])
def test_zeta_in_its_exponent(args: tuple[float, ...]) -> None:
    slope = rlx.grad(special.zeta)(*map(np.array, args))
    np.testing.assert_allclose(slope, derivatives(mpmath.zeta, args, (1, 0)), 1e-9)


@pytest.mark.parametrize("args", [(0.5, 1.5, 0.7), (20.0, 0.7, 25.0), (-2.3, 1.5, 4.0), (1.0, 1e4, 3.0)])
def test_confluent_hypergeometric_in_its_parameters(args: tuple[float, ...]) -> None:
    slopes = rlx.grad(special.hyp1f1, argnums=(0, 1, 2))(*map(np.array, args))
    for number, slope in enumerate(slopes):
        order = tuple(int(n == number) for n in range(3))
        np.testing.assert_allclose(slope, derivatives(mpmath.hyp1f1, args, order), 1e-8)


FAR = [(1.0, 3.0, -1e9), (0.3, 2.2, -1e12), (-2.0, 1.5, 1e9), (-3.0, 1.5, -1e9), (0.5, 0.5, 1e16), (0.0, 1.0, 1e9)]


@pytest.mark.parametrize("args", FAR)
def test_confluent_hypergeometric_far_from_zero(args: tuple[float, ...]) -> None:
    for function in (special.hyp1f1, rlx.jit(special.hyp1f1)):
        np.testing.assert_allclose(function(*map(np.array, args)), float(mpmath.hyp1f1(*args)), 1e-12)
    assert special.hyp1f1(np.array(0.5), np.array(-0.5), np.array(np.inf)).item() == -np.inf


@pytest.mark.parametrize("args", [(0.5, 1.5, 0.7, 0.3), (0.3, 0.4, 2.5, 0.9), (1.2, 0.3, 1.9, -4.0)])
def test_hypergeometric_in_its_parameters(args: tuple[float, ...]) -> None:
    slopes = rlx.grad(special.hyp2f1, argnums=(0, 1, 2, 3))(*map(np.array, args))
    for number, slope in enumerate(slopes):
        order = tuple(int(n == number) for n in range(4))
        np.testing.assert_allclose(slope, derivatives(mpmath.hyp2f1, args, order), 1e-8)


def test_hypergeometric_of_nan_ends() -> None:
    args = [np.array(x) for x in (1e100, 0.5, 1e100, np.nan)]
    assert np.isnan(special.hyp2f1(*args).item()) and np.isnan(rlx.jit(special.hyp2f1)(*args).item())


def test_betaln_of_a_large_and_a_small_number() -> None:
    x = np.geomspace(1, 1e30, 50)
    value, slope = rlx.jvp(special.betaln, (x, np.array(1.0)), (np.ones(50), np.array(0.0)))
    np.testing.assert_allclose(value, -np.log(x), 1e-13, 1e-13)
    np.testing.assert_allclose(slope, -1 / x, 1e-12)


# ------------------------------------------------------------- conventions
def test_derivatives_where_logarithms_vanish() -> None:
    zero, three = np.array(0.0), np.array(3.0)
    assert rlx.grad(special.xlogy)(zero, three).item() == np.log(3.0)
    assert rlx.grad(special.xlogy, argnums=1)(zero, three).item() == 0.0
    assert rlx.grad(special.xlog1py)(zero, three).item() == np.log1p(3.0)
    assert rlx.grad(special.entr)(zero).item() == np.inf
    assert rlx.jacfwd(special.entr)(zero).item() == np.inf
    assert rlx.grad(lambda x: special.sici(x)[0])(zero).item() == 1.0
    assert rlx.grad(special.spence)(np.array(1.0)).item() == -1.0
    assert rlx.grad(rlx.grad(special.spence))(np.array(1.0)).item() == 0.5


def test_log_ndtr_has_derivatives_far_out() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([-1e4, -40.0, -10.0, 0.0, 15.0, 40.0], dtype)
        slope = rlx.vmap(rlx.grad(special.log_ndtr))(x)
        wide = x.astype(np.float64)
        low = np.sqrt(2 / np.pi) / scipy.special.erfcx(-wide / np.sqrt(2))
        np.testing.assert_allclose(slope, low, 2e-6 if dtype == np.float32 else 1e-12, 1e-37)
        assert np.isfinite(rlx.vmap(rlx.grad(rlx.grad(special.log_ndtr)))(x).numpy()).all()


def test_bessel_functions_of_all_orders() -> None:
    x = np.array([[0.0, 0.5], [11.4, 100.6]])
    expected = np.stack([scipy.special.jv(v, x) for v in range(5)])
    np.testing.assert_allclose(special.bessel_jn(x, v=4), expected, 1e-12)
    np.testing.assert_allclose(rlx.jit(lambda z: special.bessel_jn(z, v=4, n_iter=80))(x), expected, 1e-12)
    check_grads(lambda z: special.bessel_jn(z, v=2), (np.array(1.3),), order=2)


@pytest.mark.thorough
def test_spherical_harmonics() -> None:
    degree, order = np.array([0, 1, 2, 3, 5, 5, 4, 60]), np.array([0, 1, -1, 2, -5, 5, 5, 7])
    theta, phi = generator.uniform(-3, 3, 8), generator.uniform(-3, 3, 8)
    expected = scipy.special.sph_harm_y(degree, order, theta, phi)
    np.testing.assert_allclose(special.sph_harm_y(degree, order, theta, phi), expected, 1e-11, 1e-14)
    compiled = rlx.jit(lambda n, m, t, p: special.sph_harm_y(n, m, t, p, n_max=60))(degree, order, theta, phi)
    np.testing.assert_allclose(compiled, expected, 1e-11, 1e-14)
    check_grads(lambda t, p: special.sph_harm_y(degree[:6], order[:6], t, p), (theta[:6], phi[:6]), order=2)
    with pytest.raises(errors.UnsupportedError):
        special.sph_harm_y(degree, order, theta, phi, diff_n=1)
    with pytest.raises(errors.ConcretizationTypeError, match="n_max"):
        rlx.jit(special.sph_harm_y)(degree, order, theta, phi)


def test_counts() -> None:
    np.testing.assert_allclose(special.comb(np.array([5, 5, 3]), np.array([2, 7, 0])), [10, 0, 1])
    np.testing.assert_allclose(special.comb(5, 2, repetition=True), 15)
    np.testing.assert_allclose(special.factorial(np.array([0, 3, -2])), [1, 6, 0])
    np.testing.assert_allclose(special.bernoulli(50), scipy.special.bernoulli(50).astype("f4"), 1e-6)
    values = generator.uniform(2, 5, (3, 4))
    np.testing.assert_allclose(special.multigammaln(values, 3), scipy.special.multigammaln(values, 3), 1e-13)
    check_grads(lambda a: special.multigammaln(a, 3), (values,), order=2)


def test_functions_along_axes() -> None:
    x = generator.normal(size=(3, 4))
    np.testing.assert_allclose(special.softmax(x), scipy.special.softmax(x), 1e-13)
    np.testing.assert_allclose(special.log_softmax(x, axis=1), scipy.special.log_softmax(x, axis=1), 1e-13)
    signed = np.where(x > 0, 1.0, -1.0)
    expected = scipy.special.logsumexp(x, 0, signed, return_sign=True)
    for result, value in zip(special.logsumexp(x, 0, signed, return_sign=True), expected, strict=True):
        np.testing.assert_allclose(result, value, 1e-12)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="integers"):
        special.polygamma(1.0, 2.0)
    with pytest.raises(NotImplementedError, match="zeta"):
        special.zeta(2.0)
    with pytest.raises(NotImplementedError, match="factorial"):
        special.factorial(3, exact=True)
    with pytest.raises(ValueError, match="0 or more"):
        special.bernoulli(-1)
    with pytest.raises(TypeError, match="series_order"):
        special.log_ndtr(1.0, 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="series_order"):
        special.log_ndtr(1.0, 31)
    with pytest.raises(errors.DtypeError, match="complex"):
        special.sici(1j)
    with pytest.raises(errors.UnsupportedError, match="its order n"):
        rlx.grad(lambda n: special.expn(n, 1.0))(2.0)
