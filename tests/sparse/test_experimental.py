"""rlx.experimental.sparse against jax.experimental.sparse, where jax is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.experimental import sparse

DENSE = np.array([[0.0, 2, 0], [3, 0, 4]])


def test_functions() -> None:
    m = sparse.bcoo_fromdense(DENSE)
    assert sparse.bcoo_todense(m).tolist() == DENSE.tolist()
    assert sparse.bcoo_transpose(m, permutation=(1, 0)).todense().tolist() == DENSE.T.tolist()
    assert sparse.bcoo_reduce_sum(m, axes=(1,)).todense().tolist() == DENSE.sum(1).tolist()
    assert sparse.bcoo_multiply_dense(m, np.arange(3.0)).tolist() == [2.0, 0.0, 8.0]
    x = np.arange(6.0).reshape(2, 3)
    for axes, wanted in ((([1], [1]), DENSE @ x.T), (([0], [0]), DENSE.T @ x)):
        found = sparse.bcoo_dot_general(m, x, dimension_numbers=(axes, ([], [])))
        np.testing.assert_allclose(found, wanted)
    rows = sparse.bcsr_fromdense(DENSE)
    np.testing.assert_allclose(rows @ x.T, DENSE @ x.T)
    np.testing.assert_allclose(rows.T @ x, DENSE.T @ x)
    with pytest.raises(errors.UnsupportedError, match="operator @"):
        sparse.bcoo_dot_general(m, m.T, dimension_numbers=(([1], [0]), ([], [])))
    np.testing.assert_array_equal(sparse.eye(2, 4, k=1).todense(), np.eye(2, 4, k=1))
    assert sparse.empty((2, 3), nse=4).todense().tolist() == np.zeros((2, 3)).tolist()


def test_derivatives_in_elements() -> None:
    m = sparse.bcoo_fromdense(DENSE)

    def loss(m: sparse.BCOO, x: np.ndarray) -> rlx.Array:
        return ((m @ x) ** 2).sum()

    x = np.array([1.0, -2.0, 3.0])
    by_elements, by_x = rlx.jit(sparse.grad(loss, argnums=(0, 1)))(m, x)
    dense, dense_x = rlx.grad(lambda a, x: ((a @ x) ** 2).sum(), argnums=(0, 1))(DENSE, x)
    np.testing.assert_allclose(by_elements.data, np.asarray(dense)[DENSE != 0])
    np.testing.assert_allclose(by_x, dense_x)


def test_spsolve() -> None:
    a = np.array([[4.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 5.0]])
    rows = sparse.bcsr_fromdense(a)
    b = np.array([1.0, 2.0, 3.0])

    def solve(data: np.ndarray, b: np.ndarray) -> rlx.Array:
        return sparse.linalg.spsolve(data, rows.indices, rows.indptr, b)

    np.testing.assert_allclose(solve(rows.data, b), np.linalg.solve(a, b))
    rlx.testing.check_grads(rlx.jit(solve), (rows.data, b), order=2)
    rlx.testing.check_grads(solve, (rows.data, b), order=1)


def test_formats_and_places() -> None:
    """Keywords of JAX's functions: what there is is made, the rest is refused."""
    for kind, name in ((sparse.BCOO, "bcoo"), (sparse.BCSR, "bcsr")):
        shifted, nothing = sparse.eye(3, 4, 1, sparse_format=name), sparse.empty((2, 3), nse=2, sparse_format=name)
        assert type(shifted) is type(nothing) is kind
        assert shifted.todense().tolist() == np.eye(3, 4, 1).tolist() and not nothing.todense().any()
        with pytest.raises(errors.UnsupportedError, match="n_batch=1, n_dense=0"):
            kind.fromdense(DENSE, n_batch=1)
    for make in (lambda: sparse.eye(2, sparse_format="csc"), lambda: sparse.empty((2, 2), sparse_format="csc")):
        with pytest.raises(errors.UnsupportedError, match="sparse_format='csc'"):
            make()
    place, axes = rlx.sharding.SingleDeviceSharding(rlx.devices()[0]), (([1], [0]), ([], []))
    for multiply, m in (
        (sparse.bcoo_dot_general, sparse.bcoo_fromdense(DENSE)),
        (sparse.bcsr_dot_general, sparse.bcsr_fromdense(DENSE)),
    ):
        found = multiply(m, np.arange(3.0), dimension_numbers=axes, out_sharding=place)
        assert found.sharding == place and found.tolist() == (DENSE @ np.arange(3.0)).tolist()


def drawn(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return np.where(rng.random(shape) < 0.4, rng.normal(size=shape), 0)


def test_sparsify_of_contractions() -> None:
    """What e3nn-jax does with a sparse tensor of three axes."""
    a = drawn(3, 5, 7)
    for subscripts, shapes, place in (
        ("uvw,ijk,ui,vj->wk", [(2, 3, 4), (2, 3), (3, 5)], 1),
        ("u,ijk,ui,uj->uk", [(2,), (2, 3), (2, 5)], 1),
        ("ijk,ui,uj->k", [(2, 3), (2, 5)], 0),
        ("ijk,aj->aik", [(2, 5)], 0),
        ("ijk,ij->ijk", [(3, 5)], 0),
    ):
        others = [drawn(*shape) for shape in shapes]
        product = sparse.sparsify(lambda *x, subscripts=subscripts: jnp.einsum(subscripts, *x))
        args = [*others[:place], sparse.BCOO.fromdense(a), *others[place:]]
        wanted = np.einsum(subscripts, *others[:place], a, *others[place:])
        for found in (product(*args), rlx.jit(product)(*args)):
            np.testing.assert_allclose(sparse.todense(found), wanted, atol=1e-14)


FUNCTIONS: dict[str, Any] = {
    "mean": lambda m: jnp.mean(m, axis=0),
    "sums": lambda m: m.T + m - 2 * m / 3.0,
    "powers": lambda m: m**2,
    "reshape": lambda m: m.reshape(2, 8),
    "expanded": lambda m: jnp.expand_dims(m, 1),
    "of zero": lambda m: jnp.sqrt(abs(m)) + jnp.tanh(m),
    "scaled": lambda m: m * jnp.arange(4.0)[:, None] * jnp.arange(4.0),
    "all": lambda m: jnp.sum(m),
    "product": lambda m: (m @ jnp.arange(4.0)) + jnp.arange(4.0) @ m,
}


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sparsify_is_the_function_of_the_dense_array(name: str) -> None:
    dense, function = drawn(4, 4), FUNCTIONS[name]
    m = sparse.BCOO.fromdense(dense)
    twice = sparse.BCOO((jnp.concatenate([m.data, m.data]), jnp.concatenate([m.indices, m.indices])), shape=m.shape)
    for matrix, scale in ((m, 1), (twice, 2), (sparse.BCSR.fromdense(dense), 1)):
        wanted = function(jnp.asarray(scale * dense))
        for found in (sparse.sparsify(function)(matrix), rlx.jit(sparse.sparsify(function))(matrix)):
            np.testing.assert_allclose(sparse.todense(found), wanted, atol=1e-13)


def test_sparsify_refuses_functions_that_fill_zeros() -> None:
    m = sparse.BCOO.fromdense(drawn(4, 4))
    for function in (jnp.exp, lambda m: m + jnp.ones((4, 4)), lambda m: 1 / m, lambda m: jnp.sort(m)):
        with pytest.raises(errors.UnsupportedError, match="todense"):
            sparse.sparsify(function)(m)


def test_batch_axes_and_duplicates() -> None:
    indices = np.array([[[0, 1], [1, 2], [0, 1]], [[2, 2], [1, 1], [0, 0]]])
    m = sparse.BCOO((np.ones((2, 3)), indices), shape=(2, 3, 4))
    dense = np.zeros((2, 3, 4))
    np.add.at(dense, (np.arange(2)[:, None], *np.moveaxis(indices, -1, 0)), 1.0)
    np.testing.assert_array_equal(m.todense(), dense)
    np.testing.assert_array_equal(m.sum((0, 2)).todense(), dense.sum((0, 2)))
    once = sparse.bcoo_sum_duplicates(m)
    assert len({tuple(i) for i in once.indices.tolist() if i[0] < 2}) == 5
    np.testing.assert_array_equal(once.todense(), dense)
    np.testing.assert_array_equal(sparse.bcoo_reshape(m, new_sizes=(6, 4)).todense(), dense.reshape(6, 4))
    gradient = rlx.grad(lambda d: (sparse.BCOO((d, indices), shape=(2, 3, 4)).sum_duplicates().data ** 2).sum())
    np.testing.assert_array_equal(gradient(np.ones((2, 3))), [[4, 2, 4], [2, 2, 2]])


def test_names_are_jaxs() -> None:
    theirs = pytest.importorskip("jax.experimental.sparse")
    assert [name for name in sparse.__all__ if not hasattr(theirs, name) and name != "linalg"] == []
