"""lineax: linear solves by operators and solvers, with derivatives, batches and structure."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx


def run() -> Any:
    key = jax.random.PRNGKey(0)
    matrix = jax.random.normal(key, (4, 4)) + 9 * jnp.eye(4)
    positive = matrix @ matrix.T
    tall = jax.random.normal(jax.random.PRNGKey(1), (6, 4))
    vector = jnp.arange(1.0, 5.0)

    exact = lx.AutoLinearSolver(well_posed=True)

    def solve(m: Any, v: Any, solver: Any = exact, tags: Any = ()) -> Any:
        return lx.linear_solve(lx.MatrixLinearOperator(m, tags), v, solver).value

    found = {
        "lu": solve(matrix, vector),
        "cholesky": solve(positive, vector, lx.Cholesky(), lx.positive_semidefinite_tag),
        "qr": solve(tall, jnp.ones(6), lx.QR()),
        "svd": solve(tall, jnp.ones(6), lx.SVD()),
        "cg": solve(positive, vector, lx.CG(1e-4, 1e-4), lx.positive_semidefinite_tag),
        "gmres": solve(matrix, vector, lx.GMRES(1e-4, 1e-4)),
        "normal": solve(matrix, vector, lx.Normal(lx.Cholesky())),
        "tridiagonal": lx.linear_solve(
            lx.TridiagonalLinearOperator(jnp.full(4, 4.0), jnp.ones(3), jnp.ones(3)), vector
        ).value,
        "slope": jax.grad(lambda m: solve(m, vector).sum())(matrix),
        "jvp": jax.jvp(solve, (matrix, vector), (jnp.ones((4, 4)), jnp.ones(4))),
        "least squares": jax.grad(lambda m: solve(m, jnp.ones(6), lx.QR()).sum())(tall),
        "batch": jax.vmap(solve, in_axes=(None, 0))(matrix, jnp.stack([vector, 2 * vector])),
        "batches": jax.vmap(jax.grad(lambda m, v: solve(m, v).sum()))(jnp.stack([matrix, positive]), jnp.ones((2, 4))),
        "jit": jax.jit(solve)(matrix, vector),
        "second": jax.hessian(lambda v: (solve(matrix, v) ** 2).sum())(vector),
    }
    operator = lx.FunctionLinearOperator(lambda v: matrix @ v + v, jax.ShapeDtypeStruct((4,), jnp.float32))
    found["function"] = lx.linear_solve(operator, vector, lx.GMRES(1e-4, 1e-4)).value
    found["jacobian"] = lx.linear_solve(lx.JacobianLinearOperator(lambda v, _: jnp.tanh(v) + v, vector), vector).value
    state = lx.LU().init(lx.MatrixLinearOperator(matrix), {})
    found["state"] = lx.linear_solve(lx.MatrixLinearOperator(matrix), vector, lx.LU(), state=state).value
    singular = lx.linear_solve(lx.MatrixLinearOperator(jnp.zeros((4, 4))), vector, lx.LU(), throw=False)
    found["failed"] = singular.result != lx.RESULTS.successful
    return found
