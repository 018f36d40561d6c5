"""The contents of a page as data: graphs of equations, the user's lines, kernels, and the links between them."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlx.errors import short_name
from rlx.explain.attribution import parts_of
from rlx.explain.memory_report import MemoryPlan
from rlx.explain.page.layout import layered
from rlx.ir.kernels import Kernel, Loops, Plan, RowTiles, Sort
from rlx.ir.program import Origin, Program, Var
from rlx.ir.show import show_lines
from rlx.ir.show_plan import kernel_name
from rlx.ir.work import kernel_work

__all__ = ["functions_of", "graph_of", "kernels_of", "memory_of", "sources_of"]

_AROUND = 2  # lines of the user's shown before and behind those that made equations
_CALL = re.compile(r"^\s+(\w+)\(", re.MULTILINE)
_DEFINITION = re.compile(r"^def (\w+)\(", re.MULTILINE)


def graph_of(
    program: Program, names: Sequence[str], kernels: Sequence[Sequence[str]], how: Sequence[str]
) -> dict[str, Any]:
    """Nodes (inputs by their names, then equations) with their places, and edges between them with their types.

    kernels: the paths of the kernels that compute each equation.
    """
    made: dict[Var, int] = {variable: number for number, variable in enumerate(program.inputs)}
    reads: list[dict[int, str]] = [{} for _ in program.inputs]
    nodes: list[dict[str, Any]] = [
        {"name": name, "text": f"x{number} is {name}", "type": repr(variable.type), "how": "input"}
        for number, (variable, name) in enumerate(zip(program.inputs, names, strict=True))
    ]
    lines = show_lines(program)
    for equation, line, paths, became in zip(program.equations, lines, kernels, how, strict=False):
        known = {made[a]: repr(a.type) for a in equation.inputs if isinstance(a, Var) and a in made}
        made.update(dict.fromkeys(equation.outputs, len(nodes)))
        reads.append(known)
        node = {"name": equation.primitive.name, "text": line.partition("  # ")[0], "how": became}
        node["type"] = ", ".join(repr(v.type) for v in equation.outputs)
        if paths:
            node["kernels"] = list(paths)
        if equation.origin is not None:
            node["line"] = [equation.origin.file, equation.origin.line]
        nodes.append(node)
    for node, (column, layer) in zip(nodes, layered([list(found) for found in reads]), strict=True):
        node["x"], node["y"] = round(column, 2), layer
    results = sorted({made[v] for v in program.outputs if isinstance(v, Var) and v in made})
    return {"nodes": nodes, "edges": _edges(reads), "results": results}


def _edges(reads: Sequence[dict[int, str]]) -> list[list[Any]]:
    return [[source, node, type] for node, found in enumerate(reads) for source, type in found.items()]


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
        found.append({"file": file, "name": short_name(file), "lines": lines})
    return found


def kernels_of(
    plan: Plan, loops: str, lines: Mapping[int, Sequence[Origin]], seconds: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Each kernel of a plan, and of row tiles the kernels in them: its path, name, lines, work, time and functions.

    lines: of each kernel, by its id. seconds: by path, where they were measured.
    """
    names = functions_of(plan, loops)
    found: list[dict[str, Any]] = []
    for path, kernel, whole in parts_of(plan):
        if kernel is not whole and path.endswith(".0"):
            found.append(_row(path.removesuffix(".0"), whole, lines, seconds, []))
        found.append(_row(path, kernel, lines, seconds, names.get(path, [])))
    return found


def _row(
    path: str,
    kernel: Kernel,
    lines: Mapping[int, Sequence[Origin]],
    seconds: Mapping[str, float],
    functions: Sequence[str],
) -> dict[str, Any]:
    work = kernel_work(kernel)
    row: dict[str, Any] = {"path": path, "name": kernel_name(kernel), "kind": type(kernel).__name__}
    row["lines"] = [[o.file, o.line] for o in lines.get(id(kernel), ())]
    row |= {"bytes": work.bytes, "operations": work.flops + work.transcendentals, "functions": list(functions)}
    if isinstance(kernel, RowTiles):
        row["tiles"] = kernel.count
    return row | ({"seconds": seconds[path]} if path in seconds else {})


def functions_of(plan: Plan, loops: str) -> dict[str, list[str]]:
    """The functions of the listing that each kernel calls, by the kernel's path; nothing if the numbers do not match.

    The last function of the listing is the plan's: it calls one for each kernel of loops and each sort, in order.
    """
    defined = _DEFINITION.findall(loops)
    if not defined:
        return {}
    body = loops[loops.rindex(f"def {defined[-1]}(") :]
    calls = [name for name in _CALL.findall(body) if name in defined[:-1]]
    owners = [path for path, kernel, _ in parts_of(plan) if isinstance(kernel, (Loops, Sort))]
    if len(calls) != len(owners):
        return {}
    found: dict[str, list[str]] = {}
    for owner, name in zip(owners, calls, strict=True):
        found.setdefault(owner, []).append(name)
    return found


def memory_of(plan: MemoryPlan) -> dict[str, Any]:
    """The arena's rectangles: offset, and first and last kernel, of each temporary."""
    rows = [
        {"name": b.name, "dtype": b.dtype, "offset": b.offset, "bytes": b.nbytes, "first": b.first, "last": b.last}
        for b in plan.buffers
    ]
    return {"arena": plan.arena, "peak": plan.peak, "kernels": len(plan.kernels), "buffers": rows}
