"""rlx.custom_derivatives: functions with custom derivative rules."""

from __future__ import annotations

from rlx.offered_names import offer_names
from rlx.transforms.custom import custom_jvp
from rlx.transforms.custom_reverse import CustomVJPPrimal, custom_gradient, custom_vjp, custom_vjp_primal_tree_values
from rlx.transforms.custom_rules import SymbolicZero, zero_from_primal
from rlx.transforms.functional import closure_convert
from rlx.transforms.linear import linear_call

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "custom_vjp_primal_tree_values",
    "linear_call",
    "zero_from_primal",
]

offer_names(globals())
