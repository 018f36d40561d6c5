"""rlx.scipy.sparse.linalg: iterative solvers of linear systems, for matrices and for functions."""

from rlx.offered_names import offer_names
from rlx.scipy.sparse.linalg.conjugate_gradients import bicgstab, cg
from rlx.scipy.sparse.linalg.minimal_residual import gmres

__all__ = ["bicgstab", "cg", "gmres"]

offer_names(globals())
