"""Matrix products by hipBLAS, which CuPy includes: it is column-major, so that the operands are swapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.backends.gpu.blas import is_plain_product, matrix_of, result_of
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.ir.kernels import Buffer

__all__ = ["is_hipblas_product", "multiply"]

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def is_hipblas_product(product: LibraryProduct) -> bool:
    """Whether hipBLAS takes a product: one batch dimension at most, sizes of 32 bits, one dtype; no epilogue."""
    return product.reader is None and is_plain_product(product.contract, _LETTERS)


def multiply(cupy: Any, product: LibraryProduct, starts: Mapping[Buffer, int]) -> None:
    """Queue a product on CuPy's current stream. starts: the addresses of buffers."""
    kernel = product.contract
    dtype = kernel.out.buffer.dtype
    operands = (kernel.rhs, kernel.lhs, kernel.out)
    right, left, out = matrices = [matrix_of(kernel.rhs), matrix_of(kernel.lhs), result_of(kernel)]
    places = [starts[o.buffer] + m.start * dtype.itemsize for o, m in zip(operands, matrices, strict=True)]
    # hipBLAS reads the host's numbers during the call
    one, before = np.ones(1, dtype), np.full(1, kernel.accumulate, dtype)
    getattr(cupy.cuda.cublas, f"{_LETTERS[dtype.name]}gemmStridedBatched")(
        cupy.cuda.device.get_cublas_handle(), int(right.transposed), int(left.transposed),
        kernel.columns, kernel.rows, kernel.depth, one.ctypes.data, places[0], right.apart, right.batch,
        places[1], left.apart, left.batch, before.ctypes.data, places[2], out.apart, out.batch, kernel.batches,
    )  # fmt: skip
