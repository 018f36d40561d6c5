"""How long each kernel of a function takes, and how long it would take at the machine's best."""

from __future__ import annotations

from rlx.profiling.peaks import Peaks, machine_peaks, measure_peaks
from rlx.profiling.profile import KernelProfile, Profile, profile

__all__ = ["KernelProfile", "Peaks", "Profile", "machine_peaks", "measure_peaks", "profile"]
