"""Iterative solvers that say how they ended: conjugate gradients, its relatives, and minimal residuals."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import CheckError
from rlx.ir.types import is_complex
from rlx.scipy.sparse.linalg.conjugate_gradients import conjugate_gradients, iteration_options, stabilised_gradients
from rlx.scipy.sparse.linalg.minimal_residual import minimal_residual
from rlx.scipy.sparse.linalg.systems import (
    Iterated,
    LinearSystem,
    inner,
    norm,
    plus,
    solved,
    times,
    tolerated,
)
from rlx.sparse.patterns import is_known
from rlx.trees import tree

__all__ = ["SolverInfo", "bicgstab", "cg", "gmres", "minres"]

_INT32 = np.dtype("i4")


class SolverInfo(NamedTuple):
    """How an iteration ended.

    iterations: the number of its steps. residual: the norm of b - A x. converged: whether that is within the tolerance.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> x, info = sparse.cg(sparse.eye(2), np.ones(2))
    >>> int(info.iterations), bool(info.converged)
    (1, True)
    """

    iterations: Array
    residual: Array
    converged: Array


def _finished(
    name: str, system: LinearSystem, found: tuple[Any, Array, Array], tol: Any, atol: Any, check: bool
) -> tuple[Any, SolverInfo]:
    """The solution with its SolverInfo; raises CheckError if asked to, for a known one that has not converged."""
    x, count, residual = found
    enough = jnp.sqrt(tolerated(system.right, tol, atol))
    info = SolverInfo(count, residual, residual <= enough)
    if check and is_known(info.converged) and not bool(info.converged):
        raise CheckError(
            f"{name} has not converged: after {int(count)} iterations the residual is {float(residual):.3g}, and"
            f" {float(enough):.3g} is the tolerance.",
            "Pass a preconditioner M, a larger maxiter or tol; or use spsolve.",
        )
    return x, info


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None,
    check: bool = False,
) -> tuple[Any, SolverInfo]:  # fmt: skip
    """The solution of A x = b for a Hermitian positive definite A, by conjugate gradients.

    Args:
      A: a sparse matrix, a dense one, or a linear function. b: an array [order], or a tree that the function takes.
      x0: where to start (None: zero).
      tol, atol: stop if norm(b - A x) <= max(tol * norm(b), atol).
      maxiter: the maximum number of iterations (None: ten for each number in b).
      M: a preconditioner: an approximation of A's inverse as a matrix or a function (see `jacobi`, `ic0`, `amg`).
      check: raise CheckError if a solve that is not traced does not converge.

    Returns: (x, SolverInfo). x has the derivative of the exact solution, by the same solver.

    Raises: ShapeError, TreeMismatchError, InputTypeError for arguments that do not fit; CheckError.
    Source: Hestenes and Stiefel 1952.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> x, info = sparse.cg(sparse.diags([2.0, 4.0], dtype="float64"), np.ones(2))
    >>> x, int(info.iterations)
    (Array([0.5 , 0.25], dtype=float64), 2)
    """
    system = LinearSystem.of("cg", A, b, x0, M)
    real = not any(is_complex(v.dtype) for v in tree.leaves(system.right))
    options = iteration_options(system, tol, atol, maxiter)
    return _finished("cg", system, solved(system, partial(conjugate_gradients, **options), real), tol, atol, check)


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None,
    check: bool = False,
) -> tuple[Any, SolverInfo]:  # fmt: skip
    """The solution of A x = b for any regular A, by stabilised biconjugate gradients.

    Arguments, result and errors are the same as in `cg`. Source: van der Vorst 1992.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> x, info = sparse.bicgstab(sparse.CSR.from_dense(np.array([[2.0, 1.0], [0.0, 1.0]])), np.array([4.0, 2.0]))
    >>> x.round(3)
    Array([1., 2.], dtype=float64)
    """
    system = LinearSystem.of("bicgstab", A, b, x0, M)
    options = iteration_options(system, tol, atol, maxiter)
    return _finished("bicgstab", system, solved(system, partial(stabilised_gradients, **options)), tol, atol, check)


def gmres(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, restart: int = 20,
    maxiter: int | None = None, M: Any = None, check: bool = False,
) -> tuple[Any, SolverInfo]:  # fmt: skip
    """The solution of A x = b for any regular A, by the generalised minimal residual method.

    Args: the same as in `cg`, and:
      restart: the dimension of the Krylov space, after which it restarts from the residual.
      maxiter: the maximum number of restarts (None: ten for each number in b).

    Result and errors are the same as in `cg`; iterations are products with A. Source: Saad and Schultz 1986.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> x, info = sparse.gmres(sparse.CSR.from_dense(np.array([[2.0, 1.0], [0.0, 1.0]])), np.array([4.0, 2.0]))
    >>> x.round(3)
    Array([1., 2.], dtype=float64)
    """
    system = LinearSystem.of("gmres", A, b, x0, M)
    options = iteration_options(system, tol, atol, maxiter)
    iterate = partial(
        minimal_residual, **options, restart=max(min(restart, system.size), 1), solve_method="incremental"
    )
    return _finished("gmres", system, solved(system, iterate), tol, atol, check)


class _Tridiagonal(NamedTuple):
    """The Lanczos process: its last two residuals, the last one preconditioned, and the last two off-diagonals."""

    before: Any
    last: Any
    conditioned: Any
    old_beta: Array
    beta: Array


class _Rotated(NamedTuple):
    """The QR factorisation of its matrix: the last rotation, two elements above the diagonal, and the right side."""

    cosine: Array
    sine: Array
    above: Array
    far_above: Array
    remainder: Array


def _symmetric_minimal_residual(system: LinearSystem, tol: Any, atol: Any, maxiter: Any) -> Iterated:
    """Paige and Saunders' iteration: rotations keep the least squares problem of the Lanczos process solved."""
    enough = jnp.sqrt(tolerated(system.right, tol, atol))
    residual = plus(system.right, -1, system.multiply(system.start))
    conditioned = system.conditioned(residual)
    beta = _length(residual, conditioned)
    # the remainder is the residual in the norm of M: compare it with the tolerance by as much as that differs
    scale = norm(residual) / jnp.where(beta > 0, beta, 1)
    zero, nothing = jnp.zeros_like(beta), tree.map(jnp.zeros_like, residual)

    def go_on(state: Any) -> Any:
        lanczos, rotated, _, _, count = state
        return (jnp.abs(rotated.remainder) * scale > enough) & (count < maxiter) & (lanczos.beta > 0)

    def step(state: Any) -> Any:
        lanczos, rotated, (older, old), x, count = state
        vector, alpha, lanczos = _lanczos_step(system, lanczos)
        delta = rotated.cosine * rotated.above + rotated.sine * alpha
        corner = rotated.sine * rotated.above - rotated.cosine * alpha
        gamma = jnp.hypot(corner, lanczos.beta)
        safe = jnp.where(gamma > 0, gamma, 1)
        direction = times(1 / safe, plus(plus(vector, -rotated.far_above, older), -delta, old))
        length = corner / safe * rotated.remainder
        rotated = _Rotated(
            corner / safe, lanczos.beta / safe, -rotated.cosine * lanczos.beta, rotated.sine * lanczos.beta,
            lanczos.beta / safe * rotated.remainder,
        )  # fmt: skip
        return lanczos, rotated, (old, direction), plus(x, length, direction), count + 1

    start = (
        _Tridiagonal(nothing, residual, conditioned, jnp.ones_like(beta), beta),
        _Rotated(-jnp.ones_like(beta), zero, zero, zero, beta),
        (nothing, nothing),
        system.start,
        jnp.zeros((), _INT32),
    )
    *_, x, count = lax.while_loop(go_on, step, start)
    return Iterated(x, plus(system.right, -1, system.multiply(x)), count)


def _length(residual: Any, conditioned: Any) -> Array:
    """The norm of a residual by its product with the preconditioned one."""
    return jnp.sqrt(jnp.maximum(jnp.real(inner(residual, conditioned)), 0))


def _lanczos_step(system: LinearSystem, state: _Tridiagonal) -> tuple[Any, Array, _Tridiagonal]:
    """The basis vector, the diagonal element, and the next state."""
    vector = times(1 / state.beta, state.conditioned)
    image = plus(system.multiply(vector), -state.beta / state.old_beta, state.before)
    alpha = jnp.real(inner(vector, image))
    image = plus(image, -alpha / state.beta, state.last)
    conditioned = system.conditioned(image)
    return vector, alpha, _Tridiagonal(state.last, image, conditioned, state.beta, _length(image, conditioned))


def minres(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None,
    check: bool = False,
) -> tuple[Any, SolverInfo]:  # fmt: skip
    """The solution of A x = b for a Hermitian A, which may be indefinite, by minimal residuals.

    Arguments, result and errors are the same as in `cg`; M must be positive definite. Source: Paige and Saunders 1975.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> x, info = sparse.minres(sparse.diags([2.0, -4.0], dtype="float64"), np.ones(2))
    >>> x.round(3)
    Array([ 0.5 , -0.25], dtype=float64)
    """
    system = LinearSystem.of("minres", A, b, x0, M)
    real = not any(is_complex(v.dtype) for v in tree.leaves(system.right))
    options = iteration_options(system, tol, atol, maxiter)
    found = solved(system, partial(_symmetric_minimal_residual, **options), real)
    return _finished("minres", system, found, tol, atol, check)
