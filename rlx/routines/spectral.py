"""Eigenvalues, singular values and functions of Schur forms, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rlx.routines.common import Arrays, Attributes, nan_where_it_fails

__all__ = ["eig", "eigh", "hessenberg", "matrix_sqrt", "schur", "svd", "tridiagonal"]


def eigh(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """Ascending eigenvalues and orthonormal eigenvectors of Hermitian matrices."""
    triangle: Literal["L", "U"] = "L" if attributes.get("lower", True) else "U"
    return nan_where_it_fails(lambda a: tuple(np.linalg.eigh(a, UPLO=triangle)), inputs[0])


def svd(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """Singular vectors and descending singular values."""
    full, vectors = attributes.get("full_matrices", False), attributes.get("compute_uv", True)

    def factorise(a: np.ndarray) -> Arrays:
        if not np.isfinite(a).all():  # LAPACK may not terminate on infinities
            raise np.linalg.LinAlgError("a matrix contains infinities or NaN")
        return tuple(np.linalg.svd(a, full_matrices=full)) if vectors else (np.linalg.svd(a, compute_uv=False),)

    return nan_where_it_fails(factorise, inputs[0])


def eig(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """Complex eigenvalues and eigenvectors of general matrices."""
    (matrices,) = inputs
    left, right = attributes.get("compute_left", False), attributes.get("compute_right", True)
    dtype = np.result_type(matrices.dtype, np.complex64)

    def factorise(batch: np.ndarray) -> Arrays:
        if not left and not right:
            return (np.linalg.eigvals(batch).astype(dtype),)
        values, left_vectors, right_vectors = _eig_both(batch)
        return (values, *((left_vectors,) if left else ()), *((right_vectors,) if right else ()))

    return nan_where_it_fails(factorise, matrices)


def _eig_both(matrices: np.ndarray) -> Arrays:
    """Eigenvalues, left and right eigenvectors."""
    import scipy.linalg

    if not np.isfinite(matrices).all():
        raise np.linalg.LinAlgError("a matrix contains infinities or NaN")
    dtype = np.result_type(matrices.dtype, np.complex64)
    values = np.zeros(matrices.shape[:-1], dtype)
    left, right = np.zeros(matrices.shape, dtype), np.zeros(matrices.shape, dtype)
    for place in np.ndindex(matrices.shape[:-2]):
        if matrices[place].size:
            parts = scipy.linalg.eig(matrices[place], left=True, right=True)
            values[place], left[place], right[place] = parts
    return values, left, right


def schur(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The (quasi) upper triangular form of matrices, and the unitary transformations."""
    import scipy.linalg

    (matrices,) = inputs
    kind = "real" if matrices.dtype.kind == "f" else "complex"
    form, vectors = np.full((2, *matrices.shape), np.nan, matrices.dtype)
    for place in np.ndindex(matrices.shape[:-2]):
        if matrices[place].size and np.isfinite(matrices[place]).all():
            form[place], vectors[place] = scipy.linalg.schur(matrices[place], kind)
    return form, vectors


def hessenberg(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """Hessenberg form above the transforming reflectors, and their factors."""
    from scipy.linalg import get_lapack_funcs

    (matrices,) = inputs
    packed = np.array(matrices, order="C")
    order = matrices.shape[-1]
    factors = np.zeros((*matrices.shape[:-2], max(order - 1, 0)), matrices.dtype)
    if order > 1:
        (gehrd,) = get_lapack_funcs(("gehrd",), (matrices,))
        for place in np.ndindex(matrices.shape[:-2]):
            packed[place], factors[place], _ = gehrd(matrices[place], 0, order - 1)
    return packed, factors


def tridiagonal(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The tridiagonal form of Hermitian matrices, with the transforming reflectors."""
    from scipy.linalg import get_lapack_funcs

    (matrices,) = inputs
    batch, order = matrices.shape[:-2], matrices.shape[-1]
    packed = np.array(matrices, order="C")
    diagonal = np.zeros((*batch, order), matrices.real.dtype)
    off_diagonal = np.zeros((*batch, max(order - 1, 0)), matrices.real.dtype)
    factors = np.zeros(off_diagonal.shape, matrices.dtype)
    if order == 1:
        packed = packed.real.astype(packed.dtype)
        diagonal[...] = matrices[..., 0].real
    elif order:
        (trd,) = get_lapack_funcs(("sytrd" if matrices.dtype.kind == "f" else "hetrd",), (matrices,))
        for place in np.ndindex(batch):
            parts = trd(matrices[place], lower=int(attributes.get("lower", True)))
            packed[place], diagonal[place], off_diagonal[place], factors[place], _ = parts
    return packed, diagonal, off_diagonal, factors


def matrix_sqrt(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """Principal square roots of complex matrices; NaN if there is none."""
    import warnings

    import scipy.linalg

    (matrices,) = inputs
    roots = np.full(matrices.shape, np.nan, matrices.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in np.ndindex(matrices.shape[:-2]):
            if matrices[place].size and np.isfinite(matrices[place]).all():
                roots[place] = scipy.linalg.sqrtm(matrices[place])
    return (roots,)
