"""The library routines that a backend on host memory runs: see rlx.routines."""

from __future__ import annotations

from rlx.routines import LIBRARY_ROUTINES, Routine

__all__ = ["LIBRARY_ROUTINES", "Routine"]
