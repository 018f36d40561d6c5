"""Tables of rules that JAX's libraries fill for primitives of their own, and the values that those rules are given."""

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
    """Rules of vmap by what they are told: nothing, the axis' size and name, or all of the axis."""

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
        """Shape of the value that it stands for."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """dtype of the value that it stands for."""
        return self.aval.dtype

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The tangent of `value` that is zero."""
        return Zero(typeof(value).to_tangent_aval())

    def instantiate(self) -> Any:
        """Zeros in memory."""
        return instantiate_zeros(self)


class UndefinedPrimal:
    """Stands in a transpose rule for an operand that the equation is linear in: its aval.

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


# vmap takes them among other values, as nothing to map
tree.register_node(UndefinedPrimal, lambda x: ((), x.aval), lambda aval, _: UndefinedPrimal(aval))
tree.register_node(Zero, lambda x: ((), x.aval), lambda aval, _: Zero(aval))


def instantiate_zeros(value: Any) -> Any:
    """A tangent as an array, those known to be zero, too."""
    if not isinstance(value, rlx_primitive.Zero):
        return value
    if value.type.dtype == float0:
        return instantiate(rlx_primitive.Zero(value.type.update(dtype="bool")))
    return instantiate(value)


def tangent_of(value: Any) -> Any:
    """A tangent as a library's rule sees it: zeros have the aval of a tangent."""
    return Zero(aval_of(value.type).to_tangent_aval()) if isinstance(value, rlx_primitive.Zero) else value


def own_tangent(value: Any, type: Any) -> Any:
    """A tangent that a library's rule gave, of a value of this type: nothing, and what has no derivative, is zero."""
    if value is None or isinstance(value, rlx_primitive.Zero) or not is_inexact(type.dtype):
        return rlx_primitive.Zero(type)
    return value
