"""Tables of rules that JAX's libraries fill for their primitives, and the values that are passed to those rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rlx.ir.types import float0, is_inexact
from rlx.jaxnames.avals import AbstractArray, aval_of, tensor_type, typeof
from rlx.ops.families import instantiate
from rlx.trace import primitive as rlx_primitive
from rlx.trees import tree

__all__ = ["BATCHING", "DERIVATIVES", "LOWERINGS", "TRANSPOSES", "Batching", "UndefinedPrimal", "Zero"]

Rule = Callable[..., Any]


class Batching(NamedTuple):
    """vmap rules by their arguments: no axis, the axis's size and name, or all axis data."""

    plain: dict[Any, Rule]
    with_axis: dict[Any, Rule]
    with_axis_data: dict[Any, Rule]


DERIVATIVES: dict[Any, Rule] = {}
TRANSPOSES: dict[Any, Rule] = {}
LOWERINGS: dict[Any, Rule] = {}
BATCHING = Batching({}, {}, {})


class Zero(rlx_primitive.Zero):
    """A tangent or cotangent known to be zero, with the aval of a tangent.

    >>> from rlx.jaxnames.rules import Zero
    >>> Zero.from_primal_value(3).aval.dtype.names
    ('float0',)
    """

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval if type(aval) is AbstractArray else aval_of(aval)
        self.type = tensor_type(aval)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the zero value."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """dtype of the zero value."""
        return self.aval.dtype

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The zero tangent of `value`."""
        return Zero(typeof(value).to_tangent_aval())

    def instantiate(self) -> Any:
        """The zeros as an array."""
        return instantiate_zeros(self)


class UndefinedPrimal:
    """Represents an operand that the equation is linear in, in a transpose rule: its aval.

    >>> from rlx.jaxnames.rules import UndefinedPrimal
    >>> import rlx.compat
    >>> UndefinedPrimal(rlx.compat.typeof(1.0)).aval.shape
    ()
    """

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval})"


# vmap takes these among other values, as nodes without leaves
tree.register_node(UndefinedPrimal, lambda x: ((), x.aval), lambda aval, _: UndefinedPrimal(aval))
tree.register_node(Zero, lambda x: ((), x.aval), lambda aval, _: Zero(aval))


def instantiate_zeros(tangent: Any) -> Any:
    """A tangent as an array, even if it is known to be zero."""
    if not isinstance(tangent, rlx_primitive.Zero):
        return tangent
    if tangent.type.dtype == float0:
        return instantiate(rlx_primitive.Zero(tangent.type.update(dtype="bool")))
    return instantiate(tangent)


def tangent_of(value: Any) -> Any:
    """A tangent in the form that a library's rule takes: zeros have the aval of a tangent."""
    return Zero(aval_of(value.type).to_tangent_aval()) if isinstance(value, rlx_primitive.Zero) else value


def own_tangent(value: Any, type: Any) -> Any:
    """A library's tangent of a value of this type: None, and the tangent of a type without derivatives, is zero."""
    if value is None or isinstance(value, rlx_primitive.Zero) or not is_inexact(type.dtype):
        return rlx_primitive.Zero(type)
    return value
