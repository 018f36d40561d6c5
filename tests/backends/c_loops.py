"""Run single Loops kernels as C, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.c.compile import compile_unit
from rlx.backends.c.dialect import CDialect
from rlx.backends.loops.executable import elements
from rlx.backends.loops.program import SourceUnit, function_of
from rlx.ir.kernels import Loops


def run_c(kernel: Loops, operands: Sequence[np.ndarray]) -> None:
    """Run on flat arrays, one for each operand."""
    dialect = CDialect()
    function = function_of(kernel, dialect)
    arrays = dict(zip(kernel.operands, operands, strict=True))
    unit = SourceUnit((function,), tuple(arrays), 0, tuple(dialect.helpers))
    compile_unit(unit)(*(elements(array) for array in arrays.values()))
