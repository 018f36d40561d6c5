"""Special functions as text: SciPy's values over their ranges, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from c_loops import run_c
from special_samples import DRAWS, LIMITS, LOOSE, close_to_scipy, drawn

from rlx.code.special import FUNCTIONS
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Store
from rlx.ir.scalar import SPECIAL

FLOAT64 = np.dtype(np.float64)


def kernel_of(name: str, count: int) -> Loops:
    """The function of elements."""
    arity = SPECIAL[name].arity
    buffers = tuple(Buffer(FLOAT64, count, "input") for _ in range(arity + 1))
    loads = [Instruction("load", (), FLOAT64, Access(n, (1,))) for n in range(arity)]
    call = Instruction("special", tuple(range(arity)), FLOAT64, name)
    return Loops((count,), 1, buffers, (*loads, call), (Store(arity, Access(arity, (1,))),), 1)


def computed(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    """What the text computes."""
    result = np.empty(arrays[0].size)
    run_c(kernel_of(name, result.size), [*arrays, result])
    return result


def test_every_text_is_a_function_with_samples() -> None:
    assert set(DRAWS) == set(FUNCTIONS) & set(SPECIAL)


@pytest.mark.parametrize("name", DRAWS)
def test_values(name: str) -> None:
    arrays = drawn(name, 3000)
    if name == "polygamma":  # of whole orders
        arrays[0] = np.floor(arrays[0])
    close_to_scipy(name, computed(name, arrays), arrays, LOOSE.get(name, 2e-13))


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    """At zero, infinity and NaN, and beyond where there is a function."""
    axes = np.meshgrid(*[np.array(LIMITS[name])] * SPECIAL[name].arity)
    arrays = [np.ascontiguousarray(axis.ravel()) for axis in axes]
    np.testing.assert_allclose(computed(name, arrays), SPECIAL[name].evaluate(*arrays), rtol=1e-10, atol=1e-300)
