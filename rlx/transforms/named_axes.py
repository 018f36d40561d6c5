"""Reductions over mapped axes, by their names: for lax.psum and related functions, and for rlx.numpy's reductions."""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.errors import ShardingError
from rlx.trace import tracing
from rlx.trace.primitive import Primitive
from rlx.transforms.reductions import NEITHER, reductions_of

__all__ = ["axis_names", "check_reductions", "over_axes", "shared_axes"]

AxisName = Any


def axis_names(axis_name: AxisName) -> tuple[Any, ...]:
    """The names, of one or of several."""
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def shared_axes(axis_name: AxisName) -> tuple[Any, ...]:
    """The names of axes that have other members: an axis of one device has no exchanges."""
    return tuple(name for name in axis_names(axis_name) if not tracing.axis_named(name).alone)


def check_reductions(name: str, value: Array, axis_name: AxisName, sums: bool = False) -> Array:
    """The value. Raises ShardingError if it is copies over one of the axes, or parts of a sum that is not
    requested over all of them."""
    names = frozenset(tracing.tracked_axes(axis_names(axis_name)))
    found = reductions_of(value) if names else NEITHER
    unreduced, reduced = found.unreduced & names, found.reduced & names
    if reduced or (unreduced and not (sums and unreduced == names)):
        raise ShardingError(
            f"lax.{name} over {sorted(map(str, names))} got a {value.type!r} that is unreduced over"
            f" {sorted(map(str, unreduced))} and reduced over {sorted(map(str, reduced))}.",
            "Parts of a sum are for lax.psum and lax.psum_scatter over those axes; make copies each member's own:"
            ' lax.pcast(x, axis, to="varying").',
        )
    return value


def over_axes(primitive: Primitive, value: Array, axis_name: AxisName) -> Array:
    """A reduction over mapped axes; along an axis of one device the value is the result."""
    names = shared_axes(axis_name)
    return primitive(value, axis_name=names) if names else value
