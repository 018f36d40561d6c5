"""Reductions, cumulations, order statistics: axes, keepdims, masks, dtypes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison import agree, agree_in_type, bfloat16, draw

import rlx.numpy as rnp
from rlx import errors

DTYPES = ["f4", "f8", "i4", "u1", "i8", "?", "c8", "f2", bfloat16]
VALUED = ["f4", "i4", "?", "c8", bfloat16]  # the others differ in nothing but dtype
NAMES = "sum prod max min mean var std any all argmax argmin ptp count_nonzero cumsum cumprod median".split()
NAN_NAMES = (
    "nansum nanprod nanmax nanmin nanmean nanvar nanstd nanargmax nanargmin nancumsum nancumprod nanmedian".split()
)


def refused(name: str, *args: object, **kwargs: object) -> bool:
    """Whether jax refuses this call."""
    try:
        jax.eval_shape(lambda *xs: getattr(jnp, name)(*xs, **kwargs), *args)
    except (TypeError, ValueError):
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype(name: str) -> None:
    """Along all axes, one axis."""
    for dtype in DTYPES:
        x = draw((2, 3, 4), dtype, -1, 2)
        for axis in (None, 1, -1):
            late = "arg" in name and dtype == "c8"  # jax refuses complex positions when it runs
            if late or refused(name, jnp.asarray(x), axis=axis):
                if "arg" in name and dtype in ("?", "c8"):  # positions of bools and complex numbers, as in NumPy
                    continue
                with pytest.raises((errors.RlxError, TypeError, ValueError)):
                    getattr(rnp, name)(rnp.asarray(x), axis=axis)
                continue
            if axis == 1 and dtype in VALUED:
                agree(name, x, axis=axis)
            else:
                agree_in_type(name, x, axis=axis)


@pytest.mark.parametrize("name", "sum prod max min mean var std any all ptp median".split())
def test_several_axes_and_keepdims(name: str) -> None:
    """Tuples of axes, negative ones, keepdims, zero-size results."""
    x = draw((2, 3, 4))
    for axis in ((0, 2), (-1, 0), ()):
        if name == "median" and not axis:
            continue
        agree(name, x, axis=axis, keepdims=True)
        agree(name, x, axis=axis)
    agree(name, draw((0, 3)), axis=1)


@pytest.mark.parametrize("name", "sum prod mean var std any all".split())
def test_masks(name: str) -> None:
    """where= leaves elements out."""
    x = draw((3, 4))
    agree(name, x, axis=1, where=np.array([True, False, True, True]))
    agree(name, x, where=x > 0, keepdims=True)


def test_initial_values() -> None:
    """initial= is combined; extrema of nothing need it."""
    x = draw((3, 4))
    agree("sum", x, axis=0, initial=2.0)
    agree("prod", x, initial=3)
    agree("max", x, axis=1, initial=0.5)
    agree("min", x, axis=1, initial=0.5, where=x > 0)
    with pytest.raises(errors.ShapeError, match="initial"):
        rnp.max(rnp.zeros((0, 2)), axis=0)


@pytest.mark.parametrize("name", NAN_NAMES)
def test_without_nan(name: str) -> None:
    """NaN are left out; rows of nothing but NaN."""
    x = draw((4, 5))
    x[0, 1] = x[2, 3] = np.nan
    x[3] = np.nan
    for axis in (0, 1) if "arg" in name or name == "nanmedian" else (None, 0, 1):
        agree(name, x, axis=axis)
    agree(name, draw((3, 4), "i4"), axis=0)


def test_dtype_arguments() -> None:
    """dtype= decides the dtype of the computation."""
    x = draw((3, 4), "i4")
    for name in ("sum", "prod", "mean", "cumsum"):
        agree(name, x, axis=0, dtype="float32")
        agree(name, x, axis=0, dtype="float64")
    agree("var", draw((5,)), ddof=1)
    agree("std", draw((5, 2), "c8"), axis=0, ddof=1)
    agree("sum", draw((5,), "u1"), promote_integers=False)


def test_average() -> None:
    """Weights along one axis, or of the whole shape."""
    x = draw((3, 4))
    agree("average", x, axis=1)
    agree("average", x, axis=1, weights=draw((4,), low=1))
    agree("average", x, weights=draw((3, 4), low=1), returned=True)
    agree("average", draw((3, 4), "i4"), axis=0, weights=np.array([1, 2, 3]), returned=True)


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.selected(1)
def test_quantiles(method: str) -> None:
    """All methods, several fractions, NaN."""
    x = draw((5, 7))
    agree("quantile", x, np.array([0.0, 0.3, 0.75, 1.0]), axis=1, method=method)
    agree("quantile", x, 0.4, method=method, keepdims=True)
    agree("percentile", x, np.array([5.0, 50.0]), axis=(0, 1), method=method)
    x[2, 3] = np.nan
    agree("quantile", x, 0.4, axis=1, method=method)
    agree("nanquantile", x, 0.4, axis=1, method=method)
    agree("nanpercentile", x, np.array([10.0, 90.0]), axis=0, method=method)


def test_covariance() -> None:
    """cov and corrcoef with weights, two operands, complex numbers."""
    x, y = draw((3, 6), "f8"), draw((2, 6), "f8", seed=4)
    agree("cov", x)
    agree("cov", x, y, ddof=0)
    agree("cov", x.T, rowvar=False, bias=True)
    agree("cov", x, fweights=np.array([1, 2, 1, 1, 3, 1]), aweights=np.linspace(1, 2, 6))
    agree("cov", draw((3, 6), "c16"))
    agree("cov", x[0])
    agree("corrcoef", x)
    agree("corrcoef", x, y)


def test_differences() -> None:
    """diff, ediff1d, gradient, trapezoid, unwrap, cumulative_sum."""
    x = draw((4, 5), "f8")
    agree("diff", x, n=2, axis=0)
    agree("diff", x, prepend=0.0, append=np.ones((4, 2)))
    agree("diff", x > 0)
    agree("ediff1d", x, to_end=np.array([7.0]), to_begin=1.0)
    agree("gradient", x)
    agree("gradient", x, 0.5, axis=1)
    agree("gradient", x, 2.0, np.array([0.0, 1.0, 1.5, 4.0, 5.0]))
    agree("trapezoid", x, axis=0)
    agree("trapezoid", x, np.array([0.0, 1.0, 1.5, 4.0, 5.0]))
    agree("trapezoid", x, dx=0.25)
    agree("unwrap", np.cumsum(draw((20,), "f8", 0, 8)))
    agree("unwrap", np.array([0, 5, 1, 9, 3]), period=6)
    agree("cumulative_sum", x, axis=1, include_initial=True)
    agree("cumulative_prod", x, axis=0, include_initial=True)


@pytest.mark.thorough
def test_histograms_and_counts() -> None:
    """bincount, histogram in one and more dimensions, digitize, searchsorted, interp."""
    x = draw((50,), "f8")
    agree("bincount", np.array([1, 1, 4, 0]), traced=False)
    agree("bincount", np.array([1, 1, 4, 0]), np.array([0.5, 1.0, 2.0, 3.0]), length=6)
    agree("bincount", np.array([1, 9, 4]), length=3)
    agree("histogram", x, 7)
    agree("histogram", x, np.array([-2.0, -1.0, 0.0, 2.5]), weights=np.abs(x))
    agree("histogram", x, 5, range=(-1.0, 1.0), density=True)
    agree("histogram2d", x[:25], x[25:], 4)
    agree("histogramdd", x.reshape(25, 2), [3, 4], density=True)
    edges = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    agree("digitize", x, edges)
    agree("digitize", np.append(x, edges), edges, right=True)
    agree("digitize", np.append(x, edges), edges[::-1].copy())
    agree("digitize", np.append(x, edges), edges[::-1].copy(), right=True)
    values = np.array([-np.inf, -2.0, 0.5, np.inf, np.nan])
    for side in ("left", "right"):
        agree("searchsorted", np.append(edges, np.nan), values, side=side)
        agree("searchsorted", np.array([1, 1, 2, 5]), np.array([[0, 1], [2, 9]]), side=side)
    agree("searchsorted", edges[[2, 0, 4, 1, 3]], values, sorter=np.argsort(edges[[2, 0, 4, 1, 3]]))
    agree("interp", x, edges, edges**2)
    agree("interp", x, edges, edges**2, left=7.0, right=np.float64(-7))
    agree("interp", x, edges[[2, 0, 4, 1, 3]], edges**3, period=5.0)


def test_bits() -> None:
    """packbits and unpackbits."""
    x = draw((3, 11), "u1", 0, 1)
    for order in ("big", "little"):
        agree("packbits", x, axis=1, bitorder=order)
        agree("packbits", x, bitorder=order)
        agree("unpackbits", draw((3, 2), "u1", 0, 255), axis=1, bitorder=order)
    agree("unpackbits", draw((3, 2), "u1", 0, 255), axis=0, count=10)
    agree("unpackbits", draw((3,), "u1", 0, 255), count=-3)
