"""Index arithmetic in 32 bits: only where all values fit."""

from __future__ import annotations

import numpy as np
import pytest

from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Store
from rlx.ir.narrowing import narrowed

INT64, BOOL = np.dtype(np.int64), np.dtype(bool)


def comparison(factor: int, size: int) -> Loops:
    """A nest that stores whether factor * i - 1 is at least 0."""
    constant = [np.asarray(n, INT64).tobytes() for n in (factor, -1, 0)]
    instructions = (
        Instruction("index", (), INT64, 0),
        *(Instruction("constant", (), INT64, bits) for bits in constant),
        Instruction("mul", (0, 1), INT64),
        Instruction("add", (4, 2), INT64),
        Instruction("ge", (5, 3), BOOL),
    )
    return Loops((size,), 1, (Buffer(BOOL, size),), instructions, (Store(6, Access(0, (1,), 0)),), 1)


@pytest.mark.parametrize(("factor", "size", "fits"), [(3, 100, True), (-3, 100, True), (1 << 30, 2, True),
                                                      (1 << 30, 3, False), (1 << 40, 1, False)])  # fmt: skip
def test_values_that_fit_are_narrowed(factor: int, size: int, fits: bool) -> None:
    kernel = comparison(factor, size)
    found = narrowed(kernel)
    assert (found is not kernel) == fits
    assert {i.dtype.itemsize for i in found.instructions[:-1]} == {4 if fits else 8}


def test_stored_integers_keep_their_dtype() -> None:
    kernel = comparison(3, 10)
    stored = Loops((10,), 1, (Buffer(INT64, 10),), kernel.instructions, (Store(5, Access(0, (1,), 0)),), 1)
    assert narrowed(stored) is stored
