"""Packed blocks to float32, by a rule for each storage type: bytes of shape [blocks, bytes] in, [blocks, elements] out.

The rules are written in rlx.numpy, so that they are compiled here and can be traced into a program elsewhere. They
multiply and add in the same order as the format's reference implementation, so results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.gguf import grids
from rlx.gguf.types import StorageType

__all__ = ["DECODERS", "E2M1", "IQ4", "decode_blocks"]

IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # doubled
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


# ---------------------------------------------------------------- fields
def _uint16(b: Any, start: int, count: int = 1) -> Any:
    """Little-endian uint16 numbers starting at a byte: [blocks, count]."""
    low, high = (b[:, start + k : start + 2 * count : 2].astype(jnp.uint16) for k in (0, 1))
    return low | (high << 8)


def _uint32(b: Any, start: int, count: int = 1) -> Any:
    parts = [b[:, start + k : start + 4 * count : 4].astype(jnp.uint32) << (8 * k) for k in range(4)]
    return parts[0] | parts[1] | parts[2] | parts[3]


def float_of_half(bits: Any) -> Any:
    """The float32 of the bits of a float16; NaNs keep their payload, which a conversion does not guarantee."""
    magnitude = (bits & 0x7FFF).astype(jnp.uint32) << 13
    finite = lax.bitcast_convert_type(magnitude, jnp.float32) * np.float32(2.0**112)
    special = bits & 0x7C00 == 0x7C00
    found = jnp.where(special, magnitude | 0x7F800000, lax.bitcast_convert_type(finite, jnp.uint32))
    return lax.bitcast_convert_type(found | ((bits & 0x8000).astype(jnp.uint32) << 16), jnp.float32)


def _half(b: Any, start: int) -> Any:
    """The float16 at a byte, as float32: [blocks, 1]."""
    return float_of_half(_uint16(b, start))


def _float(x: Any) -> Any:
    return x.astype(jnp.float32)


def _signed(x: Any) -> Any:
    return _float(lax.bitcast_convert_type(x, jnp.int8))


def _less(x: Any, middle: int) -> Any:
    """Numbers minus a middle; the subtraction uses bytes, since a register holds more bytes than wider integers."""
    return _signed(x - np.uint8(middle))


def _planes(x: Any, count: int, bits: int, width: int) -> Any:
    """Numbers of a few bits: [blocks, groups * width] bytes to [blocks, groups * count * width].

    Byte k of a group holds element k of each of its `count` planes, the first in the lowest bits.
    """
    shifts = np.arange(0, count * bits, bits, dtype=np.uint8)[:, None]
    return ((x.reshape(len(x), -1, 1, width) >> shifts) & ((1 << bits) - 1)).reshape(len(x), -1)


def _bits(x: Any) -> Any:
    """Bits of bytes, the lowest first: [blocks, n] to [blocks, 8 n]."""
    return ((x[:, :, None] >> np.arange(8, dtype=np.uint8)) & 1).reshape(len(x), -1)


def _nibbles(x: Any) -> Any:
    """Nibbles of bytes, the low one first: [blocks, n] to [blocks, 2 n]."""
    return ((x[:, :, None] >> np.array([0, 4], np.uint8)) & 15).reshape(len(x), -1)


def _scaled(scales: Any, numbers: Any) -> Any:
    """Groups of numbers times a scale each: [blocks, groups], [blocks, groups * n]."""
    groups = scales.shape[1]
    return (scales[:, :, None] * numbers.reshape(len(numbers), groups, -1)).reshape(len(numbers), -1)


def _affine(scales: Any, numbers: Any, offsets: Any) -> Any:
    """As _scaled, minus an offset for each group."""
    groups = scales.shape[1]
    scaled = scales[:, :, None] * numbers.reshape(len(numbers), groups, -1)
    return (scaled - offsets[:, :, None]).reshape(len(numbers), -1)


# ---------------------------------------------------------------- blocks of 32
def _q4_0(b: Any) -> Any:
    return _half(b, 0) * _less(_planes(b[:, 2:], 2, 4, 16), 8)


def _q4_1(b: Any) -> Any:
    return _half(b, 0) * _float(_planes(b[:, 4:], 2, 4, 16)) + _half(b, 2)


def _five(high: Any, low: Any) -> Any:
    return _planes(low, 2, 4, 16) | (_bits(high) << 4)


def _q5_0(b: Any) -> Any:
    return _half(b, 0) * _less(_five(b[:, 2:6], b[:, 6:]), 16)


def _q5_1(b: Any) -> Any:
    return _half(b, 0) * _float(_five(b[:, 4:8], b[:, 8:])) + _half(b, 2)


def _q8_0(b: Any) -> Any:
    return _half(b, 0) * _signed(b[:, 2:])


def _q8_1(b: Any) -> Any:
    return _half(b, 0) * _signed(b[:, 4:])


def _q1_0(b: Any) -> Any:
    d = lax.bitcast_convert_type(_half(b, 0), jnp.uint32)
    quiet = jnp.where(d & 0x7FFFFFFF > 0x7F800000, d | 0x00400000, d)  # arithmetic makes a signalling NaN quiet
    return lax.bitcast_convert_type(jnp.where(_bits(b[:, 2:]) == 1, quiet, quiet ^ 0x80000000), jnp.float32)


# ---------------------------------------------------------------- blocks of 256
def _scales_of_six_bits(s: Any) -> tuple[Any, Any]:
    """Eight scales and eight offsets of six bits, in twelve bytes."""
    first, second, third = s[:, 0:4], s[:, 4:8], s[:, 8:12]
    scales = jnp.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], 1)
    offsets = jnp.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], 1)
    return _float(scales), _float(offsets)


def _q2_k(b: Any) -> Any:
    scales, offsets = _half(b, 80) * _float(b[:, :16] & 15), _half(b, 82) * _float(b[:, :16] >> 4)
    return _affine(scales, _float(_planes(b[:, 16:80], 4, 2, 32)), offsets)


def _q3_k(b: Any) -> Any:
    low, high = _planes(b[:, 96:104], 2, 4, 8), _planes(b[:, 104:108], 4, 2, 4)
    scales = _half(b, 108) * _less(low | (high << 4), 32)
    numbers = _planes(b[:, 32:96], 4, 2, 32) | (_planes(b[:, :32], 8, 1, 32) << 2)
    return _scaled(scales, _less(numbers, 4))


def _q4_k(b: Any) -> Any:
    scales, offsets = _scales_of_six_bits(b[:, 4:16])
    return _affine(_half(b, 0) * scales, _float(_planes(b[:, 16:], 2, 4, 32)), _half(b, 2) * offsets)


def _q5_k(b: Any) -> Any:
    scales, offsets = _scales_of_six_bits(b[:, 4:16])
    numbers = _planes(b[:, 48:], 2, 4, 32) | (_planes(b[:, 16:48], 8, 1, 32) << 4)
    return _affine(_half(b, 0) * scales, _float(numbers), _half(b, 2) * offsets)


def _q6_k(b: Any) -> Any:
    numbers = _planes(b[:, :128], 2, 4, 64) | (_planes(b[:, 128:192], 4, 2, 32) << 4)
    return _scaled(_half(b, 208) * _signed(b[:, 192:208]), _less(numbers, 32))


def _q8_k(b: Any) -> Any:
    return lax.bitcast_convert_type(_uint32(b, 0), jnp.float32) * _signed(b[:, 4:260])


def _tq1_0(b: Any) -> Any:
    def digits(x: Any, count: int) -> Any:
        """The ternary digits of bytes that hold a fraction of 256: the carry of three times the remainder."""
        left = (x[:, None, :] * _POWERS[:count, None]).astype(jnp.uint16)
        return (left * 3 >> 8).astype(jnp.uint8).reshape(len(x), -1)

    d = _half(b, 52)
    parts = (digits(b[:, :32], 5), digits(b[:, 32:48], 5), digits(b[:, 48:52], 4))
    return jnp.concatenate([d * _less(part, 1) for part in parts], 1)


def _tq2_0(b: Any) -> Any:
    return _half(b, 64) * _less(_planes(b[:, :64], 4, 2, 32), 1)


# ---------------------------------------------------------------- tables
def _e2m1(codes: Any) -> Any:
    """Twice the values of E2M1 codes; both zeros are positive."""
    magnitudes = np.uint32(0xC8643210)  # of the codes 0 to 7, a nibble each
    number = _float((magnitudes >> ((codes & 7).astype(jnp.uint32) * 4)) & 15)
    return jnp.where(codes > 8, -number, number)


def _looked_up(table: np.ndarray, index: Any) -> Any:
    return jnp.asarray(table)[index.astype(jnp.int32)]


def _mxfp4(b: Any) -> Any:
    e = b[:, :1].astype(jnp.uint32)
    scale = lax.bitcast_convert_type(jnp.where(e < 2, 0x00200000 << e, (e - 1) << 23), jnp.float32)
    return scale * _e2m1(_planes(b[:, 1:], 2, 4, 16))


def ue4m3_table() -> np.ndarray:
    """Half the value of each byte as an unsigned E4M3 scale; NaN becomes 0, the highest bit is ignored."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return np.where(code == 0x7F, 0, value / 2).astype(np.float32)


def _nvfp4(b: Any) -> Any:
    return _scaled(_looked_up(ue4m3_table(), b[:, :4]), _e2m1(_planes(b[:, 4:], 2, 4, 8)))


def _iq4_nl(b: Any) -> Any:
    return _half(b, 0) * _looked_up(IQ4, _planes(b[:, 2:], 2, 4, 16))


def _iq4_xs(b: Any) -> Any:
    high = (_uint16(b, 2) >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    scales = _half(b, 0) * _less(_nibbles(b[:, 4:8]) | (high.astype(jnp.uint8) << 4), 32)
    return _scaled(scales, _looked_up(IQ4, _planes(b[:, 8:], 2, 4, 16)))


def _signed_by(bits: Any, numbers: Any) -> Any:
    """Numbers, negated where the bits of bytes are set: [blocks, n], [blocks, 8 n]."""
    return jnp.where(_bits(bits) == 1, -numbers, numbers)


def _even_signs(words: Any) -> Any:
    """Sign bits of 32 elements for each word: four times seven, and an eighth that makes the parity even."""
    sevens = ((words[:, :, None] >> np.array([0, 7, 14, 21], np.uint32)) & 127).astype(jnp.uint8)
    return _with_parity(sevens.reshape(len(words), -1))


def _with_parity(seven: Any) -> Any:
    half = seven ^ (seven >> 4)
    quarter = half ^ (half >> 2)
    return seven | (((quarter ^ (quarter >> 1)) & 1) << 7)


def _points(name: str, index: Any) -> Any:
    """The points of a type's grid: [blocks, n] to [blocks, n * dimensions]."""
    return jnp.asarray(grids.grid(name))[index.astype(jnp.int32)].reshape(len(index), -1)


def _iq2_xxs(b: Any) -> Any:
    words = _uint32(b, 2, 16)
    signs = words[:, 1::2]
    scales = _half(b, 0) * (0.5 + _float(signs >> 28)) * 0.25
    index = b[:, 2:66].reshape(len(b), 8, 8)[:, :, :4].reshape(len(b), 32)
    return _signed_by(_even_signs(signs), _scaled(scales, _points("IQ2_XXS", index)))


def _iq2_xs(b: Any) -> Any:
    words = _uint16(b, 2, 32)
    scales = _half(b, 0) * (0.5 + _float(_nibbles(b[:, 66:74]))) * 0.25
    signs = _with_parity((words >> 9).astype(jnp.uint8))
    return _signed_by(signs, _scaled(scales, _points("IQ2_XS", words & 511)))


def _iq2_s(b: Any) -> Any:
    scales = _half(b, 0) * (0.5 + _float(_nibbles(b[:, 74:82]))) * 0.25
    high = ((b[:, 66:74, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3).reshape(len(b), -1)
    index = b[:, 2:34].astype(jnp.uint16) | (high.astype(jnp.uint16) << 8)
    return _signed_by(b[:, 34:66], _scaled(scales, _points("IQ2_S", index)))


def _iq3_xxs(b: Any) -> Any:
    signs = _uint32(b, 66, 8)
    scales = _half(b, 0) * (0.5 + _float(signs >> 28)) * 0.5
    return _signed_by(_even_signs(signs), _scaled(scales, _points("IQ3_XXS", b[:, 2:66])))


def _iq3_s(b: Any) -> Any:
    scales = _half(b, 0) * _float(1 + 2 * _nibbles(b[:, 106:110]))
    index = b[:, 2:66].astype(jnp.uint16) | (_bits(b[:, 66:74]).astype(jnp.uint16) << 8)
    return _signed_by(b[:, 74:106], _scaled(scales, _points("IQ3_S", index)))


def _shifted(points: Any, delta: Any) -> Any:
    """Points of eight dimensions plus an offset for each: [blocks, 256], [blocks, 32]."""
    return (points.reshape(len(points), 32, 8) + delta[:, :, None]).reshape(len(points), 256)


def _iq1_s(b: Any) -> Any:
    words = _uint16(b, 34, 8)
    scales = _half(b, 0) * _float(2 * (words >> 12 & 7) + 1)
    delta = jnp.where(words >> 15 == 0, np.float32(0.125), np.float32(-0.125))
    high = ((words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16)) & 7).reshape(len(b), 32)
    points = _points("IQ1_S", b[:, 2:34].astype(jnp.uint16) | (high << 8))
    return _scaled(scales, _shifted(points, jnp.repeat(delta, 4, axis=1)))


def _iq1_m(b: Any) -> Any:
    words = _uint16(b, 48, 4)
    parts = words & 0xF000
    d = float_of_half(parts[:, 0:1] >> 12 | parts[:, 1:2] >> 8 | parts[:, 2:3] >> 4 | parts[:, 3:4])
    threes = ((words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16)) & 7).reshape(len(b), 16)
    high = _nibbles(b[:, 32:48])
    delta = jnp.where(high & 8 == 0, np.float32(0.125), np.float32(-0.125))
    index = b[:, :32].astype(jnp.uint16) | ((high & 7).astype(jnp.uint16) << 8)
    # a point has eight elements: the barrier makes its index be computed once, which halves the time
    points = _points("IQ1_S", lax.optimization_barrier(index))
    return _scaled(d * _float(2 * threes + 1), _shifted(points, delta))


# ---------------------------------------------------------------- plain
def _bf16(b: Any) -> Any:
    return lax.bitcast_convert_type(_uint16(b, 0).astype(jnp.uint32) << 16, jnp.float32)


def _f16(b: Any) -> Any:
    return _half(b, 0)


_T = StorageType
DECODERS: dict[StorageType, Callable[[Any], Any]] = {
    _T.F16: _f16,
    _T.BF16: _bf16,
    _T.Q1_0: _q1_0,
    _T.Q4_0: _q4_0,
    _T.Q4_1: _q4_1,
    _T.Q5_0: _q5_0,
    _T.Q5_1: _q5_1,
    _T.Q8_0: _q8_0,
    _T.Q8_1: _q8_1,
    _T.Q2_K: _q2_k,
    _T.Q3_K: _q3_k,
    _T.Q4_K: _q4_k,
    _T.Q5_K: _q5_k,
    _T.Q6_K: _q6_k,
    _T.Q8_K: _q8_k,
    _T.IQ1_S: _iq1_s,
    _T.IQ1_M: _iq1_m,
    _T.IQ2_XXS: _iq2_xxs,
    _T.IQ2_XS: _iq2_xs,
    _T.IQ2_S: _iq2_s,
    _T.IQ3_XXS: _iq3_xxs,
    _T.IQ3_S: _iq3_s,
    _T.IQ4_NL: _iq4_nl,
    _T.IQ4_XS: _iq4_xs,
    _T.TQ1_0: _tq1_0,
    _T.TQ2_0: _tq2_0,
    _T.MXFP4: _mxfp4,
    _T.NVFP4: _nvfp4,
}


def decode_blocks(blocks: Any, kind: StorageType) -> Any:
    """Decode blocks of a type: uint8[blocks, bytes] to float32[blocks, elements]; may be traced."""
    return DECODERS[kind](blocks)
