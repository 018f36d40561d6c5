"""The time of each kernel of a function, and the least time that the machine's peaks allow."""

from __future__ import annotations

from rlx.offered_names import offer_names
from rlx.profiling.peaks import Peaks, machine_peaks, measure_peaks
from rlx.profiling.profile import KernelProfile, Profile, profile

__all__ = ["KernelProfile", "Peaks", "Profile", "machine_peaks", "measure_peaks", "profile"]

offer_names(globals())
