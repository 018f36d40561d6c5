"""Every storage type against the format's reference implementation, compiled in libgguf and in NumPy in gguf.

RLX_TEST_SEED, any text, draws other blocks; RLX_TEST_LONG=1 encodes types whose tables libgguf takes a minute to make.
"""

from __future__ import annotations

import math
import os
import re
import sys
import zlib
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import gguf
from rlx.errors import DtypeError, DtypeOverflowError, OptionError, ShapeError, UnsupportedError
from rlx.gguf import grids
from rlx.gguf.blocks import swapped
from rlx.gguf.decode import DECODERS
from rlx.gguf.encode import ENCODERS
from rlx.gguf.types import LAYOUTS, PLAIN, REMOVED, StorageType
from rlx.installation import install_command

BLOCKS = 10_000
SEED = zlib.crc32(os.environ.get("RLX_TEST_SEED", "0").encode())
BLOCK_TYPES = [kind for kind in StorageType if LAYOUTS[kind].elements > 1]
WITH_TABLES = {k for k in StorageType if k.name.startswith("IQ") and not k.name.startswith("IQ4")}
# decoded by no oracle: the format keeps them for products, not for files
UNKNOWN_TO_ORACLES = {StorageType.Q8_1, StorageType.Q8_K}
# decoded by libgguf only
UNKNOWN_TO_NUMPY = UNKNOWN_TO_ORACLES | {StorageType.Q1_0}
SLOW = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"} if os.environ.get("RLX_TEST_LONG", "0") == "0" else set()
# how far from N(0, 1) the reference implementation's blocks are, relative to its RMS
ERRORS = {"Q4_0": 0.085, "Q4_1": 0.078, "Q5_0": 0.0427, "Q8_0": 0.0053, "Q2_K": 0.293, "Q3_K": 0.151, "Q4_K": 0.071}
ERRORS |= {"Q5_K": 0.036, "Q6_K": 0.0175, "MXFP4": 0.115, "NVFP4": 0.094, "Q5_1": 0.038}
# by libgguf, with all columns alike
ERRORS |= {"IQ4_NL": 0.0764, "IQ3_S": 0.1665} | ({} if "IQ2_S" in SLOW else {"IQ2_S": 0.263})
OWN = [kind for kind in BLOCK_TYPES if kind in ENCODERS and kind not in UNKNOWN_TO_ORACLES]


def names(kind: Any) -> str:
    return kind.name


def needs_tables(kind: StorageType) -> None:
    if kind in WITH_TABLES:
        pytest.importorskip("gguf.quants")


def random_blocks(kind: StorageType, count: int = BLOCKS) -> np.ndarray:
    """Bytes of every kind, so that scales are NaN, infinite, zero and subnormal, too."""
    blocks = np.random.default_rng(SEED + kind).integers(0, 256, (count, LAYOUTS[kind].nbytes), np.uint8)
    blocks[: count // 4] &= 0x3F  # and a quarter whose scales are small
    return blocks


def normals(kind: StorageType, blocks: int = 512) -> np.ndarray:
    """Rows of numbers, some of them special."""
    rng = np.random.default_rng(SEED + kind)
    width = LAYOUTS[kind].elements
    x = rng.standard_normal((blocks, width)).astype(np.float32)
    x[0], x[1], x[2], x[3, 1:], x[4] = 0, 1, -2, 0, np.arange(width)
    x[5] *= 1e-20
    x[6] *= 1e4
    x[7] = np.round(x[7] * 4) / 4
    x[8], x[9] = np.abs(x[8]), -np.abs(x[9])
    x[10, width // 2 :] = 0
    x[11] *= np.exp(3 * rng.standard_normal(width)).astype(np.float32)
    return np.clip(x, -3e4, 3e4)  # scales and offsets are float16


def same_bits(left: Any, right: Any) -> None:
    np.testing.assert_array_equal(np.asarray(left).view(np.uint32), np.asarray(right).view(np.uint32))


# ---------------------------------------------------------------- decoding
@pytest.mark.parametrize("kind", [k for k in BLOCK_TYPES if k not in UNKNOWN_TO_ORACLES], ids=names)
def test_random_blocks_decode_to_the_bits_of_libgguf(kind: StorageType) -> None:
    """NaNs included."""
    libgguf = pytest.importorskip("libgguf")
    needs_tables(kind)
    blocks = random_blocks(kind)
    expected = libgguf.dequantize_rows(blocks, int(kind))
    assert np.isnan(expected).any() or kind in (StorageType.MXFP4, StorageType.NVFP4)
    same_bits(gguf.dequantize(blocks, kind), expected)


@pytest.mark.parametrize("kind", [k for k in BLOCK_TYPES if k not in UNKNOWN_TO_NUMPY], ids=names)
def test_random_blocks_decode_to_the_numbers_of_gguf(kind: StorageType) -> None:
    """It writes signs as factors, which NaNs do not take over: their bits are not compared."""
    quants = pytest.importorskip("gguf.quants")
    blocks = random_blocks(kind, 2000)
    with np.errstate(all="ignore"):
        expected = quants.dequantize(blocks, quants.GGMLQuantizationType(int(kind)))
    found = np.asarray(gguf.dequantize(blocks, kind))
    np.testing.assert_array_equal(found, expected)
    same_bits(np.where(np.isnan(found), 0, found), np.where(np.isnan(expected), 0, expected))


@pytest.mark.parametrize("kind", [k for k in BLOCK_TYPES if k.name.startswith("IQ") and k.name not in SLOW], ids=names)
def test_encoded_normals_decode_to_the_bits_of_libgguf(kind: StorageType) -> None:
    """Codes that an encoder chooses."""
    libgguf = pytest.importorskip("libgguf")
    needs_tables(kind)
    packed = gguf.quantize(normals(kind, 24), kind, np.ones(LAYOUTS[kind].elements))
    same_bits(gguf.dequantize(packed, kind), libgguf.dequantize_rows(packed, int(kind)))


@pytest.mark.parametrize("kind", sorted(UNKNOWN_TO_ORACLES), ids=names)
def test_types_of_products_decode_as_the_layout_says(kind: StorageType) -> None:
    """A scale times signed bytes."""
    blocks = random_blocks(kind, 1000)
    half = kind is StorageType.Q8_1
    scale = blocks[:, : 2 if half else 4].copy().view(np.float16 if half else np.float32).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = scale * blocks[:, 4 : 36 if half else 260].view(np.int8)
    np.testing.assert_array_equal(gguf.dequantize(blocks, kind), expected)


def test_halves_decode_to_the_bits_of_numpy() -> None:
    """All 65536 of each kind, signalling NaNs included."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    same_bits(gguf.dequantize(bits.view(np.uint8), "F16"), bits.view(np.float16).astype(np.float32))
    same_bits(gguf.dequantize(bits.view(np.uint8), "BF16"), (bits.astype(np.uint32) << 16).view(np.float32))


def test_plain_types_are_converted() -> None:
    """Integers and doubles become float32."""
    for kind, dtype in PLAIN.items():
        x = np.array([[1, -2, 3, 100]], dtype)
        found = gguf.dequantize(x.view(np.uint8), kind)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, x)


def test_decoding_works_in_traced_programs() -> None:
    """In jit and vmap, with a gradient of what follows."""
    packed = gguf.quantize(np.random.default_rng(0).standard_normal((4, 64)), "Q4_0")

    def product(x: Any, packed: Any) -> Any:
        return (gguf.dequantize(packed, "Q4_0") @ x).sum()

    x = jnp.ones(64)
    weights = np.asarray(gguf.dequantize(packed, "Q4_0"))
    np.testing.assert_allclose(rlx.jit(rlx.grad(product))(x, packed), weights.sum(0), rtol=1e-5)
    rows = rlx.vmap(lambda row: gguf.dequantize(row, "Q4_0"))(packed)
    same_bits(rows, weights)


def test_shapes_are_kept() -> None:
    """Leading axes, none of them, and sizes of zero."""
    for shape in ((32,), (2, 3, 64), (0, 32), (3, 0)):
        packed = gguf.quantize(np.ones(shape, np.float32), "Q5_1")
        assert packed.shape == (*shape[:-1], shape[-1] // 32 * 24)
        assert gguf.dequantize(packed, "Q5_1").shape == shape


# ---------------------------------------------------------------- encoding
@pytest.mark.filterwarnings("ignore:A block's scale is")
@pytest.mark.parametrize("kind", OWN, ids=names)
def test_encoded_bytes_are_those_of_libgguf(kind: StorageType) -> None:
    """K types included, whose scales are found by a search."""
    libgguf = pytest.importorskip("libgguf")
    x = normals(kind)
    np.testing.assert_array_equal(gguf.quantize(x, kind), libgguf.quantize_rows(x, int(kind)))


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors_of_normal_numbers(name: str) -> None:
    """They are as small as the reference implementation's; draws differ by 0.4 % (one standard deviation)."""
    if name.startswith("IQ"):
        pytest.importorskip("libgguf")
        needs_tables(StorageType[name])
    x = np.random.default_rng(SEED).standard_normal((64, 1024)).astype(np.float32)
    error = np.asarray(gguf.dequantize(gguf.quantize(x, name), name)) - x
    assert math.sqrt((error**2).mean() / (x**2).mean()) <= 1.03 * ERRORS[name]


@pytest.mark.parametrize("name", ["Q4_0", "Q5_0", "TQ1_0", "TQ2_0"])
def test_what_was_decoded_is_encoded_to_itself(name: str) -> None:
    """Where the scale is the largest number times a power of two."""
    packed = gguf.quantize(normals(StorageType[name]), name)
    once = np.asarray(gguf.dequantize(packed, name))
    np.testing.assert_array_equal(gguf.dequantize(gguf.quantize(once, name), name), once)


@pytest.mark.parametrize("kind", [StorageType.Q8_1, StorageType.Q8_K], ids=names)
def test_types_of_products_encode(kind: StorageType) -> None:
    """Within half a step and what rounding the scale adds, and with the sums that they carry."""
    x = normals(kind, 64)[12:]
    packed = gguf.quantize(x, kind)
    found = np.asarray(gguf.dequantize(packed, kind))
    assert (np.abs(found - x) <= 0.57 * np.abs(x).max(axis=1, keepdims=True) / 127).all()
    if kind is StorageType.Q8_1:
        np.testing.assert_allclose(packed[:, 2:4].view(np.float16)[:, 0], found.sum(1), rtol=2e-3, atol=2e-2)
    else:
        np.testing.assert_array_equal(
            packed[:, 260:].view(np.int16), packed[:, 4:260].view(np.int8).reshape(-1, 16, 16).sum(2)
        )


def test_plain_types_are_written_as_they_are() -> None:
    """In their own dtype, rounded where it is narrower."""
    x = np.array([1.0, -2.5, 3e-8, 1e6, np.nan, np.inf], np.float32)
    assert gguf.quantize(x, "F32").tobytes() == x.tobytes()
    assert gguf.quantize(x, "F64").tobytes() == x.astype("f8").tobytes()
    with np.errstate(over="ignore"):
        assert gguf.quantize(x, "F16").tobytes() == x.astype("f2").tobytes()
    np.testing.assert_array_equal(
        gguf.dequantize(gguf.quantize(x, "BF16"), "BF16"), np.asarray(jnp.asarray(x).astype("bfloat16"), "f4")
    )
    assert gguf.quantize(np.arange(4), "I16").tobytes() == np.arange(4, dtype="i2").tobytes()


def test_every_type_can_be_encoded() -> None:
    """By rlx or by libgguf."""
    pytest.importorskip("libgguf")
    for kind in (k for k in StorageType if k.name not in SLOW):
        width = LAYOUTS[kind].elements
        importance = np.ones(width) if kind.name.startswith("IQ") else None
        assert gguf.quantize(np.ones((2, width)), kind, importance).shape == (2, LAYOUTS[kind].nbytes)


def test_importance_shifts_errors() -> None:
    """Columns that matter are nearer to what they were."""
    pytest.importorskip("libgguf")
    x = np.random.default_rng(SEED).standard_normal((256, 256)).astype(np.float32)
    importance = np.where(np.arange(256) % 2 == 0, 100.0, 0.01)
    errors = [
        np.square(np.asarray(gguf.dequantize(gguf.quantize(x, "Q4_K", weights), "Q4_K")) - x)[:, ::2].mean()
        for weights in (importance, None)
    ]
    assert errors[0] < 0.9 * errors[1]


# ---------------------------------------------------------------- byte order
@pytest.mark.parametrize("kind", list(StorageType), ids=names)
def test_byte_orders(kind: StorageType) -> None:
    """Twice swapped is as before; three types have no big-endian layout, and say so."""
    blocks = random_blocks(kind, 10)
    if kind.name in ("IQ2_XXS", "IQ3_XXS", "IQ1_M"):
        with pytest.raises(UnsupportedError, match=kind.name):
            swapped(blocks, kind)
        return
    other = swapped(blocks, kind)
    np.testing.assert_array_equal(swapped(other, kind), blocks)
    assert (other != blocks).any() or kind in (StorageType.MXFP4, StorageType.NVFP4, StorageType.I8)
    if kind in PLAIN:
        np.testing.assert_array_equal(other, blocks.view(PLAIN[kind]).byteswap().view(np.uint8))


# ---------------------------------------------------------------- mistakes
def test_unknown_types_are_refused() -> None:
    """By name and by number; removed ones, too."""
    for kind in ("Q9_9", "", 99, -1, 1.5, None, *REMOVED):
        with pytest.raises(DtypeError, match="storage type"):
            gguf.layout(kind)  # type: ignore[arg-type]
    assert gguf.layout("q4_k") == gguf.layout(12) == gguf.layout(StorageType.Q4_K) == (256, 144)


def test_rows_are_whole_blocks() -> None:
    """In both directions."""
    with pytest.raises(ShapeError, match="whole Q4_0 blocks"):
        gguf.quantize(np.ones((2, 33)), "Q4_0")
    with pytest.raises(ShapeError, match="whole Q4_0 blocks"):
        gguf.dequantize(np.zeros((2, 19), np.uint8), "Q4_0")
    with pytest.raises(ShapeError):
        gguf.quantize(1.0, "Q4_0")


def test_numbers_that_do_not_fit_are_refused() -> None:
    """Nothing is stored as NaN in silence."""
    for value in (np.nan, np.inf, -np.inf):
        for kind in OWN:
            x = np.ones((1, LAYOUTS[kind].elements))
            x[0, 5] = value
            with pytest.raises(DtypeOverflowError, match="NaN or an infinity"):
                gguf.quantize(x, kind)
    with pytest.raises(DtypeOverflowError, match="float16"):
        gguf.quantize(np.full(32, 1e9), "Q8_0")
    with pytest.raises(DtypeOverflowError, match="int8"):
        gguf.quantize([1, 200], "I8")
    with pytest.raises(DtypeOverflowError, match="int8"):
        gguf.quantize([1.5], "I8")
    with pytest.raises(DtypeError, match="complex"):
        gguf.quantize(np.ones(32, complex), "Q8_0")
    with pytest.raises(DtypeError, match="instead of bytes"):
        gguf.dequantize(np.ones(36, np.int8), "Q8_0")


def test_importance_is_checked() -> None:
    """Missing, of another length, negative, or of no use."""
    x = np.ones((2, 256), np.float32)
    with pytest.raises(OptionError, match="importance="):
        gguf.quantize(x, "IQ2_XXS")
    with pytest.raises(ShapeError, match="importance"):
        gguf.quantize(x, "IQ2_XXS", np.ones(255))
    with pytest.raises(OptionError, match="negative"):
        gguf.quantize(x, "IQ2_XXS", -np.ones(256))
    with pytest.raises(OptionError, match="takes no importance"):
        gguf.quantize(x, "F16", np.ones(256))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs another package says which."""
    for module in ("gguf", "gguf.quants", "libgguf"):
        monkeypatch.setitem(sys.modules, module, None)
    grids.grid.cache_clear()
    with pytest.raises(UnsupportedError, match=re.escape(install_command("gguf"))):
        grids.grid("IQ3_S")
    with pytest.raises(UnsupportedError, match=re.escape(install_command("gguf"))):
        gguf.quantize(np.ones((1, 256)), "IQ3_S")


def test_every_type_has_a_decoder() -> None:
    """Or is plain."""
    assert set(DECODERS) | set(PLAIN) == set(StorageType)


# ---------------------------------------------------------------- numbers that libgguf cannot take
WEIGHTED = [
    kind for kind in StorageType if gguf.layout(kind).elements > 1 and kind.name not in ("Q1_0", "Q8_1", "Q8_K")
]


@pytest.mark.parametrize("kind", WEIGHTED, ids=names)
def test_numbers_by_importance_are_finite_or_refused(kind: StorageType) -> None:
    """Large numbers end libgguf's process, or become NaN, so they do not reach it; importances of any size do."""
    pytest.importorskip("libgguf")
    x = np.random.default_rng(0).standard_normal((2, 256)).astype(np.float32)
    ordinary = np.linspace(0.5, 1, 256, dtype=np.float32)
    expected = gguf.quantize(x, kind, ordinary)
    for factor in (2.0**100, 2.0**-100):
        np.testing.assert_array_equal(gguf.quantize(x, kind, ordinary * np.float32(factor)), expected)
    for importance in (np.full(256, 3e38), np.full(256, 1e-44), np.zeros(256), np.where(np.arange(256) == 3, 3e38, 1)):
        assert np.isfinite(gguf.dequantize(gguf.quantize(x, kind, importance), kind)).all()
    for large in (np.full((1, 256), 1e30), x * 1e20, x * 1e10, x * 1e6, np.full((1, 256), -70_000.0)):
        with pytest.raises(DtypeOverflowError, match="float16's range"):
            gguf.quantize(large, kind, ordinary)


def test_importance_where_there_is_none() -> None:
    """Types that libgguf does not encode."""
    for kind in ("Q8_1", "Q8_K", "Q1_0"):
        with pytest.raises(OptionError, match="by importance"):
            gguf.quantize(np.ones((1, 256), np.float32), kind, np.ones(256, np.float32))


def test_saturated_scales_are_reported() -> None:
    """The format's reference implementation stores the largest scale without a word."""
    with pytest.warns(RuntimeWarning, match="NVFP4 stores its largest one"):
        gguf.quantize(np.full((1, 64), 1e4, np.float32), "NVFP4")
