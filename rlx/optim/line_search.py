"""Step sizes by line search: backtracking, and a search for the strong Wolfe conditions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import TreeMismatchError
from rlx.numpy.promotion import float_of
from rlx.optim.states import as_before, new_count
from rlx.optim.transformation import GradientTransformationExtraArgs, Tree, needs_params
from rlx.scipy.optimize.line_search import Point, choose, division
from rlx.trace.flat import as_array
from rlx.transforms.reverse import value_and_grad
from rlx.trees import tree

__all__ = [
    "BacktrackingLinesearchInfo",
    "ScaleByBacktrackingLinesearchState",
    "ScaleByZoomLinesearchState",
    "ZoomLinesearchInfo",
    "scale_by_backtracking_linesearch",
    "scale_by_zoom_linesearch",
    "value_and_grad_from_state",
]

Objective = Callable[..., Any]


def _real_dtype(params: Tree) -> Any:
    return float_of(as_array(tree.leaves(params)[0]).dtype)


def _slope(gradient: Tree, direction: Tree, dtype: Any) -> Array:
    """The derivative along a direction."""
    parts = tree.map(lambda g, d: jnp.sum(jnp.real(as_array(g) * as_array(d))), gradient, direction)
    return jnp.asarray(sum(tree.leaves(parts)), dtype)


def _moved(params: Tree, step: Any, direction: Tree) -> Tree:
    """params + step * direction, in the parameters' dtypes."""
    return as_before(tree.map(lambda p, d: p + step * as_array(d), params, direction), params)


def _own_arguments(name: str, function: Objective, extra_args: dict[str, Any]) -> Objective:
    """The function with the keyword arguments of update, all of which it must take."""
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [] if takes_all else sorted(set(extra_args) - {p.name for p in parameters})
    if unknown:
        raise TypeError(f"optim.{name}: update got the keyword arguments {unknown}, which value_fn does not take.")
    return partial(function, **extra_args)


def _scaled(updates: Tree, rate: Array) -> Tree:
    return as_before(tree.map(lambda u: rate * as_array(u), updates), updates)


# ------------------------------------------------------------- backtracking
class BacktrackingLinesearchInfo(NamedTuple):
    """The number of tried steps of the last search, and by how much the decrease was missed.

    >>> from rlx import optim
    >>> optim.scale_by_backtracking_linesearch(9).init(1.0).info.num_linesearch_steps.item()
    0
    """

    num_linesearch_steps: Any
    decrease_error: Any


class ScaleByBacktrackingLinesearchState(NamedTuple):
    """The last step size, and the value and, if stored, the gradient that it led to.

    >>> from rlx import optim
    >>> optim.scale_by_backtracking_linesearch(9).init(1.0).learning_rate.item()
    1.0
    """

    learning_rate: Any
    value: Any
    grad: Any
    info: BacktrackingLinesearchInfo


class _Backtracking(NamedTuple):
    rate: Array
    value: Array
    error: Array
    count: Array


def scale_by_backtracking_linesearch(
    max_backtracking_steps: int,
    slope_rtol: Any = 1e-4,
    decrease_factor: Any = 0.8,
    increase_factor: Any = 1.5,
    max_learning_rate: Any = 1.0,
    atol: Any = 0.0,
    rtol: Any = 0.0,
    store_grad: bool = False,
) -> GradientTransformationExtraArgs:
    """Updates times a step size that decreases the objective sufficiently (Armijo's rule).

    update(updates, state, params, *, value, grad, value_fn, **arguments of value_fn): value and grad belong to params.

    Args:
      max_backtracking_steps: how often the step size is reduced at most.
      slope_rtol: the part of the decrease along the slope that is required.
      decrease_factor, increase_factor: of the step size, after a failed trial and before the first trial.
      max_learning_rate: the largest step size.
      atol, rtol: how much the value may exceed the required one, absolutely and relative to the value.
      store_grad: compute the gradient at the new parameters, for `value_and_grad_from_state`.

    The step size is 0 if no trial gives a finite value. Raises: TypeError for arguments that value_fn does not take.
    Source: Nocedal and Wright, Numerical Optimization, 2006, section 3.1.

    >>> import rlx
    >>> from rlx import optim
    >>> f = lambda x: x * x
    >>> rule = optim.chain(optim.sgd(1.0), optim.scale_by_backtracking_linesearch(15))
    >>> value, grad = rlx.value_and_grad(f)(3.0)
    >>> updates, state = rule.update(grad, rule.init(3.0), 3.0, value=value, grad=grad, value_fn=f)
    >>> round(updates.item(), 4)
    -4.8
    """

    def init(params: Tree) -> ScaleByBacktrackingLinesearchState:
        dtype = _real_dtype(params)
        gradient = tree.map(lambda p: jnp.zeros_like(as_array(p)), params) if store_grad else None
        info = BacktrackingLinesearchInfo(new_count(), jnp.asarray(math.inf, dtype))
        return ScaleByBacktrackingLinesearchState(
            jnp.asarray(1.0, dtype), jnp.asarray(math.inf, dtype), gradient, info
        )

    def update(
        updates: Tree, state: Any, params: Tree = None, *, value: Any, grad: Tree, value_fn: Objective, **extra: Any
    ) -> tuple[Tree, Any]:
        name = "scale_by_backtracking_linesearch"
        params, function = needs_params(name, params), _own_arguments(name, value_fn, extra)
        dtype = _real_dtype(params)
        start, slope = jnp.asarray(value, dtype), _slope(grad, updates, dtype)

        def go_on(search: _Backtracking) -> Array:
            return ~(search.error <= atol) & (search.count <= max_backtracking_steps)

        def step(search: _Backtracking) -> _Backtracking:
            rate = jnp.where(search.count > 0, decrease_factor * search.rate, search.rate)
            found = function(_moved(params, rate, updates))
            error = found - (1.0 + rtol) * start - rate * slope_rtol * slope
            error = jnp.maximum(jnp.where(jnp.isnan(error), math.inf, error), 0.0)
            return as_before(_Backtracking(rate, found, error, search.count + 1), search)

        first = jnp.minimum(increase_factor * state.learning_rate, max_learning_rate)
        initial = _Backtracking(first, start, jnp.asarray(math.inf, dtype), new_count())
        end = lax.while_loop(go_on, step, as_before(initial, _Backtracking(start, start, start, new_count())))
        rate = jnp.where(jnp.isinf(end.error), 0.0, end.rate)
        scaled = _scaled(updates, rate)
        gradient = value_and_grad(function)(_moved(params, rate, updates))[1] if store_grad else None
        info = BacktrackingLinesearchInfo(end.count, end.error)
        after = ScaleByBacktrackingLinesearchState(rate, end.value, gradient, info)
        return scaled, as_before(after, state)

    return GradientTransformationExtraArgs(init, update)


# ------------------------------------------------------------- strong Wolfe conditions
class ZoomLinesearchInfo(NamedTuple):
    """The number of tried steps of the last search, and by how much the two conditions were missed.

    >>> from rlx import optim
    >>> optim.scale_by_zoom_linesearch(9).init(1.0).info.num_linesearch_steps.item()
    0
    """

    num_linesearch_steps: Any
    decrease_error: Any
    curvature_error: Any


class ScaleByZoomLinesearchState(NamedTuple):
    """The last step size, and the value and gradient that it led to.

    >>> from rlx import optim
    >>> optim.scale_by_zoom_linesearch(9).init(1.0).learning_rate.item()
    1.0
    """

    learning_rate: Any
    value: Any
    grad: Any
    info: ZoomLinesearchInfo


class _Zoom(NamedTuple):
    """The wanted step is between low and high or, before `bracketed`, beyond low; `safe` decreases sufficiently."""

    low: Point
    high: Point
    last: tuple[Array, Array]
    trial: Point
    safe: Point
    decrease_error: Array
    curvature_error: Array
    bracketed: Array
    done: Array
    failed: Array
    count: Array


class _ZoomRules(NamedTuple):
    """The arguments of scale_by_zoom_linesearch that decide about a step."""

    most: int
    largest: Any
    tolerance: Any
    increase_factor: Any
    slope_rtol: Any
    curv_rtol: Any
    approx_dec_rtol: Any
    precision: Any

    def errors(self, point: Point, start: Point) -> tuple[Array, Array]:
        """By how much a point misses the sufficient decrease, and the flatter slope."""
        missed = point.value - start.value - self.slope_rtol * point.step * start.slope
        if self.approx_dec_rtol is not None:  # the form of Hager and Zhang, exact where values are rounded
            rise = point.value - start.value - self.approx_dec_rtol * jnp.abs(start.value)
            missed = jnp.minimum(missed, jnp.maximum(point.slope - (2 * self.slope_rtol - 1) * start.slope, rise))
        steep = jnp.abs(point.slope) - self.curv_rtol * jnp.abs(start.slope)
        decrease, curvature = (jnp.maximum(jnp.where(jnp.isnan(e), math.inf, e), 0.0) for e in (missed, steep))
        return decrease, curvature

    def trial_step(self, search: _Zoom, guess: Array) -> tuple[Array, Array]:
        """The next step to try, and whether it is the largest that is allowed."""
        wider = jnp.where(search.count == 0, guess, self.increase_factor * search.trial.step)
        is_largest = jnp.asarray(False)
        if self.largest is not None:
            is_largest, wider = wider >= self.largest, jnp.minimum(wider, self.largest)
        return jnp.where(search.bracketed, division(search.low, search.high, search.last), wider), is_largest

    def narrowed(self, search: _Zoom, point: Point, start: Point, is_largest: Array) -> _Zoom:
        """The search after its trial."""
        low, high, was = search.low, search.high, search.bracketed
        decrease, curvature = self.errors(point, start)
        error = jnp.maximum(decrease, curvature)
        too_high = (decrease > 0) | ((point.value >= low.value) & (search.count > 0))
        # before there is a high end, it is as if it were at infinity
        turns = ~too_high & (point.slope * jnp.where(was, high.step - low.step, 1) >= 0)
        is_safe = (decrease <= self.tolerance) & (~was | (point.value < search.safe.value))
        safe = choose(is_safe, point, search.safe)
        new_low = choose(too_high, low, point)
        replaced = choose(too_high | turns, (high.step, high.value), (low.step, low.value))
        is_found = error <= self.tolerance
        bracketed = was | too_high | turns | is_found
        narrow = was & (jnp.abs(high.step - low.step) <= self.precision) & (safe.step > 0)
        done = is_found | (is_largest & ~bracketed)
        return _Zoom(
            low=new_low,
            high=choose(too_high, point, choose(turns, low, high)),
            # equal to low, it makes the cubic NaN: the first division uses a parabola
            last=choose(was, replaced, (new_low.step, new_low.value)),
            trial=point,
            safe=safe,
            decrease_error=decrease,
            curvature_error=curvature,
            bracketed=bracketed,
            done=done,
            failed=~done & ((search.count + 1 >= self.most) | narrow),
            count=search.count + 1,
        )


def _zoom(function: Objective, params: Tree, direction: Tree, start: Point, guess: Any, rules: _ZoomRules) -> _Zoom:
    """The search from `start`, the point of step 0."""
    dtype = start.value.dtype

    def at(step: Array) -> Point:
        found, gradient = value_and_grad(function)(_moved(params, step, direction))
        return Point(step, found, _slope(gradient, direction, dtype), gradient)

    def step(search: _Zoom) -> _Zoom:
        trial, is_largest = rules.trial_step(search, guess)
        point = as_before(at(jnp.asarray(trial, dtype)), start)
        return as_before(rules.narrowed(search, point, start, is_largest), search)

    infinite, false = jnp.asarray(math.inf, dtype), jnp.asarray(False)
    last = (start.step, start.value)
    initial = _Zoom(start, start, last, start, start, infinite, infinite, false, false, false, new_count())
    return lax.while_loop(lambda search: ~(search.done | search.failed), step, initial)


def scale_by_zoom_linesearch(
    max_linesearch_steps: int,
    max_learning_rate: Any = None,
    tol: Any = 0.0,
    increase_factor: Any = 2.0,
    slope_rtol: Any = 1e-4,
    curv_rtol: Any = 0.9,
    approx_dec_rtol: Any = 1e-6,
    stepsize_precision: Any = 1e-5,
    initial_guess_strategy: Literal["keep", "one"] = "keep",
) -> GradientTransformationExtraArgs:
    """Updates times a step size that satisfies the strong Wolfe conditions.

    update(updates, state, params, *, value, grad, value_fn, **arguments of value_fn): value and grad belong to params.
    The state keeps the value and gradient at the new parameters for `value_and_grad_from_state`.

    Args:
      max_linesearch_steps: the largest number of evaluations of value_fn and its gradient.
      max_learning_rate: the largest step size, or None.
      tol: by how much the conditions may be missed.
      increase_factor: of the step size, until an interval with a minimum is found.
      slope_rtol: the part of the decrease along the slope that is required.
      curv_rtol: the part of the slope that may be left.
      approx_dec_rtol: accept values that exceed the first one by this part of it if the slope has changed enough: near
        a minimum, differences of values are rounding errors. None: do not.
      stepsize_precision: the length of interval at which the search stops with a step that only decreases.
      initial_guess_strategy: "keep" begins with the last step size, "one" with 1.

    Where the search fails, the best step with a sufficient decrease is used. Raises: ValueError for another strategy;
    TypeError for arguments that value_fn does not take.
    Source: Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5 and 3.6; Hager and Zhang, 2005.

    >>> import rlx
    >>> from rlx import optim
    >>> f = lambda x: (x - 1.0) ** 2
    >>> rule = optim.chain(optim.sgd(1.0), optim.scale_by_zoom_linesearch(15))
    >>> value, grad = rlx.value_and_grad(f)(3.0)
    >>> updates, state = rule.update(grad, rule.init(3.0), 3.0, value=value, grad=grad, value_fn=f)
    >>> updates.item()
    -2.0
    """
    if initial_guess_strategy not in ("keep", "one"):
        raise ValueError(
            f"optim.scale_by_zoom_linesearch has no initial_guess_strategy {initial_guess_strategy!r}:"
            ' use "keep" or "one".'
        )
    conditions = slope_rtol, curv_rtol, approx_dec_rtol, stepsize_precision
    rules = _ZoomRules(max_linesearch_steps, max_learning_rate, tol, increase_factor, *conditions)

    def init(params: Tree) -> ScaleByZoomLinesearchState:
        dtype = _real_dtype(params)
        infinite = jnp.asarray(math.inf, dtype)
        gradient = tree.map(lambda p: jnp.zeros_like(as_array(p)), params)
        info = ZoomLinesearchInfo(new_count(), infinite, infinite)
        return ScaleByZoomLinesearchState(jnp.asarray(1.0, dtype), infinite, gradient, info)

    def update(
        updates: Tree, state: Any, params: Tree = None, *, value: Any, grad: Tree, value_fn: Objective, **extra: Any
    ) -> tuple[Tree, Any]:
        name = "scale_by_zoom_linesearch"
        params, function = needs_params(name, params), _own_arguments(name, value_fn, extra)
        params = tree.map(as_array, params)
        dtype = _real_dtype(params)
        guess = state.learning_rate if initial_guess_strategy == "keep" else 1.0
        gradient = as_before(grad, params)
        start = Point(jnp.zeros((), dtype), jnp.asarray(value, dtype), _slope(grad, updates, dtype), gradient)
        end = _zoom(function, params, updates, start, guess, rules)
        use_safe = end.failed & ((end.safe.step > 0) | jnp.isinf(end.decrease_error))
        point = choose(use_safe, end.safe, end.trial)
        info = ZoomLinesearchInfo(end.count, end.decrease_error, end.curvature_error)
        after = ScaleByZoomLinesearchState(point.step, point.value, point.gradient, info)
        return _scaled(updates, point.step), as_before(after, state)

    return GradientTransformationExtraArgs(init, update)


# ------------------------------------------------------------- values from the state
def _fields(state: Any, name: str) -> list[Any]:
    """The values of a name in the named tuples and dicts of a state."""
    parts: dict[Any, Any] = {}
    if isinstance(state, dict):
        parts = state
    elif isinstance(state, (tuple, list)):
        names = getattr(state, "_fields", range(len(state)))
        parts = dict(zip(names, state, strict=True))
    own = [parts[name]] if name in parts else []
    return own + [found for key, part in parts.items() if key != name for found in _fields(part, name)]


def value_and_grad_from_state(value_fn: Objective) -> Callable[..., tuple[Array, Tree]]:
    """value_and_grad(value_fn) that reads both from the state of a line search where it has stored them.

    Returns: function(params, *args, state, **kwargs) -> (value, gradient). Both are computed in the first step, whose
    state has none. The stored ones belong to the arguments of the last step: use it if these do not change.
    Raises: TreeMismatchError if the state has no value and gradient, or more than one.

    >>> from rlx import optim
    >>> rule = optim.lbfgs()
    >>> optim.value_and_grad_from_state(lambda x: x * x)(3.0, state=rule.init(3.0))[1].item()
    6.0
    """

    def from_state(params: Tree, *args: Any, state: Any, **kwargs: Any) -> tuple[Array, Tree]:
        values, gradients = ([x for x in _fields(state, name) if x is not None] for name in ("value", "grad"))
        if len(values) != 1 or len(gradients) != 1:
            raise TreeMismatchError(
                f"optim.value_and_grad_from_state got a state with {len(values)} values and"
                f" {len(gradients)} gradients.",
                "Pass the state of an optimiser with one line search; scale_by_backtracking_linesearch stores the"
                " gradient with store_grad=True.",
            )
        stored = (values[0], gradients[0])

        def computed(params: Tree) -> tuple[Array, Tree]:
            return as_before(value_and_grad(value_fn)(params, *args, **kwargs), stored)

        return lax.cond(jnp.isfinite(values[0]), lambda _: stored, computed, tree.map(as_array, params))

    return from_state
