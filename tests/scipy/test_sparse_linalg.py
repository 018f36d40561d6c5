"""rlx.scipy.sparse.linalg: solutions, iterations as SciPy's, derivatives, trees, batches."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg
from linalg_cases import batch_is_a_loop, close, matrix, positive

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.testing import check_grads

ours, model = rlx.scipy.sparse.linalg, scipy.sparse.linalg
incremental = partial(ours.gmres, solve_method="incremental")
SOLVERS = {"cg": ours.cg, "bicgstab": ours.bicgstab, "gmres": ours.gmres, "incremental": incremental}


@pytest.fixture(params=SOLVERS)
def solver(request: Any) -> Any:
    """Each method, tight."""
    return partial(SOLVERS[request.param], tol=1e-13)


@pytest.mark.parametrize("dtype", ["f4", "c8", "f8", "c16"])
@pytest.mark.selected(1)
def test_solutions(solver: Any, dtype: str) -> None:
    a, b = positive(5, 5, dtype=dtype), matrix(5, dtype=dtype)
    single = dtype in ("f4", "c8")
    tight = partial(solver, tol=1e-6) if single else solver
    expected = np.linalg.solve(a, b)
    for run in (tight, rlx.jit(tight)):
        for operator in (a, jnp.asarray(a)):
            close(run(operator, b)[0], expected, 1.0)
    close(rlx.jit(lambda m, v: tight(lambda x: m @ x, v, x0=jnp.ones(5, dtype))[0])(a, b), expected)


@pytest.mark.thorough
def test_iterations_are_those_of_scipy() -> None:
    a, b, preconditioner = positive(6, 6), matrix(6), np.diag(1 / (1.0 + np.arange(6)))
    general = matrix(6, 6, seed=3)
    for count in (1, 2, 3):
        for options in ({}, {"M": preconditioner}, {"x0": matrix(6, seed=2)}):
            given = {"maxiter": count, "atol": 0.0, **options}
            close(ours.cg(a, b, **given)[0], model.cg(a, b, **given)[0], what="cg")
            close(ours.bicgstab(general, b, **given)[0], model.bicgstab(general, b, **given)[0], what="bicgstab")
            for method in (ours.gmres, incremental):
                found = method(general, b, restart=2, **given)[0]
                close(found, model.gmres(general, b, restart=2, **given)[0], what="gmres")


@pytest.mark.selected(1)
def test_preconditioners_and_starts(solver: Any) -> None:
    a, b = positive(5, 5), matrix(5)
    expected = np.linalg.solve(a, b)
    close(solver(a, b, M=np.linalg.inv(a), maxiter=2)[0], expected)
    close(solver(a, b, M=lambda x: x / jnp.diagonal(a))[0], expected)
    close(solver(a, b, x0=expected, maxiter=0)[0], expected)
    np.testing.assert_array_equal(solver(a, np.zeros(5))[0], np.zeros(5))


def test_it_ends_where_the_residual_is_small(solver: Any) -> None:
    a, b = positive(6, 6), matrix(6)
    close(solver(a, b, tol=0.0, atol=2 * np.linalg.norm(b))[0], np.zeros(6))
    loose = solver(a, b, tol=0.1, maxiter=100, **({"restart": 1} if "gmres" in str(solver.func) else {}))[0]
    left = np.linalg.norm(b - a @ np.asarray(loose)) / np.linalg.norm(b)
    assert 1e-6 < left <= 0.1


@pytest.mark.selected(1)
def test_derivatives(solver: Any) -> None:
    a, b = positive(3, 3) / 5, matrix(3)

    def solution(x: Any, y: Any) -> Any:
        return solver((x + x.T) / 2, y)[0]

    check_grads(solution, (a, b), order=2)
    check_grads(rlx.jit(solution), (a, b), order=1)


@pytest.mark.thorough
def test_derivative_of_a_complex_solution() -> None:
    a, b = matrix(3, 3, dtype="c16"), matrix(3, dtype="c16")
    for method in (ours.bicgstab, ours.gmres):
        check_grads(lambda x, y, method=method: method(x, y, tol=1e-13)[0], (a, b), order=1)


@pytest.mark.selected(1)
def test_batches(solver: Any) -> None:
    a, b = positive(3, 3), matrix(3)
    batch_is_a_loop(lambda x, y: solver(x, y)[0], (a, b), (0, 0))
    batch_is_a_loop(lambda y: solver(a, y)[0], (b,), (0,))
    np.testing.assert_allclose(rlx.jacrev(lambda y: solver(a, y)[0])(b), np.linalg.inv(a), atol=1e-9)


@pytest.mark.selected(1)
def test_trees(solver: Any) -> None:
    def multiply(x: Any) -> Any:
        return {"a": x["a"] + 0.5 * x["b"], "b": 0.5 * x["a"] + x["b"]}

    found, _ = solver(multiply, {"a": 1.0, "b": np.float32(-4.0)}, tol=1e-7)
    assert found["a"].item() == pytest.approx(4, abs=1e-5) and found["b"].item() == pytest.approx(-6, abs=1e-5)
    assert found["a"].weak_type and not found["b"].weak_type
    columns, _ = solver(2 * np.eye(3), np.arange(9).reshape(3, 3))
    np.testing.assert_allclose(columns, np.arange(9).reshape(3, 3) / 2)


class Doubling:
    """Not an array, but it has the operator @."""

    shape = (3, 3)

    def __matmul__(self, x: Any) -> Any:
        return 2 * x


def test_operators_with_matmul(solver: Any) -> None:
    np.testing.assert_allclose(solver(Doubling(), np.arange(3.0))[0], np.arange(3.0) / 2)


@pytest.mark.thorough
def test_breakdown_and_failure() -> None:
    for method in (ours.gmres, incremental):
        for broken in (np.zeros((2, 2)), np.full((2, 2), np.nan)):
            assert method(broken, np.ones(2), maxiter=3)[1].item() == -1
        assert method(np.eye(4), np.ones(4))[1].item() == 0  # the Krylov space ends after one vector
        np.testing.assert_allclose(method(np.eye(4), np.ones(4))[0], np.ones(4))
    swap = np.array([[0.0, 1.0], [-1.0, 0.0]])  # the first divisor of bicgstab is zero
    assert np.isnan(ours.bicgstab(swap, np.array([1.0, 0.0]))[0]).any()


def test_wrong_arguments(solver: Any) -> None:
    b = np.zeros(2)
    with pytest.raises(errors.TreeMismatchError, match="structure"):
        solver(lambda x: x, {"x": b}, {"y": b})
    with pytest.raises(errors.ShapeError, match="x0 of shapes"):
        solver(lambda x: x, b, b[:, None])
    with pytest.raises(errors.ShapeError, match="square matrix"):
        solver(np.zeros((3, 2)), b)
    with pytest.raises(errors.InputTypeError, match="a function that multiplies"):
        solver([[1]], np.zeros(1))
    with pytest.raises(errors.ShapeError, match="M of shape"):
        solver(np.eye(2), b, M=np.zeros(3))


def test_wrong_method() -> None:
    with pytest.raises(ValueError, match="no solve_method 'fast'"):
        ours.gmres(np.eye(2), np.ones(2), solve_method="fast")
