"""Products in integers: against NumPy's exact ones, and against onnxruntime, which rounds x in the same way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.errors import OptionError
from rlx.quant.integer_products import LARGEST

SCHEMES = ["int8/32", "int8/6", "int8a/64", "int4/32", "gguf_q8_0", "gguf_q4_0", "gguf_q4_1"]


def product(x: Any, w: quant.QuantizedArray) -> Any:
    return quant.dequant_matmul(x, w, activations="int8")


def operands(scheme: str, m: int = 5, n: int = 37, length: int = 192) -> tuple[np.ndarray, quant.QuantizedArray]:
    rng = np.random.default_rng(m)
    w = quant.quantize(rng.standard_normal((n, length)).astype(np.float32), scheme)
    return rng.standard_normal((m, length)).astype(np.float32), w


def rounded(x: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes [m, blocks, block] as int64 and scales [m, blocks] of x."""
    blocks = x.reshape(len(x), -1, block)
    scales = np.maximum(np.abs(blocks).max(-1) / np.float32(127), np.float32(1e-6))
    return np.clip(np.rint(blocks / scales[..., None]), -127, 127).astype(np.int64), scales


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.selected(1)
def test_products_are_those_of_the_rounded_x(scheme: str) -> None:
    """In float64 beside the decoded weight; not those of x itself."""
    for m in (1, 2, 7, 128):
        x, w = operands(scheme, m)
        codes, scales = rounded(x, w.scheme.block_size)
        full = np.asarray(quant.dequantize(w), np.float64).T
        expected = (codes * scales[..., None].astype(np.float64)).reshape(x.shape) @ full
        size = np.abs(expected).max()
        for run in (product, rlx.jit(product), rlx.jit(product, device="reference")):
            np.testing.assert_allclose(run(x, w), expected, atol=2e-6 * size, rtol=0)
        assert np.abs(x @ full - expected).max() > 1e-3 * size


@pytest.mark.parametrize("scheme", ["int8/32", "int8a/32", "int4/32"])
@pytest.mark.parametrize("device", ["cpu", "c"])
def test_sums_are_exact(scheme: str, device: str) -> None:
    """Scales are powers of two, so that float32 holds every partial sum: results are NumPy's integers to the bit."""
    rng = np.random.default_rng(0)
    m, n, blocks = 6, 11, 4
    top = 7 if scheme.startswith("int4") else 127
    given, codes = rng.integers(-127, 128, (m, blocks, 32)), rng.integers(-top - 1, top + 1, (n, blocks, 32))
    given[:, :, 3] = 127  # so that the scale is what it was made with
    zeros = rng.integers(-128, 128, (n, blocks)) if scheme.startswith("int8a") else np.zeros((n, blocks), np.int64)
    x_powers, powers = rng.integers(0, 3, (m, blocks)), rng.integers(0, 3, (n, blocks))
    sums = np.einsum("mbi,nbi->mbn", given, codes - zeros[..., None])
    expected = (sums << (x_powers[:, :, None] + powers.T[None])).sum(1)
    assert np.abs(expected).max() < 1 << 24
    if top == 7:
        flat = (codes + 8).reshape(n, -1).astype(np.uint8)
        elements = flat[:, 0::2] | flat[:, 1::2] << 4
    else:
        elements = codes.reshape(n, -1).astype(np.int8)
    points = zeros.astype(np.float32) if scheme.startswith("int8a") else None
    w = quant.QuantizedArray(elements, np.exp2(powers, dtype=np.float32), points, None, quant.QuantScheme(scheme))
    x = (given * np.exp2(x_powers)[..., None]).reshape(m, -1).astype(np.float32)
    np.testing.assert_array_equal(rlx.jit(product, device=device)(x, w), expected)


def test_a_long_block_is_summed_without_rounding_and_without_overflow() -> None:
    """float32 would lose the ones: 127 * 127 * 100000 has more bits than it holds, int32 has just enough."""
    length = 100_000
    elements = np.full((2, length), 127, np.int8)
    elements[1, 1:9] = -1
    w = quant.QuantizedArray(elements, np.ones((2, 1), np.float32), None, None, quant.QuantScheme(f"int8/{length}"))
    x = np.full((1, length), 127, np.float32)
    expected = np.float32(x.astype(np.int64) @ elements.astype(np.int64).T)
    assert expected.max() > 1.6e9
    np.testing.assert_array_equal(rlx.jit(product)(x, w), expected)


def test_it_is_differentiable_in_x_batched_and_has_a_global_scale() -> None:
    x, w = operands("int8a/64")
    full = np.asarray(quant.dequantize(w))
    slope = rlx.jit(rlx.grad(lambda x, w: (2 * product(x, w)).sum()))(x, w)
    np.testing.assert_allclose(slope, np.tile(2 * full.sum(0), (5, 1)), rtol=1e-4, atol=1e-4)
    one = np.asarray(product(x, w))
    np.testing.assert_allclose(
        rlx.vmap(product, (0, None))(np.stack([x, 2 * x]), w), np.stack([one, 2 * one]), rtol=1e-6
    )
    scaled = quant.QuantizedArray(w.elements, w.scales, w.zeros, np.float32(0.5), w.scheme)
    np.testing.assert_array_equal(product(x, scaled), one * np.float32(0.5))
    zeros = product(np.zeros((2, 192), np.float32), w)
    assert not np.asarray(zeros).any(), "blocks of zeros have the least scale"
    assert np.isnan(np.asarray(product(np.where(np.arange(5)[:, None] == 3, np.nan, x), w))[3]).all()


def test_what_has_no_integers_is_refused() -> None:
    x, w = operands("int8/32")
    with pytest.raises(OptionError, match="activations='int4'") as raised:
        quant.dequant_matmul(x, w, activations="int4")
    assert "test_integer_products.py" in str(raised.value), "the user's line"
    for scheme in ("nf4/64", "fp8e4m3", "mxfp4", "gguf_iq4_nl"):
        with pytest.raises(OptionError, match="are not integers"):
            product(x, quant.quantize(np.ones((3, 192), np.float32), scheme))
    width = LARGEST + 1
    wide = quant.QuantizedArray(
        np.ones((1, width), np.int8), np.ones((1, 1), np.float32), None, None, quant.QuantScheme(f"int8/{width}")
    )
    with pytest.raises(OptionError, match=f"blocks of at most {LARGEST}"):
        product(np.ones((1, width), np.float32), wide)


# ---------------------------------------------------------------- onnxruntime
def theirs(kind: str, x: np.ndarray, n: int, weight: np.ndarray, scales: np.ndarray, **attributes: int) -> np.ndarray:
    """A product by an operator of onnxruntime's own, on the CPU."""
    onnxruntime = pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    node = helper.make_node(kind, ["x", "w", "s"], ["y"], domain="com.microsoft", K=x.shape[1], N=n, **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(x), n])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(scales, "s")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize("m", [1, 2, 7, 128])
@pytest.mark.parametrize(("scheme", "level"), [("int4/32", 0), ("int4/32", 4), ("int4/64", 4), ("int8/32", 4)])
def test_products_of_integers_are_onnxruntimes(scheme: str, level: int, m: int) -> None:
    """MatMulNBits: codes of four bits as ours, of eight with 128 added; its level 4 rounds x to int8, 0 does not."""
    x, w = operands(scheme, m, 48, 256)
    bits, block = w.scheme.code_bits, w.scheme.block_size
    codes, steps = rounded(x, block)
    away = x.reshape(codes.shape) / steps[..., None] - codes
    x = ((codes + np.float32(0.8) * away) * steps[..., None]).reshape(x.shape).astype(np.float32)  # far from ties
    elements = np.asarray(w.elements)
    packed = elements if bits == 4 else (elements.astype(np.int16) + 128).astype(np.uint8)
    found = theirs(
        "MatMulNBits", x, 48, packed.reshape(48, 256 // block, -1), np.asarray(w.scales).ravel(),
        bits=bits, block_size=block, accuracy_level=level,
    )  # fmt: skip
    ours = np.asarray(quant.dequant_matmul(x, w, activations="int8" if level else None))
    np.testing.assert_allclose(ours, found, atol=5e-6 * np.abs(found).max(), rtol=0)


@pytest.mark.parametrize("block", [32, 64])
def test_products_of_nf4_are_onnxruntimes(block: int) -> None:
    """MatMulBnb4: the even one in the high bits, absolute maxima of blocks, and the bytes that it packs itself."""
    packer = pytest.importorskip("onnxruntime.capi._pybind_state").quantize_matmul_bnb4
    weight = np.random.default_rng(0).standard_normal((48, 256)).astype(np.float32)
    w = quant.quantize(weight, f"nf4/{block}")
    packed, scales = np.zeros(48 * 128, np.uint8), np.zeros(48 * 256 // block, np.float32)
    packer(packed, weight, scales, block, 1, 48, 256)
    np.testing.assert_array_equal(np.asarray(w.elements).ravel(), packed)
    np.testing.assert_array_equal(np.asarray(w.scales).ravel(), scales)
    for m in (1, 2, 7, 128):
        x = np.random.default_rng(m).standard_normal((m, 256)).astype(np.float32)
        found = theirs("MatMulBnb4", x, 48, packed, scales, block_size=block, quant_type=1)
        np.testing.assert_allclose(quant.dequant_matmul(x, w), found, atol=5e-6 * np.abs(found).max(), rtol=0)
