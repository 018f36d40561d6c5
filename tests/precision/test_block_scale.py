"""Casts with a scale for each block: against ml_dtypes by hand, special values, products in eight bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.numpy as jnp
from rlx.errors import RlxError
from rlx.precision import BlockScaled, CastConfig, PrecisionPolicy, mixed_precision

rng = np.random.default_rng(11)
DTYPES = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"]


def by_hand(x: np.ndarray, config: CastConfig) -> tuple[np.ndarray, np.ndarray]:
    """Elements and scales of the rows of a matrix, block by block."""
    dtype = np.dtype(config.dtype)
    largest = np.float32(ml_dtypes.finfo(dtype).max)
    elements, scales = np.zeros(x.shape, dtype), []
    for start in range(0, x.shape[1], config.block):
        part = x[:, start : start + config.block]
        peak = np.abs(part).max(1)
        if config.power_of_two:
            scale = np.array(
                [2.0 ** (np.floor(np.log2(float(p))) - np.floor(np.log2(largest))) if p else 1.0 for p in peak], "f4"
            )
        else:
            scale = np.where(peak > 0, peak / largest, np.float32(1)).astype("f4")
        scaled = np.clip(part / scale[:, None], -largest, largest)
        elements[:, start : start + config.block] = scaled.astype(dtype)
        scales.append(scale)
    return elements, np.stack(scales, 1)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    block=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
    power_of_two=st.booleans(),
    spread=st.integers(0, 12),
)
def test_elements_and_scales(seed: int, block: int, dtype: str, power_of_two: bool, spread: int) -> None:
    numbers = np.random.default_rng(seed)
    x = (numbers.normal(size=(3, 17)) * 10.0 ** numbers.integers(-spread, spread + 1, (3, 17))).astype("f4")
    config = CastConfig(dtype, block, power_of_two)
    elements, scales = by_hand(x, config)
    found = config.quantize(x)
    assert isinstance(found, BlockScaled) and found.elements.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(np.asarray(found.scales), scales)
    np.testing.assert_array_equal(np.asarray(found.elements).astype("f4"), elements.astype("f4"))
    wide = np.repeat(scales, block, 1)[:, :17]
    np.testing.assert_array_equal(np.asarray(config.dequantize(found)), elements.astype("f4") * wide)
    turned = config.quantize(x.T, axis=0)
    np.testing.assert_array_equal(np.asarray(turned.scales), scales.T)
    np.testing.assert_array_equal(np.asarray(config.rounded(x.T, 0)), np.asarray(config.rounded(x)).T)


def test_scales_make_small_blocks_survive() -> None:
    x = np.concatenate([np.full(32, 300.0), np.full(32, 1e-9)]).astype("f4")
    plain = x.astype("float8_e4m3fn").astype("f4")
    assert not plain[32:].any()
    np.testing.assert_allclose(CastConfig().rounded(x), x, rtol=0.07)


def test_special_values() -> None:
    x = np.array([[0.0, -0.0, 0.0, 0.0], [np.nan, 1, 2, 3], [1, np.inf, 2, 3], [1e-45, 0, 0, 0]], "f4")
    for config in (CastConfig(block=4), CastConfig(block=4, power_of_two=False)):
        found = np.asarray(config.rounded(x))
        np.testing.assert_array_equal(found[0], 0.0)
        assert np.isnan(found[1:3]).all() and np.isfinite(found[3]).all()
    assert CastConfig().quantize(np.zeros((2, 0), "f4")).elements.shape == (2, 0)


def test_the_derivative_goes_straight_through() -> None:
    x = rng.normal(size=(4, 40)).astype("f4")
    config = CastConfig()
    np.testing.assert_array_equal(np.asarray(rlx.grad(lambda v: (config.rounded(v) * x).sum())(x)), x)
    primal, tangent = rlx.jvp(lambda v: config.rounded(v), (x,), (2 * x,))
    np.testing.assert_array_equal(np.asarray(tangent), 2 * x)
    np.testing.assert_array_equal(np.asarray(rlx.vmap(config.rounded)(x)), np.asarray(primal))
    np.testing.assert_array_equal(np.asarray(rlx.jit(config.rounded)(x)), np.asarray(primal))


def test_products_in_eight_bits() -> None:
    x, w = rng.normal(size=(6, 50)).astype("f4"), rng.normal(size=(50, 5)).astype("f4")
    config = CastConfig("float8_e4m3fn", 16)
    mixed = mixed_precision(jnp.matmul, PrecisionPolicy.custom(cast=config))
    expected = np.asarray(config.rounded(x)) @ np.asarray(config.rounded(w, 0))
    for function in (mixed, rlx.jit(mixed)):
        np.testing.assert_allclose(function(x, w), expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(expected, x @ w, rtol=1e-3)
    got = rlx.grad(lambda w: mixed(x, w).sum())(w)
    np.testing.assert_allclose(got, np.broadcast_to(np.asarray(config.rounded(x)).sum(0)[:, None], w.shape), rtol=1e-5)


def test_other_dtypes_are_untouched() -> None:
    x = rng.normal(size=(4, 4))
    policy = PrecisionPolicy.custom(cast=CastConfig())
    assert not policy.is_identity
    np.testing.assert_array_equal(np.asarray(mixed_precision(jnp.matmul, policy)(x, x)), np.asarray(jnp.matmul(x, x)))


@pytest.mark.parametrize("wrong", [{"dtype": "float16"}, {"block": 0}, {"block": 1.5}])
def test_casts_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(RlxError, match="is not a cast"):
        CastConfig(**wrong)
