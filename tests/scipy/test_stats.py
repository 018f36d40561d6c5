"""rlx.scipy.stats: every function of every distribution, against SciPy, finite differences and itself compiled."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.stats

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.scipy import stats
from rlx.testing import check_grads

# for each distribution: where to look at it, and its parameters without loc and scale
LINE = np.array([-50.0, -9.0, -2.5, -1.0, -0.3, 0.0, 0.2, 0.7, 1.0, 1.9, 3.0, 12.0, 60.0])
UNIT = np.array([-0.5, 0.0, 1e-9, 0.1, 0.5, 0.75, 0.999, 1.0, 1.5])
COUNTS = np.array([-1.0, 0.0, 1.0, 2.0, 5.0, 9.0, 20.0])
CONTINUOUS: dict[str, tuple[np.ndarray, tuple[float, ...]]] = {
    "norm": (LINE, ()),
    "cauchy": (np.append(LINE, [-1e12, 1e12]), ()),
    "expon": (np.append(LINE, 1e-12), ()),
    "gumbel_l": (LINE[1:], ()),
    "gumbel_r": (LINE, ()),
    "laplace": (LINE, ()),
    "logistic": (LINE, ()),
    "uniform": (UNIT, ()),
    "gamma": (LINE, (2.5,)),
    "chi2": (LINE, (3.0,)),
    "beta": (UNIT, (2.5, 0.7)),
    "pareto": (LINE, (1.7,)),
    "t": (LINE, (4.5,)),
    "truncnorm": (LINE, (-1.5, 2.25)),
    "gennorm": (LINE, (1.3,)),
    "vonmises": (LINE, (1.5,)),
    "wrapcauchy": (np.array([-1.0, 0.0, 0.5, 3.0, 6.0, 7.0]), (0.4,)),
}
DISCRETE: dict[str, tuple[np.ndarray, tuple[float, ...]]] = {
    "bernoulli": (COUNTS, (0.3,)),
    "binom": (COUNTS, (9.0, 0.3)),
    "betabinom": (COUNTS, (9.0, 1.5, 0.7)),
    "geom": (COUNTS, (0.3,)),
    "nbinom": (COUNTS, (4.0, 0.3)),
    "poisson": (COUNTS, (2.5,)),
}
EVERY = {**CONTINUOUS, **DISCRETE}
PROBABILITIES = np.array([-0.5, 0.0, 1e-12, 0.1, 0.5, 0.9, 1.0 - 1e-9, 1.0, 1.5, np.nan])


def _functions() -> Iterator[tuple[str, str]]:
    """Distribution and name of each function."""
    for name in EVERY:
        for function in getattr(stats, name).__all__:
            if function != "entropy":
                yield name, function


FUNCTIONS = list(_functions())


def arguments(name: str, function: str) -> tuple[Any, ...]:
    points, parameters = EVERY[name]
    if (name, function) == ("bernoulli", "ppf"):  # SciPy has -1 at 0
        return (PROBABILITIES[2:], *map(np.array, parameters))
    return (PROBABILITIES if function in ("ppf", "isf") else points, *map(np.array, parameters))


def placements(name: str, function: str) -> list[dict[str, float]]:
    """Values of loc and scale, of those that the function has."""
    known = inspect.signature(getattr(getattr(stats, name), function)).parameters
    moved = {"loc": -1.0, "scale": 1.75}
    chosen = {k: v for k, v in moved.items() if k in known}
    return [{}, chosen] if chosen else [{}]


def expected(name: str, function: str, *args: Any, **kwargs: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return getattr(getattr(scipy.stats, name), function)(*args, **kwargs)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_values_are_those_of_scipy(name: str, function: str) -> None:
    ours = getattr(getattr(stats, name), function)
    args = arguments(name, function)
    for keywords in placements(name, function):
        result = ours(*args, **keywords)
        theirs = expected(name, function, *args, **keywords)
        np.testing.assert_allclose(result, theirs, 2e-12, 1e-300, err_msg=f"{keywords}")
        single = ours(*[np.asarray(a, np.float32) for a in args], **keywords)
        assert single.dtype == np.float32
        rounded = expected(name, function, *[np.asarray(a, np.float32).astype(float) for a in args], **keywords)
        np.testing.assert_allclose(single, rounded.astype(np.float32), 4e-5, 1e-37, err_msg=f"{keywords}")


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_compiled_and_mapped(name: str, function: str) -> None:
    ours = getattr(getattr(stats, name), function)
    points, *parameters = arguments(name, function)
    eager = ours(points, *parameters)
    np.testing.assert_allclose(rlx.jit(ours)(points, *parameters), eager, 1e-12, 1e-300)
    mapped = rlx.vmap(ours, in_axes=(0, *[None] * len(parameters)))(points, *parameters)
    np.testing.assert_allclose(mapped, eager, 1e-12, 1e-300)


SMOOTH = {"uniform": 0.4, "beta": 0.4, "wrapcauchy": 0.7, "pareto": 1.9, "geom": 2.0, "bernoulli": 1.0}
NOT_SMOOTH = {("bernoulli", "cdf"), ("bernoulli", "ppf"), ("betabinom", "logpmf"), ("poisson", "cdf")}


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_derivatives_are_finite_differences(name: str, function: str) -> None:
    ours = getattr(getattr(stats, name), function)
    parameters = [np.array(p) for p in EVERY[name][1]]
    point = np.array(0.3 if function in ("ppf", "isf") else SMOOTH.get(name, 1.3))
    if name in DISCRETE:
        point = np.array(1.0)
        if (name, function) not in NOT_SMOOTH:
            check_grads(lambda *ps: ours(point, *ps), parameters, order=2)
        return
    check_grads(ours, [point, *parameters], order=2)


@pytest.mark.parametrize("name", [n for n in CONTINUOUS if n not in ("gennorm", "vonmises", "wrapcauchy", "t")])
def test_derivatives_off_the_support_are_finite(name: str) -> None:
    for function in ("logpdf", "logcdf", "cdf"):
        ours = getattr(getattr(stats, name), function, None)
        if ours is None:
            continue
        for point in (-30.0, 30.0):
            slopes = rlx.grad(lambda p, x=point, f=ours: f(x, *p), allow_int=False)(tuple(EVERY[name][1]) or (0.0,))
            assert all(np.isfinite(s.item()) for s in slopes), (function, point)


@pytest.mark.parametrize("name", ["norm", "gamma", "beta", "expon", "pareto", "truncnorm", "chi2"])
def test_invalid_parameters_give_nan(name: str) -> None:
    parameters = EVERY[name][1]
    assert np.isnan(stats.__dict__[name].cdf(0.5, *parameters, 0.0, -1.0).item()) or name == "pareto"
    assert np.isnan(stats.__dict__[name].logpdf(0.5, *parameters, 0.0, -1.0).item())


def test_tails_keep_their_digits() -> None:
    np.testing.assert_allclose(stats.norm.isf(np.array(1e-30)), scipy.stats.norm.isf(1e-30), 1e-13)
    np.testing.assert_allclose(stats.norm.logsf(np.array(40.0)), scipy.stats.norm.logsf(40.0), 1e-13)
    np.testing.assert_allclose(
        stats.beta.sf(np.array(1 - 1e-12), 2.0, 3.0), scipy.stats.beta.sf(1 - 1e-12, 2, 3), 1e-13
    )
    np.testing.assert_allclose(stats.cauchy.sf(np.array(1e18)), 1 / (np.pi * 1e18), 1e-13)
    np.testing.assert_allclose(stats.gumbel_r.sf(np.array(50.0)), np.exp(-50.0), 1e-13)
    np.testing.assert_allclose(stats.t.logpdf(np.array(1.0), 1e12), scipy.stats.norm.logpdf(1.0), 1e-11)
    truncated = stats.truncnorm.logcdf(np.array(10.5), 10.0, 11.0)
    np.testing.assert_allclose(truncated, scipy.stats.truncnorm.logcdf(10.5, 10, 11), 1e-10)


def test_integers_are_promoted() -> None:
    assert stats.norm.logpdf(1, 0, 2).dtype == jnp.asarray(1.0).dtype
    assert stats.poisson.pmf(np.arange(3), 2).shape == (3,)


@pytest.mark.parametrize("mu", [0.0, 0.5, 9.9, 10.0, 99.0, 100.0, 500.0])
def test_poisson_entropy(mu: float) -> None:
    np.testing.assert_allclose(stats.poisson.entropy(np.array(mu)), scipy.stats.poisson.entropy(mu), 1e-8)


# ------------------------------------------------------------- of vectors
def test_dirichlet() -> None:
    alpha = np.array([1.5, 2.0, 0.5])
    points = np.random.default_rng(0).dirichlet(alpha, 4).T
    theirs = scipy.stats.dirichlet.logpdf(points, alpha)
    np.testing.assert_allclose(stats.dirichlet.logpdf(points, alpha), theirs, 1e-12)
    np.testing.assert_allclose(stats.dirichlet.logpdf(points[:-1], alpha), theirs, 1e-12)
    np.testing.assert_allclose(stats.dirichlet.pdf(points, alpha), np.exp(theirs), 1e-12)
    assert stats.dirichlet.pdf(points + 0.1, alpha).tolist() == [0.0] * 4
    check_grads(lambda a: stats.dirichlet.logpdf(points, a), (alpha,), order=2)
    with pytest.raises(errors.ShapeError, match="1-d"):
        stats.dirichlet.logpdf(points, alpha[:, None])
    with pytest.raises(ValueError, match="first axis"):
        stats.dirichlet.logpdf(points[:1], alpha)


def test_multinomial() -> None:
    counts, chances = np.array([[1, 2, 0], [3, 0, 1], [1, 1, 1]]), np.array([0.2, 0.5, 0.3])
    theirs = scipy.stats.multinomial.logpmf(counts, [3, 4, 4], chances)
    np.testing.assert_allclose(stats.multinomial.logpmf(counts, np.array([3, 4, 4]), chances), theirs, 1e-12)
    np.testing.assert_allclose(stats.multinomial.pmf(counts, np.array([3, 4, 4]), chances), np.exp(theirs), 1e-12)
    with pytest.raises(errors.DtypeError, match="integers"):
        stats.multinomial.logpmf(counts * 1.0, 3, chances)


def test_multivariate_normal() -> None:
    generator = np.random.default_rng(0)
    points, mean = generator.normal(size=(4, 3)), generator.normal(size=3)
    half = generator.normal(size=(3, 3))
    covariance = half @ half.T + np.eye(3)
    theirs = scipy.stats.multivariate_normal.logpdf(points, mean, covariance)
    ours = stats.multivariate_normal.logpdf
    np.testing.assert_allclose(ours(points, mean, covariance), theirs, 1e-12)
    np.testing.assert_allclose(rlx.jit(ours)(points, mean, covariance), theirs, 1e-12)
    np.testing.assert_allclose(stats.multivariate_normal.pdf(points, mean, covariance), np.exp(theirs), 1e-12)
    batched = ours(points, mean, np.stack([covariance] * 4))
    np.testing.assert_allclose(batched, theirs, 1e-12)
    plain = scipy.stats.multivariate_normal.logpdf(points, mean, 2.0)
    np.testing.assert_allclose(ours(points, mean, 2.0), plain, 1e-12)
    np.testing.assert_allclose(
        ours(points[:, 0], np.array(0.5), 2.0), scipy.stats.norm.logpdf(points[:, 0], 0.5, 2**0.5)
    )
    check_grads(lambda x, m, c: ours(x, m, c @ c.T + jnp.eye(3)), (points[0], mean, half), order=2)
    with pytest.raises(errors.ShapeError, match="last two axes"):
        ours(points, mean, covariance[:2])
    with pytest.raises(NotImplementedError):
        ours(points, mean, covariance, allow_singular=True)  # type: ignore[arg-type]


# ------------------------------------------------------------- of samples
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_mode(axis: int | None, keepdims: bool) -> None:
    values = np.random.default_rng(0).integers(0, 4, (5, 6)).astype(np.float64)
    theirs = scipy.stats.mode(values, axis=axis, keepdims=keepdims)
    ours = stats.mode(values, axis=axis, keepdims=keepdims)
    np.testing.assert_array_equal(ours.mode, theirs.mode)
    np.testing.assert_array_equal(ours.count, theirs.count)
    np.testing.assert_array_equal(
        rlx.jit(lambda x: stats.mode(x, axis=axis, keepdims=keepdims))(values).count, theirs.count
    )


def test_mode_of_nothing_and_of_nan() -> None:
    assert np.isnan(stats.mode(np.zeros(0)).mode.item()) and stats.mode(np.zeros(0)).count.item() == 0
    found = stats.mode(np.array([np.nan, 1.0, np.nan]))
    assert np.isnan(found.mode.item()) and found.count.item() == 2
    with pytest.raises(ValueError, match="nan_policy"):
        stats.mode(np.zeros(2), nan_policy="drop")
    with pytest.raises(errors.UnsupportedError):
        stats.mode(np.zeros(2), nan_policy="omit")


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_rankdata(method: str, axis: int | None) -> None:
    values = np.random.default_rng(0).integers(0, 4, (4, 6)).astype(np.float64)
    theirs = scipy.stats.rankdata(values, method, axis=axis)
    np.testing.assert_array_equal(stats.rankdata(values, method, axis=axis), np.asarray(theirs))
    compiled = rlx.jit(lambda x: stats.rankdata(x, method, axis=axis))(values)
    np.testing.assert_array_equal(compiled, np.asarray(theirs))


def test_ranks_of_nan_and_of_nothing() -> None:
    assert np.isnan(stats.rankdata(np.array([1.0, np.nan])).numpy()).all()
    assert stats.rankdata(np.zeros(0)).shape == (0,)
    with pytest.raises(ValueError, match="no method"):
        stats.rankdata(np.zeros(2), "middle")


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sem(axis: int | None) -> None:
    values = np.random.default_rng(0).normal(size=(4, 6))
    np.testing.assert_allclose(stats.sem(values, axis), scipy.stats.sem(values, axis), 1e-12)
    np.testing.assert_allclose(stats.sem(values, axis, ddof=0), scipy.stats.sem(values, axis, ddof=0), 1e-12)
    values[1, 2] = np.nan
    omitted = scipy.stats.sem(values, axis, nan_policy="omit")
    np.testing.assert_allclose(stats.sem(values, axis, nan_policy="omit"), np.asarray(omitted), 1e-12)
    with pytest.raises(ValueError, match="nan_policy"):
        stats.sem(values, nan_policy="raise")


# ------------------------------------------------------------- densities
@pytest.mark.parametrize("dimensions", [1, 3])
@pytest.mark.parametrize("method", [None, "silverman", 0.4, lambda estimate: 0.3])
def test_gaussian_kde(dimensions: int, method: Any) -> None:
    generator = np.random.default_rng(0)
    samples, points = generator.normal(size=(dimensions, 20)), generator.normal(size=(dimensions, 5))
    weights = generator.uniform(0.1, 1, 20)
    theirs = scipy.stats.gaussian_kde(samples, method, weights)
    ours = stats.gaussian_kde(samples, method, weights)
    np.testing.assert_allclose(ours.neff, theirs.neff, 1e-12)
    np.testing.assert_allclose(ours(points), theirs(points), 1e-10)
    np.testing.assert_allclose(ours.logpdf(points), theirs.logpdf(points), 1e-10)
    np.testing.assert_allclose(rlx.jit(lambda e, x: e.pdf(x))(ours, points), theirs.pdf(points), 1e-10)
    mean, covariance = generator.normal(size=dimensions), np.eye(dimensions) * 0.5
    gaussian = theirs.integrate_gaussian(mean, covariance)
    np.testing.assert_allclose(ours.integrate_gaussian(mean, covariance), gaussian, 1e-10)
    np.testing.assert_allclose(ours.integrate_kde(ours), theirs.integrate_kde(theirs), 1e-10)
    if dimensions == 1:
        np.testing.assert_allclose(ours.integrate_box_1d(-1.0, 2.0), theirs.integrate_box_1d(-1.0, 2.0), 1e-10)
    drawn = ours.resample(rlx.random.key(0), (1000,))
    assert drawn.shape == (dimensions, 1000) and drawn.dtype == np.float64
    spread = (samples - samples @ theirs.weights[:, None]) ** 2 @ theirs.weights
    np.testing.assert_allclose(drawn.numpy().mean(1), samples @ theirs.weights, atol=0.3 * spread.max() ** 0.5 + 0.05)


def test_gaussian_kde_has_derivatives_and_refuses() -> None:
    samples = np.random.default_rng(0).normal(size=(2, 8))
    check_grads(lambda s, x: stats.gaussian_kde(s).logpdf(x), (samples, samples[:, :3] + 0.1), order=1)
    with pytest.raises(ValueError, match="several samples"):
        stats.gaussian_kde(np.zeros(1))
    with pytest.raises(ValueError, match="bw_method"):
        stats.gaussian_kde(samples, "narrow")
    with pytest.raises(ValueError, match="weights"):
        stats.gaussian_kde(samples, weights=np.ones(3))
    with pytest.raises(NotImplementedError):
        stats.gaussian_kde(samples * 1j)
    estimate = stats.gaussian_kde(samples)
    with pytest.raises(ValueError, match="first axis"):
        estimate(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="is for one"):
        estimate.integrate_box_1d(0.0, 1.0)
    for refused in (lambda: estimate.integrate_box([0, 0], [1, 1]), estimate.set_bandwidth):
        with pytest.raises(NotImplementedError):
            refused()
