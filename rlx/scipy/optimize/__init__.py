"""rlx.scipy.optimize: minima of functions, by gradients that rlx derives."""

from rlx.scipy.optimize.minimize import OptimizeResults, minimize

__all__ = ["OptimizeResults", "minimize"]
