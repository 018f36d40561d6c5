"""rlx.scipy.linalg: scipy.linalg on rlx arrays, batched over leading axes.

Options that only tune LAPACK (overwrite_a, check_finite, ...) are accepted and ignored. Derivatives and
failures are as in rlx.numpy.linalg. schur, rsf2csf, hessenberg and funm have no derivative.
"""

from __future__ import annotations

from rlx.numpy.products import kron
from rlx.offered_names import offer_names
from rlx.scipy.linalg.factorisations import (
    cho_factor,
    cholesky,
    eigh,
    eigh_tridiagonal,
    hessenberg,
    lu,
    lu_factor,
    polar,
    qr,
    qr_multiply,
    rsf2csf,
    schur,
    svd,
)
from rlx.scipy.linalg.functions import expm, expm_frechet, funm, sqrtm
from rlx.scipy.linalg.matrices import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)
from rlx.scipy.linalg.solves import cho_solve, det, inv, lu_solve, solve, solve_sylvester, solve_triangular

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "companion",
    "convolution_matrix",
    "det",
    "dft",
    "eigh",
    "eigh_tridiagonal",
    "expm",
    "expm_frechet",
    "fiedler",
    "fiedler_companion",
    "funm",
    "hadamard",
    "hankel",
    "helmert",
    "hessenberg",
    "hilbert",
    "inv",
    "invhilbert",
    "invpascal",
    "kron",
    "leslie",
    "lu",
    "lu_factor",
    "lu_solve",
    "pascal",
    "polar",
    "qr",
    "qr_multiply",
    "rsf2csf",
    "schur",
    "solve",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "toeplitz",
]

offer_names(globals())
