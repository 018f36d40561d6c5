"""Schemes, quantised arrays, and products with them: against NumPy, ml_dtypes, and the decoded weight in float64."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from needs import beside

import rlx
import rlx.numpy as jnp
from rlx import gguf, nn, quant
from rlx.backends.cpu.routines.packed_blocks import packed_scheme
from rlx.backends.cpu.routines.packed_products import FEW_ROWS
from rlx.backends.cpu.runtime.entry import load_runtime
from rlx.backends.cpu.runtime.table import build_table
from rlx.errors import DtypeError, InputTypeError, OptionError, ShapeError
from rlx.gguf.types import LAYOUTS, StorageType
from rlx.quant.scales import LEVELS

PLAIN = ["int8/32", "int8a/64", "int4/32", "nf4/64", "mxfp4", "nvfp4", "fp8e4m3", "fp8e5m2", "int8/8", "int4/6"]
PACKED = [
    f"gguf_{kind.name.lower()}"
    for kind in (*StorageType,)
    if LAYOUTS[kind].elements > 1 and not kind.name.startswith("IQ")
]
PACKED += ["gguf_iq4_nl", "gguf_iq4_xs", "gguf_f16", "gguf_bf16"]
CLAIMED = [name for name in [*PLAIN, *PACKED] if packed_scheme(quant.QuantScheme(name).name)]


def weight(scheme: str, rows: int = 37, length: int = 768) -> quant.QuantizedArray:
    return quant.quantize(np.random.default_rng(0).standard_normal((rows, length)).astype(np.float32), scheme)


def test_the_processor_has_a_rule_for_most_schemes_and_its_blocks_are_those_of_the_format() -> None:
    assert set(CLAIMED) == {*PLAIN, *PACKED} - {"int8/8", "int4/6"}, "blocks of sixteen numbers, or 32 in nibbles"
    for name in CLAIMED:
        found, scheme = packed_scheme(quant.QuantScheme(name).name), quant.QuantScheme(name)
        assert found is not None
        if scheme.storage is not None and LAYOUTS[scheme.storage].elements > 1:
            assert (found.elements, found.nbytes) == LAYOUTS[scheme.storage]


@pytest.mark.parametrize("scheme", [*PLAIN, *PACKED])
def test_products_are_those_of_the_decoded_weight(scheme: str) -> None:
    w = weight(scheme)
    full = np.asarray(quant.dequantize(w), np.float64)
    product = rlx.jit(quant.dequant_matmul)
    for m in (1, 2, 5, 7, 128):
        x = np.random.default_rng(m).standard_normal((m, 768)).astype(np.float32)
        expected = x @ full.T
        np.testing.assert_allclose(product(x, w), expected, atol=1e-5 * np.abs(expected).max(), rtol=0)
    claimed = packed_scheme(w.scheme.name) is not None
    kernels = rlx.inspect(product)(np.ones((1, 768), np.float32), w).kernels.plan
    assert ("dequantized_product" in kernels) == claimed
    other = rlx.jit(quant.dequant_matmul, device="reference")(np.ones((2, 768), np.float32), w)
    np.testing.assert_allclose(other, np.ones((2, 768)) @ full.T, atol=1e-4 * np.abs(full).sum(1).max())


OTHERS = [kind for kind in StorageType if LAYOUTS[kind].elements > 1 and f"gguf_{kind.name.lower()}" not in PACKED]


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.name)
def test_types_with_tables_are_multiplied_as_they_decode(kind: StorageType) -> None:
    """Random bytes whose numbers are of moderate size."""
    pytest.importorskip("gguf.quants")
    blocks = np.random.default_rng(int(kind)).integers(0, 256, (4000, LAYOUTS[kind].nbytes), np.uint8)
    numbers = np.asarray(gguf.dequantize(blocks, kind))
    sizes = np.abs(np.where(np.isfinite(numbers), numbers, np.inf)).max(1)
    chosen = np.flatnonzero((sizes > 1e-3) & (sizes < 1e3))[:111]
    w = quant.QuantizedArray(
        blocks[chosen].reshape(37, -1), None, None, None, quant.QuantScheme(f"gguf_{kind.name.lower()}")
    )
    full = numbers[chosen].reshape(37, -1).astype(np.float64)
    assert w.shape == full.shape
    for m in (1, 2, 7, 128):
        x = np.random.default_rng(m).standard_normal((m, full.shape[1])).astype(np.float32)
        expected = x @ full.T
        found = rlx.jit(quant.dequant_matmul)(x, w)
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("scheme", ["fp8e4m3", "fp8e5m2", "mxfp4", "nvfp4"])
def test_every_code_is_multiplied_as_it_decodes(scheme: str, rows: int) -> None:
    """All 256, NaN and infinities among them: those of elements, or of scales beside all elements of four bits."""
    every, w = np.arange(256, dtype=np.uint8), weight(scheme, 256, 64)
    if w.scales is None:
        elements, scales = np.zeros((256, 64), np.uint8), None
        elements[:, 33] = every
        elements = elements.view(w.elements.dtype)
    else:
        elements = np.zeros((256, 32), np.uint8)
        elements[:, 16] = every  # numbers 32 and 33
        scales = np.tile(every[::-1, None], (1, w.scales.shape[1])).view(w.scales.dtype)
    q = quant.QuantizedArray(elements, scales, None, None, w.scheme)
    full = np.asarray(quant.dequantize(q))
    x = np.zeros((rows, 64), np.float32)
    x[:, 33] = 1
    product = rlx.jit(quant.dequant_matmul)
    assert "dequantized_product" in rlx.inspect(product)(x, q).kernels.plan
    np.testing.assert_array_equal(product(x, q), np.tile(full[:, 33], (rows, 1)))


@pytest.mark.parametrize("scheme", ["gguf_q4_1", "gguf_q6_k", "int4/32", "nf4/64", "nvfp4"])
@pytest.mark.parametrize("threads", [1, 2])
def test_large_products_are_cut_into_tiles(scheme: str, threads: int) -> None:
    w = weight(scheme, 700, 1536)
    full = np.asarray(quant.dequantize(w), np.float64)
    before = rlx.get_num_threads()
    rlx.set_num_threads(threads)
    try:
        for m in (1, 3, 17, 130):
            x = np.random.default_rng(m).standard_normal((m, 1536)).astype(np.float32)
            np.testing.assert_allclose(rlx.jit(quant.dequant_matmul)(x, w), x @ full.T, atol=2e-3)
    finally:
        rlx.set_num_threads(before)


@pytest.mark.parametrize("rows", [1, 8, 128])
@pytest.mark.parametrize("scheme", CLAIMED)
def test_claimed_products_take_a_mebibyte_of_temporaries_at_most(scheme: str, rows: int) -> None:
    """All that the frame of a call has beside its arguments and results: what each thread decodes into, too."""
    packed = rlx.tree.map(
        lambda part: rlx.ShapeDtypeStruct((4096, *part.shape[1:]) if part.ndim else (), part.dtype),
        weight(scheme, 1, 4096 - 4096 % quant.QuantScheme(scheme).block_size),
    )
    x = rlx.ShapeDtypeStruct((rows, packed.length), np.float32)
    before = rlx.get_num_threads()
    rlx.set_num_threads(2)
    try:
        compiled = rlx.jit(quant.dequant_matmul).lower(x, packed).compile()
        table = build_table(compiled.plan, load_runtime().addresses)
    finally:
        rlx.set_num_threads(before)
    assert "dequantized_product" in str(compiled.plan) and table.arena <= 1 << 20
    assert (table.arena > 1 << 17) == (rows > FEW_ROWS), "many rows have tiles that are counted"


@pytest.mark.parametrize("rows", [1, 6, 130])
@pytest.mark.parametrize("scheme", [name for name in CLAIMED if name.startswith(("int", "nf4", "nv", "mx", "gguf_q4"))])
def test_a_scale_of_the_whole_array_is_multiplied_in_the_kernel(scheme: str, rows: int) -> None:
    """Of any scheme, whether it makes such scales itself or not: no other kernel reads or writes the result."""
    w = replace(weight(scheme, 500), global_scale=np.float32(0.75))
    x = np.random.default_rng(rows).standard_normal((rows, 768)).astype(np.float32)
    product = rlx.jit(quant.dequant_matmul)
    assert len(product.lower(x, w).compile().plan.kernels) == 1
    expected = x @ np.asarray(quant.dequantize(w), np.float64).T
    np.testing.assert_allclose(product(x, w), expected, atol=1e-5 * np.abs(expected).max(), rtol=0)
    unscaled = np.asarray(product(x, replace(w, global_scale=None)))
    np.testing.assert_array_equal(product(x, w), unscaled * np.float32(0.75))


def test_it_is_differentiable_in_x_batched_and_compiled() -> None:
    for scheme in ("gguf_q4_k", "int8a/32", "nvfp4", "int8/8"):
        w = weight(scheme, 5, 256)
        full = np.asarray(quant.dequantize(w))
        x = np.random.default_rng(1).standard_normal((3, 256)).astype(np.float32)
        g = rlx.jit(rlx.grad(lambda x, w=w: (quant.dequant_matmul(x, w) ** 2).sum()))(x)
        np.testing.assert_allclose(g, 2 * (x @ full.T) @ full, rtol=1e-4, atol=1e-3)
        out, tangent = rlx.jvp(lambda x, w=w: quant.dequant_matmul(x, w), (x,), (x,))
        np.testing.assert_allclose(tangent, out, rtol=1e-5, atol=1e-5)
        batch = np.stack([x, 2 * x])
        many = rlx.jit(rlx.vmap(quant.dequant_matmul, in_axes=(0, None)))
        np.testing.assert_allclose(many(batch, w), batch @ full.T, rtol=1e-4, atol=1e-3)
        middle = rlx.jit(rlx.vmap(quant.dequant_matmul, in_axes=(1, None), out_axes=1))
        np.testing.assert_allclose(middle(batch, w), batch @ full.T, rtol=1e-4, atol=1e-3)
        claimed = "dequantized_product" in rlx.inspect(many)(batch, w).kernels.plan
        assert claimed == (scheme != "int8/8"), "a batch of x is more rows of it"


@pytest.mark.parametrize("scheme", ["int8/32", "gguf_q4_k", "nvfp4", "int4/6"])
def test_mixed_precision_leaves_codes_alone(scheme: str) -> None:
    """So do folding and equal products, where a weight is a constant of the program."""
    length = 258 if scheme == "int4/6" else 256
    w, x = weight(scheme, 5, length), np.random.default_rng(1).standard_normal((3, length)).astype(np.float32)
    exact = np.asarray(quant.dequant_matmul(x, w))
    policy = rlx.PrecisionPolicy.mixed("bfloat16")
    mixed = rlx.jit(rlx.mixed_precision(quant.dequant_matmul, policy))(x, w)
    np.testing.assert_allclose(np.asarray(mixed, np.float32), exact, atol=0.02 * np.abs(exact).max())
    twice = rlx.jit(lambda x: quant.dequant_matmul(x, w) + quant.dequant_matmul(x, w))(x)
    np.testing.assert_allclose(twice, 2 * exact, rtol=1e-5, atol=1e-5)


def test_weights_may_be_columns() -> None:
    x, w = np.random.default_rng(0).standard_normal((2, 64)), np.random.default_rng(1).standard_normal((64, 3))
    q = quant.quantize(w.astype(np.float32), "int8/32", axis=0)
    assert q.shape == (64, 3) and q.axis == -2
    np.testing.assert_allclose(quant.dequantize(q), w, atol=0.02)
    np.testing.assert_allclose(quant.dequant_matmul(x.astype(np.float32), q), x @ w, atol=0.3)
    half = quant.dequant_matmul(x.astype(ml_dtypes.bfloat16), q)
    assert half.dtype == jnp.bfloat16


# ---------------------------------------------------------------- formulas
def test_int8_and_int4_are_numpy_to_the_bit() -> None:
    w = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    w[1, :32] = 0
    blocks = w.reshape(4, 2, 32)
    for name, top in (("int8/32", 127), ("int4/32", 7)):
        q = quant.quantize(w, name)
        scales = np.maximum(np.abs(blocks).max(-1) / np.float32(top), np.finfo(np.float32).tiny)
        codes = np.clip(np.rint(blocks / scales[..., None]), -top, top)
        assert np.array_equal(q.scales, scales)
        assert np.array_equal(quant.dequantize(q), (codes * scales[..., None]).reshape(w.shape))
    low = np.asarray(quant.quantize(w, "int4/32").elements) & 15
    assert np.array_equal(low.astype(int) - 8, codes.reshape(w.shape)[:, 0::2]), "the first code lies in the low bits"


def test_zero_points_keep_what_lies_to_one_side() -> None:
    w = np.random.default_rng(0).uniform(3, 4, (8, 32)).astype(np.float32)
    even, apart = (
        np.abs(np.asarray(quant.dequantize(quant.quantize(w, s))) - w).max() for s in ("int8/32", "int8a/32")
    )
    assert apart < even
    assert np.asarray(quant.quantize(w, "int8a/32").elements).min() >= -128


def test_codes_decode_as_ml_dtypes() -> None:
    every = np.arange(256, dtype=np.uint8)
    for name, dtype in (("fp8e4m3", ml_dtypes.float8_e4m3fn), ("fp8e5m2", ml_dtypes.float8_e5m2)):
        q = quant.QuantizedArray(jnp.asarray(every.view(dtype))[None], None, None, None, quant.QuantScheme(name))
        np.testing.assert_array_equal(quant.dequantize(q)[0], every.view(dtype).astype(np.float32))
    codes = np.arange(16, dtype=np.uint8)
    packed = (codes[0::2] | codes[1::2] << 4)[None]
    scales = np.ones((1, 1), ml_dtypes.float8_e4m3fn)
    q = quant.QuantizedArray(jnp.asarray(packed), jnp.asarray(scales), None, jnp.float32(1), quant.QuantScheme("nvfp4"))
    np.testing.assert_array_equal(quant.dequantize(q)[0], codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32))
    high = (codes[0::2] << 4 | codes[1::2])[None]
    q = quant.QuantizedArray(jnp.asarray(high), jnp.ones((1, 1)), None, None, quant.QuantScheme("nf4/16"))
    np.testing.assert_array_equal(quant.dequantize(q)[0], quant.NF4_LEVELS)


FLOATS = ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]


@pytest.mark.parametrize("name", FLOATS)
def test_every_code_of_a_narrow_float_is_ml_dtypes_own(name: str) -> None:
    """Of eight, six and four bits, decoded in compiled code, and encoded again."""
    dtype = getattr(ml_dtypes, name)
    codes = np.arange(1 << ml_dtypes.finfo(dtype).bits, dtype=np.uint8)
    every = codes.view(dtype)
    numbers = np.asarray(rlx.jit(lambda x: x.astype(jnp.float32))(every))
    np.testing.assert_array_equal(numbers, every.astype(np.float32))
    again = np.asarray(rlx.jit(lambda x: x.astype(getattr(jnp, name)))(numbers))
    np.testing.assert_array_equal(again.view(np.uint8), every.astype(np.float32).astype(dtype).view(np.uint8))


def test_casts_are_those_of_ml_dtypes() -> None:
    """Rounded to the nearest, ties to even, and limited to the greatest; of four bits behind their scales."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((8, 64)) * np.exp(6 * rng.standard_normal((8, 64)))).astype(np.float32)
    for name, dtype in (("fp8e4m3", ml_dtypes.float8_e4m3fn), ("fp8e5m2", ml_dtypes.float8_e5m2)):
        every = np.arange(128, dtype=np.uint8).view(dtype).astype(np.float32)
        every = np.sort(every[np.isfinite(every)])
        ties = (every[1:] + every[:-1]) / 2
        given = np.concatenate([x.ravel(), every, ties, [1e9]])[None]
        largest = float(ml_dtypes.finfo(dtype).max)
        expected = np.clip(given, -largest, largest).astype(np.float32).astype(dtype)
        beyond = int((np.abs(given.astype(np.float32)) > largest).sum())
        report = f"^{beyond} numbers are larger than {largest:g}, the largest of {name}, and become this number"
        with pytest.warns(RuntimeWarning, match=report):
            q = quant.quantize(given, name)
        np.testing.assert_array_equal(np.asarray(q.elements), expected)
    for name, block in (("mxfp4", 32), ("nvfp4", 16)):
        q = quant.quantize(x, name)
        factors = np.asarray(q.scales).astype(np.float32)
        scaled = x if q.global_scale is None else np.asarray(jnp.asarray(x) / q.global_scale)
        blocks = scaled.reshape(8, -1, block) / np.where(factors == 0, 1, factors)[..., None]
        expected = np.clip(blocks, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32).reshape(8, 64)
        codes = np.asarray(q.elements)
        found = np.stack([codes & 15, codes >> 4], -1).reshape(8, 64).astype(np.uint8).view(ml_dtypes.float4_e2m1fn)
        np.testing.assert_array_equal(found.astype(np.float32), expected)


def test_mixed_formats_are_what_scaled_products_use() -> None:
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    config = nn.get_scaled_dot_general_config("nvfp4", jnp.ones((1,)))
    eye = np.eye(64, dtype=np.float32)
    rounded = nn.scaled_dot_general(x, eye, (((1,), (1,)), ((), ())), configs=[config, config])
    q = quant.quantize(x, "nvfp4")
    relative = np.linalg.norm(quant.dequantize(q) - x) / np.linalg.norm(x)
    assert relative <= 1.1 * np.linalg.norm(np.asarray(rounded) - x) / np.linalg.norm(x) < 0.15


def test_gguf_arrays_are_those_of_rlx_gguf() -> None:
    w = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
    q = quant.quantize(w, "gguf_q4_k")
    assert q.scheme == quant.QuantScheme("gguf_q4k") and q.shape == (4, 256) and q.nbytes == 4 * 144
    np.testing.assert_array_equal(q.elements, gguf.quantize(w, "Q4_K"))
    assert (q.scheme.is_gguf, q.scheme.gguf_block_size, q.scheme.gguf_block_bytes) == (True, 256, 144)


# ---------------------------------------------------------------- bad input
def test_mistakes_are_named() -> None:
    with pytest.raises(OptionError, match="no quantisation scheme 'int7'"):
        quant.QuantScheme("int7")
    with pytest.raises(OptionError, match="no blocks of 8"):
        quant.QuantScheme("nvfp4/8")
    with pytest.raises(OptionError, match="even block"):
        quant.QuantScheme("int4/7")
    with pytest.raises(ShapeError, match="not a multiple of 32"):
        quant.quantize(np.ones((2, 33), np.float32), "int8/32")
    with pytest.raises(ShapeError, match="Blocks along axis 3"):
        quant.quantize(np.ones((2, 32), np.float32), "int8/32", axis=3)
    with pytest.raises(DtypeError, match="array of int64"):
        quant.quantize(np.ones((2, 32), int), "int8/32")
    w = weight("int8/32", 3, 64)
    with pytest.raises(ShapeError, match=r"x of \[2, 32\] and a weight of \[3, 64\]"):
        quant.dequant_matmul(np.ones((2, 32), np.float32), w)
    with pytest.raises(DtypeError, match="x of int32"):
        quant.dequant_matmul(np.ones((2, 64), np.int32), w)
    with pytest.raises(InputTypeError, match="ndarray for a weight"):
        quant.dequant_matmul(np.ones((2, 64), np.float32), np.ones((64, 2)))  # ty: ignore[invalid-argument-type]
    short: Any = quant.QuantizedArray(w.elements, w.scales[:, :1], None, None, w.scheme)
    with pytest.raises(ShapeError, match=r"scales of \[3, 1\]; it needs \[3, 2\]") as raised:
        quant.dequant_matmul(np.ones((2, 64), np.float32), short)
    assert "test_products.py" in str(raised.value), "the user's line"
    with pytest.raises(ShapeError, match=r"global scale of \[2\]"):
        quant.dequant_matmul(np.ones((2, 64), np.float32), replace(w, global_scale=np.ones(2, np.float32)))
    for scheme, width in (("gguf_q4_0", 35), ("gguf_q6_k", 211)):
        cut: Any = quant.QuantizedArray(np.zeros((3, width), np.uint8), None, None, None, quant.QuantScheme(scheme))
        with pytest.raises(ShapeError, match=f"rows of {width} bytes, which is not a multiple"):
            quant.dequant_matmul(np.ones((2, cut.length), np.float32), cut)


def test_the_packages_are_there_where_rlx_is_imported_and_loaded_when_asked_for() -> None:
    code = "import rlx, sys; assert not {'rlx.quant', 'rlx.lm'} & {*sys.modules}; rlx.quant.quantize, rlx.lm.load"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------- scales of eight bits
@beside
@pytest.mark.parametrize("block", [64, 128])
def test_nf4_and_its_scales_of_eight_bits_are_those_of_bitsandbytes(block: int) -> None:
    """The same bytes and maxima; of its scales in eight bits the same levels, where their mean is rounded alike."""
    torch, functional = pytest.importorskip("torch"), pytest.importorskip("bitsandbytes.functional")
    x = np.random.default_rng(0).standard_normal((96, 512)).astype(np.float32)
    q = quant.quantize(x, f"nf4/{block}")
    packed, state = functional.quantize_4bit(torch.tensor(x), blocksize=block, quant_type="nf4")
    np.testing.assert_array_equal(np.asarray(q.elements).ravel(), packed.numpy().ravel())
    np.testing.assert_array_equal(np.asarray(q.scales).ravel(), state.absmax.numpy())
    np.testing.assert_array_equal(quant.dequantize(q), functional.dequantize_4bit(packed, state).numpy())
    packed, state = functional.quantize_4bit(
        torch.tensor(x), blocksize=block, quant_type="nf4", compress_statistics=True
    )
    double = quant.double_quantize(q)
    np.testing.assert_allclose(LEVELS, state.state2.code.numpy(), rtol=2e-7)
    np.testing.assert_allclose(double.scales.largest, state.state2.absmax.numpy(), rtol=1e-5)
    same = np.asarray(double.scales.codes).ravel() == state.absmax.numpy().ravel()
    assert same.mean() > 0.99
    np.testing.assert_allclose(
        quant.dequantize(double), functional.dequantize_4bit(packed, state).numpy(), atol=2e-3 * np.abs(x).max()
    )


def test_scales_in_eight_bits() -> None:
    """Each scale is the nearest level of its block; products and gathers of rows take them; 4.127 bits a number."""
    weight = np.random.default_rng(5).standard_normal((96, 512)).astype(np.float32)
    plain = quant.quantize(weight, "nf4/64")
    double = quant.double_quantize(plain)
    scales = np.asarray(plain.scales)
    mean = scales.mean()
    blocks = (scales - mean).ravel().reshape(-1, 256)
    largest = np.abs(blocks).max(1, keepdims=True)
    nearest = np.abs((blocks / largest)[..., None] - LEVELS).min(-1) * largest
    found = np.asarray(double.plain_scales)
    np.testing.assert_allclose(np.abs(found - scales).ravel(), nearest.ravel(), atol=1e-6)
    assert double.nbytes * 8 / weight.size < 4.13 and double.elements is plain.elements
    x = np.random.default_rng(6).standard_normal((3, 512)).astype(np.float32)
    expected = x @ np.asarray(quant.dequantize(double)).T
    for run in (quant.dequant_matmul, rlx.jit(quant.dequant_matmul)):
        np.testing.assert_allclose(run(x, double), expected, rtol=1e-5, atol=1e-4)
    slope = rlx.grad(lambda x: quant.dequant_matmul(x, double).sum())(jnp.asarray(x))
    np.testing.assert_allclose(slope[0], np.asarray(quant.dequantize(double)).sum(0), rtol=1e-4, atol=1e-4)


def test_levels_of_scales() -> None:
    """256 of them: for each of seven powers of ten the middles of 2**n equal parts, both signs, 0 and 1."""
    assert len(LEVELS) == len(set(LEVELS.tolist())) == 256 and LEVELS.dtype == np.float32
    np.testing.assert_allclose(LEVELS[-5:], [0.95078125, 0.96484375, 0.97890625, 0.99296875, 1.0], rtol=1e-6)
    np.testing.assert_allclose(LEVELS[126:131], [-5.5e-7, 0.0, 5.5e-7, 3.25e-6, 7.75e-6], rtol=1e-5)


def test_scales_that_are_not_quantised_again() -> None:
    ones = np.ones((2, 64), np.float32)
    for scheme in ("mxfp4", "fp8e4m3", "gguf_q4_0"):
        with pytest.raises(OptionError, match="double_quantize"):
            quant.double_quantize(quant.quantize(ones, scheme))
    w = quant.double_quantize(quant.quantize(ones, "nf4"))
    np.testing.assert_allclose(quant.dequantize(w), ones)  # all scales equal: blocks of zeros
    for wrong, block in ((w, 256), (quant.quantize(ones, "nf4"), 0)):
        with pytest.raises(OptionError, match="double_quantize"):
            quant.double_quantize(wrong, block)
