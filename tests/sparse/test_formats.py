"""Sparse formats and products against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_systems import drawn

import rlx
from rlx import errors, sparse
from rlx.experimental import checkify
from rlx.testing import check_grads

FORMATS = {
    "csr": sparse.CSR.fromscipy,
    "csc": sparse.CSC.fromscipy,
    "coo": sparse.COO.fromscipy,
    "bsr": lambda m: sparse.BSR.fromscipy(m, (3, 2)),
    "dia": sparse.DIA.fromscipy,
}
SIZES = [(12, 18, 43), (1, 40, 90), (9, 4, 0), (0, 4, 0), (6, 2, 60), (3, 0, 0), (3, 900, 5000)]


def values(*shape: int, dtype: str = "f8") -> np.ndarray:
    rng = np.random.default_rng(7)
    return (rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.startswith("c") else 0)).astype(dtype)


def assert_rows_equal(found: Any, wanted: np.ndarray, matrix: Any, x: np.ndarray) -> None:
    """Each row within 1e-14 of the sum of its terms' sizes."""
    scale = abs(matrix) @ abs(x)
    eps = np.finfo(wanted.dtype).eps
    assert np.all(np.abs(np.asarray(found) - wanted) <= 64 * eps * scale + np.finfo(wanted.dtype).tiny)


@pytest.mark.selected("all")
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_are_scipys(size: tuple[int, int, int], dtype: str) -> None:
    rows, columns, stored = size
    m = drawn(rows, columns, stored, dtype)
    for index in ("i4", "i8"):
        csr = m.tocsr()
        a = sparse.CSR(csr.data, csr.indices.astype(index), csr.indptr.astype(index), csr.shape)
        assert a.indices.dtype == index
        for count in (1, 3, 8, 29):
            x, y = values(columns, count, dtype=dtype), values(rows, count, dtype=dtype)
            assert_rows_equal(a @ x, csr @ x, csr, x)
            assert_rows_equal(rlx.jit(lambda a, x: a.T @ x)(a, y), csr.T @ y, csr.T, y)
        np.testing.assert_array_equal(a @ x[:, 0], a @ x[:, :1][:, 0])


@pytest.mark.parametrize("format", FORMATS)
def test_every_format(format: str) -> None:
    m = sp.csr_array(drawn(12, 18, 43))
    a, dense = FORMATS[format](m), m.toarray()
    x, y = values(18, 3), values(12)
    close = {"atol": 1e-13}
    np.testing.assert_allclose(a.todense(), dense, **close)
    np.testing.assert_allclose(a.toscipy().toarray(), dense, **close)
    np.testing.assert_allclose(a @ x, dense @ x, **close)
    np.testing.assert_allclose(y @ a, y @ dense, **close)
    np.testing.assert_allclose(a @ np.stack([x, 2 * x]), dense @ np.stack([x, 2 * x]), **close)
    np.testing.assert_allclose(a.T.todense(), dense.T, **close)
    np.testing.assert_allclose(rlx.jit(lambda a, x: a.T @ x)(a, y), dense.T @ y, **close)
    np.testing.assert_allclose((a * 2.0 - a / 4).todense(), 1.75 * dense, **close)
    np.testing.assert_allclose((a * y[:, None]).todense(), y[:, None] * dense, **close)
    np.testing.assert_allclose((-a + a * a).todense(), dense * dense - dense, **close)
    np.testing.assert_allclose(a.diagonal(), np.diagonal(dense), **close)
    gradient = rlx.grad(lambda a: (a @ x).sum())(a)
    assert type(gradient) is type(a)
    stored = np.asarray(a.with_data(np.ones_like(a.data)).todense()) != 0
    np.testing.assert_allclose(np.asarray(gradient.todense())[stored], (np.ones((12, 3)) @ x.T)[stored], **close)
    assert rlx.tree.structure(a) == rlx.tree.structure(a * 2.0)
    assert a.astype("float32").dtype == "float32"


def test_sums_and_products_of_sparse_matrices() -> None:
    a, b, c = sp.csr_array(drawn(7, 5, 12)), sp.csr_array(drawn(7, 5, 9, seed=1)), sp.csr_array(drawn(5, 6, 13))
    x, y, z = map(sparse.CSR.fromscipy, (a, b, c))
    close = {"atol": 1e-14}
    np.testing.assert_allclose((x + y).todense(), (a + b).toarray(), **close)
    np.testing.assert_allclose((x * y).todense(), (a * b).toarray(), **close)
    np.testing.assert_allclose((x @ z).todense(), (a @ c).toarray(), **close)
    np.testing.assert_allclose(sparse.spgemm(x, z, nse=40).todense(), (a @ c).toarray(), **close)
    assert (x @ z).nnz == (a @ c).nnz
    check_grads(lambda p, q: (x.with_data(p) @ z.with_data(q)).data, (x.data, z.data), order=2)
    check_grads(lambda p, q: (x.with_data(p) + y.with_data(q)).data, (x.data, y.data), order=1)
    u, v = values(7, 3), values(3, 5)
    np.testing.assert_allclose(sparse.sddmm(u, v, x).todense(), (u @ v) * (a != 0).toarray(), **close)


def test_duplicates_order_and_zeros() -> None:
    a = sparse.CSR(np.array([1.0, 2.0, 3.0, 0.0, 5.0]), [2, 0, 2, 1, 1], [0, 4, 5], (2, 3))
    dense = [[2.0, 0.0, 4.0], [0.0, 5.0, 0.0]]
    assert a.todense().tolist() == dense and a.toscipy().toarray().tolist() == dense
    summed = a.sum_duplicates()
    assert summed.indices.tolist() == [0, 1, 2, 1] and summed.data.tolist() == [2.0, 0.0, 4.0, 5.0]
    assert a.sort_indices().indices.tolist() == [0, 1, 2, 2, 1]
    assert a.eliminate_zeros().nnz == 4
    assert a.getrow(0).todense().tolist() == [dense[0]]
    assert sparse.transpose_values(a).tolist() == [2.0, 0.0, 5.0, 1.0, 3.0]
    c = sparse.COO(np.array([1.0, 2.0, 4.0]), [1, 0, 1], [0, 1, 0], (2, 2))
    assert rlx.jit(lambda c: c)(c).todense().tolist() == [[0.0, 2.0], [5.0, 0.0]]


def test_a_zero_does_not_spread_nan() -> None:
    a = sparse.CSR(np.ones(1), [1], [0, 0, 1], (2, 2))
    assert (a @ np.array([np.nan, 1.0])).tolist() == [0.0, 1.0]


def test_construction() -> None:
    a, b = sp.csr_array(drawn(4, 5, 9)), sp.csr_array(drawn(4, 5, 8, seed=3))
    x, y = sparse.CSR.fromscipy(a), sparse.CSR.fromscipy(b)
    for found, wanted in (
        (sparse.kron(x, y), sp.kron(a, b)),
        (sparse.vstack([x, y]), sp.vstack([a, b])),
        (sparse.hstack([x, y]), sp.hstack([a, b])),
        (sparse.block_diag([x, y]), sp.block_diag([a, b])),
        (sparse.eye(3, 4, k=1), sp.eye_array(3, 4, k=1)),
        (
            sparse.diags([[1.0, 2.0], 3.0], [-1, 1], (3, 4)),
            sp.diags_array([[1.0, 2.0], 3.0], offsets=[-1, 1], shape=(3, 4)),
        ),
    ):
        np.testing.assert_array_equal(found.todense(), wanted.toarray())
    check_grads(lambda p: sparse.kron(x.with_data(p), y).data, (x.data,), order=1)


# ------------------------------------------------------------- derivatives and batches
def test_derivatives_of_products() -> None:
    m = sp.csr_array(drawn(6, 4, 11))
    a, x = sparse.CSR.fromscipy(m), values(4)
    check_grads(lambda d, x: a.with_data(d) @ x, (a.data, x), order=2)
    check_grads(lambda d, x: x @ sparse.COO.from_csr(a.with_data(d)), (a.data, values(6)), order=2)


def test_batches_of_values_vectors_and_patterns() -> None:
    m = sp.csr_array(drawn(6, 4, 11))
    a, data = sparse.CSR.fromscipy(m), values(3, m.nnz)
    x = values(3, 4)
    looped = np.stack([np.asarray(a.with_data(d) @ v) for d, v in zip(data, x, strict=True)])
    batched = rlx.vmap(lambda d, v: a.with_data(d) @ v)
    np.testing.assert_allclose(batched(data, x), looped, atol=1e-14)
    np.testing.assert_allclose(rlx.vmap(lambda v: a @ v)(x), x @ m.T.toarray(), atol=1e-14)
    check_grads(batched, (data, x), order=2)
    other = sp.csr_array(drawn(6, 4, 11, seed=5))
    count = min(m.nnz, other.nnz)
    patterns = [(p.data[:count], p.indices[:count], np.minimum(p.indptr, count)) for p in (m, other)]
    stacked = [np.stack(parts) for parts in zip(*patterns, strict=True)]
    product = rlx.vmap(lambda d, i, p, v: sparse.CSR(d, i, p, (6, 4)) @ v)(*stacked, x[:2])
    looped = [sp.csr_array(p, shape=(6, 4)) @ v for p, v in zip(patterns, x, strict=False)]
    np.testing.assert_allclose(product, np.stack(looped), atol=1e-14)


def test_traced_indices() -> None:
    m = sp.csr_array(drawn(6, 4, 11))
    multiply = rlx.jit(lambda d, i, p, x: sparse.CSR(d, i, p, (6, 4)) @ x)
    np.testing.assert_allclose(multiply(m.data, m.indices, m.indptr, values(4)), m @ values(4), atol=1e-14)
    outside = np.where(np.arange(m.nnz) == 2, 9, m.indices)
    inside = sp.csr_array((np.where(outside > 3, 0, m.data), m.indices, m.indptr), shape=m.shape)
    np.testing.assert_allclose(multiply(m.data, outside, m.indptr, values(4)), inside @ values(4), atol=1e-14)
    decreasing = m.indptr[::-1].copy()
    assert np.isfinite(np.asarray(multiply(m.data, m.indices, decreasing, values(4)))).all()
    dense = rlx.jit(lambda x: sparse.from_dense(x, nse=5).todense())(np.eye(3))
    np.testing.assert_array_equal(dense, np.eye(3))


def test_checkify_reports_traced_indices_that_are_outside() -> None:
    def multiply(d: Any, i: Any, p: Any) -> Any:
        return sparse.CSR(d, i, p, (2, 2)) @ np.ones(2)

    checked = rlx.jit(checkify.checkify(multiply))
    good, outside, decreasing = ([0, 1], [0, 1, 2]), ([0, 2], [0, 1, 2]), ([0, 1], [0, 2, 1])
    messages = [checked(np.ones(2), np.array(i), np.array(p))[0].get() for i, p in (good, outside, decreasing)]
    assert messages[0] is None and "outside" in messages[1] and "increasing" in messages[2]


def test_a_pattern_is_compiled_once() -> None:
    traces = []

    def multiply(a: Any, x: Any) -> Any:
        traces.append(1)
        return a @ x

    f, m = rlx.jit(multiply), sp.csr_array(drawn(6, 4, 11))
    for matrix in (m, m.copy() * 2, sp.csr_array(drawn(6, 4, 11, seed=5))):
        f(sparse.CSR.fromscipy(matrix), values(4))
    assert len(traces) == 2


@pytest.mark.parametrize("device", ["reference", "c", "numba", "opencl"])
def test_other_devices_add_products_to_rows(device: str) -> None:
    try:
        rlx.devices(device)
    except (errors.DeviceError, RuntimeError) as error:
        pytest.skip(str(error))
    m = sp.csr_array(drawn(6, 4, 11))
    a = sparse.CSR.fromscipy(m)
    function = rlx.jit(lambda d, x: (a.with_data(d) @ x).sum(), device=device)
    found = rlx.grad(function, argnums=(0, 1))(m.data, values(4))
    wanted = rlx.grad(lambda d, x: (a.with_data(d) @ x).sum(), argnums=(0, 1))(m.data, values(4))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), atol=1e-13)


# ------------------------------------------------------------- mistakes
@pytest.mark.selected("all")
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: sparse.CSR(np.ones(2), [0, 1], [1, 1, 2], (2, 2)), errors.ShapeError, "starts at 0"),
        (lambda: sparse.CSR(np.ones(2), [0, 1], [0, 1, 3], (2, 2)), errors.ShapeError, "ends at the number"),
        (lambda: sparse.CSR(np.ones(2), [0, 1], [0, 3, 2], (2, 2)), errors.ShapeError, "never decreases"),
        (lambda: sparse.CSR(np.ones(2), [0, 2], [0, 1, 2], (2, 2)), errors.IndexBoundsError, "from 0 to 1"),
        (lambda: sparse.CSR(np.ones(2), [0, -1], [0, 1, 2], (2, 2)), errors.IndexBoundsError, "negative"),
        (lambda: sparse.CSR(np.ones(3), [0, 1], [0, 1, 2], (2, 2)), errors.ShapeError, "one index for each"),
        (lambda: sparse.CSR(np.ones(2), [0.0, 1.0], [0, 1, 2], (2, 2)), errors.DtypeError, "int32 or int64"),
        (lambda: sparse.CSR(np.ones(2), [0, 1], [0, 1, 2], (2,)), errors.ShapeError, "two sizes"),
        (lambda: sparse.COO(np.ones(1), [2], [0], (2, 2)), errors.IndexBoundsError, "row 2"),
        (lambda: sparse.eye(3) @ np.ones(2), errors.ShapeError, "has 3 elements"),
        (lambda: sparse.eye(3) + sparse.eye(2), errors.ShapeError, "must be equal"),
        (lambda: sparse.eye(3, dtype="int32") @ np.ones(3, np.int32), errors.DtypeError, "Convert to float32"),
        (lambda: sparse.from_dense(np.eye(2), format="xyz"), errors.OptionError, "'coo'"),
        (lambda: sparse.spgemm(sparse.eye(2), sparse.eye(2), nse=1), errors.ShapeError, "at least as many"),
        (lambda: rlx.jit(lambda x: sparse.from_dense(x).data)(np.eye(2)), errors.ConcretizationTypeError, "nse"),
        (
            lambda: rlx.jit(lambda i: sparse.CSR(np.ones(2), i, [0, 1, 2], (2, 2)) @ sparse.eye(2))(np.arange(2)),
            errors.ConcretizationTypeError,
            "indices are traced",
        ),
    ],
)
def test_mistakes(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()
