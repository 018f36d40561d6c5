"""Block-scaled products: their documented meaning, casts and derivatives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors, nn


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f4")


@pytest.mark.parametrize("compiled", [False, True])
def test_scaled_matmul_is_the_product_of_scaled_operands(compiled: bool) -> None:
    """By the formula of JAX's documentation, of the dtypes that hardware takes."""
    a = draw(2, 3, 8).astype(ml_dtypes.float8_e4m3fn)
    b = draw(2, 5, 8, seed=1).astype(ml_dtypes.float8_e4m3fn)
    a_scales = np.exp2(np.arange(12).reshape(2, 3, 2) - 6.0).astype(ml_dtypes.float8_e8m0fnu)
    b_scales = np.exp2(np.arange(20).reshape(2, 5, 2) - 10.0).astype(ml_dtypes.float8_e8m0fnu)
    function = rlx.jit(nn.scaled_matmul) if compiled else nn.scaled_matmul
    whole = [np.repeat(s.astype("f4"), 4, -1) * x.astype("f4") for x, s in ((a, a_scales), (b, b_scales))]
    expected = np.einsum("bmk,bnk->bmn", *whole)
    found = function(a, b, a_scales, b_scales)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    half = nn.scaled_matmul(a, b, a_scales, b_scales, jnp.bfloat16)
    assert half.dtype == jnp.bfloat16


@pytest.mark.parametrize("shapes", [((3, 8), (5, 8), (3, 2), (5, 2)), ((1, 3, 8), (1, 5, 8), (1, 3, 3), (1, 5, 3))])
def test_scaled_matmul_refuses_other_shapes(shapes: Any) -> None:
    with pytest.raises(errors.ShapeError, match="scales"):
        nn.scaled_matmul(*[np.ones(s, "f4") for s in shapes])


def test_scaled_dot_general_of_what_can_be_represented() -> None:
    """1.5, 3 and 6, the largest float of four bits, survive both casts, whatever the axes."""
    x = 1.5 * np.exp2(np.random.default_rng(0).integers(0, 3, (2, 64, 6))).astype("f4")
    y = 1.5 * np.exp2(np.random.default_rng(1).integers(0, 3, (64, 2, 3))).astype("f4")
    numbers = (((1,), (0,)), ((0,), (1,)))
    expected = rlx.lax.dot_general(x, y, numbers)
    for mode in ("mxfp8", "nvfp4"):
        configs = [nn.get_scaled_dot_general_config(mode)] * 3
        np.testing.assert_array_equal(nn.scaled_dot_general(x, y, numbers, configs=configs), expected)
        jitted = rlx.jit(lambda a, b, c=configs: nn.scaled_dot_general(a, b, numbers, configs=c))
        np.testing.assert_array_equal(jitted(x, y), expected)
    np.testing.assert_array_equal(nn.scaled_dot_general(x, y, numbers), expected)


@pytest.mark.parametrize(("mode", "error"), [("mxfp8", 0.05), ("nvfp4", 0.3)])
def test_scaled_dot_general_is_near_and_has_derivatives(mode: Any, error: float) -> None:
    """Blocks that do not fill up, zeros, and gradients near those of the exact product."""
    x, y = draw(5, 40), draw(7, 40, seed=1)
    x[0] = 0
    scale = np.array([0.25], "f4") if mode == "nvfp4" else None
    configs = [nn.get_scaled_dot_general_config(mode, scale)] * 3
    numbers = (((1,), (1,)), ((), ()))
    weights = draw(5, 7, seed=2)

    def loss(a: Any, b: Any, casts: Any) -> Any:
        return jnp.sum(weights * nn.scaled_dot_general(a, b, numbers, configs=casts))

    exact = x @ y.T
    found = np.asarray(nn.scaled_dot_general(x, y, numbers, configs=configs))
    assert not found[0].any() and np.isfinite(found).all()
    assert 0 < np.linalg.norm(found - exact) < error * np.linalg.norm(exact)
    slopes = rlx.jit(lambda a, b: rlx.grad(loss, (0, 1))(a, b, configs))(x, y)
    for slope, wanted in zip(slopes, rlx.grad(loss, (0, 1))(x, y, None), strict=True):
        difference = np.linalg.norm(np.asarray(slope) - np.asarray(wanted))
        assert slope.dtype == np.float32
        assert difference < 0.1 * np.linalg.norm(np.asarray(wanted))
        assert difference > 0 or mode == "nvfp4"


def test_modes() -> None:
    """Their dtypes, and a refusal of others."""
    small = nn.get_scaled_dot_general_config("nvfp4")
    assert (small.block_size, np.dtype(small.data_type)) == (16, np.dtype(ml_dtypes.float4_e2m1fn))
    assert small.global_scale.tolist() == [1.0]
    assert np.dtype(nn.get_scaled_dot_general_config("mxfp8").scale_type) == np.dtype(ml_dtypes.float8_e8m0fnu)
    with pytest.raises(ValueError, match="int8"):
        nn.get_scaled_dot_general_config("int8")  # type: ignore[arg-type]
