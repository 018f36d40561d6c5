"""The choice of a device: estimates, policies, calibration, and programs on several devices."""

from __future__ import annotations

from rlx.call.policy import Policy
from rlx.offered_names import offer_names
from rlx.placement.calibration import calibrate
from rlx.placement.choice import Decision, choose
from rlx.placement.estimate import Estimate, EstimateTable, estimate
from rlx.placement.rates import DeviceRates
from rlx.placement.regions import on, place
from rlx.placement.split import Division, divide
from rlx.placement.stored_rates import rates_of

__all__ = [
    "Decision",
    "DeviceRates",
    "Division",
    "Estimate",
    "EstimateTable",
    "Policy",
    "calibrate",
    "choose",
    "divide",
    "estimate",
    "on",
    "place",
    "rates_of",
]

offer_names(globals())
