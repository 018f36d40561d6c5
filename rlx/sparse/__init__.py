"""rlx.sparse: matrices that store some of their elements, their products, and solvers of linear systems."""

from rlx.sparse.compressed import CSC, CSR
from rlx.sparse.construction import block_diag, diags, eye, from_dense, fromscipy, hstack, kron, vstack
from rlx.sparse.coordinates import COO
from rlx.sparse.direct import Factor, factorized, logdet, slogdet, spsolve
from rlx.sparse.krylov import SolverInfo, bicgstab, cg, gmres, minres
from rlx.sparse.matrix import SparseMatrix
from rlx.sparse.products import matmat, matvec, rmatvec, sddmm, spgemm, transpose_values

__all__ = [
    "COO",
    "CSC",
    "CSR",
    "Factor",
    "SolverInfo",
    "SparseMatrix",
    "bicgstab",
    "block_diag",
    "cg",
    "diags",
    "eye",
    "factorized",
    "from_dense",
    "fromscipy",
    "gmres",
    "hstack",
    "kron",
    "logdet",
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
