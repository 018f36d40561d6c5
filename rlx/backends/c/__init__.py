"""The C backend: kernels as C99, compiled by the system's compiler."""

from __future__ import annotations

from rlx.backends.c.compile import compile_unit, compiler
from rlx.backends.c.dialect import CDialect
from rlx.backends.loops.executable import CompiledUnit, TextBackend
from rlx.backends.loops.program import Unit

__all__ = ["CBackend"]


class CBackend(TextBackend):
    """Kernels are functions of C, in one shared library for each plan; they run on one thread.

    Raises DeviceError where no compiler is found.
    """

    name = "c"
    dialect = CDialect

    def __init__(self) -> None:
        compiler()

    def compile_unit(self, unit: Unit) -> CompiledUnit:
        """As a shared library."""
        return compile_unit(unit)
