"""rlx.sparse: matrices that store some of their elements, their products, and solvers of linear systems."""

from rlx.offered_names import offer_names as _offer_names
from rlx.sparse.compressed import CSC, CSR
from rlx.sparse.construction import block_diag, diags, eye, from_dense, fromscipy, hstack, kron, vstack
from rlx.sparse.coordinates import COO
from rlx.sparse.direct import Factor, factorized, logdet, slogdet, spsolve
from rlx.sparse.eigenvalues import eigsh, lobpcg_standard
from rlx.sparse.krylov import SolverInfo, bicgstab, cg, gmres, minres
from rlx.sparse.least_squares import lsmr, lsqr
from rlx.sparse.matrix import SparseMatrix
from rlx.sparse.preconditioners import amg, block_jacobi, ic0, ilu0, jacobi
from rlx.sparse.products import matmat, matvec, rmatvec, sddmm, spgemm, transpose_values
from rlx.sparse.structured import BSR, DIA

__all__ = [
    "BSR",
    "COO",
    "CSC",
    "CSR",
    "DIA",
    "Factor",
    "SolverInfo",
    "SparseMatrix",
    "amg",
    "bicgstab",
    "block_diag",
    "block_jacobi",
    "cg",
    "diags",
    "eigsh",
    "eye",
    "factorized",
    "from_dense",
    "fromscipy",
    "gmres",
    "hstack",
    "ic0",
    "ilu0",
    "jacobi",
    "kron",
    "lobpcg_standard",
    "logdet",
    "lsmr",
    "lsqr",
    "matmat",
    "matvec",
    "minres",
    "rmatvec",
    "sddmm",
    "slogdet",
    "spgemm",
    "spsolve",
    "transpose_values",
    "vstack",
]

_offer_names(globals())
