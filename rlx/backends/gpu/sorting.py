"""Sorts of rows: positions are sorted in a group's memory, long rows in parts that are merged.

Positions of equal elements stay in their order, so that the sort is stable. A merge finds the place of each position
by bisection in the other part.
"""

from __future__ import annotations

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, code_step, position_dtype
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.sorting import precedes
from rlx.code.tree import Apply, Array, Barrier, Both, Coordinate, Either, Expression, Register, minimum
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Buffer, Sort

__all__ = ["sort_steps"]

_BOOL, _INT32 = np.dtype(bool), np.dtype(np.int32)


def sort_steps(kernel: Sort, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep]:
    """The launches of a sort."""
    if not kernel.rows or not kernel.length:
        return []
    size = min(1 << (kernel.length - 1).bit_length(), limits.sorted_row)
    parts = ceiling(kernel.length, size)
    items = limits.group if dialect.shared_launch else max(1, min(limits.group, size // 2))
    first, second = (Buffer(_INT32, kernel.rows * kernel.length, name=name) for name in ("order", "merged"))
    position = position_dtype(limits.wide or kernel.rows * kernel.length >= 1 << 30)
    steps = [_sorted_parts(kernel, first, size, parts, items, position, dialect)]
    while size < kernel.length:
        steps.append(_merged_parts(kernel, first, second, size, position, limits, dialect))
        first, second, size = second, first, 2 * size
    steps.append(_moved(kernel, first, position, limits, dialect))
    return steps


def _keys(kernel: Sort) -> tuple[list[Parameter], list[Buffer]]:
    """The parameters of the keys, one for each key array."""
    found = dict.fromkeys(kernel.inputs[: kernel.keys])
    return [Parameter(f"key{n}", b.dtype, False) for n, b in enumerate(found)], list(found)


def _comes_before(
    code: CodeWriter, kernel: Sort, row: Expression, left: Expression, right: Expression, name: str
) -> Register:
    """Whether the element at one position of a row precedes the one at another; equal elements keep their order."""
    parameters, _ = _keys(kernel)
    found = code.declare(name, left < right, changes=True)
    for parameter in reversed(parameters):
        array = Array(parameter.name, parameter.dtype)
        x = code.declare(f"{parameter.name}_{name}", array[row + left])
        y = code.declare(f"{parameter.name}_other", array[row + right])
        tied = Apply(_BOOL, "not", (precedes(y, x),))
        code.assign(found, Either(_BOOL, precedes(x, y), Both(_BOOL, tied, found)))
    return found


def _integer(name: str) -> Register:
    return Register(_INT32, name)


def _bits(left: Expression, right: Expression) -> Expression:
    return Apply(_INT32, "and", (left, right))


def _sorted_parts(
    kernel: Sort, order: Buffer, size: int, parts: int, items: int, position: np.dtype, dialect: DeviceDialect
) -> LaunchStep:
    """Each group sorts a part of a row, by Batcher's network; positions beyond the row's end are sorted last."""
    n, code = kernel.length, CodeWriter()
    parameters, arrays = _keys(kernel)
    places, i = Array("places", _INT32, "group", (size,)), _integer("i")
    width, distance = _integer("width"), _integer("distance")
    code.allocate(places)
    point = code.declare("point", Coordinate(unsigned(position), "group"))
    row = code.declare("row", point // parts * n, position)
    begin = code.declare("begin", point % parts * size, _INT32)
    with code.loop(i, ITEM, size, items):
        code.write(places[i], begin + i)
    code.add(Barrier())
    with code.loop(width, 2, size + 1, 2, advance="multiply"):
        with code.loop(distance, width // 2, 1, 2, advance="divide"):
            with code.loop(i, ITEM, size // 2, items):
                _exchange(code, kernel, places, row)
            code.add(Barrier())
    with code.loop(i, ITEM, size, items), code.when(begin + i < n):
        code.write(Array("order", _INT32)[row + begin + i], places[i])
    return code_step(
        kernel.label or "sort", "sort in groups", dialect, [*parameters, Parameter("order", _INT32, True)],
        [*arrays, order], code.block, kernel.rows * parts, items,
    )  # fmt: skip


def _exchange(code: CodeWriter, kernel: Sort, places: Array, row: Register) -> None:
    """Order a pair of positions, in the direction of its block of the network."""
    n, i = kernel.length, _integer("i")
    width, distance = _integer("width"), _integer("distance")
    low = code.declare("low", 2 * i - _bits(i, distance - 1))
    high = code.declare("high", low + distance)
    p, q = code.declare("p", places[low]), code.declare("q", places[high])
    swap = code.declare("swap", Both(_BOOL, p >= n, q < p), changes=True)
    with code.when(Both(_BOOL, p < n, q < n)):
        code.assign(swap, _comes_before(code, kernel, row, q, p, "after"))
    with code.when(swap.equals(_bits(low, width).equals(0))):
        code.write(places[low], q)
        code.write(places[high], p)


def _merged_parts(
    kernel: Sort,
    order: Buffer,
    merged: Buffer,
    size: int,
    position: np.dtype,
    limits: Limits,
    dialect: DeviceDialect,
) -> LaunchStep:
    """Each position finds its place among the positions of the neighbouring part."""
    n, total, code = kernel.length, kernel.rows * kernel.length, CodeWriter()
    parameters, arrays = _keys(kernel)
    before, after = Array("order", _INT32), Array("merged", _INT32)
    point = code.declare("point", Coordinate(unsigned(position), "group") * limits.group + ITEM)
    with code.when(point < total):
        row = code.declare("row", point // n * n, position)
        place, mine = code.declare("place", point % n, _INT32), code.declare("mine", before[point])
        begin = code.declare("begin", place // (2 * size) * (2 * size))
        middle = code.declare("middle", begin + size)
        stop = code.declare("stop", minimum(middle + size, n))
        left = code.declare("left", place < middle)

        def side(yes: Expression, no: Expression) -> Apply:
            return Apply(_INT32, "select", (left, yes, no))

        first = code.declare("first", minimum(side(middle, begin), n))
        low, high = code.declare("low", first, changes=True), code.declare("high", side(stop, middle), changes=True)
        code.assign(high, minimum(high, n))
        with code.free_loop(low < high):
            centre = code.declare("centre", low + (high - low) // 2)
            other = code.declare("other", before[row + centre])
            with code.when(_comes_before(code, kernel, row, other, mine, "before")):
                code.assign(low, centre + 1)
            with code.otherwise():
                code.assign(high, centre)
        own = code.declare("own", place - side(begin, middle))
        code.write(after[row + begin + own + low - first], mine)
    written = [Parameter("order", _INT32, False), Parameter("merged", _INT32, True)]
    return code_step(
        f"{kernel.label or 'sort'}_merge", "merge", dialect, [*parameters, *written], [*arrays, order, merged],
        code.block, ceiling(total, limits.group), limits.group,
    )  # fmt: skip


def _moved(kernel: Sort, order: Buffer, position: np.dtype, limits: Limits, dialect: DeviceDialect) -> LaunchStep:
    """Copy the elements to their places."""
    n, total, code = kernel.length, kernel.rows * kernel.length, CodeWriter()
    inputs = dict.fromkeys(kernel.inputs)
    sources = {b: Array(f"from{number}", b.dtype) for number, b in enumerate(inputs)}
    point = code.declare("point", Coordinate(unsigned(position), "group") * limits.group + ITEM)
    with code.when(point < total):
        chosen = code.declare("chosen", Array("order", _INT32)[point])
        place = code.declare("place", point // n * n + chosen, position)
        for number, source in enumerate(kernel.inputs):
            code.write(Array(f"to{number}", source.dtype)[point], sources[source].code(place))
        if kernel.index:
            target = Array(f"to{len(kernel.inputs)}", kernel.outputs[-1].dtype)
            code.write(target[point], Apply(target.dtype, "cast", (chosen,)))
    parameters = [
        *(Parameter(array.name, array.dtype, False) for array in sources.values()),
        *(Parameter(f"to{number}", b.dtype, True) for number, b in enumerate(kernel.outputs)),
        Parameter("order", _INT32, False),
    ]
    return code_step(
        f"{kernel.label or 'sort'}_move", "items", dialect, parameters, [*inputs, *kernel.outputs, order], code.block,
        ceiling(total, limits.group), limits.group,
    )  # fmt: skip
