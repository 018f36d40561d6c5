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
from rlx.ops.families import LinearMap, move_axis, refuse_keys, to_front
from rlx.ops.gather import gather
from rlx.ops.index_windows import GatherDimensionNumbers
from rlx.ops.reduction import reduce_max, reduce_min, reduce_sum
from rlx.ops.shape import broadcast_in_dim, iota
from rlx.trace.primitive import Primitive, Zero, primitive, type_of

__all__ = ["all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_scatter"]

Names = tuple[Any, ...]
Batched = tuple[Any, int | None]


class Collective(Primitive):
    """Means something under vmap with that axis name only, which replaces it: `batch_named`.

    `batch_named(size, name, inputs, dims, **params)` returns the result and its batch axis.
    """

    collective = True

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Batched:
        """Another mapped axis stays where it is."""
        return self.bind(*inputs, **params), dims[0] if dims else None

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """There is nothing to compute before vmap has mapped the axis."""
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


class LinearCollective(LinearMap, Collective):
    """A collective that is linear in its operand."""


def remaining(names: Names, name: Any) -> Names:
    """The named axes without one."""
    return tuple(n for n in names if n != name)


# ------------------------------------------------------------- reductions
@primitive
class psum(LinearCollective):
    """The sum over named axes. params: axis_name, a tuple."""

    def type(self, x: TensorType, *, axis_name: Names) -> TensorType:
        refuse_keys(self.name, x)
        return x

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Names) -> Any:
        """Each member's cotangents are summed."""
        return psum(cotangent, axis_name=axis_name)

    def batch_named(
        self,
        size: int,
        name: Any,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axis_name: Names,
    ) -> Batched:
        """A sum over the mapped axis; of what is not mapped, the value times the axis's size."""
        (x,), (dim,) = inputs, dims
        out, rest = summed(x, dim, size), remaining(axis_name, name)
        return (psum(out, axis_name=rest) if rest else out), None


def summed(x: Any, dim: int | None, size: int) -> Any:
    """The sum over a mapped axis; of what is not mapped, the value times the axis's size."""
    return multiply(x, np.asarray(size).astype(type_of(x).dtype)) if dim is None else reduce_sum(x, axes=(dim,))


class NamedExtremum(Collective):
    """The largest or smallest over named axes; `reducer` over an axis of an array."""

    reducer: Any

    def type(self, x: TensorType, *, axis_name: Names) -> TensorType:
        refuse_keys(self.name, x)
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, axis_name: Names) -> tuple[Any, Any]:
        """The mean tangent of those that attain the extremum."""
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


@primitive
class pmax(NamedExtremum):
    """The maximum over named axes. params: axis_name, a tuple."""

    reducer = reduce_max


@primitive
class pmin(NamedExtremum):
    """The minimum over named axes. params: axis_name, a tuple."""

    reducer = reduce_min


# ------------------------------------------------------------- exchanges
@primitive
class axis_index(Collective):
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


@primitive
class all_gather(LinearCollective):
    """Every member's value, stacked along a new axis. params: axis_name; axis; size."""

    def type(self, x: TensorType, *, axis_name: Any, axis: int, size: int) -> TensorType:
        return x.update(shape=(*x.shape[:axis], size, *x.shape[axis:]), weak=False)

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Any, axis: int, size: int) -> Any:
        """The sum over members of what they want from this one."""
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
        """Another mapped axis goes to the front."""
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
        shape = type_of(x).shape
        kept = tuple(i for i in range(len(shape) + 1) if i != axis)
        return broadcast_in_dim(x, shape=(*shape[:axis], size, *shape[axis:]), dims=kept), None


@primitive
class psum_scatter(LinearCollective):
    """The sum over a named axis, of which a member keeps its own row. params: axis_name; axis, of one row for each."""

    def type(self, x: TensorType, *, axis_name: Any, axis: int) -> TensorType:
        refuse_keys(self.name, x)
        return x.update(shape=x.shape[:axis] + x.shape[axis + 1 :])

    def pull_back(self, cotangent: Any, type: TensorType, *, axis_name: Any, axis: int) -> Any:
        """Every member's row of the cotangent reaches all."""
        return all_gather(cotangent, axis_name=axis_name, axis=axis, size=type.shape[axis])

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Any, axis: int
    ) -> Batched:
        """Another mapped axis goes to the front."""
        return psum_scatter(to_front(inputs[0], dims[0], size), axis_name=axis_name, axis=axis + 1), 0

    def batch_named(
        self, size: int, name: Any, inputs: Sequence[Any], dims: Sequence[int | None], *, axis_name: Any, axis: int
    ) -> Batched:
        """A reduction over the mapped axis, in whose place the rows come."""
        return summed(inputs[0], dims[0], size), axis


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
        """The other way."""
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
        x = to_front(inputs[0], dims[0], size)
        sources = np.full((size, 1), size, np.int32)  # outside: reads the fill value
        for source, destination in permutation:
            sources[destination] = source
        shape = type_of(x).shape
        rest = tuple(range(1, len(shape)))
        numbers = GatherDimensionNumbers(rest, (0,), (0,))
        sizes = (1, *shape[1:])
        return gather(x, sources, dimension_numbers=numbers, slice_sizes=sizes, mode="fill", fill_value=0), 0


@primitive
class all_to_all(LinearCollective):
    """Axis `split` is dealt out to the members; what they get is stacked along a new axis `concat`.

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
        """The other way."""
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
        """Another mapped axis goes to the front."""
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
        """The mapped axis and the split one change places."""
        x = to_front(inputs[0], dims[0], size)
        # the split axis becomes the mapped one, in front; the mapped one is then axis 1
        x = move_axis(x, split + 1, 0)
        return move_axis(x, 1, concat + 1), 0
