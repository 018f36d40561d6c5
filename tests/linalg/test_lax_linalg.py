"""rlx.lax.linalg against jax.lax.linalg."""

from __future__ import annotations

from functools import partial
from itertools import product

import jax
import numpy as np
import pytest
from linalg_cases import agree, batch_is_a_loop, close, matrix, positive

import rlx
import rlx.numpy as jnp
from rlx import errors, lax

ours, theirs = lax.linalg, jax.lax.linalg


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
@pytest.mark.selected(1)
def test_triangular_solve(dtype: str) -> None:
    a = matrix(2, 3, 3, dtype=dtype)
    for left, lower, transposed, conjugated, unit in product((True, False), repeat=5):
        options = {
            "left_side": left,
            "lower": lower,
            "transpose_a": transposed,
            "conjugate_a": conjugated,
            "unit_diagonal": unit,
        }
        b = matrix(2, 3, 2, dtype=dtype) if left else matrix(2, 2, 3, dtype=dtype)
        expected = theirs.triangular_solve(a, b, **options)
        close(ours.triangular_solve(a, b, **options), expected, what=str(options))
        many = np.concatenate([a] * 6), np.concatenate([b] * 6)
        close(ours.triangular_solve(*many, **options), np.concatenate([np.asarray(expected)] * 6), what=str(options))


@pytest.mark.parametrize("left", [True, False])
def test_triangular_solve_derivatives_and_batches(left: bool) -> None:
    options = {"left_side": left, "lower": True, "transpose_a": True, "conjugate_a": True}
    run = partial(ours.triangular_solve, **options)
    a, b = matrix(3, 3, dtype="c16"), matrix(3, 2, dtype="c16") if left else matrix(2, 3, dtype="c16")
    agree(run, partial(theirs.triangular_solve, **options), a, b)
    for axes in ((0, 0), (None, 0), (None, 2), (1, None)):
        batch_is_a_loop(run, [a, b], axes)
    for axes in ((0, None), (None, 1)):
        batch_is_a_loop(rlx.vmap(run, in_axes=(None, 0)), [a, np.stack([b, 2 * b])], axes)


@pytest.mark.thorough
def test_factorisations() -> None:
    for dtype in ("f8", "c16"):
        x = matrix(2, 4, 3, dtype=dtype)
        agree(ours.lu, theirs.lu, x)
        agree(partial(ours.qr, full_matrices=False), partial(theirs.qr, full_matrices=False), x)
        agree(ours.cholesky, theirs.cholesky, positive(2, 3, 3, dtype=dtype))
    square = matrix(5, 5)
    square[3] = square[1]
    close(ours.lu(square)[2], theirs.lu(square)[2])


def test_many_factorisations_equal_a_loop() -> None:
    for dtype in ("f4", "c16"):
        for shape in ((4, 4), (5, 3), (3, 5)):
            x = np.stack([matrix(*shape, dtype=dtype, seed=n) for n in range(12)])
            for number, part in enumerate(ours.lu(x)):
                close(part, np.stack([np.asarray(ours.lu(one)[number]) for one in x]), 10)


def test_permutations() -> None:
    pivots = np.array([[2, 1, 3], [3, 3, 3]], np.int32)
    for size in (4, 6):
        close(ours.lu_pivots_to_permutation(pivots, size), theirs.lu_pivots_to_permutation(pivots, size))
        close(
            rlx.jit(lambda p, n=size: ours.lu_pivots_to_permutation(p, n))(pivots),
            theirs.lu_pivots_to_permutation(pivots, size),
        )


def test_reflectors() -> None:
    for dtype in ("f8", "c16"):
        packed, taus = jax.lax.linalg.hessenberg(matrix(4, 4, dtype=dtype))
        for got, value in zip(ours.hessenberg(matrix(4, 4, dtype=dtype)), (packed, taus), strict=True):
            close(got, value)
        vectors = np.asarray(packed)[1:, :-1]
        agree(ours.householder_product, theirs.householder_product, vectors, np.asarray(taus), derivatives=False)
        q = np.asarray(ours.householder_product(vectors, taus))
        close(ours.ormqr(vectors, taus, np.eye(3, dtype=dtype)), q)
        form = np.asarray(ours.tridiagonal(positive(4, 4, dtype=dtype))[1])
        assert np.isclose(form.sum(), np.trace(positive(4, 4, dtype=dtype)).real)


def test_tridiagonal_solve() -> None:
    below, above = matrix(2, 5), matrix(2, 5, seed=1)
    diagonal, b = matrix(2, 5, seed=2) + 6, matrix(2, 5, 3)
    agree(ours.tridiagonal_solve, theirs.tridiagonal_solve, below, diagonal, above, b, derivatives=False)
    agree(
        lambda d, y: ours.tridiagonal_solve(below, d, above, y),
        lambda d, y: theirs.tridiagonal_solve(below, d, above, y),
        diagonal,
        b,
    )


def test_spectra() -> None:
    x = positive(4, 4)
    vectors, values = ours.eigh(x)
    close(x @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values))
    for part, value in zip(ours.svd(x, full_matrices=False), np.linalg.svd(x, full_matrices=False), strict=True):
        close(np.abs(np.asarray(part)), np.abs(value))
    values, left, right = ours.eig(matrix(3, 3))
    close(np.asarray(left).conj().T @ matrix(3, 3), np.asarray(values)[:, None] * np.asarray(left).conj().T)
    u, h, _, _ = ours.qdwh(matrix(4, 3))
    close(u @ h, matrix(4, 3))


def test_updates() -> None:
    r = np.linalg.cholesky(positive(3, 3)).T
    agree(ours.cholesky_update, theirs.cholesky_update, r, matrix(3), derivatives=False)
    agree(
        partial(ours.symmetric_product, alpha=2.0, beta=3.0),
        partial(theirs.symmetric_product, alpha=2.0, beta=3.0),
        matrix(3, 2),
        positive(3, 3),
        derivatives=False,
    )


def test_mistakes() -> None:
    with pytest.raises(errors.DtypeError, match="do not promote"):
        ours.triangular_solve(np.eye(2), np.ones((2, 1), np.float32), left_side=True)
    with pytest.raises(errors.ShapeError, match="test_lax_linalg.py"):
        ours.triangular_solve(np.eye(2), np.ones((3, 1)), left_side=True)
    with pytest.raises(errors.UnsupportedError, match="householder_product has no derivative"):
        rlx.grad(lambda x: jnp.sum(ours.householder_product(x, np.ones(2))))(matrix(3, 2))


@pytest.mark.thorough
def test_eigenvectors_have_derivatives_on_both_sides() -> None:
    a = matrix(3, 3, dtype="c16") + np.diag([0, 2, 5])
    for left, right in ((True, True), (True, False), (False, True)):
        sides = {"compute_left_eigenvectors": left, "compute_right_eigenvectors": right}
        model = partial(jax.lax.linalg.eig, enable_eigvec_derivs=True, **sides)
        agree(partial(ours.eig, **sides), model, a)


def test_singular_tridiagonal_systems_can_be_perturbed() -> None:
    below, diagonal, above = np.array([0.0, 1.0]), np.array([1.0, 3.0]), np.array([3.0, 0.0])
    sides = np.array([[1.0], [4.0]])
    assert np.isnan(ours.tridiagonal_solve(below, diagonal, above, sides)).all()
    assert (np.abs(ours.tridiagonal_solve(below, diagonal, above, sides, perturb_singular=True)) > 1e6).all()
    regular = ours.tridiagonal_solve(below, diagonal + 1, above, sides)
    np.testing.assert_array_equal(
        ours.tridiagonal_solve(below, diagonal + 1, above, sides, perturb_singular=True), regular
    )
