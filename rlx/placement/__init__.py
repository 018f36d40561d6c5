"""The choice of a device: estimates, policies, calibration, and programs on two devices."""

from __future__ import annotations

from rlx.offered_names import offer_names
from rlx.placement.regions import on, place

__all__ = ["on", "place"]

offer_names(globals())
