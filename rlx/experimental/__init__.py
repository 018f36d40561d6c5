"""rlx.experimental: functions whose interface may still change.

checkify: conditions at run time. jet: derivatives of high order. ode: differential equations. sparse: sparse arrays
under JAX's names.
"""

from typing import TYPE_CHECKING

from rlx.experimental import checkify, jet, ode
from rlx.offered_names import offer_names

if TYPE_CHECKING:  # imported on first use
    from rlx.experimental import sparse as sparse

__all__ = ["checkify", "jet", "ode", "sparse"]

offer_names(globals(), {"sparse": "rlx.experimental.sparse"})
