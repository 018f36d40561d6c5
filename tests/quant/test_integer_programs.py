"""Integer programs: their meaning beside a reference of loops, packed weights, and conversions of functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from integer_programs import TOPS, fixed_product, fixed_shift, random_codes, random_program, reference

import rlx
import rlx.numpy as jnp
from rlx import lax, nn, quant
from rlx.errors import DtypeError, DtypeOverflowError, NanError, OptionError, ShapeError, UnsupportedError
from rlx.quant.integer_arithmetic import fixed_point, requantize, rounding_shift
from rlx.quant.packed_sums import pack, unpack, with_packed_weights

NHWC = ("NHWC", "HWIO", "NHWC")
draw = np.random.default_rng(0)


def same(found: Any, expected: Any) -> None:
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(x), y)
        assert np.asarray(x).dtype == y.dtype


@pytest.mark.parametrize("seed", range(3))
def test_a_program_computes_the_definition(seed: int) -> None:
    program = random_program(seed, bits=(8, 4, 2)[seed % 3])
    codes = random_codes(program, 3)
    same(program(codes), reference(program, codes))


@pytest.mark.thorough
@pytest.mark.parametrize("rounding", ["q31", "float"])
@pytest.mark.parametrize("seed", range(20))
def test_compiled_and_packed_programs_compute_the_definition(seed: int, rounding: str) -> None:
    program = random_program(seed, (8, 4, 2)[seed % 3], rounding)
    codes = random_codes(program, 4)
    expected = reference(program, codes)
    same(rlx.jit(program)(codes), expected)
    same(rlx.jit(with_packed_weights(program))(codes), expected)


def test_requantisation_rounds_as_whole_numbers_do() -> None:
    """Every shift, halves, the ends of int32, and saturation."""
    sums = np.unique([*(s * 2**k + d for k in range(31) for s in (-1, 1) for d in (-1, 0, 1)), 2**31 - 1, 1 - 2**31])
    sums = sums[np.abs(sums) < 2**31].astype(np.int32)
    for multiplier in (2**30, 2**30 + 1, 3 << 29, 2**31 - 1):
        for shift in range(-30, 32):
            found = requantize(
                jnp.asarray(sums), np.array([multiplier], np.int32), np.array([shift], np.int32), 0, -128, 127
            )
            exact = [min(max(fixed_product(int(s), multiplier, shift), -128), 127) for s in sums]
            np.testing.assert_array_equal(np.asarray(found), exact)


def test_a_rounding_shift_rounds_halves_away_from_zero() -> None:
    numbers = np.array([*range(-40, 41), 2**31 - 1, -(2**31)], np.int32)
    for shift in (0, 1, 2, 5, 31):
        exact = [fixed_shift(int(n), shift) for n in numbers]
        np.testing.assert_array_equal(np.asarray(rounding_shift(jnp.asarray(numbers), np.int32(shift))), exact)


def test_fixed_point_numbers_are_next_to_the_ratios() -> None:
    ratios = np.exp(draw.uniform(np.log(2.0**-31), np.log(2.0**29), 100))
    multipliers, shifts = fixed_point(ratios)
    assert (multipliers >= 2**30).all()
    np.testing.assert_allclose(multipliers * 2.0 ** (-31.0 - shifts), ratios, rtol=2**-30)
    for wrong in (0.0, -1.0, 2.0**-34, 2.0**31, np.inf, np.nan):
        with pytest.raises(DtypeOverflowError, match="ratio of scales"):
            fixed_point(np.array([wrong]))


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize(
    ("shape", "groups"), [((11, 3, 3, 5), 1), ((6, 3, 2, 5), 2), ((8, 3, 3, 1), 4), ((1, 1, 1, 1), 1)]
)
def test_packed_weights_are_unpacked(bits: int, shape: Any, groups: int) -> None:
    weights = draw.integers(-TOPS[bits], TOPS[bits] + 1, shape).astype(np.int8)
    np.testing.assert_array_equal(np.asarray(unpack(pack(weights, bits, groups), bits, shape, groups)), weights)


# ---------------------------------------------------------------- conversions
def convolved(x: Any, w: Any, **told: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC, **told)


W = (draw.normal(size=(3, 3, 4, 8)) / 5).astype("f4")
D = (draw.normal(size=(3, 3, 1, 8)) / 3).astype("f4")
B = draw.normal(size=8).astype("f4")
M = (draw.normal(size=(4, 6)) / 2).astype("f4")
IMAGES = draw.normal(size=(32, 6, 5, 4)).astype("f4")
FUNCTIONS: dict[str, Any] = {
    "convolution": lambda x: convolved(x, W) + B,
    "relu": lambda x: nn.relu(convolved(x, W) + B),
    "relu6": lambda x: nn.relu6(2 * convolved(x, W) - B),
    "batch normalisation": lambda x: (convolved(x, W) - B) / (1 + B**2) * B + 1,
    "negated": lambda x: 1 - convolved(x, W),
    "depthwise": lambda x: convolved(x, D, feature_group_count=4),
    "groups and dilation": lambda x: convolved(x, W[:, :, :2], feature_group_count=2, rhs_dilation=(2, 1)),
    "channels first": lambda x: nn.relu(
        lax.conv_general_dilated(x.transpose(0, 3, 1, 2), W.transpose(3, 2, 0, 1), (2, 2), "VALID") + B[:, None, None]
    ),
    "one axis": lambda x: lax.conv_general_dilated(
        x[:, 0], W[0], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    ),
    "product": lambda x: x @ M + 1,
    "flattened": lambda x: x.reshape(len(x), -1) @ np.repeat(M, 30, 0) / 5,
    "sum": lambda x: nn.relu(x + nn.relu(x @ M @ M.T)),
    "difference": lambda x: x - jnp.tanh(x @ M[:, :4]),
    "product of values": lambda x: x * nn.sigmoid(x @ M[:, :4]),
    "silu": lambda x: nn.silu(x @ M),
    "gelu": lambda x: nn.gelu(x),
    "scaled channels": lambda x: nn.relu(x) * B[:4] + B[4:],
    "concatenation": lambda x: jnp.concatenate([nn.relu(x @ M), x], -1),
    "largest": lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
    "mean": lambda x: jnp.mean(nn.relu(x @ M), axis=(1, 2)),
    "mean of one axis": lambda x: jnp.mean(x, axis=3),
    "average": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 1, 2, 1), "VALID") / 6,
    "softmax": lambda x: nn.softmax(x @ M),
    "padded": lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 0), (0, 0)), constant_values=0.5)[:, ::2, 1:],
    "rounded": lambda x: quant.fake_quantize(nn.relu(x @ M), 0.25, bits=4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_conversion_is_near_the_function(name: str) -> None:
    """Within a few codes: each operation rounds once."""
    function = FUNCTIONS[name]
    program = quant.integer_program(lambda _, x: function(x), None, IMAGES)
    expected = np.asarray(function(IMAGES))
    found = np.asarray(program.dequantize(program(program.quantize(IMAGES))))
    scale = program.values[program.outputs[0]].scale
    assert found.shape == expected.shape
    off = np.abs(found - expected)
    assert off.max() <= max(12 * scale, 0.03 * np.ptp(expected)), (off.max() / scale, np.ptp(expected))
    assert off.mean() <= 3 * scale


def test_functions_of_a_sum_become_part_of_it() -> None:
    def kinds(function: Any) -> list[str]:
        program = quant.integer_program(lambda _, x: function(x), None, IMAGES)
        return [type(o).__name__.removeprefix("Integer") for o in program.operations]

    assert kinds(FUNCTIONS["batch normalisation"]) == kinds(FUNCTIONS["relu6"]) == ["Convolution"]
    assert kinds(FUNCTIONS["rounded"]) == ["Dense"]
    assert kinds(lambda x: (lambda y: nn.relu(y) + y)(x @ M)) == ["Dense", "Table"]
    shared = kinds(lambda x: (lambda y: jnp.pad(nn.relu(y), ((0, 0), (1, 0), (0, 0), (0, 0)))[:, 1:] + y)(x @ M))
    assert shared == ["Dense", "Clamp", "Pad", "Slice", "Add"]  # the product is computed once
    assert kinds(lambda x: jnp.argmax(nn.softmax(x @ M), -1)) == ["Dense", "Argmax"]
    assert kinds(lambda x: nn.relu(x.transpose(0, 3, 1, 2).transpose(0, 2, 3, 1))) == ["Clamp"]


@pytest.mark.parametrize("bits", [4, 2])
def test_weights_on_a_grid_are_kept(bits: int) -> None:
    top = TOPS[bits]
    codes = draw.integers(-top, top + 1, (4, 6)).astype(np.int8)
    codes[0] = top
    scales = draw.uniform(0.1, 3, 6).astype("f4")
    program = quant.integer_program(lambda w, x: x @ w, codes * scales, IMAGES, bits=bits)
    np.testing.assert_array_equal(program.operations[0].weights.T, codes)


def test_a_program_prints_and_states_its_types() -> None:
    program = quant.integer_program(lambda m, x: jnp.argmax(x @ m, -1), M, IMAGES[:, 0, 0], name="best")
    assert "def best" in str(program.program(2))
    codes = program.quantize(IMAGES[:, 0, 0])
    assert program(codes).dtype == np.int32
    np.testing.assert_array_equal(program.dequantize(program(codes)), program(codes))
    with pytest.raises(ShapeError, match=r"Give a batch: \[n, 4\]"):
        program(codes[0])
    with pytest.raises(DtypeError, match=r"program.quantize\(x\)"):
        program(codes.astype(np.int32))
    with pytest.raises(ShapeError, match="Give 1"):
        program(codes, codes)


def test_mistakes_are_told_with_their_line() -> None:
    def made(function: Any, examples: Any = IMAGES, **options: Any) -> Any:
        return quant.integer_program(lambda _, x: function(x), None, examples, **options)

    with pytest.raises(UnsupportedError, match="sort.*has no integer form") as caught:
        made(lambda x: jnp.sort(x, -1))
    assert "test_integer_programs.py" in str(caught.value)
    with pytest.raises(UnsupportedError, match="dot_general"):
        made(lambda x: jnp.einsum("bhwc,bhwd->bcd", x, x))
    with pytest.raises(OptionError, match="rounding='up'"):
        made(nn.relu, rounding="up")
    with pytest.raises(OptionError, match="Codes have 3 bits"):
        made(nn.relu, bits=3)
    with pytest.raises(OptionError, match="no method of calibration"):
        made(nn.relu, method="best")
    with pytest.raises(ShapeError, match="at least one"):
        made(nn.relu, IMAGES[:0])
    with pytest.raises(OptionError, match="floating"):
        made(nn.relu, IMAGES.astype(int))
    with pytest.raises(NanError, match="Calibration met"):
        made(nn.relu, IMAGES * np.inf)
    with pytest.raises(DtypeOverflowError, match="int32 ends at"):
        made(
            lambda x: x.reshape(len(x), -1) @ np.linspace(0.9, 1, 70_000, dtype="f4")[:, None],
            np.ones((2, 70_000), "f4"),
        )
