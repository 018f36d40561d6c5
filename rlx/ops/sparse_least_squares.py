"""Least squares solutions and eigenvalues of sparse matrices: iterations of SciPy, on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import negative, subtract
from rlx.ops.families import add_values, instantiate, to_front
from rlx.ops.library import LibraryPrimitive, as_real, samples_in
from rlx.ops.matrices import check_matrices, conjugate
from rlx.ops.shape import reshape
from rlx.ops.shape import transpose as transpose_axes
from rlx.ops.sparse_products import check_pattern, csr_product, stacked_patterns
from rlx.trace.primitive import Linear, Sample, Zero, primitive, type_of

__all__ = ["csr_eigsh", "csr_lstsq"]

_INT32 = np.dtype("i4")


@primitive
class csr_lstsq(LibraryPrimitive):
    """The x of the smallest norm among those with the least norm of b - A x, or of b - A.T x if transposed.

    It is the product of b with the pseudoinverse: linear in b, and the transpose of the pseudoinverse is the
    pseudoinverse of the transpose. The second result is the number of iterations for each column.

    Source: Golub and Pereyra 1973, for the derivative in A at constant rank.
    """

    linear_groups = ()

    def type(
        self,
        data: TensorType,
        indices: TensorType,
        indptr: TensorType,
        b: TensorType,
        *,
        columns: int,
        transposed: bool,
        **params: Any,
    ) -> tuple[TensorType, ...]:
        count, rows = check_pattern(self.name, indices, indptr)
        check_matrices(self.name, data, b, ndim=1)
        if data.shape != (count,) or b.ndim != 2 or b.shape[0] != (columns if transposed else rows):
            raise ShapeError(f"{self.name} got data {data!r} and b {b!r} for {rows} rows and {columns} columns.")
        x = b.update(shape=(rows if transposed else columns, b.shape[1])).strong()
        return x, TensorType((b.shape[1],), _INT32)

    def derivative(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        data, indices, indptr, b = primals
        x = out[0]
        columns, transposed = params["columns"], params["transposed"]

        def times(elements: Any, v: Any, turned: bool = False) -> Any:
            """A v, or the adjoint of A times v, for a matrix of these elements."""
            flipped = transposed != turned
            values = conjugate(elements) if turned else elements
            return csr_product(values, indices, indptr, v, columns=columns, transposed=flipped)

        def inverse(v: Any, turned: bool = False) -> Any:
            """The pseudoinverse times v, or its adjoint."""
            elements = conjugate(data) if turned else data
            return self.bind(elements, indices, indptr, v, **params | {"transposed": transposed != turned})[0]

        change, right = tangents[0], tangents[3]
        if isinstance(change, Zero):
            return inverse(instantiate(right)), Zero(type_of(out[1]))
        residual = subtract(b, times(data, x))
        moved = add_values(right, negative(times(change, x)))
        along = inverse(add_values(moved, inverse(times(change, residual, True), True)))
        across = times(change, inverse(x, True), True)
        across = subtract(across, inverse(times(data, across)))
        return add_values(along, across), Zero(type_of(out[1]))

    def transpose(self, cotangents: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        if any(isinstance(v, Linear) for v in inputs[:3]):
            return super().transpose(cotangents, *inputs, **params)
        cotangent = cotangents[0]
        if isinstance(cotangent, Zero):
            return None, None, None, Zero(inputs[3].type)
        flipped = params | {"transposed": not params["transposed"]}
        return None, None, None, self.bind(*inputs[:3], cotangent, **flipped)[0]

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        """More columns for one matrix; a block diagonal matrix for several, of one right-hand side each."""
        data, indices, indptr, b = inputs
        b = to_front(b, dims[3], size)
        _, rows, count = type_of(b).shape
        if all(d is None for d in dims[:3]):
            beside = reshape(transpose_axes(b, permutation=(1, 0, 2)), shape=(rows, size * count))
            x, steps = self.bind(data, indices, indptr, beside, **params)
            return (reshape(x, shape=(type_of(x).shape[0], size, count)), reshape(steps, shape=(size, count))), (1, 0)
        if any(d is not None for d in dims[1:3]):
            raise UnsupportedError(f"{self.name} got a batch of patterns.", "Batch the stored elements.")
        data, indices, indptr = (to_front(v, d, size) for v, d in zip(inputs[:3], dims[:3], strict=True))
        indices, indptr = stacked_patterns(indices, indptr, params["columns"])
        whole = params | {"columns": size * params["columns"]}
        b = reshape(b, shape=(size * rows, count))
        x, steps = self.bind(reshape(data, shape=type_of(indices).shape), indices, indptr, b, **whole)
        return (reshape(x, shape=(size, type_of(x).shape[0] // size, count)), steps), (0, None)

    def samples(self) -> Iterator[Sample]:
        """More rows than columns, and fewer."""
        indices, indptr = np.array([1, 0, 1, 0], np.int32), np.array([0, 1, 2, 4], np.int32)
        params = {"columns": 2, "method": "lsqr", "tol": 1e-14, "maxiter": 100}
        data = np.array([2.0, 1.5, 1.0, -0.7])
        return samples_in(
            "c16",
            ([data, indices, indptr, as_real(3, 2)], params | {"transposed": False}),
            ([data, indices, indptr, as_real(2, 1)], params | {"transposed": True, "method": "lsmr"}),
        )


@primitive
class csr_eigsh(LibraryPrimitive):
    """k eigenvalues of a real symmetric sparse matrix, ascending, and their eigenvectors as columns."""

    def type(
        self, data: TensorType, indices: TensorType, indptr: TensorType, *, count: int, **params: Any
    ) -> tuple[TensorType, ...]:
        stored, order = check_pattern(self.name, indices, indptr)
        check_matrices(self.name, data, ndim=1)
        if data.dtype.kind == "c":
            raise DtypeError(f"{self.name} does not take {data.dtype.name}.", "It takes float32 and float64.")
        if data.shape != (stored,):
            raise ShapeError(f"{self.name} got data {data!r} for {stored} indices.")
        values = data.update(shape=(count,)).strong()
        return values, values.update(shape=(order, count))

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        raise UnsupportedError("eigsh has no batches.", "Call it for each matrix, or use rlx.lax.map.")
