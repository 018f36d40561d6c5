"""L-BFGS as a transformation of gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx import numpy as jnp
from rlx.errors import ShapeError
from rlx.numpy.promotion import float_of
from rlx.optim.line_search import scale_by_zoom_linesearch
from rlx.optim.states import as_before, incremented, new_count
from rlx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Tree,
    chain,
    global_norm,
    identity,
    needs_params,
)
from rlx.optim.updates import scale, scale_by_learning_rate
from rlx.scipy.optimize.quasi_newton import inverse_hessian_product, real_dot
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["ScaleByLBFGSState", "lbfgs", "scale_by_lbfgs"]


class ScaleByLBFGSState(NamedTuple):
    """The last parameters and updates, and the last differences of both in rows that are used in turn.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.scale_by_lbfgs(memory_size=5).init(jnp.ones(2)).diff_params_memory.shape
    (5, 2)
    """

    count: Any
    params: Any
    updates: Any
    diff_params_memory: Any
    diff_updates_memory: Any
    weights_memory: Any


def scale_by_lbfgs(memory_size: int = 10, scale_init_precond: bool = True) -> GradientTransformation:
    """Updates times an approximate inverse Hessian, from the differences of the last steps (L-BFGS).

    Args:
      memory_size: the number of differences.
      scale_init_precond: begin with a multiple of the identity that fits the last difference; in the first step, at
        most the inverse of the gradient's norm. False: begin with the identity.

    Raises: ShapeError if memory_size is less than 1.
    Source: Nocedal and Wright, Numerical Optimization, 2006, algorithm 7.4.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule, params = optim.scale_by_lbfgs(), jnp.array([8.0])
    >>> first, state = rule.update(6 * params, rule.init(params), params)
    >>> rule.update(6 * jnp.array([4.0]), state, jnp.array([4.0]))[0].tolist()
    [4.0]
    """
    if memory_size < 1:
        raise ShapeError(f"optim.scale_by_lbfgs got memory_size={memory_size}.", "It must be at least 1.")

    def init(params: Tree) -> ScaleByLBFGSState:
        arrays = tree.map(as_array, params)
        zeros = tree.map(jnp.zeros_like, arrays)
        rows = tree.map(lambda p: jnp.zeros((memory_size, *p.shape), p.dtype), arrays)
        weights = jnp.zeros(memory_size, float_of(jnp.result_type(*tree.leaves(arrays))))
        return ScaleByLBFGSState(new_count(), zeros, zeros, rows, rows, weights)

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        params = tree.map(as_array, needs_params("scale_by_lbfgs", params))
        updates = as_before(updates, params)
        is_first, row = state.count == 0, (state.count - 1) % memory_size

        def difference(new: Any, old: Any) -> Any:
            return jnp.where(is_first, 0, new - old)

        change = tree.map(difference, params, state.params)
        turn = tree.map(difference, updates, state.updates)
        curvature, square = real_dot(turn, change), real_dot(turn, turn)
        weight = jnp.where(curvature == 0, 0, 1 / jnp.where(curvature == 0, 1, curvature))
        memories = (state.diff_params_memory, state.diff_updates_memory, state.weights_memory)
        memories = tree.map(lambda rows, new: rows.at[row].set(new), memories, (change, turn, weight))
        memories = as_before(memories, (state.diff_params_memory, state.diff_updates_memory, state.weights_memory))
        factor: Any = 1.0
        if scale_init_precond:
            fitted = jnp.where(square > 0, curvature / jnp.where(square > 0, square, 1), 1)
            factor = jnp.where(is_first, jnp.minimum(1, 1 / global_norm(updates)), fitted)
        order = (state.count + jnp.arange(memory_size)) % memory_size
        oldest_first = tree.map(lambda rows: jnp.take(rows, order, 0), memories)
        result = inverse_hessian_product(updates, *oldest_first, factor)
        after = ScaleByLBFGSState(incremented(state.count), params, updates, *memories)
        return result, as_before(after, state)

    return GradientTransformation(init, update)


_SEARCH = scale_by_zoom_linesearch(max_linesearch_steps=20, initial_guess_strategy="one")


def lbfgs(
    learning_rate: Any = None,
    memory_size: int = 10,
    scale_init_precond: bool = True,
    linesearch: GradientTransformation | None = _SEARCH,
) -> GradientTransformationExtraArgs:
    """L-BFGS with a line search, for objectives without noise.

    update(gradient, state, params, *, value, grad, value_fn, **arguments of value_fn): grad is the gradient again.

    Args:
      learning_rate: a number or a schedule that multiplies the updates before the search; 1 by default.
      memory_size, scale_init_precond: as for `scale_by_lbfgs`.
      linesearch: `scale_by_zoom_linesearch` by default; None for none, and then update takes no further arguments.

    Source: Liu and Nocedal, On the limited memory BFGS method for large scale optimization, 1989.

    >>> import rlx
    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> def f(x):
    ...     return jnp.sum(jnp.array([1.0, 9.0]) * x * x)
    >>> rule, x = optim.lbfgs(), jnp.array([3.0, 1.0])
    >>> state, value_and_grad = rule.init(x), optim.value_and_grad_from_state(f)
    >>> for _ in range(6):
    ...     value, grad = value_and_grad(x, state=state)
    ...     updates, state = rule.update(grad, state, x, value=value, grad=grad, value_fn=f)
    ...     x = optim.apply_updates(x, updates)
    >>> bool(f(x) < 1e-6)
    True
    """
    step = scale(-1.0) if learning_rate is None else scale_by_learning_rate(learning_rate)
    search = identity() if linesearch is None else linesearch
    return chain(scale_by_lbfgs(memory_size, scale_init_precond), step, search)
