"""Numbers at the edges of quantisation schemes: tiny, huge, NaN and infinite ones, and arrays without elements."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.errors import DtypeOverflowError

SCALED = ["int8/32", "int8a/32", "int4/32", "nf4/32", "mxfp4", "nvfp4"]
STEP = {"int8/32": 0.005, "int8a/32": 0.009, "int4/32": 0.08, "nf4/32": 0.16, "mxfp4": 0.26, "nvfp4": 0.26}


def decoded(x: np.ndarray, scheme: str, jitted: bool = False) -> np.ndarray:
    """The array after the way through codes."""
    encode = rlx.jit(lambda x: quant.quantize(x, scheme)) if jitted else lambda x: quant.quantize(x, scheme)
    return np.asarray(quant.dequantize(encode(x)))


@pytest.mark.parametrize("scheme", SCALED)
def test_the_relative_error_is_the_same_at_every_magnitude(scheme: str) -> None:
    """No scale has an absolute floor that small numbers could fall below."""
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    for exponent in (-30, -20, -10, -6, -3, 0, 10, 20, 30, 37):
        scaled = (x / np.abs(x).max() * np.float32(10.0) ** exponent).astype(np.float32)
        found = decoded(scaled, scheme)
        assert np.abs(found - scaled).max() <= STEP[scheme] * np.abs(scaled).max(), exponent


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("scheme", SCALED)
def test_a_block_with_a_nan_or_an_infinity_is_nan(scheme: str, jitted: bool) -> None:
    """And no other block is."""
    for bad in (np.nan, np.inf, -np.inf):
        x = np.ones((2, 64), np.float32)
        x[1, 40] = bad
        block = quant.QuantScheme(scheme).block_size
        expected = np.zeros((2, 64), bool)
        expected[1, 40 // block * block : (40 // block + 1) * block] = True
        found = decoded(x, scheme, jitted)
        np.testing.assert_array_equal(np.isnan(found), expected)
        np.testing.assert_allclose(found[~expected], 1, rtol=0.02)


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("scheme", ["fp8e4m3", "fp8e5m2"])
def test_floats_without_scales_keep_nans_and_report_saturation(scheme: str, jitted: bool) -> None:
    """A traced array's numbers are not known, so that only others are reported."""
    x = np.array([[np.nan, np.inf, -np.inf, 1.0]], np.float32)
    np.testing.assert_array_equal(np.isnan(decoded(x, scheme, jitted)), [[True, True, True, False]])
    large = np.array([[1e6, -1e6, 2.0]], np.float32)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = decoded(large, scheme, jitted)
    assert found[0, 0] == -found[0, 1] == {"fp8e4m3": 448.0, "fp8e5m2": 57344.0}[scheme] and found[0, 2] == 2
    assert [str(w.message)[:21] for w in seen] == ([] if jitted else ["2 numbers are larger "])


@pytest.mark.parametrize("scheme", ["gguf_q4_0", "gguf_q6_k", "gguf_iq4_nl", "gguf_mxfp4"])
def test_types_of_gguf_refuse_them(scheme: str) -> None:
    """Their blocks have no NaN."""
    if scheme == "gguf_iq4_nl":
        pytest.importorskip("libgguf")
    for bad in (np.nan, np.inf):
        with pytest.raises(DtypeOverflowError, match="NaN or an infinity"):
            quant.quantize(np.full((1, 256), bad, np.float32), scheme)
    if scheme != "gguf_mxfp4":
        with pytest.raises(DtypeOverflowError, match="float16"):
            quant.quantize(np.full((1, 256), 3e38, np.float32), scheme)


@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("scheme", [*SCALED, "fp8e4m3"])
def test_arrays_without_elements(scheme: str, shape: tuple[int, int]) -> None:
    """They stay so."""
    assert decoded(np.zeros(shape, np.float32), scheme).shape == shape
