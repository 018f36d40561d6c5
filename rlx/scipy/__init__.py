"""rlx.scipy: functions of SciPy on rlx arrays, differentiable and compiled."""

from __future__ import annotations

import importlib
from typing import Any

from rlx.habits import missing_name

# imported on first use
_SUBMODULES = (
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
)

__all__ = [
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"rlx.scipy.{name}")
    raise missing_name(__name__, name, __all__)
