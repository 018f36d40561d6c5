"""Sorts of rows: positions are sorted in a group's memory, long rows in parts that are merged.

Positions of equal elements stay in their order, so that the sort is stable. A merge finds the place of each position
by bisection in the other part.
"""

from __future__ import annotations

import numpy as np

from rlx.backends.c.prelude import helper_name
from rlx.backends.c.types import memory_type
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, ceiling, step_of
from rlx.backends.loops.dialect import Parameter
from rlx.ir.kernels import Buffer, Sort

__all__ = ["sort_steps"]

_INT32 = np.dtype(np.int32)


def sort_steps(kernel: Sort, limits: Limits, dialect: DeviceDialect) -> list[Step]:
    """The launches of a sort."""
    if not kernel.rows or not kernel.length:
        return []
    size = min(1 << (kernel.length - 1).bit_length(), limits.sorted_row)
    parts = ceiling(kernel.length, size)
    items = limits.group if dialect.turn else max(1, min(limits.group, size // 2))
    first, second = (Buffer(_INT32, kernel.rows * kernel.length, name=name) for name in ("order", "merged"))
    with dialect.positions(limits.wide or kernel.rows * kernel.length >= 1 << 30):
        steps = [_sorted_parts(kernel, first, size, parts, items, dialect)]
        while size < kernel.length:
            steps.append(_merged_parts(kernel, first, second, size, limits, dialect))
            first, second, size = second, first, 2 * size
        steps.append(_moved(kernel, first, limits, dialect))
    return steps


def _keys(kernel: Sort) -> tuple[list[Parameter], list[Buffer]]:
    """The parameters of the keys, one for each key array."""
    found = dict.fromkeys(kernel.inputs[: kernel.keys])
    return [Parameter(f"key{n}", b.dtype, False) for n, b in enumerate(found)], list(found)


def _comes_before(kernel: Sort, dialect: DeviceDialect, left: str, right: str, result: str) -> list[str]:
    """Statements that set `result` to whether the element at one position of a row precedes that at another one."""
    _, arrays = _keys(kernel)
    lines = [f"bool {result} = {left} < {right};"]
    for number, buffer in reversed([*enumerate(arrays)]):
        before = dialect.helper(helper_name("before", buffer.dtype))
        x, y = (f"key{number}[row + {place}]" for place in (left, right))
        lines.append(f"{result} = {before}({x}, {y}) || (!{before}({y}, {x}) && {result});")
    return lines


def _sorted_parts(kernel: Sort, order: Buffer, size: int, parts: int, items: int, dialect: DeviceDialect) -> Step:
    """Each group sorts a part of a row, by Batcher's network; positions beyond the row's end are sorted last."""
    n, item = kernel.length, dialect.number_in_group()
    parameters, arrays = _keys(kernel)
    body = [
        f"{dialect.group_space} int32_t places[{size}];",
        dialect.number("point", f"({dialect.number_type}){dialect.group_number()}"),
        dialect.fixed("row", f"point / {parts}u * {n}"),
        f"const int32_t begin = point % {parts}u * {size};",
        f"for (int i = {item}; i < {size}; i += {items}) places[i] = begin + i;",
        dialect.barrier(),
        f"for (int width = 2; width <= {size}; width *= 2)",
        "    for (int distance = width / 2; distance > 0; distance /= 2) {",
        f"        for (int i = {item}; i < {size // 2}; i += {items}) {{",
        "            const int low = 2 * i - (i & (distance - 1)), high = low + distance;",
        "            const int32_t p = places[low], q = places[high];",
        f"            bool swap = p >= {n} && q < p;",
        f"            if (p < {n} && q < {n}) {{",
        *(f"                {line}" for line in _comes_before(kernel, dialect, "q", "p", "after")),
        "                swap = after;",
        "            }",
        "            if (swap == ((low & width) == 0)) { places[low] = q; places[high] = p; }",
        "        }",
        f"        {dialect.barrier()}",
        "    }",
        f"for (int i = {item}; i < {size}; i += {items})",
        f"    if (begin + i < {n}) order[row + begin + i] = places[i];",
    ]
    written = Parameter("order", _INT32, True)
    return step_of(
        kernel.label or "sort", "sort in groups", dialect, [*parameters, written], [*arrays, order], body,
        kernel.rows * parts, items,
    )  # fmt: skip


def _merged_parts(
    kernel: Sort, order: Buffer, merged: Buffer, size: int, limits: Limits, dialect: DeviceDialect
) -> Step:
    """Each position finds its place among the positions of the neighbouring part."""
    n, total = kernel.length, kernel.rows * kernel.length
    parameters, arrays = _keys(kernel)
    group, item = f"({dialect.number_type}){dialect.group_number()}", dialect.number_in_group()
    body = [
        dialect.number("point", f"{group} * {limits.group} + {item}"),
        f"if (point < {total}) {{",
        f"    {dialect.fixed('row', f'point / {n}u * {n}')}",
        f"    const int32_t place = point % {n}u, mine = order[point];",
        f"    const int32_t begin = place / {2 * size} * {2 * size}, middle = begin + {size};",
        f"    const int32_t stop = middle + {size} < {n} ? middle + {size} : {n};",
        "    const bool left = place < middle;",
        "    int32_t low = left ? middle : begin, high = left ? stop : middle;",
        f"    if (low > {n}) low = {n};",
        f"    if (high > {n}) high = {n};",
        "    const int32_t first = low;",
        "    while (low < high) {",
        "        const int32_t centre = low + (high - low) / 2, other = order[row + centre];",
        *(f"        {line}" for line in _comes_before(kernel, dialect, "other", "mine", "before")),
        "        if (before) low = centre + 1; else high = centre;",
        "    }",
        "    const int32_t own = place - (left ? begin : middle);",
        "    merged[row + begin + own + low - first] = mine;",
        "}",
    ]
    written = [Parameter("order", _INT32, False), Parameter("merged", _INT32, True)]
    return step_of(
        f"{kernel.label or 'sort'}_merge", "merge", dialect, [*parameters, *written], [*arrays, order, merged], body,
        ceiling(total, limits.group), limits.group,
    )  # fmt: skip


def _moved(kernel: Sort, order: Buffer, limits: Limits, dialect: DeviceDialect) -> Step:
    """Copy the elements to their places."""
    n, total = kernel.length, kernel.rows * kernel.length
    inputs = dict.fromkeys(kernel.inputs)
    names = {b: f"from{number}" for number, b in enumerate(inputs)}
    group, item = f"({dialect.number_type}){dialect.group_number()}", dialect.number_in_group()
    lines = [
        f"to{number}[point] = {names[source]}[place];" for number, source in enumerate(kernel.inputs)
    ]
    if kernel.index:
        kind = memory_type(kernel.outputs[-1].dtype)
        lines.append(f"to{len(kernel.inputs)}[point] = ({kind})order[point];")
    body = [
        dialect.number("point", f"{group} * {limits.group} + {item}"),
        f"if (point < {total}) {{",
        f"    {dialect.fixed('place', f'point / {n}u * {n} + order[point]')}",
        *(f"    {line}" for line in lines),
        "}",
    ]
    parameters = [
        *(Parameter(name, b.dtype, False) for b, name in names.items()),
        *(Parameter(f"to{number}", b.dtype, True) for number, b in enumerate(kernel.outputs)),
        Parameter("order", _INT32, False),
    ]
    return step_of(
        f"{kernel.label or 'sort'}_move", "items", dialect, parameters, [*inputs, *kernel.outputs, order], body,
        ceiling(total, limits.group), limits.group,
    )  # fmt: skip
