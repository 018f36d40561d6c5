"""Library kernels in native code against their references: sizes around the lanes, failures, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from linalg_cases import DTYPES, matrix, positive

import rlx
from rlx.backends.cpu import CpuBackend
from rlx.backends.cpu.routines.native_library import host_reason
from rlx.ir.kernels import Library, Plan
from rlx.ops.factorisations import cholesky, householder_product, lu, packed_qr, pivoted_qr, qr
from rlx.ops.fourier import fft
from rlx.ops.solves import lu_solve, sylvester, triangular_solve, tridiagonal_solve
from rlx.ops.spectral import eig, eigh, hessenberg, matrix_sqrt, schur, svd, tridiagonal
from rlx.passes.pipeline import lower_to_plan
from rlx.routines import LIBRARY_ROUTINES

BATCHES = ((), (1,), (5,), (16,), (3, 11))


def plan_of(function: Any, *args: np.ndarray) -> Plan:
    return lower_to_plan(rlx.make_program(function)(*args))


def reasons(function: Any, *args: np.ndarray) -> list[str | None]:
    """Why the library kernels of a function run in Python."""
    return [host_reason(kernel) for kernel in plan_of(function, *args).kernels if isinstance(kernel, Library)]


def tolerance(dtype: Any) -> float:
    return 3e-4 if np.dtype(dtype).name in ("float32", "complex64") else 1e-10


def agrees(primitive: Any, *args: np.ndarray, **params: Any) -> None:
    """Compiled without Python steps, and with the reference's results."""

    def function(*operands: Any) -> Any:
        return primitive(*operands, **params)

    assert reasons(function, *args) == [None]
    results = rlx.jit(function)(*args)
    expected = primitive.reference(*args, **params)
    if not primitive.multiple:
        results, expected = (results,), (expected,)
    for result, value in zip(results, expected, strict=True):
        found = np.asarray(result)
        assert found.dtype == value.dtype
        np.testing.assert_allclose(found, value, rtol=tolerance(value.dtype), atol=tolerance(value.dtype))


# ------------------------------------------------------------- small and many, large and few
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("order", [1, 2, 4, 7, 32, 40])
def test_positive_definite(dtype, batch, order):
    agrees(cholesky, positive(*batch, order, order, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 3), (3, 6), (9, 9), (33, 33)], ids=str)
def test_lu(dtype, batch, shape):
    a = matrix(*batch, *shape, dtype=dtype)
    agrees(lu, a[..., ::-1, :].copy())
    if shape[0] == shape[1]:
        factors, _, permutation = lu.reference(a)
        for flags in ((False, False), (True, False), (True, True), (False, True)):
            params = dict(zip(("transpose_a", "conjugate_a"), flags, strict=True))
            agrees(lu_solve, a, factors, permutation, matrix(*batch, shape[0], 2, dtype=dtype), **params)
            agrees(lu_solve, a, factors, permutation, matrix(*batch, shape[0], 1, dtype=dtype), **params)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (37,)], ids=str)
@pytest.mark.parametrize("number", range(32))
def test_triangular_solve(dtype, batch, number):
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    flags = {name: bool(number >> place & 1) for place, name in enumerate(names)}
    for order, count in ((4, 3), (3, 1), (35, 2)):
        a = matrix(*batch, order, order, dtype=dtype) / (1 + 0.2 * order) + 2 * np.eye(order, dtype=dtype)
        shape = (order, count) if flags["left_side"] else (count, order)
        agrees(triangular_solve, a.astype(dtype), matrix(*batch, *shape, dtype=dtype), **flags)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 20)], ids=str)
def test_other_routines(dtype, batch):
    for shape in ((4, 3), (3, 3), (2, 5), (40, 36)):
        for full in (False, True):
            agrees(qr, matrix(*batch, *shape, dtype=dtype), full_matrices=full)
        agrees(pivoted_qr, matrix(*batch, *shape, dtype=dtype), full_matrices=False)
        agrees(packed_qr, matrix(*batch, *shape, dtype=dtype))
        agrees(svd, matrix(*batch, *shape, dtype=dtype), full_matrices=False, compute_uv=False)
    packed = np.tril(matrix(*batch, 5, 3, dtype=dtype) * 0.2, -1).astype(dtype)
    taus = 2 / (1 + (np.abs(packed) ** 2).sum(-2))
    agrees(householder_product, packed, taus.astype(dtype))
    agrees(eigh, positive(*batch, 6, 6, dtype=dtype)[..., :1, :1].copy(), lower=True)
    # eigenvalues of triangles come in the order of the diagonal
    triangles = np.triu(matrix(*batch, 5, 5, dtype=dtype)) + np.diag(np.arange(5) * 9).astype(dtype)
    agrees(eig, triangles, compute_left=False, compute_right=False)
    agrees(hessenberg, matrix(*batch, 5, 5, dtype=dtype))
    agrees(tridiagonal, positive(*batch, 5, 5, dtype=dtype), lower=True)
    agrees(tridiagonal, positive(*batch, 5, 5, dtype=dtype), lower=False)
    agrees(
        sylvester,
        positive(*batch, 4, 4, dtype=dtype),
        positive(*batch, 3, 3, dtype=dtype, seed=1),
        matrix(*batch, 4, 3, dtype=dtype),
    )
    rows = [matrix(*batch, 6, dtype=dtype, seed=s) + (9 if s == 1 else 0) for s in range(3)]
    agrees(tridiagonal_solve, *(r.astype(dtype) for r in rows), matrix(*batch, 6, 2, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [1, 3, 8, 30])
def test_decompositions_compose_to_what_they_decompose(dtype, order):
    a = matrix(12, order, order, dtype=dtype)
    hermitian = positive(12, order, order, dtype=dtype)
    close = {"rtol": 0, "atol": tolerance(dtype) * 10 * order}
    for lower in (True, False):
        w, v = (np.asarray(x) for x in rlx.jit(lambda x, side=lower: eigh(x, lower=side))(hermitian))
        np.testing.assert_allclose((v * w[:, None]) @ v.conj().mT, hermitian, **close)
    for shape in ((order, order + 2), (order + 1, order)):
        b = matrix(12, *shape, dtype=dtype)
        for full in (False, True):
            u, s, vh = (np.asarray(x) for x in rlx.jit(lambda x, f=full: svd(x, full_matrices=f, compute_uv=True))(b))
            inner = s.shape[-1]
            np.testing.assert_allclose((u[..., :inner] * s[:, None]) @ vh[:, :inner], b, **close)
            np.testing.assert_allclose(
                vh @ vh.conj().mT, np.broadcast_to(np.eye(vh.shape[-2]), vh[:, :, : vh.shape[-2]].shape), **close
            )
    t, z = (np.asarray(x) for x in rlx.jit(schur)(a))
    np.testing.assert_allclose(z @ t @ z.conj().mT, a, **close)
    found = rlx.jit(lambda x: eig(x, compute_left=True, compute_right=True))(a)
    values, left, right = (np.asarray(x) for x in found)
    np.testing.assert_allclose(a @ right, right * values[:, None], **close)
    np.testing.assert_allclose(left.conj().mT @ a, values[:, :, None] * left.conj().mT, **close)
    np.testing.assert_allclose(np.linalg.norm(left, axis=-2), 1, rtol=1e-5)


# ------------------------------------------------------------- failures
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [3, 40])
def test_a_failed_matrix_is_nan_and_alone(dtype, count):
    a = positive(count, 4, 4, dtype=dtype)
    a[1] = -a[1]
    a[2, 3, 1] = np.nan
    factor = np.asarray(rlx.jit(cholesky)(a))
    below = np.tril(np.ones((4, 4), bool))
    assert np.isnan(factor[1:3][:, below]).all()
    assert (factor[1:3][:, ~below] == 0).all()
    np.testing.assert_allclose(factor[0] @ factor[0].conj().mT, a[0], rtol=tolerance(dtype))
    assert np.isfinite(factor[3:]).all()
    (host,) = LIBRARY_ROUTINES["cholesky"]([a], {})
    np.testing.assert_array_equal(np.isnan(host), np.isnan(factor))
    spectral = (
        lambda x: eigh(x, lower=True),
        lambda x: svd(x, full_matrices=False, compute_uv=True),
        lambda x: eig(x, compute_left=True, compute_right=True),
        schur,
    )
    for function in spectral:
        for result in map(np.asarray, rlx.jit(function)(a)):
            assert np.isnan(result[2]).all()
            assert np.isfinite(result[[0, 1]]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_values_of_infinities_are_nan(dtype):
    """NumPy's LAPACK does not return from some of these: eager calls do not ask it."""
    a = positive(4, 3, 3, dtype=dtype)
    a[1, 2, 0] = np.inf
    for vectors in (True, False):
        for result in LIBRARY_ROUTINES["svd"]([a], {"compute_uv": vectors}):
            assert np.isnan(result[1]).all() and np.isfinite(result[[0, 2, 3]]).all()


@pytest.mark.parametrize("count", [2, 20])
def test_only_one_triangle_is_read(count):
    a = positive(count, 3, 3)
    upper = np.triu_indices(3, 1)
    spoilt = a.copy()
    spoilt[:, *upper] = np.nan
    np.testing.assert_array_equal(rlx.jit(cholesky)(spoilt), rlx.jit(cholesky)(a))
    same = rlx.jit(lambda x: eigh(x, lower=True))
    np.testing.assert_array_equal(same(spoilt)[0], same(a)[0])
    solve = rlx.jit(lambda x, b: triangular_solve(x, b, left_side=True))
    np.testing.assert_array_equal(solve(spoilt, a), solve(a, a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 33])
def test_singular_matrices_have_factors(dtype, count):
    a = np.zeros((count, 4, 4), dtype)
    a[:, 2] = matrix(4, dtype=dtype)
    factors, pivots, permutation = (np.asarray(x) for x in rlx.jit(lu)(a))
    lower, upper = np.tril(factors, -1) + np.eye(4), np.triu(factors)
    np.testing.assert_allclose(lower @ upper, np.take_along_axis(a, permutation[..., None], -2), rtol=1e-6)
    assert (np.sort(permutation, -1) == np.arange(4)).all()
    assert (pivots >= np.arange(4)).all()
    a[0, :, 0] = np.nan
    assert ((np.asarray(rlx.jit(lu)(a)[1]) >= 0) & (np.asarray(rlx.jit(lu)(a)[1]) < 4)).all()


def test_extreme_complex_pivots_divide_without_overflow():
    a = np.zeros((16, 2, 2), np.complex64)
    a[:, 0], a[:, 1] = [[3e30 + 4e30j, 1], [1e30 + 1e30j, 5]]
    factors = np.asarray(rlx.jit(lu)(a)[0])
    np.testing.assert_allclose(factors[:, 1, 0], (1 + 1j) / (3 + 4j), rtol=1e-5)


# ------------------------------------------------------------- threads, eager calls, host steps
def test_threads_share_nothing():
    a = positive(4000, 5, 5)
    run = rlx.jit(lambda x: (cholesky(x), eigh(x, lower=True)[0]))
    expected = [np.asarray(x) for x in run(a)]
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(lambda _: run(a), range(12)):
            for result, value in zip(results, expected, strict=True):
                np.testing.assert_array_equal(result, value)


@pytest.mark.parametrize("function", [lambda x: qr(x, full_matrices=False), schur, lu], ids=["qr", "schur", "lu"])
def test_eager_and_compiled_are_one_code(function):
    a = matrix(3, 6, 6)
    for eager, compiled in zip(function(a), rlx.jit(function)(a), strict=True):
        np.testing.assert_array_equal(eager, compiled)


def test_what_python_runs_is_named():
    root = plan_of(matrix_sqrt, np.eye(3, dtype="c16"))
    assert CpuBackend().compile(root).texts()["host"] == "matrix_sqrt: matrix_sqrt has no native form"
    assert reasons(lambda x: qr(x, full_matrices=True), np.zeros((3, 0))) == ["an operand is empty"]
    long = reasons(lambda x: fft(x, kind="fft", lengths=(8193,)), np.zeros(8193, "c8"))
    assert long == ["the length 8193 of a Fourier transform is over 8192"]
    assert CpuBackend().compile(plan_of(cholesky, np.eye(3))).texts()["host"] == ""


def test_a_missing_symbol_is_a_host_step(monkeypatch):
    from rlx.backends.cpu.routines import native_library

    blas = native_library.load_blas()._replace(fortran=lambda name: 0)
    monkeypatch.setattr(native_library, "load_blas", lambda: blas)
    plan = plan_of(cholesky, np.eye(3, dtype="f4") * 4)
    (kernel,) = (k for k in plan.kernels if isinstance(k, Library))
    assert host_reason(kernel) == "LAPACK's spotrf"
    from rlx.storage import from_numpy

    (result,) = CpuBackend().compile(plan).run([from_numpy(np.eye(3, dtype="f4") * 4)])
    np.testing.assert_array_equal(result.view((3, 3), np.dtype("f4")), np.eye(3) * 2)


def test_raw_qr_is_numpy_s():
    a = np.random.default_rng(0).normal(size=(5, 3))
    found, wanted = rlx.numpy.linalg.qr(a, mode="raw"), np.linalg.qr(a, mode="raw")
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)
    assert rlx.vmap(lambda a: rlx.numpy.linalg.qr(a, mode="raw")[1])(np.stack([a, a])).shape == (2, 3)
