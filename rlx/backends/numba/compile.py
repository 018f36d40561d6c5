"""Units of Python text compiled by Numba."""

from __future__ import annotations

import inspect
import linecache
from typing import Any

import numpy as np

from rlx.backends.loops.executable import CompiledUnit, memory_dtype
from rlx.backends.loops.program import Unit
from rlx.backends.numba import scalar_functions

__all__ = ["compile_unit", "unit_source"]


def unit_source(unit: Unit) -> str:
    """A Python module with the unit's functions and the helper functions that they call."""
    helpers = [f"@njit\n{inspect.getsource(getattr(scalar_functions, name))}" for name in unit.helpers]
    functions = [function.text for function in unit.functions]
    return "\n\n".join(["import numpy as np\nfrom numba import njit, prange\n", *helpers, *functions]) + "\n"


def compile_unit(unit: Unit) -> CompiledUnit:
    """The unit's entry, compiled for the dtypes of its arrays."""
    source = unit_source(unit)
    name = f"<rlx numba {unit.entry.name} {hash(source):x}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return namespace[unit.entry.name]


_ = (np, memory_dtype)
