"""The C backend: kernels as C99, compiled by the system's compiler."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rlx.backends.c.compile import compile_unit, compiler
from rlx.backends.c.dialect import CDialect
from rlx.backends.claims import Claims
from rlx.backends.loops.executable import CompiledUnit, TextBackend
from rlx.backends.loops.program import SourceUnit

__all__ = ["CBackend"]

# A routine is a host step of at least 15 us; listed are those whose loops are not slower, for one matrix and for many
_LOOPS_UP_TO = (
    ("cholesky", 8),
    ("householder_product", 8),
    ("lu", 32),
    ("lu_solve", 32),
    ("packed_qr", 8),
    ("qr", 8),
    ("svd", 4),
    ("triangular_solve", 32),
)
_NEVER_FASTER = frozenset({"pivots_to_permutation", "tridiagonal_solve"})


class CBackend(TextBackend):
    """Kernels are C functions, in one shared library per plan; they run on one thread.

    Raises DeviceError if no compiler is found.
    """

    name = "c"
    dialect = partial(CDialect, stops=True)

    def __init__(self) -> None:
        compiler()

    @property
    def claims(self) -> Claims:
        """Routines run on the host, where they are faster than loops; splats are drawn by loops."""
        routines = Claims().routines - _NEVER_FASTER
        return replace(super().claims, routines=routines, loops_up_to=_LOOPS_UP_TO)

    def compile_unit(self, unit: SourceUnit) -> CompiledUnit:
        """Compile to a shared library."""
        return compile_unit(unit)
