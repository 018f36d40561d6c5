"""Products with sparse matrices by rows: bilinear in the stored elements and in a dense matrix.

The primitives are closed under derivatives: each is the transpose of the other in one operand, so that every order of
derivative is computed by the same routines, and no dense matrix of the sparse one's shape exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError
from rlx.ir.program import Equation
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import add, convert, multiply
from rlx.ops.cumulative import cumsum
from rlx.ops.families import add_values, full_like, instantiate, to_front
from rlx.ops.gather import gather
from rlx.ops.index_windows import GatherDimensionNumbers, ScatterDimensionNumbers
from rlx.ops.library import LibraryPrimitive, as_real, samples_in
from rlx.ops.matrices import check_matrices
from rlx.ops.reduction import reduce_sum
from rlx.ops.scatter import scatter_add
from rlx.ops.shape import concatenate, expand_dims, iota, reshape, slice_along
from rlx.ops.shape import transpose as transpose_axes
from rlx.trace.primitive import Linear, Sample, Zero, primitive, type_of
from rlx.trace.tracing import trace_program

__all__ = ["check_pattern", "csr_product", "row_numbers", "sampled_product", "stacked_patterns"]

_INDICES = (np.dtype("i4"), np.dtype("i8"))
_INT64 = np.dtype("i8")
_LARGEST = np.iinfo(np.int32).max


# ------------------------------------------------------------- patterns
def check_pattern(name: str, indices: TensorType, indptr: TensorType) -> tuple[int, int]:
    """The numbers of stored elements and of rows. Raises DtypeError, ShapeError."""
    if indices.dtype not in _INDICES or indptr.dtype != indices.dtype:
        raise DtypeError(
            f"{name} got indices of {indices.dtype.name} and indptr of {indptr.dtype.name}.",
            "Both are int32, or both int64.",
        )
    if indices.ndim != 1 or indptr.ndim != 1 or indptr.shape == (0,):
        raise ShapeError(
            f"{name} got indices {indices!r} and indptr {indptr!r}.",
            "indices has an element for each stored one, and indptr one more than there are rows.",
        )
    return indices.shape[0], indptr.shape[0] - 1


def row_numbers(indptr: Any, count: int) -> Any:
    """The row of each of `count` stored elements: the number of rows that end at it or before."""
    pointers = type_of(indptr)
    ends = slice_along(indptr, 1, pointers.shape[0] - 1, 0)
    places = pointers.update(shape=(count + 1,))
    marks = scatter_add(
        full_like(places, 0),
        expand_dims(ends, (1,)),
        full_like(type_of(ends), 1),
        dimension_numbers=ScatterDimensionNumbers((), (0,), (0,)),
        mode="promise_in_bounds",
        unique_indices=False,
        indices_are_sorted=True,
    )
    return slice_along(cumsum(marks, axis=0, reverse=False), 0, count, 0)


def _rows_at(x: Any, numbers: Any) -> Any:
    """Rows of a matrix, which are in bounds."""
    return gather(
        x,
        expand_dims(numbers, (1,)),
        dimension_numbers=GatherDimensionNumbers((1,), (0,), (0,)),
        slice_sizes=(1, type_of(x).shape[1]),
        mode="promise_in_bounds",
        fill_value=None,
    )


def _added_to_rows(terms: Any, numbers: Any, rows: int) -> Any:
    """A matrix of `rows` rows, each the sum of the terms with its number."""
    t = type_of(terms)
    return scatter_add(
        full_like(t.update(shape=(rows, t.shape[1])), 0),
        expand_dims(numbers, (1,)),
        terms,
        dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,)),
        mode="promise_in_bounds",
        unique_indices=False,
        indices_are_sorted=False,
    )


def stacked_patterns(indices: Any, indptr: Any, columns: int) -> tuple[Any, Any]:
    """The pattern of the block diagonal matrix of a batch of patterns [size, ...]."""
    size, count = type_of(indices).shape
    rows = type_of(indptr).shape[1] - 1
    if size * max(columns, count) > _LARGEST:
        indices, indptr = convert(indices, dtype=_INT64), convert(indptr, dtype=_INT64)

    def shifted(x: Any, step: int) -> Any:
        numbers = iota(type=type_of(x).strong(), axis=0)
        return add(x, multiply(numbers, full_like(type_of(numbers), step)))

    starts = reshape(shifted(slice_along(indptr, 0, rows, 1), count), shape=(size * rows,))
    end = full_like(type_of(starts).update(shape=(1,)), size * count)
    return reshape(shifted(indices, columns), shape=(size * count,)), concatenate(starts, end, axis=0)


# ------------------------------------------------------------- primitives
class SparseProduct(LibraryPrimitive):
    """Linear in two operands, `factors`."""

    multiple = False
    factors: tuple[int, int]

    def derivative(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        total: Any = Zero(type_of(out))
        for number in self.factors:
            if not isinstance(tangents[number], Zero):
                moved = [tangents[n] if n == number else p for n, p in enumerate(primals)]
                total = add_values(total, self.bind(*moved, **params))
        return total

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """By the products and sums of single elements."""
        types = [a.type for a in equation.inputs]
        program, _ = trace_program(lambda *xs: [self.decomposition(*xs, **equation.params)], types, name=self.name)
        return walk.program(program, operands)

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        linear = [n for n in self.factors if isinstance(inputs[n], Linear)]
        if len(linear) != 1:
            return super().transpose(cotangent, *inputs, **params)
        found: list[Any] = [None] * len(inputs)
        number = linear[0]
        found[number] = (
            Zero(inputs[number].type)
            if isinstance(cotangent, Zero)
            else self.factor_cotangent(number, instantiate(cotangent), *inputs, **params)
        )
        return tuple(found)

    def factor_cotangent(self, number: int, cotangent: Any, *inputs: Any, **params: Any) -> Any:
        """The cotangent of a factor."""
        raise NotImplementedError(self.name)


@primitive
class csr_product(SparseProduct):
    """A @ x, or A.T @ x if transposed, for the sparse matrix A of data, indices and indptr with `columns` columns.

    Row i has the elements data[indptr[i]:indptr[i + 1]] in the columns `indices`; elements at one place add up. indptr
    increases from 0, and indices are in bounds: a device's kernel does not check them.
    """

    linear_groups = ((0,), (3,))
    factors = (0, 3)

    def type(
        self,
        data: TensorType,
        indices: TensorType,
        indptr: TensorType,
        x: TensorType,
        *,
        columns: int,
        transposed: bool,
    ) -> TensorType:
        count, rows = check_pattern(self.name, indices, indptr)
        check_matrices(self.name, data, x, ndim=1)
        if data.shape != (count,) or x.ndim != 2 or x.shape[0] != (rows if transposed else columns):
            raise ShapeError(
                f"{self.name} got data {data!r} for {count} indices, and x {x!r}.",
                f"The matrix has {rows} rows and {columns} columns{', and is transposed' if transposed else ''}.",
            )
        return x.update(shape=(columns if transposed else rows, x.shape[1])).strong()

    def factor_cotangent(self, number: int, cotangent: Any, *inputs: Any, columns: int, transposed: bool) -> Any:
        data, indices, indptr, x = inputs
        if number == 3:
            return self.bind(data, indices, indptr, cotangent, columns=columns, transposed=not transposed)
        left, right = (x, cotangent) if transposed else (cotangent, x)
        return sampled_product(left, right, indices, indptr)

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, columns: int, transposed: bool
    ) -> tuple[Any, int]:
        """More columns of x for one matrix; a block diagonal matrix for several."""
        params = {"columns": columns, "transposed": transposed}
        data, indices, indptr, x = inputs
        x = to_front(x, dims[3], size)
        _, rows, count = type_of(x).shape
        if all(d is None for d in dims[:3]):
            beside = reshape(transpose_axes(x, permutation=(1, 0, 2)), shape=(rows, size * count))
            out = self.bind(data, indices, indptr, beside, **params)
            return reshape(out, shape=(type_of(out).shape[0], size, count)), 1
        data, indices, indptr = (to_front(v, d, size) for v, d in zip(inputs[:3], dims[:3], strict=True))
        indices, indptr = stacked_patterns(indices, indptr, columns)
        data = reshape(data, shape=type_of(indices).shape)
        x = reshape(x, shape=(size * rows, count))
        out = self.bind(data, indices, indptr, x, columns=size * columns, transposed=transposed)
        return reshape(out, shape=(size, type_of(out).shape[0] // size, count)), 0

    def decomposition(self, data: Any, indices: Any, indptr: Any, x: Any, *, columns: int, transposed: bool) -> Any:
        """Products of elements, added to the rows of the result."""
        count, rows = type_of(indices).shape[0], type_of(indptr).shape[0] - 1
        if count == 0 or rows == 0:
            height = columns if transposed else rows
            return full_like(type_of(x).update(shape=(height, type_of(x).shape[1])).strong(), 0)
        sources, targets = indices, row_numbers(indptr, count)
        if transposed:
            sources, targets = targets, sources
        terms = multiply(expand_dims(data, (1,)), _rows_at(x, sources))
        return _added_to_rows(terms, targets, columns if transposed else rows)

    def samples(self) -> Iterator[Sample]:
        """Empty rows, an element twice, unsorted columns, one full row, no elements."""
        indices, indptr = np.array([2, 0, 1, 1, 3], np.int32), np.array([0, 2, 2, 5], np.int32)
        data, x, y = as_real(5), as_real(4, 2), as_real(3, 1)
        full, ends = np.arange(4, dtype=np.int64), np.array([0, 0, 4], np.int64)
        nothing = [np.zeros(0), np.zeros(0, np.int32), np.zeros(3, np.int32), as_real(4, 2)]
        return samples_in(
            "f4 c8 c16",
            ([data, indices, indptr, x], {"columns": 4, "transposed": False}),
            ([data, indices, indptr, y], {"columns": 4, "transposed": True}),
            ([as_real(4), full, ends, as_real(4, 11)], {"columns": 4, "transposed": False}),
            ([as_real(4), full, ends, as_real(2, 3)], {"columns": 4, "transposed": True}),
            (nothing, {"columns": 4, "transposed": False}),
        )


@primitive
class sampled_product(SparseProduct):
    """The elements of x @ y.T at the stored places of a sparse matrix: the sum over k of x[row, k] y[column, k].

    Its transpose is csr_product in either factor. Source: the sampled dense-dense product of machine learning codes.
    """

    linear_groups = ((0,), (1,))
    factors = (0, 1)

    def type(self, x: TensorType, y: TensorType, indices: TensorType, indptr: TensorType) -> TensorType:
        count, rows = check_pattern(self.name, indices, indptr)
        check_matrices(self.name, x, y, ndim=1)
        if x.ndim != 2 or y.ndim != 2 or x.shape[0] != rows or x.shape[1] != y.shape[1]:
            raise ShapeError(
                f"{self.name} got x {x!r} and y {y!r} for {rows} rows.",
                "x has a row for each row of the matrix, and y one for each column.",
            )
        return x.update(shape=(count,)).strong()

    def factor_cotangent(self, number: int, cotangent: Any, *inputs: Any) -> Any:
        x, y, indices, indptr = inputs
        columns = y.type.shape[0] if isinstance(y, Linear) else type_of(y).shape[0]
        other, transposed = (y, False) if number == 0 else (x, True)
        return csr_product(cotangent, indices, indptr, other, columns=columns, transposed=transposed)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
        """The elements of a block diagonal matrix."""
        x, y, indices, indptr = (to_front(v, d, size) for v, d in zip(inputs, dims, strict=True))
        columns, count = type_of(y).shape[1], type_of(indices).shape[1]
        indices, indptr = stacked_patterns(indices, indptr, columns)
        x, y = (reshape(v, shape=(size * type_of(v).shape[1], type_of(v).shape[2])) for v in (x, y))
        return reshape(self.bind(x, y, indices, indptr), shape=(size, count)), 0

    def decomposition(self, x: Any, y: Any, indices: Any, indptr: Any) -> Any:
        """Gathered rows, multiplied and summed."""
        count, rows = type_of(indices).shape[0], type_of(indptr).shape[0] - 1
        if count == 0 or rows == 0:
            return full_like(type_of(x).update(shape=(count,)).strong(), 0)
        products = multiply(_rows_at(x, row_numbers(indptr, count)), _rows_at(y, indices))
        return reduce_sum(products, axes=(1,))

    def samples(self) -> Iterator[Sample]:
        indices, indptr = np.array([2, 0, 1, 1, 3], np.int32), np.array([0, 2, 2, 5], np.int32)
        full, ends = np.arange(4, dtype=np.int64), np.array([0, 0, 4], np.int64)
        return samples_in(
            "f4 c8 c16",
            ([as_real(3, 2), as_real(4, 2), indices, indptr], {}),
            ([as_real(2, 1), as_real(4, 1), full, ends], {}),
            ([as_real(2, 9), as_real(4, 9), full, ends], {}),
        )
