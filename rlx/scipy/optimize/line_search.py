"""A step length along a direction that satisfies the strong Wolfe conditions (Nocedal and Wright 2006, section 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.numpy.promotion import convert_to, float_of
from rlx.trees import tree

__all__ = ["FOUND", "INTERVAL_TOO_SMALL", "TOO_MANY_STEPS", "LineSearch", "Point", "choose", "division", "search"]

FOUND, INTERVAL_TOO_SMALL, TOO_MANY_STEPS = 0, 1, 3

_DECREASE = 1e-4  # of the slope, that the value must follow at least
_FLATNESS = 0.9  # of the slope, that may be left
_CUBIC_MARGIN, _QUADRATIC_MARGIN = 0.2, 0.1  # of the interval: interpolated steps nearer to its ends are not taken
_MOST_DIVISIONS = 30

_INT32 = np.dtype("i4")
ValueAndGradient = Callable[[Any], tuple[Any, Any]]


class Point(NamedTuple):
    """The function at a step length: its value, its slope along the direction, and its gradient."""

    step: Array
    value: Array
    slope: Array
    gradient: Array


class LineSearch(NamedTuple):
    """The result of the search; `low` is the best point so far with a sufficient decrease.

    The wanted step is between low and high, or, before `bracketed`, beyond low. `last` is the step and
    the value of the end that was replaced last, for interpolation.
    """

    low: Point
    high: Point
    last: tuple[Array, Array]
    trial: Array
    bracketed: Array
    done: Array
    status: Array
    divisions: Array
    evaluations: Array


def choose(condition: Array, first: Any, second: Any) -> Any:
    return tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


# ------------------------------------------------------------------ interpolation
class _Curve(NamedTuple):
    """Three points of a curve, and its slope at the first."""

    low: Any
    low_value: Any
    slope: Any
    high: Any
    high_value: Any
    last: Any
    last_value: Any


_HARMLESS = _Curve(0.0, 0.0, -1.0, 1.0, 0.0, 2.0, 6.0)  # of t**3 - t: its interpolations have finite derivatives


def _cubic_minimum(curve: _Curve) -> Array:
    """The minimum of the cubic through three points, with the slope at the first; the first point if it has none."""
    first, second = curve.high - curve.low, curve.last - curve.low
    scale = jnp.square(first * second) * (first - second)
    rise_first = curve.high_value - curve.low_value - curve.slope * first
    rise_second = curve.last_value - curve.low_value - curve.slope * second
    cubic = _quotient(jnp.square(second) * rise_first - jnp.square(first) * rise_second, scale)
    square = _quotient(first**3 * rise_second - second**3 * rise_first, scale)
    discriminant = jnp.square(square) - 3 * cubic * curve.slope
    root = jnp.sqrt(jnp.where(discriminant > 0, discriminant, 1))
    return curve.low + jnp.where(discriminant > 0, _quotient(root - square, 3 * cubic), 0)


def _quadratic_minimum(curve: _Curve) -> Array:
    """The minimum of the parabola through two points, with the slope at the first; the first point if it has none."""
    width = curve.high - curve.low
    curvature = _quotient(curve.high_value - curve.low_value - curve.slope * width, jnp.square(width))
    return curve.low - _quotient(curve.slope, 2 * curvature)


def _quotient(a: Any, b: Any) -> Array:
    """a / b, and 0 for b = 0."""
    zero = jnp.equal(b, 0)
    return jnp.where(zero, 0, a / jnp.where(zero, 1, b))


def _within(step: Array, low: Point, high: Point, margin: float) -> Array:
    """Whether a step is in the interval, not too near to its ends."""
    edge = margin * jnp.abs(high.step - low.step)
    bottom, top = jnp.minimum(low.step, high.step), jnp.maximum(low.step, high.step)
    return (step > bottom + edge) & (step < top - edge)


def division(low: Point, high: Point, last: tuple[Array, Array], with_cubic: Any = True) -> Array:
    """Where to divide the interval: at a cubic's minimum, else a parabola's, else in the middle."""
    curve = _Curve(low.step, low.value, low.slope, high.step, high.value, *last)
    fixed = tree.map(lax.stop_gradient, curve)
    by_cubic = with_cubic & _within(_cubic_minimum(fixed), low, high, _CUBIC_MARGIN)
    by_parabola = _within(_quadratic_minimum(fixed), low, high, _QUADRATIC_MARGIN)
    # an interpolation that is not taken gets other points: its derivative may be NaN at values that are not finite
    cubic = _cubic_minimum(choose(by_cubic, curve, _HARMLESS))
    quadratic = _quadratic_minimum(choose(by_parabola, curve, _HARMLESS))
    return jnp.where(by_cubic, cubic, jnp.where(by_parabola, quadratic, (low.step + high.step) / 2))


# ------------------------------------------------------------------ one step of the search
def _narrowed(search: LineSearch, point: Point, start: Point) -> LineSearch:
    """The search after the function was found to be so at its trial step."""
    low, high = search.low, search.high
    beyond = ~(point.value <= start.value + _DECREASE * point.step * start.slope)  # a NaN is too high
    too_high = beyond | ((point.value >= low.value) & (search.evaluations > 0))
    found = ~too_high & (jnp.abs(point.slope) <= -_FLATNESS * start.slope)
    # before there is a high end, it is as if it were at infinity
    rising = point.slope * jnp.where(search.bracketed, high.step - low.step, 1) >= 0
    turns = ~too_high & ~found & rising
    moved = search._replace(
        low=choose(too_high, low, point),
        high=choose(too_high, point, choose(turns, low, high)),
        last=choose(too_high | turns, (high.step, high.value), (low.step, low.value)),
        bracketed=search.bracketed | too_high | turns,
        done=found,
        divisions=search.divisions + search.bracketed,
        evaluations=search.evaluations + 1,
    )
    trial = jnp.where(moved.bracketed, division(moved.low, moved.high, moved.last, moved.divisions > 0), 2 * point.step)
    return moved._replace(trial=convert_to(trial, search.trial.dtype))


def _judged(search: LineSearch, maxiter: Any) -> LineSearch:
    """The search with its status: whether it has failed."""
    smallest = 1e-5 if search.trial.dtype.itemsize < 8 else 1e-10
    width = jnp.abs(search.high.step - search.low.step)
    narrow = search.bracketed & ((width <= smallest) | (search.divisions >= _MOST_DIVISIONS))
    long = ~search.bracketed & (search.evaluations >= maxiter)
    failure = jnp.where(narrow, INTERVAL_TOO_SMALL, jnp.where(long, TOO_MANY_STEPS, FOUND))
    return search._replace(status=convert_to(jnp.where(search.done, FOUND, failure), _INT32))


def search(
    function: ValueAndGradient, x: Array, direction: Array, value: Array, gradient: Array, first_trial: Any,
    maxiter: Any,
) -> LineSearch:  # fmt: skip
    """A step along a descent direction.

    Args:
      function: takes an array like x, returns its value and its gradient.
      x, direction: (n,); value, gradient: the function at x.
      first_trial: the first step to try; maxiter: how often it is doubled at most.

    Returns: a LineSearch. `low` is the point to move to, also if the status is a failure:
    then it is the best point seen with a sufficient decrease, or x.
    """
    real = float_of(x.dtype)
    value = convert_to(value, real)

    def at(step: Array) -> Point:
        found, slope = function(x + convert_to(step, x.dtype) * direction)
        along = jnp.real(jnp.sum(slope * direction))
        return Point(step, convert_to(found, real), convert_to(along, real), convert_to(slope, x.dtype))

    start = Point(jnp.zeros((), real), value, convert_to(jnp.real(jnp.sum(gradient * direction)), real), gradient)

    def go_on(state: LineSearch) -> Array:
        return ~state.done & (state.status == FOUND)

    def step(state: LineSearch) -> LineSearch:
        return _judged(_narrowed(state, at(state.trial), start), maxiter)

    false, zero = jnp.zeros((), bool), jnp.zeros((), _INT32)
    trial = convert_to(first_trial, real)
    initial = LineSearch(start, start, (start.step, value), trial, false, false, zero, zero, zero)
    return lax.while_loop(go_on, step, initial)
