"""Collectives of processes: every process of a group passes an array, and gets its rank's result.

Derivatives are of the map from the arrays of all processes to the results of all processes: a cotangent belongs to the
sum of all processes' results. Collectives over a mapped axis do the same (ops/collective.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlx.errors import DtypeError, ShapeError, not_linear
from rlx.ir.collectives import WORLD, Exchange, Kind, call_in, exchange, line_of, name_in
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import divide, multiply
from rlx.ops.comparison import equal
from rlx.ops.conversion import convert
from rlx.ops.families import LinearMap, move_axis, refuse_keys
from rlx.ops.reduction import reduce_prod
from rlx.trace.origins import current_origin
from rlx.trace.primitive import Sample, Zero, primitive, type_of

__all__ = [
    "process_all_gather",
    "process_all_reduce",
    "process_all_to_all",
    "process_broadcast",
    "process_copy",
    "process_part",
    "process_permute",
    "process_reduce",
    "process_reduce_scatter",
    "process_rows",
    "process_same",
    "process_total",
]

Batched = tuple[Any, int | None]


class ProcessCollective(LinearMap):
    """A collective of ir.collectives. params: group; members: their number; place: the call, and the name of the
    exchange or its position in a program.

    `front`: the position next to which a mapped axis is inserted, if the operand's first axis has a row per member;
    `grows`: the number of axes that the result has in addition to the operand's.
    """

    exchanges = True
    opaque = True
    foldable = False
    front = 0
    grows = 0
    kind: Kind | None = None  # of collective, if it differs from the name
    own_params: Mapping[str, Any] = {}  # params of samples

    def samples(self) -> Iterator[Sample]:
        """Samples in a group of one; tests/distributed has larger groups."""
        params: dict[str, Any] = {"group": WORLD, "members": 1, "place": b"", **self.own_params}
        for dtype in ("f4", "f8", "bfloat16", "c8", "i4"):
            yield Sample((np.arange(-3, 3).reshape(1, 2, 3).astype(dtype),), params)

    def exchange(self, place: bytes, **params: Any) -> Exchange:
        """The operation for messages."""
        kind = self.kind or cast(Kind, self.name.removeprefix("process_"))
        return Exchange(kind, name=name_in(place), call=call_in(place), **params)

    def type(self, x: TensorType, **params: Any) -> TensorType:
        """The result's type. Raises ShapeError or DtypeError for operands that cannot be exchanged."""
        refuse_keys(self.name, x)
        what = self.exchange(**params)
        refusal = what.refusal(x.shape, x.dtype)
        if refusal is not None:
            error = DtypeError if what.refusal(x.shape, np.dtype(np.int32)) is None else ShapeError
            raise error(f"{self.name} got {x!r}: {refusal}.")
        return x.update(shape=what.result(x.shape), weak=False)

    def reference(self, array: np.ndarray, **params: Any) -> np.ndarray:
        """Run the collective now."""
        what = self.exchange(**params)
        out = np.empty(self.type(TensorType(array.shape, array.dtype), **params).shape, array.dtype)
        origin = current_origin()
        place = b"" if origin is None else line_of(origin.file, origin.line).encode()
        mark = what.mark(array.shape, array.dtype, place)
        exchange(what, mark, np.asarray(array, order="C"), out, () if origin is None else (origin,))
        return out

    def lower(self, k: Any, value: Any, **params: Any) -> Any:
        """Lower to one kernel."""
        return k.exchange(self.exchange(**params), value, self.type(value.type, **params), params["place"])

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Batched:
        """All elements of a batch are exchanged together."""
        (x,), (dim,) = inputs, dims
        assert dim is not None
        x = move_axis(x, dim, self.front)
        return self.bind(x, **params), self.front + self.grows


class ProcessReduction(ProcessCollective):
    """Further params: op, of ir.collectives.OPERATIONS; mode, "fast" or "deterministic"."""

    own_params = {"op": "sum", "mode": "fast"}

    def pull_back(self, cotangent: Any, type: TensorType, **params: Any) -> Any:
        """Only sums are linear."""
        if params["op"] != "sum":
            raise not_linear(f"{self.name} ({params['op']})")
        return self.pull_back_sum(cotangent, **params)

    def pull_back_sum(self, cotangent: Any, **params: Any) -> Any:
        """The cotangent of the operand of a sum."""
        raise not_linear(self.name)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        """The sum of tangents; for extrema, the mean over the processes that attain them; for products, as NumPy's."""
        op, (x,), (tangent,) = params["op"], primals, tangents
        if op == "sum" or isinstance(tangent, Zero):
            return super().jvp(primals, tangents, **params)
        sums = {**params, "op": "sum"}
        if op in ("max", "min"):
            out = self.bind(x, **params)
            everywhere = self.spread(out, **sums)
            here = convert(equal(x, everywhere), dtype=type_of(x).dtype, weak=False)
            return out, divide(self.bind(multiply(tangent, here), **sums), self.bind(here, **sums))
        rows = {key: params[key] for key in ("group", "members", "place")}
        all_x, all_tangents = (self.rows(v, **rows) for v in (x, tangent))
        return reduce_prod.jvp((all_x,), (all_tangents,), axes=(0,))

    def spread(self, out: Any, **params: Any) -> Any:
        """The result, in the operand's layout, to compare them."""
        return out

    def rows(self, x: Any, **params: Any) -> Any:
        """The reduced operand, with one row for each member."""
        return process_all_gather(x, **params)


@primitive
class process_all_reduce(ProcessReduction):
    """Every process gets the sum, or another reduction, of all arrays. params: group, members, op, mode, place."""

    def pull_back_sum(self, cotangent: Any, **params: Any) -> Any:
        """Each process's cotangents are summed."""
        return process_all_reduce(cotangent, **params)


@primitive
class process_reduce_scatter(ProcessReduction):
    """Process r gets the sum, or another reduction, of all rows r. params: group, members, op, mode, place."""

    front = 1
    grows = -1

    def pull_back_sum(self, cotangent: Any, *, op: str, mode: str, **params: Any) -> Any:
        """Every process's row has the cotangent of the process that got it."""
        return process_all_gather(cotangent, **params)

    def spread(self, out: Any, *, op: str, mode: str, **params: Any) -> Any:
        """The rows of all results."""
        return process_all_gather(out, **params)

    def rows(self, x: Any, **params: Any) -> Any:
        """Row r of every process is at process r."""
        return process_all_to_all(x, **params)


@primitive
class process_all_gather(ProcessCollective):
    """Every process gets all arrays, stacked along a new first axis. params: group, members, place."""

    grows = 1

    def pull_back(self, cotangent: Any, type: TensorType, **params: Any) -> Any:
        """The sum of all processes' cotangents for this process's array."""
        return process_reduce_scatter(cotangent, op="sum", mode="fast", **params)


@primitive
class process_all_to_all(ProcessCollective):
    """Process r gets row r of every process, in the order of ranks. params: group, members, place."""

    front = 1

    def pull_back(self, cotangent: Any, type: TensorType, **params: Any) -> Any:
        """The operation is its own transpose."""
        return process_all_to_all(cotangent, **params)


@primitive
class process_permute(ProcessCollective):
    """Arrays are sent along (source, destination) pairs; others get zeros. params: group, members, pairs, place."""

    own_params = {"pairs": ((0, 0),)}

    def pull_back(self, cotangent: Any, type: TensorType, *, pairs: tuple[tuple[int, int], ...], **params: Any) -> Any:
        """The reverse permutation."""
        return process_permute(cotangent, pairs=tuple((d, s) for s, d in pairs), **params)


@primitive
class process_broadcast(ProcessCollective):
    """Every process gets the array of one of them. params: group, members, root, place."""

    own_params = {"root": 0}

    def pull_back(self, cotangent: Any, type: TensorType, **params: Any) -> Any:
        """The root's array has the sum of all cotangents, the others' have none."""
        return process_reduce(cotangent, op="sum", mode="fast", **params)


@primitive
class process_reduce(ProcessReduction):
    """One process gets the sum of all arrays, the others zeros. params: group, members, op, mode, root, place."""

    own_params = {"op": "sum", "mode": "fast", "root": 0}

    def pull_back_sum(self, cotangent: Any, *, op: str, mode: str, **params: Any) -> Any:
        """Every array has the root's cotangent."""
        return process_broadcast(cotangent, **params)

    def spread(self, out: Any, *, op: str, mode: str, **params: Any) -> Any:
        """The root's result."""
        return process_broadcast(out, **params)


# ------------------------------------------------------------- shared values, and a process's own
class _Unsent(LinearMap):
    """Its operand; only derivatives are exchanged. params: group; members."""

    opaque = True

    def type(self, x: TensorType, **params: Any) -> TensorType:
        refuse_keys(self.name, x)
        return x

    def reference(self, x: np.ndarray, **params: Any) -> np.ndarray:
        return x

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Batched:
        """The batch axis keeps its position."""
        return self.bind(*inputs, **params), dims[0]

    def lower(self, k: Any, value: Any, **params: Any) -> Any:
        """Nothing to compute."""
        return value

    def samples(self) -> Iterator[Sample]:
        """Samples in a group of one."""
        yield Sample((np.arange(-3.0, 3.0).reshape(2, 3),), {"group": WORLD, "members": 1})


@primitive
class process_copy(_Unsent):
    """A value shared by all processes, as each process's own. params: group, members."""

    def pull_back(self, cotangent: Any, type: TensorType, **params: Any) -> Any:
        """The sum of all processes' cotangents."""
        return process_total(cotangent, op="sum", mode="fast", place=b"", **params)


@primitive
class process_total(ProcessReduction):
    """The sum of all processes' values, as one value. params: group, members, op, mode, place."""

    kind = "all_reduce"

    def pull_back_sum(self, cotangent: Any, *, group: str, members: int, **params: Any) -> Any:
        """Every operand has the same cotangent."""
        return process_copy(cotangent, group=group, members=members)


@primitive
class process_same(_Unsent):
    """The equal values of all processes, as one value. params: group, members."""

    def pull_back(self, cotangent: Any, type: TensorType, *, group: str, members: int) -> Any:
        """The processes share the cotangent: each has the same part, so that all have one program."""
        own = process_copy(cotangent, group=group, members=members)
        return divide(own, np.asarray(members).astype(type.dtype))


@primitive
class process_rows(ProcessCollective):
    """All processes' arrays, stacked along a new first axis, as one value. params: group, members, index, place.

    index: the rank of this process in the group.
    """

    kind = "all_gather"
    grows = 1
    own_params = {"index": 0}

    def exchange(self, place: bytes, *, index: int = 0, **params: Any) -> Exchange:
        """The gather."""
        return super().exchange(place, **params)

    def pull_back(self, cotangent: Any, type: TensorType, *, place: bytes, **params: Any) -> Any:
        """This process's row."""
        return process_part(cotangent, **params)


@primitive
class process_part(LinearMap):
    """Row `index` of a value shared by all processes, as this process's own. params: group, members, index."""

    def type(self, x: TensorType, *, members: int, **params: Any) -> TensorType:
        """The row's type. Raises ShapeError unless there is a row for each process."""
        refuse_keys(self.name, x)
        if x.shape[:1] != (members,):
            raise ShapeError(f"{self.name} got {x!r} for {members} processes.")
        return x.update(shape=x.shape[1:], weak=False)

    def reference(self, x: np.ndarray, *, index: int, **params: Any) -> np.ndarray:
        return x[index]

    def pull_back(self, cotangent: Any, type: TensorType, **params: Any) -> Any:
        """The rows of all processes."""
        return process_rows(cotangent, place=b"", **params)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Batched:
        """The rows have the batch axis in front."""
        (x,), (dim,) = inputs, dims
        assert dim is not None
        return self.bind(move_axis(x, dim, 1), **params), 0

    def lower(self, k: Any, value: Any, *, index: int, **params: Any) -> Any:
        """A slice."""
        ndim, row = value.type.ndim, value.type.shape[1:]
        rows = k.slice(value, (index, *[0] * (ndim - 1)), (index + 1, *row), (1,) * ndim)
        return k.reshape(rows, row)

    def samples(self) -> Iterator[Sample]:
        """Samples in a group of one."""
        yield Sample((np.arange(-3.0, 3.0).reshape(1, 2, 3),), {"group": WORLD, "members": 1, "index": 0})
