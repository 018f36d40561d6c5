"""The C backend: kernels as C99, compiled by the system's compiler."""

from __future__ import annotations

from rlx.backends.base import Backend, Executable
from rlx.backends.c.compile import compile_unit, compiler
from rlx.backends.c.dialect import CDialect
from rlx.backends.c.lowering import C_LOWERING
from rlx.backends.loops.executable import TextExecutable
from rlx.ir.kernels import Plan
from rlx.ir.options import LoweringOptions

__all__ = ["CBackend"]


class CBackend(Backend):
    """Kernels are functions of C, in one shared library for each plan; they run on one thread.

    Raises DeviceError where no compiler is found.
    """

    name = "c"

    def __init__(self) -> None:
        compiler()

    @property
    def lowering(self) -> LoweringOptions:
        """Kernels run one after the other, on one thread."""
        return C_LOWERING

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan's functions."""
        return TextExecutable(plan, CDialect, compile_unit)
