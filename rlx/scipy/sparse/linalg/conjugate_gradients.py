"""Solvers with short recurrences: conjugate gradients, and the stabilised method of biconjugate gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.ir.types import is_complex
from rlx.numpy.promotion import convert_to
from rlx.scipy.sparse.linalg.systems import (
    Iterated,
    LinearSystem,
    dtype_of,
    inner,
    plus,
    solved,
    squared_norm,
    tolerated,
)
from rlx.trees import tree

__all__ = ["bicgstab", "cg", "conjugate_gradients", "iteration_options", "stabilised_gradients"]

_INT32 = np.dtype("i4")


def conjugate_gradients(system: LinearSystem, tol: Any, atol: Any, maxiter: Any) -> Iterated:
    """Hestenes and Stiefel's iteration, preconditioned."""
    enough = tolerated(system.right, tol, atol)
    dtype = dtype_of(system.right)

    def go_on(state: Any) -> Any:
        _, residual, _, _, count = state
        return (squared_norm(residual) > enough) & (count < maxiter)

    def step(state: Any) -> Any:
        x, residual, direction, weight, count = state
        image = system.multiply(direction)
        length = weight / convert_to(jnp.real(inner(direction, image)), dtype)
        residual = plus(residual, -length, image)
        conditioned = system.conditioned(residual)
        next_weight = convert_to(jnp.real(inner(residual, conditioned)), dtype)
        x = plus(x, length, direction)
        return x, residual, plus(conditioned, next_weight / weight, direction), next_weight, count + 1

    residual = plus(system.right, -1, system.multiply(system.start))
    direction = system.conditioned(residual)
    weight = convert_to(jnp.real(inner(residual, direction)), dtype)
    start = (system.start, residual, direction, weight, jnp.zeros((), _INT32))
    x, residual, *_, count = lax.while_loop(go_on, step, start)
    return Iterated(x, residual, count)


def stabilised_gradients(system: LinearSystem, tol: Any, atol: Any, maxiter: Any) -> Iterated:
    """Van der Vorst's iteration; it ends where a divisor becomes zero."""
    enough = tolerated(system.right, tol, atol)
    dtype = dtype_of(system.right)

    def go_on(state: Any) -> Any:
        _, residual, _, _, _, broken, count = state
        return (squared_norm(residual) > enough) & (count < maxiter) & ~broken

    def step(state: Any) -> Any:
        x, residual, direction, image, (rho, alpha, omega), _, count = state
        next_rho = convert_to(inner(shadow, residual), dtype)
        direction = plus(residual, next_rho / rho * alpha / omega, plus(direction, -omega, image))
        conditioned = system.conditioned(direction)
        image = system.multiply(conditioned)
        alpha = next_rho / convert_to(inner(shadow, image), dtype)
        halfway = plus(residual, -alpha, image)
        near = plus(x, alpha, conditioned)
        early = squared_norm(halfway) < enough
        smoothed = system.conditioned(halfway)
        product = system.multiply(smoothed)
        omega = convert_to(inner(product, halfway) / inner(product, product), dtype)
        choose = partial(tree.map, partial(jnp.where, early))
        x = choose(near, plus(near, omega, smoothed))
        residual = choose(halfway, plus(halfway, -omega, product))
        broken = (next_rho == 0) | (alpha == 0) | (omega == 0)
        return x, residual, direction, image, (next_rho, alpha, omega), broken, count + 1

    shadow = plus(system.right, -1, system.multiply(system.start))
    ones = (jnp.ones((), dtype),) * 3
    start = (system.start, shadow, shadow, shadow, ones, jnp.zeros((), bool), jnp.zeros((), _INT32))
    x, residual, *_, count = lax.while_loop(go_on, step, start)
    return Iterated(x, residual, count)


def iteration_options(system: LinearSystem, tol: Any, atol: Any, maxiter: Any) -> dict[str, Any]:
    """The options of an iteration, with the default of `maxiter`."""
    return {"tol": tol, "atol": atol, "maxiter": 10 * system.size if maxiter is None else maxiter}


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """The solution of A x = b for a Hermitian positive definite A, by conjugate gradients.

    Args:
      A: a matrix, or a linear function of trees like b.
      b: the right-hand side: an array, or a tree of arrays.
      x0: where to start (None: zero).
      tol, atol: stop if norm(b - A x) <= max(tol * norm(b), atol).
      maxiter: the maximum number of iterations (None: ten per number in b).
      M: a preconditioner, an approximation of A's inverse in the same form as A.

    Returns: (x, None); x has the derivative of the exact solution, found by the same method. It is NaN where
    the iteration met a NaN.
    Raises: ShapeError, TreeMismatchError, InputTypeError for arguments that do not fit.
    Source: Hestenes and Stiefel 1952.

    >>> import rlx, rlx.numpy as jnp
    >>> x, _ = rlx.scipy.sparse.linalg.cg(lambda x: 4 * x, jnp.array([1.0, 2.0]))
    >>> x
    Array([0.25, 0.5 ], dtype=float32)
    """
    system = LinearSystem.of("cg", A, b, x0, M)
    real = not any(is_complex(v.dtype) for v in tree.leaves(system.right))
    return solved(system, partial(conjugate_gradients, **iteration_options(system, tol, atol, maxiter)), real)[0], None


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """The solution of A x = b for any regular A, by stabilised biconjugate gradients.

    Arguments, result and errors are the same as in `cg`. Source: van der Vorst 1992.

    >>> import rlx, rlx.numpy as jnp
    >>> x, _ = rlx.scipy.sparse.linalg.bicgstab(jnp.array([[2.0, 1.0], [0.0, 1.0]]), jnp.array([4.0, 2.0]))
    >>> x.round(3)
    Array([1., 2.], dtype=float32)
    """
    system = LinearSystem.of("bicgstab", A, b, x0, M)
    return solved(system, partial(stabilised_gradients, **iteration_options(system, tol, atol, maxiter)))[0], None
