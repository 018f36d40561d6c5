"""rlx.numpy.linalg: numpy.linalg on rlx arrays, differentiable and batched over leading axes.

Where LAPACK fails (a singular matrix, one that is not positive definite) results are NaN or infinite:
nothing is raised. Repeated eigenvalues: eigenvalues and singular values keep their derivatives;
eigenvectors of a repeated eigenvalue have none, and their derivative is NaN (eigh, eig) or leaves the
arbitrary rotation out (svd). float16 and bfloat16 are computed in float32, and results rounded to them.
"""

from __future__ import annotations

from rlx.numpy.linalg.factorisations import (
    EighResult,
    EigResult,
    QRResult,
    SVDResult,
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from rlx.numpy.linalg.norms import cond, matrix_norm, matrix_rank, norm, vector_norm
from rlx.numpy.linalg.products import (
    cross,
    diagonal,
    matmul,
    matrix_power,
    matrix_transpose,
    multi_dot,
    outer,
    tensordot,
    trace,
    vecdot,
)
from rlx.numpy.linalg.solves import (
    SlogdetResult,
    det,
    inv,
    lstsq,
    pinv,
    slogdet,
    solve,
    tensorinv,
    tensorsolve,
)
from rlx.offered_names import offer_names as _offer_names

__all__ = [
    "EigResult",
    "EighResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]

_offer_names(globals())
