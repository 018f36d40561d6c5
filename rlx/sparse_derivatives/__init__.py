"""Sparse Jacobians and Hessians: patterns found in programs, colourings, and derivatives evaluated by few products."""

from rlx.offered_names import offer_names as _offer_names
from rlx.sparse_derivatives.coloring import Coloring, color
from rlx.sparse_derivatives.evaluation import jacobian, sparse_hessian
from rlx.sparse_derivatives.pattern import Pattern, assume_pattern, hessian_sparsity, sparsity

__all__ = [
    "Coloring",
    "Pattern",
    "assume_pattern",
    "color",
    "hessian_sparsity",
    "jacobian",
    "sparse_hessian",
    "sparsity",
]

_offer_names(globals())
