"""rlx.scipy.optimize: minimisation with exact gradients."""

from rlx.offered_names import offer_names
from rlx.scipy.optimize.minimize import OptimizeResults, minimize

__all__ = ["OptimizeResults", "minimize"]

offer_names(globals())
