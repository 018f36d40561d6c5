"""rlx.experimental: functions whose interface may still change.

checkify: conditions at run time. jet: derivatives of high order. ode: differential equations.
"""

from rlx.experimental import checkify, jet, ode

__all__ = ["checkify", "jet", "ode"]
