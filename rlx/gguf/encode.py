"""Float32 to packed blocks: [blocks, elements] in, bytes of shape [blocks, bytes] out.

Each rule rounds as the format's reference implementation does. The searches for scales of the K types are in
`searches`; the IQ types are encoded by the libgguf package.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import DtypeOverflowError, UnsupportedError, warn
from rlx.gguf.decode import E2M1, ue4m3_table
from rlx.gguf.searches import affine_search, nearest, symmetric_descent, symmetric_search
from rlx.gguf.types import StorageType
from rlx.installation import install_command

__all__ = ["ENCODERS", "NEEDS_IMPORTANCE", "UNWEIGHTED", "encode_foreign"]

_F = np.float32
_LARGEST_UE4M3 = 448
_DIGITS = np.array([81, 27, 9, 3, 1], np.uint8)


# ---------------------------------------------------------------- fields
def _half_bytes(x: np.ndarray) -> np.ndarray:
    """Scales as float16, in bytes. Raises DtypeOverflowError if one is too large."""
    with np.errstate(over="ignore"):
        half = x.astype("<f2")
    if not np.isfinite(half).all():
        raise DtypeOverflowError(
            f"A block's scale is {np.abs(x).max():.3g}, which float16 cannot represent.",
            "Scale the array down, or store it as F32 or BF16.",
        )
    return half.view(np.uint8).reshape(len(x), -1)


def _rounded(x: np.ndarray) -> np.ndarray:
    """The scales as a reader will see them."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(_F)


def _inverse(d: np.ndarray) -> np.ndarray:
    """1 / d, and 0 for 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(d == 0, _F(0), _F(1) / d)


def _largest(x: np.ndarray) -> np.ndarray:
    """The first element of largest magnitude, with its sign: [blocks, 1]."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1)


def _away(x: np.ndarray) -> np.ndarray:
    """Rounded to the nearest integer, ties away from zero."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(_F(1), x), _F(0))


def _planes(q: np.ndarray, count: int, bits: int, width: int) -> np.ndarray:
    """Pack numbers of a few bits into bytes: the inverse of the decoder's function of this name."""
    parts = q.astype(np.uint8).reshape(len(q), -1, count, width)
    packed = parts[:, :, 0].copy()
    for plane in range(1, count):
        packed |= parts[:, :, plane] << np.uint8(plane * bits)
    return packed.reshape(len(q), -1)


def _bits(q: np.ndarray) -> np.ndarray:
    return np.packbits(q.astype(bool), axis=1, bitorder="little")


def _joined(*fields: np.ndarray) -> np.ndarray:
    return np.concatenate([f.view(np.uint8) for f in fields], axis=1)


# ---------------------------------------------------------------- blocks of 32
def _centred(x: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """A scale that maps the largest element to -half, and the numbers, counted from 0."""
    d = _largest(x) / _F(-half)
    return d, np.clip(np.trunc(x * _inverse(d) + _F(half + 0.5)), 0, 2 * half - 1)


def _from_minimum(x: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale, minimum, and the numbers from 0 to top between minimum and maximum."""
    low = x.min(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        d = (x.max(axis=1, keepdims=True) - low) / _F(top)
        return d, low, np.clip(np.trunc((x - low) * _inverse(d) + _F(0.5)), 0, top)


def _q4_0(x: np.ndarray) -> np.ndarray:
    d, q = _centred(x, 8)
    return _joined(_half_bytes(d), _planes(q, 2, 4, 16))


def _q4_1(x: np.ndarray) -> np.ndarray:
    d, low, q = _from_minimum(x, 15)
    return _joined(_half_bytes(d), _half_bytes(low), _planes(q, 2, 4, 16))


def _q5_0(x: np.ndarray) -> np.ndarray:
    d, q = _centred(x, 16)
    return _joined(_half_bytes(d), _bits(q >= 16), _planes(q % 16, 2, 4, 16))


def _q5_1(x: np.ndarray) -> np.ndarray:
    d, low, q = _from_minimum(x, 31)
    return _joined(_half_bytes(d), _half_bytes(low), _bits(q >= 16), _planes(q % 16, 2, 4, 16))


def _eight(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = np.abs(x).max(axis=1, keepdims=True) / _F(127)
    return d, np.clip(_away(x * _inverse(d)), -127, 127).astype(np.int8)


def _q8_0(x: np.ndarray) -> np.ndarray:
    d, q = _eight(x)
    return _joined(_half_bytes(d), q)


def _q8_1(x: np.ndarray) -> np.ndarray:
    d, q = _eight(x)
    return _joined(_half_bytes(d), _half_bytes(d * q.sum(axis=1, keepdims=True, dtype=_F)), q)


def _q1_0(x: np.ndarray) -> np.ndarray:
    return _joined(_half_bytes(_mean_magnitude(x)), _bits(x >= 0))


def _mean_magnitude(x: np.ndarray) -> np.ndarray:
    columns = np.ascontiguousarray(np.abs(x).T)  # summed over one after another
    return (np.add.reduce(columns, axis=0) / _F(x.shape[1]))[:, None]


# ---------------------------------------------------------------- blocks of 256
def _groups(x: np.ndarray, width: int) -> np.ndarray:
    """Groups as columns: [width, blocks * groups], so that sums over a group run in its order."""
    return np.ascontiguousarray(x.reshape(-1, width).T)


def _rows(q: np.ndarray, blocks: int) -> np.ndarray:
    """The inverse: [width, blocks * groups] to [blocks, groups, width]."""
    return q.T.reshape(blocks, -1, len(q))


def _requantized(x: np.ndarray, d: np.ndarray, offsets: np.ndarray, found: np.ndarray, low: int, high: int) -> Any:
    """The nearest numbers for the scales as a reader will see them; the search's `found` where a scale is 0.

    x, found: [blocks, groups, width]; d, offsets: [blocks, groups].
    """
    scales = d[:, :, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = nearest((x + offsets[:, :, None]) / scales)
    return np.where(scales == 0, found, np.clip(exact, low, high)).reshape(len(x), -1)


def _affine_blocks(x: np.ndarray, width: int, top: int, steps: tuple[float, int], magnitude: bool) -> Any:
    """The result of the search for scales and offsets: scales, offsets [blocks, groups], numbers [.., width]."""
    columns = _groups(x, width)
    weights = np.abs(columns)
    if not magnitude:
        square = np.add.reduce(columns * columns, axis=0)
        weights = np.sqrt(square / _F(width)) + weights
    scales, offsets, q = affine_search(columns, weights, top, *steps, magnitude)
    return scales.reshape(len(x), -1), offsets.reshape(len(x), -1), _rows(q, len(x))


def _inverse_of_top(top: int, largest: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(largest > 0, _F(top) / largest, _F(0))


def _q2_k(x: np.ndarray) -> np.ndarray:
    scales, offsets, q = _affine_blocks(x, 16, 3, (-0.5, 15), True)
    top, bottom = (np.maximum(v.max(axis=1, keepdims=True), 0) for v in (scales, offsets))
    s, m = (nearest(_inverse_of_top(15, t) * v) for t, v in ((top, scales), (bottom, offsets)))
    d, dmin = top / _F(15), bottom / _F(15)
    q = _requantized(x.reshape(q.shape), _rounded(d) * s, _rounded(dmin) * m, q, 0, 3)
    packed = s.astype(np.uint8) | (m.astype(np.uint8) << np.uint8(4))
    return _joined(packed, _planes(q, 4, 2, 32), _half_bytes(d), _half_bytes(dmin))


def _q4_or_5_k(x: np.ndarray, top: int, steps: tuple[float, int]) -> tuple[np.ndarray, np.ndarray]:
    """The first sixteen bytes of a block, and the numbers."""
    scales, offsets, q = _affine_blocks(x, 32, top, steps, False)
    tops = [np.maximum(v.max(axis=1, keepdims=True), 0) for v in (scales, offsets)]
    s, m = (np.minimum(nearest(_inverse_of_top(63, t) * v), 63) for t, v in zip(tops, (scales, offsets), strict=True))
    d, dmin = (t / _F(63) for t in tops)
    q = _requantized(x.reshape(q.shape), _rounded(d) * s, _rounded(dmin) * m, q, 0, top)
    return _joined(_half_bytes(d), _half_bytes(dmin), _six_bits(s.astype(np.uint8), m.astype(np.uint8))), q


def _six_bits(s: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Eight scales and eight offsets of six bits, in twelve bytes."""
    first = s[:, :4] | (s[:, 4:] >> 4 << 6)
    second = m[:, :4] | (m[:, 4:] >> 4 << 6)
    return _joined(first, second, (s[:, 4:] & 15) | (m[:, 4:] << 4))


def _q4_k(x: np.ndarray) -> np.ndarray:
    head, q = _q4_or_5_k(x, 15, (-1.0, 20))
    return _joined(head, _planes(q, 2, 4, 32))


def _q5_k(x: np.ndarray) -> np.ndarray:
    head, q = _q4_or_5_k(x, 31, (-0.5, 15))
    return _joined(head, _planes(q >= 16, 8, 1, 32), _planes(q % 16, 2, 4, 32))


def _shared_scale(scales: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """One scale for the scales of a block, which maps the largest to -top, and their numbers."""
    inverse = np.where(np.abs(_largest(scales)) < 1e-15, _F(0), _F(-top) * _inverse(_largest(scales)))
    return _inverse(inverse), nearest(inverse * scales)


def _q3_k(x: np.ndarray) -> np.ndarray:
    scales, q = symmetric_descent(_groups(x, 16), 4)
    scales, q = scales.reshape(len(x), 16), _rows(q, len(x))
    d, s = _shared_scale(scales, 32)
    s = np.clip(s, -32, 31)
    q = _requantized(x.reshape(q.shape), _rounded(d) * s, np.zeros_like(s), q - 4, -4, 3) + 4
    codes = np.where(d == 0, 0, s + 32).astype(np.uint8)
    packed = _joined(_planes(codes & 15, 2, 4, 8), _planes(codes >> 4, 4, 2, 4))
    return _joined(_planes(q >= 4, 8, 1, 32), _planes(q % 4, 4, 2, 32), packed, _half_bytes(d))


def _q6_k(x: np.ndarray) -> np.ndarray:
    scales, q = symmetric_search(_groups(x, 16), 32)
    scales, q = scales.reshape(len(x), 16), _rows(q, len(x))
    d, s = _shared_scale(scales, 128)
    s = np.minimum(s, 127)
    q = _requantized(x.reshape(q.shape), _rounded(d) * s, np.zeros_like(s), q - 32, -32, 31) + 32
    q = np.where(d == 0, 0, q).astype(np.uint8)
    return _joined(_planes(q & 15, 2, 4, 64), _planes(q >> 4, 4, 2, 32), s.astype(np.int8), _half_bytes(d))


def _q8_k(x: np.ndarray) -> np.ndarray:
    inverse = _F(-127) * _inverse(_largest(x))
    q = np.minimum(nearest(inverse * x), 127).astype(np.int8)
    sums = q.reshape(len(x), 16, 16).sum(axis=2, dtype="<i2")
    return _joined(_inverse(inverse).astype("<f4"), q, sums)


def _ternary(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = np.abs(x).max(axis=1, keepdims=True)
    return d, (_away(x * _inverse(d)) + 1).astype(np.uint8)


def _tq1_0(x: np.ndarray) -> np.ndarray:
    d, q = _ternary(x)
    parts = [
        (q[:, start:stop].reshape(len(x), -1, width) * _DIGITS[: (stop - start) // width, None]).sum(axis=1)
        for start, stop, width in ((0, 160, 32), (160, 240, 16), (240, 256, 4))
    ]
    digits = np.concatenate(parts, axis=1).astype(np.uint16)
    return _joined(((digits * 256 + 242) // 243).astype(np.uint8), _half_bytes(d))


def _tq2_0(x: np.ndarray) -> np.ndarray:
    d, q = _ternary(x)
    return _joined(_planes(q, 4, 2, 32), _half_bytes(d))


# ---------------------------------------------------------------- four-bit floats
def _nearest_e2m1(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The code of the value nearest to each element, the first one on a tie."""
    best, error = np.zeros(x.shape, np.uint8), np.abs(d * E2M1[0] - x)
    for code in range(1, 16):
        other = np.abs(d * E2M1[code] - x)
        nearer = other < error
        best, error = np.where(nearer, np.uint8(code), best), np.where(nearer, other, error)
    return best


def _mxfp4(x: np.ndarray) -> np.ndarray:
    largest = np.abs(x).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        exponent = np.clip(np.floor(np.log2(largest)) + 125, 0, 255)
    e = exponent.astype(np.uint8)
    d = np.ldexp(_F(1), e.astype(np.int32) - 128).astype(_F)
    return _joined(e, _planes(_nearest_e2m1(x, d), 2, 4, 16))


def _ue4m3(x: np.ndarray) -> np.ndarray:
    """Positive numbers to unsigned E4M3: small ones to multiples of 2^-9; those that round to 256 or more to 448."""
    x = np.minimum(x, _F(_LARGEST_UE4M3))
    bits = x.view(np.uint32)
    exponent = (bits >> 23).astype(np.int32) - 120
    normal = (exponent << 3) + (bits >> 20 & 7).astype(np.int32) + (bits >> 19 & 1).astype(np.int32)
    small = np.clip(np.trunc(x * _F(512) + _F(0.5)), 0, 7)
    return np.where(exponent <= 0, small, np.where(normal >= 15 << 3, 0x7E, normal)).astype(np.uint8)


def _nvfp4(x: np.ndarray) -> np.ndarray:
    groups = x.reshape(-1, 16)
    wanted = np.abs(groups).max(axis=1) / _F(6)
    if wanted.max(initial=0) > _LARGEST_UE4M3:
        warn(
            f"A block's scale is {wanted.max():.3g}; NVFP4 stores its largest one, {_LARGEST_UE4M3}, instead:"
            " numbers beyond 6 * 448 become smaller. Scale the array down, or store it as MXFP4.",
            RuntimeWarning,
        )
    e = _ue4m3(wanted)
    codes = _nearest_e2m1(groups, ue4m3_table()[e][:, None])
    return _joined(e.reshape(-1, 4), _planes(codes.reshape(len(x), 64), 2, 4, 8))


# ---------------------------------------------------------------- plain
def _f16(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype("<f2").view(np.uint8)


def _bf16(x: np.ndarray) -> np.ndarray:
    """Round to nearest, ties to even; NaNs stay NaNs."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    nan = bits & 0x7FFFFFFF > 0x7F800000
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    return np.where(nan, bits >> 16 | 64, rounded).astype("<u2").view(np.uint8)


_T = StorageType
ENCODERS: dict[StorageType, Callable[[np.ndarray], np.ndarray]] = {
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
    _T.TQ1_0: _tq1_0,
    _T.TQ2_0: _tq2_0,
    _T.MXFP4: _mxfp4,
    _T.NVFP4: _nvfp4,
}
NEEDS_IMPORTANCE = frozenset({_T.IQ2_XXS, _T.IQ2_XS, _T.IQ1_S})


UNWEIGHTED = frozenset({_T.Q1_0, _T.Q8_1, _T.Q8_K})  # types that libgguf does not encode
# libgguf ends the process if fourth powers overflow; every scale is below the row's largest number
_LARGEST_ROW = float(np.finfo(np.float16).max)


def encode_foreign(rows: np.ndarray, kind: StorageType, importance: np.ndarray | None) -> np.ndarray:
    """Encode rows [..., n] of finite numbers with the libgguf package, also by importance.

    Raises UnsupportedError if it is not installed, DtypeOverflowError for numbers beyond float16.
    """
    try:
        libgguf = importlib.import_module("libgguf")
    except ImportError:
        raise UnsupportedError(
            f"Encoding {kind.name}{' by importance' if importance is not None else ''} requires the libgguf package,"
            " which is not installed.",
            f"Run {install_command('gguf')}, or choose a type such as Q4_K, which needs no extra package.",
        ) from None
    largest = np.abs(rows).max(initial=0)
    if largest > _LARGEST_ROW:
        raise DtypeOverflowError(
            f"The array's largest number is {largest:.3g}; libgguf encodes numbers of float16's range as {kind.name}.",
            "Scale the array down, or store it as F32 or BF16.",
        )
    return libgguf.quantize_rows(rows, int(kind), None if importance is None else _of_ordinary_size(importance))


def _of_ordinary_size(importance: np.ndarray) -> np.ndarray:
    """An importance whose largest number is near 1, if it is far from it; only ratios have a meaning."""
    largest = float(importance.max(initial=0))
    exponent = math.frexp(largest)[1]
    return importance if abs(exponent) < 32 else np.ldexp(importance, -exponent).astype(_F)
