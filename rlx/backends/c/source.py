"""A unit as a C file: headers, helper functions, kernels, plans, and one exported function."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.backends.c.prelude import helpers_of
from rlx.backends.c.types import memory_type
from rlx.backends.loops.program import SourceUnit

__all__ = ["ENTRY", "HEADERS", "definitions", "unit_source"]

ENTRY = "rlx_run"
HEADERS = "\n".join(f"#include <{name}.h>" for name in ("math", "stdbool", "stdint", "string"))


def definitions(unit: SourceUnit, includes: Iterable[str] = ()) -> str:
    """Everything except the exported function."""
    headers = "\n".join((HEADERS, *includes))
    functions = (function.text for function in unit.functions)
    return "\n\n".join((headers, *helpers_of(unit.helpers), *functions)) + "\n"


def unit_source(unit: SourceUnit) -> str:
    """A C file whose function takes the addresses of the unit's arrays, and of its arena, in an array."""
    arguments = [
        f"({'' if p.written else 'const '}{memory_type(p.dtype)} *)arrays[{n}]"
        for n, p in enumerate(unit.entry.parameters)
    ]
    lines = [
        f"void {ENTRY}(void *const *arrays) {{",
        f"    {unit.entry.name}({', '.join(arguments)});",
        "}",
    ]
    return definitions(unit) + "\n" + "\n".join(lines) + "\n"
