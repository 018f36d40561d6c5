"""rlx.scipy.optimize: minima, least squares and roots, with exact derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.offered_names import offer_names
from rlx.scipy.optimize.minimize import OptimizeResults, minimize

if TYPE_CHECKING:  # imported on first use
    from rlx.scipy.optimize.residuals import curve_fit as curve_fit
    from rlx.scipy.optimize.residuals import least_squares as least_squares
    from rlx.scipy.optimize.roots import root as root

__all__ = ["OptimizeResults", "curve_fit", "least_squares", "minimize", "root"]

_RESIDUALS = "rlx.scipy.optimize.residuals"
offer_names(globals(), {"curve_fit": _RESIDUALS, "least_squares": _RESIDUALS, "root": "rlx.scipy.optimize.roots"})
