"""Matrix products in BLAS's conventions: the layout of the operands and their leading dimensions."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from rlx.ir.kernels import Contract, Operand

__all__ = ["Matrix", "is_plain_product", "matrix_of", "result_of"]


class Matrix(NamedTuple):
    """The layout of an operand's matrices, in elements.

    transposed: columns are contiguous. apart: the distance between rows (columns). batch: the distance between
    matrices. start: the position of the first matrix in its buffer.
    """

    transposed: bool
    apart: int
    batch: int
    start: int


def is_plain_product(kernel: Contract, dtypes: Container[str]) -> bool:
    """Whether a library takes a product: at most one batch dimension, sizes of 32 bits, one dtype of these names."""
    dtype = kernel.out.buffer.dtype
    plain = dtype.name in dtypes and kernel.lhs.buffer.dtype == dtype == kernel.summed_in
    sizes = (kernel.batches, kernel.rows, kernel.columns, kernel.depth)
    strides = [s for o in (kernel.lhs, kernel.rhs, kernel.out) for s in o.strides[-2:]]
    return plain and len(kernel.out.shape) <= 3 and 0 not in sizes and max(*sizes, *strides) < 1 << 31


def matrix_of(operand: Operand) -> Matrix:
    """The layout of an operand of a plain product."""
    (rows, columns), (row, column) = operand.shape[-2:], operand.strides[-2:]
    batch = operand.strides[0] if len(operand.strides) == 3 else 0
    if (column == 1 or columns == 1) and (rows == 1 or row >= columns):
        return Matrix(False, max(row if rows > 1 else columns, columns, 1), batch, operand.offset)
    return Matrix(True, max(column if columns > 1 else rows, rows, 1), batch, operand.offset)


def result_of(kernel: Contract) -> Matrix:
    """The layout of the result of a plain product."""
    out = kernel.out
    apart = out.strides[-2] if kernel.rows > 1 else kernel.columns
    return Matrix(False, apart, out.strides[0] if len(out.strides) == 3 else 0, out.offset)
