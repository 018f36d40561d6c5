"""Sparse Jacobians and Hessians: values, derivatives, colourings, jit, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sparse_programs import EXACT, X, laplacian

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.sparse_derivatives import Pattern, evaluation

RANDOM = np.random.default_rng(5)


def arrow(x: Any) -> Any:
    """The first result depends on everything, and everything on the first element."""
    return (x * x[0]).at[0].set((x**2).sum())


def banded(width: int, n: int) -> Pattern:
    """The pattern of a matrix with this number of diagonals."""
    half = width // 2
    matrix = scipy.sparse.diags_array(
        [np.ones(n - abs(k)) for k in range(-half, width - half)], offsets=range(-half, width - half)
    )
    return of_matrix(matrix)


def of_matrix(matrix: Any) -> Pattern:
    coordinates = matrix.tocoo()
    return Pattern.of_pairs(*coordinates.coords, matrix.shape)


def stencil(n: int) -> Pattern:
    """Of the five-point Laplacian on a grid."""
    line = scipy.sparse.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1])
    return of_matrix(
        scipy.sparse.kron(line, scipy.sparse.eye_array(n)) + scipy.sparse.kron(scipy.sparse.eye_array(n), line)
    )


def as_matrix(tree: Any, columns: int) -> np.ndarray:
    return np.concatenate([np.asarray(a).reshape(-1, columns) for a in rlx.tree.leaves(tree)])


# ------------------------------------------------------------- values
@pytest.mark.parametrize("mode", ["forward", "reverse", "both", "auto"])
@pytest.mark.parametrize("name", [n for n in EXACT if n != "complex"])
def test_values_are_those_of_the_dense_jacobian(name: str, mode: str) -> None:
    function, x = EXACT[name]
    expected = as_matrix(rlx.jacfwd(function)(x), x.size)
    tolerance = 1e-5 if x.dtype == np.float32 else 1e-12
    for run in (
        rlx.jacobian(function, sparse=True, mode=mode),
        rlx.jit(rlx.jacobian(function, sparse=True, mode=mode)),
    ):
        found = run(x)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found.todense(), expected, rtol=tolerance, atol=tolerance)


def test_products_in_parts_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound on memory, a few colours at a time."""
    whole = rlx.jacobian(laplacian, sparse=True)(np.ones((6, 7))).data
    monkeypatch.setattr(evaluation, "_ELEMENTS", 200)
    for mode in ("forward", "reverse"):
        run = rlx.jacobian(laplacian, sparse=True, mode=mode)
        np.testing.assert_array_equal(run(np.ones((6, 7))).data, whole)
        np.testing.assert_array_equal(rlx.jit(run)(np.ones((6, 7))).data, whole)


def test_several_arguments_and_auxiliary_data() -> None:
    def function(a: Any, n: Any, b: Any) -> Any:
        return [a["x"] * b, a["y"].sum() * n], {"n": n}

    args = ({"x": X[:3], "y": X[:2]}, np.int32(3), X[2:5])
    for mode in ("forward", "reverse"):
        run = rlx.jacobian(function, (0, 1, 2), has_aux=True, allow_int=True, sparse=True, mode=mode)
        for each in (run, rlx.jit(run)):
            found, auxiliary = each(*args)
            assert found.shape == (4, 8) and int(auxiliary["n"]) == 3
            expected = np.hstack([np.diag(args[2]), np.zeros((3, 2)), np.diag(X[:3])])
            np.testing.assert_allclose(found.todense()[:3], expected)
            assert found.todense()[3].tolist() == [0, 0, 0, 3, 3, 0, 0, 0]


def test_complex_functions() -> None:
    z = X + 1j * X[::-1]
    found = rlx.jacobian(lambda z: z[1:] * z[:-1], sparse=True, holomorphic=True)(z)
    expected = rlx.jacfwd(lambda z: z[1:] * z[:-1], holomorphic=True)(z)
    np.testing.assert_allclose(found.todense(), expected, rtol=1e-12)


def test_derivatives_of_the_elements() -> None:
    """Both modes, mapped, and through products with the matrix."""

    def product(x: Any) -> Any:
        return (rlx.jacobian(lambda u: u[1:] ** 3 * u[:-1], sparse=True)(x) @ jnp.cos(x)).sum()

    def dense(x: Any) -> Any:
        return (rlx.jacfwd(lambda u: u[1:] ** 3 * u[:-1])(x) @ jnp.cos(x)).sum()

    np.testing.assert_allclose(rlx.jit(rlx.grad(product))(X), rlx.grad(dense)(X), rtol=1e-12)
    tangent = rlx.jvp(product, (X,), (X,))[1]
    np.testing.assert_allclose(tangent, rlx.jvp(dense, (X,), (X,))[1], rtol=1e-12)
    data = rlx.vmap(lambda x: rlx.jacobian(arrow, sparse=True)(x).data)(np.stack([X, 2 * X]))
    np.testing.assert_allclose(data[1], rlx.jacobian(arrow, sparse=True)(2 * X).data, rtol=1e-12)


def test_newton_in_a_loop() -> None:
    """The Jacobian inside a compiled loop."""

    def residual(x: Any) -> Any:
        return 3 * x - jnp.pad(x, 1)[:-2] - jnp.pad(x, 1)[2:] + x**3 - 1

    @rlx.jit
    def solve(x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            return x - jnp.linalg.solve(rlx.jacobian(residual, sparse=True)(x).todense(), residual(x))

        return rlx.lax.fori_loop(0, 6, step, x)

    assert abs(residual(np.asarray(solve(np.zeros(9))))).max() < 1e-12


# ------------------------------------------------------------- Hessians
HESSIANS: dict[str, tuple[Any, Any]] = {
    "chain": (lambda x: ((x[1:] - x[:-1]) ** 4).sum(), X),
    "rosenbrock": (lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(), X),
    "arrow": (lambda x: (x * x[0]).sum() ** 1 + (x**3).sum(), X),
    "surface": (lambda u: jnp.sqrt(1 + (u[1:, :-1] - u[:-1, :-1]) ** 2 + (u[:-1, 1:] - u[:-1, :-1]) ** 2).sum(),
                RANDOM.normal(size=(4, 5))),
    "products": (lambda u: (u[1:, 1:] * u[:-1, :-1] * u[1:, :-1] * u[:-1, 1:]).sum(), RANDOM.normal(size=(6, 7))),
    "linear": (lambda x: 3 * x.sum(), X),
    "scalar": (lambda x: x**3, np.float64(0.3)),
}  # fmt: skip


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name: str) -> None:
    function, x = HESSIANS[name]
    expected = np.asarray(rlx.hessian(function)(x)).reshape(x.size, x.size)
    for mode in ("symmetric", "acyclic"):
        found = rlx.jit(rlx.sparse_hessian(function, mode=mode))(x)
        np.testing.assert_allclose(found.todense(), expected, rtol=1e-12, atol=1e-12)
    assert not (expected != 0)[~rlx.hessian_sparsity(function)(x).todense()].any()


def test_hessian_patterns_are_exact_for_sums_of_local_terms() -> None:
    for name in ("chain", "rosenbrock", "arrow", "surface", "linear"):
        function, x = HESSIANS[name]
        expected = np.asarray(rlx.hessian(function)(np.asarray(x) * 1.1)).reshape(x.size, x.size) != 0
        np.testing.assert_array_equal(rlx.hessian_sparsity(function)(x).todense(), expected, name)


# ------------------------------------------------------------- colourings
@pytest.mark.selected("all")
@pytest.mark.parametrize("width", [1, 3, 4, 7])
def test_a_band_takes_its_width(width: int) -> None:
    for mode in ("forward", "reverse"):
        assert rlx.color(banded(width, 200), mode).colors == width


@pytest.mark.selected("all")
@pytest.mark.parametrize("n", [5, 20, 64])
def test_a_five_point_stencil_takes_at_most_seven(n: int) -> None:
    assert rlx.color(stencil(n)).colors <= 7
    assert rlx.color(stencil(n), "symmetric").colors <= 7


def test_substitution_takes_fewer_products() -> None:
    """A nine-point stencil; the sums of products stay short."""
    line = scipy.sparse.diags_array([np.ones(29), np.ones(30), np.ones(29)], offsets=[-1, 0, 1])
    pattern = of_matrix(scipy.sparse.kron(line, line))
    star, acyclic = rlx.color(pattern, "symmetric"), rlx.color(pattern, "acyclic")
    assert acyclic.colors <= 8 < 9 <= star.colors
    assert acyclic.facts.recovery.nnz <= 4 * pattern.nnz


def test_an_arrow_takes_a_row_and_a_few_columns() -> None:
    n = 10_000
    found = rlx.color(rlx.sparsity(arrow)(np.ones(n)))
    assert found.mode == "both" and found.colors <= 4
    assert rlx.color(rlx.hessian_sparsity(lambda x: (x * x[0]).sum())(np.ones(n)), "symmetric").colors == 2
    result = rlx.jit(rlx.jacobian(arrow, sparse=True))(np.linspace(0, 1, n))
    assert result.nnz == 3 * n - 2


def recovered(coloring: Any, matrix: np.ndarray, pattern: Pattern) -> np.ndarray:
    """The matrix from its products with the sums of each colour's columns and rows."""
    columns = np.asarray(coloring.columns)[:, None] == np.arange(coloring.facts.column_count)
    rows = np.asarray(coloring.rows)[:, None] == np.arange(coloring.facts.row_count)
    flat = np.concatenate([(matrix @ columns).T.reshape(-1), (matrix.T @ rows).T.reshape(-1)])
    found, positions, recovery = np.zeros(matrix.shape), np.asarray(coloring.positions), coloring.facts.recovery
    if recovery is None:
        found[pattern.rows, pattern.cols] = flat[positions]
    else:
        np.add.at(found, (pattern.rows[recovery.rows], pattern.cols[recovery.rows]), positions * flat[recovery.indices])
    return found


@pytest.mark.parametrize("seed", range(60))
def test_every_colouring_determines_the_matrix(seed: int) -> None:
    """Random matrices, also symmetric ones, empty rows and columns."""
    generator = np.random.default_rng(seed)
    shape = tuple(generator.integers(1, 25, 2))
    matrix = generator.normal(size=shape) * (generator.random(shape) < generator.random() * 0.6)
    pattern = Pattern.of_pairs(*np.nonzero(matrix), shape)
    for mode in ("forward", "reverse", "both", "auto"):
        np.testing.assert_allclose(recovered(rlx.color(pattern, mode), matrix, pattern), matrix, atol=1e-12)
    square = (
        matrix @ matrix.T if seed % 2 else np.tril(generator.normal(size=(9, 9))) * (generator.random((9, 9)) < 0.3)
    )
    square = np.round(square + square.T, 6)
    pattern = Pattern.of_pairs(*np.nonzero(square), square.shape)
    for mode in ("symmetric", "acyclic"):
        np.testing.assert_allclose(recovered(rlx.color(pattern, mode), square, pattern), square, atol=1e-10)


def test_colourings_are_deterministic_and_are_trees() -> None:
    """The same pattern has the same colours; a colouring may be an argument of a compiled function."""
    pattern = stencil(8)
    first, second = rlx.color(pattern), rlx.color(stencil(8))
    np.testing.assert_array_equal(first.columns, second.columns)
    plan = rlx.color(rlx.sparsity(laplacian)(np.ones((8, 8))))
    run = rlx.jit(lambda plan, u: rlx.jacobian(laplacian, sparse=True, coloring=plan)(u).data)
    np.testing.assert_array_equal(
        run(plan, np.ones((8, 8))), rlx.jacobian(laplacian, sparse=True)(np.ones((8, 8))).data
    )
    hessian = rlx.color(rlx.hessian_sparsity(HESSIANS["chain"][0])(X), "symmetric")
    found = rlx.sparse_hessian(HESSIANS["chain"][0], coloring=hessian)(X)
    np.testing.assert_array_equal(found.data, rlx.sparse_hessian(HESSIANS["chain"][0])(X).data)


# ------------------------------------------------------------- bad input
def test_mistakes() -> None:
    run = rlx.jacobian(jnp.sin, sparse=True)
    with pytest.raises(errors.DtypeError, match="dtype int32"):
        run(np.arange(3, dtype=np.int32))
    with pytest.raises(errors.DtypeError, match="holomorphic=True"):
        run(np.ones(3, complex))
    with pytest.raises(errors.UnsupportedError, match="no mode 'columns'"):
        rlx.jacobian(jnp.sin, sparse=True, mode="columns")
    with pytest.raises(errors.InputTypeError, match="sparse=True"):
        rlx.jacobian(jnp.sin, mode="forward")
    with pytest.raises(errors.InputTypeError, match="not a Pattern"):
        rlx.color(np.eye(3))
    with pytest.raises(errors.UnsupportedError, match="no mode 'star'"):
        rlx.color(stencil(3), "star")
    with pytest.raises(errors.ShapeError, match="not symmetric"):
        rlx.color(Pattern.of_pairs([0], [1], (2, 2)), "symmetric")
    with pytest.raises(errors.UnsupportedError, match="no mode 'direct'"):
        rlx.sparse_hessian(lambda x: x.sum(), mode="direct")
    plan = rlx.color(rlx.sparsity(jnp.sin)(X))
    with pytest.raises(errors.ShapeError, match="arguments of 5 elements"):
        rlx.jacobian(jnp.sin, sparse=True, coloring=plan)(X[:5])
    with pytest.raises(errors.ShapeError, match="a function with 14"):
        rlx.jacobian(lambda x: jnp.concatenate([x, x]), sparse=True, coloring=plan)(X)
    with pytest.raises(errors.InputTypeError, match="not a Coloring"):
        rlx.jacobian(jnp.sin, sparse=True, coloring=rlx.sparsity(jnp.sin)(X))(X)
    with pytest.raises(errors.InputTypeError, match="takes a function"):
        rlx.sparsity(3.0)


def test_empty_jacobians() -> None:
    """No rows, no columns, no places."""
    for function, x in ((lambda x: x[:0], X), (jnp.sin, X[:0]), (lambda x: jnp.zeros(3, x.dtype), X)):
        found = rlx.jacobian(function, sparse=True)(x)
        assert found.nnz == 0 and found.shape == (function(x).size, x.size)


def test_without_sparse_it_is_jacrev() -> None:
    np.testing.assert_array_equal(rlx.jacobian(jnp.sin)(X), rlx.jacrev(jnp.sin)(X))
