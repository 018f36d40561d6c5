"""rlx.scipy.integrate: integrals of sampled functions."""

from rlx.numpy.calculus import trapezoid
from rlx.offered_names import offer_names

__all__ = ["trapezoid"]

offer_names(globals())
