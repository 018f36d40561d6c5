"""rlx.scipy.sparse: linalg, iterative solvers of linear systems."""

from rlx.scipy.sparse import linalg

__all__ = ["linalg"]
