"""BSR and DIA: sparse matrices of dense blocks, and of diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ops.sparse_products import csr_product
from rlx.sparse.compressed import CSR
from rlx.sparse.construction import diags
from rlx.sparse.matrix import SparseMatrix, matrix_shape
from rlx.sparse.patterns import RowPattern
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["BSR", "DIA"]


class BSR(SparseMatrix):
    """A sparse matrix of dense blocks: block row i has data[indptr[i]:indptr[i + 1]] in the block columns `indices`.

    Args:
      data: the blocks [blocks, r, c]; indices: their block columns [blocks]; indptr: [block rows + 1]. The indices must
        be known. shape: (rows, columns), multiples of r and c.

    Raises: ShapeError, DtypeError, IndexBoundsError for arrays that do not form a matrix.

    >>> import numpy as np
    >>> from rlx.sparse import BSR
    >>> BSR(np.ones((1, 2, 2)), [1], [0, 1], (2, 4)) @ np.array([1.0, 2.0, 3.0, 4.0])
    Array([7., 7.], dtype=float64)
    """

    format = "bsr"

    def __init__(self, data: Any, indices: Any, indptr: Any, shape: Sequence[int]) -> None:
        self.data, self.shape = as_array(data, "a sparse matrix's data"), matrix_shape("BSR", shape)
        if self.data.ndim != 3 or 0 in self.data.shape[1:] or any(
            n % b for n, b in zip(self.shape, self.data.shape[1:], strict=True)
        ):
            raise ShapeError(
                f"BSR of shape {self.shape} got data of shape {self.data.shape}.",
                "data has the axes (blocks, rows of a block, columns of a block), and the blocks divide the shape.",
            )
        height, width = self.block
        self.pattern = RowPattern(indices, indptr, (self.shape[0] // height, self.shape[1] // width))
        if self.pattern.nnz != self.data.shape[0]:
            raise ShapeError(f"BSR got {self.data.shape[0]} blocks and {self.pattern.nnz} indices.")

    @property
    def block(self) -> tuple[int, int]:
        """The shape of a block."""
        return self.data.shape[1], self.data.shape[2]

    @classmethod
    def fromscipy(cls, matrix: Any, block: tuple[int, int] | None = None) -> BSR:
        """From a matrix or an array of SciPy in any format."""
        found = matrix.tobsr(blocksize=block)
        return cls(np.array(found.data), found.indices, found.indptr, found.shape)

    def with_data(self, data: Any) -> BSR:
        made = object.__new__(BSR)
        made.__dict__.update(self.__dict__, data=as_array(data))
        return made

    def _summed(self, terms: Any, indices: Any, indptr: Any, columns: int, transposed: bool) -> Array:
        """Terms [blocks, height, k], added to the block rows or columns that they belong to."""
        blocks, height, count = terms.shape
        ones = jnp.ones(blocks, terms.dtype)
        flat = terms.reshape(blocks, height * count)
        found = csr_product(ones, indices, indptr, flat, columns=columns, transposed=transposed)
        return found.reshape(found.shape[0] * height, count)

    def multiply_columns(self, x: Any) -> Array:
        (_, width), blocks = self.block, self.data.shape[0]
        parts = x.reshape(x.shape[0] // width, width, x.shape[1])[self.pattern.indices]
        terms = jnp.einsum("brc,bck->brk", self.data, parts)
        numbers = np.arange(blocks, dtype=self.pattern.indptr.dtype)
        return self._summed(terms, numbers, self.pattern.indptr, blocks, False)

    def multiply_transposed(self, x: Any) -> Array:
        (height, _), blocks = self.block, self.data.shape[0]
        parts = x.reshape(x.shape[0] // height, height, x.shape[1])[self.pattern.rows]
        terms = jnp.einsum("brc,brk->bck", self.data, parts)
        numbers = np.arange(blocks + 1, dtype=self.pattern.indices.dtype)
        return self._summed(terms, self.pattern.indices, numbers, self.pattern.shape[1], True)

    def tocsr(self) -> CSR:
        """The matrix by rows; every element of a block is stored."""
        from scipy.sparse import bsr_array

        places = np.arange(self.data.size).reshape(self.data.shape)
        found = bsr_array((places, self.pattern.indices, self.pattern.indptr), shape=self.shape).tocsr()
        return CSR.of_pattern(
            self.data.reshape(-1)[found.data], RowPattern.of_checked(found.indices, found.indptr, self.shape)
        )

    @property
    def T(self) -> BSR:
        """The transposed matrix."""
        turned, order = self.pattern.transposition
        return BSR(jnp.swapaxes(self.data[order], 1, 2), turned.indices, turned.indptr, self.shape[::-1])


class DIA(SparseMatrix):
    """A sparse matrix by diagonals, in SciPy's layout: data[d, j] is in column j of the diagonal offsets[d].

    Args:
      data: [diagonals, columns]; elements outside of the matrix are not read. offsets: of the diagonals, known
        integers: 0 is the main one, 1 the one above it. shape: (rows, columns).

    A product is plain loops over the diagonals, which are fused with the operations around it.

    Raises ShapeError for arrays that do not form a matrix.

    >>> import numpy as np
    >>> from rlx.sparse import DIA
    >>> DIA(np.array([[1.0, 2.0], [0.0, 5.0]]), [0, 1], (2, 2)).todense().tolist()
    [[1.0, 5.0], [0.0, 2.0]]
    """

    format = "dia"

    def __init__(self, data: Any, offsets: Any, shape: Sequence[int]) -> None:
        self.data, self.shape = as_array(data, "a sparse matrix's data"), matrix_shape("DIA", shape)
        self.offsets: tuple[int, ...] = tuple(np.asarray(offsets).tolist())
        if self.data.shape != (len(self.offsets), self.shape[1]) or len(set(self.offsets)) != len(self.offsets):
            raise ShapeError(
                f"DIA of shape {self.shape} got data of shape {self.data.shape} and the offsets {self.offsets}.",
                "data has a row for each of the different offsets, and the columns of the matrix.",
            )

    @classmethod
    def fromscipy(cls, matrix: Any) -> DIA:
        """From a matrix or an array of SciPy in any format."""
        found = matrix.todia()
        data = np.zeros((len(found.offsets), found.shape[1]), found.dtype)
        width = min(found.data.shape[1], found.shape[1])
        data[:, :width] = found.data[:, :width]
        return cls(data, found.offsets, found.shape)

    def with_data(self, data: Any) -> DIA:
        made = object.__new__(DIA)
        made.__dict__.update(self.__dict__, data=as_array(data))
        return made

    def _spans(self) -> list[tuple[int, int, int]]:
        """For each diagonal its first row, its first column and its length."""
        rows, columns = self.shape
        spans = []
        for offset in self.offsets:
            row, column = max(0, -offset), max(0, offset)
            spans.append((row, column, max(0, min(rows - row, columns - column))))
        return spans

    def multiply_columns(self, x: Any) -> Array:
        return self._multiplied(x, self.shape[0], False)

    def multiply_transposed(self, x: Any) -> Array:
        return self._multiplied(x, self.shape[1], True)

    def _multiplied(self, x: Any, rows: int, transposed: bool) -> Array:
        """The rows that all diagonals reach are one loop without conditions; those before and after them have zeros."""
        spans = [(c, r, n) if transposed else (r, c, n) for r, c, n in self._spans()]
        first = max((target for target, _, _ in spans), default=0)
        last = min((target + length for target, _, length in spans), default=0)
        edges = [0, first, last, rows] if first < last else [0, rows]
        parts = [self._rows_of_product(x, spans, transposed, a, b) for a, b in pairwise(edges) if a < b]
        return jnp.concatenate(parts) if parts else jnp.zeros((0, x.shape[1]), x.dtype)

    def _rows_of_product(
        self, x: Any, spans: Sequence[tuple[int, int, int]], transposed: bool, first: int, last: int
    ) -> Array:
        """Rows of the result, for the first row of each diagonal in the result, the one in x, and its length."""
        total = jnp.zeros((last - first, x.shape[1]), x.dtype)
        for number, (target, source, length) in enumerate(spans):
            start, end = max(first, target), min(last, target + length)
            if start < end:
                moved = source - target
                column = start if transposed else start + moved
                elements = self.data[number, column : column + end - start, None]
                terms = elements * x[start + moved : end + moved]
                total = total + jnp.pad(terms, ((start - first, last - end), (0, 0)))
        return total

    def tocsr(self) -> CSR:
        """The matrix by rows; every element of a diagonal is stored."""
        parts = [self.data[n, c : c + length] for n, (_, c, length) in enumerate(self._spans())]
        return diags(parts, list(self.offsets), self.shape, self.dtype)

    @property
    def T(self) -> DIA:
        """The transposed matrix."""
        rows, columns = self.shape
        moved = [
            jnp.pad(self.data[n, c : c + length], (r, rows - r - length))
            for n, (r, c, length) in enumerate(self._spans())
        ]
        data = jnp.stack(moved) if moved else jnp.zeros((0, rows), self.dtype)
        return DIA(data, [-k for k in self.offsets], (columns, rows))


def _restored(kind: Any, static: Any, children: Sequence[Any]) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(static, data=children[0])
    return made


def _unflatten_bsr(static: Any, children: Sequence[Any]) -> BSR:
    return _restored(BSR, {"pattern": static[0], "shape": static[1]}, children)


def _unflatten_dia(static: Any, children: Sequence[Any]) -> DIA:
    return _restored(DIA, {"offsets": static[0], "shape": static[1]}, children)


tree.register_node(BSR, lambda m: ((m.data,), (m.pattern, m.shape)), _unflatten_bsr)
tree.register_node(DIA, lambda m: ((m.data,), (m.offsets, m.shape)), _unflatten_dia)
