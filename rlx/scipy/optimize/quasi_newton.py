"""The BFGS method, and its form with limited memory: minima by gradients (Nocedal and Wright 2006, chapters 6, 7)."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.numpy.promotion import convert_to, float_of
from rlx.scipy.optimize.line_search import FOUND, LineSearch, ValueAndGradient, search
from rlx.trees import tree

__all__ = [
    "Minimum",
    "inverse_hessian_product",
    "minimize_with_limited_memory",
    "minimize_with_matrix",
    "real_dot",
]

_INT32 = np.dtype("i4")
_CONVERGED, _TOO_MANY_ITERATIONS, _FAILED_SEARCH = 0, 1, 2
_TOO_MANY_VALUES, _TOO_MANY_GRADIENTS, _NO_DECREASE, _NO_STEP = 2, 3, 4, 5


class Minimum(NamedTuple):
    """The state of the search: the point, its value and gradient, the status, and the method's memory."""

    x: Array
    value: Array
    gradient: Array
    iterations: Array
    evaluations: Array
    converged: Array
    failed: Array
    status: Array
    memory: Any


def _size(gradient: Array, norm: Any) -> Array:
    return jnp.linalg.norm(gradient, ord=norm)


def _start(function: ValueAndGradient, x: Array, norm: Any, gtol: Any, memory: Any) -> Minimum:
    value, gradient = function(x)
    value, gradient = convert_to(value, float_of(x.dtype)), convert_to(gradient, x.dtype)
    zero, one = jnp.zeros((), _INT32), jnp.ones((), _INT32)
    return Minimum(x, value, gradient, zero, one, _size(gradient, norm) < gtol, jnp.zeros((), bool), zero, memory)


def _moved(state: Minimum, found: LineSearch, direction: Array) -> tuple[Minimum, Array, Array]:
    """The state at the point that a line search found, and the changes of the point and the gradient."""
    change = convert_to(found.low.step, direction.dtype) * direction
    moved = state._replace(
        x=state.x + change,
        value=found.low.value,
        gradient=found.low.gradient,
        iterations=state.iterations + 1,
        evaluations=state.evaluations + found.evaluations,
    )
    return moved, change, moved.gradient - state.gradient


def _inverse(curvature: Array) -> Array:
    """One by a number; zero for zero, that is: no update."""
    return jnp.where(curvature == 0, 0, 1 / jnp.where(curvature == 0, 1, curvature))


# ------------------------------------------------------------------ with a matrix
def minimize_with_matrix(
    function: ValueAndGradient, x: Array, maxiter: int | None = None, norm: Any = np.inf, gtol: Any = 1e-5,
    line_search_maxiter: int = 10,
) -> Minimum:  # fmt: skip
    """The BFGS method; its memory is (inverse Hessian, value before the last step)."""
    size = x.shape[0]
    most = 200 * size if maxiter is None else maxiter
    identity = jnp.eye(size, dtype=x.dtype)
    start = _start(function, x, norm, gtol, None)
    rise = _size(lax.stop_gradient(start.gradient), None) / 2  # it chooses the first trial step alone
    start = start._replace(memory=(identity, start.value + rise))

    def go_on(state: Minimum) -> Array:
        return ~state.converged & ~state.failed & (state.iterations < most)

    def step(state: Minimum) -> Minimum:
        inverse, before = state.memory
        direction = -jnp.matmul(inverse, state.gradient, precision="highest")
        slope = jnp.sum(direction * state.gradient)
        guess = 2.02 * (state.value - before) / jnp.where(slope == 0, 1, slope)
        trial = jnp.where((guess > 0) & (guess < 1), guess, 1)
        found = search(function, state.x, direction, state.value, state.gradient, trial, line_search_maxiter)
        moved, change, turn = _moved(state, found, direction)
        weight = _inverse(jnp.dot(turn, change))
        project = identity - weight * jnp.outer(change, turn)
        inverse = project @ inverse @ project.T + weight * jnp.outer(change, change)
        failed = jnp.not_equal(found.status, FOUND)
        return moved._replace(
            converged=_size(moved.gradient, norm) < gtol,
            failed=failed,
            status=convert_to(jnp.where(failed, _FAILED_SEARCH + found.status, _CONVERGED), _INT32),
            memory=(inverse, state.value),
        )

    end = lax.while_loop(go_on, step, start)
    unfinished = jnp.where(end.iterations >= most, _TOO_MANY_ITERATIONS, end.status)
    return end._replace(status=convert_to(jnp.where(end.converged, _CONVERGED, unfinished), _INT32))


# ------------------------------------------------------------------ with limited memory
def real_dot(first: Any, second: Any) -> Array:
    """The real part of the product of two trees, summed over all elements; the first one is conjugated."""
    parts = tree.map(lambda a, b: jnp.real(jnp.sum(jnp.conj(a) * b)), first, second)
    return tree.reduce(operator.add, parts)


def inverse_hessian_product(vector: Any, changes: Any, turns: Any, weights: Array, scale: Any) -> Any:
    """The approximate inverse Hessian times a vector (Nocedal and Wright 2006, algorithm 7.4).

    vector: a tree of arrays; changes, turns: trees with a further first axis, for changes of the point and of the
    gradient, the latest one last; weights: (rows,), 1 / (change . turn), or 0 for rows that do nothing; scale: the
    initial inverse Hessian, a number.
    """

    def plus(vector: Any, factor: Array, row: Any) -> Any:
        return tree.map(lambda v, r: convert_to(v + convert_to(factor, float_of(v.dtype)) * r, v.dtype), vector, row)

    def descend(vector: Any, row: Any) -> tuple[Any, Array]:
        change, turn, weight = row
        share = weight * real_dot(change, vector)
        return plus(vector, -share, turn), share

    def ascend(vector: Any, row: Any) -> tuple[Any, None]:
        change, turn, weight, share = row
        return plus(vector, share - weight * real_dot(turn, vector), change), None

    rows = (changes, turns, weights)
    vector, shares = lax.scan(descend, vector, rows, reverse=True)
    scaled = tree.map(lambda v: convert_to(scale * v, v.dtype), vector)
    return lax.scan(ascend, scaled, (*rows, shares))[0]


class _History(NamedTuple):
    """The last changes of the point and of the gradient, the latest one last, and their weights."""

    changes: Array
    turns: Array
    weights: Array
    scale: Array

    def direction(self, gradient: Array) -> Array:
        """Minus the approximate inverse Hessian times the gradient; rows of weight zero do nothing."""

        rows = (self.changes, self.turns.conj(), self.weights)
        return inverse_hessian_product(-gradient.conj(), *rows, self.scale)

    def with_row(self, change: Array, turn: Array) -> _History:
        """The history with one more row and without the oldest one."""
        curvature = jnp.real(jnp.sum(turn * change))
        square = jnp.real(jnp.sum(turn.conj() * turn))
        scale = jnp.where(curvature > 0, curvature / jnp.where(square > 0, square, 1), self.scale)

        def shifted(rows: Array, row: Array) -> Array:
            return jnp.concatenate([rows[1:], row[None]])

        weights = shifted(self.weights, _inverse(jnp.maximum(curvature, 0)))
        return _History(shifted(self.changes, change), shifted(self.turns, turn), weights, scale)


def _limited_status(state: Minimum, moved: Minimum, found: LineSearch, ftol: Any, limits: Any) -> Array:
    """Why the iteration ends here, or zero."""
    iterations, values, gradients = limits
    reasons: list[tuple[Any, int]] = [
        (found.status != FOUND, _NO_STEP),
        (state.iterations >= iterations, _TOO_MANY_ITERATIONS),
        (state.evaluations >= values, _TOO_MANY_VALUES),
        (state.evaluations >= gradients, _TOO_MANY_GRADIENTS),
        (state.value - moved.value < ftol, _NO_DECREASE),
    ]
    status: Any = _CONVERGED
    for reason, number in reversed(reasons):
        status = jnp.where(reason, number, status)
    return convert_to(status, _INT32)


def minimize_with_limited_memory(
    function: ValueAndGradient, x: Array, maxiter: float | None = None, norm: Any = np.inf, maxcor: int = 10,
    ftol: Any = 2.220446049250313e-09, gtol: Any = 1e-5, maxfun: float | None = None, maxgrad: float | None = None,
    maxls: int = 20,
) -> Minimum:  # fmt: skip
    """The L-BFGS method; it stores the last `maxcor` steps. x may be complex."""
    size, real = x.shape[0], float_of(x.dtype)
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * size
    limits = [np.inf if limit is None else limit for limit in (maxiter, maxfun, maxgrad)]
    rows = jnp.zeros((maxcor, size), x.dtype)
    start = _start(function, x, norm, gtol, _History(rows, rows, jnp.zeros(maxcor, real), jnp.ones((), real)))

    def go_on(state: Minimum) -> Array:
        return ~state.converged & ~state.failed

    def step(state: Minimum) -> Minimum:
        direction = state.memory.direction(state.gradient)
        found = search(function, state.x, direction, state.value, state.gradient, 1, maxls)
        moved, change, turn = _moved(state, found, direction)
        converged = _size(moved.gradient, norm) < gtol
        status = _limited_status(state, moved, found, ftol, limits)
        return moved._replace(
            converged=converged,
            failed=(status > 0) & ~converged,
            status=jnp.where(converged, _CONVERGED, status),
            memory=state.memory.with_row(change, turn),
        )

    return lax.while_loop(go_on, step, start)
