"""Values that are equal or differ between the members of a mesh axis, for reverse mode inside a shard_map.

An equal value is one value with a copy on every member. vmap knows which values are mapped over a named axis, so its
rules handle these operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.types import TensorType
from rlx.ops.collective import (
    Batched,
    LinearCollective,
    NamedAxisPrimitive,
    NamedSum,
    Names,
    names_in,
    remaining,
    summed,
    summed_over,
)
from rlx.ops.comparison import equal
from rlx.ops.conversion import select
from rlx.ops.families import LinearPrimitive, full_like, to_front
from rlx.ops.shape import broadcast_in_dim, reshape
from rlx.ops.spanning_axis import SpanningAxis
from rlx.trace.primitive import Linear, Zero, primitive, type_of

__all__ = ["fan_in", "fan_out", "once", "pvary", "recast", "total", "variation"]

_MARK = TensorType((), np.dtype("i1"))


class MemberCopies(LinearCollective):
    """One value, as a copy for each member. params: axis_name, a tuple."""

    def type(self, x: TensorType, *, axis_name: Names) -> TensorType:
        return x

    def batch_named(
        self, size: int, name: Any, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names
    ) -> Batched:
        """A copy for each member."""
        out, rest = to_front(inputs[0], dims[0], size), remaining(axis_name, name)
        return (self.bind(out, axis_name=rest) if rest else out), 0

    def batch_spanning(
        self, axis: SpanningAxis, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names
    ) -> Batched:
        """A copy for each of this process's members."""
        return self.batch_named(axis.local, axis.name, inputs, dims, axis_name=axis_name)


@primitive
class pvary(MemberCopies):
    """The value, as one that may differ between members. params: axis_name, a tuple."""

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Names) -> Any:
        """Each member's value."""
        return pvary(cotangent, axis_name=axis_name)


@primitive
class recast(LinearCollective):
    """The value, marked as having copies ("reduced"), parts of a sum ("unreduced") or varying values ("varying").

    Copies and parts are also mapped values: only their types distinguish them
    (transforms/reductions.py). params: axis_name, a tuple; to.
    """

    def type(self, x: TensorType, *, axis_name: Names, to: str) -> TensorType:
        return x

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Names, to: str) -> Any:
        """Each member's cotangent; for copies that become varying, parts of a sum."""
        return recast(cotangent, axis_name=axis_name, to="unreduced" if to == "varying" else "varying")

    def batch_named(
        self, size: int, name: Any, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names, to: str
    ) -> Batched:
        """A copy for each member of an unmapped value."""
        out, rest = to_front(inputs[0], dims[0], size), remaining(axis_name, name)
        return (self.bind(out, axis_name=rest, to=to) if rest else out), 0

    def batch_spanning(
        self, axis: SpanningAxis, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names, to: str
    ) -> Batched:
        """A copy for each of this process's members."""
        return self.batch_named(axis.local, axis.name, inputs, dims, axis_name=axis_name, to=to)


@primitive
class fan_out(MemberCopies):
    """A value that is equal on all members, used differently by each of them. params: axis_name, a tuple.

    If copies of a value are not tracked, its transpose is the sum of the members' cotangents: `fan_in`.
    """

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Names) -> Any:
        """The sum over members."""
        return fan_in(cotangent, axis_name=axis_name)


@primitive
class fan_in(NamedSum):
    """The sum over members, used equally by all of them. params: axis_name, a tuple.

    If copies of a value are not tracked, its transpose is the common cotangent: `fan_out`.
    """

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Names) -> Any:
        """The same cotangent for every summand."""
        return fan_out(cotangent, axis_name=axis_name)


@primitive
class variation(NamedAxisPrimitive):
    """A zero that is mapped over the same named axes as x. params: axis_name, a tuple."""

    def varies(self, *operands: frozenset[Any], axis_name: Any, **params: Any) -> frozenset[Any]:
        """Over the named axes only."""
        return operands[0] & names_in(axis_name)

    def type(self, x: TensorType, *, axis_name: Names) -> TensorType:
        return _MARK

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, axis_name: Names) -> tuple[Any, Any]:
        """A constant."""
        return variation(primals[0], axis_name=axis_name), Zero(_MARK)

    def transpose(self, cotangent: Any, x: Any, *, axis_name: Names) -> tuple[Any, ...]:
        """Nothing depends on it."""
        return (Zero(x.type) if isinstance(x, Linear) else None,)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names) -> Batched:
        """Other mapped axes are ignored."""
        return variation(inputs[0], axis_name=axis_name), None

    def batch_named(
        self, size: int, name: Any, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names
    ) -> Batched:
        """Zeros along the axis if x has it."""
        rest = remaining(axis_name, name)
        mark = variation(inputs[0], axis_name=rest) if rest else full_like(_MARK, 0)
        return (mark, None) if dims[0] is None else (broadcast_in_dim(mark, shape=(size,), dims=()), 0)

    def batch_spanning(
        self, axis: SpanningAxis, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names
    ) -> Batched:
        """Zeros for this process's members if x has the axis."""
        return self.batch_named(axis.local, axis.name, inputs, dims, axis_name=axis_name)


class _ByVariation(LinearPrimitive, NamedAxisPrimitive):
    """Linear in x; `mark`, a `variation`, varies over some of the named axes, along which x is unchanged.

    Defines `along(x, dim, size)`, the result along an axis over which the mark does not vary, and
    `across(x, dim, axis)` for an axis of several processes.
    """

    def along(self, x: Any, dim: int | None, size: int) -> Batched:
        """The result, and its batch axis."""
        raise NotImplementedError(self.name)

    def across(self, x: Any, dim: int | None, axis: SpanningAxis) -> Batched:
        """The result, and its batch axis."""
        raise NotImplementedError(self.name)

    def type(self, x: TensorType, mark: TensorType, *, axis_name: Names) -> TensorType:
        return x

    def transpose(self, cotangent: Any, x: Any, mark: Any, *, axis_name: Names) -> tuple[Any, ...]:
        """The operation is its own transpose."""
        if not isinstance(x, Linear):
            return None, None
        return (Zero(x.type) if isinstance(cotangent, Zero) else self.bind(cotangent, mark, axis_name=axis_name)), None

    def batch_named(
        self, size: int, name: Any, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names
    ) -> Batched:
        """x where the mark is mapped, `along` where it is not."""
        found = (inputs[0], dims[0]) if dims[1] is not None else self.along(inputs[0], dims[0], size)
        return self._over_the_rest(found, inputs[1], remaining(axis_name, name))

    def batch_spanning(
        self, axis: SpanningAxis, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names
    ) -> Batched:
        """x where the mark is mapped, `across` where it is not."""
        found = (inputs[0], dims[0]) if dims[1] is not None else self.across(inputs[0], dims[0], axis)
        return self._over_the_rest(found, inputs[1], remaining(axis_name, axis.name))

    def _over_the_rest(self, found: Batched, mark: Any, rest: Names) -> Batched:
        out, dim = found
        return (self.bind(out, mark, axis_name=rest) if rest else out), dim


@primitive
class once(_ByVariation):
    """x on the first member, and zeros on the others, if the mark does not vary. params: axis_name, a tuple."""

    def varies(self, *operands: frozenset[Any], axis_name: Any, **params: Any) -> frozenset[Any]:
        """Also over the named axes over which the mark does not vary."""
        x, mark = operands
        return x | (names_in(axis_name) - mark)

    def along(self, x: Any, dim: int | None, size: int) -> Batched:
        """Zeros after the first."""
        return _only(to_front(x, dim, size), np.arange(size) == 0), 0

    def across(self, x: Any, dim: int | None, axis: SpanningAxis) -> Batched:
        """Zeros after the first member of the first process."""
        return _only(to_front(x, dim, axis.local), equal(axis.positions(), np.int32(0))), 0


def _only(x: Any, which: Any) -> Any:
    """Some rows of an array, and zeros in the others."""
    shape = type_of(x).shape
    mask = reshape(which, shape=(shape[0], *[1] * (len(shape) - 1)))
    return select(mask, x, full_like(type_of(x).update(shape=()), 0))


@primitive
class total(_ByVariation):
    """The sum of x over members, if the mark does not vary. params: axis_name, a tuple."""

    def varies(self, *operands: frozenset[Any], axis_name: Any, **params: Any) -> frozenset[Any]:
        """Not over the named axes over which the mark does not vary."""
        x, mark = operands
        return x - (names_in(axis_name) - mark)

    def along(self, x: Any, dim: int | None, size: int) -> Batched:
        """The sum over the mapped axis."""
        return summed(x, dim, size), None

    def across(self, x: Any, dim: int | None, axis: SpanningAxis) -> Batched:
        """The sum over this process's members, and over processes."""
        return summed_over(x, dim, axis), None
