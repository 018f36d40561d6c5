"""Solves with a triangle of a sparse matrix by rows, and incomplete factorisations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.types import TensorType
from rlx.ops.comparison import less, less_equal
from rlx.ops.conversion import select
from rlx.ops.families import full_like, to_front
from rlx.ops.library import LibraryPrimitive, as_real, samples_in
from rlx.ops.matrices import check_matrices
from rlx.ops.shape import reshape
from rlx.ops.solves import Solve
from rlx.ops.sparse_products import check_pattern, csr_product, row_numbers, stacked_patterns
from rlx.trace.primitive import Sample, Zero, primitive, type_of

__all__ = ["csr_incomplete_lu", "csr_triangular_solve"]

_INDICES, _INDPTR = np.array([1, 0, 1, 2, 2, 0], np.int32), np.array([0, 2, 4, 6], np.int32)


@primitive
class csr_triangular_solve(Solve):
    """x with T x = b, or T.T x = b if transposed, for a triangle T of a square sparse matrix by rows.

    lower: which triangle; elements outside of it are not read. unit_diagonal: the diagonal counts as ones and is not
    read. Columns may be in any order, and elements at one place add up. A zero on the diagonal divides.
    """

    def type(
        self, data: TensorType, indices: TensorType, indptr: TensorType, b: TensorType, **params: Any
    ) -> TensorType:
        count, order = check_pattern(self.name, indices, indptr)
        check_matrices(self.name, data, b, ndim=1)
        if data.shape != (count,) or b.ndim != 2 or b.shape[0] != order:
            raise ShapeError(f"{self.name} got data {data!r} and b {b!r} for {count} elements and the order {order}.")
        return b.strong()

    def moved(self, x: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """The product with the triangle of the tangent."""
        change, (_, indices, indptr, _) = tangents[0], primals
        if isinstance(change, Zero) or not type_of(indices).size:
            return None
        rows = row_numbers(indptr, type_of(indices).shape[0])
        inside = less if params["unit_diagonal"] else less_equal
        kept = inside(indices, rows) if params["lower"] else inside(rows, indices)
        change = select(kept, change, full_like(type_of(change), 0))
        order = type_of(indptr).shape[0] - 1
        return csr_product(change, indices, indptr, x, columns=order, transposed=params["transposed"])

    def adjoint_solve(self, cotangent: Any, *inputs: Any, **params: Any) -> Any:
        return self.bind(*inputs[:-1], cotangent, **params | {"transposed": not params["transposed"]})

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        """More columns for one matrix; a block diagonal matrix for several."""
        if all(d is None for d in dims[:3]):
            return super().batch(size, inputs, dims, **params)
        data, indices, indptr, b = (to_front(x, d, size) for x, d in zip(inputs, dims, strict=True))
        _, order, count = type_of(b).shape
        indices, indptr = stacked_patterns(indices, indptr, order)
        data = reshape(data, shape=type_of(indices).shape)
        out = self.bind(data, indices, indptr, reshape(b, shape=(size * order, count)), **params)
        return reshape(out, shape=(size, order, count)), 0

    def samples(self) -> Iterator[Sample]:
        """Unsorted columns, elements outside of the triangle, an element in two parts."""
        params = {"lower": True, "unit_diagonal": False, "transposed": False}
        data = np.array([0.3, 2.5, 1.5, 0.7, 2.0, -0.4])
        wide = [_INDICES.astype(np.int64), _INDPTR.astype(np.int64)]
        twice, ends = np.array([0, 0, 1], np.int32), np.array([0, 2, 3], np.int32)
        return samples_in(
            "f4 c8 c16",
            ([data, _INDICES, _INDPTR, as_real(3, 2)], params),
            ([data, *wide, as_real(3, 1)], params | {"lower": False, "transposed": True}),
            ([data, _INDICES, _INDPTR, as_real(3, 5)], params | {"lower": False, "unit_diagonal": True}),
            ([data[:3], twice, ends, as_real(2, 1)], params | {"transposed": True}),
        )


@primitive
class csr_incomplete_lu(LibraryPrimitive):
    """The factors L and U of a square sparse matrix by rows, at its own places, without the ones of L's diagonal.

    Columns must be sorted, each place stored once, and the diagonal stored: a device's kernel does not check it.
    Source: Meijerink and van der Vorst 1977.
    """

    multiple = False

    def type(self, data: TensorType, indices: TensorType, indptr: TensorType) -> TensorType:
        count, _ = check_pattern(self.name, indices, indptr)
        check_matrices(self.name, data, ndim=1)
        if data.shape != (count,):
            raise ShapeError(f"{self.name} got data {data!r} for {count} indices.")
        return data.strong()

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
        """The factors of a block diagonal matrix."""
        data, indices, indptr = (to_front(x, d, size) for x, d in zip(inputs, dims, strict=True))
        shape = type_of(data).shape
        indices, indptr = stacked_patterns(indices, indptr, type_of(indptr).shape[1] - 1)
        return reshape(self.bind(reshape(data, shape=type_of(indices).shape), indices, indptr), shape=shape), 0
