"""rlx.experimental: what may still change. ode: differential equations."""

from rlx.experimental import ode

__all__ = ["ode"]
