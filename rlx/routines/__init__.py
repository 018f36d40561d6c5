"""Library routines on host memory: NumPy's and SciPy's, batched over leading axes.

These implement the names in `Library.routine`, and define the primitives of linear algebra; a backend may compute them
in other ways. Matrices are the last two axes. If a factorisation fails for a matrix, its result is NaN; the rest of the
batch is not affected.
Attributes with their defaults:

- cholesky(a) -> l: lower triangular; reads the lower triangle
- lu(a) -> (lu, pivots, permutation): as LAPACK packs it, pivots from 0; both are int32, and
  a[permutation] == l @ u
- lu_solve(lu, permutation, b) -> x: op(a) x = b; transpose_a=False, conjugate_a=False
- pivots_to_permutation(pivots) -> permutation: rows, the number of rows
- qr(a) -> (q, r): full_matrices=False
- pivoted_qr(a) -> (q, r, permutation): a[:, permutation] == q @ r; full_matrices=False
- packed_qr(a) -> (h, taus): as LAPACK packs it, r above the reflectors
- householder_product(a, taus) -> q: the first columns of the product of reflectors
- eigh(a) -> (w, v): lower=True, the triangle that is read; w ascending
- svd(a) -> (u, s, vh), or (s,): full_matrices=False, compute_uv=True
- eig(a) -> (w, [vl], [vr]): all complex; compute_left=False, compute_right=True
- schur(a) -> (t, z): a == z @ t @ z^H
- hessenberg(a) -> (h, taus): as LAPACK packs it
- tridiagonal(a) -> (packed, diagonal, off_diagonal, taus): lower=True
- triangular_solve(a, b) -> x: op(a) x = b, or x op(a) = b unless left_side=True; lower=True,
  transpose_a=False, conjugate_a=False, unit_diagonal=False
- tridiagonal_solve(lower, diagonal, upper, b) -> x
- sylvester(a, b, c) -> x: a x + x b = c
- matrix_sqrt(a) -> the principal square root
- csr_product(data, indices, indptr, x) -> a @ x, or a.T @ x if transposed: a by rows, with `columns` columns
- sampled_product(x, y, indices, indptr) -> the elements of x @ y.T at the places of such a matrix
- csr_solve(data, indices, indptr, b) -> x: a x = b, or a.T x = b if transposed; refine, and optionally assume,
  ordering, factor_dtype
- csr_logdet(data, indices, indptr) -> (sign, logarithm of the absolute value) of the determinant
- csr_inverse_entries(data, indices, indptr) -> the elements of the transposed inverse at the stored places
- csr_lstsq(data, indices, indptr, b) -> (x, iterations): columns, transposed, method, tol, maxiter
- csr_eigsh(data, indices, indptr) -> (w, v), real: count, which, sigma, tol, maxiter
- csr_inverse_change(data, indices, indptr, change) -> the first-order change of these elements
- csr_triangular_solve(data, indices, indptr, b) -> x: t x = b, or t.T x = b if transposed, for the triangle t; lower,
  unit_diagonal
- csr_incomplete_lu(data, indices, indptr) -> the LU factors at the stored places: sorted, with a diagonal
- fft(x) -> y: kind "fft", "ifft", "rfft" or "irfft" over the last len(lengths) axes; lengths
  are the transform's (of the real side for rfft and irfft)
"""

from __future__ import annotations

from rlx.routines.common import Routine
from rlx.routines.factorisations import (
    cholesky,
    householder_product,
    lu,
    packed_qr,
    pivoted_qr,
    pivots_to_permutation,
    qr,
)
from rlx.routines.fourier import fft
from rlx.routines.solves import lu_solve, sylvester, triangular_solve, tridiagonal_solve
from rlx.routines.sparse import csr_product, sampled_product
from rlx.routines.sparse_solves import (
    csr_eigsh,
    csr_inverse_change,
    csr_inverse_entries,
    csr_logdet,
    csr_lstsq,
    csr_solve,
)
from rlx.routines.sparse_triangles import csr_incomplete_lu, csr_triangular_solve
from rlx.routines.spectral import eig, eigh, hessenberg, matrix_sqrt, schur, svd, tridiagonal

__all__ = ["LIBRARY_ROUTINES", "Routine"]

LIBRARY_ROUTINES: dict[str, Routine] = {
    "cholesky": cholesky,
    "lu": lu,
    "lu_solve": lu_solve,
    "pivots_to_permutation": pivots_to_permutation,
    "qr": qr,
    "packed_qr": packed_qr,
    "pivoted_qr": pivoted_qr,
    "householder_product": householder_product,
    "eigh": eigh,
    "svd": svd,
    "eig": eig,
    "schur": schur,
    "hessenberg": hessenberg,
    "tridiagonal": tridiagonal,
    "triangular_solve": triangular_solve,
    "tridiagonal_solve": tridiagonal_solve,
    "sylvester": sylvester,
    "matrix_sqrt": matrix_sqrt,
    "fft": fft,
    "csr_product": csr_product,
    "sampled_product": sampled_product,
    "csr_solve": csr_solve,
    "csr_logdet": csr_logdet,
    "csr_lstsq": csr_lstsq,
    "csr_eigsh": csr_eigsh,
    "csr_inverse_entries": csr_inverse_entries,
    "csr_inverse_change": csr_inverse_change,
    "csr_triangular_solve": csr_triangular_solve,
    "csr_incomplete_lu": csr_incomplete_lu,
}
