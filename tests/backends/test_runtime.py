"""The native executor: every kernel kind against the reference, errors, Ctrl-C, callers at once."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
import scipy.special
from loop_plans import FLOAT, INT, elementwise, load, plan_of
from native_plans import (
    add_kernel,
    add_plan,
    agree,
    callback_plan,
    contract_plan,
    counting_plan,
    increment,
    native,
    operand,
    run_python,
    running_sum_body,
    scan_kernel,
    scan_plan,
)

from rlx.backends.cpu import CpuBackend
from rlx.backends.cpu.emit import plan_codes
from rlx.backends.cpu.routines.host_steps import sorted_rows
from rlx.errors import CallbackError, InputTypeError, UnsupportedError
from rlx.ir.kernels import (
    Access,
    Branch,
    Buffer,
    Callback,
    Instruction,
    Library,
    Loops,
    Operand,
    Scan,
    Sort,
    Store,
)
from rlx.ir.scalar import SPECIAL
from rlx.storage import from_numpy


@pytest.fixture(params=["carried", "stepwise"])
def loop_style(request, monkeypatch):
    """Small loops as one function, or every loop as steps of the executor."""
    if request.param == "stepwise":
        monkeypatch.setattr(plan_codes, "carried_code", lambda kernel: None)
    return request.param


@pytest.fixture
def stepwise(monkeypatch):
    """Every loop as steps of the executor."""
    monkeypatch.setattr(plan_codes, "carried_code", lambda kernel: None)


def whole(size, seed=0):
    """Whole numbers, whose sums and products are exact."""
    return np.round(normal(size, seed=seed) * 3)


def normal(size, dtype=FLOAT, seed=0):
    values = np.random.default_rng(seed).standard_normal(size)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * np.random.default_rng(seed + 1).standard_normal(size)
    return values.astype(dtype)


# ------------------------------------------------------------------ loops
@pytest.mark.parametrize("size", [0, 1, 3, 1000, 200_003])
@pytest.mark.parametrize("parallel", [0, 1])
def test_loops(size, parallel):
    agree(add_plan(size, parallel), normal(size), normal(size, seed=5))


@pytest.mark.parametrize("chunks", [2, 7])
@pytest.mark.parametrize("rows", [3, 5000])
def test_chunks_accumulate_apart(chunks, rows):
    columns = 33
    x, parts = Buffer(FLOAT, rows * columns, "input"), Buffer(FLOAT, chunks * columns, "output")
    kernel = Loops(
        (rows, columns), 2, (x, parts), (load(0, columns, 1),),
        (Store(0, Access(1, (0, 1), chunk_stride=columns), None, "add", True),), 0, chunks,
    )  # fmt: skip
    data = np.round(normal(rows * columns) * 8)
    agree(plan_of([kernel], [x], [parts]), data)


def test_several_kernels_share_an_arena():
    x, y = Buffer(FLOAT, 100, "input"), Buffer(FLOAT, 100, "output")
    first, second = Buffer(FLOAT, 100), Buffer(FLOAT, 100)
    five = Buffer(FLOAT, 100, "constant", np.full(100, 5, FLOAT))
    kernels = [
        elementwise("neg", x, first),
        add_kernel(first, five, second),
        add_kernel(first, second, y),
    ]
    plan = plan_of(kernels, [x], [y], [first, second, five], 800, {first: 0, second: 400})
    data = normal(100)
    np.testing.assert_allclose(agree(plan, data)[0], 5 - 2 * data, rtol=1e-5, atol=1e-6)


def test_a_large_arena_is_borrowed_for_the_call():
    size = 3_000_000
    x, y = Buffer(FLOAT, size, "input"), Buffer(FLOAT, size, "output")
    middle = Buffer(FLOAT, size)
    kernels = [elementwise("neg", x, middle), add_kernel(x, middle, y)]
    executable = CpuBackend().compile(plan_of(kernels, [x], [y], [middle], 4 * size))
    for seed in range(3):
        (result,) = executable.run([from_numpy(normal(size, seed=seed))])
        assert not result.view((size,), FLOAT).any()


def test_constants_are_copied_unless_they_can_never_change():
    value = np.ones(4, FLOAT)
    x, y = Buffer(FLOAT, 4, "input"), Buffer(FLOAT, 4, "output")
    one = Buffer(FLOAT, 4, "constant", value)
    executable = CpuBackend().compile(plan_of([add_kernel(x, one, y)], [x], [y], [one]))
    value[:] = 7
    (result,) = executable.run([from_numpy(np.zeros(4, FLOAT))])
    assert result.view((4,), FLOAT).tolist() == [1, 1, 1, 1]


def test_the_number_of_inputs_is_checked():
    executable = CpuBackend().compile(add_plan(3))
    with pytest.raises(InputTypeError):
        executable.run([from_numpy(normal(3))])
    with pytest.raises(AttributeError):
        executable.run([1, 2])
    agree(add_plan(3), normal(3), normal(3))


# ------------------------------------------------------------------ matrix products
DTYPES = ["f4", "f8", "c8", "c16"]


def matrix(name, dtype, batch, rows, columns, transposed=False, gap=0):
    """A (batch, rows, columns) operand over a fresh buffer with `gap` unused elements a line."""
    lines, width = (columns, rows) if transposed else (rows, columns)
    width += gap
    buffer = Buffer(np.dtype(dtype), max(batch * lines * width, 1), name)
    strides = (lines * width, 1, width) if transposed else (lines * width, width, 1)
    return Operand(buffer, (batch, rows, columns), strides)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 5, 7, 3), (3, 17, 2, 9), (1, 1, 9, 4), (2, 9, 1, 4), (1, 1, 1, 1), (4, 3, 3, 1)])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_contract(dtype, sizes, transposed):
    batch, rows, columns, depth = sizes
    for accumulate in (False, True):
        left = matrix("input", dtype, batch, rows, depth, transposed[0], 2)
        right = matrix("input", dtype, batch, depth, columns, transposed[1], 1)
        out = matrix("output", dtype, batch, rows, columns)
        arrays = [normal(left.buffer.size, dtype), normal(right.buffer.size, dtype, 3)]
        if accumulate:
            arrays.append(normal(out.buffer.size, dtype, 6))
        agree(contract_plan(left, right, out, accumulate), *arrays, rtol=1e-4)


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)])
@pytest.mark.parametrize("accumulate", [False, True])
def test_contract_of_nothing(sizes, accumulate):
    batch, rows, columns, depth = sizes
    left = matrix("input", FLOAT, batch, rows, depth)
    right = matrix("input", FLOAT, batch, depth, columns)
    out = matrix("output", FLOAT, batch, rows, columns)
    plan = contract_plan(left, right, out, accumulate)
    arrays = [normal(b.size) for b in plan.inputs]
    (result,) = native(plan, *arrays)
    count = batch * rows * columns
    expected = arrays[2][:count] if accumulate else np.zeros(count, FLOAT)
    np.testing.assert_array_equal(result[:count], expected)


def test_contract_with_one_matrix_for_the_whole_batch():
    x, y, out = Buffer(FLOAT, 60, "input"), Buffer(FLOAT, 20, "input"), Buffer(FLOAT, 48, "output")
    right = Operand(y, (3, 5, 4), (0, 4, 1))
    agree(contract_plan(operand(x, 3, 4, 5), right, operand(out, 3, 4, 4)), normal(60), normal(20),
          rtol=1e-5)  # fmt: skip


BLOCKED = [(1, 300, 257, 190), (1, 3, 1000, 500), (2, 700, 5, 300), (9, 70, 80, 90)]


@pytest.mark.parametrize("sizes", [*BLOCKED, (1, 1, 3000, 700), (1, 3000, 1, 700)])
def test_contract_in_blocks(sizes):
    batch, rows, columns, depth = sizes
    left, right = matrix("input", "f8", batch, rows, depth), matrix("input", "f8", batch, depth, columns)
    plan = contract_plan(left, right, matrix("output", "f8", batch, rows, columns))
    agree(plan, normal(left.buffer.size, "f8"), normal(right.buffer.size, "f8"), rtol=1e-10)


def test_contract_overwrites_nan():
    """What a fresh result held before does not matter."""
    plan = contract_plan(*(matrix(r, FLOAT, 1, 4, 4) for r in ("input", "input", "output")))
    executable = CpuBackend().compile(plan)
    for value in (np.nan, 1.0):
        arrays = [np.full(16, value, FLOAT)] * 2
        (result,) = executable.run([from_numpy(a) for a in arrays])
        view = result.view((16,), FLOAT)
        assert (view == 4).all() if value == 1 else np.isnan(view).all()
        del result, view


# ------------------------------------------------------------------ host steps
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1", "i8", "?"])
@pytest.mark.parametrize("shape", [(3, 50), (0, 4), (4, 0), (1, 1)])
@pytest.mark.parametrize("index", [False, True])
def test_sort(dtype, shape, index):
    size = shape[0] * shape[1]
    data = (normal(size) * 3).astype(dtype)
    if np.dtype(dtype).kind == "f" and size > 10:
        data[::7], data[1::5], data[2::5], data[3::11] = np.nan, 0.0, -0.0, np.inf
    x, y = Buffer(data.dtype, size, "input"), Buffer(data.dtype, size, "output")
    outputs = [y] + [Buffer(INT, size, "output")] * index
    agree(plan_of([Sort(*shape, (x,), tuple(outputs), 1, index)], [x], outputs), data)


def test_sort_by_two_keys_carries_the_third():
    buffers = [Buffer(FLOAT, 40, "input") for _ in range(3)]
    outputs = [Buffer(FLOAT, 40, "output") for _ in range(3)]
    kernel = Sort(2, 20, tuple(buffers), tuple(outputs), keys=2)
    keys = [np.round(normal(40, seed=n)) for n in range(2)]
    agree(plan_of([kernel], buffers, outputs), *keys, np.arange(40, dtype=FLOAT))


def test_zeros_keep_their_order():
    row = np.array([[0.0, -0.0, 0.0, -1.0, -0.0, 1.0]], FLOAT)
    (result,) = sorted_rows([row], 1, False)
    assert np.signbit(result).tolist() == [[True, False, True, False, True, False]]


def test_library():
    x, y = Buffer(FLOAT, 18, "input"), Buffer(FLOAT, 18, "output")
    kernel = Library("cholesky", (operand(x, 2, 3, 3),), (operand(y, 2, 3, 3),))
    root = np.tril(normal(18).reshape(2, 3, 3))
    agree(plan_of([kernel], [x], [y]), root @ root.swapaxes(1, 2) + np.eye(3, dtype=FLOAT), rtol=1e-6)


def test_unknown_library_routine():
    x = Buffer(FLOAT, 1, "input")
    with pytest.raises(UnsupportedError, match="no library routine 'knead'"):
        CpuBackend().compile(plan_of([Library("knead", (operand(x, 1),), ())], [x], []))


def test_callback_gets_fresh_arrays_and_is_checked():
    seen = []

    def double(array):
        seen.append(array.flags.owndata)
        array += array
        return (array,)

    data = normal(4)
    np.testing.assert_array_equal(native(callback_plan(double), data)[0], 2 * data)
    assert seen == [True]
    with pytest.raises(CallbackError, match="was expected"):
        native(callback_plan(lambda array: (array[:2],)), data)


def test_an_exception_of_a_callback_comes_through():
    fail = [True]

    def picky(array):
        if fail[0]:
            raise KeyError("no such thing")
        return (array,)

    executable = CpuBackend().compile(callback_plan(picky))
    data = [from_numpy(normal(4))]
    for _ in range(3):
        with pytest.raises(KeyError, match="no such thing") as caught:
            executable.run(data)
        assert any(frame.name == "picky" for frame in caught.traceback)
    fail[0] = False
    executable.run(data)


def test_a_callback_may_run_the_same_executable():
    depth = []

    def recurse(array):
        if len(depth) < 3:
            depth.append(1)
            (result,) = executable.run([from_numpy(array + 1)])
            return (result.view((4,), FLOAT).copy(),)
        return (array,)

    executable = CpuBackend().compile(callback_plan(recurse))
    (result,) = executable.run([from_numpy(np.zeros(4, FLOAT))])
    assert result.view((4,), FLOAT).tolist() == [3, 3, 3, 3]


# ------------------------------------------------------------------ loops over plans
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, 6, 500])
def test_scan(length, reverse, size, loop_style):
    arrays = [whole(size), whole(size, seed=1), whole(size * length, seed=2)]
    agree(scan_plan(length, size, reverse), *arrays)


def test_a_scan_inside_a_scan(loop_style):
    """The inner scan's constants, carries and streams are the outer one's, at every turn."""
    size, length = 3, 4
    scale, carry, xs = (Buffer(FLOAT, n, "input") for n in (size, size, size * length))
    following, ys = Buffer(FLOAT, size, "output"), Buffer(FLOAT, size * length, "output")
    inner = scan_kernel(length, size, True, (scale, carry, xs, following, ys))
    body = plan_of([inner], [scale, carry, xs], [following, ys])
    outer_length = 3
    a, b, c = (Buffer(FLOAT, n, "input") for n in (size, size, size * length * outer_length))
    final, all_ys = Buffer(FLOAT, size, "output"), Buffer(FLOAT, c.size, "output")
    kernel = Scan(outer_length, False, body, (a,), (b,), (c,), (final,), (all_ys,))
    agree(plan_of([kernel], [a, b, c], [final, all_ys]), whole(size), whole(size, seed=1),
          whole(c.size, seed=2))  # fmt: skip


def test_one_body_in_two_scans(loop_style):
    body = running_sum_body(2)
    scale, initial, xs = (Buffer(FLOAT, n, "input") for n in (2, 2, 6))
    middle = Buffer(FLOAT, 2)
    outputs = [Buffer(FLOAT, n, "output") for n in (2, 6, 6)]
    kernels = [
        Scan(3, False, body, (scale,), (initial,), (xs,), (middle,), (outputs[1],)),
        Scan(3, True, body, (scale,), (middle,), (outputs[1],), (outputs[0],), (outputs[2],)),
    ]
    plan = plan_of(kernels, [scale, initial, xs], outputs, [middle], 64)
    agree(plan, whole(2), whole(2, seed=1), whole(6, seed=2))


@pytest.mark.parametrize("start", [0, 1, 2, 7, 8, 9])
def test_while(start, loop_style):
    assert agree(counting_plan(8), np.array([start]))[0][0] == max(start, 8)


@pytest.mark.parametrize("number", [-3, 0, 1, 2, 99])
def test_branch_in_a_branch(number):
    always_one = Buffer(np.dtype("i4"), 1, "constant", np.array([1], "i4"))

    def plan(kernel_of, others=()):
        x, y = Buffer(FLOAT, 3, "input"), Buffer(FLOAT, 3, "output")
        return plan_of([kernel_of(x, y)], [x], [y], others)

    def inner(x, y):
        leaves = (plan(lambda x, y: elementwise("neg", x, y)), plan(lambda x, y: elementwise("ceil", x, y)))
        return Branch(always_one, leaves, (x,), (y,))

    index, x, y = Buffer(np.dtype("i4"), 1, "input"), Buffer(FLOAT, 3, "input"), Buffer(FLOAT, 3, "output")
    first, last = (plan(lambda x, y, op=op: elementwise(op, x, y)) for op in ("neg", "abs"))
    branches = (first, plan(inner, [always_one]), last)
    kernel = Branch(index, branches, (x,), (y,))
    agree(plan_of([kernel], [index, x], [y]), np.array([number], "i4"), normal(3))


def test_a_failing_callback_stops_a_scan():
    calls = []

    def third_time_unlucky(array):
        calls.append(float(array[0]))
        if len(calls) == 3:
            raise ValueError("enough")
        return (array + 1,)

    x, y = Buffer(FLOAT, 1, "input"), Buffer(FLOAT, 1, "output")
    body = plan_of([Callback(third_time_unlucky, (operand(x, 1),), (operand(y, 1),))], [x], [y])
    start, final = Buffer(FLOAT, 1, "input"), Buffer(FLOAT, 1, "output")
    executable = CpuBackend().compile(
        plan_of([Scan(10, False, body, (), (start,), (), (final,), ())], [start], [final])
    )
    with pytest.raises(ValueError, match="enough"):
        executable.run([from_numpy(np.zeros(1, FLOAT))])
    assert calls == [0, 1, 2]
    (result,) = executable.run([from_numpy(np.zeros(1, FLOAT))])
    assert result.view((1,), FLOAT)[0] == 10


# ------------------------------------------------------------------ callers, signals, exit
def test_several_threads_call_at_once(stepwise):
    size = 100_000
    executable = CpuBackend().compile(add_plan(size, 1))
    small = CpuBackend().compile(counting_plan(2000))
    failures = []

    def call(seed):
        x, y = normal(size, seed=seed), normal(size, seed=seed + 1)
        for _ in range(30):
            (result,) = executable.run([from_numpy(x), from_numpy(y)])
            (count,) = small.run([from_numpy(np.array([seed]))])
            if not np.array_equal(result.view((size,), FLOAT), x + y):
                failures.append(seed)
            if count.view((1,), INT)[0] != 2000:
                failures.append(-seed)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_other_threads_run_meanwhile(stepwise):
    executable = CpuBackend().compile(counting_plan(30_000_000))
    thread = threading.Thread(target=executable.run, args=([from_numpy(np.array([0]))],))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    assert turns > 5


@pytest.mark.parametrize("kind", ["while", "scan"])
def test_interrupt(kind, loop_style):
    if kind == "while":
        plan = counting_plan(1 << 62)
    else:
        x, y = Buffer(INT, 1, "input"), Buffer(INT, 1, "output")
        body = plan_of([increment(x, y)], [x], [y])
        start, final = Buffer(INT, 1, "input"), Buffer(INT, 1, "output")
        plan = plan_of([Scan(1 << 50, False, body, (), (start,), (), (final,), ())], [start], [final])
    executable = CpuBackend().compile(plan)
    for _ in range(2):
        timer = threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            executable.run([from_numpy(np.array([0]))])
        assert time.monotonic() - began < 60  # the loop itself would take weeks
        timer.join()
    agree(add_plan(3), normal(3), normal(3))


def test_a_daemon_thread_in_a_loop_does_not_hold_up_the_exit():
    text = """
import threading, time, numpy as np
from native_plans import counting_plan
from rlx.backends.cpu import CpuBackend
from rlx.ir.scalar import SPECIAL
from rlx.storage import from_numpy
executable = CpuBackend().compile(counting_plan(1 << 62))
arguments = [from_numpy(np.array([0]))]
threading.Thread(target=executable.run, args=(arguments,), daemon=True).start()
time.sleep(0.1)
print("done")
"""
    done = run_python(text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_texts():
    executable = CpuBackend().compile(counting_plan(5))
    texts = executable.texts()
    assert "define" in texts["llvm"]
    assert "ret" in texts["assembly"]
    assert texts["loops"]


# ------------------------------------------------------------------ special functions
def special_plan(name, arity, size, dtype, parallel=0):
    inputs = [Buffer(dtype, size, "input") for _ in range(arity)]
    out = Buffer(dtype, size, "output")
    loads = [load(n, 1, dtype=dtype) for n in range(arity)]
    call = Instruction("special", tuple(range(arity)), dtype, name)
    kernel = Loops((size,), 1, (*inputs, out), (*loads, call), (Store(arity, Access(arity, (1,))),), parallel)
    return plan_of([kernel], inputs, [out])


@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_functions(name):
    function = SPECIAL[name]
    first = np.array([1.5, 2.0, 3.0, 0.5, 4.0])
    if name == "polygamma":
        first = np.array([0.0, 1.0, 2.0, 3.0, 1.0])
    if name in ("ndtri", "expint_n"):
        first = np.array([0.0, 0.5, 0.9, 0.25, 1.0]) if name == "ndtri" else np.arange(5.0)
    second, third = np.array([0.5, 0.25, 0.75, 3.0, np.nan]), np.array([0.5, 0.1, 0.9, 0.0, 1.0])
    arguments = [first, second, third, 0.5 * third][: function.arity]
    (result,) = native(special_plan(name, function.arity, 5, np.dtype("f8")), *arguments)
    np.testing.assert_allclose(result, function.evaluate(*arguments), rtol=1e-13)


def test_special_functions_on_several_threads():
    size = 20_000
    data = np.abs(normal(size)) + 0.5
    (result,) = native(special_plan("lgamma", 1, size, FLOAT, 1), data)
    np.testing.assert_allclose(result, scipy.special.gammaln(data.astype("f8")), rtol=1e-5, atol=1e-6)
