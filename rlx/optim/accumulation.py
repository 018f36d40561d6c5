"""Several gradients for one update, updates that are skipped, and running means of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array, is_array
from rlx.errors import DtypeError, OptionError
from rlx.optim.states import as_before, chosen, incremented, new_count, zeros_of
from rlx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Tree,
    with_extra_args_support,
)
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = [
    "ApplyEvery",
    "ApplyIfFiniteState",
    "ConditionallyMaskState",
    "ConditionallyTransformState",
    "MultiSteps",
    "MultiStepsState",
    "apply_every",
    "apply_if_finite",
    "conditionally_mask",
    "conditionally_transform",
    "incremental_update",
    "periodic_update",
    "skip_large_updates",
    "skip_not_finite",
]


# ------------------------------------------------------------- several gradients for one update
class ApplyEvery(NamedTuple):
    """The state of `apply_every`: the number of updates in the sum, and the sum.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.apply_every(2).init(jnp.ones(2)).grad_acc.tolist()
    [0.0, 0.0]
    """

    count: Any
    grad_acc: Any


def apply_every(k: Any = 1) -> GradientTransformation:
    """The sum of k updates in every k-th step, and zeros in the other steps.

    The transformations before it run in every step. `MultiSteps` runs an optimiser in every k-th step only.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.apply_every(2)
    >>> first, state = rule.update(jnp.array([1.0]), rule.init(jnp.ones(1)))
    >>> first.tolist(), rule.update(jnp.array([2.0]), state)[0].tolist()
    ([0.0], [3.0])
    """

    def init(params: Tree) -> ApplyEvery:
        return ApplyEvery(new_count(), zeros_of(params))

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        place = state.count % k
        total = tree.map(lambda g, a: g + jnp.where(place == 0, 0, a), updates, state.grad_acc)
        result = tree.map(lambda a: jnp.where(place == k - 1, a, 0), total)
        return result, ApplyEvery(incremented(state.count) % k, as_before(total, state.grad_acc))

    return GradientTransformation(init, update)


class MultiStepsState(NamedTuple):
    """The numbers of the gradient and of the update, the optimiser's state, and the mean or sum of gradients.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.MultiSteps(optim.sgd(0.1), 4).init(jnp.ones(2)).mini_step.item()
    0
    """

    mini_step: Any
    gradient_step: Any
    inner_opt_state: Any
    acc_grads: Any
    skip_state: Any = ()


class ShouldSkip(Protocol):
    """Decides whether a gradient is left out; the second result is stored as skip_state."""

    def __call__(self, updates: Tree, gradient_step: Any, params: Tree) -> tuple[Any, Any]:
        """A bool, and a tree of arrays."""


class MultiSteps:
    """Gradient accumulation: an optimiser that is applied to the mean of k gradients, and gives zeros in between.

    Args:
      opt: the optimiser.
      every_k_schedule: k, or a function from the number of the update to k.
      use_grad_mean: False for the sum.
      should_skip_update_fn: function(updates, gradient_step, params) -> (bool, state) that leaves gradients out:
        `skip_not_finite`, or `skip_large_updates` with functools.partial.
      accumulator_dtype: the dtype of the mean.

    `init`, `update` and `gradient_transformation()` are used like a transformation. The optimiser runs in every call,
    and its result is used in every k-th one.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.MultiSteps(optim.sgd(1.0), every_k_schedule=2)
    >>> first, state = rule.update(jnp.array([1.0]), rule.init(jnp.ones(1)))
    >>> second, state = rule.update(jnp.array([3.0]), state)
    >>> first.tolist(), second.tolist(), rule.has_updated(state).item()
    ([0.0], [-2.0], True)
    """

    def __init__(
        self,
        opt: GradientTransformation,
        every_k_schedule: int | Callable[[Any], Any],
        use_grad_mean: bool = True,
        should_skip_update_fn: ShouldSkip | None = None,
        accumulator_dtype: Any = np.float32,
    ) -> None:
        if not callable(every_k_schedule) and not (
            is_array(every_k_schedule) or isinstance(every_k_schedule, (int, np.integer))
        ):
            raise OptionError(
                f"optim.MultiSteps got every_k_schedule={every_k_schedule!r}.",
                "Pass an integer, or a function from the number of the update to an integer.",
            )
        self.inner_opt = with_extra_args_support(opt)
        self._every = every_k_schedule if callable(every_k_schedule) else lambda step: every_k_schedule
        self._is_mean = use_grad_mean
        self._should_skip = should_skip_update_fn or (lambda updates, gradient_step, params: (jnp.asarray(False), ()))
        self._dtype = accumulator_dtype

    def init(self, params: Tree) -> MultiStepsState:
        """The state before the first gradient."""
        _, skip_state = self._should_skip(zeros_of(params), new_count(), params)
        total = zeros_of(params, self._dtype)
        return MultiStepsState(new_count(), new_count(), self.inner_opt.init(params), total, skip_state)

    def _with(self, gradient: Any, total: Any, count: Any) -> Any:
        return total + (gradient - total) / (count + 1) if self._is_mean else total + gradient

    def update(
        self, updates: Tree, state: MultiStepsState, params: Tree = None, /, **extra_args: Any
    ) -> tuple[Tree, MultiStepsState]:
        """The updates, which are zeros before the k-th gradient, and the next state."""
        k: Any = self._every(state.gradient_step)
        skip, skip_state = self._should_skip(updates, state.gradient_step, params)
        if jnp.shape(skip) != () or jnp.asarray(skip).dtype != bool:
            raise DtypeError(
                f"The should_skip_update_fn of optim.MultiSteps returned {jnp.asarray(skip).dtype}{jnp.shape(skip)}.",
                "Its first result must be one bool: use rlx.numpy.any or rlx.numpy.all.",
            )
        total = tree.map(lambda g, a: self._with(as_array(g), a, state.mini_step), updates, state.acc_grads)
        moved, inner = self.inner_opt.update(as_before(total, updates), state.inner_opt_state, params, **extra_args)
        is_last = (state.mini_step == k - 1) & ~skip
        after = MultiStepsState(
            jnp.where(skip, state.mini_step, incremented(state.mini_step) % k),
            jnp.where(is_last, incremented(state.gradient_step), state.gradient_step),
            chosen(is_last, inner, state.inner_opt_state),
            chosen(skip, state.acc_grads, tree.map(lambda a: jnp.where(is_last, 0, a), total)),
            skip_state,
        )
        after = after._replace(acc_grads=as_before(after.acc_grads, state.acc_grads))
        return tree.map(lambda u: jnp.where(is_last, u, 0), moved), after

    def has_updated(self, state: MultiStepsState) -> Array:
        """Whether the last call gave an update of the optimiser."""
        return (state.mini_step == 0) & (state.gradient_step > 0)

    def gradient_transformation(self) -> GradientTransformationExtraArgs:
        """The same as a transformation, for `chain`."""
        return GradientTransformationExtraArgs(self.init, self.update)


# ------------------------------------------------------------- updates that are skipped
def _count_of_bad(updates: Tree) -> Array:
    """The number of elements that are NaN or infinite."""
    counts = [jnp.sum(~jnp.isfinite(as_array(x))) for x in tree.leaves(updates)]
    return jnp.sum(jnp.stack(counts)) if counts else new_count()


def skip_not_finite(updates: Tree, gradient_step: Any, params: Tree) -> tuple[Array, dict[str, Array]]:
    """For `MultiSteps`: leave out gradients with a NaN or an infinity.

    Returns: a bool, and {"should_skip": that bool, "num_not_finite": int32}.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.skip_not_finite(jnp.array([1.0, jnp.nan]), 0, None)[0].item()
    True
    """
    count = _count_of_bad(updates)
    return count > 0, {"should_skip": count > 0, "num_not_finite": count}


def skip_large_updates(
    updates: Tree, gradient_step: Any, params: Tree, max_squared_norm: Any
) -> tuple[Array, dict[str, Array]]:
    """For `MultiSteps`: leave out gradients whose squared norm is not below max_squared_norm.

    Returns: a bool, and {"should_skip": that bool, "norm_squared": a scalar}.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.skip_large_updates(jnp.array([3.0, 4.0]), 0, None, max_squared_norm=26.0)[0].item()
    False
    """
    total = jnp.sum(jnp.stack([jnp.sum(jnp.square(jnp.abs(as_array(x)))) for x in tree.leaves(updates)]))
    skip = ~(total < max_squared_norm)
    return skip, {"should_skip": skip, "norm_squared": total}


class ApplyIfFiniteState(NamedTuple):
    """Counts of updates that were not finite, and the state of the inner transformation.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.apply_if_finite(optim.sgd(0.1), 3).init(jnp.ones(2)).total_notfinite.item()
    0
    """

    notfinite_count: Any
    last_finite: Any
    total_notfinite: Any
    inner_state: Any


def apply_if_finite(inner: GradientTransformation, max_consecutive_errors: int) -> GradientTransformationExtraArgs:
    """The inner transformation; zeros and an unchanged state where an update has a NaN or an infinity.

    Args: max_consecutive_errors: after so many steps in a row, updates are applied again, so that the problem shows.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.apply_if_finite(optim.sgd(1.0), max_consecutive_errors=3)
    >>> updates, state = rule.update(jnp.array([jnp.inf]), rule.init(jnp.ones(1)))
    >>> updates.tolist(), state.notfinite_count.item()
    ([0.0], 1)
    """
    part = with_extra_args_support(inner)

    def init(params: Tree) -> ApplyIfFiniteState:
        return ApplyIfFiniteState(new_count(), jnp.asarray(True), new_count(), part.init(params))

    def update(updates: Tree, state: Any, params: Tree = None, **extra_args: Any) -> tuple[Tree, Any]:
        is_finite = _count_of_bad(updates) == 0
        errors = jnp.where(is_finite, 0, incremented(state.notfinite_count))
        is_applied = is_finite | (errors > max_consecutive_errors)
        moved, inner_state = part.update(updates, state.inner_state, params, **extra_args)
        total = jnp.where(is_finite, state.total_notfinite, incremented(state.total_notfinite))
        inner_state = chosen(is_applied, inner_state, state.inner_state)
        after = ApplyIfFiniteState(errors, is_finite, total, inner_state)
        return tree.map(lambda u: jnp.where(is_applied, u, 0), moved), after

    return GradientTransformationExtraArgs(init, update)


class ConditionallyTransformState(NamedTuple):
    """The inner state, and the number of steps.

    >>> from rlx import optim
    >>> rule = optim.conditionally_transform(optim.scale(0.1), lambda step: step > 1)
    >>> rule.init(1.0).step.item()
    0
    """

    inner_state: Any
    step: Any


class ConditionallyMaskState(NamedTuple):
    """The number of steps, and the inner state.

    >>> from rlx import optim
    >>> optim.conditionally_mask(optim.scale(0.1), lambda step: step > 1).init(1.0).step.item()
    0
    """

    step: Any
    inner_state: Any


def _conditionally(
    inner: GradientTransformation, condition: Callable[..., Any], forward: bool, state_type: Any, otherwise: Any
) -> GradientTransformationExtraArgs:
    """The inner transformation in some steps; in the others the state stays, and otherwise(updates) is the result."""
    part = with_extra_args_support(inner)

    def init(params: Tree) -> Any:
        return state_type(inner_state=part.init(params), step=new_count())

    def update(updates: Tree, state: Any, params: Tree = None, **extra_args: Any) -> tuple[Tree, Any]:
        holds = condition(state.step, **(extra_args if forward else {}))
        moved, inner_state = part.update(updates, state.inner_state, params, **extra_args)
        result = tree.map(lambda new, old: jnp.where(holds, new, otherwise(old)), moved, updates)
        inner_state = chosen(holds, inner_state, state.inner_state)
        return result, state_type(inner_state=inner_state, step=incremented(state.step))

    return GradientTransformationExtraArgs(init, update)


def conditionally_transform(
    inner: GradientTransformation, should_transform_fn: Callable[..., Any], forward_extra_args: bool = False
) -> GradientTransformationExtraArgs:
    """The inner transformation in steps for which should_transform_fn(step) holds; otherwise updates pass unchanged.

    Args: forward_extra_args: pass update's keyword arguments to should_transform_fn.

    >>> from rlx import optim
    >>> rule = optim.conditionally_transform(optim.scale(0.5), lambda step: step >= 1)
    >>> first, state = rule.update(2.0, rule.init(1.0))
    >>> first.item(), rule.update(2.0, state)[0].item()
    (2.0, 1.0)
    """
    keep = lambda x: x  # noqa: E731
    return _conditionally(inner, should_transform_fn, forward_extra_args, ConditionallyTransformState, keep)


def conditionally_mask(
    inner: GradientTransformation, should_transform_fn: Callable[..., Any], forward_extra_args: bool = False
) -> GradientTransformationExtraArgs:
    """The inner transformation in steps for which should_transform_fn(step) holds; otherwise updates are zeros.

    Args: forward_extra_args: pass update's keyword arguments to should_transform_fn.

    >>> from rlx import optim
    >>> rule = optim.conditionally_mask(optim.scale(0.5), lambda step: step >= 1)
    >>> first, state = rule.update(2.0, rule.init(1.0))
    >>> first.item(), rule.update(2.0, state)[0].item()
    (0.0, 1.0)
    """
    return _conditionally(inner, should_transform_fn, forward_extra_args, ConditionallyMaskState, jnp.zeros_like)


# ------------------------------------------------------------- running means of parameters
def incremental_update(new_tensors: Tree, old_tensors: Tree, step_size: Any) -> Tree:
    """step_size * new + (1 - step_size) * old for each leaf: a running mean of parameters, which begins at them.

    Args: None among new_tensors stays None. Returns: a tree in the promoted dtypes.

    >>> from rlx import optim
    >>> optim.incremental_update({"w": 1.0}, {"w": 3.0}, step_size=0.25)["w"].item()
    2.5
    """

    def mix(new: Any, old: Any) -> Any:
        return None if new is None else step_size * as_array(new) + (1.0 - step_size) * as_array(old)

    return tree.map(mix, new_tensors, old_tensors, is_leaf=lambda x: x is None)


def periodic_update(new_tensors: Tree, old_tensors: Tree, steps: Any, update_period: Any) -> Tree:
    """new_tensors where steps is a multiple of update_period, else old_tensors: target networks.

    >>> from rlx import optim
    >>> [optim.periodic_update(1.0, 0.0, step, 2).item() for step in range(3)]
    [1.0, 0.0, 1.0]
    """
    is_due = as_array(steps) % update_period == 0
    return tree.map(lambda new, old: jnp.where(is_due, new, old), new_tensors, old_tensors)
