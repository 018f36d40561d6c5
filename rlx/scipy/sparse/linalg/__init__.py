"""rlx.scipy.sparse.linalg: linear systems solved by products with a matrix, or with a function in its place."""

from rlx.offered_names import offer_names
from rlx.scipy.sparse.linalg.conjugate_gradients import bicgstab, cg
from rlx.scipy.sparse.linalg.minimal_residual import gmres

__all__ = ["bicgstab", "cg", "gmres"]

offer_names(globals())
