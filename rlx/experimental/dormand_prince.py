"""One step of Dormand and Prince's Runge-Kutta method of order 5, its error, its interpolation and its length.

Sources: Dormand and Prince 1980; the middle of a step: Shampine 1986; step lengths: Hairer, Norsett and
Wanner 1993, section II.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.numpy.promotion import convert_to

__all__ = ["Step", "error_ratio", "first_length", "interpolated", "next_length", "step"]

_TIMES = np.array([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
_STAGES = np.zeros((6, 7))
_STAGES[0, :1] = [1 / 5]
_STAGES[1, :2] = [3 / 40, 9 / 40]
_STAGES[2, :3] = [44 / 45, -56 / 15, 32 / 9]
_STAGES[3, :4] = [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729]
_STAGES[4, :5] = [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656]
_STAGES[5, :6] = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]
_FOURTH_ORDER = np.array([5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40])
_ERROR = np.append(_STAGES[5, :6], 0) - _FOURTH_ORDER
_MIDDLE = np.array(
    [
        6025192743 / 30085553152,
        0,
        51252292925 / 65400821598,
        -2691868925 / 45128329728,
        187940372067 / 1594534317056,
        -1776094331 / 19743644256,
        11237099 / 235043384,
    ]
)

_ORDER = 5
_SAFETY, _LEAST_FACTOR, _GREATEST_FACTOR = 0.9, 0.2, 10.0
Rate = Callable[[Array, Array], Array]


class Step(NamedTuple):
    """A step's end and the slope there, the estimated error, and the polynomial in between, highest power first."""

    end: Array
    slope: Array
    error: Array
    polynomial: Array


def step(rate: Rate, start: Array, slope: Array, time: Array, length: Array) -> Step:
    """A step of a given length from a state (n,) with its slope."""
    dtype = start.dtype
    width = convert_to(length, dtype)

    def stage(slopes: Array, row: Any) -> tuple[Array, None]:
        number, share, weights = row
        state = start + width * jnp.matmul(weights, slopes)
        return slopes.at[number + 1].set(rate(state, time + length * share)), None

    rows = (np.arange(6), _TIMES.astype(time.dtype), _STAGES.astype(dtype))
    empty = jnp.concatenate([slope[None], jnp.zeros((6, *slope.shape), dtype)])
    slopes, _ = lax.scan(stage, empty, rows)
    end = start + width * jnp.matmul(_STAGES[5].astype(dtype), slopes)
    middle = start + width / 2 * jnp.matmul(_MIDDLE.astype(dtype), slopes)
    error = width * jnp.matmul(_ERROR.astype(dtype), slopes)
    return Step(end, slopes[6], error, _quartic(start, middle, end, width * slope, width * slopes[6]))


def _quartic(start: Array, middle: Array, end: Array, opening: Array, closing: Array) -> Array:
    """The polynomial over [0, 1] through three values, with given slopes at both ends."""
    rise, half = end - start, middle - start
    fourth = 2 * (closing - opening) - 8 * rise + 16 * half
    third = 5 * opening - 3 * closing + 14 * rise - 32 * half
    second = closing - 4 * opening - 5 * rise + 16 * half
    return jnp.stack([fourth, third, second, opening, start])


def interpolated(polynomial: Array, share: Array) -> Array:
    """The state at a fraction of a step."""
    share = convert_to(share, polynomial.dtype)
    value = polynomial[0]
    for power in range(1, 5):
        value = value * share + polynomial[power]
    return value


# ------------------------------------------------------------------ step lengths
def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(jnp.real(x)) + jnp.square(jnp.imag(x))))


def first_length(
    rate: Rate, start: Array, slope: Array, time: Array, rtol: Any, atol: Any, order: int = _ORDER
) -> Array:
    """A length for the first step of a method whose error is of this order, from the change of the slope."""
    scale = atol + jnp.abs(start) * rtol
    size, speed = _norm(start / scale), _norm(slope / scale)
    still = (size < 1e-5) | (speed < 1e-5)
    short = jnp.where(still, 1e-6, 0.01 * size / jnp.where(still, 1, speed))
    there = rate(start + convert_to(short, start.dtype) * slope, time + convert_to(short, time.dtype))
    most = jnp.maximum(speed, _norm((there - slope) / scale) / short)
    straight = most <= 1e-15
    long = jnp.where(straight, jnp.maximum(1e-6, short * 1e-3), (0.01 / jnp.where(straight, 1, most)) ** (1 / order))
    return convert_to(jnp.minimum(100 * short, long), time.dtype)


def error_ratio(found: Step, start: Array, rtol: Any, atol: Any) -> Array:
    """The error as a fraction of the tolerance: a step is accepted up to 1."""
    allowed = atol + rtol * jnp.maximum(jnp.abs(start), jnp.abs(found.end))
    return _norm(found.error / allowed) / np.sqrt(max(start.size, 1))


def next_length(length: Array, ratio: Array) -> Array:
    """The length of the next step after one with the given error ratio; much shorter if the ratio is NaN."""
    ratio = jnp.where(jnp.isfinite(ratio), ratio, jnp.inf)
    least = jnp.where(ratio < 1, 1.0, _LEAST_FACTOR)
    factor = _SAFETY * jnp.where(ratio > 0, ratio, 1) ** (-1 / _ORDER)
    factor = jnp.where(ratio > 0, jnp.clip(factor, least, _GREATEST_FACTOR), _GREATEST_FACTOR)
    return length * convert_to(factor, length.dtype)
