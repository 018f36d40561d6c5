"""rlx.scipy.integrate: integrals of sampled functions, and initial value problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.numpy.calculus import trapezoid
from rlx.offered_names import offer_names

if TYPE_CHECKING:  # imported on first use
    from rlx.scipy.integrate.initial_values import solve_ivp as solve_ivp

__all__ = ["solve_ivp", "trapezoid"]

offer_names(globals(), {"solve_ivp": "rlx.scipy.integrate.initial_values"})
