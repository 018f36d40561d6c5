"""jax.experimental.sparse: matrices that store only some elements (numpyro).

BCOO and BCSR without batch and dense axes, with products with dense arrays, sums and conversions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.sparse.compressed import CSR
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = [
    "BCOO",
    "BCSR",
    "CuSparseEfficiencyWarning",
    "JAXSparse",
    "SparseEfficiencyError",
    "SparseEfficiencyWarning",
    "sparsify",
    "todense",
]


class SparseEfficiencyError(ValueError):
    """JAX's error for a sparse operation that needs a dense array. rlx does not raise it."""


class SparseEfficiencyWarning(UserWarning):
    """JAX's warning about a slow sparse operation. rlx does not issue it."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """JAX's warning about not using cuSPARSE. rlx does not issue it."""


def _checked(shape: Any, ndim: int, name: str) -> tuple[int, ...]:
    sizes = tuple(map(int, shape))
    if len(sizes) != ndim:
        raise ShapeError(
            f"{name} of shape {sizes} got indices for {ndim} axes.",
            "Batch and dense axes are not supported: pass one index for each axis.",
        )
    return sizes


class JAXSparse:
    """The base class of sparse arrays.

    >>> import numpy as np
    >>> from rlx.experimental.sparse import BCOO, JAXSparse
    >>> isinstance(BCOO.fromdense(np.eye(2)), JAXSparse)
    True
    """

    data: Any
    indices: Any
    shape: tuple[int, ...]

    @property
    def nse(self) -> int:
        """The number of stored elements."""
        return self.indices.shape[0]

    @property
    def dtype(self) -> Any:
        """dtype of the elements."""
        return self.data.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)


class BCOO(JAXSparse):
    """An array by the positions of its elements: data[k] is at indices[k]; elements at one position are added.

    Args:
      args: (data, indices), of shapes (n,) and (n, number of axes).
      shape: the array's shape.

    >>> import numpy as np
    >>> from rlx.experimental.sparse import BCOO
    >>> m = BCOO.fromdense(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> m.nse, (m @ np.array([1.0, 10.0])).tolist()
    (2, [20.0, 3.0])
    """

    def __init__(
        self, args: tuple[Any, Any], *, shape: Any, indices_sorted: bool = False, unique_indices: bool = False
    ) -> None:
        self.data, self.indices = map(as_array, args)
        self.shape = _checked(shape, self.indices.shape[-1], "BCOO")
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices

    @property
    def size(self) -> int:
        """The number of elements, including those that are not stored."""
        return int(np.prod(self.shape))

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = "int32"
    ) -> BCOO:
        """The nonzero elements of an array; `nse`, their number, is required for a traced array.

        Raises: UnsupportedError for batch axes and dense axes.
        """
        if n_batch or n_dense:
            raise UnsupportedError(
                f"fromdense got n_batch={n_batch}, n_dense={n_dense}.", "All axes of rlx's sparse arrays are sparse."
            )
        mat = as_array(mat)
        places = jnp.stack(jnp.nonzero(mat, size=nse, fill_value=mat.shape), axis=-1).astype(index_dtype)
        data = mat.at[tuple(jnp.moveaxis(places, -1, 0))].get(mode="fill", fill_value=0)
        return cls((data, places), shape=mat.shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """From a SciPy sparse matrix of any format."""
        coo = mat.tocoo()
        places = np.stack([coo.row, coo.col], axis=-1).astype(index_dtype or "int32")
        return cls((coo.data, places), shape=mat.shape)

    def todense(self) -> Array:
        """The dense array."""
        zeros = jnp.zeros(self.shape, self.dtype)
        return zeros.at[tuple(jnp.moveaxis(self.indices, -1, 0))].add(self.data, mode="drop")

    @property
    def T(self) -> BCOO:
        """The array with its axes reversed."""
        return self.transpose()

    def transpose(self, axes: Any = None) -> BCOO:
        """The array with its axes permuted."""
        order = tuple(range(self.ndim))[::-1] if axes is None else tuple(axes)
        return BCOO((self.data, self.indices[:, np.array(order)]), shape=[self.shape[a] for a in order])

    def sum(self, axis: Any = None) -> Any:
        """The sum of all elements, or along axes."""
        return self.data.sum() if axis is None else self.todense().sum(axis)

    def __matmul__(self, other: Any) -> Array:
        if isinstance(other, (BCOO, BCSR)):
            other = other.todense()
        return _product(self.indices[:, 0], self.indices[:, 1], self.data, self.shape, as_array(other))

    def __rmatmul__(self, other: Any) -> Array:
        return (self.T @ as_array(other).T).T

    def __mul__(self, other: Any) -> BCOO:
        scale = jnp.asarray(other)
        if scale.ndim:
            scale = jnp.broadcast_to(scale, self.shape)[tuple(jnp.moveaxis(self.indices, -1, 0))]
        return BCOO((self.data * scale, self.indices), shape=self.shape)

    __rmul__ = __mul__

    def __neg__(self) -> BCOO:
        return BCOO((-self.data, self.indices), shape=self.shape)

    def __repr__(self) -> str:
        return f"BCOO({self.dtype.name}{list(self.shape)}, nse={self.nse})"


class BCSR(JAXSparse):
    """A matrix by rows: the elements of row i are data[indptr[i]:indptr[i + 1]], in columns `indices`.

    >>> import numpy as np
    >>> from rlx.experimental.sparse import BCSR
    >>> m = BCSR.fromdense(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> m.indptr.tolist(), (m @ np.array([1.0, 10.0])).tolist()
    ([0, 1, 2], [20.0, 3.0])
    """

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Any, **_: Any) -> None:
        self.data, self.indices, self.indptr = map(as_array, args)
        self.shape = _checked(shape, 2, "BCSR")

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> BCSR:
        """From a BCOO matrix, with its elements in the order of rows."""
        order = jnp.argsort(mat.indices[:, 0], stable=True)
        rows = mat.indices[order]
        starts = jnp.searchsorted(rows[:, 0], jnp.arange(mat.shape[0] + 1)).astype(mat.indices.dtype)
        return cls((mat.data[order], rows[:, 1], starts), shape=mat.shape)

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = "int32"
    ) -> BCSR:
        """The nonzero elements of a matrix; arguments and errors as for BCOO."""
        found = BCOO.fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
        return cls.from_bcoo(found)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = "int32", **_: Any) -> BCSR:
        """From a SciPy sparse matrix of any format."""
        csr = mat.tocsr()
        return cls((csr.data, csr.indices.astype(index_dtype), csr.indptr.astype(index_dtype)), shape=mat.shape)

    def to_bcoo(self) -> BCOO:
        """The matrix by the positions of its elements."""
        rows = jnp.searchsorted(self.indptr, jnp.arange(self.nse), side="right") - 1
        return BCOO((self.data, jnp.stack([rows.astype(self.indices.dtype), self.indices], -1)), shape=self.shape)

    def todense(self) -> Array:
        """The dense matrix."""
        return self.to_bcoo().todense()

    def __matmul__(self, other: Any) -> Array:
        if isinstance(other, JAXSparse) or self.dtype.kind not in "fc" or self.dtype.itemsize < 4:
            return self.to_bcoo() @ other
        return CSR(self.data, self.indices, self.indptr, self.shape) @ other

    @property
    def T(self) -> BCSR:
        """The transposed matrix."""
        return BCSR.from_bcoo(self.to_bcoo().T)

    def __repr__(self) -> str:
        return f"BCSR({self.dtype.name}{list(self.shape)}, nse={self.nse})"


def _product(rows: Array, columns: Array, data: Array, shape: tuple[int, ...], dense: Array) -> Array:
    """Sums over the last axis but one of `dense` (the only one of a vector), as in matmul."""
    axis = -min(dense.ndim, 2)
    if len(shape) != 2 or dense.ndim == 0 or dense.shape[axis] != shape[1]:
        raise ShapeError(f"A sparse array of shape {shape} is multiplied with one of shape {dense.shape}.")
    scale = data.reshape(data.shape + (1,) * (dense.ndim - 1))
    front = jnp.moveaxis(dense, axis, 0)
    terms = scale * front.at[columns].get(mode="fill", fill_value=0)
    sums = jnp.zeros((shape[0], *front.shape[1:]), terms.dtype).at[rows].add(terms, mode="drop")
    return jnp.moveaxis(sums, 0, axis)


def todense(arr: Any) -> Any:
    """A sparse array as a dense one; others unchanged.

    >>> from rlx.experimental.sparse import todense
    >>> todense(3.0)
    3.0
    """
    return arr.todense() if isinstance(arr, JAXSparse) else arr


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """The function with sparse arrays as arguments. Their operators and methods work; rlx.numpy refuses them.

    >>> import numpy as np
    >>> from rlx.experimental.sparse import BCOO, sparsify
    >>> sparsify(lambda m, x: m @ x)(BCOO.fromdense(np.eye(2)), np.ones(2)).tolist()
    [1.0, 1.0]
    """
    return f


def _made(kind: Any, shape: Any, children: Any) -> Any:
    """A matrix around values that a transform substituted for its arrays, unchecked."""
    made = object.__new__(kind)
    names = ("data", "indices", "indptr") if kind is BCSR else ("data", "indices")
    made.__dict__.update(zip(names, children, strict=True), shape=shape, indices_sorted=False, unique_indices=False)
    return made


tree.register_node(BCOO, lambda m: ((m.data, m.indices), m.shape), lambda shape, kids: _made(BCOO, shape, kids))
tree.register_node(
    BCSR, lambda m: ((m.data, m.indices, m.indptr), m.shape), lambda shape, kids: _made(BCSR, shape, kids)
)
