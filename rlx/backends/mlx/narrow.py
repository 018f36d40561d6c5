"""Narrow numbers: codes in memory, float32 or integers of a byte in computation."""

from __future__ import annotations

from functools import cache

import numpy as np

from rlx.backends.mlx.library import ALIKE, MxArray, dtype_of_memory, mx
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS, FloatFormat
from rlx.ir.types import compute_dtype

__all__ = ["decode", "encode"]


def decode(dtype: np.dtype, codes: MxArray) -> MxArray:
    """The float32 numbers, or the integers of a byte, that codes represent."""
    if dtype.name in ALIKE:
        return mx.view(codes, ALIKE[dtype.name]).astype(mx.float32)
    return mx.take(_meanings(dtype), codes)


def encode(dtype: np.dtype, numbers: MxArray) -> MxArray:
    """The codes nearest to float numbers, ties to even; the low bits of integers."""
    if dtype in INTEGER_FORMATS:
        return mx.bitwise_and(numbers.astype(mx.uint8), (1 << INTEGER_FORMATS[dtype].bits) - 1)
    form = FLOAT_FORMATS[dtype]
    if numbers.dtype == mx.float64:
        numbers = _rounded_to_odd(numbers) if dtype.name == "float16" else numbers.astype(mx.float32)
    if dtype.name in ALIKE:
        return mx.view(numbers.astype(ALIKE[dtype.name]), mx.uint16)
    return _small(form, numbers) if form.zero else _scale(form, numbers)


@cache
def _meanings(dtype: np.dtype) -> MxArray:
    """The value of each byte; bits above the code's are ignored."""
    form = FLOAT_FORMATS.get(dtype) or INTEGER_FORMATS[dtype]
    codes = (np.arange(256) & ((1 << form.bits) - 1)).astype(np.uint8)
    wide = compute_dtype(dtype)
    table = mx.array(codes.view(dtype).astype(wide), dtype_of_memory(wide))
    mx.eval(table)
    return table


def _rounded_to_odd(numbers: MxArray) -> MxArray:
    """float64 numbers as float32 numbers that round to the same float16 (Boldo and Melquiond, 2008)."""
    nearest = numbers.astype(mx.float32)
    wide = nearest.astype(mx.float64)
    bits = mx.view(nearest, mx.uint32)
    beyond = mx.abs(wide) > mx.abs(numbers)
    odd = mx.bitwise_or(mx.where(beyond, bits - 1, bits), 1)
    inexact = mx.logical_and(wide != numbers, mx.logical_not(mx.isnan(wide)))
    return mx.view(mx.where(inexact, odd, bits), mx.float32)


def _scale(form: FloatFormat, numbers: MxArray) -> MxArray:
    """Powers of two without a sign: to the nearest, ties up, and always up from the least one."""
    bits = mx.view(numbers, mx.uint32)
    code = mx.where(bits <= 1 << 22, 0, mx.right_shift(bits + (1 << 22), 23))
    positive = mx.logical_and(numbers > 0, numbers < float("inf"))
    return mx.where(positive, code, form.nan).astype(mx.uint8)


def _small(form: FloatFormat, numbers: MxArray) -> MxArray:
    bits = mx.view(numbers, mx.uint32)
    sign = mx.bitwise_and(mx.right_shift(bits, 31 - form.magnitude_bits), form.sign)
    magnitude = mx.bitwise_and(bits, 0x7FFFFFFF)
    drop = 23 - form.mantissa
    rebias = (127 - form.bias) << 23
    odd = mx.bitwise_and(mx.right_shift(magnitude, drop), 1)
    normal = mx.right_shift(magnitude + odd + (((1 << (drop - 1)) - 1) - rebias) % (1 << 32), drop)
    # adding a power of two whose unit is the smallest subnormal rounds to it
    anchor = np.float32(2.0 ** (24 - form.mantissa - form.bias))
    subnormal = mx.view(mx.view(magnitude, mx.float32) + float(anchor), mx.uint32) - int(anchor.view(np.uint32))
    code = mx.where(magnitude < (128 - form.bias) << 23, subnormal, normal)
    nan = magnitude > 0x7F800000
    infinite = magnitude == 0x7F800000
    code = mx.where(mx.logical_or(mx.logical_or(nan, infinite), code > form.overflow), form.overflow, code)
    if form.special == "minus zero":
        signed = mx.where(code == 0, 0, mx.bitwise_or(code, sign))
        result = mx.where(mx.logical_or(code == form.overflow, nan), form.nan, signed)
    elif form.special == "none":
        result = mx.where(nan, form.nan, mx.bitwise_or(code, sign))
    else:
        result = mx.bitwise_or(mx.where(nan, form.nan, code), sign)
    return result.astype(mx.uint8)
