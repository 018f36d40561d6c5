"""rlx.scipy.interpolate against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.interpolate
from linalg_cases import batch_is_a_loop, close, matrix

import rlx
from rlx import errors
from rlx.scipy.interpolate import RegularGridInterpolator
from rlx.testing import check_grads

GRID = (np.array([0.0, 1.0, 1.5, 4.0]), np.array([-1.0, 0.0, 2.0]))
POINTS = np.stack(np.meshgrid(np.linspace(-0.5, 4.5, 6), np.linspace(-1.25, 2.25, 5)), -1)


@pytest.mark.parametrize("fill_value", [None, 0.5, np.nan])
@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_values(method: str, fill_value: Any) -> None:
    for values in (matrix(4, 3), matrix(4, 3, 2), matrix(4, 3, dtype="c16")):
        found = RegularGridInterpolator(GRID, values, method, False, fill_value)(POINTS)
        expected = scipy.interpolate.RegularGridInterpolator(GRID, values, method, False, fill_value)(POINTS)
        close(found, expected)


def test_forms_of_points() -> None:
    f = RegularGridInterpolator(GRID, matrix(4, 3))
    np.testing.assert_array_equal(f((POINTS[..., 0], POINTS[..., 1])), f(POINTS))
    assert f((1.0, np.array([0.5, 1.0]))).shape == (2,)
    assert f(np.array([1.0, 0.5])).shape == (1,)
    line = RegularGridInterpolator(GRID[:1], np.array([0, 10, 15, 40]))
    np.testing.assert_allclose(line(np.array([0.5, 2.0])), [5.0, 20.0])
    np.testing.assert_allclose(line((np.array([0.5, 2.0]),), method="nearest"), [0.0, 15.0])
    assert np.isnan(line(np.array([-1e-9])).item())


@pytest.mark.thorough
def test_derivatives_and_transforms() -> None:
    values, points = matrix(4, 3), np.array([[0.4, -0.3], [2.2, 1.1]])

    check_grads(rlx.jit(lambda v, x: RegularGridInterpolator(GRID, v)(x)), (values, points), order=2)
    batch_is_a_loop(lambda v, x: RegularGridInterpolator(GRID, v)(x), (values, points), (0, None))


def test_it_is_a_pytree() -> None:
    f = RegularGridInterpolator(GRID, matrix(4, 3), "nearest", fill_value=2.0)
    doubled = rlx.jit(lambda g: rlx.tree.map(lambda x: x * 2, g))(f)
    assert doubled.method == "nearest"
    np.testing.assert_array_equal(rlx.jit(lambda g, x: g(x))(doubled, 2 * POINTS), 2 * np.asarray(f(POINTS)))


def test_wrong_arguments() -> None:
    values = np.ones((4, 3))
    for points in (GRID[:1] * 2, (*GRID, GRID[0]), (GRID[0], GRID[1][None])):
        with pytest.raises(errors.ShapeError, match="points of shapes"):
            RegularGridInterpolator(points, values)
    with pytest.raises(errors.ShapeError, match="two points or more"):
        RegularGridInterpolator((np.zeros(1),), np.ones(1))
    with pytest.raises(errors.UnsupportedError, match="cannot raise"):
        RegularGridInterpolator(GRID, values, bounds_error=True)
    with pytest.raises(errors.DtypeError, match="does not fit"):
        RegularGridInterpolator(GRID, values, fill_value=1j)
    f = RegularGridInterpolator(GRID, values)
    with pytest.raises(errors.ShapeError, match="3 coordinates; the grid has 2"):
        f(np.ones((5, 3)))
    with pytest.raises(ValueError, match="no method 'cubic'"):
        f(POINTS, method="cubic")
