"""The Numba backend: kernels as readable Python source, compiled by numba.njit."""

from __future__ import annotations

from rlx.backends.base import Backend, Executable
from rlx.backends.loops.executable import TextExecutable
from rlx.backends.numba.compile import compile_unit
from rlx.backends.numba.dialect import PythonDialect
from rlx.ir.kernels import Plan
from rlx.ir.options import LoweringOptions

__all__ = ["NumbaBackend"]


class NumbaBackend(Backend):
    """Kernels are functions of Python source that a reader and a debugger can follow."""

    name = "numba"

    @property
    def lowering(self) -> LoweringOptions:
        """Kernels run one after the other, not band by band."""
        return LoweringOptions(least_bands=0)

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan's functions."""
        return TextExecutable(plan, PythonDialect, compile_unit)
