"""Backward differentiation formulas of orders 1 to 5 with steps of variable length, for stiff systems.

The history is a table of backward differences for steps of one length; another length is another table. Each step
solves a system by Newton's method, with a Jacobian that is kept until the iteration fails. The Jacobian is sparse if
the program of the function is; factors of a matrix that is met again are found by its contents.

Sources: L. Shampine, M. Reichelt, The MATLAB ODE suite (1997): the formulas (NDF) and the change of the length;
G. Byrne, A. Hindmarsh, A polyalgorithm for the numerical solution of ordinary differential equations (1975): order and
length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.experimental.dormand_prince import first_length
from rlx.numpy.promotion import convert_to
from rlx.scipy.jacobian_forms import sparse_pattern
from rlx.scipy.linalg import lu_factor, lu_solve
from rlx.sparse import CSR, spsolve
from rlx.sparse_derivatives import Coloring, Pattern, color, jacobian
from rlx.transforms.functional import jacfwd
from rlx.trees import tree

__all__ = ["BackwardDifferentiation"]

_MOST = 5  # order
_ROWS = _MOST + 3  # of the table: differences 0 to order, and two more for the next order
_KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
_GAMMA = np.concatenate([[0], np.cumsum(1 / np.arange(1, _MOST + 1))])
_ALPHA = (1 - _KAPPA) * _GAMMA
_ERROR = _KAPPA * _GAMMA + 1 / np.arange(1, _MOST + 2)
_ITERATIONS = 4  # of Newton's method
_LEAST_FACTOR, _GREATEST_FACTOR = 0.2, 10.0
_NUMBERS = np.arange(_ROWS)
_INT32 = np.dtype("i4")

Rate = Callable[[Array, Array], Array]


class Progress(NamedTuple):
    """The state of an integration: the table of differences, the time, and the Jacobian that Newton's method uses.

    before: the time before the last step; equal: the number of accepted steps of this length and order; fresh: whether
    the Jacobian belongs to the next attempt; slopes: the Jacobian, of a sparse one its elements.
    """

    differences: Array
    order: Array
    time: Array
    before: Array
    length: Array
    equal: Array
    slopes: Array
    fresh: Array


class BackwardDifferentiation:
    """The method for a rate of change: how to begin, to attempt a step, and to interpolate."""

    def __init__(self, rate: Rate, start: Array, time: Array, tolerance: Any) -> None:
        self.rate, self.dtype, self.atol, self.hmax = rate, start.dtype, tolerance.atol, tolerance.hmax
        epsilon = np.finfo(self.dtype).eps
        self.rtol = jnp.maximum(tolerance.rtol, 100 * epsilon)
        self.newton_tolerance = jnp.maximum(10 * epsilon / self.rtol, jnp.minimum(0.03, jnp.sqrt(self.rtol)))
        self.coloring = _coloring(rate, start, time)

    def begin(self, start: Array, time: Array) -> Progress:
        """The state at the start: a step of the first order comes first."""
        slope = self.rate(start, time)
        fixed = lax.stop_gradient((start, slope))
        length = first_length(self.rate, *fixed, time, self.rtol, self.atol, order=2)
        length = lax.stop_gradient(convert_to(jnp.clip(length, 0, self.hmax), time.dtype))
        table = jnp.zeros((_ROWS, start.size), self.dtype)
        table = table.at[0].set(start).at[1].set(convert_to(length, self.dtype) * slope)
        zero = jnp.zeros((), _INT32)
        return Progress(table, zero + 1, time, time, length, zero, self.slopes(start, time), jnp.ones((), bool))

    def attempt(self, now: Progress) -> Progress:
        """The state after a step, or after a failed one with a shorter length or with a new Jacobian."""
        order, end_time = now.order, now.time + now.length
        known = convert_to(_NUMBERS <= order, self.dtype)
        predicted = known @ now.differences
        alpha = _of_order(_ALPHA, order, self.dtype)
        gamma = np.concatenate([_GAMMA, np.zeros(_ROWS - len(_GAMMA))]).astype(self.dtype)
        past = (known * gamma / alpha) @ now.differences
        scale = self.atol + self.rtol * jnp.abs(lax.stop_gradient(predicted))
        change, converged, iterations = self._solved(now, predicted, past, end_time, scale)
        fixed, end = lax.stop_gradient((change, predicted + change))
        allowed = self.atol + self.rtol * jnp.abs(end)
        safety = 0.9 * (2 * _ITERATIONS + 1) / (2 * _ITERATIONS + convert_to(iterations, self.dtype))
        error = _norm(_of_order(_ERROR, order, self.dtype) * fixed / allowed)
        accepted = converged & (error <= 1)
        taken = self._taken(now, change, end_time, allowed, error, safety)
        smaller = jnp.maximum(_LEAST_FACTOR, safety * _power(error, order + 1))
        renewed = ~converged & ~now.fresh
        factor = jnp.where(converged, smaller, jnp.where(renewed, 1.0, 0.5))
        slopes = lax.cond(
            renewed, lambda: self.slopes(lax.stop_gradient(predicted), end_time), lambda: lax.stop_gradient(now.slopes)
        )
        failed = self._resized(now, factor)._replace(fresh=now.fresh | renewed, equal=jnp.zeros((), _INT32))
        chosen = tree.map(lambda new, old: jnp.where(accepted, new, old), taken, failed)
        return chosen._replace(slopes=slopes)

    def at(self, now: Progress, time: Array) -> Array:
        """The state at a time of the last step."""
        numbers = np.arange(_MOST)
        ages = convert_to(time - now.time, self.dtype) / convert_to(now.length, self.dtype)
        terms = jnp.cumprod((ages + numbers.astype(self.dtype)) / (1.0 + numbers).astype(self.dtype))
        terms = jnp.where(numbers < now.order, terms, 0)
        return now.differences[0] + terms @ now.differences[1 : _MOST + 1]

    # -------------------------------------------------------------- the table
    def _resized(self, now: Progress, factor: Array) -> Progress:
        """The table for steps of another length."""
        factor = lax.stop_gradient(convert_to(factor, now.length.dtype))
        length = jnp.minimum(now.length * factor, self.hmax)
        factor = convert_to(length / jnp.where(now.length > 0, now.length, 1), self.dtype)
        inside = (_NUMBERS[:, None] <= now.order) & (_NUMBERS <= now.order)
        move = jnp.where(
            inside, (_powers(factor) @ _powers(jnp.ones((), self.dtype))).T, np.eye(_ROWS, dtype=self.dtype)
        )
        return now._replace(differences=move @ now.differences, length=convert_to(length, now.length.dtype))

    def _taken(
        self, now: Progress, change: Array, time: Array, allowed: Array, error: Array, safety: Array
    ) -> Progress:
        """The state after an accepted step; its order and length may change after enough steps of one length."""
        order = now.order
        one, two = (_NUMBERS == order + 1)[:, None], (_NUMBERS == order + 2)[:, None]
        old = jnp.sum(jnp.where(one, now.differences, 0), axis=0)
        table = jnp.where(one, change, jnp.where(two, change - old, now.differences))
        summed = (_NUMBERS[:, None] <= order) & (_NUMBERS[:, None] <= _NUMBERS) & (_NUMBERS <= order + 1)
        summed = summed | ((_NUMBERS[:, None] > order) & np.eye(_ROWS, dtype=bool))
        table = convert_to(summed, self.dtype) @ table
        moved = now._replace(
            differences=table, time=time, before=now.time, equal=now.equal + 1, fresh=jnp.zeros((), bool)
        )
        factor, step = self._next(lax.stop_gradient(table), order, allowed, error)
        ready = moved.equal > order
        resized = self._resized(
            moved._replace(order=order + step), jnp.minimum(_GREATEST_FACTOR, safety * factor)
        )._replace(equal=jnp.zeros((), _INT32))
        return tree.map(lambda new, old: jnp.where(ready, new, old), resized, moved)

    def _next(self, table: Array, order: Array, allowed: Array, error: Array) -> tuple[Array, Array]:
        """The factor of the length, and the change of the order, that promise the longest step."""

        def of(row: Array, number: Array) -> Array:
            constant = _of_order(_ERROR, jnp.clip(number, 0, _MOST), self.dtype)
            return _norm(constant * (convert_to(_NUMBERS == row, self.dtype) @ table) / allowed)

        lower = jnp.where(order > 1, _power(of(order, order - 1), order), 0)
        same = _power(error, order + 1)
        higher = jnp.where(order < _MOST, _power(of(order + 2, order + 1), order + 2), 0)
        factors = jnp.stack([lower, same, higher])
        return jnp.max(factors), convert_to(jnp.argmax(factors) - 1, _INT32)

    # -------------------------------------------------------------- the system of a step
    def slopes(self, state: Array, time: Array) -> Array:
        """The Jacobian of the rate: a matrix, or the elements of a sparse one. It has no derivative."""
        if self.coloring is None:
            return lax.stop_gradient(jacfwd(self.rate)(state, time))
        return lax.stop_gradient(jacobian(self.rate, sparse=True, coloring=self.coloring)(state, time).data)

    def _solved(self, now: Progress, predicted: Array, past: Array, time: Array, scale: Array) -> Any:
        """The change from the prediction, whether Newton's method converged, and its iterations."""
        step = convert_to(now.length, self.dtype) / _of_order(_ALPHA, now.order, self.dtype)

        def equation(change: Array) -> Array:
            return change + past - step * self.rate(predicted + change, time)

        def solve(function: Callable[[Array], Array], guess: Array) -> Any:
            return self._newton(function, guess, self._inverse(step * now.slopes), scale)

        change, (converged, iterations) = lax.custom_root(
            equation, jnp.zeros_like(predicted), solve, self._tangent, has_aux=True
        )
        return change, converged, iterations

    def _newton(
        self, function: Callable[[Array], Array], guess: Array, inverse: Callable[[Array], Array], scale: Array
    ) -> Any:
        """The root with a fixed matrix, (whether it converged, iterations)."""

        def go_on(carry: Any) -> Array:
            number, _, _, converged, failed = carry
            return (number < _ITERATIONS) & ~converged & ~failed

        def iterate(carry: Any) -> Any:
            number, found, last, _, _ = carry
            change = inverse(-function(found))
            size = _norm(change / scale)
            ratio = size / jnp.where(last > 0, last, 1)
            first = number == 0
            left = convert_to(_ITERATIONS - number, self.dtype)
            hopeless = (ratio >= 1) | (ratio**left * size > self.newton_tolerance * (1 - ratio))
            failed = ~jnp.isfinite(size) | (~first & hopeless)
            converged = ~failed & ((size == 0) | (~first & (ratio * size < self.newton_tolerance * (1 - ratio))))
            return number + 1, jnp.where(failed, found, found + change), size, converged, failed

        false = jnp.zeros((), bool)
        start = (jnp.zeros((), _INT32), guess, jnp.zeros((), self.dtype), false, false)
        iterations, found, _, converged, _ = lax.while_loop(go_on, iterate, start)
        return found, (converged, iterations)

    def _inverse(self, scaled: Array) -> Callable[[Array], Array]:
        """The solution of (I - J) x = b for the scaled Jacobian J."""
        if self.coloring is None:
            factors = lu_factor(jnp.eye(scaled.shape[0], dtype=self.dtype) - scaled)
            return lambda b: lu_solve(factors, b)
        places = self.coloring.facts.places
        matrix = CSR.of_pattern((places.rows == places.indices).astype(self.dtype) - scaled, places)
        return lambda b: spsolve(matrix, b, refine=0)

    def _tangent(self, linear: Callable[[Array], Array], right: Array) -> Array:
        """The solution of a linear system of a step's pattern; it may be transposed."""
        if self.coloring is None:
            return jnp.linalg.solve(jacfwd(linear)(jnp.zeros_like(right)), right)
        matrix = jacobian(linear, sparse=True, coloring=self.coloring)(jnp.zeros_like(right))
        return spsolve(matrix, right)


def _coloring(rate: Rate, start: Array, time: Array) -> Coloring | None:
    """The colours of the Jacobian's pattern with the diagonal; None if it is not sparse."""
    found = sparse_pattern(rate, start, time)
    if found is None:
        return None
    diagonal = np.arange(start.size)
    rows, cols = np.concatenate([found.rows, diagonal]), np.concatenate([found.cols, diagonal])
    return color(Pattern.of_pairs(rows, cols, found.shape), "forward")


def _of_order(table: np.ndarray, order: Array, dtype: Any) -> Array:
    return jnp.asarray(table.astype(dtype))[order]


def _powers(factor: Array) -> Array:
    """The matrix whose product with its value at one takes differences to those of another length."""
    dtype = factor.dtype
    rows, columns = np.arange(1, _ROWS, dtype=dtype)[:, None], np.arange(1, _ROWS, dtype=dtype)
    inner = (rows - 1 - factor * columns) / rows
    first = np.eye(1, _ROWS, dtype=dtype)
    below = jnp.concatenate([np.zeros((_ROWS - 1, 1), dtype), inner], axis=1)
    return jnp.cumprod(jnp.concatenate([jnp.ones_like(first), below]), axis=0)


def _norm(x: Array) -> Array:
    """The root of the mean square."""
    return jnp.sqrt(jnp.sum(jnp.square(x)) / max(x.size, 1))


def _power(error: Array, order: Array) -> Array:
    """The factor of the length that makes an error of this order one; large for no error, zero for NaN."""
    least = np.finfo(error.dtype).tiny
    return jnp.where(error >= 0, jnp.maximum(error, least) ** (-1 / convert_to(order, error.dtype)), 0)
