"""Transformations of gradients: scaling, clipping, momentum, moments, weight decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.optim.states import as_before, incremented, mixed, new_count, unbiased, zeros_of
from rlx.optim.transformation import (
    EmptyState,
    GradientTransformation,
    Tree,
    global_norm,
    masked,
    needs_params,
    stateless,
)
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = [
    "AddDecayedWeightsState",
    "EmaState",
    "ScaleByAdamState",
    "ScaleByLionState",
    "ScaleByRmsState",
    "ScaleByRssState",
    "ScaleByScheduleState",
    "TraceState",
    "add_decayed_weights",
    "clip",
    "clip_by_global_norm",
    "ema",
    "scale",
    "scale_by_adam",
    "scale_by_learning_rate",
    "scale_by_lion",
    "scale_by_rms",
    "scale_by_rss",
    "scale_by_schedule",
    "trace",
]

def _square(x: Any) -> Array:
    value = as_array(x)
    return value * value if value.dtype.kind != "c" else jnp.square(jnp.abs(value))


# ------------------------------------------------------------- scaling and clipping
def scale(step_size: Any) -> GradientTransformation:
    """Updates times a number.

    >>> import rlx
    >>> t = rlx.optim.scale(-0.1)
    >>> round(float(t.update(5.0, t.init(0.0))[0]), 3)
    -0.5
    """
    return stateless(lambda updates, params: tree.map(lambda g: as_array(g) * step_size, updates))


class ScaleByScheduleState(NamedTuple):
    """The number of steps so far.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.scale_by_schedule(lambda step: 1.0).init(jnp.ones(2)).count.item()
    0
    """

    count: Any


def scale_by_schedule(step_size_fn: Callable[[Any], Any]) -> GradientTransformation:
    """Updates times a number that depends on the number of the step.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.scale_by_schedule(lambda step: 1.0 / (step + 1))
    >>> updates, state = rule.update(jnp.array([4.0]), rule.init(jnp.ones(1)))
    >>> rule.update(jnp.array([4.0]), state)[0].tolist()
    [2.0]
    """

    def init(params: Tree) -> ScaleByScheduleState:
        return ScaleByScheduleState(new_count())

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        size = as_array(step_size_fn(state.count))

        def scaled(g: Any) -> Array:
            value = as_array(g)
            return value * lax.convert_element_type(size, value.dtype)

        return tree.map(scaled, updates), ScaleByScheduleState(incremented(state.count))

    return GradientTransformation(init, update)


_RATE = (
    "Pass a number or a schedule. Parameters are arguments of init and update: state = optimizer.init(params)."
)


def scale_by_learning_rate(learning_rate: Any, *, flip_sign: bool = True) -> GradientTransformation:
    """Updates times minus the learning rate, a number or a schedule.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.scale_by_learning_rate(0.5)
    >>> rule.update(jnp.array([4.0]), rule.init(jnp.ones(1)))[0].tolist()
    [-2.0]
    """
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    as_array(learning_rate, "the learning rate", _RATE)  # sign * "1e-3" is "", and sign * [x] is []
    return scale(sign * learning_rate)


def clip(max_delta: Any) -> GradientTransformation:
    """Updates limited to the range from -max_delta to max_delta, element by element.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.clip(1.0)
    >>> rule.update(jnp.array([-5.0, 0.5]), rule.init(jnp.ones(2)))[0].tolist()
    [-1.0, 0.5]
    """
    return stateless(
        lambda updates, params: tree.map(lambda g: jnp.clip(g, -max_delta, max_delta), updates)
    )


def clip_by_global_norm(max_norm: Any) -> GradientTransformation:
    """Updates shrunk together until their global norm is at most max_norm.

    >>> import rlx
    >>> t = rlx.optim.clip_by_global_norm(1.0)
    >>> updates, _ = t.update({"a": 3.0, "b": 4.0}, t.init(None))
    >>> round(float(updates["a"]), 3), round(float(updates["b"]), 3)
    (0.6, 0.8)
    """

    def clipped(updates: Tree, params: Tree) -> Tree:
        norm = global_norm(updates)
        small = norm < max_norm

        def one(g: Any) -> Array:
            value = as_array(g)
            shrunk = value / lax.convert_element_type(norm, value.dtype) * max_norm
            return jnp.where(small, value, shrunk)

        return tree.map(one, updates)

    return stateless(clipped)


# ------------------------------------------------------------- moments
class TraceState(NamedTuple):
    """The running sum of updates.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.trace(0.9).init(jnp.ones(2)).trace.tolist()
    [0.0, 0.0]
    """

    trace: Any


def trace(
    decay: Any, nesterov: bool = False, accumulator_dtype: Any = None
) -> GradientTransformation:
    """Momentum: the sum of all updates, older ones decayed.

    Args:
      nesterov: look one step ahead.
      accumulator_dtype: the dtype of the sum.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.trace(0.5)
    >>> updates, state = rule.update(jnp.array([1.0]), rule.init(jnp.ones(1)))
    >>> rule.update(jnp.array([1.0]), state)[0].tolist()
    [1.5]
    """

    def init(params: Tree) -> TraceState:
        return TraceState(zeros_of(params, accumulator_dtype))

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        def add(g: Any, t: Any) -> Any:
            return as_array(g) + decay * t

        moved = tree.map(add, updates, state.trace)
        result = tree.map(add, updates, moved) if nesterov else moved
        return result, TraceState(as_before(moved, state.trace))

    return GradientTransformation(init, update)


class EmaState(NamedTuple):
    """The number of steps, and the running mean of updates.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.ema(0.9).init(jnp.ones(2)).ema.tolist()
    [0.0, 0.0]
    """

    count: Any
    ema: Any


def ema(decay: Any, debias: bool = True, accumulator_dtype: Any = None) -> GradientTransformation:
    """The running (exponential moving) mean of updates.

    Args:
      decay: how much of the mean is kept in a step.
      debias: divide by the sum of the weights, because the mean begins at zero.
      accumulator_dtype: the dtype of the mean.

    For the mean of parameters, call it with the parameters in place of updates, or use `incremental_update`.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> average, params = optim.ema(0.5), jnp.array([4.0])
    >>> mean, state = average.update(params, average.init(params))
    >>> average.update(jnp.array([1.0]), state)[0].tolist()
    [2.0]
    """

    def init(params: Tree) -> EmaState:
        return EmaState(new_count(), zeros_of(params, accumulator_dtype))

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        mean = tree.map(lambda g, e: mixed(e, as_array(g), decay), updates, state.ema)
        count = incremented(state.count)
        result = unbiased(mean, decay, count) if debias else mean
        return result, EmaState(count, as_before(mean, state.ema))

    return GradientTransformation(init, update)


class ScaleByAdamState(NamedTuple):
    """The number of steps, and running means of updates and of their squares.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> state = optim.scale_by_adam().init(jnp.ones(2))
    >>> state.count.item(), state.mu.tolist(), state.nu.tolist()
    (0, [0.0, 0.0], [0.0, 0.0])
    """

    count: Any
    mu: Any
    nu: Any


def scale_by_adam(
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam's rescaling: the mean of updates divided by the root of the mean of their squares.

    Args:
      b1, b2: how much of the running means is kept in a step.
      eps: added to the root.
      eps_root: added under the root, for derivatives through the update.
      mu_dtype: the dtype of the mean of updates.
      nesterov: look one step ahead.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.scale_by_adam()
    >>> print(rule.update(jnp.array([5.0, -0.2]), rule.init(jnp.ones(2)))[0].round(4))
    [ 1. -1.]
    """

    def init(params: Tree) -> ScaleByAdamState:
        return ScaleByAdamState(new_count(), zeros_of(params, mu_dtype), zeros_of(params))

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        updates = tree.map(as_array, updates)
        mu = tree.map(lambda g, m: mixed(m, g, b1), updates, state.mu)
        nu = tree.map(lambda g, n: mixed(n, _square(g), b2), updates, state.nu)
        count = incremented(state.count)
        if nesterov:
            mean = tree.map(
                lambda m, g: mixed(g, m, 1 - b1),
                unbiased(mu, b1, incremented(count)),
                unbiased(updates, b1, count),
            )
        else:
            mean = unbiased(mu, b1, count)
        square = unbiased(nu, b2, count)
        result = tree.map(lambda m, v: m / (jnp.sqrt(v + eps_root) + eps), mean, square)
        return result, ScaleByAdamState(count, as_before(mu, state.mu), as_before(nu, state.nu))

    return GradientTransformation(init, update)


class ScaleByLionState(NamedTuple):
    """The number of steps, and a running mean of updates.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.scale_by_lion().init(jnp.ones(2)).mu.tolist()
    [0.0, 0.0]
    """

    count: Any
    mu: Any


def scale_by_lion(b1: Any = 0.9, b2: Any = 0.99, mu_dtype: Any = None) -> GradientTransformation:
    """Lion's step: the sign of an update mixed with a running mean.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.scale_by_lion()
    >>> rule.update(jnp.array([5.0, -0.2]), rule.init(jnp.ones(2)))[0].tolist()
    [1.0, -1.0]
    """

    def init(params: Tree) -> ScaleByLionState:
        return ScaleByLionState(new_count(), zeros_of(params, mu_dtype))

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        updates = tree.map(as_array, updates)
        result = tree.map(lambda g, m: jnp.sign(mixed(m, g, b1)), updates, state.mu)
        mu = tree.map(lambda g, m: mixed(m, g, b2), updates, state.mu)
        return result, ScaleByLionState(incremented(state.count), as_before(mu, state.mu))

    return GradientTransformation(init, update)


class ScaleByRmsState(NamedTuple):
    """A running mean of squared updates.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.scale_by_rms().init(jnp.ones(2)).nu.tolist()
    [0.0, 0.0]
    """

    nu: Any


def scale_by_rms(
    decay: Any = 0.9, eps: Any = 1e-8, initial_scale: Any = 0.0, eps_in_sqrt: bool = True
) -> GradientTransformation:
    """Updates divided by the root of a running mean of their squares.

    Args:
      eps_in_sqrt: add eps under the root rather than to it.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.scale_by_rms(decay=0.75)
    >>> print(rule.update(jnp.array([4.0]), rule.init(jnp.ones(1)))[0].round(4))
    [2.]
    """

    def init(params: Tree) -> ScaleByRmsState:
        return ScaleByRmsState(
            tree.map(lambda p: jnp.full_like(as_array(p), initial_scale), params)
        )

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        updates = tree.map(as_array, updates)
        nu = tree.map(lambda g, n: mixed(n, _square(g), decay), updates, state.nu)

        def scaled(g: Any, n: Any) -> Any:
            return lax.rsqrt(n + eps) * g if eps_in_sqrt else 1 / (jnp.sqrt(n) + eps) * g

        return tree.map(scaled, updates, nu), ScaleByRmsState(as_before(nu, state.nu))

    return GradientTransformation(init, update)


class ScaleByRssState(NamedTuple):
    """The sum of squared updates.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.scale_by_rss(0.5).init(jnp.ones(2)).sum_of_squares.tolist()
    [0.5, 0.5]
    """

    sum_of_squares: Any


def scale_by_rss(initial_accumulator_value: Any = 0.1, eps: Any = 1e-7) -> GradientTransformation:
    """Updates divided by the root of the sum of all their squares (Adagrad).

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.scale_by_rss(0.0)
    >>> print(rule.update(jnp.array([4.0]), rule.init(jnp.ones(1)))[0].round(4))
    [1.]
    """

    def init(params: Tree) -> ScaleByRssState:
        start = initial_accumulator_value
        return ScaleByRssState(tree.map(lambda p: jnp.full_like(as_array(p), start), params))

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        updates = tree.map(as_array, updates)
        sums = tree.map(lambda g, s: _square(g) + s, updates, state.sum_of_squares)
        factors = tree.map(lambda s: jnp.where(s > 0, lax.rsqrt(s + eps), 0.0), sums)
        return tree.map(lambda f, g: f * g, factors, updates), ScaleByRssState(as_before(sums, state.sum_of_squares))

    return GradientTransformation(init, update)


# ------------------------------------------------------------- weight decay
class AddDecayedWeightsState(NamedTuple):
    """The number of steps so far.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.add_decayed_weights(lambda step: 0.1 * step)
    >>> rule.init(jnp.ones(2)).count.item()
    0
    """

    count: Any


def add_decayed_weights(weight_decay: Any = 0.0, mask: Any = None) -> GradientTransformation:
    """Updates plus weight_decay (a number or a schedule) times the parameters.

    Args:
      mask: which leaves; see masked.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule, params = optim.add_decayed_weights(0.1), jnp.array([10.0])
    >>> rule.update(jnp.zeros(1), rule.init(params), params)[0].tolist()
    [1.0]
    """

    def init(params: Tree) -> Any:
        return AddDecayedWeightsState(new_count()) if callable(weight_decay) else EmptyState()

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        params = needs_params("add_decayed_weights", params)
        decay = weight_decay
        if callable(weight_decay):
            decay = weight_decay(state.count)
            state = AddDecayedWeightsState(incremented(state.count))
        return tree.map(lambda g, p: as_array(g) + decay * as_array(p), updates, params), state

    transformation = GradientTransformation(init, update)
    return transformation if mask is None else masked(transformation, mask)
