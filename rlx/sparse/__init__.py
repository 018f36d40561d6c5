"""rlx.sparse: matrices that store some of their elements, their products, and solvers of linear systems."""

from rlx.sparse.compressed import CSC, CSR
from rlx.sparse.matrix import SparseMatrix

__all__ = ["CSC", "CSR", "SparseMatrix"]
