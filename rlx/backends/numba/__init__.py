"""The Numba backend: kernels as readable Python source, compiled by numba.njit."""

from __future__ import annotations

from rlx.backends.loops.executable import CompiledUnit, TextBackend
from rlx.backends.loops.program import SourceUnit
from rlx.backends.numba.compile import compile_unit
from rlx.backends.numba.dialect import PythonDialect

__all__ = ["NumbaBackend"]


class NumbaBackend(TextBackend):
    """Kernels are Python functions, which can be read and debugged."""

    name = "numba"
    dialect = PythonDialect

    def compile_unit(self, unit: SourceUnit) -> CompiledUnit:
        """Compile with numba.njit."""
        return compile_unit(unit)
