"""Fixed-point arithmetic of integer programs: products and shifts that round, and requantisation.

The definitions are in rlx/quant/integer_program.py. The arithmetic is that of gemmlowp and of TensorFlow Lite's
reference kernels, with two roundings.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeOverflowError

__all__ = ["fixed_point", "high_product", "requantize", "rounding_shift", "saturating_left_shift"]

_LEAST_SHIFT, _MOST_SHIFT = -30, 31
_BEYOND = 1 << 10  # a number that no code reaches, with any zero point


def fixed_point(ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32 multipliers m in [2**30, 2**31) and shifts s, with m * 2**-31 * 2**-s next to positive numbers.

    Raises DtypeOverflowError for numbers that are not in [2**-32, 2**30).

    >>> import numpy as np
    >>> [found.tolist() for found in fixed_point(np.array([0.25, 3.0]))]
    [[1073741824, 1610612736], [1, -2]]
    """
    multipliers, shifts = np.zeros(ratios.shape, np.int32), np.zeros(ratios.shape, np.int32)
    for at, ratio in np.ndenumerate(ratios):
        fraction, exponent = math.frexp(ratio) if math.isfinite(ratio) else (0.0, 0)
        whole = round(fraction * 2**31)
        whole, exponent = (whole // 2, exponent + 1) if whole == 2**31 else (whole, exponent)
        if ratio <= 0 or not whole or not _LEAST_SHIFT <= -exponent <= _MOST_SHIFT:
            raise DtypeOverflowError(
                f"A ratio of scales is {ratio:.3g}, and fixed-point multipliers are in [2**-32, 2**30).",
                "Calibrate with inputs like those that the model will see: a value may be constant or have outliers.",
            )
        multipliers[at], shifts[at] = whole, -exponent
    return multipliers, shifts


def high_product(a: Array, b: Any) -> Array:
    """a * b / 2**31 of int32 numbers, rounded to the nearest, and halves up.

    >>> import numpy as np
    >>> high_product(np.array([3, -3], np.int32), np.int32(2**30)).tolist()
    [2, -1]
    """
    product = jnp.asarray(a).astype(np.int64) * jnp.asarray(b).astype(np.int64)
    return ((product + np.int64(1 << 30)) >> np.int64(31)).astype(np.int32)


def rounding_shift(a: Array, shift: Any) -> Array:
    """a / 2**shift of int32 numbers, rounded half away from zero; shift is in [0, 31].

    >>> import numpy as np
    >>> rounding_shift(np.array([6, -6, 5], np.int32), np.int32(2)).tolist()
    [2, -2, 1]
    """
    mask = ((np.int64(1) << jnp.asarray(shift).astype(np.int64)) - np.int64(1)).astype(np.int32)
    rest = a & mask
    return (a >> shift) + (rest > (mask >> np.int32(1)) + (a < 0).astype(np.int32)).astype(np.int32)


def saturating_left_shift(a: Array, shift: Any) -> Array:
    """a * 2**shift of int32 numbers, at most the largest multiple of 2**shift in magnitude; shift is in [0, 30].

    >>> import numpy as np
    >>> saturating_left_shift(np.array([3, 1 << 30], np.int32), np.int32(2)).tolist()
    [12, 2147483644]
    """
    limit = np.int32(2**31 - 1) >> jnp.asarray(shift)
    return jnp.clip(a, -limit, limit) << shift


def requantize(accumulator: Array, multiplier: Any, shift: Any, zero_point: int, low: int, high: int) -> Array:
    """int8 codes of int32 accumulators; see Requantization. float32 multipliers mean the rounding "float"."""
    if multiplier.dtype == np.float32:
        product = jnp.clip(accumulator.astype(np.float32) * multiplier, -_BEYOND, _BEYOND)
        whole = jnp.trunc(product)
        away = jnp.abs(product - whole) >= 0.5
        scaled = (whole + jnp.where(away, jnp.sign(product), 0)).astype(np.int32)
    else:
        raised = saturating_left_shift(accumulator, jnp.maximum(-shift, 0))
        scaled = rounding_shift(high_product(raised, multiplier), jnp.maximum(shift, 0))
        scaled = jnp.clip(scaled, -_BEYOND, _BEYOND)
    return jnp.clip(scaled + np.int32(zero_point), low, high).astype(np.int8)
