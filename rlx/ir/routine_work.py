"""Floating-point operations of library routines, by their leading terms.

The counts are from LAPACK's authors (Blackford, Dongarra: Installation Guide for LAPACK, Working
Note 41, appendix C; Golub, Van Loan: Matrix Computations, 4th edition, for eigenvalues and singular
values, which iterate) and 5 n log2 n for a Fourier transform (Frigo, Johnson: FFTW).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.ir.kernels import Library

__all__ = ["routine_flops"]

_COMPLEX_FACTOR = 4


def routine_flops(kernel: Library) -> float | None:
    """Floating-point operations of a library kernel; None for a routine that is not known.

    >>> import rlx, rlx.numpy as jnp
    >>> plan = rlx.inspect(jnp.linalg.cholesky)(rlx.ShapeDtypeStruct((30, 30), "float32")).plan
    >>> routine_flops(plan.kernels[-1])
    9000.0
    """
    count = _COUNTS.get(kernel.routine)
    if count is None:
        return None
    if any(0 in operand.shape for operand in (*kernel.inputs, *kernel.outputs)):
        return 0.0
    return float(count(kernel))


def _matrix(count: Callable[[Library, int, int], float]) -> Callable[[Library], float]:
    """A count for one rows x columns matrix, as one for the batch in a kernel's first operand."""

    def counted(kernel: Library) -> float:
        *batch, rows, columns = kernel.inputs[0].shape
        factor = _COMPLEX_FACTOR if kernel.inputs[0].buffer.dtype.kind == "c" else 1
        return math.prod(batch) * factor * count(kernel, rows, columns)

    return counted


def _columns(kernel: Library) -> int:
    """Right-hand sides of a solve: the columns of its result."""
    return kernel.outputs[0].shape[-1]


def _lu(kernel: Library, rows: int, columns: int) -> float:
    least = min(rows, columns)
    return 2 * rows * columns * least - (rows + columns) * least**2 + 2 * least**3 / 3


def _qr(kernel: Library, rows: int, columns: int) -> float:
    """The factorisation, and the orthogonal factor made explicit."""
    least = min(rows, columns)
    width = kernel.outputs[0].shape[-1]
    reflected = 4 * rows * columns * least - 2 * (rows + columns) * least**2 + 4 * least**3 / 3
    explicit = 4 * rows * width * least - 2 * (rows + width) * least**2 + 4 * least**3 / 3
    return reflected + explicit


def _packed_qr(kernel: Library, rows: int, columns: int) -> float:
    least = min(rows, columns)
    return 4 * rows * columns * least - 2 * (rows + columns) * least**2 + 4 * least**3 / 3


def _householder_product(kernel: Library, rows: int, columns: int) -> float:
    reflectors = kernel.inputs[1].shape[-1]
    return 4 * rows * columns * reflectors - 2 * (rows + columns) * reflectors**2 + 4 * reflectors**3 / 3


def _singular_values(kernel: Library, rows: int, columns: int) -> float:
    long, short = max(rows, columns), min(rows, columns)
    if kernel.attributes.get("compute_uv", True):
        return 4 * long**2 * short + 8 * long * short**2 + 9 * short**3
    return 4 * long * short**2 - 4 * short**3 / 3


def _eigenvalues(kernel: Library, rows: int, columns: int) -> float:
    vectors = kernel.attributes.get("compute_left", False) or kernel.attributes.get("compute_right", True)
    return (25 if vectors else 10) * rows**3


def _sylvester(kernel: Library, rows: int, columns: int) -> float:
    """Two Schur forms and the triangular equation between them."""
    other = kernel.inputs[1].shape[-1]
    return 25 * (rows**3 + other**3) + 5 * (rows**2 * other + rows * other**2)


def _fourier(kernel: Library) -> float:
    """5 n log2 n for each transform, half of this if one side is real."""
    lengths = kernel.attributes["lengths"]
    points = math.prod(lengths)
    real = kernel.attributes["kind"] in ("rfft", "irfft")
    operand = kernel.outputs[0] if kernel.attributes["kind"] == "irfft" else kernel.inputs[0]
    transforms = math.prod(operand.shape) / points
    return (2.5 if real else 5.0) * transforms * points * math.log2(max(points, 2))


def _sparse(kernel: Library) -> float:
    """A multiplication and an addition for each stored element and column of the dense matrix."""
    product = kernel.routine != "sampled_product"
    factor = _COMPLEX_FACTOR if kernel.inputs[0].buffer.dtype.kind == "c" else 1
    columns = kernel.inputs[3 if product else 0].shape[-1]
    return 2 * factor * columns * kernel.inputs[1 if product else 2].shape[0]


_COUNTS: dict[str, Callable[[Library], float]] = {
    "cholesky": _matrix(lambda kernel, n, _: n**3 / 3),
    "lu": _matrix(_lu),
    "lu_solve": _matrix(lambda kernel, n, _: 2 * n**2 * _columns(kernel)),
    "triangular_solve": _matrix(lambda kernel, n, _: n**2 * _columns(kernel)),
    "pivots_to_permutation": lambda kernel: 0.0,
    "qr": _matrix(_qr),
    "packed_qr": _matrix(_packed_qr),
    "pivoted_qr": _matrix(_qr),
    "householder_product": _matrix(_householder_product),
    "eigh": _matrix(lambda kernel, n, _: 9 * n**3),
    "svd": _matrix(_singular_values),
    "eig": _matrix(_eigenvalues),
    "schur": _matrix(lambda kernel, n, _: 25 * n**3),
    "hessenberg": _matrix(lambda kernel, n, _: 14 * n**3 / 3),
    "tridiagonal": _matrix(lambda kernel, n, _: 8 * n**3 / 3),
    "sylvester": _matrix(_sylvester),
    "matrix_sqrt": _matrix(lambda kernel, n, _: 25 * n**3 + n**3 / 3 + 4 * n**3),
    "tridiagonal_solve": lambda kernel: 9.0 * math.prod(kernel.outputs[0].shape),
    "fft": _fourier,
    "csr_product": _sparse,
    "sampled_product": _sparse,
    "csr_triangular_solve": _sparse,
    "csr_incomplete_lu": lambda kernel: 2.0 * kernel.inputs[1].shape[0],
    # the fill of the factors depends on the pattern: counted as if there were none
    "csr_solve": _sparse,
    "csr_logdet": lambda kernel: 2.0 * kernel.inputs[1].shape[0],
    "csr_inverse_entries": lambda kernel: 2.0 * kernel.inputs[1].shape[0],
    "csr_lstsq": _sparse,
    "csr_eigsh": lambda kernel: 2.0 * kernel.inputs[1].shape[0],
    "csr_inverse_change": lambda kernel: 4.0 * kernel.inputs[1].shape[0] * (kernel.inputs[2].shape[0] - 1),
}
