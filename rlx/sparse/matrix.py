"""SparseMatrix: the operators that all formats have."""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

import rlx.numpy as jnp
from rlx.advice.habits import missing_name
from rlx.array import Array
from rlx.errors import InputTypeError, ShapeError, UnsupportedError
from rlx.numpy.promotion import promote
from rlx.trace.flat import as_array

__all__ = ["SparseMatrix", "matrix_shape"]


def matrix_shape(name: str, shape: Any) -> tuple[int, int]:
    """The shape of a matrix. Raises ShapeError."""
    try:
        sizes = tuple(operator.index(n) for n in shape)
    except TypeError as error:
        raise ShapeError(f"{name} got the shape {shape!r}.", "Pass two integers: (rows, columns).") from error
    if len(sizes) != 2 or min(sizes) < 0:
        raise ShapeError(f"{name} got the shape {sizes}.", "Pass two sizes: (rows, columns).")
    return sizes


class SparseMatrix:
    """A matrix that stores some of its elements; the others are zero. The base class of CSR, CSC, COO, BSR and DIA.

    A format defines `data`, `shape`, `with_data`, `tocsr`, `T`, and products with the columns of a dense matrix.

    >>> import numpy as np
    >>> from rlx.sparse import CSR, SparseMatrix
    >>> isinstance(CSR.from_dense(np.eye(2)), SparseMatrix)
    True
    """

    __array_priority__ = 100.0
    __array_ufunc__ = None
    format = ""
    ndim = 2
    data: Any
    shape: Any

    # ------------------------------------------------------------- of a format
    def with_data(self, data: Any) -> Self:
        """The matrix of the same pattern with other elements."""
        raise NotImplementedError(type(self).__name__)

    def tocsr(self) -> Any:
        """The matrix by rows, a CSR."""
        raise NotImplementedError(type(self).__name__)

    def multiply_columns(self, x: Any) -> Array:
        """The product with a dense matrix of the same dtype."""
        raise NotImplementedError(type(self).__name__)

    def multiply_transposed(self, x: Any) -> Array:
        """The product of the transposed matrix with a dense matrix of the same dtype."""
        raise NotImplementedError(type(self).__name__)

    @property
    def T(self) -> SparseMatrix:
        """The transposed matrix."""
        raise NotImplementedError(type(self).__name__)

    # ------------------------------------------------------------- of all
    @property
    def dtype(self) -> np.dtype:
        """The dtype of the elements."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """The number of stored elements."""
        return self.data.size

    @property
    def nse(self) -> int:
        """The number of stored elements, by JAX's name."""
        return self.nnz

    def astype(self, dtype: Any) -> Self:
        """The matrix with elements of another dtype."""
        return self.with_data(self.data.astype(dtype))

    def conj(self) -> Self:
        """The matrix of complex conjugates."""
        return self.with_data(jnp.conj(self.data))

    def todense(self) -> Array:
        """The dense matrix.

        >>> import numpy as np
        >>> from rlx.sparse import CSR
        >>> CSR.from_dense(np.eye(2)).todense().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        return self.tocsr().todense()

    def toscipy(self) -> Any:
        """The matrix as an array of SciPy by rows; it must not be traced."""
        return self.tocsr().toscipy()

    def diagonal(self) -> Array:
        """The elements of the main diagonal."""
        return self.tocsr().diagonal()

    @overload
    def __matmul__(self, other: Array | np.ndarray) -> Array: ...
    @overload
    def __matmul__(self, other: SparseMatrix) -> Any: ...
    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, SparseMatrix):
            return self.tocsr().multiply_sparse(other.tocsr())
        return self._times(as_array(other), self.shape[1], False)

    def __rmatmul__(self, other: Any) -> Array:
        x = as_array(other)
        turned = x if x.ndim < 2 else jnp.swapaxes(x, -1, -2)
        found = self._times(turned, self.shape[0], True)
        return found if x.ndim < 2 else jnp.swapaxes(found, -1, -2)

    def _times(self, x: Array, length: int, transposed: bool) -> Array:
        """The product with the last axis but one of x, or the only one."""
        if not x.ndim or x.shape[-min(x.ndim, 2)] != length:
            raise ShapeError(
                f"A sparse matrix of shape {self.shape} was multiplied {'from the left ' * transposed}with an array of"
                f" shape {x.shape}.",
                f"The axis that is summed over has {length} elements.",
            )
        data, x = promote("matmul", self.data, x)
        matrix = self.with_data(data)
        multiply = matrix.multiply_transposed if transposed else matrix.multiply_columns
        if x.ndim == 1:
            return multiply(x[:, None])[:, 0]
        if x.ndim == 2:
            return multiply(x)
        beside = jnp.moveaxis(x, -2, 0)
        found = multiply(beside.reshape(length, prod(beside.shape[1:])))
        return jnp.moveaxis(found.reshape(found.shape[0], *beside.shape[1:]), 0, -2)

    def __neg__(self) -> Self:
        return self.with_data(-self.data)

    def __mul__(self, other: Any) -> Any:
        """Elementwise: by a number, by an array that broadcasts to the matrix, or by a sparse matrix."""
        if isinstance(other, SparseMatrix):
            return self.tocsr().multiply_elements(other.tocsr())
        factor = as_array(other)
        if factor.ndim == 0:
            return self.with_data(self.data * factor)
        return self.tocsr().scaled(factor)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self * (1 / as_array(other))

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, SparseMatrix):
            return NotImplemented
        return self.tocsr().added(other.tocsr())

    def __sub__(self, other: Any) -> Any:
        return self + (-other) if isinstance(other, SparseMatrix) else NotImplemented

    def __getitem__(self, index: Any) -> Any:
        raise UnsupportedError(
            f"A {type(self).__name__} matrix was indexed.", "Write A.todense()[index]; A.data has the stored elements."
        )

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise InputTypeError(
            f"A function of arrays got a sparse matrix: {self!r}.",
            "Write A @ x for a product, and A.todense() for an array.",
        )

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            raise missing_name(f"rlx.sparse.{type(self).__name__}", name, dir(type(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype.name}{list(self.shape)}, nnz={self.nnz})"
