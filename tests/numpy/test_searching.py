"""Searching, and what needs an order of complex numbers: by the real, then the imaginary part, as NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlx
import rlx.numpy as rnp
from rlx import errors

PARTS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf])
ANY = PARTS | st.just(np.nan)
NUMBERS = st.lists(st.builds(complex, PARTS, PARTS), min_size=1, max_size=8)


def both(function: Any, *args: Any) -> list[Any]:
    """The result of a function un-jitted and compiled."""
    return [function(*args), rlx.jit(function)(*args)]


@given(st.lists(st.builds(complex, ANY, ANY), min_size=2, max_size=8))
def test_extrema_of_complex_numbers(values: list[complex]) -> None:
    """max, min, maximum and minimum give the first NaN, in whichever part, compiled and not; so do their positions."""
    x = np.array(values)
    for name in ("max", "min", "argmax", "argmin"):
        for found in both(getattr(rnp, name), x):
            np.testing.assert_array_equal(found, getattr(np, name)(x))
    for name in ("maximum", "minimum"):
        for found in both(getattr(rnp, name), x[1:], x[:-1]):
            np.testing.assert_array_equal(found, getattr(np, name)(x[1:], x[:-1]))


@pytest.mark.thorough
@given(NUMBERS, NUMBERS, st.sampled_from(["left", "right"]), st.sampled_from(["c8", "c16"]))
def test_the_order_of_complex_numbers(first: list[complex], values: list[complex], side: str, dtype: str) -> None:
    """searchsorted, digitize, histogram with edges, argmax, argmin."""
    a, v = np.sort(np.array(first, dtype)), np.array(values, dtype)
    for found in both(lambda a, v: rnp.searchsorted(a, v, side=side), a, v):
        np.testing.assert_array_equal(found, np.searchsorted(a, v, side=side))
    for found in both(lambda a, v: rnp.digitize(v, a, right=side == "left"), a, v):
        if len(a) > 1:
            np.testing.assert_array_equal(found, np.searchsorted(a, v, side=side))
    for found in both(lambda v: (rnp.argmax(v), rnp.argmin(v)), v):
        np.testing.assert_array_equal(found, [np.argmax(v), np.argmin(v)])
    edges = np.unique(a)
    if len(edges) > 1:
        inside = v[(v >= edges[0]) & (v <= edges[-1])]
        for found in both(lambda v: rnp.histogram(v, edges)[0], v):
            np.testing.assert_array_equal(found, np.histogram(inside, edges)[0])


def test_positions_of_complex_extrema_along_axes() -> None:
    """The first of equal ones, NaN before all, keepdims; nanargmax leaves NaN out."""
    x = np.array([[1 + 2j, 3j, 1 + 2j], [complex(0, np.nan), 5, np.nan]])
    for axis in (0, 1, -1, None):
        for name in ("argmax", "argmin"):
            for keepdims in (False, True):
                expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
                for found in both(lambda x, n=name, a=axis, k=keepdims: getattr(rnp, n)(x, a, keepdims=k), x):
                    np.testing.assert_array_equal(found, expected)
    for found in both(lambda x: (rnp.nanargmax(x), rnp.nanargmin(x)), x):
        np.testing.assert_array_equal(found, [np.nanargmax(x), np.nanargmin(x)])


def test_what_complex_numbers_are_refused_for() -> None:
    """As NumPy: angles of complex coordinates, interpolation at complex places."""
    for call in (lambda z: rnp.arctan2(z, z), lambda z: rnp.interp(z, [0.0, 1.0], [0.0, 1.0])):
        with pytest.raises(errors.RlxError):
            call(np.array([1j]))


FLOATS = ("f2", "f4", "f8")


@pytest.mark.parametrize("dtypes", list(itertools.product(FLOATS, FLOATS, (*FLOATS, "c8"))))
def test_interp_promotes_as_jax(dtypes: tuple[str, str, str]) -> None:
    """The result has the dtype that places and values have in common."""
    x, xp, fp = (np.arange(3).astype(d) for d in dtypes)
    for found in both(lambda *args: rnp.interp(*args), x + x.dtype.type(0.5), xp, fp):
        expected = jax.numpy.interp(x + x.dtype.type(0.5), xp, fp)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("left", [0.5, 2, 1j])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_interp_promotes_with_what_is_outside(left: complex, dtype: str) -> None:
    """left and right have a part in the dtype."""
    xp = np.arange(3).astype(dtype)
    for found in both(lambda xp: rnp.interp(xp - xp[1], xp, xp, left=left, right=left), xp):
        expected = jax.numpy.interp(xp - xp[1], xp, xp, left=left, right=left)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
