"""Scatters that combine in the order of iterations: their sums are bit for bit equal from run to run.

Positions are sorted together with the iterations that reach them; one work-item then adds all terms of an element.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import (
    ITEM,
    Grid,
    GridMapping,
    grid_of,
    grid_step,
    group_number,
    ordered,
    permuted,
    unsigned,
)
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.sorting import sort_steps
from rlx.backends.gpu.steps import LaunchStep, ceiling, loops_step
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.walk import Walk
from rlx.code.tree import Array, Both, Either, Expression, Register
from rlx.ir.fused_products import with_stores
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Sort, Store, reaches_apart

__all__ = ["ordered_sum_steps"]

_BOOL, _INT32, _INT64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)
_MANY = 1 << 62


def ordered_sum_steps(kernel: Loops, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """The launches of a scatter that adds in the order of its iterations; None for other kernels, and if several
    scatters of a kernel write to different positions."""
    first = kernel.stores[0]
    alike = all(_adds(s) and _place(s) == _place(first) for s in kernel.stores)
    if not _adds(first) or not alike or kernel.chunks > 1 or ordered(kernel) or 0 in kernel.sizes:
        return None
    free = _free(kernel)
    bound = [d for d in range(len(kernel.sizes)) if d not in free]
    count = math.prod(kernel.sizes[d] for d in bound)
    target = kernel.operands[first.access.operand]
    if count >= (1 << 31) - 1:
        return None
    kind = _INT32 if target.size < 1 << 28 else _INT64
    places, ordered_places = (Buffer(kind, count, name=name) for name in ("places", "ordered_places"))
    turns = Buffer(_INT32, count, name="turns")
    placed = _places(kernel, bound, places)
    sort = Sort(1, count, (places,), (ordered_places, turns), 1, True, label=f"{kernel.label}_places")
    flat = replace(kernel, outer=len(kernel.sizes), parallel=0)
    grid = Grid(flat, tuple(range(len(kernel.sizes))))
    mapping = _Segments(grid, limits, bound, free, ordered_places, dialect.shuffles)
    scratch = [(Parameter(b.name, b.dtype, False), b) for b in (ordered_places, turns)]
    groups = ceiling(grid.points, limits.group)
    return [
        grid_step(grid_of(placed, limits, dialect), limits, dialect),
        *sort_steps(sort, limits, dialect),
        loops_step(flat, dialect, limits, mapping, "ordered sums", groups, limits.group, (), scratch),
    ]


def _nowhere(dtype: np.dtype) -> int:
    """The position of an iteration that writes nothing: the largest number."""
    return (1 << 8 * dtype.itemsize - 1) - 1


def _adds(store: Store) -> bool:
    return store.order == "sequential" and store.address is not None and store.accumulate is not None


def _place(store: Store) -> tuple[object, ...]:
    """The position that a store writes, without the part of a complex number."""
    return store.access.operand, store.access.strides, store.address, store.guard


# ------------------------------------------------------------------ dimensions
def _free(kernel: Loops) -> list[int]:
    """Dimensions along which iterations always reach different elements, whatever the address."""
    store = kernel.stores[0]
    strides = store.access.strides
    still = _moving(kernel, [n for n in (store.address, store.guard) if n is not None])
    free = [d for d, s in enumerate(strides) if s and d not in still]
    assert store.address is not None
    span = _span(kernel, store.address)
    moved = [d for d in range(len(strides)) if d not in free and strides[d]]
    step = math.gcd(span.step, *(strides[d] for d in moved))
    extent = span.high - span.low + sum(abs(strides[d]) * (kernel.sizes[d] - 1) for d in moved)
    count = min(extent, _MANY) // step + 1 if step else 1
    offsets = [s.access.offset for s in kernel.stores]
    parts = max(offsets) - min(offsets)
    digits = [(step, int(count)), (parts, 2 if parts else 1), *((strides[d], kernel.sizes[d]) for d in free)]
    return free if reaches_apart(*zip(*digits, strict=True)) else []


def _moving(kernel: Loops, roots: Sequence[int]) -> set[int]:
    """The dimensions that instructions depend on."""
    found: set[int] = set()
    for number in roots:
        instruction = kernel.instructions[number]
        if instruction.op == "load":
            found |= {d for d, stride in enumerate(instruction.attribute.strides) if stride}
        elif instruction.op == "index":
            found.add(instruction.attribute)
        found |= _moving(kernel, instruction.args)
    return found


class _IntegerBounds(NamedTuple):
    """The possible values of an integer: between two bounds; any two values differ by a multiple of `step`."""

    low: float
    high: float
    step: int = 1


def _span(kernel: Loops, number: int) -> _IntegerBounds:
    instruction = kernel.instructions[number]
    match instruction.op:
        case "constant":
            value = int(np.frombuffer(instruction.attribute, instruction.dtype)[0])
            return _IntegerBounds(value, value, 0)
        case "index":
            return _IntegerBounds(0, kernel.sizes[instruction.attribute] - 1)
        case "add" | "mul" | "min" | "max":
            return _combined(instruction.op, *(_span(kernel, n) for n in instruction.args))
    return _IntegerBounds(-math.inf, math.inf)


def _combined(op: str, x: _IntegerBounds, y: _IntegerBounds) -> _IntegerBounds:
    if op == "add":
        return _IntegerBounds(x.low + y.low, x.high + y.high, math.gcd(x.step, y.step))
    if op == "mul":
        if x.step == 0:
            x, y = y, x
        if y.step or not y.low:
            return _IntegerBounds(-math.inf, math.inf)
        low, high = sorted((x.low * y.low, x.high * y.low))
        return _IntegerBounds(low, high, x.step * abs(int(y.low)))
    choose = min if op == "min" else max
    return _IntegerBounds(choose(x.low, y.low), choose(x.high, y.high))


# ------------------------------------------------------------------ launches
def _places(kernel: Loops, bound: Sequence[int], places: Buffer) -> Loops:
    """A map that stores the position each iteration of the bound dimensions writes: the largest number for none."""
    store = kernel.stores[0]
    assert store.address is not None
    operands = (*kernel.operands, places)
    instructions = list(kernel.instructions)

    def added(op: str, args: tuple[int, ...], dtype: np.dtype, attribute: object = None) -> int:
        instructions.append(Instruction(op, args, dtype, attribute))
        return len(instructions) - 1

    def number(value: int) -> int:
        return added("constant", (), _INT64, np.int64(value).tobytes())

    place = store.address
    for dimension in bound:
        stride = store.access.strides[dimension]
        if stride:
            index = added("index", (), _INT64, dimension)
            place = added("add", (place, added("mul", (index, number(stride)), _INT64)), _INT64)
    if store.guard is not None:
        place = added("select", (store.guard, place, number(_nowhere(places.dtype))), _INT64)
    if places.dtype != _INT64:
        place = added("cast", (place,), places.dtype)
    rank = len(kernel.sizes)
    dense = {d: math.prod(kernel.sizes[b] for b in bound[n + 1 :]) for n, d in enumerate(bound)}
    access = Access(len(kernel.operands), tuple(dense.get(d, 0) for d in range(rank)))
    made = replace(kernel, operands=operands, instructions=tuple(instructions), outer=rank, parallel=0)
    made = with_stores(made, [Store(place, access)])
    inside = permuted(made, bound)
    return replace(inside, outer=len(bound), parallel=len(bound), label=f"{kernel.label}_places")


class _Segments(GridMapping):
    """The work-item of the first iteration that writes a position runs all iterations that write it, in order."""

    def __init__(
        self, grid: Grid, limits: Limits, bound: Sequence[int], free: Sequence[int], places: Buffer, shuffles: bool
    ) -> None:
        super().__init__(grid, limits, limits.group, shuffles)
        self.bound, self.free = bound, free
        self.places, self.turns = Array(places.name, places.dtype), Array("turns", _INT32)

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """The free dimensions' indices, and a loop over iterations of the others."""
        code, sizes, position = walk.code, walk.loops.sizes, walk.position
        point = code.declare("point", group_number(walk) * self.items + ITEM)
        nest.enter_context(code.when(point < self.grid.points))
        rest: Expression = point
        for dimension in reversed(self.free):
            code.declare(walk.index(dimension).name, rest % sizes[dimension], position)
            rest = rest // sizes[dimension]
        count = math.prod(sizes[d] for d in self.bound)
        first = code.declare("first", rest, position)
        place = code.declare("place", self.places[first])
        begins = Either(_BOOL, first.equals(0), self.places[first - 1].differs(place))
        nest.enter_context(code.when(Both(_BOOL, place.differs(_nowhere(place.dtype)), begins)))
        turn = code.declare("turn", first, changes=True)
        goes_on = Both(_BOOL, turn < count, self.places[turn].equals(place))
        nest.enter_context(code.free_loop(goes_on))
        iteration = code.declare("iteration", self.turns[turn], unsigned(position))
        code.assign(turn, turn + 1)
        self._indices(walk, iteration)
        return range(len(sizes))

    def _indices(self, walk: Walk, iteration: Register) -> None:
        """The bound dimensions' indices in an iteration."""
        rest: Expression = iteration
        for dimension in reversed(self.bound):
            size = walk.loops.sizes[dimension]
            walk.code.declare(walk.index(dimension).name, rest % size, walk.position)
            rest = rest // size
