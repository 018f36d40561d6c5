"""Library routines on host memory: NumPy's and SciPy's, batched over leading axes.

What `Library.routine` names. Matrices are the last two axes. A matrix for which a factorisation
fails gives NaN, as the rest of its batch does not. Attributes with their defaults:

- cholesky(a) -> l: lower triangular; reads the lower triangle
- lu(a) -> (lu, pivots, permutation): as LAPACK packs it, pivots from 0; both are int32, and
  a[permutation] == l @ u
- qr(a) -> (q, r): full_matrices=False
- eigh(a) -> (w, v): lower=True, the triangle that is read; w ascending
- svd(a) -> (u, s, vh), or (s,): full_matrices=False, compute_uv=True
- eig(a) -> (w, [vl], [vr]): all complex; compute_left=False, compute_right=True
- triangular_solve(a, b) -> x: op(a) x = b, or x op(a) = b unless left_side=True; lower=True,
  transpose_a=False, conjugate_a=False, unit_diagonal=False
- fft(x) -> y: kind "fft", "ifft", "rfft" or "irfft" over the last len(lengths) axes; lengths
  are those of the transform (of the real side for rfft and irfft)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

__all__ = ["LIBRARY_ROUTINES", "Routine"]

Arrays = tuple[np.ndarray, ...]
Attributes = dict[str, Any]
Routine = Callable[[Sequence[np.ndarray], Attributes], Arrays]


def _nan_where_it_fails(factorise: Callable[[np.ndarray], Arrays], matrices: np.ndarray) -> Arrays:
    """Factorise a batch; a matrix that fails does not spoil the others."""
    try:
        return factorise(matrices)
    except np.linalg.LinAlgError:
        pass
    batch, shape = matrices.shape[:-2], matrices.shape[-2:]
    pattern = factorise(np.eye(*shape, dtype=matrices.dtype))
    results = tuple(np.full(batch + p.shape, np.nan, p.dtype) for p in pattern)
    for place in np.ndindex(batch):
        try:
            for result, part in zip(results, factorise(matrices[place]), strict=True):
                result[place] = part
        except np.linalg.LinAlgError:
            continue
    return results


def _cholesky(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    return _nan_where_it_fails(lambda a: (np.linalg.cholesky(a),), inputs[0])


def _lu(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    from scipy.linalg import get_lapack_funcs

    (matrices,) = inputs
    rows, columns = matrices.shape[-2:]
    batch = matrices.shape[:-2]
    packed = np.array(matrices, order="C")
    pivots = np.zeros((*batch, min(rows, columns)), np.int32)
    permutation = np.broadcast_to(np.arange(rows, dtype=np.int32), (*batch, rows)).copy()
    if packed.size:
        (getrf,) = get_lapack_funcs(("getrf",), (packed,))
        for place in np.ndindex(batch):
            packed[place], pivots[place], _ = getrf(packed[place])
            order = permutation[place]
            for row, other in enumerate(pivots[place]):
                order[[row, other]] = order[[other, row]]
    return packed, pivots, permutation


def _qr(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    full = attributes.get("full_matrices", False)
    return tuple(np.linalg.qr(inputs[0], mode="complete" if full else "reduced"))


def _eigh(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    triangle: Literal["L", "U"] = "L" if attributes.get("lower", True) else "U"
    return _nan_where_it_fails(lambda a: tuple(np.linalg.eigh(a, UPLO=triangle)), inputs[0])


def _svd(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    full = attributes.get("full_matrices", False)
    if attributes.get("compute_uv", True):
        return _nan_where_it_fails(lambda a: tuple(np.linalg.svd(a, full_matrices=full)), inputs[0])
    return _nan_where_it_fails(lambda a: (np.linalg.svd(a, compute_uv=False),), inputs[0])


def _eig(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    (matrices,) = inputs
    left, right = attributes.get("compute_left", False), attributes.get("compute_right", True)
    dtype = np.result_type(matrices.dtype, np.complex64)

    def factorise(batch: np.ndarray) -> Arrays:
        if not left:
            values, vectors = np.linalg.eig(batch)
            return (values.astype(dtype), vectors.astype(dtype))[: 2 if right else 1]
        return tuple(part.astype(dtype) for part in _eig_both(batch))[: 3 if right else 2]

    return _nan_where_it_fails(factorise, matrices)


def _eig_both(matrices: np.ndarray) -> Arrays:
    """Eigenvalues, left and right eigenvectors."""
    import scipy.linalg

    if not np.isfinite(matrices).all():
        raise np.linalg.LinAlgError("a matrix holds infinities or NaN")
    dtype = np.result_type(matrices.dtype, np.complex64)
    values = np.zeros(matrices.shape[:-1], dtype)
    left, right = np.zeros(matrices.shape, dtype), np.zeros(matrices.shape, dtype)
    for place in np.ndindex(matrices.shape[:-2]):
        if matrices[place].size:
            parts = scipy.linalg.eig(matrices[place], left=True, right=True)
            values[place], left[place], right[place] = parts
    return values, left, right


def _triangular_solve(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    from scipy.linalg import get_blas_funcs

    matrices, right_sides = inputs
    if attributes.get("conjugate_a", False):
        matrices = matrices.conj()
    solution = np.array(right_sides, order="C")
    if solution.size == 0:
        return (solution,)
    (trsm,) = get_blas_funcs(("trsm",), (matrices, solution))
    for place in np.ndindex(solution.shape[:-2]):
        solution[place] = trsm(
            1.0,
            matrices[place],
            solution[place],
            side=0 if attributes.get("left_side", True) else 1,
            lower=int(attributes.get("lower", True)),
            trans_a=int(attributes.get("transpose_a", False)),
            diag=int(attributes.get("unit_diagonal", False)),
        )
    return (solution,)


def _fft(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    (signal,) = inputs
    kind, lengths = attributes["kind"], tuple(attributes["lengths"])
    axes = tuple(range(signal.ndim - len(lengths), signal.ndim))
    if signal.size == 0 or 0 in lengths:
        return (_empty_transform(signal, kind, lengths),)
    functions: dict[str, Callable[..., np.ndarray]] = {
        "fft": np.fft.fftn,
        "ifft": np.fft.ifftn,
        "rfft": np.fft.rfftn,
        "irfft": np.fft.irfftn,
    }
    return (np.ascontiguousarray(functions[kind](signal, s=lengths, axes=axes)),)


def _empty_transform(signal: np.ndarray, kind: str, lengths: tuple[int, ...]) -> np.ndarray:
    """Zeros: the transform of nothing, which NumPy refuses."""
    single = signal.dtype in (np.float32, np.complex64)
    last = lengths[-1] // 2 + 1 if kind == "rfft" else lengths[-1]
    real, complex_ = (np.float32, np.complex64) if single else (np.float64, np.complex128)
    dtype = real if kind == "irfft" else complex_
    return np.zeros((*signal.shape[: signal.ndim - len(lengths)], *lengths[:-1], last), dtype)


LIBRARY_ROUTINES: dict[str, Routine] = {
    "cholesky": _cholesky,
    "lu": _lu,
    "qr": _qr,
    "eigh": _eigh,
    "svd": _svd,
    "eig": _eig,
    "triangular_solve": _triangular_solve,
    "fft": _fft,
}
