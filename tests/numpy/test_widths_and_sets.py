"""view() between all widths, sets with sizes, and conversions of sequences: against NumPy and jax."""

from __future__ import annotations

import itertools

import jax.numpy as other
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp

DTYPES = ("bool", "int8", "uint16", "float16", "int32", "float32", "complex64", "int64", "float64", "complex128")


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DTYPES, DTYPES)))
def test_view_reads_the_same_bits(source, target):
    x = (np.arange(32).reshape(2, 16) % 2).astype(source)
    if target == "bool":
        x = np.zeros((2, 16), source)
    expected = x.view(target)
    np.testing.assert_array_equal(jnp.asarray(x).view(target), expected)
    compiled = rlx.jit(lambda v: v.view(target))(x)
    assert compiled.dtype == expected.dtype
    np.testing.assert_array_equal(compiled, expected)


def test_view_of_numbers_without_axes_or_of_no_whole_number():
    assert rlx.jit(lambda v: v.view("float64"))(np.complex64(1)).shape == ()
    for x, target in ((jnp.ones(()), "int8"), (jnp.ones(3, "int8"), "int32")):
        with pytest.raises(ValueError):
            x.view(target)


def test_narrow_numbers_are_packed_in_views():
    x = jnp.arange(64, dtype="uint8")
    halves = x.view("int4")
    assert halves.shape == (128,)
    np.testing.assert_array_equal(halves.view("uint8"), x)
    np.testing.assert_array_equal(halves[:4].astype(int), [0, 0, 1, 0])


ARRAYS = [np.array(x, np.int32) for x in ([3, 1, 3, 2, 2], [5], [1, 2, 7, 7])]


@pytest.mark.selected(1)
@pytest.mark.parametrize("name", ["intersect1d", "setdiff1d", "setxor1d", "union1d"])
@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("fill_value", [None, 9])
def test_sets_of_a_size(name, size, fill_value):
    for x, y in itertools.product(ARRAYS, ARRAYS):
        options = {"size": size, "fill_value": fill_value}
        expected = getattr(other, name)(x, y, **options)
        np.testing.assert_array_equal(getattr(jnp, name)(x, y, **options), expected, f"{x} {y}")
        compiled = rlx.jit(lambda a, b, options=options: getattr(jnp, name)(a, b, **options))(x, y)
        np.testing.assert_array_equal(compiled, expected)


@pytest.mark.parametrize("size", [None, 1, 4])
@pytest.mark.selected(0)
def test_places_of_common_elements(size):
    for x, y in itertools.product(ARRAYS, ARRAYS):
        found = jnp.intersect1d(x, y, return_indices=True, size=size)
        for ours, theirs in zip(found, other.intersect1d(x, y, return_indices=True, size=size), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_setxor1d_of_repeated_elements_said_to_be_unique():
    x, y = np.array([1, 1, 2]), np.array([3, 3])
    np.testing.assert_array_equal(jnp.setxor1d(x, y, assume_unique=True), np.setxor1d(x, y, assume_unique=True))


def test_complex_nan_are_one_element():
    parts = [-0.0, 0.0, 1.0, np.nan]
    x = np.array([complex(a, b) for a, b in itertools.product(parts, parts)], np.complex64)
    for ours, numpys in zip(jnp.unique(x, True, True, True), np.unique(x, True, True, True), strict=True):
        np.testing.assert_array_equal(ours, numpys)


def test_rows_without_elements_are_all_the_same():
    values, counts = jnp.unique(jnp.ones((3, 0)), return_counts=True, axis=0)
    assert values.shape == (1, 0) and counts.tolist() == [3]


def test_lists_of_numpy_numbers_promote_as_jax():
    assert jnp.array([0, np.float16(1)]).dtype == np.float16
    assert jnp.array([np.int32(1), np.float32(2.5)]).dtype == np.float32
    assert jnp.array([[1, np.bool_(True)]]).dtype == np.int32


@pytest.mark.parametrize(("value", "error"), [([0.0, None], ValueError), ([0, 2**70], OverflowError)])
def test_lists_that_are_no_arrays(value, error):
    with pytest.raises(error):
        jnp.array(value)


def test_integers_that_do_not_fit_overflow():
    with pytest.raises(OverflowError):
        jnp.ones(2, "int8") + 300
    with pytest.raises(OverflowError):
        jnp.array([300], "int8")


def test_membership():
    x = jnp.arange(4)
    assert 1 in x and 100 not in x
    for value, array in ((1, jnp.array(1)), (jnp.arange(2), jnp.arange(2))):
        with pytest.raises(ValueError):
            value in array  # noqa: B015
    for value in ("abc", None):
        with pytest.raises(TypeError):
            value in x  # noqa: B015


def test_spreads_refuse_what_is_ambiguous():
    with pytest.raises(ValueError, match="correction"):
        jnp.var(jnp.ones(3), ddof=1, correction=0)
    with pytest.raises(ValueError):
        jnp.nanvar(jnp.ones(3, "complex64"), dtype="float32")
    x = np.array([1 + 2j, np.nan, 3 - 1j], np.complex64)
    np.testing.assert_allclose(jnp.nanvar(x, dtype="complex64"), np.nanvar(x), rtol=1e-6)


def test_polynomial_of_a_matrix():
    x = np.array([[2.0, 1.0], [0.5, 3.0]], np.float32)
    np.testing.assert_allclose(jnp.poly(x).real, np.poly(x), rtol=1e-5)


def test_corners_of_orders_and_steps():
    assert jnp.lexsort(np.array([3, 1])).shape == ()
    assert jnp.linspace(np.zeros((2, 2)), 1.0, 1, retstep=True)[1].shape == ()
    assert [p.shape for p in jnp.split(jnp.zeros(4), jnp.float32(2.0))] == [(2,), (2,)]


def test_types_of_results():
    assert jnp.result_type(None) == np.float32
    assert jnp.result_type(1.0, return_weak_type_flag=True) == (np.dtype("float32"), True)
    assert jnp.result_type(jnp.int32, jnp.uint32) == np.int32
    with rlx.enable_x64(True):
        assert jnp.result_type(jnp.int32, jnp.uint32) == np.int64
    with pytest.raises(ValueError):
        jnp.result_type()
    with pytest.raises(rlx.dtypes.TypePromotionError):
        jnp.promote_types("int4", "int8")
    assert isinstance(np.float32(1), jnp.float32) and not isinstance(np.float64(1), jnp.float32)


def test_slope_of_the_bessel_function_at_zero():
    assert rlx.grad(jnp.i0)(0.0) == 0.0
    x = np.linspace(-5, 5, 7).astype(np.float32)
    np.testing.assert_allclose(jnp.i0(x), np.i0(x), rtol=1e-6)
