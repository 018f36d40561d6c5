"""Operations along an axis that devices divide: which results stay divided, and what processes exchange for them.

`Primitive.axis_map` says which axes an operation keeps. The rules here are for the others: a slice, a convolution or a
look-up along a divided axis exchanges a few rows or sums, in place of the whole array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, is_inexact, is_key
from rlx.ops.arithmetic import add, clamp, maximum, minimum, multiply, subtract
from rlx.ops.comparison import bitwise_and, greater_equal, less
from rlx.ops.conversion import convert, select
from rlx.ops.families import full_like
from rlx.ops.process_collective import process_broadcast, process_total
from rlx.ops.shape import broadcast_in_dim, concatenate, iota, reshape, slice_along
from rlx.ops.sorting import take_along
from rlx.ops.spanning_axis import SpanningAxis
from rlx.sharding.blocks import as_one
from rlx.sharding.divisions import Division, Names, chosen_places
from rlx.sharding.parts_fetched import fetched_rows, most_fetched, taken
from rlx.trace.primitive import Primitive, type_of

__all__ = ["AlongAxis", "AxisTurn", "CallPlan", "DividedCall", "over_another_axis", "planned", "rolled_rows"]

Places = dict[tuple[int, int], int]  # for an operand and its axis, the axis of the result; negative: dropped
INT64 = np.dtype(np.int64)


class DividedCall(NamedTuple):
    """An operation, the types of its operands and results as whole arrays, and how the operands are divided."""

    primitive: Primitive
    params: Mapping[str, Any]
    types: Sequence[TensorType]
    results: Sequence[TensorType]
    have: Sequence[Division | None]
    sizes: Mapping[Any, int]

    def count(self, names: Names) -> int:
        """The number of parts of an axis that is divided this way."""
        return prod(self.sizes[name] for name in names)

    def names(self, number: int, axis: int) -> Names:
        """The mesh axes that divide an axis of an operand."""
        have = self.have[number]
        return () if have is None else have[axis]


class AlongAxis(NamedTuple):
    """How an operation runs along an axis that is divided.

    places: what becomes of axes that `axis_map` does not keep. names: the mesh axes that divide them. kind, nbytes: of
    the exchange on a device; "" for none. run: takes this process's operands, the params for parts and the processes,
    and returns the results. shared: operands that `run` takes as values of all processes.
    """

    places: Places
    names: Names
    kind: str
    nbytes: int
    run: Callable[[Sequence[Any], dict[str, Any], SpanningAxis], Any]
    shared: tuple[int, ...] = ()

    @property
    def place(self) -> int:
        """The axis of the result, or a negative number."""
        return next(iter(self.places.values()))


class CallPlan(NamedTuple):
    """How devices divide an operation. axis_map: as the primitive's, with axes of `along`, the rule for one more axis.
    chosen: the mesh axes of each place; divisions: of the results."""

    axis_map: Sequence[Sequence[int | None]]
    chosen: dict[int, Names]
    divisions: list[Division]
    along: AlongAxis | None = None


class AxisTurn(NamedTuple):
    """An operation that needs an axis whole, and runs with another axis divided in its place. results: how its
    results are divided at the end; None to leave them."""

    source: int
    target: int
    names: Names
    results: list[Division | None]

    def of_operand(self, have: Division | None) -> Division:
        """An operand's division while the operation runs."""
        assert have is not None
        return tuple(
            () if a == self.source else (*names, *self.names) if a == self.target else names
            for a, names in enumerate(have)
        )


def planned(call: DividedCall, with_rules: bool = True) -> CallPlan:
    """How an operation is divided; without rules, by its `axis_map` only."""
    axis_map = call.primitive.axis_map(*call.types, **call.params)
    if not call.primitive.combination:
        axis_map = tuple(tuple(None if at is not None and at < 0 else at for at in places) for places in axis_map)
    result = call.results[0] if call.results else TensorType((), bool)
    along = along_divided_axis(call, axis_map) if with_rules else None
    if along is not None:
        grown = tuple(
            tuple(along.places.get((number, axis), at) for axis, at in enumerate(places))
            for number, places in enumerate(axis_map)
        )
        chosen = chosen_places(call.sizes, grown, call.have, result)
        if chosen.get(along.place) == along.names:
            return CallPlan(grown, chosen, _divisions(call, chosen), along)
    chosen = chosen_places(call.sizes, axis_map, call.have, result)
    return CallPlan(axis_map, chosen, _divisions(call, chosen))


def _divisions(call: DividedCall, chosen: Mapping[int, Names]) -> list[Division]:
    return [tuple(chosen.get(axis, ()) for axis in range(t.ndim)) for t in call.results]


def over_another_axis(call: DividedCall) -> AxisTurn | None:
    """How a sort or a transform along a divided axis runs: another axis is divided in its place; None for others."""
    if call.primitive.name not in ("sort", "fft") or 0 in call.types[0].shape or call.have[0] is None:
        return None
    have, ndim = call.have[0], call.types[0].ndim
    places = call.primitive.axis_map(*call.types, **call.params)[0]
    source = next((a for a in range(ndim) if places[a] is None and call.count(have[a]) > 1), None)
    if source is None or any(of != have for of in call.have):
        return None
    for target in range(ndim):
        fits = call.types[0].shape[target] % call.count((*have[target], *have[source])) == 0
        if places[target] == target and fits:
            back: list[Division | None] = [have if t.shape[source] % call.count(have[source]) == 0 else None
                                           for t in call.results]  # fmt: skip
            return AxisTurn(source, target, have[source], back)
    return None


AxisRule = Callable[[DividedCall, int, int], "AlongAxis | None"]


def along_divided_axis(call: DividedCall, axis_map: Sequence[Sequence[int | None]]) -> AlongAxis | None:
    """The rule for the first divided axis that `axis_map` does not keep; None if there is no rule."""
    rule = _RULES.get(call.primitive.name)
    if rule is None or not call.results or 0 in (*call.results[0].shape, *call.types[0].shape):
        return None
    for number, (type, places) in enumerate(zip(call.types, axis_map, strict=True)):
        for axis in range(type.ndim):
            if places[axis] is None and call.count(call.names(number, axis)) > 1:
                return None if is_key(type.dtype) else rule(call, number, axis)
    return None


def _row_bytes(type: TensorType, axis: int) -> int:
    return type.nbytes // max(1, type.shape[axis])


def _without_axis(values: Sequence[Any], axis: int, value: Any) -> tuple[Any, ...]:
    return tuple(value if a == axis else v for a, v in enumerate(values))


# ------------------------------------------------------------- rows that move
def _moved(
    call: DividedCall,
    axis: int,
    rows: np.ndarray,
    then: Callable[..., Any],
    sources: Sequence[int] = (0,),
    out_axis: int | None = None,
    fill: Callable[[Sequence[Any], dict[str, Any]], Any] = lambda operands, params: None,
) -> AlongAxis | None:
    """A result whose row n along an axis comes from the row rows[n] of the joined operands, or is filled: -1.

    then: the remaining operation, on the rows that a process needs, of the operands and params.
    """
    place = axis if out_axis is None else out_axis
    names = next(call.names(number, axis) for number in sources if call.names(number, axis))
    count = call.count(names)
    if len(rows) % count:
        return None
    divided = [call.names(n, axis) == names and call.types[n].shape[axis] % count == 0 for n in sources]
    block = call.types[sources[0]].shape[axis] // count
    sent = most_fetched(rows.reshape(count, -1), block) if len(sources) == 1 else len(rows) // count
    whole = sum(call.types[n].shape[axis] for n in sources)
    if sent >= whole - whole // count:
        return None
    nbytes = sent * _row_bytes(call.types[sources[0]], axis) // _others(call, sources[0], axis)

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        wanted = rows.reshape(over.members, -1)
        arrays = [(operands[n], d) for n, d in zip(sources, divided, strict=True)]
        found = fetched_rows(arrays, axis, over, wanted, fill(operands, params))
        return then(found, operands, params)

    places = {(number, axis): place for number, d in zip(sources, divided, strict=True) if d}
    return AlongAxis(places, names, "collective-permute" if sent else "", nbytes, run)


def _others(call: DividedCall, number: int, axis: int) -> int:
    """The number of parts that the other axes of an operand are divided into."""
    have = call.have[number] or ()
    return prod(call.count(names) for a, names in enumerate(have) if a != axis)


def _slice(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    p = call.params
    start, limit, stride = p["starts"][axis], p["limits"][axis], p["strides"][axis]
    rows = np.arange(start, limit, stride)

    def rest(x: Any, params: dict[str, Any], first: int, last: int, step: int) -> Any:
        cut = ((name, value) for name, value in (("starts", first), ("limits", last), ("strides", step)))
        return call.primitive.bind(x, **{name: _without_axis(params[name], axis, value) for name, value in cut})

    def then(x: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        return rest(x, params, 0, type_of(x).shape[axis], 1)

    found = _moved(call, axis, rows, then)
    if found is not None:
        return found
    names = call.names(0, axis)
    block = call.types[0].shape[axis] // call.count(names)
    if rows[0] // block != rows[-1] // block:
        return None
    nbytes = call.results[0].nbytes // _others(call, 0, axis)

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        (x,) = operands
        root, first = divmod(start, type_of(x).shape[axis])
        own = rest(x, params, first, first + limit - start, stride)
        return as_one(process_broadcast(own, root=root, **over.params), [over])

    return AlongAxis({(0, axis): -1 - axis}, names, "broadcast", nbytes, run)


def _reverse(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    others = tuple(a for a in call.params["axes"] if a != axis)
    rows = np.arange(call.types[0].shape[axis])[::-1].copy()
    return _moved(call, axis, rows, lambda x, operands, params: call.primitive.bind(x, axes=others) if others else x)


def _pad(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    low, _, interior = call.params["config"][axis]
    at = np.arange(call.results[0].shape[axis]) - low
    inside = (at % (interior + 1) == 0) & (at >= 0) & (at // (interior + 1) < call.types[0].shape[axis])
    rows = np.where(inside, at // (interior + 1), -1)

    def then(x: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        config = _without_axis(params["config"], axis, (0, 0, 0))
        return call.primitive.bind(x, operands[1], config=config) if any(map(any, config)) else x

    return _moved(call, axis, rows, then, fill=lambda operands, params: operands[1])


def _concatenate(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    rows = np.arange(call.results[0].shape[axis])
    if any(call.names(n, axis) not in ((), call.names(number, axis)) for n in range(len(call.types))):
        return None
    return _moved(call, axis, rows, lambda x, operands, params: x, sources=range(len(call.types)))


def rolled_rows(x: Any, axis: int, over: SpanningAxis, distance: int) -> Any:
    """This process's block of an array that is rotated along a divided axis."""
    size = type_of(x).shape[axis] * over.members
    rows = (np.arange(size) - distance) % size
    return fetched_rows([(x, True)], axis, over, rows.reshape(over.members, -1))


# ------------------------------------------------------------- windows
def _window_rows(size: int, positions: int, stride: int, low: int, reach: int, count: int) -> np.ndarray:
    """For each of the parts of the positions, the rows under its windows; -1 outside. reach: of a window."""
    own = positions // count
    length = (own - 1) * stride + reach
    rows = np.arange(count)[:, None] * own * stride - low + np.arange(length)
    return np.where((rows >= 0) & (rows < size), rows, -1)


def _windows(
    call: DividedCall,
    axis: int,
    place: int,
    window: tuple[int, int, int, int],
    then: Callable[..., Any],
    fill: Any,
) -> AlongAxis | None:
    """An operation on windows along an axis; window: its reach, the stride, the padding before, and the positions."""
    reach, stride, low, positions = window
    names, size = call.names(0, axis), call.types[0].shape[axis]
    count = call.count(names)
    if positions % count or reach < 1:
        return None
    rows = _window_rows(size, positions, stride, low, reach, count)
    sent = most_fetched(rows, size // count)
    if sent >= size - size // count:
        return None

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        own = _window_rows(size, positions, stride, low, reach, over.members)
        return then(fetched_rows([(operands[0], True)], axis, over, own, fill), operands, params)

    nbytes = sent * _row_bytes(call.types[0], axis) // _others(call, 0, axis)
    return AlongAxis({(0, axis): place}, names, "collective-permute" if sent else "", nbytes, run)


def _convolution(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    p, numbers = call.params, call.params["dimension_numbers"]
    if number or axis not in numbers.lhs_spec[2:]:
        return None
    n = numbers.lhs_spec[2:].index(axis)
    if p["lhs_dilation"][n] != 1:
        return None
    reach = (call.types[1].shape[numbers.rhs_spec[2 + n]] - 1) * p["rhs_dilation"][n] + 1
    place = numbers.out_spec[2 + n]

    def then(x: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        return call.primitive.bind(x, operands[1], **{**params, "padding": _without_axis(p["padding"], n, (0, 0))})

    window = reach, p["window_strides"][n], p["padding"][n][0], call.results[0].shape[place]
    return _windows(call, axis, place, window, then, None)


def _reduce_window(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    p = call.params
    if p["base_dilation"][axis] != 1:
        return None
    reach = (p["window"][axis] - 1) * p["window_dilation"][axis] + 1

    def then(x: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        return call.primitive.bind(x, **{**params, "padding": _without_axis(p["padding"], axis, (0, 0))})

    window = reach, p["strides"][axis], p["padding"][axis][0], call.results[0].shape[axis]
    dtype = call.types[0].dtype
    return _windows(call, axis, axis, window, then, np.asarray(neutral(p["op"], dtype), dtype))


# ------------------------------------------------------------- look-ups and updates
class _Own(NamedTuple):
    """Positions along a divided axis: whether this process has them, and where in its block."""

    mask: Any
    local: Any


def _own_positions(positions: Any, block: int, over: SpanningAxis) -> _Own:
    first = np.int64(over.index * block)
    mask = bitwise_and(greater_equal(positions, first), less(positions, np.int64(first + block)))
    return _Own(mask, clamp(np.int64(0), subtract(positions, first), np.int64(block - 1)))


def _as_int64(x: Any) -> Any:
    return convert(x, dtype=INT64, weak=False)


def _summed(x: Any, mask: Any, over: SpanningAxis) -> Any:
    """The values of the process for which the mask is true, one at most, in all processes."""
    type = type_of(x)
    wide = np.dtype(np.int8) if type.dtype == bool else type.dtype
    # -0.0 leaves every number unchanged, zeros included
    nothing = full_like(type.update(dtype=wide, weak=False), -0.0 if is_inexact(wide) else 0)
    value = convert(x, dtype=wide, weak=False) if type.dtype == bool else x
    total = process_total(select(mask, value, nothing), op="sum", mode="fast", **over.params)
    return convert(total, dtype=type.dtype, weak=False) if type.dtype == bool else total


def _dynamic_slice(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    type, size = call.types[0], call.params["sizes"][axis]
    if number or 2 * size > type.shape[axis]:
        return None

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        x, *starts = operands
        block = type_of(x).shape[axis]
        start = clamp(np.int64(0), _as_int64(starts[axis]), np.int64(block * over.members - size))
        own = _own_positions(add(start, iota(type=TensorType((size,), INT64), axis=0)), block, over)
        rows = taken(x, own.local, axis)
        found = _summed(rows, _along(own.mask, type_of(rows).shape, (axis,)), over)
        starts = _without_axis(starts, axis, np.zeros((), type_of(starts[axis]).dtype))
        return call.primitive.bind(found, *starts, sizes=_without_axis(params["sizes"], axis, size))

    nbytes = call.results[0].nbytes // _others(call, 0, axis)
    return AlongAxis({(0, axis): -1 - axis}, call.names(0, axis), "all-reduce", nbytes, run)


def _along(mask: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    return broadcast_in_dim(mask, shape=shape, dims=dims)


def _dynamic_update_slice(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    if number:
        return None
    size = call.types[1].shape[axis]

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        x, update, *starts = operands
        shape = type_of(x).shape
        block = shape[axis]
        start = clamp(np.int64(0), _as_int64(starts[axis]), np.int64(block * over.members - size))
        rows = iota(type=TensorType((block,), INT64), axis=0)
        at = subtract(add(rows, np.int64(over.index * block)), start)
        inside = bitwise_and(greater_equal(at, np.int64(0)), less(at, np.int64(size)))
        own = taken(update, clamp(np.int64(0), at, np.int64(size - 1)), axis)
        starts = _without_axis(starts, axis, np.zeros((), type_of(starts[axis]).dtype))
        return select(_along(inside, shape, (axis,)), call.primitive.bind(x, own, *starts, **params), x)

    return AlongAxis({(0, axis): axis}, call.names(0, axis), "", 0, run)


def _with_column(indices: Any, number: int, column: Any) -> Any:
    """Index vectors with one of their columns replaced."""
    shape = type_of(indices).shape
    last = len(shape) - 1
    column = broadcast_in_dim(column, shape=(*shape[:-1], 1), dims=tuple(range(last)))
    parts = [slice_along(indices, 0, number, last), column, slice_along(indices, number + 1, shape[-1], last)]
    return concatenate(*[part for part in parts if type_of(part).shape[last]], axis=last)


def _column(indices: Any, number: int) -> Any:
    shape = type_of(indices).shape
    return reshape(slice_along(indices, number, number + 1, len(shape) - 1), shape=shape[:-1])


def _gather(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    p, numbers = call.params, call.params["dimension_numbers"]
    names, (operand, result) = call.names(0, axis), (call.types[0], call.results[0])
    started = axis in numbers.start_index_map and axis in numbers.collapsed_slice_dims
    taken_by = {name for of in call.have[1] or () for name in of}
    # with the indices divided likewise, gathering the operand leaves the result divided
    if number or not started or result.nbytes > operand.nbytes or taken_by & set(names):
        return None
    column, size = numbers.start_index_map.index(axis), operand.shape[axis]

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        x, indices = operands[0], _as_int64(operands[1])
        at = _column(indices, column)
        valid = bitwise_and(greater_equal(at, np.int64(0)), less(at, np.int64(size)))
        at = clamp(np.int64(0), at, np.int64(size - 1))
        own = _own_positions(at, type_of(x).shape[axis], over)
        rows = call.primitive.bind(x, _with_column(indices, column, own.local), **params)
        shape = type_of(rows).shape
        batch = tuple(a for a in range(len(shape)) if a not in numbers.offset_dims)
        total = _summed(rows, _along(own.mask, shape, batch), over)
        if p["mode"] != "fill":
            return total
        outside = call.primitive.bind(
            full_like(type_of(x), 0), _with_column(indices, column, full_like(type_of(at), -1)), **params
        )
        return select(_along(valid, shape, batch), total, outside)

    return AlongAxis({(0, axis): -1 - axis}, names, "all-reduce", result.nbytes // _others(call, 0, axis), run)


def _scatter(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    return _scatter_into_rows(call, axis) if number == 0 else _scatter_of_updates(call, number, axis)


def _scatter_into_rows(call: DividedCall, axis: int) -> AlongAxis | None:
    """Each process writes the updates into its own rows."""
    p, numbers = call.params, call.params["dimension_numbers"]
    started = numbers.scatter_dims_to_operand_dims
    if axis not in started or axis not in numbers.inserted_window_dims or (p["mode"] == "clip" and len(started) > 1):
        return None
    column, size = started.index(axis), call.types[0].shape[axis]

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        x, indices, updates = operands[0], _as_int64(operands[1]), operands[2]
        block, at = type_of(x).shape[axis], _column(indices, column)
        if p["mode"] == "clip":
            at = clamp(np.int64(0), at, np.int64(size - 1))
        own = _own_positions(at, block, over)
        at = select(own.mask, own.local, np.int64(block))  # other rows are out of bounds
        flags = {**params, "mode": "drop", "indices_are_sorted": False}
        return call.primitive.bind(x, _with_column(indices, column, at), updates, **flags)

    return AlongAxis({(0, axis): axis}, call.names(0, axis), "", 0, run)


def _scatter_of_updates(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    """Each process adds its own updates, and the sums are added."""
    if call.primitive.name != "scatter_add" or call.types[0].dtype == bool:
        return None
    names = call.names(number, axis)
    every = call.primitive.axis_map(*call.types, **call.params)
    place = every[number][axis]
    if place is None or place >= 0 or any(set(names) & set(of) for of in call.have[0] or ()):
        return None
    places = {(n, a): place for n in (1, 2) for a, at in enumerate(every[n]) if at == place}

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        x, indices, updates = operands
        own = call.primitive.bind(full_like(type_of(x), 0), indices, updates, **params)
        return add(x, process_total(own, op="sum", mode="fast", **over.params))

    return AlongAxis(places, names, "all-reduce", call.results[0].nbytes, run, shared=(0,))


# ------------------------------------------------------------- running reductions and positions
_JOINS = {"cumsum": add, "cumprod": multiply, "cummax": maximum, "cummin": minimum}


def _cumulative(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    """Each process continues from the last rows of those before it."""
    join, backwards = _JOINS[call.primitive.name], call.params.get("reverse", False)
    reducer = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[call.primitive.name]
    names = call.names(0, axis)

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        own = call.primitive.bind(operands[0], **params)
        block = type_of(own).shape[axis]
        last = slice_along(own, 0, 1, axis) if backwards else slice_along(own, block - 1, block, axis)
        rows = over.all_rows(last)
        row = type_of(rows).update(shape=(1, *type_of(last).shape), weak=False)
        nothing = full_like(row, neutral(reducer, row.dtype))
        joined = concatenate(*((rows, nothing) if backwards else (nothing, rows)), axis=0)
        before = call.primitive.bind(joined, axis=0, reverse=backwards)
        first = 1 if backwards else 0
        return join(own, over.own_row(slice_along(before, first, first + over.members, 0)))

    nbytes = call.count(names) * _row_bytes(call.types[0], axis) // _others(call, 0, axis)
    return AlongAxis({(0, axis): axis}, names, "all-gather", nbytes, run)


def _arg_extremum(call: DividedCall, number: int, axis: int) -> AlongAxis | None:
    """The extrema of all processes are compared."""
    names, dtype = call.names(0, axis), call.params["index_dtype"]

    def run(operands: Sequence[Any], params: dict[str, Any], over: SpanningAxis) -> Any:
        (x,) = operands
        block = type_of(x).shape[axis]
        position = call.primitive.bind(x, **params)
        shape = type_of(position).shape
        row = (*shape[:axis], 1, *shape[axis:])
        value = reshape(take_along(x, reshape(position, shape=row), axis), shape=shape)
        own = add(position, np.asarray(over.index * block, dtype))
        values, positions = over.all_rows(value), over.all_rows(own)
        best = call.primitive.bind(values, **{**params, "axis": 0})
        return reshape(take_along(positions, reshape(best, shape=(1, *shape)), 0), shape=shape)

    nbytes = call.count(names) * (call.results[0].nbytes + _row_bytes(call.types[0], axis))
    return AlongAxis({(0, axis): -1 - axis}, names, "all-gather", nbytes // _others(call, 0, axis), run)


_RULES: dict[str, AxisRule] = {
    "slice": _slice,
    "reverse": _reverse,
    "pad": _pad,
    "concatenate": _concatenate,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    **dict.fromkeys(("scatter", "scatter_add", "scatter_mul", "scatter_max", "scatter_min"), _scatter),
    "conv_general_dilated": _convolution,
    "reduce_window": _reduce_window,
    **dict.fromkeys(_JOINS, _cumulative),
    **dict.fromkeys(("argmax", "argmin"), _arg_extremum),
}
