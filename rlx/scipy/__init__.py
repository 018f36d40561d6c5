"""rlx.scipy: functions of SciPy on rlx arrays, differentiable and compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.offered_names import offer_names

if TYPE_CHECKING:  # imported on first use
    from rlx.scipy import cluster as cluster
    from rlx.scipy import fft as fft
    from rlx.scipy import integrate as integrate
    from rlx.scipy import interpolate as interpolate
    from rlx.scipy import linalg as linalg
    from rlx.scipy import ndimage as ndimage
    from rlx.scipy import optimize as optimize
    from rlx.scipy import signal as signal
    from rlx.scipy import sparse as sparse
    from rlx.scipy import spatial as spatial
    from rlx.scipy import special as special
    from rlx.scipy import stats as stats

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

offer_names(globals(), {name: f"rlx.scipy.{name}" for name in __all__})
