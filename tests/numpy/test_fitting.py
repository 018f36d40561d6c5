"""polyfit, roots, weighted quantiles, gradients at the edges, top_k, edits at traced places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparison import draw

import rlx
import rlx.numpy as rnp
from rlx import errors
from rlx.testing import check_grads

PLACES = np.linspace(0.0, 3.0, 9)
SAMPLES = draw((9, 2), "f8")
WEIGHTS = draw((9,), "f8", 0.1, 1.0)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"w": WEIGHTS}, {"cov": True}, {"full": True}], ids=["plain", "w", "cov", "full"]
)
def test_polyfit(options: dict[str, Any], columns: int) -> None:
    """Coefficients, diagnostics and covariances are NumPy's."""
    y = SAMPLES if columns == 2 else SAMPLES[:, 0]
    found, expected = rnp.polyfit(PLACES, y, 3, **options), np.polyfit(PLACES, y, 3, **options)
    parts = [(found, expected)] if not isinstance(expected, tuple) else list(zip(found, expected, strict=True))
    for ours, theirs in parts:
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-8)


def test_polyfit_compiles_and_has_derivatives() -> None:
    """Linear in the samples."""
    fit = rlx.jit(lambda y: rnp.polyfit(PLACES, y, 2))
    np.testing.assert_allclose(fit(SAMPLES[:, 0]), np.polyfit(PLACES, SAMPLES[:, 0], 2), rtol=1e-9)
    check_grads(lambda y: rnp.polyfit(PLACES, y, 2), (SAMPLES[:, 0],), order=1)
    unscaled = rnp.polyfit(PLACES, SAMPLES[:, 0], 1, w=WEIGHTS, cov="unscaled")[1]
    np.testing.assert_allclose(unscaled, np.polyfit(PLACES, SAMPLES[:, 0], 1, w=WEIGHTS, cov="unscaled")[1], rtol=1e-9)


def test_polyfit_refuses() -> None:
    """Shapes that do not fit, too few samples."""
    for wrong in (lambda: rnp.polyfit(PLACES, SAMPLES[:4], 1), lambda: rnp.polyfit(SAMPLES, SAMPLES, 1)):
        with pytest.raises(errors.ShapeError, match="polyfit"):
            wrong()
    with pytest.raises(errors.ShapeError, match="weights"):
        rnp.polyfit(PLACES, SAMPLES, 1, w=WEIGHTS[:3])
    with pytest.raises(ValueError, match="degree"):
        rnp.polyfit(PLACES, SAMPLES, -1)
    with pytest.raises(ValueError, match="covariance"):
        rnp.polyfit(PLACES[:3], SAMPLES[:3], 2, cov=True)


@pytest.mark.parametrize("p", [[1, -3, 2], [0, 0, 2, -4, 0, 0], [1, 0, 1], [3], [0, 0], [2j, 1]], ids=str)
def test_roots(p: list[complex]) -> None:
    """NumPy's roots up to order, zeros stripped."""
    found = np.asarray(rnp.roots(np.asarray(p, "c16" if 2j in p else "f8")))
    expected = np.roots(p)
    assert found.shape == expected.shape and found.dtype.kind == "c"
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(expected), atol=1e-12)


def test_roots_of_traced_coefficients() -> None:
    """Without stripping zeros."""
    find = rlx.jit(lambda p: rnp.roots(p, strip_zeros=False))
    np.testing.assert_allclose(np.sort(find(np.array([1.0, -3.0, 2.0])).real), [1.0, 2.0])
    with pytest.raises(errors.ConcretizationTypeError, match="strip_zeros"):
        rlx.jit(rnp.roots)(np.ones(3))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 0)], ids=str)
@pytest.mark.parametrize("skip", [False, True], ids=["quantile", "nanquantile"])
def test_weighted_quantiles(axis: Any, skip: bool) -> None:
    """method="inverted_cdf" with weights of all elements and along the axis."""
    x, w = draw((4, 5, 6)), draw((4, 5, 6), "f4", 0.0, 1.0, seed=1)
    x[0, 1, 2], w[:2, :2, :2] = np.nan, 0.0
    name = "nanquantile" if skip else "quantile"
    for q in (0.0, 0.3, 1.0, np.array([0.0, 0.1, 1.0], "f4")):
        for options in ({"weights": w}, {}, {"weights": w, "keepdims": True}):
            found = getattr(rnp, name)(x, q, axis=axis, method="inverted_cdf", **options)
            expected = getattr(np, name)(x, q, axis=axis, method="inverted_cdf", **options)
            np.testing.assert_array_equal(found, expected)
    percent = rnp.percentile(x[1:], 30.0, axis=axis, method="inverted_cdf", weights=w[1:])
    np.testing.assert_array_equal(percent, rnp.quantile(x[1:], 0.3, axis=axis, method="inverted_cdf", weights=w[1:]))


def test_weights_along_an_axis_and_wrong_ones() -> None:
    """One weight for each place along the reduced axes; NaN where a weight is negative or all are 0."""
    x, w = draw((3, 4)), draw((4,), "f4", 0.0, 1.0)
    found = rlx.jit(lambda x, w: rnp.quantile(x, 0.4, axis=1, method="inverted_cdf", weights=w))(x, w)
    np.testing.assert_array_equal(found, np.quantile(x, 0.4, axis=1, method="inverted_cdf", weights=w))
    for wrong in (np.zeros(4, "f4"), np.array([1, 1, -1, 1], "f4")):
        assert np.isnan(rnp.quantile(x, 0.4, axis=1, method="inverted_cdf", weights=wrong)).all()
    with pytest.raises(errors.UnsupportedError, match="inverted_cdf"):
        rnp.quantile(x, 0.4, axis=1, weights=w)
    with pytest.raises(errors.ShapeError, match="weights"):
        rnp.quantile(x, 0.4, weights=w, method="inverted_cdf")
    with pytest.raises(errors.DtypeError, match="complex"):
        rnp.quantile(x, 0.4, axis=1, weights=w.astype("c8"), method="inverted_cdf")


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("spacing", [(), (0.5,), (np.cumsum(np.arange(1.0, 10.0)),)], ids=["1", "0.5", "places"])
def test_gradient_at_the_edges(spacing: tuple[Any, ...], edge_order: int) -> None:
    """First and second order, even and uneven spacing."""
    found = rnp.gradient(SAMPLES, *spacing, axis=0, edge_order=edge_order)
    np.testing.assert_allclose(found, np.gradient(SAMPLES, *spacing, axis=0, edge_order=edge_order), rtol=1e-10)
    with pytest.raises(ValueError, match="edge_order=3"):
        rnp.gradient(SAMPLES, edge_order=3)
    with pytest.raises(errors.ShapeError, match="needs"):
        rnp.gradient(SAMPLES[:edge_order], axis=0, edge_order=edge_order)


def test_top_k() -> None:
    """Largest and smallest, along any axis, with derivatives."""
    x = np.array([[3.0, 1.0, np.nan, 3.0], [0.0, -1.0, 5.0, 2.0]], "f4")
    values, places = rnp.top_k(x, 2)
    assert places.tolist() == [[2, 0], [2, 3]] and values[1].tolist() == [5.0, 2.0]
    values, places = rlx.jit(lambda x: rnp.top_k(x, 2, axis=1, mode="smallest"))(x)
    assert values.tolist() == [[1.0, 3.0], [-1.0, 0.0]] and places.tolist() == [[1, 0], [1, 0]]
    assert rlx.grad(lambda x: rnp.top_k(x, 1, mode="smallest")[0].sum())(x[1]).tolist() == [0.0, 1.0, 0.0, 0.0]
    for error, wrong in (
        (errors.ShapeError, lambda: rnp.top_k(x, 9)),
        (errors.DtypeError, lambda: rnp.top_k(x.astype("c8"), 1)),
        (ValueError, lambda: rnp.top_k(x, 1, mode="middle")),
    ):
        with pytest.raises(error, match="top_k"):
            wrong()


@pytest.mark.parametrize("place", [0, 2, 3, -1])
def test_edits_at_traced_places(place: int) -> None:
    """insert and delete with an index that is known only when the program runs."""
    x = draw((2, 3))
    inserted = rlx.jit(lambda x, i: rnp.insert(x, i, 7.0, axis=1))(x, place)
    np.testing.assert_array_equal(inserted, np.insert(x, place, 7.0, axis=1))
    if place < 3:
        deleted = rlx.jit(lambda x, i: rnp.delete(x, i, axis=1, assume_unique_indices=True))(x, np.array([place]))
        np.testing.assert_array_equal(deleted, np.delete(x, place, axis=1))
    several = np.array([place, 0, 1])
    found = rlx.jit(lambda x, i: rnp.insert(x, i, np.arange(3.0, dtype="f4"), axis=0))(x[0], several)
    np.testing.assert_array_equal(found, np.insert(x[0], several, np.arange(3.0)))


def test_updates_with_indices_as_they_are() -> None:
    """wrap_negative_indices=False, apply on places named twice, static places outside."""
    x, places = rnp.arange(4.0), np.array([-1, 0, 9])
    options = {"wrap_negative_indices": False}
    assert x.at[places].set(7.0, **options).tolist() == [7.0, 1.0, 2.0, 3.0]
    assert x.at[places].get(mode="fill", fill_value=-5, **options).tolist() == [-5.0, 0.0, -5.0]
    assert rnp.take_along_axis(x, places, 0, wrap_negative_indices=False)[1].item() == 0.0
    assert rnp.take_along_axis(x, places, 0, mode="one_hot").tolist() == [3.0, 0.0, 0.0]
    twice = np.array([1, 1, 3])
    for way in (lambda f: f, rlx.jit):
        assert way(lambda x, i: x.at[i].apply(rnp.square))(2 * x, twice).tolist() == [0.0, 16.0, 4.0, 36.0]
    slope = rlx.grad(lambda x: x.at[twice].apply(rnp.square).sum())(2 * x)
    assert slope.tolist() == [1.0, 32.0, 1.0, 12.0]
    assert x.at[twice].apply(rnp.negative, unique_indices=True).tolist() == [0.0, -1.0, 2.0, -3.0]
    with pytest.warns(FutureWarning, match="int32"):
        rnp.arange(3).at[0].set(np.float32(1.5))


def test_r_and_c() -> None:
    """Directives of r_ and c_."""
    a = np.arange(6).reshape(2, 3)
    for key in (
        ("-1", a, a),
        ("0,2", [1, 2], [3, 4]),
        ("0,4,-1", [1, 2]),
        ("0,4,-2", [1, 2], [3, 4]),
        ("1,2,0", [1, 2]),
    ):
        assert rnp.r_[key].tolist() == np.r_[key].tolist() and rnp.c_[key].tolist() == np.c_[key].tolist()
    assert rnp.r_["r", [1, 2], 3].tolist() == [[1, 2, 3]] and rnp.r_["c", [1, 2], 3].tolist() == [[1], [2], [3]]
    with pytest.raises(ValueError, match="directive"):
        rnp.r_["sideways", [1]]
