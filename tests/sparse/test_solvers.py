"""Solvers of sparse systems: residuals, derivatives, batches, and comparisons with SciPy."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as solvers
from sparse_systems import arrow, convection, drawn, poisson, saddle

import rlx
from rlx import errors, sparse
from rlx.ops.sparse_triangles import csr_incomplete_lu
from rlx.routines.sparse_solves import factor_of
from rlx.testing import check_grads

RNG = np.random.default_rng(3)


def residual(matrix: Any, x: Any, b: np.ndarray) -> float:
    """The norm of b - A x relative to the sizes of its terms."""
    scale = solvers.norm(matrix) * np.linalg.norm(x) + np.linalg.norm(b)
    return float(np.linalg.norm(matrix @ np.asarray(x) - b) / scale)


SYSTEMS = [
    (poisson(30), "positive definite"),
    (poisson(30), "symmetric"),
    (convection(30), "general"),
    (arrow(300), "symmetric"),
    (saddle(15, 60), "symmetric"),
    (saddle(15, 60), "general"),
]


@pytest.mark.selected("all")
@pytest.mark.parametrize("number", range(len(SYSTEMS)))
def test_direct_solutions(number: int) -> None:
    matrix, assume = SYSTEMS[number]
    a = sparse.CSR.fromscipy(matrix)
    for scale in (1.0, 2.0):  # the second is factored in the order of the first
        b = RNG.normal(size=(matrix.shape[0], 2))
        assert residual(scale * matrix, sparse.spsolve(a * scale, b, assume=assume), b) < 1e-14
        found = rlx.jit(lambda a, b: sparse.spsolve(a.T, b, assume=assume))(a * scale, b[:, 0])
        assert residual(scale * matrix.T, found, b[:, 0]) < 1e-14
    for ordering in ("colamd", "minimum degree", "natural"):
        assert residual(matrix, sparse.spsolve(a, b, ordering=ordering), b) < 1e-14
    narrow = sparse.spsolve(a, b, assume=assume, factor_dtype="float32")
    assert residual(matrix, narrow, b) < 1e-12
    single = sparse.spsolve(a.astype("float32"), b.astype("float32"), assume=assume)
    assert single.dtype == "float32" and residual(matrix, single, b) < 1e-6


def test_duplicates_and_unsorted_rows_are_summed_first() -> None:
    a = sparse.CSR(np.array([1.0, 2.0, 3.0, 5.0]), [1, 0, 1, 1], [0, 3, 4], (2, 2))
    np.testing.assert_allclose(a @ sparse.spsolve(a, np.array([6.0, 5.0])), [6.0, 5.0])


def test_complex_systems() -> None:
    matrix = sp.csr_array(drawn(12, 12, 30, "c16") + 6 * sp.eye_array(12))
    a, b = sparse.CSR.fromscipy(matrix), RNG.normal(size=12) + 1j
    assert residual(matrix, sparse.spsolve(a, b), b) < 1e-14
    hermitian = sp.csr_array(matrix + matrix.conj().T + 10 * sp.eye_array(12))
    found = sparse.spsolve(sparse.CSR.fromscipy(hermitian), b, assume="positive definite")
    assert residual(hermitian, found, b) < 1e-14


ITERATIONS: dict[str, tuple[Any, Any, Any]] = {
    "cg": (sparse.cg, solvers.cg, poisson(40)),
    "bicgstab": (sparse.bicgstab, solvers.bicgstab, convection(30)),
    "gmres": (sparse.gmres, solvers.gmres, convection(20)),
}


@pytest.mark.parametrize("name", ITERATIONS)
def test_iterations_are_as_many_as_scipys(name: str) -> None:
    ours, theirs, matrix = ITERATIONS[name]
    b = np.random.default_rng(0).normal(size=matrix.shape[0])
    steps: list[int] = []
    options = {"callback_type": "pr_norm"} if name == "gmres" else {}
    theirs(matrix, b, rtol=1e-8, atol=0, callback=lambda *_: steps.append(1), **options)
    x, info = rlx.jit(lambda a, b: ours(a, b, tol=1e-8))(sparse.CSR.fromscipy(matrix), b)
    assert bool(info.converged) and np.linalg.norm(matrix @ np.asarray(x) - b) <= 1.01e-8 * np.linalg.norm(b)
    assert abs(int(info.iterations) - len(steps)) <= 0.1 * len(steps)


@pytest.mark.parametrize("name", ["cg", "minres"])
@pytest.mark.parametrize("dtypes", [("f8", "f4"), ("f4", "f8"), ("f8", "i4")])
def test_matrices_and_right_sides_of_two_dtypes(name: str, dtypes: tuple[str, str]) -> None:
    """The system is solved in the wider one."""
    matrix = sparse.diags([np.array([4.0, 2.0, 1.0], dtypes[0])], [0])
    x, _ = getattr(sparse, name)(matrix, np.array([4, 4, 4], dtypes[1]), tol=1e-6)
    assert x.dtype == np.float64
    np.testing.assert_allclose(x, [1.0, 2.0, 4.0], rtol=1e-5)


def test_minres_solves_indefinite_systems() -> None:
    matrix = saddle(12, 30)
    b = RNG.normal(size=matrix.shape[0])
    x, info = sparse.minres(sparse.CSR.fromscipy(matrix), b, tol=1e-10, check=True)
    assert bool(info.converged) and np.linalg.norm(matrix @ np.asarray(x) - b) <= 1.01e-10 * np.linalg.norm(b)
    _, unfinished = sparse.minres(sparse.CSR.fromscipy(matrix), b, tol=1e-10, maxiter=3)
    assert not bool(unfinished.converged) and int(unfinished.iterations) == 3


def test_preconditioners_take_fewer_steps() -> None:
    matrix = sp.csr_array(poisson(20) + sp.diags_array(np.linspace(0, 50, 400)))
    a, b = sparse.CSR.fromscipy(matrix), RNG.normal(size=400)
    plain = int(sparse.cg(a, b, tol=1e-10)[1].iterations)
    for make in (sparse.jacobi, sparse.ic0, sparse.ilu0, lambda a: sparse.block_jacobi(a, 20)):
        x, info = rlx.jit(partial(sparse.cg, a, tol=1e-10, M=make(a)))(b)
        assert int(info.iterations) < plain and residual(matrix, x, b) < 1e-11
    for solver in (sparse.bicgstab, sparse.gmres, sparse.minres):
        x, info = solver(a, b, tol=1e-10, M=sparse.jacobi(a))
        assert bool(info.converged)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
def test_incomplete_factors(dtype: str) -> None:
    """The product of the factors is the matrix at its own places, and their solves are exact."""
    rng = np.random.default_rng(4)
    size, eps = 40, float(np.finfo(dtype).eps)
    stored = (rng.random((size, size)) < 0.15) | np.eye(size, dtype=bool)
    noise = rng.normal(size=(size, size)) + (1j * rng.normal(size=(size, size)) if dtype[0] == "c" else 0)
    dense = np.where(stored, noise + 8 * np.eye(size), 0).astype(dtype)
    a = sparse.from_dense(dense)
    factors = np.asarray(a.with_data(csr_incomplete_lu(a.data, a.indices, a.indptr)).todense())
    lower, upper = np.tril(factors, -1) + np.eye(size), np.triu(factors)
    np.testing.assert_allclose((lower @ upper)[stored], dense[stored], atol=1e3 * eps)
    b = noise[:, 0].astype(dtype)
    solve = rlx.jit(lambda a, b: sparse.ilu0(a)(b))
    np.testing.assert_allclose(lower @ (upper @ np.asarray(solve(a, b))), b, atol=1e3 * eps)
    hermitian = (noise @ noise.conj().T + size * np.eye(size)).astype(dtype)
    exact = sparse.ic0(sparse.from_dense(hermitian))(b)
    np.testing.assert_allclose(hermitian @ np.asarray(exact), b, atol=1e5 * eps)


@pytest.mark.thorough
def test_a_preconditioner_is_a_constant_in_derivatives() -> None:
    a, b = SYMMETRIC, np.linspace(-1, 2, 9)

    def solve(data: Any, b: Any) -> Any:
        matrix = a.with_data(data)
        return sparse.bicgstab(matrix, b, tol=1e-13, M=sparse.ilu0(matrix))[0]

    check_grads(rlx.jit(solve), (a.data, b), order=2)
    twice = rlx.vmap(solve)(np.stack([a.data, 2 * a.data]), np.stack([b, b]))
    np.testing.assert_allclose(twice[1], np.asarray(twice[0]) / 2, rtol=1e-9)


def test_ic0_shifts_the_diagonal_and_says_so() -> None:
    dense = np.array([[1.0, 0.9, 0.0, 0.9], [0.9, 1.0, 0.9, 0.0], [0.0, 0.9, 1.0, 0.9], [0.9, 0.0, 0.9, 1.0]])
    with pytest.warns(UserWarning, match="ic0 added"):
        sparse.ic0(sparse.from_dense(dense))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparse.ic0(sparse.CSR.fromscipy(poisson(4)))


def test_algebraic_multigrid() -> None:
    matrix = poisson(30)
    a, b = sparse.CSR.fromscipy(matrix), np.ones(900)
    try:
        cycle = sparse.amg(a)
    except errors.UnsupportedError as error:
        assert "pip install pyamg" in str(error)
        return
    plain, faster = (rlx.jit(partial(sparse.cg, a, tol=1e-8, M=M))(b)[1] for M in (None, cycle))
    assert bool(faster.converged) and 3 * int(faster.iterations) < int(plain.iterations)


def test_newton_steps_in_a_compiled_loop() -> None:
    """Bratu's problem: the Laplacian of u plus 6 exp(u) is zero on the unit square."""
    side = 20
    a, scale = sparse.CSR.fromscipy(poisson(side)), 6.0 / (side + 1) ** 2
    one = sparse.eye(side * side)

    def residual_of(u: Any) -> Any:
        return a @ u - scale * rlx.numpy.exp(u)

    def step(state: Any) -> Any:
        u, _, count = state
        slope = a - one * (scale * rlx.numpy.exp(u))[:, None]
        u = u - sparse.spsolve(slope, residual_of(u))
        return u, rlx.numpy.linalg.norm(residual_of(u)), count + 1

    start = (np.zeros(side * side), np.float64(1.0), np.int32(0))
    u, size, count = rlx.jit(lambda: rlx.lax.while_loop(lambda s: (s[1] > 1e-12) & (s[2] < 20), step, start))()
    assert float(size) <= 1e-12 and int(count) <= 6 and 0.7 < float(u.max()) < 0.9


# ------------------------------------------------------------- derivatives
GENERAL = sparse.CSR.fromscipy(convection(3))
SYMMETRIC = sparse.CSR.fromscipy(poisson(3))


def _symmetric(d: Any) -> Any:
    a = SYMMETRIC.with_data(d)
    return (a + a.T) * 0.5


SOLUTIONS: dict[str, Any] = {
    "spsolve": (GENERAL, lambda d, b: sparse.spsolve(GENERAL.with_data(d), b)),
    "columns": (GENERAL, lambda d, b: sparse.spsolve(GENERAL.with_data(d), b[:, None] * np.ones(2))),
    "definite": (SYMMETRIC, lambda d, b: sparse.spsolve(SYMMETRIC.with_data(d), b, assume="positive definite")),
    "single": (GENERAL, lambda d, b: sparse.spsolve(GENERAL.with_data(d), b, factor_dtype="float32")),
    "bicgstab": (GENERAL, lambda d, b: sparse.bicgstab(GENERAL.with_data(d), b, tol=1e-13)[0]),
    "gmres": (GENERAL, lambda d, b: sparse.gmres(GENERAL.with_data(d), b, tol=1e-13)[0]),
    "cg": (SYMMETRIC, lambda d, b: sparse.cg(_symmetric(d), b, tol=1e-13)[0]),
    "minres": (SYMMETRIC, lambda d, b: sparse.minres(_symmetric(d), b, tol=1e-13)[0]),
    "logdet": (GENERAL, lambda d, b: sparse.logdet(GENERAL.with_data(d)) * b),
}


@pytest.mark.parametrize("name", SOLUTIONS)
@pytest.mark.selected(1)
def test_derivatives_in_values_and_right_sides(name: str) -> None:
    matrix, solve = SOLUTIONS[name]
    check_grads(rlx.jit(solve), (matrix.data, np.linspace(-1, 2, 9)), order=2)


@pytest.mark.parametrize("shape", [(9, 5), (5, 9)])
@pytest.mark.parametrize("solver", [sparse.lsqr, sparse.lsmr])
def test_least_squares(shape: tuple[int, int], solver: Any) -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=shape) * (rng.random(shape) < 0.7)
    a, b = sparse.from_dense(dense), rng.normal(size=shape[0])
    x, info = solver(a, b, tol=1e-14, maxiter=500)
    np.testing.assert_allclose(x, np.linalg.pinv(dense) @ b, atol=1e-9)
    assert bool(info.converged)
    check_grads(lambda d, b: solver(a.with_data(d), b, tol=1e-15, maxiter=500)[0], (a.data, b), order=2)
    many = rlx.vmap(lambda d, b: solver(a.with_data(d), b, tol=1e-14, maxiter=500)[0])
    found = many(np.stack([a.data, 2 * np.asarray(a.data)]), np.stack([b, b]))
    np.testing.assert_allclose(found[1], np.asarray(found[0]) / 2, atol=1e-9)


def test_least_squares_of_deficient_rank() -> None:
    """Derivatives along matrices of one rank."""
    rng = np.random.default_rng(1)
    left, right, b = rng.normal(size=(7, 3)), rng.normal(size=(3, 6)), rng.normal(size=7)
    pattern = sparse.from_dense(np.ones((7, 6)))

    def solve(left: Any, right: Any, b: Any) -> Any:
        return sparse.lsqr(pattern.with_data((left @ right).reshape(-1)), b, tol=1e-15, maxiter=500)[0]

    np.testing.assert_allclose(solve(left, right, b), np.linalg.pinv(left @ right) @ b, atol=1e-9)
    check_grads(solve, (left, right, b), order=1)


@pytest.mark.thorough
def test_eigenvalues() -> None:
    rng = np.random.default_rng(2)
    dense = rng.normal(size=(8, 8)) * (rng.random((8, 8)) < 0.5)
    dense = dense + dense.T + np.diag(3.0 * np.arange(8))
    a = sparse.from_dense(dense)
    w, v = sparse.eigsh(a, 3, which="LA")
    np.testing.assert_allclose(w, np.linalg.eigvalsh(dense)[-3:])
    np.testing.assert_allclose(dense @ np.asarray(v), np.asarray(v) * np.asarray(w), atol=1e-11)
    near, _ = sparse.eigsh(a, 2, sigma=5.0)
    every = np.linalg.eigvalsh(dense)
    np.testing.assert_allclose(near, np.sort(every[np.argsort(abs(every - 5.0))[:2]]))
    check_grads(rlx.jit(lambda d: sparse.eigsh(a.with_data(d), 3, which="LA")[0]), (a.data,), order=2)
    check_grads(rlx.jit(lambda d: sparse.eigsh(a.with_data(d), 3, which="LA")[1]), (a.data,), order=1)


def test_lobpcg_finds_the_largest() -> None:
    matrix = poisson(8)
    start = np.random.default_rng(0).normal(size=(64, 3))
    w, v, steps = sparse.lobpcg_standard(sparse.CSR.fromscipy(matrix), start, m=200)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(matrix.toarray())[::-1][:3], rtol=1e-9)
    assert int(steps) < 200 and np.asarray(v).shape == (64, 3)


def test_a_symmetric_system_has_a_symmetric_gradient() -> None:
    b = RNG.normal(size=9)
    gradient = rlx.grad(lambda a: (sparse.spsolve(a, b, assume="positive definite") ** 2).sum())(SYMMETRIC)
    dense = np.asarray(gradient.todense())
    assert np.array_equal(dense, dense.T)


def test_determinants() -> None:
    for matrix, assume in ((convection(4), "general"), (poisson(4), "positive definite"), (saddle(3, 4), "symmetric")):
        a, dense = sparse.CSR.fromscipy(matrix), matrix.toarray()
        np.testing.assert_allclose(sparse.slogdet(a, assume=assume), np.linalg.slogdet(dense), rtol=1e-12)
        gradient = rlx.grad(lambda a, assume=assume: sparse.logdet(a, assume=assume))(a)
        stored = np.asarray(a.todense()) != 0
        wanted = np.linalg.inv(dense).T
        np.testing.assert_allclose(np.asarray(gradient.todense())[stored], wanted[stored], rtol=1e-9, atol=1e-12)
    assert [float(p) for p in sparse.slogdet(sparse.diags([1.0, 0.0]))] == [0.0, -np.inf]


def test_the_determinant_depends_on_stored_zeros() -> None:
    """The factors do not have their places."""
    stored = np.array([[4.0, 1.0, 0.0], [0.0, 5.0, 2.0], [0.0, 0.0, 3.0]])
    matrix = sparse.CSR(stored.ravel(), np.tile(np.arange(3), 3), np.arange(0, 10, 3), (3, 3))
    gradient = rlx.grad(sparse.logdet)(matrix)
    np.testing.assert_allclose(gradient.todense(), np.linalg.inv(stored).T, atol=1e-12)


def test_batches_of_systems() -> None:
    data = np.stack([GENERAL.data, 2 * np.asarray(GENERAL.data), 3 * np.asarray(GENERAL.data)])
    b = RNG.normal(size=(3, 9))
    solve = rlx.vmap(lambda d, b: sparse.spsolve(GENERAL.with_data(d), b))
    looped = [sparse.spsolve(GENERAL.with_data(d), v) for d, v in zip(data, b, strict=True)]
    np.testing.assert_allclose(rlx.jit(solve)(data, b), np.stack(looped), rtol=1e-12)
    check_grads(solve, (data, b), order=1)
    np.testing.assert_allclose(rlx.vmap(lambda b: sparse.spsolve(GENERAL, b))(b)[0], looped[0], rtol=1e-12)
    twice = rlx.vmap(rlx.vmap(lambda d, b: sparse.spsolve(GENERAL.with_data(d), b)))
    np.testing.assert_allclose(twice(data[None], b[None])[0], np.stack(looped), rtol=1e-12)


def test_factors() -> None:
    factor = sparse.factorized(GENERAL)
    b = RNG.normal(size=(9, 2))
    np.testing.assert_allclose(factor.solve(b), sparse.spsolve(GENERAL, b))
    np.testing.assert_allclose(factor.solve(b, trans=True), sparse.spsolve(GENERAL.T, b))
    np.testing.assert_allclose(factor.update(2 * GENERAL.data).solve(b), np.asarray(factor.solve(b)) / 2)
    np.testing.assert_allclose(factor.logdet(), sparse.logdet(GENERAL))


def test_a_gradient_uses_the_factors_of_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = solvers.splu
    monkeypatch.setattr(solvers, "splu", lambda *args, **options: calls.append(1) or original(*args, **options))
    data = np.asarray(GENERAL.data) * 1.234567
    rlx.jit(rlx.grad(lambda d: (sparse.spsolve(GENERAL.with_data(d), np.ones(9)) ** 2).sum()))(data)
    assert len(calls) == 1
    kept = factor_of(data, np.asarray(GENERAL.indices), np.asarray(GENERAL.indptr), {"assume": "general"})
    assert kept.factor is not None and len(calls) == 1


# ------------------------------------------------------------- mistakes and limits
@pytest.mark.selected("all")
@pytest.mark.parametrize(
    ("solve", "error", "words"),
    [
        (lambda: sparse.spsolve(sparse.diags([1.0, 0.0]), np.ones(2)), np.linalg.LinAlgError, "singular"),
        (lambda: sparse.factorized(sparse.diags([1.0, 0.0])), errors.SingularMatrixError, "singular"),
        (lambda: sparse.spsolve(sparse.eye(2, 3), np.ones(2)), errors.ShapeError, "square"),
        (lambda: sparse.spsolve(sparse.eye(2), np.ones(3)), errors.ShapeError, "2 rows"),
        (lambda: sparse.spsolve(np.eye(2), np.ones(2)), errors.InputTypeError, "from_dense"),
        (lambda: sparse.spsolve(sparse.eye(2), np.ones(2), assume="spd"), errors.OptionError, "positive definite"),
        (lambda: sparse.spsolve(sparse.eye(2), np.ones(2), ordering="amd"), errors.OptionError, "natural"),
        (lambda: sparse.spsolve(GENERAL, np.ones(9), assume="symmetric"), errors.OptionError, "transpose"),
        (lambda: sparse.cg(SYMMETRIC, np.ones(9), maxiter=1, check=True), errors.CheckError, "not converged"),
        (lambda: sparse.cg(SYMMETRIC, np.ones(8)), ValueError, "shape"),
        (lambda: rlx.jit(lambda a: sparse.ic0(a)(np.ones(9)))(SYMMETRIC), errors.ConcretizationTypeError, "ilu0"),
        (lambda: sparse.ilu0(sparse.diags([1.0], [1], (2, 2))), errors.ShapeError, "row 0"),
        (lambda: rlx.jit(sparse.factorized)(SYMMETRIC), errors.ConcretizationTypeError, "spsolve"),
        (lambda: sparse.eigsh(SYMMETRIC, 9), errors.ShapeError, "0 < k < n"),
        (lambda: sparse.eigsh(SYMMETRIC, 2, which="XX"), errors.OptionError, "'LM'"),
        (lambda: sparse.lobpcg_standard(SYMMETRIC, np.ones((9, 2))), errors.ShapeError, "5 k < n"),
        (lambda: sparse.block_jacobi(SYMMETRIC, 2), errors.ShapeError, "divide"),
        (lambda: rlx.export_c(partial(sparse.spsolve, SYMMETRIC), np.ones(9)), errors.UnsupportedError, "csr_solve"),
    ],
)
def test_mistakes(solve: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        solve()


def test_a_singular_system_is_nan_in_a_compiled_function() -> None:
    x = rlx.jit(lambda a: sparse.spsolve(a, np.ones(2)))(sparse.diags([1.0, 0.0]))
    assert np.isnan(np.asarray(x)).all()
    bad = rlx.jit(lambda a: sparse.spsolve(a, np.ones(2)))(sparse.diags([1.0, np.nan]))
    assert np.isnan(np.asarray(bad)).all()


_LARGE = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
import numpy as np
import rlx
from rlx import sparse

n = 10**6
a = sparse.diags([np.full(n - 1, -1.0), np.full(n, 2.5), np.full(n - 1, -1.0)], [-1, 0, 1])
b = np.ones(n)
for solve in (
    lambda a: sparse.spsolve(a, b, ordering="natural"),
    lambda a: sparse.cg(a, b)[0],
    lambda a: a @ b,
    lambda a: (a @ sparse.eye(n)).data,
    lambda a: (a + a.T).data,
):
    gradient = rlx.jit(rlx.grad(lambda a: solve(a).sum()))(a)
    assert np.isfinite(np.asarray(gradient.data)).all()
    rlx.clear_caches()
print("fits")
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_a_million_rows_fit_into_two_gibibytes() -> None:
    found = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "fits", found.stderr[-2000:]
