"""Inlining keeps the meaning: values do not move past statements that change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.code.inlining import inlined
from rlx.code.running import run_code
from rlx.code.tree import Apply, Array, Barrier, Coordinate, Declare, Number, Register, statements_in
from rlx.code.writing import CodeWriter

INT32, FLOAT32 = np.dtype(np.int32), np.dtype(np.float32)
X, Y = Array("x", FLOAT32), Array("y", FLOAT32)
ITEM = Coordinate(INT32, "item")


def plus(value: Any, number: float) -> Apply:
    """The sum of a value and a constant."""
    return Apply(FLOAT32, "add", (value, Number(FLOAT32, number)))


def read_then_written(code: CodeWriter) -> None:
    value = code.declare("v", X[ITEM])
    code.write(X[ITEM], Number(FLOAT32, 7.0))
    code.write(Y[ITEM], value)


def read_then_assigned(code: CodeWriter) -> None:
    total = code.declare("r", X[ITEM], changes=True)
    value = code.declare("v", plus(total, 1.0))
    code.assign(total, Number(FLOAT32, 9.0))
    code.write(Y[ITEM], plus(value, 2.0))
    code.write(X[ITEM], total)


def read_before_a_barrier(code: CodeWriter) -> None:
    value = code.declare("v", X[3 - ITEM])
    code.add(Barrier())
    code.write(X[ITEM], plus(value, 1.0))


def read_in_a_loop(code: CodeWriter) -> None:
    value, index = code.declare("v", X[ITEM]), Register(INT32, "i")
    with code.loop(index, 0, 3):
        code.write(X[ITEM], plus(value, 1.0))


def read_in_a_branch_that_writes(code: CodeWriter) -> None:
    first, second = code.declare("v", X[ITEM]), code.declare("w", X[ITEM])
    with code.when(ITEM < 2):
        code.write(X[ITEM], plus(first, 1.0))
    code.write(Y[ITEM], second)


def chained(code: CodeWriter) -> None:
    value = code.declare("v0", X[ITEM])
    for number in range(1, 40):
        value = code.declare(f"v{number}", plus(value, 1.0))
    code.declare("unread", X[ITEM])
    code.write(Y[ITEM], value)


@pytest.mark.parametrize(
    "make",
    [
        read_then_written, read_then_assigned, read_before_a_barrier, read_in_a_loop, read_in_a_branch_that_writes,
        chained,
    ],
)  # fmt: skip
@pytest.mark.selected("all")
def test_inlined_code_computes_the_same(make: Any) -> None:
    code = CodeWriter()
    make(code)
    results = []
    for block in (code.block, inlined(code.block)):
        memory = {"x": np.arange(4, dtype=np.float32), "y": np.zeros(4, np.float32)}
        run_code(block, memory, items=4)
        results.append(memory)
    for name in ("x", "y"):
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_small_values_that_are_read_once_are_inlined() -> None:
    code = CodeWriter()
    chained(code)
    declared = [s for s in statements_in(inlined(code.block)) if isinstance(s, Declare)]
    assert 0 < len(declared) < 10
    assert not any(s.register.name == "unread" for s in declared)
