"""Discrete Fourier transforms as products with small matrices and twiddle factors; Bluestein's for large primes.

A transform of length r m is one of length r over every m-th element, a factor for each result, and transforms of
length m. Lengths with a large prime factor become a convolution whose length is a power of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from rlx.ops.arithmetic import divide, multiply
from rlx.ops.contract import cast, dot_general
from rlx.ops.conversion import conj, real
from rlx.ops.families import move_axis
from rlx.ops.shape import concatenate, pad_zeros, reshape, reverse, slice_along, transpose
from rlx.trace.primitive import type_of

__all__ = ["transform_by_factors"]

_RADIX = 8  # products of small factors up to this size are one step
_DIRECT = 64  # prime factors up to this size are products with their own matrix


def transform_by_factors(x: Any, kind: str, lengths: tuple[int, ...]) -> Any:
    """The transform over the last axes, with the primitive's parameters."""
    ndim = type_of(x).ndim
    axes = range(ndim - len(lengths), ndim)
    sign = -1 if kind in ("fft", "rfft") else 1
    if kind == "rfft":
        dtype = np.result_type(type_of(x).dtype, np.complex64)
        x = slice_along(_along(cast(x, dtype), ndim - 1, sign), 0, lengths[-1] // 2 + 1, ndim - 1)
    for axis in axes[:-1] if kind in ("rfft", "irfft") else axes:
        x = _along(x, axis, sign)
    if kind == "irfft":
        x = real(_along(_whole_spectrum(x, lengths[-1]), ndim - 1, sign))
    return divide(x, np.asarray(prod(lengths), type_of(x).dtype)) if sign > 0 else x


def _whole_spectrum(half: Any, length: int) -> Any:
    """The full spectrum of real numbers: the given half, then its conjugate in reverse order."""
    last = type_of(half).ndim - 1
    mirrored = reverse(conj(slice_along(half, 1, (length + 1) // 2, last)), axes=(last,))
    return concatenate(half, mirrored, axis=last)


def _along(x: Any, axis: int, sign: int) -> Any:
    """The transform along an axis, not divided by its length."""
    last = type_of(x).ndim - 1
    moved = move_axis(x, axis, last)
    shape = type_of(moved).shape
    flat = reshape(moved, shape=(prod(shape[:-1]), shape[-1]))
    return move_axis(reshape(_rows(flat, sign), shape=shape), last, axis)


def _rows(x: Any, sign: int) -> Any:
    """The transforms of the rows of a matrix."""
    length = type_of(x).shape[1]
    primes = list(_prime_factors(length))
    if not primes:
        return x
    return _convolved(x, sign) if primes[-1] > _DIRECT else _by_radices(x, _radices(primes), sign)


def _prime_factors(n: int) -> Iterator[int]:
    """The prime factors in ascending order."""
    factor = 2
    while factor * factor <= n:
        while n % factor == 0:
            yield factor
            n //= factor
        factor += 1
    if n > 1:
        yield n


def _radices(primes: list[int]) -> list[int]:
    """Their product in few steps: the largest factors first, each combined with small ones that fit."""
    rest, radices = sorted(primes), []
    while rest:
        radix = rest.pop()
        for factor in rest[::-1]:
            if radix * factor <= _RADIX:
                radix *= factor
                rest.remove(factor)
        radices.append(radix)
    return radices


def _roots(numbers: np.ndarray, length: int, sign: int) -> np.ndarray:
    """exp(sign 2 pi i number / length) in double precision, exact at quarters of a turn."""
    quarters, rest = np.divmod(4 * (numbers % length), length)
    angles = 0.5 * np.pi * rest / length
    return 1j ** (sign * quarters % 4) * np.exp(1j * sign * angles)


def _by_radices(x: Any, radices: list[int], sign: int) -> Any:
    """One product for each radix r, over (batch, r, rest); results are numbered with the first radix fastest."""
    (batch, length), dtype = type_of(x).shape, type_of(x).dtype
    rest, lead = length, batch
    for radix in radices:
        rest //= radix
        digits, low = np.arange(radix), np.arange(rest)
        matrix = _roots(np.outer(digits, digits), radix, sign).astype(dtype)
        x = reshape(x, shape=(lead, radix, rest))
        x = dot_general(matrix, x, dimension_numbers=(((1,), (1,)), ((), ())), preferred_dtype=None)
        if rest > 1:
            twiddles = _roots(np.outer(digits, low), radix * rest, sign).astype(dtype)
            x = multiply(x, reshape(twiddles, shape=(radix, 1, rest)))
        lead *= radix
    # digits of the last radix first, then the digits of the previous one, the batch last
    x = reshape(x, shape=(*reversed(radices), batch))
    return reshape(transpose(x, permutation=(len(radices), *range(len(radices)))), shape=(batch, length))


def _convolved(x: Any, sign: int) -> Any:
    """Bluestein's: j k = (j^2 + k^2 - (j - k)^2) / 2 turns the transform into a convolution with a chirp."""
    (_, length), dtype = type_of(x).shape, type_of(x).dtype
    padded = 1 << (2 * length - 2).bit_length()
    chirp = _roots(np.arange(length) ** 2 % (2 * length), 2 * length, sign)
    other = np.zeros(padded, complex)
    other[:length] = chirp.conj()
    other[padded - length + 1 :] = chirp[:0:-1].conj()
    spectrum = (np.fft.fft(other) / padded).astype(dtype)
    chirp = chirp.astype(dtype)
    signal = pad_zeros(multiply(x, chirp), ((0, 0, 0), (0, padded - length, 0)))
    found = _rows(multiply(_rows(signal, -1), spectrum), 1)
    return multiply(slice_along(found, 0, length, 1), chirp)
