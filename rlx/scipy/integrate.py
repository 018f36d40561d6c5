"""rlx.scipy.integrate: integrals of sampled functions."""

from rlx.numpy.calculus import trapezoid

__all__ = ["trapezoid"]
