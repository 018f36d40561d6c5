"""GMRES: the smallest residual over a growing Krylov space (Saad and Schultz 1986)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.numpy.promotion import convert_to, float_of
from rlx.scipy.linalg import solve_triangular
from rlx.scipy.sparse.linalg.systems import Iterated, LinearSystem, dtype_of, norm, plus, solved, times, tolerated
from rlx.trees import tree

__all__ = ["gmres", "minimal_residual"]

_INT32 = np.dtype("i4")
_METHODS = ("batched", "incremental")


# ------------------------------------------------------------------ the basis: trees with a leading axis
def _combined(basis: Any, weights: Array) -> Any:
    """The sum of basis vectors, each with its weight."""
    return tree.map(lambda v: convert_to(jnp.tensordot(weights, v, 1, precision="highest"), v.dtype), basis)


def _projections(basis: Any, x: Any) -> Array:
    """The inner product of each basis vector with x."""
    leaves = zip(tree.leaves(basis), tree.leaves(x), strict=True)
    rows = [(jnp.conj(jnp.reshape(v, (v.shape[0], -1))), jnp.ravel(y)) for v, y in leaves]
    parts = [jnp.matmul(v, y, precision="highest") for v, y in rows]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _normalised(x: Any, threshold: Any) -> tuple[Any, Array]:
    """x of norm one, and its norm; zero where that is not above the threshold."""
    size = norm(x)
    real = size > threshold
    return times(jnp.where(real, 1 / jnp.where(real, size, 1), 0), x), jnp.where(real, size, 0)


def _next_vector(system: LinearSystem, basis: Any, number: Array, dtype: np.dtype) -> tuple[Any, Array, Array]:
    """A times a basis vector: the basis with the new direction in it, its coefficients, the new one's length.

    Classical Gram-Schmidt, done twice: once more would not help (Giraud, Langou and Rozloznik 2005).
    """
    image = system.conditioned(system.multiply(tree.map(lambda v: v[number], basis)))
    before = norm(image)
    first = _projections(basis, image)
    image = plus(image, -1, _combined(basis, first))
    second = _projections(basis, image)
    image = plus(image, -1, _combined(basis, second))
    vector, size = _normalised(image, np.finfo(before.dtype).eps * before)
    column = convert_to(first + second, dtype).at[number + 1].set(convert_to(size, dtype))
    return tree.map(lambda v, x: v.at[number + 1].set(x), basis, vector), column, size


def _first_basis(residual: Any, size: Array, restart: int) -> Any:
    return tree.map(
        lambda v: jnp.concatenate([v[None], jnp.zeros((restart, *v.shape), v.dtype)]),
        times(jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 0), residual),
    )


# ------------------------------------------------------------------ one cycle: from a residual to a correction
def _batched_cycle(system: LinearSystem, residual: Any, restart: int, enough: Array, dtype: np.dtype) -> Any:
    """The whole basis first, then the least squares problem."""
    del enough
    size = norm(residual)

    def go_on(state: Any) -> Any:
        number, _, _, broken = state
        return (number < restart) & ~broken

    def step(state: Any) -> Any:
        number, basis, columns, _ = state
        basis, column, length = _next_vector(system, basis, number, dtype)
        return number + 1, basis, columns.at[:, number].set(column), length == 0

    start = (jnp.zeros((), _INT32), _first_basis(residual, size, restart), jnp.eye(restart + 1, restart, dtype=dtype))
    _, basis, columns, _ = lax.while_loop(go_on, step, (*start, jnp.zeros((), bool)))
    orthogonal, triangle = jnp.linalg.qr(columns)
    weights = solve_triangular(triangle, convert_to(size, dtype) * jnp.conj(orthogonal[0]))
    return _combined(tree.map(lambda v: v[:-1], basis), weights), restart


def _rotated(rows: Array, number: Array, cosine: Array, sine: Array) -> Array:
    """A Givens rotation of two neighbouring rows."""
    upper, lower = rows[number], rows[number + 1]
    rows = rows.at[number].set(jnp.conj(cosine) * upper + jnp.conj(sine) * lower)
    return rows.at[number + 1].set(cosine * lower - sine * upper)


def _incremental_cycle(system: LinearSystem, residual: Any, restart: int, enough: Array, dtype: np.dtype) -> Any:
    """A rotation after each new vector keeps the least squares problem solved: stop where the residual is small."""
    size = norm(residual)
    real = float_of(dtype)

    def go_on(state: Any) -> Any:
        number, _, _, _, left = state
        return (number < restart) & (left > enough)

    def step(state: Any) -> Any:
        number, basis, triangle, rotations, _ = state
        basis, column, _ = _next_vector(system, basis, number, dtype)
        column = jnp.matmul(rotations, column, precision="highest")
        upper, lower = column[number], column[number + 1]
        length = jnp.hypot(jnp.abs(upper), jnp.abs(lower))
        safe = convert_to(jnp.where(length > 0, length, 1), dtype)
        cosine = jnp.where(length > 0, upper / safe, 1)
        sine = lower / safe
        rotations = _rotated(rotations, number, cosine, sine)
        triangle = triangle.at[:, number].set(_rotated(column, number, cosine, sine)[:restart])
        left = size * convert_to(jnp.abs(rotations[number + 1, 0]), real)
        return number + 1, basis, triangle, rotations, left

    triangle, rotations = jnp.eye(restart, dtype=dtype), jnp.eye(restart + 1, dtype=dtype)
    start = (jnp.zeros((), _INT32), _first_basis(residual, size, restart), triangle, rotations, size)
    number, basis, triangle, rotations, _ = lax.while_loop(go_on, step, start)
    target = jnp.where(np.arange(restart) < number, convert_to(size, dtype) * rotations[:restart, 0], 0)
    return _combined(tree.map(lambda v: v[:-1], basis), solve_triangular(triangle, target)), number


def minimal_residual(
    system: LinearSystem, tol: Any, atol: Any, maxiter: Any, restart: int, solve_method: str
) -> Iterated:
    """Cycle after cycle, each from the residual of the last one."""
    cycle = _batched_cycle if solve_method == "batched" else _incremental_cycle
    dtype = dtype_of(system.right)
    enough = jnp.sqrt(tolerated(system.right, tol, atol))

    def residual_at(x: Any) -> Any:
        return plus(system.right, -1, system.multiply(x))

    def go_on(state: Any) -> Any:
        _, residual, count, _ = state
        return (norm(residual) > enough) & (count < maxiter)

    def step(state: Any) -> Any:
        x, residual, count, steps = state
        conditioned = system.conditioned(residual)
        # in the norm of the preconditioned system, by as much as the residual itself must shrink
        target = norm(conditioned) * (enough / norm(residual))
        change, taken = cycle(system, conditioned, restart, target, dtype)
        x = plus(x, 1, change)
        return x, residual_at(x), count + 1, steps + taken

    start = (system.start, residual_at(system.start), jnp.zeros((), _INT32), jnp.zeros((), _INT32))
    x, residual, _, steps = lax.while_loop(go_on, step, start)
    return Iterated(x, residual, steps)


def gmres(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, restart: int = 20,
    maxiter: int | None = None, M: Any = None, solve_method: str = "batched",
) -> tuple[Any, Array]:  # fmt: skip
    """The solution of A x = b for any regular A, by the generalised minimal residual method.

    Args:
      A, b, x0, tol, atol, M: the same as in `cg`.
      restart: dimension of the Krylov space, after which it restarts from the residual.
      maxiter: the maximum number of restarts (None: ten per number in b).
      solve_method: "batched": the whole Krylov space, then one least squares problem; "incremental": looks
        at the residual after each product with A.

    Returns: (x, info): info is 0, or -1 where x is not finite; x has the derivative of the exact solution.
    Raises: ShapeError, TreeMismatchError, InputTypeError for arguments that do not fit.

    >>> import rlx, rlx.numpy as jnp
    >>> x, info = rlx.scipy.sparse.linalg.gmres(jnp.array([[2.0, 1.0], [0.0, 1.0]]), jnp.array([4.0, 2.0]))
    >>> x.round(3), info.item()
    (Array([1., 2.], dtype=float32), 0)
    """
    if solve_method not in _METHODS:
        raise ValueError(f"gmres has no solve_method {solve_method!r}: use 'batched' or 'incremental'.")
    system = LinearSystem.of("gmres", A, b, x0, M)
    options = {
        "tol": tol,
        "atol": atol,
        "maxiter": 10 * system.size if maxiter is None else maxiter,
        "restart": max(min(restart, system.size), 1),
        "solve_method": solve_method,
    }
    x, _, _ = solved(system, partial(minimal_residual, **options))
    return x, jnp.where(jnp.isfinite(norm(x)), 0, -1)
