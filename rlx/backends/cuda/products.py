"""Matrix products by cuBLAS, which CuPy brings: it counts in columns, so that operands change places."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.backends.gpu.blas import is_plain_product, matrix_of, result_of
from rlx.ir.kernels import Contract

__all__ = ["is_cublas_product", "multiply"]

# numbers of cuBLAS: cudaDataType_t, cublasComputeType_t, cublasGemmAlgo_t; a matrix is transposed (1) or not (0)
_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
_COMPUTE = {"float32": 68, "float64": 70, "complex64": 68, "complex128": 70}
_FAST_TF32 = 77
_DEFAULT_ALGORITHM = -1


def is_cublas_product(kernel: Contract) -> bool:
    """Whether cuBLAS takes a product."""
    return is_plain_product(kernel, _TYPES)


def multiply(cupy: Any, stream: int, kernel: Contract, lhs: int, rhs: int, out: int) -> None:
    """Queue a product of arrays at addresses."""
    dtype = kernel.out.buffer.dtype
    right, left, result = matrix_of(kernel.rhs), matrix_of(kernel.lhs), result_of(kernel)
    addresses = [
        start + matrix.start * dtype.itemsize
        for start, matrix in zip((rhs, lhs, out), (right, left, result), strict=True)
    ]
    # read when the call is made: cuBLAS takes numbers of the host at once
    one, before = np.ones(1, dtype), np.full(1, kernel.accumulate, dtype)
    cublas, kind = cupy.cuda.cublas, _TYPES[dtype.name]
    compute = _FAST_TF32 if kernel.tf32 else _COMPUTE[dtype.name]
    handle = cupy.cuda.device.get_cublas_handle()
    cublas.setStream(handle, stream)
    cublas.gemmStridedBatchedEx(
        handle, int(right.transposed), int(left.transposed), kernel.columns, kernel.rows, kernel.depth, one.ctypes.data,
        addresses[0], kind, right.apart, right.batch, addresses[1], kind, left.apart, left.batch, before.ctypes.data,
        addresses[2], kind, result.apart, result.batch, kernel.batches, compute, _DEFAULT_ALGORITHM,
    )  # fmt: skip
