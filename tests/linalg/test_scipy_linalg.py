"""rlx.scipy.linalg against jax.scipy.linalg and SciPy: values, derivatives, batches."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.scipy.linalg
import numpy as np
import pytest
import scipy.linalg
from linalg_cases import DTYPES, agree, batch_is_a_loop, close, matrix, positive, second_order_agrees

import rlx
import rlx.numpy as jnp
from rlx import errors

ours, theirs = rlx.scipy.linalg, jax.scipy.linalg


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.selected(1)
def test_cholesky_solves(dtype: str, lower: bool) -> None:
    a, b = positive(3, 3, dtype=dtype), matrix(3, 2, dtype=dtype)

    def run(module: Any, x: Any, y: Any) -> Any:
        # of Hermitian matrices: JAX's derivative in other directions depends on the triangle
        hermitian = (x + x.conj().T) * 0.5
        return module.cho_solve(module.cho_factor(hermitian, lower), y)

    agree(partial(run, ours), partial(run, theirs), a, b)
    other = np.triu if lower else np.tril
    spoiled = a + other(np.full((3, 3), 7, dtype), 1 if lower else -1)
    close(ours.cholesky(spoiled, lower), scipy.linalg.cholesky(a, lower))


def test_cholesky_derivative_is_shared_by_both_triangles() -> None:
    x = positive(3, 3)
    gradient = rlx.grad(lambda v: 2 * jnp.sum(jnp.log(jnp.diagonal(ours.cholesky(v)))))(x)
    close(gradient, np.linalg.inv(x))


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.selected(1)
def test_lu_and_triangular_solves(trans: int, dtype: str) -> None:
    a, b = matrix(4, 4, dtype=dtype), matrix(4, dtype=dtype)

    def from_factors(module: Any, x: Any, y: Any) -> Any:
        return module.lu_solve(module.lu_factor(x), y, trans)

    agree(partial(from_factors, ours), partial(from_factors, theirs), a, b)
    for options in ({"lower": True}, {"lower": False, "unit_diagonal": True}):
        agree(
            partial(ours.solve_triangular, trans=trans, **options),
            partial(theirs.solve_triangular, trans=trans, **options),
            a,
            b,
        )


@pytest.mark.thorough
def test_factorisations() -> None:
    for dtype in ("f8", "c16"):
        for shape in ((4, 3), (3, 4)) if dtype == "f8" else ((3, 3),):
            agree(ours.lu, theirs.lu, matrix(*shape, dtype=dtype))
            agree(partial(ours.lu, permute_l=True), partial(theirs.lu, permute_l=True), matrix(*shape, dtype=dtype))
        agree(partial(ours.qr, mode="economic"), partial(theirs.qr, mode="economic"), matrix(4, 3, dtype=dtype))
        x = matrix(4, 3, dtype=dtype)
        for got, value in zip(ours.qr(x, pivoting=True), scipy.linalg.qr(x, pivoting=True), strict=True):
            close(got, value)
        for side in ("left", "right"):
            for got, value in zip(ours.polar(x, side), scipy.linalg.polar(x, side), strict=True):
                close(got, value)
        form, vectors = ours.schur(matrix(4, 4, dtype=dtype), "complex")
        close(vectors @ form @ vectors.conj().T, matrix(4, 4, dtype=dtype).astype("c16"))
        for got, value in zip(
            ours.hessenberg(matrix(4, 4), calc_q=True), scipy.linalg.hessenberg(matrix(4, 4), calc_q=True), strict=True
        ):
            close(got, value)
    form, vectors = ours.rsf2csf(*ours.schur(matrix(4, 4)))
    close(vectors @ form @ vectors.conj().T, matrix(4, 4).astype("c16"))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.selected(1)
def test_rsf2csf_is_scipys(compiled: bool) -> None:
    """The same rotations, in the same order; batches are broadcast."""
    function = rlx.jit(ours.rsf2csf) if compiled else ours.rsf2csf
    for size in (1, 2, 5):
        form, vectors = scipy.linalg.schur(matrix(size, size, seed=size))
        for found, wanted in zip(function(form, vectors), scipy.linalg.rsf2csf(form, vectors), strict=True):
            close(found, wanted)
    batch, vectors = matrix(3, 4, 4), matrix(4, 4, seed=9)
    triangular, turned = function(batch, vectors)
    for n in range(3):
        expected = scipy.linalg.rsf2csf(batch[n], vectors)
        close(triangular[n], expected[0])
        close(turned[n], expected[1])


@pytest.mark.parametrize("type", [1, 2, 3])
def test_generalised_eigenvalues(type: int) -> None:
    a, b = positive(3, 3, dtype="c16"), positive(3, 3, dtype="c16", seed=2)
    values, vectors = ours.eigh(a, b, type=type)
    expected, _ = scipy.linalg.eigh(a, b, type=type)
    close(values, expected)
    v, w = np.asarray(vectors), np.asarray(values)
    sides = {1: (a @ v, b @ v * w), 2: (a @ b @ v, v * w), 3: (b @ a @ v, v * w)}
    close(*sides[type])
    check = rlx.grad(lambda x: jnp.sum(ours.eigh(x, positive(3, 3), eigvals_only=True) ** 2))(positive(3, 3, seed=3))
    assert np.isfinite(np.asarray(check)).all()


def test_tridiagonal_eigenvalues() -> None:
    d, e = matrix(5), matrix(4)
    close(ours.eigh_tridiagonal(d, e, eigvals_only=True), scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True))
    some = ours.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 2))
    close(some, scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True)[1:3])


# ------------------------------------------------------------- functions of matrices
@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential(dtype: str) -> None:
    for scale in (0.01, 1, 4):
        x = (matrix(3, 3, dtype=dtype) * scale).astype(dtype)
        agree(ours.expm, theirs.expm, x, factor=10, compiled=dtype == "f8" and scale == 4)
    close(ours.expm(np.stack([x, 0 * x])), np.stack([scipy.linalg.expm(x), np.eye(3)]).astype(dtype), 10)
    assert np.isnan(np.asarray(ours.expm(np.full((2, 2), 1e9)))).all()


@pytest.mark.thorough
def test_exponential_derivatives() -> None:
    x, direction = matrix(3, 3), matrix(3, 3, seed=1)
    for got, value in zip(ours.expm_frechet(x, direction), scipy.linalg.expm_frechet(x, direction), strict=True):
        close(got, value)
    second_order_agrees(ours.expm, theirs.expm, x)
    batch_is_a_loop(ours.expm, [x], (0,))
    batch_is_a_loop(rlx.grad(lambda v: jnp.sum(ours.expm(v) ** 2)), [x], (1,))


def test_square_roots() -> None:
    x = positive(3, 3)
    for value in (x, x.astype("c16"), np.stack([x, 2 * x])):
        root = np.asarray(rlx.jit(ours.sqrtm)(value))
        close(root @ root, value.astype("c16"))
    gradient = rlx.grad(lambda v: jnp.sum(jnp.real(ours.sqrtm(v))))(x)
    change, step = matrix(3, 3, seed=5), 1e-6
    high, low = (np.sum(scipy.linalg.sqrtm(x + s * step * change)) for s in (1, -1))
    assert np.isclose(np.sum(np.asarray(gradient) * change), (high - low) / (2 * step), rtol=1e-6)


def test_functions_of_schur_forms() -> None:
    x = matrix(4, 4)
    for function, model in ((jnp.sin, np.sin), (jnp.exp, np.exp)):
        close(ours.funm(x, function), scipy.linalg.funm(x, model).astype("c16"))
    result, error = ours.funm(x, jnp.exp, disp=False)
    assert np.asarray(error) < 1e-12


def test_sylvester() -> None:
    for dtype in ("f8", "c16"):
        a, b, c = matrix(3, 3, dtype=dtype), matrix(2, 2, dtype=dtype, seed=1), matrix(3, 2, dtype=dtype, seed=2)
        x = ours.solve_sylvester(a, b, c)
        close(x, scipy.linalg.solve_sylvester(a, b, c))
        close(a @ np.asarray(x) + np.asarray(x) @ b, c)
    assert np.isnan(np.asarray(ours.solve_sylvester(np.eye(2), -np.eye(2), np.ones((2, 2))))).all()


@pytest.mark.parametrize("assume_a", ["gen", "sym", "her", "pos"])
def test_solve(assume_a: str) -> None:
    a, b = positive(3, 3), matrix(3, 2)
    close(ours.solve(a, b, assume_a=assume_a), np.linalg.solve(a, b))
    agree(partial(ours.solve, assume_a=assume_a), partial(theirs.solve, assume_a=assume_a), a, b, derivatives=False)


# ------------------------------------------------------------- special matrices
def test_special_matrices() -> None:
    a, b = matrix(4), matrix(3, seed=1)
    cases: list[tuple[str, tuple[Any, ...]]] = [
        ("block_diag", (matrix(2, 3), matrix(1, 2), matrix(2))),
        ("toeplitz", (a,)),
        ("toeplitz", (a, b)),
        ("circulant", (a,)),
        ("hankel", (a,)),
        ("hankel", (a, b)),
        ("companion", (a,)),
        ("fiedler", (a,)),
        ("leslie", (a, b)),
        *[("fiedler_companion", (matrix(n),)) for n in (2, 3, 4, 6, 7)],
    ]
    for name, args in cases:
        close(getattr(ours, name)(*args), getattr(scipy.linalg, name)(*args), what=name)
    for mode in ("full", "same", "valid"):
        for n in (2, 6):
            close(ours.convolution_matrix(a, n, mode), scipy.linalg.convolution_matrix(a, n, mode))
    with rlx.scoped(default_float=np.dtype("f8")):
        for name in ("hilbert", "invhilbert", "pascal", "invpascal", "helmert", "dft"):
            expected = np.asarray(getattr(scipy.linalg, name)(5))
            wanted = expected if expected.dtype.kind == "c" else expected.astype("f8")
            close(getattr(ours, name)(5), wanted, what=name)
    close(ours.hadamard(4), scipy.linalg.hadamard(4))


def test_mistakes() -> None:
    with pytest.raises(errors.ShapeError, match="Rows must be equally many"):
        ours.cho_solve((np.eye(3), True), np.ones(2))
    with pytest.raises(errors.UnsupportedError, match="schur has no derivative"):
        rlx.grad(lambda x: jnp.sum(ours.schur(x)[0]))(matrix(2, 2))
    with pytest.raises(errors.ShapeError):
        ours.expm(np.ones((2, 3)))
