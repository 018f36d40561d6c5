"""Run single Loops kernels as the Python text of the numba device, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import pytest

from rlx.backends.loops.executable import elements
from rlx.backends.loops.program import SourceUnit, function_of
from rlx.backends.numba.compile import compile_unit
from rlx.backends.numba.dialect import PythonDialect
from rlx.ir.kernels import Loops


def run_python(kernel: Loops, operands: Sequence[np.ndarray], compiled: bool = False) -> None:
    """Run on flat arrays, one for each of its operands: by the interpreter, or as Numba compiles it."""
    dialect = PythonDialect()
    function = function_of(kernel, dialect)
    unit = SourceUnit((function,), kernel.operands, 0, tuple(dialect.helpers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", int(not compiled))
        run = compile_unit(unit)
    arrays = {id(buffer): elements(array) for buffer, array in zip(kernel.operands, operands, strict=True)}
    run(*arrays.values())
