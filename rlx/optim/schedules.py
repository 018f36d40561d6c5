"""Schedules: functions from the number of a step to a learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx import numpy as jnp
from rlx.errors import ShapeError
from rlx.trace.flat import as_array

__all__ = [
    "Schedule",
    "constant_schedule",
    "cosine_decay_schedule",
    "exponential_decay",
    "join_schedules",
    "linear_schedule",
    "piecewise_constant_schedule",
    "polynomial_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
]

Schedule = Callable[[Any], Any]
"""From the number of the step, counted from 0, to the value at that step."""


def constant_schedule(value: Any) -> Schedule:
    """Always the same value.

    >>> from rlx import optim
    >>> optim.constant_schedule(0.5)(100)
    0.5
    """
    return lambda count: value


def polynomial_schedule(
    init_value: Any, end_value: Any, power: Any, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From init_value to end_value along a polynomial in transition_steps steps.

    >>> from rlx import optim
    >>> rate = optim.polynomial_schedule(1.0, 0.0, power=2, transition_steps=10)
    >>> [round(float(rate(step)), 4) for step in (0, 5, 10)]
    [1.0, 0.25, 0.0]
    """
    if transition_steps <= 0:
        return constant_schedule(init_value)

    def schedule(count: Any) -> Any:
        step: Any = as_array(count)
        passed = jnp.clip(step - transition_begin, 0, transition_steps)
        remaining = 1 - passed / transition_steps
        return (init_value - end_value) * remaining**power + end_value

    return schedule


def linear_schedule(
    init_value: Any, end_value: Any, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From init_value to end_value along a line in transition_steps steps.

    >>> import rlx
    >>> schedule = rlx.optim.linear_schedule(1.0, 0.0, 4)
    >>> [float(schedule(i)) for i in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(
    init_value: Any,
    transition_steps: int,
    decay_rate: Any,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Any = None,
) -> Schedule:
    """init_value times decay_rate to the power of steps / transition_steps.

    Args:
      transition_begin: the step at which the decay begins.
      staircase: decay in jumps, at whole multiples of transition_steps.
      end_value: where the decay stops.

    >>> import rlx
    >>> schedule = rlx.optim.exponential_decay(8.0, 2, 0.5)
    >>> [float(schedule(i)) for i in (0, 2, 4)]
    [8.0, 4.0, 2.0]
    """
    if transition_steps <= 0 or decay_rate == 0:
        return constant_schedule(init_value)

    def schedule(count: Any) -> Any:
        step: Any = as_array(count)
        passed = step - transition_begin
        periods = passed / transition_steps
        if staircase:
            periods = jnp.floor(periods)
        decayed = jnp.where(passed <= 0, init_value, init_value * jnp.power(decay_rate, periods))
        if end_value is None:
            return decayed
        limit = jnp.maximum if decay_rate < 1.0 else jnp.minimum
        return limit(decayed, end_value)

    return schedule


def cosine_decay_schedule(
    init_value: Any, decay_steps: int, alpha: Any = 0.0, exponent: Any = 1.0
) -> Schedule:
    """From init_value to alpha * init_value along half a cosine wave in decay_steps steps.

    >>> import rlx
    >>> schedule = rlx.optim.cosine_decay_schedule(1.0, 10)
    >>> [round(float(schedule(i)), 3) for i in (0, 5, 10, 11)]
    [1.0, 0.5, 0.0, 0.0]
    """
    if decay_steps <= 0:
        raise ShapeError(
            f"optim.cosine_decay_schedule got decay_steps={decay_steps}.", "It must be positive."
        )

    def schedule(count: Any) -> Any:
        passed = jnp.minimum(as_array(count), decay_steps)
        wave = 0.5 * (1 + jnp.cos(math.pi * passed / float(decay_steps)))
        return init_value * ((1 - alpha) * wave**exponent + alpha)

    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another: schedules[i + 1] begins, with step 0, at boundaries[i].

    >>> import rlx
    >>> from rlx.optim import constant_schedule, join_schedules
    >>> schedule = join_schedules([constant_schedule(1.0), constant_schedule(0.1)], [3])
    >>> [round(float(schedule(i)), 3) for i in (2, 3)]
    [1.0, 0.1]
    """
    if len(schedules) != len(boundaries) + 1:
        raise ShapeError(
            f"optim.join_schedules got {len(schedules)} schedules and {len(boundaries)} boundaries.",
            "There is one boundary between two schedules.",
        )

    def schedule(count: Any) -> Any:
        step: Any = as_array(count)
        value = schedules[0](step)
        for boundary, later in zip(boundaries, schedules[1:], strict=True):
            value = jnp.where(step < boundary, value, later(step - boundary))
        return value

    return schedule


def warmup_cosine_decay_schedule(
    init_value: Any,
    peak_value: Any,
    warmup_steps: int,
    decay_steps: int,
    end_value: Any = 0.0,
    exponent: Any = 1.0,
) -> Schedule:
    """A line from init_value to peak_value, then a cosine decay to end_value at step decay_steps.

    >>> from rlx import optim
    >>> rate = optim.warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=2, decay_steps=10)
    >>> [round(float(rate(step)), 4) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    alpha = 0.0 if peak_value == 0.0 else end_value / peak_value
    warmup = linear_schedule(init_value, peak_value, warmup_steps)
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return join_schedules([warmup, decay], [warmup_steps])


def warmup_exponential_decay_schedule(
    init_value: Any,
    peak_value: Any,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: Any,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Any = None,
) -> Schedule:
    """A line from init_value to peak_value, then an exponential decay.

    >>> from rlx import optim
    >>> rate = optim.warmup_exponential_decay_schedule(0.0, 1.0, 2, transition_steps=1, decay_rate=0.5)
    >>> [round(float(rate(step)), 4) for step in (0, 1, 2, 3, 4)]
    [0.0, 0.5, 1.0, 0.5, 0.25]
    """
    warmup = linear_schedule(init_value, peak_value, warmup_steps)
    decay = exponential_decay(
        peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value
    )
    return join_schedules([warmup, decay], [warmup_steps])


def piecewise_constant_schedule(
    init_value: Any, boundaries_and_scales: Mapping[int, Any] | None = None
) -> Schedule:
    """init_value, multiplied by a scale after each boundary.

    >>> import rlx
    >>> schedule = rlx.optim.piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.1})
    >>> [round(float(schedule(i)), 3) for i in (1, 2, 3, 4, 5)]
    [1.0, 0.5, 0.5, 0.05, 0.05]
    """
    scales = sorted((boundaries_and_scales or {}).items())

    def schedule(count: Any) -> Any:
        step: Any = as_array(count)
        value: Any = init_value
        for boundary, scale in scales:
            value = jnp.where(step < boundary, value, value * scale)
        return value

    return schedule
