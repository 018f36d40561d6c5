"""Decompositions of library routines into loops and products: against the routines, and by what makes a factor one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from primitive_cases import Case, cases

import rlx
import rlx.numpy
from rlx.backends.base import Backend
from rlx.backends.claims import Claims
from rlx.backends.cpu import CpuBackend
from rlx.backends.reference import ReferenceBackend
from rlx.ir.kernels import Library
from rlx.ir.types import TensorType
from rlx.ops.factorisations import cholesky, householder_product, lu, pivoted_qr, pivots_to_permutation, qr
from rlx.ops.fourier import fft
from rlx.ops.solves import lu_solve, triangular_solve, tridiagonal_solve
from rlx.ops.spectral import eigh, hessenberg, svd, tridiagonal
from rlx.passes.pipeline import Context, lower_to_plan
from rlx.routines import LIBRARY_ROUTINES
from rlx.trace.primitive import registry
from rlx.trace.tracing import close_over, trace_program

NOTHING = Claims(routines=frozenset())
DTYPES = ("f4", "f8", "c8", "c16")
found_cases = [c for c in cases() if c.primitive.routine and c.primitive.decomposes]


def decomposed(backend: Backend, function: Callable[..., Sequence[Any]], *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of a flat function on a device without routines."""
    program, captured = trace_program(function, [TensorType(a.shape, a.dtype) for a in arrays])
    context = Context(backend.lowering, NOTHING, backend.name)
    plan = lower_to_plan(close_over(program, captured), context=context)
    assert not any(isinstance(kernel, Library) for kernel in plan.kernels)
    memory = backend.memory
    storages = backend.compile(plan).run([memory.put(np.ascontiguousarray(a)) for a in arrays])
    return [memory.get(s, t.shape, t.dtype) for s, t in zip(storages, program.output_types, strict=True)]


def loops(primitive: Any, *arrays: np.ndarray, **params: Any) -> list[np.ndarray]:
    """A primitive's results by its decomposition."""

    def function(*args: Any) -> Sequence[Any]:
        out = primitive(*args, **params)
        return out if primitive.multiple else (out,)

    return decomposed(ReferenceBackend(), function, *arrays)


def routine(primitive: Any, *arrays: np.ndarray, **params: Any) -> list[np.ndarray]:
    """The same by the library."""
    with np.errstate(all="ignore"):
        out = primitive.reference(*arrays, **params)
    return list(out) if primitive.multiple else [out]


@pytest.mark.thorough
def test_compiled_code() -> None:
    """What the reference says, of several in one program."""
    a, b = normal(3, 5, 4, dtype="c16"), normal(3, 4, 2, dtype="c16")

    def several(a: Any, b: Any) -> list[Any]:
        square = rlx.numpy.matmul(rlx.numpy.conj(a.swapaxes(-1, -2)), a)
        factors, pivots, permutation = lu(square)
        x = lu_solve(square, factors, permutation, b, transpose_a=True, conjugate_a=False)
        (s,) = svd(a, full_matrices=False, compute_uv=False)
        return [cholesky(square), factors, pivots, x, *qr(a, full_matrices=True), eigh(square, lower=True)[0], s]

    pairs = (decomposed(backend, several, a, b) for backend in (CpuBackend(), ReferenceBackend()))
    for found, wanted in zip(*pairs, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def normal(*shape: int, dtype: Any = "f8", seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng((seed, *shape))
    values = generator.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * generator.normal(size=shape)
    return np.asarray(values).astype(dtype)


def adjoint(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2).conj()


def rounding(x: np.ndarray, scale: np.ndarray) -> float:
    """The largest norm among matrices, in rounding errors of their dtype relative to others."""
    def norms(y: np.ndarray) -> np.ndarray:
        return np.sqrt((np.abs(y.astype("c16")) ** 2).sum((-1, -2)))

    return float((norms(x) / norms(scale)).max(initial=0) / np.finfo(scale.dtype).eps)


def off_identity(q: np.ndarray) -> float:
    """How far columns are from orthonormal, in rounding errors."""
    eye = np.eye(q.shape[-1], dtype=q.dtype)
    wide = q.astype("c16")
    return rounding(adjoint(wide) @ wide - eye, eye)


# ------------------------------------------------------------- the samples of every primitive
def test_what_has_a_decomposition() -> None:
    named = {p.routine for p in (*registry.values(), lu_solve) if p.routine and p.decomposes}
    without = {"eig", "schur", "sylvester", "matrix_sqrt"}
    without |= {"csr_solve", "csr_logdet", "csr_inverse_entries", "csr_inverse_change", "csr_lstsq", "csr_eigsh"}
    without |= {"csr_triangular_solve", "csr_incomplete_lu"}
    assert named == set(LIBRARY_ROUTINES) - without
    assert {c.primitive.routine for c in found_cases} == named - {"lu_solve"}  # whose primitive has no samples


def unique(case: Case, results: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Results that do not depend on the choice of a basis: eigenvectors as what they are applied to."""
    if case.primitive.name == "eigh":
        values, vectors = results
        return [values, (vectors * values[..., None, :]) @ adjoint(vectors)]
    if case.primitive.name == "svd" and len(results) == 3:
        u, s, vh = results
        k = s.shape[-1]
        return [s, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :]]
    return list(results)


@pytest.mark.parametrize("case", found_cases, ids=repr)
def test_samples_on_the_reference(case: Case) -> None:
    results = decomposed(ReferenceBackend(), case.bind, *case.arrays)
    expected = case.reference(*case.arrays)
    assert [(r.shape, r.dtype) for r in results] == [(e.shape, e.dtype) for e in expected]
    for result, value in zip(unique(case, results), unique(case, expected), strict=True):
        tolerance = 100 * np.finfo(value.dtype).eps if value.dtype.kind in "fc" else 0
        np.testing.assert_allclose(result, value, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------- sizes and dtypes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 5), (2, 1, 24, 24)], ids=str)
def test_factors_give_back_the_matrix(shape: tuple[int, ...], dtype: str) -> None:
    """As closely as LAPACK's, up to a few times the order: residuals and orthogonality in rounding errors."""
    a = normal(*shape, dtype=dtype)
    n = shape[-1]
    wide = a.astype("c16")
    positive = wide @ adjoint(wide) + np.eye(n)
    positive = (positive if a.dtype.kind == "c" else positive.real).astype(dtype)
    (factor,) = loops(cholesky, positive)
    assert rounding(factor.astype("c16") @ adjoint(factor).astype("c16") - positive, positive) < 2 + n / 4
    packed, pivots, permutation = loops(lu, a)
    lower, upper = np.tril(packed, -1) + np.eye(n, dtype=dtype), np.triu(packed)
    ordered = np.take_along_axis(a, permutation[..., None], -2)
    assert rounding(lower.astype("c16") @ upper - ordered, a) < 2 + n / 4
    (followed,) = loops(pivots_to_permutation, pivots, rows=n)
    np.testing.assert_array_equal(followed, permutation)
    q, r = loops(qr, a, full_matrices=False)
    assert rounding(q.astype("c16") @ r - a, a) < 8 and off_identity(q) < 10 + n
    assert np.array_equal(r, np.triu(r))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 5, 5), (16, 16)], ids=str)
@pytest.mark.selected(1)
def test_eigenvectors_and_singular_vectors(shape: tuple[int, ...], dtype: str) -> None:
    a = normal(*shape, dtype=dtype)
    hermitian, n = a + adjoint(a), shape[-1]
    for lower in (True, False)[: 2 if n < 9 else 1]:
        half = np.tril(hermitian) if lower else np.triu(hermitian)
        values, vectors = loops(eigh, half, lower=lower)
        exact = np.linalg.eigvalsh(hermitian.astype("c16"))
        eps = np.finfo(dtype).eps
        assert np.abs(values - exact).max() <= (8 + n / 2) * eps * np.abs(exact).max()
        assert np.all(np.diff(values) >= -4 * n * eps * np.abs(exact).max())
        moved = hermitian.astype("c16") @ vectors - vectors * values[..., None, :]
        assert rounding(moved, hermitian) < 4 + n / 2 and off_identity(vectors) < 4 + n / 2
    u, s, vh = loops(svd, a, full_matrices=False, compute_uv=True)
    assert rounding((u.astype("c16") * s[..., None, :]) @ vh - a, a) < 4 + n / 2
    assert off_identity(u) < 4 + n / 2 and off_identity(adjoint(vh)) < 8 + n
    exact = np.linalg.svd(a.astype("c16"), compute_uv=False)
    assert np.abs(s - exact).max() <= (8 + n / 2) * np.finfo(dtype).eps * exact.max()
    np.testing.assert_array_equal(loops(svd, a, full_matrices=False, compute_uv=False)[0], s)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 6, 2), (1, 4), (4, 1)], ids=str)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.selected(1)
def test_rectangles(shape: tuple[int, ...], full: bool) -> None:
    for dtype in ("f8", "c16"):
        a = normal(*shape, dtype=dtype)
        for found, value in zip(loops(lu, a), routine(lu, a), strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-13, atol=1e-13)
        for found, value in zip(
            loops(qr, a, full_matrices=full), routine(qr, a, full_matrices=full), strict=True
        ):
            np.testing.assert_allclose(found, value, rtol=1e-13, atol=1e-13)  # the same signs
        u, s, vh = loops(svd, a, full_matrices=full, compute_uv=True)
        wanted = routine(svd, a, full_matrices=full, compute_uv=True)
        assert [x.shape for x in (u, s, vh)] == [x.shape for x in wanted]
        k = s.shape[-1]
        assert rounding((u[..., :k] * s[..., None, :]) @ vh[..., :k, :] - a, a) < 10
        assert off_identity(u) < 20 and off_identity(adjoint(vh)) < 20


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 5, 5), (16, 16)], ids=str)
def test_forms_are_those_of_lapack(shape: tuple[int, ...], dtype: str) -> None:
    """Hessenberg and tridiagonal ones, with the reflectors; of the triangle that is not read nothing is used."""
    a = normal(*shape, dtype=dtype)
    tolerance = 40 * shape[-1] * np.finfo(dtype).eps
    for found, wanted in zip(loops(hessenberg, a), routine(hessenberg, a), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    unread = np.where(np.tri(shape[-1]) > 0, a + adjoint(a), np.nan).astype(dtype)
    for lower, half in ((True, unread), (False, adjoint(unread))):
        results, values = (f(tridiagonal, half, lower=lower) for f in (loops, routine))
        for found, wanted in zip(results, values, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 5), (2, 16, 16)], ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_columns_are_ordered(shape: tuple[int, ...], full: bool, dtype: str) -> None:
    """What is left of them decreases, and the matrix is that of the ordered columns; zeros keep their order."""
    a = normal(*shape, dtype=dtype)
    q, r, order = loops(pivoted_qr, a, full_matrices=full)
    assert rounding(q.astype("c16") @ r - np.take_along_axis(a, order[..., None, :], -1), a) < 8
    assert off_identity(q) < 10 + shape[-2]
    sizes = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
    assert (np.diff(sizes) <= 8 * np.finfo(dtype).eps * sizes[..., :-1]).all() and np.array_equal(r, np.triu(r))
    _, wanted, wanted_order = routine(pivoted_qr, a, full_matrices=full)
    np.testing.assert_array_equal(order, wanted_order)
    np.testing.assert_allclose(r, wanted, rtol=0, atol=60 * np.finfo(dtype).eps * sizes.max())
    (_, r, order) = loops(pivoted_qr, np.zeros_like(a), full_matrices=full)
    assert not r.any() and (order == np.arange(shape[-1])).all()


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.selected(1)
def test_triangular_systems_of_every_kind(dtype: str) -> None:
    """What is not read may hold anything."""
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    choices = [dict(zip(names, flags, strict=True)) for flags in product((False, True), repeat=5)]
    a = normal(2, 6, 6, dtype=dtype) + 4 * np.eye(6)
    rows, columns = normal(2, 6, 3, dtype=dtype), normal(2, 3, 6, dtype=dtype)
    unread = {}
    for lower, unit in product((False, True), repeat=2):
        read = np.tril(np.ones((6, 6)), -unit) if lower else np.triu(np.ones((6, 6)), unit)
        unread[lower, unit] = np.where(read > 0, a, np.nan)

    def all_of_them(a: Any, rows: Any, columns: Any, *matrices: Any) -> list[Any]:
        given = dict(zip(unread, matrices, strict=True))
        return [
            triangular_solve(given[p["lower"], p["unit_diagonal"]], rows if p["left_side"] else columns, **p)
            for p in choices
        ]

    results = decomposed(ReferenceBackend(), all_of_them, a, rows, columns, *unread.values())
    for params, found in zip(choices, results, strict=True):
        (wanted,) = routine(triangular_solve, a, rows if params["left_side"] else columns, **params)
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11, err_msg=str(params))


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_systems_from_lu_factors(dtype: str) -> None:
    a, b = normal(3, 7, 7, dtype=dtype), normal(3, 7, 2, dtype=dtype)
    factors, _, permutation = routine(lu, a)
    for transposed, conjugated in product((False, True), repeat=2):
        op = a.conj() if conjugated else a
        op = op.swapaxes(-1, -2) if transposed else op
        params = {"transpose_a": transposed, "conjugate_a": conjugated}
        (x,) = loops(lu_solve, a, factors, permutation, b, **params)
        np.testing.assert_allclose(op @ x, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 60])
def test_tridiagonal_systems_that_need_pivots(n: int, dtype: str) -> None:
    below, diagonal, above = (normal(3, n, dtype=dtype, seed=seed) for seed in range(3))
    diagonal[1] *= 1e-6
    if n > 1:
        diagonal[2, 0] = below[2, 1] = 0  # singular
        above[0, -1] = below[0, 0] = np.nan  # not read
    b = normal(3, n, 2, dtype=dtype)
    (found,), (wanted,) = (f(tridiagonal_solve, below, diagonal, above, b) for f in (loops, routine))
    assert np.isnan(found[2]).all() == (n > 1)
    scale = np.abs(wanted[:2]).max()
    assert np.abs(found[:2] - wanted[:2]).max() <= 200 * np.finfo(dtype).eps * scale


# ------------------------------------------------------------- transforms
LENGTHS = (1, 2, 3, 4, 6, 8, 13, 17, 30, 61, 64, 67, 97, 128, 134, 210, 509, 1000, 1024)


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
def test_lengths_of_all_kinds(kind: str) -> None:
    """Powers, products of small factors, small primes, and large ones: as accurate as NumPy's up to a small factor."""
    dtype = "f8" if kind == "rfft" else "c16"
    signals = [normal(2, n // 2 + 1 if kind == "irfft" else n, dtype=dtype) for n in LENGTHS]

    def transforms(*xs: Any) -> list[Any]:
        return [fft(x, kind=kind, lengths=(n,)) for x, n in zip(xs, LENGTHS, strict=True)]

    for n, x, found in zip(LENGTHS, signals, decomposed(ReferenceBackend(), transforms, *signals), strict=True):
        (wanted,) = routine(fft, x, kind=kind, lengths=(n,))
        assert np.linalg.norm(found - wanted) <= 8 * np.finfo("f8").eps * np.linalg.norm(wanted), n


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_several_axes_and_single_precision(dtype: str) -> None:
    x = normal(2, 6, 5, 8, dtype=dtype)
    half = np.fft.rfftn(x, axes=(1, 2, 3)).astype(np.result_type(dtype, "c8"))
    for found, wanted in (
        (loops(fft, x, kind="rfft", lengths=(6, 5, 8)), half),
        (loops(fft, half, kind="irfft", lengths=(6, 5, 8)), x),
        (loops(fft, half, kind="fft", lengths=(5, 5)), np.fft.fft2(half)),
    ):
        assert found[0].dtype == wanted.astype(found[0].dtype).dtype
        assert np.linalg.norm(found[0] - wanted) < 4 * np.finfo(dtype).eps * np.linalg.norm(wanted)


@pytest.mark.parametrize("n", [12, 67])
def test_a_row_with_nan_spoils_no_other_transform(n: int) -> None:
    x = normal(3, n, dtype="c16")
    x[1, 2] = np.nan
    (found,) = loops(fft, x, kind="fft", lengths=(n,))
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False] and not np.isnan(found[[0, 2]]).any()


# ------------------------------------------------------------- what has no factors, or many
def test_matrices_that_fail_in_a_batch() -> None:
    """NaN for them, as LAPACK's failures are, and the others as they were."""
    good = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 1.0]])
    indefinite, infinite, absent = good - 2 * np.eye(3), good * np.inf, good.copy()
    absent[2, 0] = absent[0, 2] = np.nan
    batch = np.stack([good, indefinite, absent, infinite, -good])
    (factors,) = loops(cholesky, batch)
    finite = [0, 1, 4]
    np.testing.assert_allclose(factors[finite], routine(cholesky, batch[finite])[0], rtol=1e-14)
    assert np.isnan(factors[2]).any() and not np.isnan(factors[0]).any() and np.isnan(factors[1, 2, 2])
    for primitive, params in ((eigh, {"lower": True}), (svd, {"full_matrices": False, "compute_uv": True})):
        results, wanted = loops(primitive, batch, **params), routine(primitive, batch, **params)
        for result, value in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(np.isnan(result), np.isnan(value))
            assert np.isnan(result[2:4]).all() and not np.isnan(result[[0, 1, 4]]).any()


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_pivots_are_those_of_lapack(dtype: str) -> None:
    """Of equal ones the first; zero columns, NaN and infinities included."""
    ties = np.random.default_rng(1).integers(-1, 2, (40, 4, 4)).astype(dtype)
    singular = np.ones((1, 4, 4), dtype)
    absent = np.where(np.eye(4) > 0, np.nan, ties[:2])
    batch = np.concatenate([ties, singular, np.zeros((1, 4, 4), dtype), absent])
    for found, wanted in zip(loops(lu, batch), routine(lu, batch), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.thorough
def test_equal_eigenvalues_and_deficient_ranks() -> None:
    """Vectors are orthonormal all the same."""
    reflection = np.eye(6) - 2 * np.outer([1.0] * 6, [1.0] * 6) / 6
    for a in (np.zeros((6, 6)), reflection, np.ones((6, 6)), np.diag([1e-300, 1, 1, 1e300, 0, 5])):
        values, vectors = loops(eigh, a, lower=True)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(a), rtol=1e-14, atol=2e-15 * np.abs(a).max())
        assert off_identity(vectors) < 10
    steep = normal(7, 7) @ np.diag(10.0 ** -np.arange(0, 140, 20)) @ normal(7, 7, seed=1)
    for a in (np.zeros((3, 5)), np.ones((5, 3)), np.outer(np.arange(4.0), np.arange(6.0)), steep, steep * 1e150):
        u, s, vh = loops(svd, a, full_matrices=True, compute_uv=True)
        k = len(s)
        assert np.linalg.norm((u[:, :k] * s) @ vh[:k] - a) <= 1e-14 * np.linalg.norm(a)
        assert off_identity(u) < 20 and off_identity(vh.T) < 20 and (np.diff(s) <= 0).all()


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 0), (0, 3, 3), (0, 0)], ids=str)
def test_matrices_without_elements(shape: tuple[int, ...]) -> None:
    a = np.zeros(shape)
    calls: list[tuple[Any, dict[str, Any]]] = [(lu, {})]
    calls += [(qr, {"full_matrices": full}) for full in (False, True)]
    calls += [(svd, {"full_matrices": full, "compute_uv": uv}) for full, uv in product((False, True), repeat=2)]
    calls += [(cholesky, {}), (eigh, {"lower": True})] if shape[-1] == shape[-2] else []
    for primitive, params in calls:
        for found, wanted in zip(loops(primitive, a, **params), routine(primitive, a, **params), strict=True):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_array_equal(found, wanted)


def test_products_of_no_reflectors() -> None:
    (q,) = loops(householder_product, normal(2, 4, 3), np.zeros((2, 0)))
    np.testing.assert_array_equal(q, np.broadcast_to(np.eye(4, 3), (2, 4, 3)))
