"""rlx.numpy.linalg against jax.numpy.linalg: values, derivatives, batches, edges, mistakes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from linalg_cases import DTYPES, agree, batch_is_a_loop, close, matrix, positive, second_order_agrees

import rlx
import rlx.numpy as jnp
from rlx import errors

ours, theirs = jnp.linalg, jax.numpy.linalg


def phase_free(module: Any, name: str, **options: Any) -> Any:
    """A function of vectors that does not depend on their arbitrary phases."""

    def function(x: Any) -> Any:
        linalg = module.linalg
        if name == "eigh":
            w, v = linalg.eigh(x)
            return w, module.abs(v) ** 2
        if name == "eig":
            w, v = linalg.eig(x)
            order = module.argsort(module.real(w) + 1e-3 * module.imag(w))
            return w[..., order], module.abs(v[..., order]) ** 2
        u, s, vh = linalg.svd(x, full_matrices=options.get("full_matrices", False))
        middle = (
            module.exp(-0.1 * s)[..., None, :] + 0j if module.iscomplexobj(x) else module.exp(-0.1 * s)[..., None, :]
        )
        return s, (u * middle) @ vh

    return function


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "pinv", "eigvals", "svdvals", "qr"])
@pytest.mark.selected(1)
def test_functions_of_one_matrix(name: str, dtype: str) -> None:
    if name == "eigvals":
        x = (matrix(3, 3, dtype=dtype) + np.diag([0, 5, 12])).astype(dtype)

        def run(module: Any, v: Any) -> Any:
            w = module.linalg.eigvals(v)
            return w[module.argsort(module.real(w))]

        agree(partial(run, jnp), partial(run, jax.numpy), x)
        return
    x = matrix(4, 4, dtype=dtype)
    agree(getattr(ours, name), getattr(theirs, name), x, compiled=dtype == "f8")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.selected(1)
def test_cholesky(dtype: str) -> None:
    x = positive(2, 3, 3, dtype=dtype)
    agree(ours.cholesky, theirs.cholesky, x, compiled=dtype == "c16")
    agree(partial(ours.cholesky, upper=True), partial(theirs.cholesky, upper=True), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["eigh", "svd"])
@pytest.mark.selected(1)
def test_vectors_up_to_their_phase(name: str, dtype: str) -> None:
    x = positive(4, 4, dtype=dtype)
    agree(phase_free(jnp, name), phase_free(jax.numpy, name), x)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 5, 3)])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.selected(0)
def test_rectangles(shape: tuple[int, ...], dtype: str) -> None:
    x = matrix(*shape, dtype=dtype)
    agree(phase_free(jnp, "svd"), phase_free(jax.numpy, "svd"), x)
    agree(ours.pinv, theirs.pinv, x)
    agree(ours.qr, theirs.qr, x, derivatives=shape[-2] >= shape[-1])


def test_eigenvectors() -> None:
    x = matrix(4, 4) + np.diag([0.0, 4, 9, 20])
    agree(lambda v: jnp.abs(ours.eig(v)[1]) ** 2, lambda v: jax.numpy.abs(theirs.eig(v)[1]) ** 2, x, derivatives=False)
    w, v = ours.eig(x)
    close((x @ np.asarray(v)), np.asarray(v) * np.asarray(w))
    gradient = rlx.grad(lambda y: jnp.sum(jnp.abs(ours.eig(y)[1]) ** 4))(x)
    step = 1e-6
    other = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        change = np.zeros_like(x)
        change[place] = step
        high, low = (np.sum(np.abs(np.linalg.eig(x + s * change)[1]) ** 4) for s in (1, -1))
        other[place] = (high - low) / (2 * step)
    np.testing.assert_allclose(np.asarray(gradient), other, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shapes", [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 2)), ((3, 3), (4, 3, 2)), ((2, 3, 3), (3,))]
)
@pytest.mark.selected(1)
def test_solve(dtype: str, shapes: Any) -> None:
    a, b = matrix(*shapes[0], dtype=dtype), matrix(*shapes[1], dtype=dtype, seed=4)
    agree(ours.solve, theirs.solve, a, b, compiled=a.shape == b.shape and dtype == "f8")


@pytest.mark.parametrize("name", ["inv", "det", "cholesky", "pinv", "qr", "slogdet"])
@pytest.mark.selected(1)
def test_second_derivatives(name: str) -> None:
    for dtype in ("f8", "c16"):
        x = positive(4, 4, dtype=dtype)
        if name == "slogdet":
            second_order_agrees(lambda v: ours.slogdet(v)[1], lambda v: theirs.slogdet(v)[1], x)
        else:
            second_order_agrees(getattr(ours, name), getattr(theirs, name), x)


@pytest.mark.thorough
def test_second_derivatives_of_spectra() -> None:
    x = positive(3, 3)
    second_order_agrees(phase_free(jnp, "eigh"), phase_free(jax.numpy, "eigh"), x)
    second_order_agrees(phase_free(jnp, "svd"), phase_free(jax.numpy, "svd"), matrix(4, 3), 1e3)


VECTOR_NORMS = [None, 0, 1, 2, 3, 0.5, np.inf, -np.inf, -1]
MATRIX_NORMS = [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf]


@pytest.mark.selected(1)
@pytest.mark.parametrize("ord", VECTOR_NORMS)
def test_vector_norms(ord: Any) -> None:
    for dtype in ("f8", "c16"):
        x = matrix(3, 4, dtype=dtype)
        for options in ({"axis": 0}, {"axis": -1, "keepdims": True}):
            agree(partial(ours.norm, ord=ord, **options), partial(theirs.norm, ord=ord, **options), x)
    if ord is not None:
        agree(partial(ours.vector_norm, ord=ord), partial(theirs.vector_norm, ord=ord), x)


@pytest.mark.parametrize("ord", MATRIX_NORMS)
@pytest.mark.selected(0)
def test_matrix_norms(ord: Any) -> None:
    for dtype in ("f8", "c16"):
        x = matrix(3, 4, 2, dtype=dtype)
        for options in ({"axis": (0, 2)}, {"axis": (-1, 1), "keepdims": True}):
            agree(partial(ours.norm, ord=ord, **options), partial(theirs.norm, ord=ord, **options), x)
        if ord is not None:
            agree(partial(ours.matrix_norm, ord=ord), partial(theirs.matrix_norm, ord=ord), x)


@pytest.mark.parametrize("p", [None, 1, 2, -2, "fro", np.inf])
@pytest.mark.selected(1)
def test_condition_numbers(p: Any) -> None:
    agree(partial(ours.cond, p=p), partial(theirs.cond, p=p), matrix(2, 3, 3))
    singular = np.ones((3, 3))
    assert np.asarray(ours.cond(singular, p)) > 1e15 or p == -2


@pytest.mark.thorough
def test_ranks_and_powers() -> None:
    stacked = np.stack([np.ones((3, 3)), np.eye(3), np.zeros((3, 3))])
    agree(ours.matrix_rank, theirs.matrix_rank, stacked, derivatives=False)
    agree(
        partial(ours.matrix_rank, hermitian=True),
        partial(theirs.matrix_rank, hermitian=True),
        stacked,
        derivatives=False,
    )
    x = matrix(3, 3)
    for n in (-3, -1, 0, 1, 2, 5):
        agree(partial(ours.matrix_power, n=n), partial(theirs.matrix_power, n=n), x)


@pytest.mark.thorough
def test_products() -> None:
    a, b = matrix(2, 3, 4), matrix(2, 4, 3)
    agree(ours.matmul, theirs.matmul, a, b)
    for name in ("trace", "diagonal", "matrix_transpose"):
        agree(getattr(ours, name), getattr(theirs, name), a)
    agree(ours.vecdot, theirs.vecdot, matrix(2, 3, dtype="c16"), matrix(2, 3, dtype="c16", seed=1))
    agree(ours.outer, theirs.outer, matrix(3), matrix(4))
    agree(ours.cross, theirs.cross, matrix(2, 3), matrix(2, 3, seed=1))
    chain = [matrix(5), matrix(5, 2), matrix(2, 6), matrix(6, 3), matrix(3)]
    for factors in (chain, chain[1:-1], chain[:3], chain[2:]):
        agree(lambda *xs: ours.multi_dot(xs), lambda *xs: theirs.multi_dot(xs), *factors)


@pytest.mark.thorough
def test_tensor_equations() -> None:
    a = matrix(24, 24).reshape(4, 6, 8, 3)
    agree(ours.tensorinv, theirs.tensorinv, a)
    agree(ours.tensorsolve, theirs.tensorsolve, a, matrix(4, 6))
    moved = a.transpose(2, 0, 1, 3)
    agree(partial(ours.tensorsolve, axes=(0, 3)), partial(theirs.tensorsolve, axes=(0, 3)), moved, matrix(4, 6))


@pytest.mark.parametrize("shapes", [((4, 3), (4,)), ((4, 3), (4, 2)), ((3, 4), (3, 2))])
@pytest.mark.selected(0)
def test_least_squares(shapes: Any) -> None:
    a, b = matrix(*shapes[0]), matrix(*shapes[1], seed=2)
    agree(ours.lstsq, theirs.lstsq, a, b)
    x, residual, rank, s = np.linalg.lstsq(a, b, rcond=None)
    result = ours.lstsq(a, b, numpy_resid=True)
    close(result[0], x)
    close(result[1], residual)
    assert int(result[2]) == rank


# ------------------------------------------------------------- batches
@pytest.mark.parametrize("count", [3, 20])
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_small_matrices_equal_a_loop(count: int, dtype: str) -> None:
    a, b = matrix(count, 4, 4, dtype=dtype), matrix(count, 4, 2, dtype=dtype, seed=1)
    close(ours.solve(a, b), np.linalg.solve(a, b))
    close(ours.inv(a), np.linalg.inv(a))
    close(ours.det(a), np.linalg.det(a))
    close(rlx.jit(ours.solve)(a, b), np.linalg.solve(a, b))


@pytest.mark.parametrize("axes", [(0, 0), (2, None), (None, 1), (1, 2)])
def test_vmap_of_solve(axes: Any) -> None:
    batch_is_a_loop(ours.solve, [matrix(3, 3), matrix(3, 2)], axes)
    gradient = rlx.grad(lambda a, b: jnp.sum(jnp.sin(ours.solve(a, b))), argnums=(0, 1))
    batch_is_a_loop(gradient, [matrix(3, 3), matrix(3, 2)], axes)


@pytest.mark.parametrize(
    "name", ["cholesky", "inv", "det", "slogdet", "pinv", "eigvalsh", "svdvals", "qr", "norm", "cond"]
)
def test_vmap_of_one_matrix(name: str) -> None:
    for axis in (0, 2):
        batch_is_a_loop(getattr(ours, name), [positive(4, 4)], (axis,))


# ------------------------------------------------------------- edges
@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "slogdet", "eigvalsh", "svdvals", "qr", "pinv"])
@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_empty_matrices(name: str, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    expected = getattr(np.linalg, name)(x)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for run in (getattr(ours, name), rlx.jit(getattr(ours, name))):
        for got, value in zip(rlx.tree.leaves(run(x)), wanted, strict=True):
            close(got, value)


def test_failures_are_nan_and_spare_the_rest_of_the_batch() -> None:
    for count in (3, 20):
        x = np.stack([np.eye(3)] * count)
        x[1, 2, 2] = -1
        factor = np.asarray(rlx.jit(ours.cholesky)(x))
        assert np.isnan(np.tril(factor[1])[np.tril_indices(3)]).all()
        close(factor[0], np.eye(3))
        x[1] = np.nan
        for name in ("eigvalsh", "svdvals", "eigvals", "inv", "det"):
            result = np.asarray(rlx.jit(getattr(ours, name))(x))
            assert np.isnan(result[1]).any(), name
            assert np.isfinite(result[0]).all(), name


def test_singular_systems_are_not_finite() -> None:
    singular = np.ones((3, 3))
    for count in (1, 30):
        x = np.stack([singular] * count)
        assert not np.isfinite(np.asarray(ours.inv(x))).any(axis=(1, 2)).all()
        assert (np.asarray(ours.det(x)) == 0).all()
        sign, logarithm = ours.slogdet(x)
        assert (np.asarray(sign) == 0).all() and (np.asarray(logarithm) == -np.inf).all()


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.selected(1)
def test_derivative_of_the_determinant_of_a_singular_matrix(size: int) -> None:
    x = matrix(size, size)
    x[-1] = x[0] + (x[1] if size > 2 else 0)
    agree(ours.det, theirs.det, x)
    double = np.ones((size, size))
    expected = np.zeros((size, size)) if size > 2 else np.array([[1.0, -1.0], [-1.0, 1.0]])
    close(rlx.grad(ours.det)(double), expected)


def test_repeated_eigenvalues() -> None:
    x = np.diag([1.0, 1.0, 2.0])
    agree(ours.eigvalsh, theirs.eigvalsh, x)
    assert np.isnan(np.asarray(rlx.grad(lambda v: jnp.sum(ours.eigh(v)[1] ** 3))(x))).any()
    close(rlx.grad(lambda v: jnp.sum(ours.svdvals(v)))(x), np.eye(3))


# ------------------------------------------------------------- mistakes
@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "slogdet", "eigh", "eig", "eigvals"])
def test_rectangles_are_refused(name: str) -> None:
    for run in (getattr(ours, name), rlx.jit(getattr(ours, name))):
        with pytest.raises(errors.ShapeError, match="test_numpy_linalg.py"):
            run(np.zeros((2, 3)))


def test_other_mistakes() -> None:
    with pytest.raises(errors.ShapeError, match="as many rows"):
        ours.solve(np.eye(3), np.ones(4))
    with pytest.raises(errors.DtypeError):
        ours.inv(np.eye(3, dtype=ml_dtypes.float8_e5m2))
    with pytest.raises(ValueError, match="norm"):
        ours.norm(np.eye(3), "nuclear", axis=(0, 1))
    with pytest.raises(errors.UnsupportedError, match="full_matrices"):
        rlx.grad(lambda v: jnp.sum(ours.svd(v)[0]))(matrix(4, 3))
    with pytest.raises(errors.UnsupportedError, match="mode"):
        ours.qr(np.eye(3), "economic")


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3), (2, 3, 2)])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_pinv_of_any_side(shape: tuple[int, ...], dtype: str) -> None:
    """The derivative is formed without the square of the longer side: it exists for very long matrices."""
    x, t = matrix(*shape, dtype=dtype), matrix(*shape, dtype=dtype, seed=5)
    close(rlx.jvp(ours.pinv, (x,), (t,))[1], jax.jvp(theirs.pinv, (x,), (t,))[1])
    if shape == (4, 2) and dtype == "f8":
        tall = matrix(100_000, 2)
        for value in (tall, tall.T):
            assert np.isfinite(np.asarray(rlx.grad(lambda v: jnp.sum(ours.pinv(v)))(value))).all()


def test_second_derivative_of_a_complex_phase() -> None:
    """The sign of a complex determinant turns, and its turning changes."""
    x, t = matrix(4, 4, dtype="c16"), matrix(4, 4, dtype="c16", seed=5)

    def second(module: Any, slogdet: Any) -> Any:
        return module.jvp(lambda v: module.jvp(slogdet, (v,), (t,))[1], (x,), (t,))[1]

    for found, wanted in zip(second(rlx, ours.slogdet), second(jax, theirs.slogdet), strict=True):
        close(found, wanted)
    for found, wanted in zip(rlx.jit(lambda: second(rlx, ours.slogdet))(), second(jax, theirs.slogdet), strict=True):
        close(found, wanted)
