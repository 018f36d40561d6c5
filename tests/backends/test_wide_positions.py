"""Positions have 64 bits exactly where 32 are not enough: sizes around 2**31, of texts that nobody runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.mapping import steps_of
from rlx.backends.gpu.steps import is_wide
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Store

F32 = np.dtype(np.float32)
LIMIT = 1 << 31


def doubled(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Loops:
    """out[i] = a[offset + strides . i] + itself."""
    reach = offset + sum(s * (n - 1) for s, n in zip(strides, sizes, strict=True)) + 1
    dense = tuple(int(np.prod(sizes[d + 1 :], dtype=np.int64)) for d in range(len(sizes)))
    source, target = Buffer(F32, reach, "input"), Buffer(F32, int(np.prod(sizes, dtype=np.int64)), "output")
    instructions = (Instruction("load", (), F32, Access(0, strides, offset)), Instruction("add", (0, 0), F32))
    rank = len(sizes)
    return Loops(sizes, rank, (source, target), instructions, (Store(1, Access(1, dense)),), rank)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1 << 17), st.integers(1, 1 << 17), st.integers(0, 1 << 16), st.integers(1, 7))
def test_no_position_overflows(rows: int, columns: int, offset: int, step: int) -> None:
    """Of narrow texts every product and sum on the way to an element fits in 31 bits."""
    kernel = doubled((rows, columns), (step * columns, 1), offset)
    largest = max(offset + step * columns * (rows - 1) + columns - 1, rows * columns)
    if largest >= LIMIT:
        assert is_wide(kernel, Limits())
    if largest < LIMIT - (1 << 20):
        assert not is_wide(kernel, Limits())


@pytest.mark.parametrize("elements", [LIMIT - (1 << 20), LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT])
def test_texts_around_the_limit(elements: int) -> None:
    (step,) = steps_of(doubled((elements,), (1,), 0), Limits(), CudaDialect()) or []
    wide = elements >= LIMIT - (1 << 15)
    text = step.text("kernel")
    assert ("const int64_t first" in text, "const int32_t first" in text) == (wide, not wide)
    assert step.groups < LIMIT and step.groups * step.items * 4 >= elements


def test_numbers_of_iterations_are_wide_values() -> None:
    """What a program computes with an index has 64 bits whatever the positions have."""
    int64 = np.dtype(np.int64)
    target = Buffer(int64, 100, "output")
    kernel = Loops((100,), 1, (target,), (Instruction("index", (), int64, 0),), (Store(0, Access(0, (1,))),), 1)
    (step,) = steps_of(kernel, Limits(), CudaDialect()) or []
    assert "a[i] = (int64_t)i;" in step.text("kernel")
