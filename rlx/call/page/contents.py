"""What a page shows, as data: graphs of equations, the user's lines, kernels, and where they meet."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rlx.call.page.layout import layered
from rlx.ir.kernels import Kernel, Loops, Plan, RowTiles, members
from rlx.ir.program import Origin, Program, Var
from rlx.ir.show import show_lines
from rlx.ir.show_plan import kernel_name
from rlx.planning.memory_report import MemoryPlan

__all__ = ["functions_of", "graph_of", "kernels_of", "memory_of", "sources_of"]

_AROUND = 2  # lines of the user's shown before and behind those that made equations
_CALL = re.compile(r"^\s+(\w+)\(", re.MULTILINE)
_DEFINITION = re.compile(r"^def (\w+)\(", re.MULTILINE)


def graph_of(program: Program, kernel_numbers: Sequence[int | None], how: Sequence[str]) -> dict[str, Any]:
    """Nodes (inputs, then equations) with their places, and edges between them."""
    made: dict[Var, int] = {variable: number for number, variable in enumerate(program.inputs)}
    reads: list[list[int]] = [[] for _ in program.inputs]
    nodes: list[dict[str, Any]] = [
        {"name": f"x{number}", "text": f"input {number}: {variable.type!r}", "how": "input"}
        for number, variable in enumerate(program.inputs)
    ]
    lines = show_lines(program)
    for equation, line, kernel, became in zip(program.equations, lines, kernel_numbers, how, strict=False):
        known = {made[a]: None for a in equation.inputs if isinstance(a, Var) and a in made}
        made.update(dict.fromkeys(equation.outputs, len(nodes)))
        reads.append(list(known))
        node = {"name": equation.primitive.name, "text": line.partition("  # ")[0], "how": became}
        node["type"] = ", ".join(repr(v.type) for v in equation.outputs)
        if kernel is not None:
            node["kernel"] = kernel
        if equation.origin is not None:
            node["line"] = [equation.origin.file, equation.origin.line]
        nodes.append(node)
    for node, (column, layer) in zip(nodes, layered(reads), strict=True):
        node["x"], node["y"] = round(column, 2), layer
    results = sorted({made[v] for v in program.outputs if isinstance(v, Var) and v in made})
    return {"nodes": nodes, "edges": [[s, n] for n, found in enumerate(reads) for s in found], "results": results}


def sources_of(origins: Iterable[Origin]) -> list[dict[str, Any]]:
    """The user's files, with the lines that made equations and those around them."""
    wanted: dict[str, set[int]] = {}
    for origin in origins:
        near = range(max(1, origin.line - _AROUND), origin.line + _AROUND + 1)
        wanted.setdefault(origin.file, set()).update(near)
    found = []
    for file, numbers in wanted.items():
        text = linecache.getlines(file)
        lines = [[n, text[n - 1].rstrip("\n")] for n in sorted(numbers) if n <= len(text)]
        found.append({"file": file, "name": os.path.basename(file), "lines": lines})
    return found


def kernels_of(plan: Plan, loops: str) -> list[dict[str, Any]]:
    """Each kernel of a plan: its name, its lines, and which functions of the listing compute it."""
    names = functions_of(plan, loops)
    return [
        {
            "name": kernel_name(kernel),
            "lines": [[o.file, o.line] for o in _origins(kernel)],
            "functions": names.get(number, []),
        }
        for number, kernel in enumerate(plan.kernels)
    ]


def _origins(kernel: Kernel) -> Iterator[Origin]:
    """The lines of a kernel and of the kernels that run in turns as one."""
    seen: set[Origin] = set()
    for part in members(kernel):
        for origin in getattr(part, "origins", ()):
            if origin not in seen:
                seen.add(origin)
                yield origin


def functions_of(plan: Plan, loops: str) -> dict[int, list[str]]:
    """The functions of the listing that each kernel calls, by the kernel's number; nothing where they do not count up.

    The last function of the listing is the plan's: it calls one for each kernel of loops, in order.
    """
    defined = _DEFINITION.findall(loops)
    if not defined:
        return {}
    body = loops[loops.rindex(f"def {defined[-1]}(") :]
    calls = [name for name in _CALL.findall(body) if name in defined[:-1]]
    owners = [
        number
        for number, kernel in enumerate(plan.kernels)
        for part in members(kernel)
        if isinstance(part, (Loops, RowTiles))
    ]
    if len(calls) != len(owners):
        return {}
    found: dict[int, list[str]] = {}
    for owner, name in zip(owners, calls, strict=True):
        found.setdefault(owner, []).append(name)
    return found


def memory_of(plan: MemoryPlan) -> dict[str, Any]:
    """The arena's rectangles: from which kernel to which each temporary lies where."""
    rows = [
        {"name": b.name, "dtype": b.dtype, "offset": b.offset, "bytes": b.nbytes, "first": b.first, "last": b.last}
        for b in plan.buffers
    ]
    return {"arena": plan.arena, "peak": plan.peak, "kernels": len(plan.kernels), "buffers": rows}
