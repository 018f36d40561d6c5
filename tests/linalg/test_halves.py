"""Linear algebra of 16-bit floats: computed in float32, and rounded once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.scipy import linalg

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
SQUARE = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]])
LOWER = np.tril(SQUARE)
ROW = np.array([1.0, 2.0, -3.0])
CUBE = np.stack([SQUARE, SQUARE + np.eye(3)])
Call = Callable[..., Any]
CALLS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    **{f"numpy.{n}": (getattr(jnp.linalg, n), (SQUARE,)) for n in "cholesky cond det eigvals inv".split()},
    **{f"numpy.{n}": (getattr(jnp.linalg, n), (SQUARE,)) for n in "matrix_rank pinv qr slogdet".split()},
    **{f"numpy.{n}": (getattr(jnp.linalg, n), (CUBE,)) for n in "eig eigh eigvalsh svd svdvals".split()},
    "numpy.lstsq": (jnp.linalg.lstsq, (SQUARE, ROW)),
    "numpy.matrix_power": (lambda a: jnp.linalg.matrix_power(a, -2), (SQUARE,)),
    "numpy.polyfit": (lambda x, y: jnp.polyfit(x, y, 1), (ROW, ROW**2)),
    "numpy.roots": (lambda p: jnp.roots(p, strip_zeros=False), (ROW,)),
    "numpy.solve": (jnp.linalg.solve, (SQUARE, ROW)),
    "numpy.tensorinv": (lambda a: jnp.linalg.tensorinv(a, 1), (SQUARE,)),
    "numpy.tensorsolve": (jnp.linalg.tensorsolve, (SQUARE, ROW)),
    **{f"lax.{n}": (getattr(lax.linalg, n), (SQUARE,)) for n in "cholesky eig eigh hessenberg lu qdwh".split()},
    **{f"lax.{n}": (getattr(lax.linalg, n), (CUBE,)) for n in "qr schur svd tridiagonal".split()},
    "lax.cholesky_update": (lax.linalg.cholesky_update, (LOWER.T, ROW)),
    "lax.householder_product": (lax.linalg.householder_product, (LOWER, np.array([1.0, 0.5, 0.0]))),
    "lax.ormqr": (lax.linalg.ormqr, (LOWER, np.array([1.0, 0.5, 0.0]), SQUARE)),
    "lax.triangular_solve": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), (SQUARE, SQUARE)),
    "lax.tridiagonal_solve": (lax.linalg.tridiagonal_solve, (ROW, ROW + 8, ROW, ROW[:, None])),
    **{f"scipy.{n}": (getattr(linalg, n), (SQUARE,)) for n in "cho_factor cholesky det eigh expm inv lu".split()},
    **{f"scipy.{n}": (getattr(linalg, n), (SQUARE,)) for n in "hessenberg lu_factor polar qr schur sqrtm svd".split()},
    "scipy.cho_solve": (lambda c, b: linalg.cho_solve((c, True), b), (LOWER, ROW)),
    "scipy.eigh_tridiagonal": (lambda d, e: linalg.eigh_tridiagonal(d, e, eigvals_only=True), (ROW, ROW[1:])),
    "scipy.expm_frechet": (linalg.expm_frechet, (SQUARE, SQUARE)),
    "scipy.funm": (lambda a: linalg.funm(a, jnp.sin), (SQUARE,)),
    "scipy.lu_solve": (lambda a, b: linalg.lu_solve((a, np.arange(3, dtype=np.int32)), b), (SQUARE, ROW)),
    "scipy.qr_multiply": (linalg.qr_multiply, (SQUARE, SQUARE)),
    "scipy.rsf2csf": (linalg.rsf2csf, (LOWER.T, np.eye(3))),
    "scipy.solve": (linalg.solve, (SQUARE, ROW)),
    "scipy.solve_sylvester": (linalg.solve_sylvester, (SQUARE, SQUARE + np.eye(3), SQUARE)),
    "scipy.solve_triangular": (linalg.solve_triangular, (SQUARE, ROW)),
}
ROUNDED = {  # sums, products and comparisons, which round where any do
    "block_diag", "circulant", "companion", "convolution_matrix", "cross", "dft", "diagonal", "fiedler",
    "fiedler_companion", "hadamard", "hankel", "helmert", "hilbert", "invhilbert", "invpascal", "kron", "leslie",
    "lu_pivots_to_permutation", "matmul", "matrix_norm", "matrix_transpose", "multi_dot", "norm", "outer",
    "pascal", "symmetric_product", "tensordot", "toeplitz", "trace", "vecdot", "vector_norm",
}  # fmt: skip


def narrowed(results: Any, dtype: np.dtype) -> list[Any]:
    """Leaves, those of float32 rounded."""
    arrays = [np.asarray(x) for x in rlx.tree.leaves(results)]
    return [x.astype(dtype) if x.dtype == np.float32 else x for x in arrays]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("function", "operands"), CALLS.values(), ids=CALLS.keys())
def test_results_are_float32s_rounded(function: Call, operands: tuple[Any, ...], dtype: np.dtype) -> None:
    """Un-jitted and compiled; complex results stay complex64."""
    halves = [x.astype(dtype) for x in operands]
    singles = [x.astype(np.float32) for x in halves]
    for run in (function, rlx.jit(function)):
        expected, found = narrowed(run(*singles), dtype), [np.asarray(x) for x in rlx.tree.leaves(run(*halves))]
        assert [x.dtype for x in found] == [x.dtype for x in expected]
        for ours, other in zip(found, expected, strict=True):
            wide = ours.dtype if ours.dtype.kind == "c" else np.float64
            np.testing.assert_array_equal(ours.astype(wide), other.astype(wide))


def test_every_function_of_linear_algebra_is_looked_at() -> None:
    """What is not in CALLS does nothing but what any function of arrays does."""
    for name, module in (("numpy", jnp.linalg), ("lax", lax.linalg), ("scipy", linalg)):
        offered = {n for n in module.__all__ if inspect.isfunction(getattr(module, n))}
        called = {n.removeprefix(f"{name}.") for n in CALLS if n.startswith(f"{name}.")}
        assert offered - called - ROUNDED == set()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_derivatives(dtype: np.dtype) -> None:
    """They have the operand's dtype."""
    x = SQUARE.astype(dtype)
    slope = rlx.grad(lambda a: jnp.linalg.inv(a).sum())(x)
    exact = rlx.grad(lambda a: jnp.linalg.inv(a).sum())(x.astype(np.float32))
    assert slope.dtype == dtype
    np.testing.assert_allclose(slope.astype(np.float32), exact, rtol=float(ml_dtypes.finfo(dtype).eps) * 8, atol=1e-6)


def test_beside_other_dtypes_they_promote() -> None:
    """float16 with float32 is float32, with float64 float64; 8-bit floats are refused."""
    for other in (np.float32, np.float64):
        assert jnp.linalg.solve(SQUARE.astype(np.float16), ROW.astype(other)).dtype == other
    assert jnp.linalg.solve(SQUARE.astype(np.float16), np.arange(3)).dtype == np.float16
    with pytest.raises(rlx.errors.DtypeError):
        jnp.linalg.inv(SQUARE.astype(ml_dtypes.float8_e4m3fn))
