"""Small scans and while loops as one native function, against the reference."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest
from loop_plans import BOOL, FLOAT, INT, constant, load, plan_of, unary
from native_loops import native

from rlx.backends.cpu.emit.carried import carried_code, carried_row
from rlx.backends.numba.listing import plan_listing
from rlx.backends.reference.run import run_plan
from rlx.ir.kernels import Access, Buffer, Contract, Instruction, Loops, Operand, Scan, Store, While


def run(kernel, buffers, arrays, slices):
    """Run the loop on memory given for its outer buffers; the last return value."""
    code = carried_code(kernel)
    assert code is not None
    memory = {id(b): a for b, a in zip(buffers, arrays, strict=True)}
    slots, numbers = [], {}

    def slot_of(buffer):
        if id(buffer) not in numbers:
            array = memory.get(id(buffer), buffer.value)
            numbers[id(buffer)] = len(slots)
            slots.append(array.ctypes.data)
        return numbers[id(buffer)]

    row = np.array(carried_row(kernel, slot_of), np.int64)
    table = np.array(slots, np.int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)(native(code))
    result = 0
    for begin, end in zip(slices, slices[1:], strict=False):
        result = function(table.ctypes.data, row.ctypes.data, begin, end, 0)
        if result < end:
            break
    return result


def recurrence(size, dtype=FLOAT, reverse=False, length=23):
    """carry' = weight * carry + x, y = tanh(carry'): vectors of `size`."""
    weight, carry, x = (Buffer(dtype, size, "input") for _ in range(3))
    after, y = (Buffer(dtype, size, "output") for _ in range(2))
    middle = Buffer(dtype, size)
    wide = FLOAT if dtype.itemsize < 4 else dtype
    first = Loops(
        (size,), 1, (weight, carry, middle),
        (load(0, 1, dtype=wide), load(1, 1, dtype=wide), Instruction("mul", (0, 1), wide)),
        (Store(2, Access(2, (1,))),),
    )  # fmt: skip
    second = Loops(
        (size,), 1, (middle, x, after, y),
        (
            load(0, 1, dtype=wide), load(1, 1, dtype=wide), Instruction("add", (0, 1), wide),
            unary("tanh", 2, wide),
        ),
        (Store(2, Access(2, (1,))), Store(3, Access(3, (1,)))),
    )  # fmt: skip
    body = plan_of([first, second], [weight, carry, x], [after, y], [middle], 1 << 12)
    outer = [Buffer(dtype, size, "input") for _ in range(2)] + [
        Buffer(dtype, size * length, "input")
    ]
    final, ys = Buffer(dtype, size, "output"), Buffer(dtype, size * length, "output")
    kernel = Scan(length, reverse, body, (outer[0],), (outer[1],), (outer[2],), (final,), (ys,))
    return kernel, outer, [final, ys]


@pytest.mark.parametrize("dtype", ["f4", "f8", ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("slices", [(0, 23), (0, 1, 9, 23)])
def test_scan(dtype, reverse, slices):
    dtype = np.dtype(dtype)
    kernel, inputs, outputs = recurrence(5, dtype, reverse)
    random = np.random.default_rng(0)
    arrays = [random.uniform(-1, 1, b.size).astype(dtype) for b in inputs]
    expected = [np.zeros(b.size, dtype) for b in outputs]
    actual = [np.zeros(b.size, dtype) for b in outputs]
    run_plan(plan_of([kernel], inputs, outputs), arrays, expected)
    assert run(kernel, inputs + outputs, arrays + actual, slices) == 23
    for got, wanted in zip(actual, expected, strict=True):
        tolerance = 1e-2 if dtype.itemsize == 2 else 1e-5
        np.testing.assert_allclose(
            got.astype("f8"), wanted.astype("f8"), rtol=tolerance, atol=tolerance
        )


def test_scan_of_no_steps_copies_the_carries():
    kernel, inputs, outputs = recurrence(3, length=0)
    arrays = [np.arange(b.size, dtype="f4") for b in inputs]
    actual = [np.zeros(max(b.size, 1), "f4") for b in outputs]
    run(kernel, inputs + outputs, arrays + actual, (0, 0))
    np.testing.assert_array_equal(actual[0], arrays[1])


def test_lengths_share_code():
    assert carried_code(recurrence(3)[0]).key == carried_code(recurrence(3, length=9)[0]).key
    assert carried_code(recurrence(3)[0]).key != carried_code(recurrence(3, reverse=True)[0]).key


def test_large_bodies_are_refused():
    assert carried_code(recurrence(100)[0]) is None


def test_reduction_and_product_in_the_body():
    """carry' = matrix @ carry / max|matrix @ carry|, with the matrix a constant."""
    size, length = 3, 7
    random = np.random.default_rng(1)
    value = random.normal(size=size * size).astype("f4")
    matrix = Buffer(FLOAT, size * size, "constant", value)
    carry, product = Buffer(FLOAT, size, "input"), Buffer(FLOAT, size)
    after = Buffer(FLOAT, size, "output")
    contract = Contract(
        Operand(matrix, (1, size, size), (0, size, 1)),
        Operand(carry, (1, size, 1), (0, 1, 1)),
        Operand(product, (1, size, 1), (0, 1, 1)),
    )
    scale = Loops(
        (size,), 0, (product, after),
        (
            load(0, 1), unary("abs", 0), unary("reduce", 1, FLOAT, "max"),
            Instruction("div", (0, 2), FLOAT),
        ),
        (Store(3, Access(1, (1,))),),
    )  # fmt: skip
    body = plan_of([contract, scale], [carry], [after], [matrix, product], 64)
    initial, final = Buffer(FLOAT, size, "input"), Buffer(FLOAT, size, "output")
    kernel = Scan(length, False, body, (), (initial,), (), (final,), ())
    arrays, expected, actual = [np.ones(size, "f4")], [np.zeros(size, "f4")], np.zeros(size, "f4")
    run_plan(plan_of([kernel], [initial], [final]), arrays, expected)
    run(kernel, [initial, final], [*arrays, actual], (0, length))
    np.testing.assert_allclose(actual, expected[0], rtol=1e-5)


def countdown():
    """while n > 0: n -= 1; total += n."""

    def plan_of_condition():
        n, total = Buffer(INT, 1, "input"), Buffer(INT, 1, "input")
        flag = Buffer(BOOL, 1, "output")
        kernel = Loops(
            (), 0, (n, flag),
            (load(0, dtype=INT), constant(0, INT), Instruction("gt", (0, 1), BOOL)),
            (Store(2, Access(1, ())),),
        )  # fmt: skip
        return plan_of([kernel], [n, total], [flag])

    n, total = Buffer(INT, 1, "input"), Buffer(INT, 1, "input")
    fewer, more = Buffer(INT, 1, "output"), Buffer(INT, 1, "output")
    kernel = Loops(
        (), 0, (n, total, fewer, more),
        (
            load(0, dtype=INT), load(1, dtype=INT), constant(1, INT),
            Instruction("sub", (0, 2), INT), Instruction("add", (1, 3), INT),
        ),
        (Store(3, Access(2, ())), Store(4, Access(3, ()))),
    )  # fmt: skip
    body = plan_of([kernel], [n, total], [fewer, more])
    initial = tuple(Buffer(INT, 1, "input") for _ in range(2))
    final = tuple(Buffer(INT, 1, "output") for _ in range(2))
    return While(plan_of_condition(), body, (), (), initial, final)


@pytest.mark.parametrize("start", [0, 1, 10, 25])
def test_while(start):
    kernel = countdown()
    arrays = [np.array([start]), np.array([0]), np.array([9]), np.array([9])]
    steps = run(kernel, (*kernel.initial, *kernel.final), arrays, (0, 10, 20, 1000))
    assert steps == start
    assert arrays[2:] == [0, start * (start - 1) // 2]


def test_the_loop_can_be_read():
    backward, inputs, outputs = recurrence(3, length=9, reverse=True)
    text = plan_listing(plan_of([backward], inputs, outputs))
    assert "for step in range(8, -1, -1)" in text and "tanh(" in text
    kernel = countdown()
    assert "while True" in plan_listing(plan_of([kernel], kernel.initial, kernel.final))
