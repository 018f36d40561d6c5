"""Collectives: operations along a named axis that vmap maps over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ConcretizationTypeError, VmapAxisError, not_linear
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import divide, multiply
from rlx.ops.comparison import equal
from rlx.ops.conversion import convert
from rlx.ops.families import LinearMap, full_like, move_axis, refuse_keys, to_front
from rlx.ops.gather import gather
from rlx.ops.index_windows import GatherDimensionNumbers
from rlx.ops.process_collective import process_all_to_all, process_permute, process_reduce_scatter
from rlx.ops.reduction import reduce_max, reduce_min, reduce_sum
from rlx.ops.shape import broadcast_in_dim, concatenate, iota, reshape, transpose
from rlx.ops.spanning_axis import SpanningAxis
from rlx.trace.primitive import Primitive, Zero, primitive, type_of

__all__ = ["all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_scatter"]

Names = tuple[Any, ...]
Batched = tuple[Any, int | None]


class NamedAxisPrimitive(Primitive):
    """Has a meaning only under vmap with that axis name, which replaces it: `batch_named`.

    `batch_named(size, name, inputs, dims, **params)` returns the result and its batch axis, and so does
    `batch_spanning(axis, inputs, dims, **params)` for an axis whose members belong to several processes.
    """

    collective = True

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Batched:
        """Another mapped axis keeps its position."""
        return self.bind(*inputs, **params), dims[0] if dims else None

    def varies(self, *operands: frozenset[Any], axis_name: Any, **params: Any) -> frozenset[Any]:
        """Members have different results."""
        return super().varies(*operands) | names_in(axis_name)

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """No value exists before vmap has mapped the axis."""
        raise ConcretizationTypeError(
            f"The value of {self.name} over the axis {params['axis_name']!r} is needed while tracing.",
            "It is known only once vmap has mapped the function: keep it in rlx operations.",
        )

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        """A program with a named axis left in it cannot be compiled."""
        raise VmapAxisError(
            f"{self.name} over the axis {params['axis_name']!r} is left in a compiled program.",
            f"Call the function under rlx.vmap(..., axis_name={params['axis_name']!r}).",
        )


class LinearCollective(LinearMap, NamedAxisPrimitive):
    """A collective that is linear in its operand."""


def names_in(axis_name: Any) -> frozenset[Any]:
    """The axes that the parameter of a collective names."""
    return frozenset(axis_name if isinstance(axis_name, tuple) else (axis_name,))


def remaining(names: Names, name: Any) -> Names:
    """The named axes without one of them."""
    return tuple(n for n in names if n != name)


# ------------------------------------------------------------- reductions
class NamedSum(LinearCollective):
    """A sum over named axes, which is one value on all members. params: axis_name, a tuple."""

    def varies(self, *operands: frozenset[Any], axis_name: Any, **params: Any) -> frozenset[Any]:
        """All members have the same result."""
        return operands[0] - names_in(axis_name)

    def type(self, x: TensorType, *, axis_name: Names) -> TensorType:
        refuse_keys(self.name, x)
        return x

    def batch_named(
        self,
        size: int,
        name: Any,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Names,
    ) -> Batched:
        """A sum over the mapped axis; for an unmapped operand, the value times the axis's size."""
        (x,), (dim,) = inputs, dims
        out, rest = summed(x, dim, size), remaining(axis_name, name)
        return (self.bind(out, axis_name=rest) if rest else out), None

    def batch_spanning(
        self, axis: SpanningAxis, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names
    ) -> Batched:
        """The sum over this process's members, then over processes."""
        out, rest = summed_over(inputs[0], dims[0], axis), remaining(axis_name, axis.name)
        return (self.bind(out, axis_name=rest) if rest else out), None


@primitive
class psum(NamedSum):
    """The sum over named axes. params: axis_name, a tuple."""

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Names) -> Any:
        """Each member's cotangents are summed."""
        return psum(cotangent, axis_name=axis_name)


def summed_over(x: Any, dim: int | None, axis: SpanningAxis) -> Any:
    """`summed` over an axis of several processes."""
    return summed(x, None, axis.size) if dim is None else axis.reduce(reduce_sum(x, axes=(dim,)), "sum")


def summed(x: Any, dim: int | None, size: int) -> Any:
    """The sum over a mapped axis; for an unmapped operand, the value times the axis's size."""
    return multiply(x, np.asarray(size).astype(type_of(x).dtype)) if dim is None else reduce_sum(x, axes=(dim,))


class NamedExtremum(NamedAxisPrimitive):
    """The largest or smallest over named axes; `reducer` over an axis of an array, `op` over processes."""

    reducer: Any
    op: str

    def varies(self, *operands: frozenset[Any], axis_name: Any, **params: Any) -> frozenset[Any]:
        """All members have the same result."""
        return operands[0] - names_in(axis_name)

    def type(self, x: TensorType, *, axis_name: Names) -> TensorType:
        refuse_keys(self.name, x)
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, axis_name: Names) -> tuple[Any, Any]:
        """The mean tangent of the members that attain the extremum."""
        (x,), (tangent,) = primals, tangents
        out = self.bind(x, axis_name=axis_name)
        if isinstance(tangent, Zero):
            return out, Zero(type_of(out))
        here = convert(equal(x, out), dtype=type_of(x).dtype, weak=False)
        moved = psum(multiply(tangent, here), axis_name=axis_name)
        return out, divide(moved, psum(here, axis_name=axis_name))

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        raise not_linear(self.name)

    def batch_named(
        self,
        size: int,
        name: Any,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Names,
    ) -> Batched:
        """A reduction over the mapped axis."""
        (x,), (dim,) = inputs, dims
        out = x if dim is None else self.reducer(x, axes=(dim,))
        rest = remaining(axis_name, name)
        return (self.bind(out, axis_name=rest) if rest else out), None

    def batch_spanning(
        self, axis: SpanningAxis, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Names
    ) -> Batched:
        """A reduction over processes; if a process has several members, over all of them. The members that attain the
        extremum share the derivative."""
        (out,), (dim,), rest = inputs, dims, remaining(axis_name, axis.name)
        if dim is not None and axis.local == 1:
            out = axis.reduce(self.reducer(out, axes=(dim,)), self.op)
        elif dim is not None:
            out = self.reducer(axis.rows(out, dim), axes=(0,))
        return (self.bind(out, axis_name=rest) if rest else out), None


@primitive
class pmax(NamedExtremum):
    """The maximum over named axes. params: axis_name, a tuple."""

    reducer = reduce_max
    op = "max"


@primitive
class pmin(NamedExtremum):
    """The minimum over named axes. params: axis_name, a tuple."""

    reducer = reduce_min
    op = "min"


# ------------------------------------------------------------- exchanges
@primitive
class axis_index(NamedAxisPrimitive):
    """A member's own position along a named axis, int32. params: axis_name."""

    def type(self, *, axis_name: Any) -> TensorType:
        return TensorType((), np.dtype("i4"))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, axis_name: Any) -> tuple[Any, Any]:
        """A constant."""
        out = axis_index(axis_name=axis_name)
        return out, Zero(type_of(out))

    def transpose(self, cotangent: Any, *, axis_name: Any) -> tuple[Any, ...]:
        """There are no operands."""
        return ()

    def batch_named(
        self,
        size: int,
        name: Any,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
    ) -> Batched:
        """0, 1, 2, ... along the mapped axis."""
        return iota(type=TensorType((size,), np.dtype("i4")), axis=0), 0

    def batch_spanning(
        self, axis: SpanningAxis, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Any
    ) -> Batched:
        """The positions of this process's members."""
        return axis.positions(), 0


@primitive
class all_gather(LinearCollective):
    """Every member's value, stacked along a new axis. params: axis_name; axis; size."""

    def varies(self, *operands: frozenset[Any], axis_name: Any, **params: Any) -> frozenset[Any]:
        """All members have the same result."""
        return operands[0] - names_in(axis_name)

    def type(self, x: TensorType, *, axis_name: Any, axis: int, size: int) -> TensorType:
        return x.update(shape=(*x.shape[:axis], size, *x.shape[axis:]), weak=False)

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Any, axis: int, size: int) -> Any:
        """The sum over the members' cotangents for this member's value."""
        return psum_scatter(cotangent, axis_name=axis_name, axis=axis)

    def batch(
        self,
        size_: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
        axis: int,
        size: int,
    ) -> Batched:
        """Another mapped axis becomes the first."""
        x = to_front(inputs[0], dims[0], size_)
        return all_gather(x, axis_name=axis_name, axis=axis + 1, size=size), 0

    def batch_named(
        self,
        size_: int,
        name: Any,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
        axis: int,
        size: int,
    ) -> Batched:
        """The mapped axis, as an axis that all members see."""
        (x,), (dim,) = inputs, dims
        if dim is not None:
            return move_axis(x, dim, axis), None
        return self.copies(x, axis, size), None

    def copies(self, x: Any, axis: int, size: int) -> Any:
        """The values of all members, if they are equal."""
        shape = type_of(x).shape
        kept = tuple(i for i in range(len(shape) + 1) if i != axis)
        return broadcast_in_dim(x, shape=(*shape[:axis], size, *shape[axis:]), dims=kept)

    def batch_spanning(
        self,
        along: SpanningAxis,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
        axis: int,
        size: int,
    ) -> Batched:
        """The values of all processes, as an axis that all members see."""
        (x,), (dim,) = inputs, dims
        return (self.copies(x, axis, size) if dim is None else move_axis(along.rows(x, dim), 0, axis)), None


@primitive
class psum_scatter(LinearCollective):
    """The sum over a named axis; each member keeps its row. params: axis_name; axis, with a row for each member."""

    def type(self, x: TensorType, *, axis_name: Any, axis: int) -> TensorType:
        refuse_keys(self.name, x)
        return x.update(shape=x.shape[:axis] + x.shape[axis + 1 :])

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Any, axis: int) -> Any:
        """Every member's row of the cotangent reaches all."""
        return all_gather(cotangent, axis_name=axis_name, axis=axis, size=type.shape[axis])

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Any, axis: int
    ) -> Batched:
        """Another mapped axis becomes the first."""
        return psum_scatter(to_front(inputs[0], dims[0], size), axis_name=axis_name, axis=axis + 1), 0

    def batch_named(
        self, size: int, name: Any, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Any, axis: int
    ) -> Batched:
        """A reduction over the mapped axis, which the rows replace."""
        return summed(inputs[0], dims[0], size), axis

    def batch_spanning(
        self, along: SpanningAxis, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Any, axis: int
    ) -> Batched:
        """The sum over this process's members; each process receives its members' rows."""
        rows = move_axis(summed(inputs[0], dims[0], along.local), axis, 0)
        blocks = reshape(rows, shape=(along.members, along.local, *type_of(rows).shape[1:]))
        return process_reduce_scatter(blocks, op="sum", mode="fast", **along.params), 0


@primitive
class ppermute(LinearCollective):
    """Values sent along (source, destination) pairs; zeros where nothing is sent.

    params: axis_name; permutation: pairs.
    """

    def type(self, x: TensorType, *, axis_name: Any, permutation: tuple[tuple[int, int], ...]) -> TensorType:
        return x

    def pull_back(
        self,
        cotangent: Any,
        type: TensorType,
        *,
        axis_name: Any,
        permutation: tuple[tuple[int, int], ...],
    ) -> Any:
        """The reverse permutation."""
        back = tuple((destination, source) for source, destination in permutation)
        return ppermute(cotangent, axis_name=axis_name, permutation=back)

    def batch_named(
        self,
        size: int,
        name: Any,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
        permutation: tuple[tuple[int, int], ...],
    ) -> Batched:
        """A gather along the mapped axis."""
        source_of = {destination: source for source, destination in permutation}
        x = to_front(inputs[0], dims[0], size)
        return _taken(x, [source_of.get(member) for member in range(size)]), 0

    def batch_spanning(
        self,
        axis: SpanningAxis,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
        permutation: tuple[tuple[int, int], ...],
    ) -> Batched:
        """Processes send their members' values whole, once for each distance; members select from them."""
        x, local, members = to_front(inputs[0], dims[0], axis.local), axis.local, axis.members
        if local == 1:
            return process_permute(x, pairs=permutation, **axis.params), 0
        ways = {(s // local, d // local) for s, d in permutation}
        distances = sorted({(d - s) % members for s, d in ways})
        if not distances:
            return full_like(type_of(x), 0), 0
        arrived = []
        for distance in distances:
            pairs = tuple(sorted(way for way in ways if (way[1] - way[0]) % members == distance))
            arrived.append(process_permute(x, pairs=pairs, **axis.params) if distance else x)
        source_of = {destination: source for source, destination in permutation}
        rows: list[int | None] = []
        for member in range(axis.index * local, (axis.index + 1) * local):
            source = source_of.get(member)
            row = None
            if source is not None:
                row = distances.index((axis.index - source // local) % members) * local + source % local
            rows.append(row)
        return _taken(concatenate(*arrived, axis=0), rows), 0


def _taken(x: Any, rows: Sequence[int | None]) -> Any:
    """Some rows of an array; zeros for None."""
    shape = type_of(x).shape
    # out of bounds: reads the fill value
    numbers = np.array([shape[0] if row is None else row for row in rows], np.int32).reshape(-1, 1)
    windows = GatherDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,))
    sizes = (1, *shape[1:])
    return gather(x, numbers, dimension_numbers=windows, slice_sizes=sizes, mode="fill", fill_value=0)


@primitive
class all_to_all(LinearCollective):
    """Axis `split` is divided among the members; the received parts are stacked along a new axis `concat`.

    params: axis_name; split: an axis of the axis's size; concat; size.
    """

    def type(self, x: TensorType, *, axis_name: Any, split: int, concat: int, size: int) -> TensorType:
        kept = [d for i, d in enumerate(x.shape) if i != split]
        return x.update(shape=(*kept[:concat], size, *kept[concat:]), weak=False)

    def pull_back(
        self,
        cotangent: Any,
        type: TensorType,
        *,
        axis_name: Any,
        split: int,
        concat: int,
        size: int,
    ) -> Any:
        """The reverse exchange."""
        return all_to_all(cotangent, axis_name=axis_name, split=concat, concat=split, size=size)

    def batch(
        self,
        size_: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
        split: int,
        concat: int,
        size: int,
    ) -> Batched:
        """Another mapped axis becomes the first."""
        x = to_front(inputs[0], dims[0], size_)
        return all_to_all(x, axis_name=axis_name, split=split + 1, concat=concat + 1, size=size), 0

    def batch_named(
        self,
        size_: int,
        name: Any,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
        split: int,
        concat: int,
        size: int,
    ) -> Batched:
        """The mapped axis and the split one are exchanged."""
        x = to_front(inputs[0], dims[0], size)
        # the split axis becomes the mapped one, in front; the mapped one is then axis 1
        x = move_axis(x, split + 1, 0)
        return move_axis(x, 1, concat + 1), 0

    def batch_spanning(
        self,
        axis: SpanningAxis,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Any,
        split: int,
        concat: int,
        size: int,
    ) -> Batched:
        """Processes exchange the parts for each other's members; the members of a process then exchange theirs."""
        x = move_axis(to_front(inputs[0], dims[0], axis.local), split + 1, 0)
        rest = type_of(x).shape[2:]
        x = reshape(x, shape=(axis.members, axis.local, axis.local, *rest))  # to: process, member; from: member
        x = process_all_to_all(x, **axis.params)  # from: process; to: member; from: member
        x = transpose(x, permutation=(1, 0, 2, *range(3, 3 + len(rest))))
        return move_axis(reshape(x, shape=(axis.local, size, *rest)), 1, concat + 1), 0
