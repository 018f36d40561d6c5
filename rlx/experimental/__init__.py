"""rlx.experimental: what may still change.

jet: derivatives of high order. ode: differential equations.
"""

from rlx.experimental import jet, ode

__all__ = ["jet", "ode"]
