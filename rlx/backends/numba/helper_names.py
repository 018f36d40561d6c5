"""The names of the functions that generated kernels call, and the sources of those in files."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from rlx.backends.loops.straight_line import CONVERSIONS, ELEMENTARY
from rlx.ir.scalar import SPECIAL

__all__ = ["DTYPES", "GENERATED", "HELPER_NAMES", "definitions"]

DTYPES = ("float32", "float64")
# functions that are printed from code
GENERATED = CONVERSIONS.union(f"{name}_{dtype}" for name in ELEMENTARY for dtype in DTYPES)
_REMARK = re.compile("  # (noqa|ty): .*")


@cache
def definitions() -> dict[str, tuple[str, frozenset[str]]]:
    """For each function of the two files, its source and the names in it."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for file in ("scalar_functions.py", "numba_versions.py"):
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        lines = text.split("\n")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                source = _REMARK.sub("", "\n".join(lines[first - 1 : node.end_lineno]))
                found[node.name] = (source, frozenset(names - {node.name}))
    return found


HELPER_NAMES = frozenset((*definitions(), *GENERATED, *SPECIAL))
