"""The reference backend: every kernel kind by hand, Loops against nested Python loops."""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loop_plans import BOOL, FLOAT, INT, constant, elementwise, load, once_where, plan_of, run_slowly, unary

from rlx.backends.reference import ReferenceBackend
from rlx.backends.reference.loops import run_loops
from rlx.backends.routines import LIBRARY_ROUTINES
from rlx.code.scalars import apply
from rlx.errors import CallbackError, VerificationError
from rlx.ir.kernels import (
    Access,
    Branch,
    Buffer,
    Callback,
    Contract,
    Instruction,
    Library,
    Loops,
    Operand,
    Scan,
    Sort,
    Store,
    While,
)
from rlx.ir.scalar import ALPHABET, SPECIAL
from rlx.ir.verify_loops import verify_loops
from rlx.ir.verify_plan import LIBRARY_NAMES
from rlx.storage import from_numpy

BFLOAT = np.dtype(ml_dtypes.bfloat16)


def run(plan, *arrays):
    """Results of a plan as flat arrays."""
    executable = ReferenceBackend().compile(plan)
    storages = executable.run([from_numpy(np.ascontiguousarray(a)) for a in arrays])
    return [s.view((b.size,), b.dtype) for s, b in zip(storages, plan.outputs, strict=True)]


def operand(buffer, *shape):
    """A contiguous operand."""
    strides = tuple(int(math.prod(shape[d + 1 :])) for d in range(len(shape)))
    return Operand(buffer, shape, strides)


# ------------------------------------------------------------------ scalars
def evaluate(op, *arguments, dtype=None, attribute=None):
    arrays = [np.asarray(a) for a in arguments]
    result = np.dtype(dtype) if dtype is not None else arrays[-1].dtype
    with np.errstate(all="ignore"):
        return apply(Instruction(op, tuple(range(len(arrays))), result, attribute), arrays)


def same(actual, expected):
    expected = np.asarray(expected)
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == expected.dtype
    if expected.dtype.kind == "f":
        signs = np.where(np.isnan(expected), False, np.signbit(expected))
        np.testing.assert_array_equal(np.signbit(actual) & ~np.isnan(expected), signs)


def i8(*values):
    return np.array(values, np.int8)


def u8(*values):
    return np.array(values, np.uint8)


def f4(*values):
    return np.array(values, np.float32)


NAN, INF = np.nan, np.inf

TABLE = [
    ("div", (i8(7, -7, 7, -7, 5, -128), i8(2, 2, -2, -2, 0, -1)), i8(3, -3, -3, 3, -1, -128)),
    ("rem", (i8(7, -7, 7, -7, 5, -128), i8(2, 2, -2, -2, 0, -1)), i8(1, -1, 1, -1, 0, 0)),
    ("div", (u8(7, 200, 5), u8(2, 7, 0)), u8(3, 28, 255)),
    ("rem", (u8(7, 200, 5), u8(2, 7, 0)), u8(1, 4, 0)),
    ("rem", (f4(5.5, -5.5, 1), f4(2, 2, 0)), f4(1.5, -1.5, NAN)),
    ("add", (i8(127), i8(1)), i8(-128)),
    ("neg", (i8(-128, 1),), i8(-128, -1)),
    ("neg", (u8(1),), u8(255)),
    ("abs", (i8(-128, -3),), i8(-128, 3)),
    ("sign", (f4(NAN, -0.0, 0.0, -3, INF),), f4(NAN, -0.0, 0.0, -1, 1)),
    ("sign", (u8(0, 9),), u8(0, 1)),
    ("min", (f4(NAN, 1, 2), f4(1, NAN, 3)), f4(NAN, NAN, 2)),
    ("max", (np.array([True, False]), np.array([False, False])), np.array([True, False])),
    ("rsqrt", (f4(4, 0.0, -0.0, -1),), f4(0.5, INF, -INF, NAN)),
    ("round_even", (f4(0.5, 1.5, -0.5, 2.5),), f4(0, 2, -0.0, 2)),
    ("logistic", (f4(-200, 200, 0, NAN),), f4(0, 1, 0.5, NAN)),
    ("copysign", (f4(1, 1), f4(-0.0, 0.0)), f4(-1, 1)),
    ("shift_left", (i8(1, 1, 1, 1), i8(3, 7, 8, -1)), i8(8, -128, 0, 0)),
    ("shift_right_logical", (i8(-128, -1, -1), i8(7, 8, 1)), i8(1, 0, 127)),
    ("shift_right_arithmetic", (i8(-128, -1, 64, 64), i8(7, 100, 3, -2)), i8(-1, -1, 8, 0)),
    ("shift_right_arithmetic", (u8(128, 128), u8(1, 9)), u8(192, 255)),
    ("population_count", (i8(-1, 0, -128),), i8(8, 0, 1)),
    ("count_leading_zeros", (i8(-1, 0, 1, 64),), i8(0, 8, 7, 1)),
    ("not", (np.array([True, False]),), np.array([False, True])),
    ("not", (i8(0),), i8(-1)),
]


@pytest.mark.parametrize(("op", "arguments", "expected"), TABLE)
def test_scalar_table(op, arguments, expected):
    same(evaluate(op, *arguments), expected)


CASTS = [
    (f4(NAN, INF, -INF, 3.9, -3.9, 300, -129), i8(0, 127, -128, 3, -3, 127, -128)),
    (f4(-1, 255.9, 256), u8(0, 255, 255)),
    (np.array([2.0**63, -(2.0**63), 1e300, -0.5]), np.array([2**63 - 1, -(2**63), 2**63 - 1, 0])),
    (f4(2.0**31, 2.0**31 - 128), np.array([2**31 - 1, 2**31 - 128], np.int32)),
    (np.array([2.0**64, 2.0**63, -1.0]), np.array([2**64 - 1, 2**63, 0], np.uint64)),
    (np.array([300, -1, 128]), i8(44, -1, -128)),
    (f4(NAN, 0, -0.0, 0.1), np.array([True, False, False, True])),
    (np.array([True, False]), f4(1, 0)),
    (np.array([1e300, 0.1]), f4(INF, 0.1)),
]


@pytest.mark.parametrize(("value", "expected"), CASTS)
def test_cast(value, expected):
    same(evaluate("cast", value, dtype=expected.dtype), expected)


def test_narrow_casts_round_to_nearest_even():
    value = f4(1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, NAN)
    rounded = evaluate("cast", value, dtype=BFLOAT).astype(np.float32)
    same(rounded, f4(1, 1 + 2**-6, INF, NAN))


def test_bitcast():
    same(evaluate("bitcast", f4(1), dtype=np.int32), np.array([0x3F800000], np.int32))


def test_fma_rounds_once():
    x = np.float32(1 + 2**-12)
    same(evaluate("fma", f4(x), f4(x), f4(-1 - 2**-11)), f4(2.0**-24))
    same(evaluate("fma", f4(2**12 + 1), f4(2**12 + 1), f4(2.0**-30)), f4(16785410.0))
    y = 1 + 2.0**-30
    same(evaluate("fma", np.array([y]), np.array([y]), np.array([-1 - 2.0**-29])), [2.0**-60])
    same(
        evaluate("fma", np.array([1e308, INF]), np.array([10.0, 0]), np.array([0.0, 1])), [INF, NAN]
    )


def test_every_operation_runs_and_keeps_its_dtype():
    for op, rule in ALPHABET.items():
        if op in ("cast", "bitcast", "special"):
            continue
        for kind in rule.kinds:
            dtype = {"b": BOOL, "i": np.dtype("i4"), "u": np.dtype("u2"), "f": FLOAT}[kind]
            arguments = [np.ones((2, 1), dtype)] * rule.arity
            if op == "select":
                arguments[0] = np.ones((2, 1), bool)
            result = evaluate(op, *arguments)
            assert result.dtype == (BOOL if rule.result == "bool" else dtype), op
    for name, function in SPECIAL.items():
        arguments = [np.full((3,), 0.5, np.float32)] * (function.arity - 1) + [f4(0.25, 0.5, 0.75)]
        if name in ("zeta", "polygamma", "expint_n"):
            arguments[0] = f4(2, 2, 2)
        result = evaluate("special", *arguments, attribute=name)
        assert result.dtype == FLOAT and np.isfinite(result).all(), name
    np.testing.assert_allclose(evaluate("erf", f4(0.5)), [math.erf(0.5)], rtol=1e-7)


# ------------------------------------------------------------------ Loops, at random
class LoopsDraw:
    """Draws a legal Loops kernel whose arithmetic is exact (small whole numbers)."""

    def __init__(self, draw):
        self.draw = draw
        self.sizes = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
        self.outer = draw(st.integers(0, len(self.sizes)))
        self.chunks = draw(st.sampled_from([1, 1, 2, 4])) if self.sizes else 1
        self.operands: list[Buffer] = []
        self.instructions: list[Instruction] = [constant(2.0), constant(3, INT)]
        self.stores: list[Store] = []

    def kernel(self):
        for _ in range(self.draw(st.integers(1, 8))):
            choice = self.draw(st.sampled_from(
                ["load", "load", "index", "binary", "compare", "select", "gather", "reduce",
                 "cumulate", "cast"]
            ))  # fmt: skip
            getattr(self, choice)()
        for _ in range(self.draw(st.integers(1, 3))):
            self.store()
        kernel = Loops(
            self.sizes, self.outer, tuple(self.operands), tuple(self.instructions),
            tuple(self.stores), chunks=self.chunks,
        )  # fmt: skip
        return once_where(kernel, lambda: self.draw(st.booleans()))

    def any_of(self, dtype):
        found = [n for n, i in enumerate(self.instructions) if i.dtype == dtype]
        return self.draw(st.sampled_from(found)) if found else None

    def emit(self, op, args, dtype, attribute=None):
        self.instructions.append(Instruction(op, tuple(args), dtype, attribute))

    def buffer(self, strides, dtype, slack, chunk_stride=0):
        """A new operand and an access that fits it."""
        ends = [s * max(0, n - 1) for s, n in zip(strides, self.sizes, strict=True)]
        low, high = sum(min(0, e) for e in ends), sum(max(0, e) for e in ends)
        high += chunk_stride * (self.chunks - 1)
        self.operands.append(Buffer(dtype, high - low + 1 + slack))
        return Access(len(self.operands) - 1, tuple(strides), -low, chunk_stride)

    def strides(self):
        return [self.draw(st.integers(-4, 4)) for _ in self.sizes]

    def load(self):
        dtype = self.draw(st.sampled_from([FLOAT, INT, BOOL, BFLOAT]))
        access = self.buffer(self.strides(), dtype, 0)
        self.emit("load", (), FLOAT if dtype == BFLOAT else dtype, access)

    def gather(self):
        self.emit("constant", (), INT, np.int64(7).tobytes())
        self.emit("and", (self.any_of(INT), len(self.instructions) - 1), INT)
        access = self.buffer(self.strides(), FLOAT, 7)
        self.emit("load", (len(self.instructions) - 1,), FLOAT, access)

    def index(self):
        if self.sizes:
            self.emit("index", (), INT, self.draw(st.integers(0, len(self.sizes) - 1)))

    def binary(self):
        dtype = self.draw(st.sampled_from([FLOAT, INT]))
        op = self.draw(st.sampled_from(["add", "sub", "min", "max"]))
        self.emit(op, (self.any_of(dtype), self.any_of(dtype)), dtype)

    def compare(self):
        dtype = self.draw(st.sampled_from([FLOAT, INT]))
        self.emit("lt", (self.any_of(dtype), self.any_of(dtype)), BOOL)

    def select(self):
        predicate = self.any_of(BOOL)
        if predicate is not None:
            self.emit("select", (predicate, self.any_of(FLOAT), self.any_of(FLOAT)), FLOAT)

    def cast(self):
        self.emit("cast", (self.any_of(FLOAT),), INT)

    def reduce(self, op="reduce"):
        dtype = self.draw(st.sampled_from([FLOAT, INT]))
        reducers = ["add", "max", "min"] if dtype == FLOAT else ["add", "max", "and", "xor", "or"]
        self.emit(op, (self.any_of(dtype),), dtype, self.draw(st.sampled_from(reducers)))

    def cumulate(self):
        if len(self.sizes) - self.outer == 1:
            self.reduce("cumulate")

    def store(self):
        kind = self.draw(st.sampled_from(["dense", "accumulate", "scatter", "row"]))
        dtype = self.draw(st.sampled_from([FLOAT, INT]))
        value, guard = self.any_of(dtype), None
        memory = BFLOAT if dtype == FLOAT and self.draw(st.booleans()) else dtype
        if self.draw(st.booleans()):
            guard = self.any_of(BOOL)
        steps = itertools.accumulate([1, *(max(1, n) for n in reversed(self.sizes))], operator.mul)
        strides = list(steps)[: len(self.sizes)][::-1]
        address, accumulate, initialize, chunk_stride, slack = None, None, False, 0, 0
        if kind == "row":
            strides[self.outer :] = [0] * (len(self.sizes) - self.outer)
        if kind in ("accumulate", "scatter"):
            strides = [s * self.draw(st.integers(0, 1)) for s in strides]
            accumulate = self.draw(st.sampled_from(["add", "max"]))
        if kind == "accumulate":
            initialize = self.draw(st.booleans())
        if kind == "scatter":
            accumulate = self.draw(st.sampled_from(["add", "max", None]))
            self.emit("constant", (), INT, np.int64(3).tobytes())
            self.emit("and", (self.any_of(INT), len(self.instructions) - 1), INT)
            address, slack = len(self.instructions) - 1, 3
        if self.chunks > 1:
            chunk_stride = 200
        access = self.buffer(strides, memory, slack, chunk_stride)
        order = "sequential" if accumulate is None and kind in ("row", "scatter") else "any"
        self.stores.append(Store(value, access, address, accumulate, initialize, guard, order=order))


@st.composite
def loops_kernels(draw):
    return LoopsDraw(draw).kernel()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(loops_kernels(), st.integers(0, 2**32 - 1))
def test_loops_agree_with_nested_python_loops(kernel, seed):
    verify_loops(kernel)
    random = np.random.default_rng(seed)
    memory = [random.integers(-3, 4, b.size).astype(b.dtype) for b in kernel.operands]
    expected = [a.copy() for a in memory]
    with np.errstate(all="ignore"):
        run_loops(kernel, memory)
        run_slowly(kernel, expected)
    for actual, wanted in zip(memory, expected, strict=True):
        np.testing.assert_array_equal(actual.astype(np.float64), wanted.astype(np.float64))


def test_blocks_of_a_large_space_are_one_kernel(monkeypatch):
    monkeypatch.setattr("rlx.backends.reference.loops._BLOCK_ELEMENTS", 6)
    source, sums = Buffer(FLOAT, 35), Buffer(FLOAT, 5)
    kernel = Loops(
        (7, 5), 1, (source, sums), (load(0, 5, 1),),
        (Store(0, Access(1, (0, 1)), accumulate="add", initialize=True),),
    )  # fmt: skip
    data, result = np.arange(35, dtype=FLOAT), np.full(5, 9, FLOAT)
    run_loops(kernel, [data, result])
    same(result, data.reshape(7, 5).sum(0))


# ------------------------------------------------------------------ Loops, by hand
def test_softmax_row_kernel():
    x, y = Buffer(FLOAT, 12, "input"), Buffer(FLOAT, 12, "output")
    kernel = Loops(
        (3, 4), 1, (x, y),
        (
            load(0, 4, 1), unary("reduce", 0, attribute="max"), Instruction("sub", (0, 1), FLOAT),
            unary("exp", 2), unary("reduce", 3, attribute="add"), Instruction("div", (3, 4), FLOAT),
        ),
        (Store(5, Access(1, (4, 1))),),
        parallel=1,
    )  # fmt: skip
    data = np.random.default_rng(0).normal(size=(3, 4)).astype(FLOAT)
    (result,) = run(plan_of([kernel], [x], [y]), data)
    wide = np.exp(data.astype(float))
    np.testing.assert_allclose(result.reshape(3, 4), wide / wide.sum(1, keepdims=True), rtol=1e-6)


def test_sum_of_nothing_is_the_identity():
    x, y = Buffer(FLOAT, 0, "input"), Buffer(FLOAT, 3, "output")
    kernel = Loops(
        (0, 3), 1, (x, y), (load(0, 3, 1),),
        (Store(0, Access(1, (0, 1)), accumulate="max", initialize=True),),
    )  # fmt: skip
    (result,) = run(plan_of([kernel], [x], [y]), np.zeros((0, 3), FLOAT))
    same(result, f4(-INF, -INF, -INF))


def test_complex_buffers_are_real_pairs():
    x, y = Buffer(np.dtype("c8"), 3, "input"), Buffer(np.dtype("c8"), 3, "output")
    kernel = Loops(
        (3,), 1, (x, y), (load(0, 2), load(0, 2, offset=1), unary("neg", 1)),
        (Store(0, Access(1, (-2,), 4)), Store(2, Access(1, (-2,), 5))),
    )  # fmt: skip
    data = np.array([1 + 2j, 3 - 4j, 5], np.complex64)
    (result,) = run(plan_of([kernel], [x], [y]), data)
    same(result.real, data.conj()[::-1].real)
    same(result.imag, data.conj()[::-1].imag)


def test_narrow_accumulation_rounds_at_each_step():
    x, y = Buffer(BFLOAT, 3, "input"), Buffer(BFLOAT, 1, "output")
    kernel = Loops(
        (3,), 1, (x, y), (load(0, 1),),
        (Store(0, Access(1, (0,)), accumulate="add", initialize=True),),
    )  # fmt: skip
    (result,) = run(plan_of([kernel], [x], [y]), np.array([256, 1, 1], BFLOAT))
    assert float(result[0]) == 256.0


def test_addresses_out_of_bounds_are_refused():
    x, y = Buffer(FLOAT, 3), Buffer(FLOAT, 3)
    address = constant(3, INT)
    kernel = Loops(
        (1,), 1, (x, y), (address, Instruction("load", (0,), FLOAT, Access(0, (0,)))),
        (Store(1, Access(1, (1,))),),
    )  # fmt: skip
    with pytest.raises(IndexError, match="gather reaches"):
        run_loops(kernel, [np.zeros(3, FLOAT), np.zeros(3, FLOAT)])


def test_cumulate_of_a_value_of_the_row():
    y = Buffer(FLOAT, 6, "output")
    kernel = Loops(
        (2, 3), 1, (y,), (constant(2.0), unary("cumulate", 0, attribute="add")),
        (Store(1, Access(0, (3, 1))),),
    )  # fmt: skip
    same(run(plan_of([kernel], [], [y]))[0], f4(2, 4, 6, 2, 4, 6))


def test_an_iteration_loads_before_it_stores():
    a, b = Buffer(FLOAT, 3), Buffer(FLOAT, 3)
    swap = Loops(
        (3,), 1, (a, b), (load(0, 1), load(1, 1)),
        (Store(0, Access(1, (1,))), Store(1, Access(0, (1,)))),
    )  # fmt: skip
    verify_loops(swap)
    first, second = f4(1, 2, 3), f4(4, 5, 6)
    run_loops(swap, [first, second])
    same(first, f4(4, 5, 6))
    same(second, f4(1, 2, 3))


# ------------------------------------------------------------------ other kinds
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_contract(dtype, accumulate):
    random = np.random.default_rng(1)
    dtype = np.dtype(dtype)
    lhs, rhs = Buffer(dtype, 12, "input"), Buffer(dtype, 40, "input")
    out = Buffer(dtype, 30, "output")
    view = Operand(out, (2, 3, 5), (15, 5, 1))
    product = Contract(Operand(lhs, (2, 3, 4), (0, 1, 3)), operand(rhs, 2, 4, 5), view)
    again = Contract(product.lhs, product.rhs, view, accumulate=accumulate)
    a, b = random.normal(size=(4, 3)).astype(dtype), random.normal(size=(2, 4, 5)).astype(dtype)
    (result,) = run(plan_of([product, again], [lhs, rhs], [out]), a, b)
    expected = np.matmul(a.T, b) * (2 if accumulate else 1)
    np.testing.assert_allclose(result.reshape(2, 3, 5), expected, rtol=1e-5)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("operands", "out"), [("float16", "f4"), ("bfloat16", "bfloat16"), ("float8_e4m3fn", "f4")])
def test_contract_sums_in_a_wider_dtype(operands, out, accumulate):
    random = np.random.default_rng(1)
    dtype, result_dtype = np.dtype(operands), np.dtype(out)
    lhs, rhs, buffer = Buffer(dtype, 12, "input"), Buffer(dtype, 20, "input"), Buffer(result_dtype, 15, "output")
    first = Contract(operand(lhs, 1, 3, 4), operand(rhs, 1, 4, 5), operand(buffer, 1, 3, 5), accumulator=FLOAT)
    again = replace(first, accumulate=accumulate)
    a, b = (random.normal(size=s).astype(dtype) for s in ((3, 4), (4, 5)))
    (result,) = run(plan_of([first, again], [lhs, rhs], [buffer]), a.reshape(-1), b.reshape(-1))
    once = (a.astype(FLOAT) @ b.astype(FLOAT)).astype(result_dtype).astype(FLOAT)
    expected = (once + a.astype(FLOAT) @ b.astype(FLOAT) if accumulate else once).astype(result_dtype)
    same(result.astype(FLOAT), expected.reshape(-1).astype(FLOAT))


def test_contract_of_bytes_wraps_only_where_it_is_stored():
    lhs, rhs = Buffer(np.dtype("i1"), 4, "input"), Buffer(np.dtype("i1"), 4, "input")
    outs = [Buffer(np.dtype(d), 4, "output") for d in ("i4", "i1")]
    kernels = [Contract(operand(lhs, 1, 2, 2), operand(rhs, 1, 2, 2), operand(o, 1, 2, 2), accumulator=np.dtype("i4"))
               for o in outs]  # fmt: skip
    a = np.array([100, 50, -100, 3], np.int8)
    wide, narrow = run(plan_of(kernels, [lhs, rhs], outs), a, a)
    expected = (a.reshape(2, 2).astype(np.int32) @ a.reshape(2, 2)).reshape(-1)
    same(wide, expected)
    same(narrow, expected.astype(np.int8))


def test_tf32_keeps_ten_bits_behind_the_point():
    lhs, rhs, out = Buffer(FLOAT, 4, "input"), Buffer(FLOAT, 4, "input"), Buffer(FLOAT, 4, "output")
    kernel = Contract(operand(lhs, 1, 2, 2), operand(rhs, 1, 2, 2), operand(out, 1, 2, 2), tf32=True)
    a = f4(1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, np.inf)
    (result,) = run(plan_of([kernel], [lhs, rhs], [out]), a, f4(1, 0, 0, 1))
    np.testing.assert_array_equal(result, f4(1 + 2**-10, 1, np.nan, np.inf))
    (result,) = run(plan_of([kernel], [lhs, rhs], [out]), f4(1 + 3 * 2**-11, 0, 0, 1 + 2**-11 + 2**-20), f4(1, 0, 0, 1))
    np.testing.assert_array_equal(result, f4(1 + 2**-9, 0, 0, 1 + 2**-10))


def test_contract_over_nothing_is_zero():
    lhs, rhs, out = Buffer(FLOAT, 0, "input"), Buffer(FLOAT, 0, "input"), Buffer(FLOAT, 6, "output")
    kernel = Contract(operand(lhs, 1, 2, 0), operand(rhs, 1, 0, 3), operand(out, 1, 2, 3))
    (result,) = run(plan_of([kernel], [lhs, rhs], [out]), np.zeros(0, FLOAT), np.zeros(0, FLOAT))
    same(result, np.zeros(6, FLOAT))


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT])
def test_sort_is_stable_with_nan_last(dtype):
    keys, values = Buffer(dtype, 6, "input"), Buffer(INT, 6, "input")
    outs = [
        Buffer(dtype, 6, "output"),
        Buffer(INT, 6, "output"),
        Buffer(np.dtype("i4"), 6, "output"),
    ]
    kernel = Sort(1, 6, (keys, values), tuple(outs), keys=1, index=True)
    plan = plan_of([kernel], [keys, values], outs)
    data = np.array([0.0, NAN, -0.0, 2, -INF, 2], dtype)
    first, second, order = run(plan, data, np.arange(6))
    same(order, np.array([4, 0, 2, 3, 5, 1], np.int32))
    same(first.astype(FLOAT), data[order].astype(FLOAT))
    same(second, order.astype(INT))


def test_sort_by_two_keys():
    major, minor = Buffer(INT, 8, "input"), Buffer(FLOAT, 8, "input")
    outs = [Buffer(INT, 8, "output"), Buffer(FLOAT, 8, "output")]
    plan = plan_of([Sort(2, 4, (major, minor), tuple(outs), keys=2)], [major, minor], outs)
    first, second = run(plan, np.array([1, 0, 1, 0] * 2), f4(3, 2, 1, NAN, 1, 1, 0, 0))
    same(first, np.array([0, 0, 1, 1] * 2))
    same(second, f4(2, NAN, 1, 3, 0, 1, 0, 1))


def doubling_plan():
    x, y = Buffer(FLOAT, 3, "input"), Buffer(FLOAT, 3, "output")
    kernel = Loops(
        (3,),
        1,
        (x, y),
        (load(0, 1), Instruction("add", (0, 0), FLOAT)),
        (Store(1, Access(1, (1,))),),
    )
    return plan_of([kernel], [x], [y])


def negating_plan():
    x, y = Buffer(FLOAT, 3, "input"), Buffer(FLOAT, 3, "output")
    return plan_of([elementwise("neg", x, y)], [x], [y])


@pytest.mark.parametrize(("number", "factor"), [(0, 2), (1, -1), (-5, 2), (9, -1)])
def test_branch_clamps_its_index(number, factor):
    index, x = Buffer(np.dtype("i4"), 1, "input"), Buffer(FLOAT, 3, "input")
    y = Buffer(FLOAT, 3, "output")
    kernel = Branch(index, (doubling_plan(), negating_plan()), (x,), (y,))
    (result,) = run(plan_of([kernel], [index, x], [y]), np.array([number], "i4"), f4(1, 2, 3))
    same(result, factor * f4(1, 2, 3))


def cumulative_sum_body():
    """(scale, carry, x) -> (carry + scale * x, carry)."""
    scale, carry, x = (Buffer(FLOAT, 1, "input") for _ in range(3))
    following, y = Buffer(FLOAT, 1, "output"), Buffer(FLOAT, 1, "output")
    kernel = Loops(
        (), 0, (scale, carry, x, following, y),
        (
            load(0), load(1), load(2), Instruction("mul", (0, 2), FLOAT),
            Instruction("add", (1, 3), FLOAT),
        ),
        (Store(4, Access(3, ())), Store(1, Access(4, ()))),
    )  # fmt: skip
    return plan_of([kernel], [scale, carry, x], [following, y])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 4])
def test_scan(length, reverse):
    scale, carry = Buffer(FLOAT, 1, "input"), Buffer(FLOAT, 1, "input")
    xs = Buffer(FLOAT, length, "input")
    final, ys = Buffer(FLOAT, 1, "output"), Buffer(FLOAT, length, "output")
    body = cumulative_sum_body()
    kernel = Scan(length, reverse, body, (scale,), (carry,), (xs,), (final,), (ys,))
    data = np.arange(1, length + 1, dtype=FLOAT)
    plan = plan_of([kernel], [scale, carry, xs], [final, ys])
    last, seen = run(plan, f4(10), f4(5), data)
    ordered = data[::-1] if reverse else data
    sums = 5 + 10 * np.concatenate([np.zeros(1, FLOAT), np.cumsum(ordered, dtype=FLOAT)])
    same(last, sums[-1:].astype(FLOAT))
    same(seen, (sums[:-1][::-1] if reverse else sums[:-1]).astype(FLOAT))


def test_while():
    limit, value = Buffer(FLOAT, 1, "input"), Buffer(FLOAT, 1, "input")
    holds = Buffer(BOOL, 1, "output")
    less = Loops(
        (), 0, (limit, value, holds), (load(0), load(1), Instruction("lt", (1, 0), BOOL)),
        (Store(2, Access(2, ())),),
    )  # fmt: skip
    condition = plan_of([less], [limit, value], [holds])
    x, y = Buffer(FLOAT, 1, "input"), Buffer(FLOAT, 1, "output")
    double = Loops(
        (), 0, (x, y), (load(0), Instruction("add", (0, 0), FLOAT)), (Store(1, Access(1, ())),)
    )
    body = plan_of([double], [x], [y])
    bound, start = Buffer(FLOAT, 1, "input"), Buffer(FLOAT, 1, "input")
    final = Buffer(FLOAT, 1, "output")
    plan = plan_of(
        [While(condition, body, (bound,), (), (start,), (final,))], [bound, start], [final]
    )
    same(run(plan, f4(100), f4(3))[0], f4(192))
    same(run(plan, f4(1), f4(3))[0], f4(3))


def test_callback_gets_fresh_arrays_and_is_checked():
    x, y = Buffer(FLOAT, 6, "input"), Buffer(FLOAT, 6, "output")
    seen = []

    def flip(array):
        seen.append((array.flags.c_contiguous, array.flags.writeable, array.shape))
        return (array + 1,)

    view = Operand(x, (3, 2), (1, 3))
    plan = plan_of([Callback(flip, (view,), (operand(y, 3, 2),))], [x], [y])
    data = np.arange(6, dtype=FLOAT)
    same(run(plan, data)[0], data.reshape(2, 3).T.ravel() + 1)
    assert seen == [(True, True, (3, 2))]
    wrong = plan_of([Callback(lambda a: (a[0],), (view,), (operand(y, 3, 2),))], [x], [y])
    with pytest.raises(CallbackError, match="was expected"):
        run(wrong, data)
    silent = plan_of([Callback(lambda a: None, (view,), ()), plan.kernels[0]], [x], [y])
    run(silent, data)


def test_garbage_in_the_arena_and_shared_bytes():
    x, y = Buffer(FLOAT, 3, "input"), Buffer(FLOAT, 3, "output")
    first, second = Buffer(FLOAT, 3), Buffer(FLOAT, 3)
    kernels = [elementwise("neg", x, first), elementwise("exp", first, second),
               elementwise("log", second, y)]  # fmt: skip
    (result,) = run(plan_of(kernels, [x], [y], [first, second], 12), f4(1, 2, 3))
    np.testing.assert_allclose(result, [-1, -2, -3], rtol=1e-6)
    with pytest.raises(VerificationError, match="no place in the arena"):
        ReferenceBackend().compile(plan_of(kernels, [x], [y], [first, second], 12, {second: 0}))


def test_constants_and_texts():
    c = Buffer(FLOAT, 2, "constant", np.array([[1], [4]], FLOAT))
    y = Buffer(FLOAT, 2, "output")
    plan = plan_of([elementwise("sqrt", c, y)], [], [y], [c])
    same(run(plan)[0], f4(1, 2))
    assert set(ReferenceBackend().compile(plan).texts()) == {"plan", "kernels", "loops"}


# ------------------------------------------------------------------ library routines
def routine(name, *arrays, **attributes):
    return LIBRARY_ROUTINES[name](arrays, attributes)


def random_matrices(dtype, *shape):
    random = np.random.default_rng(2)
    real = random.normal(size=shape)
    imaginary = 1j * random.normal(size=shape) if dtype[0] == "c" else 0
    return (real + imaginary).astype(dtype)


def test_names_of_the_library():
    assert set(LIBRARY_NAMES) == set(LIBRARY_ROUTINES)


def test_library_kernel():
    a, w, v = Buffer(FLOAT, 8, "input"), Buffer(FLOAT, 4, "output"), Buffer(FLOAT, 8, "output")
    kernel = Library("eigh", (operand(a, 2, 2, 2),), (operand(w, 2, 2), operand(v, 2, 2, 2)))
    matrices = np.array([[[2, 0], [0, 1]], [[3, 0], [0, 5]]], FLOAT)
    values, _ = run(plan_of([kernel], [a], [w, v]), matrices)
    same(values, f4(1, 2, 3, 5))


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_factorisations(dtype):
    a = random_matrices(dtype, 2, 4, 3)
    close = {"rtol": 1e-4, "atol": 1e-4}
    q, r = routine("qr", a)
    np.testing.assert_allclose(q @ r, a, **close)
    u, s, vh = routine("svd", a)
    np.testing.assert_allclose((u * s[:, None]) @ vh, a, **close)
    assert len(routine("svd", a, compute_uv=False)) == 1
    packed, pivots, permutation = routine("lu", a)
    lower, upper = np.tril(packed, -1) + np.eye(4, 3), np.triu(packed)[:, :3]
    permuted = np.take_along_axis(a, permutation[..., None], axis=1)
    np.testing.assert_allclose(lower @ upper, permuted, **close)
    assert pivots.shape == (2, 3) and pivots.dtype == permutation.dtype == np.int32
    square = a.conj().mT @ a
    (factor,) = routine("cholesky", square)
    np.testing.assert_allclose(factor @ factor.conj().mT, square, **close)
    w, v = routine("eigh", square)
    np.testing.assert_allclose(square @ v, v * w[:, None, :], rtol=1e-3, atol=1e-3)
    values, left, right = routine("eig", square, compute_left=True)
    assert values.dtype == right.dtype == left.dtype == np.result_type(dtype, np.complex64)
    np.testing.assert_allclose(square @ right, right * values[:, None, :], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["f4", "c16"])
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=5)))
def test_triangular_solve(dtype, flags):
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    attributes = dict(zip(names, flags, strict=True))
    a = random_matrices(dtype, 2, 3, 3) + 3 * np.eye(3, dtype=dtype)
    b = random_matrices(dtype, 2, *((3, 2) if flags[0] else (2, 3)))
    (x,) = routine("triangular_solve", a, b, **attributes)
    assert x.dtype == b.dtype
    matrix = np.tril(a) if attributes["lower"] else np.triu(a)
    if attributes["unit_diagonal"]:
        matrix = matrix - matrix * np.eye(3) + np.eye(3)
    matrix = matrix.mT if attributes["transpose_a"] else matrix
    matrix = matrix.conj() if attributes["conjugate_a"] else matrix
    product = matrix @ x if attributes["left_side"] else x @ matrix
    np.testing.assert_allclose(product, b, rtol=1e-4, atol=1e-4)


def test_a_failing_matrix_gives_nan_alone():
    a = np.stack([np.eye(2), -np.eye(2)])
    (factor,) = routine("cholesky", a)
    same(factor[0], np.eye(2))
    assert np.isnan(factor[1][np.tril_indices(2)]).all()
    (s,) = routine("svd", np.stack([np.eye(2), np.full((2, 2), NAN)]), compute_uv=False)
    same(s[0], np.ones(2))
    assert np.isnan(s[1]).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_fft(dtype):
    x = random_matrices(dtype, 2, 4, 6)
    (spectrum,) = routine("fft", x, kind="rfft", lengths=(4, 6))
    assert spectrum.dtype == np.result_type(dtype, np.complex64)
    np.testing.assert_allclose(spectrum, np.fft.rfftn(x, axes=(1, 2)), rtol=1e-4, atol=1e-4)
    (back,) = routine("fft", spectrum, kind="irfft", lengths=(4, 6))
    np.testing.assert_allclose(back, x, rtol=1e-4, atol=1e-5)
    assert back.dtype == np.dtype(dtype)
    (none,) = routine("fft", x[:0], kind="rfft", lengths=(6,))
    assert none.shape == (0, 4, 4) and none.dtype == spectrum.dtype


def test_routines_take_empty_matrices():
    for name in ("cholesky", "lu", "qr", "eigh", "svd", "eig"):
        for shape in ((0, 3, 3), (2, 0, 0)):
            assert routine(name, np.zeros(shape))[0].shape[0] == shape[0], name
    assert routine("triangular_solve", np.zeros((2, 0, 0)), np.zeros((2, 0, 3)))[0].size == 0
