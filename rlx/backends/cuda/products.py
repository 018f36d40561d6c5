"""Matrix products by cuBLAS, which CuPy brings: it counts in columns, so that operands change places."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.kernels import Contract, Operand

__all__ = ["is_cublas_product", "multiply"]

# numbers of cuBLAS: cudaDataType_t, cublasComputeType_t, cublasGemmAlgo_t
_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
_COMPUTE = {"float32": 68, "float64": 70, "complex64": 68, "complex128": 70}
_FAST_TF32 = 77
_DEFAULT_ALGORITHM = -1
_NOT_TRANSPOSED, _TRANSPOSED = 0, 1


def is_cublas_product(kernel: Contract) -> bool:
    """Whether cuBLAS takes a product: one batch dimension at most, sizes of 32 bits, one dtype."""
    dtype = kernel.out.buffer.dtype
    plain = dtype.name in _TYPES and kernel.lhs.buffer.dtype == dtype == kernel.summed_in
    sizes = (kernel.batches, kernel.rows, kernel.columns, kernel.depth)
    strides = [s for o in (kernel.lhs, kernel.rhs, kernel.out) for s in o.strides[-2:]]
    return plain and len(kernel.out.shape) <= 3 and 0 not in sizes and max(*sizes, *strides) < 1 << 31


def _layout(operand: Operand) -> tuple[int, int]:
    """How rows lie: as columns of cuBLAS's are (not transposed) or across; and how far apart."""
    (rows, columns), (row, column) = operand.shape[-2:], operand.strides[-2:]
    if (column == 1 or columns == 1) and (rows == 1 or row >= columns):
        return _NOT_TRANSPOSED, max(row if rows > 1 else columns, columns, 1)
    return _TRANSPOSED, max(column if columns > 1 else rows, rows, 1)


def multiply(cupy: Any, stream: int, kernel: Contract, lhs: int, rhs: int, out: int) -> None:
    """Queue a product of arrays at addresses."""
    dtype = kernel.out.buffer.dtype
    operands = (kernel.rhs, kernel.lhs, kernel.out)
    addresses = [
        start + operand.offset * dtype.itemsize for start, operand in zip((rhs, lhs, out), operands, strict=True)
    ]
    (right, right_apart), (left, left_apart) = _layout(kernel.rhs), _layout(kernel.lhs)
    apart = kernel.out.strides[-2] if kernel.rows > 1 else kernel.columns
    batches = [operand.strides[0] if len(operand.strides) == 3 else 0 for operand in operands]
    # read when the call is made: cuBLAS takes numbers of the host at once
    one, before = np.ones(1, dtype), np.full(1, kernel.accumulate, dtype)
    cublas, kind = cupy.cuda.cublas, _TYPES[dtype.name]
    compute = _FAST_TF32 if kernel.tf32 else _COMPUTE[dtype.name]
    handle = cupy.cuda.device.get_cublas_handle()
    cublas.setStream(handle, stream)
    cublas.gemmStridedBatchedEx(
        handle, right, left, kernel.columns, kernel.rows, kernel.depth, one.ctypes.data,
        addresses[0], kind, right_apart, batches[0], addresses[1], kind, left_apart, batches[1], before.ctypes.data,
        addresses[2], kind, apart, batches[2], kernel.batches, compute, _DEFAULT_ALGORITHM,
    )  # fmt: skip
