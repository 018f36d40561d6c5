"""Factorisations, solves and Fourier transforms by CUDA's and ROCm's libraries, which CuPy calls on its own arrays.

CuPy's functions read and write arrays over a plan's memory, on the plan's stream. Cases that they leave open (matrices
that fail, numbers that are not finite, spectra that no real signal has) are handled here as in `rlx.routines`. The
functions were read in CuPy 14.2, and tests call them with a fake driver.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.kernels import Library, Operand
from rlx.routines import LIBRARY_ROUTINES

__all__ = ["ROUTINES", "CupyRoutine", "run_routine", "why_not_routine"]

CupyArray = Any  # cupy.ndarray: CuPy need not be installed where types are checked
Attributes = dict[str, Any]
Run = Callable[[Any, Sequence[CupyArray], Attributes], Sequence[CupyArray]]

_DTYPES = frozenset(("float32", "float64", "complex64", "complex128"))


class CupyRoutine(NamedTuple):
    """A routine of CuPy: a function of CuPy and arrays; the library that it calls on CUDA, and on ROCm."""

    run: Run
    cuda: str
    rocm: str


def why_not_routine(kernel: Library) -> str | None:
    """The reason that a routine runs on the host; None if CuPy's is used."""
    if kernel.routine not in ROUTINES:
        return f"CuPy has no {kernel.routine}"
    operands = (*kernel.inputs, *kernel.outputs)
    if any(0 in operand.shape for operand in operands):
        return f"{kernel.routine} of no elements needs no computation"
    return None


def run_routine(cupy: Any, device: int, kernel: Library, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """Queue a routine on arrays at addresses, on the current stream; some wait for it, to see which matrices failed."""

    def array(operand: Operand, address: int) -> CupyArray:
        itemsize = operand.buffer.dtype.itemsize
        nbytes = prod(operand.shape) * itemsize
        # others own the memory, and keep it until the stream no longer uses it
        memory = cupy.cuda.UnownedMemory(address + operand.offset * itemsize, nbytes, None, device)
        return cupy.ndarray(operand.shape, operand.buffer.dtype, cupy.cuda.MemoryPointer(memory, 0))

    given = [array(operand, address) for operand, address in zip(kernel.inputs, inputs, strict=True)]
    found = ROUTINES[kernel.routine].run(cupy, given, kernel.attributes)
    for operand, address, result in zip(kernel.outputs, outputs, found, strict=True):
        array(operand, address)[...] = result


# ------------------------------------------------------------------ failures
def _nan_where_it_fails(cupy: Any, factorise: Callable[[CupyArray], CupyArray], matrices: CupyArray) -> CupyArray:
    """One factor of each matrix; all NaN if the library reports a failure, which requires waiting for it."""
    errstate = importlib.import_module("cupyx").errstate
    try:
        with errstate(linalg="raise"):
            return factorise(matrices)
    except np.linalg.LinAlgError:
        pass
    result = cupy.full(matrices.shape, np.nan, matrices.dtype)
    for place in np.ndindex(matrices.shape[:-2]):
        try:
            with errstate(linalg="raise"):
                result[place] = factorise(matrices[place])
        except np.linalg.LinAlgError:
            continue
    return result


def _where_finite(
    cupy: Any, matrices: CupyArray, factorise: Callable[[CupyArray], Sequence[CupyArray]]
) -> Sequence[CupyArray]:
    """Factors; all NaN for a matrix that is not finite, for which iterations may not end."""
    finite = cupy.isfinite(matrices).all(axis=(-2, -1))
    found = factorise(cupy.where(finite[..., None, None], matrices, cupy.zeros_like(matrices)))

    def marked(factor: CupyArray) -> CupyArray:
        axes = (...,) + (None,) * (factor.ndim - finite.ndim)
        return cupy.where(finite[axes], factor, cupy.full_like(factor, np.nan))

    return [marked(factor) for factor in found]


# ------------------------------------------------------------------ factorisations
def _cholesky(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    """The factor, with NaN in the triangle if the matrix is not positive definite or has NaN."""
    factor = _nan_where_it_fails(cupy, cupy.linalg.cholesky, inputs[0])
    failed = cupy.isnan(cupy.diagonal(factor, axis1=-2, axis2=-1)).any(axis=-1)[..., None, None]
    return [cupy.where(failed, cupy.tril(cupy.full_like(factor, np.nan)), factor)]


def _lu(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    """One matrix after the other. CuPy's warnings about singular matrices are ignored."""
    (matrices,) = inputs
    factorise = importlib.import_module("cupyx.scipy.linalg").lu_factor
    batch, (rows, columns) = matrices.shape[:-2], matrices.shape[-2:]
    packed, pivots = cupy.empty_like(matrices), np.empty((*batch, min(rows, columns)), np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for place in np.ndindex(batch):
            packed[place], found = factorise(matrices[place], check_finite=False)
            pivots[place] = cupy.asnumpy(found)
    (permutation,) = LIBRARY_ROUTINES["pivots_to_permutation"]([pivots], {"rows": rows})
    return [packed, cupy.asarray(pivots), cupy.asarray(permutation)]


def _qr(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    full = attributes.get("full_matrices", False)
    return cupy.linalg.qr(inputs[0], mode="complete" if full else "reduced")


def _packed_qr(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    turned, factors = cupy.linalg.qr(inputs[0], mode="raw")
    return [turned.swapaxes(-1, -2), factors]


def _eigh(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    lower = attributes.get("lower", True)
    read = cupy.tril(inputs[0]) if lower else cupy.triu(inputs[0])  # NaN in the other triangle does not matter
    return _where_finite(cupy, read, lambda a: cupy.linalg.eigh(a, UPLO="L" if lower else "U"))


def _svd(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    full, vectors = attributes.get("full_matrices", False), attributes.get("compute_uv", True)

    def factors(a: CupyArray) -> Sequence[CupyArray]:
        found = cupy.linalg.svd(a, full_matrices=full, compute_uv=vectors)
        return found if vectors else [found]

    return _where_finite(cupy, inputs[0], factors)


# ------------------------------------------------------------------ solves
def _solve(a: CupyArray, b: CupyArray, lower: bool, transposed: bool, unit: bool) -> CupyArray:
    solve_triangular = importlib.import_module("cupyx.scipy.linalg").solve_triangular
    return solve_triangular(a, b, trans="T" if transposed else "N", lower=lower, unit_diagonal=unit)


def _triangular_solve(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    a, b = inputs
    lower, unit = attributes.get("lower", True), attributes.get("unit_diagonal", False)
    transposed = attributes.get("transpose_a", False)
    a = a.conj() if attributes.get("conjugate_a", False) else a
    if attributes.get("left_side", True):
        return [_solve(a, b, lower, transposed, unit)]
    return [_solve(a, b.swapaxes(-1, -2), lower, not transposed, unit).swapaxes(-1, -2)]


def _lu_solve(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    factors, permutation, b = inputs
    factors = factors.conj() if attributes.get("conjugate_a", False) else factors
    if not attributes.get("transpose_a", False):
        ordered = cupy.take_along_axis(b, cupy.broadcast_to(permutation[..., None], b.shape), -2)
        return [_solve(factors, _solve(factors, ordered, True, False, True), False, False, False)]
    solved = _solve(factors, _solve(factors, b, False, True, False), True, True, True)
    inverse = cupy.argsort(permutation, axis=-1)
    return [cupy.take_along_axis(solved, cupy.broadcast_to(inverse[..., None], b.shape), -2)]


# ------------------------------------------------------------------ transforms
def _fft(cupy: Any, inputs: Sequence[CupyArray], attributes: Attributes) -> Sequence[CupyArray]:
    (signal,) = inputs
    kind, lengths = attributes["kind"], tuple(attributes["lengths"])
    axes = tuple(range(signal.ndim - len(lengths), signal.ndim))
    if kind != "irfft":
        return [getattr(cupy.fft, f"{kind}n")(signal, s=lengths, axes=axes)]
    # ignore imaginary parts that are zero in a real signal's spectrum: libraries do not specify them
    half = cupy.fft.ifftn(signal, s=lengths[:-1], axes=axes[:-1]) if len(lengths) > 1 else signal.copy()
    for place in (0, lengths[-1] // 2) if lengths[-1] % 2 == 0 else (0,):
        half[..., place].imag = 0
    return [cupy.fft.irfft(half, n=lengths[-1], axis=-1)]


ROUTINES: dict[str, CupyRoutine] = {
    "cholesky": CupyRoutine(_cholesky, "cuSOLVER", "rocSOLVER"),
    "lu": CupyRoutine(_lu, "cuSOLVER", "rocSOLVER"),
    "qr": CupyRoutine(_qr, "cuSOLVER", "rocSOLVER"),
    "packed_qr": CupyRoutine(_packed_qr, "cuSOLVER", "rocSOLVER"),
    "eigh": CupyRoutine(_eigh, "cuSOLVER", "rocSOLVER"),
    "svd": CupyRoutine(_svd, "cuSOLVER", "rocSOLVER"),
    "triangular_solve": CupyRoutine(_triangular_solve, "cuBLAS", "hipBLAS"),
    "lu_solve": CupyRoutine(_lu_solve, "cuBLAS", "hipBLAS"),
    "fft": CupyRoutine(_fft, "cuFFT", "hipFFT"),
}
