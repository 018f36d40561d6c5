"""Products with sparse matrices under the names of the field."""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import InputTypeError, ShapeError
from rlx.numpy.promotion import promote
from rlx.sparse.compressed import CSR
from rlx.sparse.matrix import SparseMatrix
from rlx.trace.flat import as_array

__all__ = ["matmat", "matvec", "rmatvec", "sddmm", "spgemm", "transpose_values"]


def _matrix(name: str, a: Any) -> SparseMatrix:
    if not isinstance(a, SparseMatrix):
        raise InputTypeError(f"{name} got {type(a).__name__} for a sparse matrix.", "Use sparse.from_dense(a).")
    return a


def _dense(name: str, x: Any, ndim: int) -> Array:
    array = as_array(x)
    if array.ndim != ndim:
        raise ShapeError(f"{name} got an array of shape {array.shape}.", f"It needs {ndim} axes; A @ x takes any.")
    return array


def matvec(a: Any, x: Any) -> Array:
    """The product of a sparse matrix [m, n] with a vector [n].

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.matvec(sparse.eye(2), np.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return _matrix("matvec", a) @ _dense("matvec", x, 1)


def rmatvec(a: Any, x: Any) -> Array:
    """The product of the adjoint of a sparse matrix [m, n], transposed and conjugated, with a vector [m].

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.rmatvec(sparse.CSR.from_dense(np.array([[1.0, 2.0]])), np.array([3.0])).tolist()
    [3.0, 6.0]
    """
    return _matrix("rmatvec", a).T.conj() @ _dense("rmatvec", x, 1)


def matmat(a: Any, x: Any) -> Array:
    """The product of a sparse matrix [m, n] with a dense one [n, k].

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.matmat(sparse.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    return _matrix("matmat", a) @ _dense("matmat", x, 2)


def spgemm(a: Any, b: Any, *, nse: int | None = None) -> CSR:
    """The product of two sparse matrices, by rows; the places of both must be known.

    The places of the product are found once, on the host. nse: the number of elements to store, not less than there
    are: the others are zeros at the end of the last row.

    Raises: ConcretizationTypeError for traced indices, ShapeError if the sizes differ or nse is too small.

    >>> from rlx import sparse
    >>> sparse.spgemm(sparse.eye(2), sparse.eye(2)).nnz
    2
    """
    found = _matrix("spgemm", a) @ _matrix("spgemm", b)
    if nse is None or nse == found.nnz:
        return found
    if nse < found.nnz or not all(found.shape):
        raise ShapeError(f"spgemm got nse={nse}, but the product has {found.nnz} elements.", "Pass at least as many.")
    more = nse - found.nnz
    last = found.indptr.at[-1].add(more)
    indices = jnp.concatenate([found.indices, jnp.zeros(more, found.indices.dtype)])
    return CSR(jnp.concatenate([found.data, jnp.zeros(more, found.dtype)]), indices, last, found.shape)


def sddmm(x: Any, y: Any, pattern: Any) -> CSR:
    """The elements of x @ y at the stored places of a sparse matrix, without the other elements.

    Args: x: dense [m, k]; y: dense [k, n]; pattern: a sparse matrix [m, n], whose elements are not read.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.sddmm(np.ones((2, 3)), np.ones((3, 2)), sparse.eye(2)).data.tolist()
    [3.0, 3.0]
    """
    left, right = promote("sddmm", _dense("sddmm", x, 2), _dense("sddmm", y, 2))
    places = _matrix("sddmm", pattern).tocsr()
    if (left.shape[0], right.shape[1]) != places.shape or left.shape[1] != right.shape[0]:
        raise ShapeError(
            f"sddmm got x of shape {left.shape} and y of shape {right.shape} for a pattern of shape {places.shape}."
        )
    return places.sample(left, right.T)


def transpose_values(a: Any) -> Array:
    """The stored elements in the order of the transposed matrix by rows.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.transpose_values(sparse.CSR.from_dense(np.array([[1.0, 2.0], [3.0, 0.0]]))).tolist()
    [1.0, 3.0, 2.0]
    """
    return _matrix("transpose_values", a).tocsr().T.tocsr().data
