"""Native Cholesky factors of sparse matrices beside dense ones: solves, determinants, selected elements of inverses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_systems import arrow, drawn, poisson

import rlx
from rlx import sparse
from rlx.routines import sparse_solves


@pytest.fixture(autouse=True)
def _every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_solves, "_LEAST_CHOLESKY", 1)
    sparse_solves._factors.values.clear()
    sparse_solves._analyses.values.clear()


def definite(order: int, stored: int, dtype: str, seed: int) -> Any:
    """A Hermitian matrix whose diagonal is larger than the rest of each row."""
    half = drawn(order, order, stored, dtype, seed).tocsr()
    whole = half + half.conj().T
    return (whole + sp.diags_array(np.asarray(abs(whole).sum(1)).ravel() + 0.5)).tocsr().astype(dtype)


def kinds(dtype: str) -> dict[str, Any]:
    """Patterns with one front, with many, with several trees, with long chains and with wide fronts."""
    line = sp.diags_array([np.full(39, -1.0), np.full(40, 2.5), np.full(39, -1.0)], offsets=[-1, 0, 1])
    found = {f"random {n}, {stored}": definite(n, stored, dtype, n) for n, stored in ((1, 0), (7, 9), (60, 90))}
    found["diagonal"] = sp.diags_array(np.arange(1.0, 12.0))
    found |= {"mesh": poisson(9), "arrow": arrow(30), "line": line, "dense": definite(25, 2000, dtype, 3)}
    found["two trees"] = sp.block_diag([poisson(4), definite(13, 20, dtype, 5), poisson(3)])
    return {name: matrix.tocsr().astype(dtype) for name, matrix in found.items()}


def last_is_cholesky() -> bool:
    return next(reversed(sparse_solves._factors.values.values())).is_cholesky


_OTHERS = (("f4", None), ("f8", "natural"), ("c16", None))
_thorough = [pytest.param(*case, marks=pytest.mark.thorough) for case in _OTHERS]


@pytest.mark.parametrize(("dtype", "ordering"), [("f8", None), *_thorough])
def test_factors_beside_dense_ones(dtype: str, ordering: str | None) -> None:
    options: dict[str, Any] = {"assume": "positive definite", "ordering": ordering}
    tolerance = 1e-5 if dtype == "f4" else 1e-11
    for name, matrix in kinds(dtype).items():
        dense, ours = matrix.toarray(), sparse.CSR.fromscipy(matrix)
        b = drawn(len(dense), 3, 3 * len(dense), dtype, 9).toarray()
        x = np.asarray(sparse.spsolve(ours, b, **options))
        assert last_is_cholesky(), name
        np.testing.assert_allclose(dense @ x, b, atol=tolerance * np.abs(dense).max(), err_msg=name)
        sign, log = sparse.slogdet(ours, **options)
        np.testing.assert_allclose([sign, log], np.linalg.slogdet(dense), rtol=tolerance, err_msg=name)
        gradient = rlx.grad(lambda a, options=options: sparse.logdet(a, **options).real)(ours)
        inverse = np.linalg.inv(dense)
        slope = np.where(dense != 0, (inverse.T + inverse.conj()) / 2, 0)
        np.testing.assert_allclose(np.asarray(gradient.todense()), slope, atol=tolerance, err_msg=name)


def test_transposed_and_repeated_solves() -> None:
    matrix = definite(50, 80, "c16", 2)
    factor = sparse.factorized(sparse.CSR.fromscipy(matrix), assume="positive definite")
    b = np.arange(50.0)
    np.testing.assert_allclose(matrix.T @ np.asarray(factor.solve(b, trans=True)), b, atol=1e-12)
    other = factor.update(np.asarray(factor.matrix.data) * 2)
    np.testing.assert_allclose(2 * matrix @ np.asarray(other.solve(b)), b, atol=1e-12)
    (analysis,) = sparse_solves._analyses.values.values()
    assert len(analysis.cholesky) == 1 and last_is_cholesky()


def test_elements_in_parts_are_summed_first() -> None:
    row, column = np.array([0, 1, 0, 1, 1, 0]), np.array([0, 1, 1, 0, 1, 0])
    matrix = sparse.COO(np.array([1.0, 2.0, 0.5, 0.5, 3.0, 4.0]), row, column, (2, 2))
    gradient = rlx.grad(lambda a: sparse.logdet(a, assume="positive definite"))(matrix)
    inverse = np.linalg.inv(np.asarray(matrix.todense()))
    np.testing.assert_allclose(gradient.data, inverse[row, column], atol=1e-12)


def test_matrices_that_are_not_positive_definite_have_lu_factors() -> None:
    matrix = sparse.CSR.fromscipy(poisson(5) - 3.9 * sp.eye_array(25))
    x = np.asarray(sparse.spsolve(matrix, np.ones(25), assume="symmetric"))
    found = sparse.spsolve(matrix, np.ones(25), assume="positive definite")
    assert not last_is_cholesky()
    np.testing.assert_allclose(found, x, atol=1e-10)


def test_values_that_are_not_finite_give_nan() -> None:
    matrix = sparse.CSR.fromscipy(poisson(4))
    x = rlx.jit(lambda d: sparse.spsolve(matrix.with_data(d), np.ones(16), assume="positive definite"))(
        np.full(matrix.nnz, np.inf)
    )
    assert np.isnan(np.asarray(x)).all()
