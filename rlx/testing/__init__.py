"""Tools for testing rlx programs and user-defined primitives."""

from __future__ import annotations

from rlx.offered_names import offer_names
from rlx.testing.compare import assert_close, gradient_tolerance, tolerance
from rlx.testing.grads import check_grads

__all__ = ["assert_close", "check_grads", "gradient_tolerance", "tolerance"]

offer_names(globals())
