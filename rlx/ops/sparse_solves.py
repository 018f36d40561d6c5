"""Direct solutions of sparse linear systems, and determinants: routines of the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.types import TensorType, is_complex
from rlx.ops.arithmetic import convert, multiply, subtract
from rlx.ops.conversion import real
from rlx.ops.families import to_front
from rlx.ops.library import LibraryPrimitive, as_real, samples_in
from rlx.ops.matrices import real_dtype
from rlx.ops.reduction import reduce_sum
from rlx.ops.shape import reshape
from rlx.ops.solves import Solve
from rlx.ops.sparse_products import check_pattern, check_values, csr_product
from rlx.trace.primitive import Sample, Zero, primitive, type_of

__all__ = ["csr_inverse_change", "csr_inverse_entries", "csr_logdet", "csr_solve"]


def _check_system(name: str, data: TensorType, indices: TensorType, indptr: TensorType) -> int:
    """The order of the system. Raises ShapeError, DtypeError."""
    count, order = check_pattern(name, indices, indptr)
    check_values(name, data)
    if data.ndim not in (1, 2) or data.shape[-1] != count:
        raise ShapeError(f"{name} got data {data!r} for {count} indices.", "The batch has one axis at most.")
    return order


def _whole_patterns(name: str, dims: Sequence[int | None]) -> None:
    if any(d is not None for d in dims[1:3]):
        raise UnsupportedError(
            f"{name} got a batch of patterns.", "Batch the stored elements; systems of one pattern share its analysis."
        )


def _product(data: Any, indices: Any, indptr: Any, x: Any, transposed: bool) -> Any:
    """The product with one square matrix, or with each of a batch."""
    columns = type_of(indptr).shape[0] - 1
    params = {"columns": columns, "transposed": transposed}
    if type_of(x).ndim == 2:
        return csr_product(data, indices, indptr, x, **params)
    size = type_of(x).shape[0]
    dims = (0 if type_of(data).ndim == 2 else None, None, None, 0)
    out, dim = csr_product.batch(size, (data, indices, indptr, x), dims, **params)
    return to_front(out, dim, size)


@primitive
class csr_solve(Solve):
    """x with A x = b, or A.T x = b if transposed, for a square sparse matrix by rows.

    data: [elements] with b [order, columns]; or both with a batch axis in front. assume: "general", "symmetric" or
    "positive definite", which choose the ordering and the pivots. refine: steps of iterative refinement. factor_dtype:
    "float32" for factors in single precision.
    """

    routine = "csr_solve"

    def type(
        self,
        data: TensorType,
        indices: TensorType,
        indptr: TensorType,
        b: TensorType,
        **params: Any,
    ) -> TensorType:
        order = _check_system(self.name, data, indices, indptr)
        check_values(self.name, data, b)
        if b.ndim != data.ndim + 1 or b.shape[:-2] != data.shape[:-1] or b.shape[-2] != order:
            raise ShapeError(f"{self.name} got data {data!r} and b {b!r} for a system of order {order}.")
        return b.strong()

    def moved(self, x: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        if isinstance(tangents[0], Zero):
            return None
        return _product(tangents[0], *primals[1:3], x, params["transposed"])

    def adjoint_solve(self, cotangent: Any, *inputs: Any, **params: Any) -> Any:
        return self.bind(*inputs[:-1], cotangent, **params | {"transposed": not params["transposed"]})

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        """More columns for one matrix; matrices of one pattern one after the other."""
        _whole_patterns(self.name, dims)
        data, indices, indptr, b = inputs
        if dims[0] is None:
            return super().batch(size, inputs, dims, **params)
        data, b = to_front(data, dims[0], size), to_front(b, dims[3], size)
        shape = type_of(b).shape
        count = int(np.prod(shape[:-2]))
        data = reshape(data, shape=(count, type_of(data).shape[-1]))
        out = self.bind(data, indices, indptr, reshape(b, shape=(count, *shape[-2:])), **params)
        return reshape(out, shape=shape), 0

    def samples(self) -> Iterator[Sample]:
        """A permuted diagonal with more elements, one of them in two parts."""
        indices = np.array([1, 0, 2, 2, 1, 0, 1], np.int32)
        indptr = np.array([0, 2, 4, 7], np.int32)
        data = np.array([3.0, 1.0, 2.0, 1.5, 0.4, 2.5, 0.3])
        params = {"assume": "general", "ordering": None, "refine": 1, "factor_dtype": None}
        many = np.stack([data, data * 1.5])
        return samples_in(
            "f4 c8 c16",
            ([data, indices, indptr, as_real(3, 2)], params | {"transposed": False}),
            ([data, indices, indptr, as_real(3, 1)], params | {"transposed": True}),
            ([many, indices.astype(np.int64), indptr.astype(np.int64), as_real(2, 3, 2)], params | {"transposed": False}),
        )


@primitive
class csr_logdet(LibraryPrimitive):
    """The sign of the determinant of a square sparse matrix, and the logarithm of its absolute value."""

    def type(self, data: TensorType, indices: TensorType, indptr: TensorType, **params: Any) -> tuple[TensorType, ...]:
        _check_system(self.name, data, indices, indptr)
        sign = data.update(shape=data.shape[:-1]).strong()
        return sign, sign.update(dtype=real_dtype(sign.dtype))

    def derivative(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """The trace of the inverse times the tangent: the inverse is needed at the stored places alone."""
        entries = csr_inverse_entries(*primals, **params)
        moved = reduce_sum(multiply(tangents[0], entries), axes=(type_of(entries).ndim - 1,))
        dtype = type_of(moved).dtype
        if not is_complex(dtype):
            return Zero(type_of(out[0])), moved
        size = real(moved)
        return multiply(out[0], subtract(moved, convert(size, dtype=dtype))), size

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        """Matrices of one pattern one after the other."""
        return _batched(self, size, inputs, dims, params)

    def samples(self) -> Iterator[Sample]:
        return _matrices("f4 c8 c16")


@primitive
class csr_inverse_entries(LibraryPrimitive):
    """The elements of the transposed inverse of a square sparse matrix at its stored places."""

    multiple = False

    def type(self, data: TensorType, indices: TensorType, indptr: TensorType, **params: Any) -> TensorType:
        _check_system(self.name, data, indices, indptr)
        return data.strong()

    def derivative(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return csr_inverse_change(*primals, tangents[0], **params)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        """Matrices of one pattern one after the other."""
        return _batched(self, size, inputs, dims, params)


@primitive
class csr_inverse_change(LibraryPrimitive):
    """The change of csr_inverse_entries if `change` is added to the stored elements, to first order.

    It is -(Z C Z).T at the stored places, for the inverse Z and the matrix C of the changes: its own transpose. It
    takes two solves for each column, in blocks.
    """

    multiple = False
    linear_groups = ((3,),)

    def type(
        self, data: TensorType, indices: TensorType, indptr: TensorType, change: TensorType, **params: Any
    ) -> TensorType:
        _check_system(self.name, data, indices, indptr)
        if change.strong() != data.strong():
            raise ShapeError(f"{self.name} got data {data!r} and changes {change!r}.")
        return data.strong()

    def derivative(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        if not isinstance(tangents[0], Zero):
            raise UnsupportedError(
                "The third derivative of a sparse matrix's determinant is not supported.",
                "Differentiate twice at most, or convert the matrix to a dense one.",
            )
        return self.bind(*primals[:3], tangents[3], **params)

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        if isinstance(cotangent, Zero):
            return None, None, None, Zero(inputs[3].type)
        return None, None, None, self.bind(*inputs[:3], cotangent, **params)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        """Matrices of one pattern one after the other."""
        _whole_patterns(self.name, dims)
        data, change = to_front(inputs[0], dims[0], size), to_front(inputs[3], dims[3], size)
        shape = type_of(data).shape
        flat = (int(np.prod(shape[:-1])), shape[-1])
        out = self.bind(reshape(data, shape=flat), *inputs[1:3], reshape(change, shape=flat), **params)
        return reshape(out, shape=shape), 0


def _batched(
    operation: LibraryPrimitive, size: int, inputs: Sequence[Any], dims: Sequence[int | None], params: dict[str, Any]
) -> Any:
    """The batch axes of the stored elements as one."""
    _whole_patterns(operation.name, dims)
    data = to_front(inputs[0], dims[0], size)
    batch = type_of(data).shape[:-1]
    flat = reshape(data, shape=(int(np.prod(batch)), type_of(data).shape[-1]))
    outs = operation.bind(flat, *inputs[1:], **params)
    found = [reshape(o, shape=(*batch, *type_of(o).shape[1:])) for o in (outs if operation.multiple else (outs,))]
    return (tuple(found), (0,) * len(found)) if operation.multiple else (found[0], 0)


def _matrices(dtypes: str) -> Iterator[Sample]:
    indices, indptr = np.array([1, 0, 2, 2, 1, 0, 1], np.int32), np.array([0, 2, 4, 7], np.int32)
    data = np.array([3.0, 1.0, 2.0, 1.5, 0.4, 2.5, 0.3])
    params = {"assume": "general", "ordering": None}
    return samples_in(
        dtypes,
        ([data, indices, indptr], params),
        ([np.stack([data, -data]), indices, indptr], params),
    )
