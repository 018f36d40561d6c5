"""jax.experimental.sparse: matrices that store only some elements (numpyro).

BCOO and BCSR without dense axes, with products with dense arrays, sums and conversions. Batch axes become sparse ones.
"""

from __future__ import annotations

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


def _numbers(places: Array, shape: Any) -> Array:
    """The number of each position in the array, by rows."""
    steps = np.cumprod([1, *shape[:0:-1]])[::-1]
    return (places * jnp.array(steps[: len(shape)], places.dtype)).sum(-1)


def _without_batch(data: Array, indices: Array) -> tuple[Array, Array]:
    """Batch axes as further columns of the indices."""
    batch = indices.shape[:-2]
    if not batch or data.shape != indices.shape[:-1]:
        return data, indices
    numbers = jnp.stack(jnp.meshgrid(*map(jnp.arange, batch), indexing="ij"), -1).astype(indices.dtype)
    beside = jnp.broadcast_to(numbers[..., None, :], (*indices.shape[:-1], len(batch)))
    whole = jnp.concatenate([beside, indices], -1)
    return data.reshape(-1), whole.reshape(data.size, whole.shape[-1])


class BCOO(JAXSparse):
    """An array by the positions of its elements: data[k] is at indices[k]; elements at one position are added.

    Args:
      args: (data, indices), of shapes (n,) and (n, number of axes). With batch axes, (*batch, n) and
        (*batch, n, number of other axes), they are stored as if all axes were sparse.
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
        self.data, self.indices = _without_batch(*map(as_array, args))
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

    def with_data(self, data: Any) -> BCOO:
        """The array with other elements at the same positions."""
        return BCOO((data, self.indices), shape=self.shape, unique_indices=self.unique_indices)

    def astype(self, dtype: Any) -> BCOO:
        """The array with elements of another dtype."""
        return self.with_data(self.data.astype(dtype))

    def reshape(self, *shape: Any) -> BCOO:
        """The array with its elements in another shape."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        whole = np.broadcast_to(0, self.shape).reshape(sizes).shape
        dtype = self.indices.dtype if self.size <= np.iinfo(self.indices.dtype).max else np.dtype("i8")
        outside = jnp.any(self.indices >= jnp.array(self.shape), axis=-1)
        rest = jnp.where(outside, self.size, _numbers(self.indices.astype(dtype), self.shape))
        columns = []
        for size in whole[:0:-1]:
            columns.append(rest % size)
            rest = rest // size
        places = jnp.stack([*columns, rest][::-1][: len(whole) or 1], -1) if whole else self.indices[:, :0]
        return BCOO((self.data, places.astype(self.indices.dtype)), shape=whole)

    def sum(self, axis: Any = None) -> Any:
        """The sum of all elements; along axes, a sparse array."""
        if axis is None:
            return self.data.sum()
        gone = {a % self.ndim for a in np.atleast_1d(axis).tolist()}
        kept = [a for a in range(self.ndim) if a not in gone]
        inside = jnp.all(self.indices < jnp.array(self.shape, self.indices.dtype), axis=-1)
        places = self.indices[:, np.array(kept, int)]
        data = jnp.where(inside, self.data, jnp.zeros_like(self.data))
        return BCOO((data, places), shape=[self.shape[a] for a in kept])

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """The array with each position once, in order; the rest of `nse` elements (None: as many as now) are zeros
        outside of it."""
        if self.unique_indices and nse is None:
            return self
        outside = jnp.any(self.indices >= jnp.array(self.shape), axis=-1)
        size = self.nse if nse is None else nse
        keys = jnp.where(outside, self.size, _numbers(self.indices.astype("int64"), self.shape))
        found, places = jnp.unique(keys, size=size, fill_value=self.size, return_inverse=True)
        data = jnp.zeros(size, self.dtype).at[places.reshape(-1)].add(self.data, mode="drop")
        axes = jnp.unravel_index(jnp.minimum(found, max(self.size - 1, 0)), self.shape)
        inside = found < self.size
        columns = [jnp.where(inside, axis, n) for axis, n in zip(axes, self.shape, strict=True)]
        indices = jnp.stack(columns, -1).astype(self.indices.dtype)
        data = jnp.where(inside, data, jnp.zeros_like(data))
        return BCOO((data, indices), shape=self.shape, indices_sorted=True, unique_indices=True)

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
        return self.with_data(self.data * scale)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> BCOO:
        return self * (1 / jnp.asarray(other))

    def __pow__(self, power: Any) -> BCOO:
        if not isinstance(power, (int, float)) or power <= 0:
            raise UnsupportedError(f"A sparse array was raised to {power!r}.", "Zeros stay zeros for powers above 0.")
        whole = self.sum_duplicates()
        return whole.with_data(whole.data**power)

    def __add__(self, other: Any) -> BCOO:
        if not isinstance(other, BCOO) or other.shape != self.shape:
            raise UnsupportedError(
                f"A sparse array of shape {self.shape} was added to {type(other).__name__}.",
                "Add a BCOO of the same shape, or .todense().",
            )
        places = jnp.concatenate([self.indices, other.indices])
        return BCOO((jnp.concatenate([self.data, other.data]), places), shape=self.shape)

    def __sub__(self, other: Any) -> BCOO:
        return self + (-other)

    def __neg__(self) -> BCOO:
        return self.with_data(-self.data)

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
