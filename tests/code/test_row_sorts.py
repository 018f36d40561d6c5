"""The code that sorts rows on one thread, in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from rlx.backends.loops.sorting import sort_code, sort_parameters
from rlx.code.running import run_code
from rlx.ir.kernels import Buffer, Sort
from rlx.ir.types import element_dtype


@pytest.mark.parametrize("length", [0, 1, 17, 70])
@pytest.mark.parametrize("keys", [0, 1, 2])
def test_rows_are_sorted_in_the_interpreter(keys: int, length: int) -> None:
    """keys: 0 for a single array, whose numbers are moved; else arrays of two dtypes, and a complex one."""
    rng = np.random.default_rng(length)
    numbers = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0], (2, length)).astype(np.float32)
    arrays = [rng.integers(0, 3, (2, length)), numbers, rng.normal(size=(2, length)) + 1j] if keys else [numbers]
    index = np.zeros((2, length), np.int32)
    results = [*arrays, index] if keys else arrays
    inputs, outputs = ([Buffer(a.dtype, a.size) for a in given] for given in (arrays, results))
    kernel = Sort(2, length, tuple(inputs), tuple(outputs), max(keys, 1), keys > 0)
    memory = [*arrays, *(np.zeros((2, length), b.dtype) for b in outputs)]
    named = zip(sort_parameters(kernel), memory, strict=False)
    found = {p.name: np.array(a).ravel().view(element_dtype(a.dtype)) for p, a in named}
    found["order"] = np.zeros(2 * length, np.int64 if keys else np.float32)
    run_code(sort_code(kernel), found)
    order = np.lexsort(arrays[: max(keys, 1)][::-1], axis=1) if length else index
    for number, array in enumerate(arrays):
        expected = np.take_along_axis(array, order, 1).ravel()
        assert found[f"out{number}"].tobytes() == expected.tobytes()
    if keys:
        np.testing.assert_array_equal(found["out3"], order.ravel())
