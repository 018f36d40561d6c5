"""Corners of rlx.lax: extreme values, weak types, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors, lax

HUGE = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("jit", [False, True])
def test_complex_numbers_near_cancellation_and_overflow(jit: bool) -> None:
    """The parts keep their digits where the plain formulas lose them."""
    run = rlx.jit if jit else lambda f: f
    small = np.array([1e-5, 1e-38 + 1e-15j, -1e-7 + 1e-7j, 0.5 - 0.2j, 4 + 3j], np.complex64)
    exact = np.log1p(small.real.astype("f8") * (small.real.astype("f8") + 2) + small.imag.astype("f8") ** 2) / 2
    found = np.asarray(run(lax.log1p)(small))
    np.testing.assert_allclose(found.real, exact, rtol=1e-6)
    np.testing.assert_allclose(found.imag, np.arctan2(small.imag, 1 + small.real), rtol=1e-6)
    assert run(lax.expm1)(np.complex64(1e30)) == np.inf
    np.testing.assert_allclose(run(lax.expm1)(np.complex64(0.5 + 0.2j)), np.expm1(0.5 + 0.2j), rtol=1e-6)
    squares = np.asarray(run(lax.square)(np.array([4.5e-8 * (1 + 1j), HUGE * (1 - 1j), 3 + 2j], np.complex64)))
    assert squares.real.tolist() == [0, 0, 5] and squares.imag[1:].tolist() == [-np.inf, 12]


def test_the_derivative_of_expm1_is_exp() -> None:
    """It has digits where expm1 is -1."""
    x = np.array([-80.0, -20.0, 0.0, 5.0], np.float32)
    np.testing.assert_allclose(rlx.vmap(rlx.grad(lax.expm1))(x), np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_sinc_is_nan_at_infinity(dtype: str) -> None:
    """As in NumPy and JAX, eagerly and jitted."""
    x = np.array([-np.inf, np.inf, np.nan, 0.5], dtype)
    for found in (jnp.sinc(x), rlx.jit(jnp.sinc)(x)):
        np.testing.assert_allclose(found, np.array([np.nan, np.nan, np.nan, 2 / np.pi], dtype), rtol=1e-6)


def test_broadcast_in_dim_takes_axes_in_any_order() -> None:
    """Axis i becomes axis dims[i], transposed if need be."""
    x = np.arange(6.0).reshape(3, 2)
    found = rlx.jit(lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (2, 0)))(x)
    np.testing.assert_array_equal(found, np.broadcast_to(x.T[:, None], (2, 4, 3)))
    with pytest.raises(errors.ShapeError):
        lax.broadcast_in_dim(x, (3, 3), (0, 0))


@pytest.mark.parametrize("weak_array", [False, True])
@pytest.mark.parametrize("weak_start", [False, True])
def test_reductions_are_weak_where_all_is(weak_array: bool, weak_start: bool) -> None:
    """By a known monoid and by any other one; bits are never weak."""
    x = jnp.broadcast_to(jnp.asarray(2.0), (3,)) if weak_array else jnp.full((3,), 2.0, "f4")
    start = 1.0 if weak_start else np.float32(1)
    assert x.weak_type == weak_array
    for function in (lax.add, lambda a, b: a + b * 1.5):
        found = lax.reduce(x, start, function, (0,))
        assert found.weak_type == (weak_array and weak_start)
    assert not lax.bitcast_convert_type(x, "int32").weak_type and not lax.bitcast_convert_type(x, "f4").weak_type


def test_reduce_takes_trees_of_one() -> None:
    """The computation sees the tree, and must return it."""
    x = jnp.arange(4.0)
    assert lax.reduce([x], [0.0], lambda a, b: [a[0] + b[0]], (0,))[0] == 6
    assert lax.reduce_window({"x": x}, {"x": 0.0}, lambda a, b: {"x": a["x"] + b["x"]}, (4,))["x"].tolist() == [6]
    for call in (lax.reduce, lax.reduce_window):
        with pytest.raises(ValueError, match="structure"):
            call(x, 0.0, lambda a, b: [a + b], (0,) if call is lax.reduce else (1,))


def test_top_k_positions_are_int32() -> None:
    """An axis that int32 does not count is refused; equal elements keep their order, stable or not."""
    long = rlx.ShapeDtypeStruct((2**31,), np.dtype("f4"))
    with pytest.raises(ValueError, match="overflow"):
        rlx.eval_shape(lambda x: lax.top_k(x, 3), long)
    assert lax.top_k(jnp.array([1, 3, 3, 2]), 2, is_stable=False)[1].tolist() == [1, 2]


def test_axes_of_gathers_and_scatters_ascend() -> None:
    """Other orders are refused, as by jax."""
    x, updates = jnp.zeros((3, 4, 5)), jnp.zeros((2, 5))
    indices = jnp.zeros((2, 2), int)
    with pytest.raises(TypeError, match="ascending"):
        lax.scatter(x, indices, updates, lax.ScatterDimensionNumbers((1,), (1, 0), (0, 1)))
    with pytest.raises(TypeError, match="ascending"):
        lax.gather(x, indices, lax.GatherDimensionNumbers((1,), (1, 0), (0, 1)), (1, 1, 5))
    assert lax.gather(x, indices, lax.GatherDimensionNumbers((1,), (0, 1), (0, 1)), (1, 1, 5)).shape == (2, 5)


@pytest.mark.parametrize("sizes", [(19, 3), (17, 2, 3)])
def test_group_sizes_of_a_cut_batch_axis_are_checked(sizes: tuple[int, ...]) -> None:
    """They have one axis, or the batch axes before the cut one."""
    numbers: Any = (((3,), (2,)), ((0, 1), (0, 1)))
    left, right = jnp.ones((17, 19, 2, 5)), jnp.ones((17, 19, 5, 2))

    def product(lib: Any, groups: Any) -> Any:
        options = lib.lax.RaggedDotDimensionNumbers(numbers, lhs_ragged_dimensions=[1], rhs_group_dimensions=[])
        return lib.lax.ragged_dot_general(np.asarray(left), np.asarray(right), groups, options)

    for lib in (rlx, jax):
        with pytest.raises(TypeError):
            product(lib, np.ones(sizes, np.int32))
    assert product(rlx, np.ones((17, 3), np.int32)).shape == (17, 19, 2, 2)


REFUSED: list[Any] = [
    lambda i, b, x: lax.exp(i),
    lambda i, b, x: lax.sin(b),
    lambda i, b, x: lax.round(i),
    lambda i, b, x: lax.shift_left(x, x),
    lambda i, b, x: lax.population_count(b),
    lambda i, b, x: lax.igamma(i, i),
    lambda i, b, x: lax.nextafter(i, i),
    lambda i, b, x: lax.mul(b, b),
    lambda i, b, x: lax.abs(b),
    lambda i, b, x: lax.integer_pow(i, -1),
    lambda i, b, x: lax.pow(i, i),
    lambda i, b, x: lax.cumsum(b),
    lambda i, b, x: lax.reduce_sum(b, (0,)),
    lambda i, b, x: lax.slice(x, (0,), (4,)),
    lambda i, b, x: lax.slice(x, (2,), (1,)),
    lambda i, b, x: lax.slice(x, (0, 0), (1, 1)),
    lambda i, b, x: lax.slice_in_dim(x, 0, 9),
    lambda i, b, x: lax.sort((x, x[:2])),
    lambda i, b, x: lax.full((-1,), 0.0),
    lambda i, b, x: lax.iota("int32", -1),
    lambda i, b, x: lax.broadcast(x, (-2,)),
]


@pytest.mark.parametrize("call", REFUSED)
def test_eager_calls_refuse_what_jit_refuses(call: Any) -> None:
    """NumPy would promote these dtypes, or cut off what lies outside."""
    arrays = jnp.arange(3), jnp.array([True, False]), jnp.arange(3.0)
    for function in (call, rlx.jit(call)):
        with pytest.raises(TypeError):
            function(*arrays)


def test_same_padding_of_windows_reckons_without_base_dilation() -> None:
    """As jax's does."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)

    def reduced(lib: Any) -> Any:
        return lib.lax.reduce_window(x, np.float32(0), lib.lax.add, (2, 1), (2, 1), "SAME", (2, 3))

    np.testing.assert_array_equal(reduced(rlx), reduced(jax))
