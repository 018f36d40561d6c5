"""Native loop nests against the reference: structure, dtypes, strides, chunks, ranges."""

from __future__ import annotations

import ctypes
import itertools
import math

import llvmlite.binding
import ml_dtypes
import numpy as np
import pytest
from loop_plans import BOOL, FLOAT, INT, constant, load, once_where, unary
from native_loops import run_native
from python_loops import run_python

from rlx.backends.cpu.emit.ir_text import QUICK
from rlx.backends.cpu.emit.kernel_code import loops_code, loops_extent
from rlx.backends.cpu.emit.tiling import tiled
from rlx.backends.cpu.runtime.compile import assembly, compile_ir, load_object
from rlx.backends.numba.listing import kernel_listing
from rlx.backends.reference.loops import run_loops
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Store
from rlx.ir.scalar import REDUCERS
from rlx.ir.verify_loops import verify_loops

NARROW = [
    np.dtype(getattr(ml_dtypes, name))
    for name in (
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2",
        "float8_e5m2fnuz",
    )
] + [np.dtype("f2")]  # fmt: skip
INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]
DTYPES = [np.dtype(name) for name in ("f4", "f8", "?", "i1", "u2", "i4", "u8", "i8")]


def check(kernel, operands, cuts=None, tolerance=2e-6):
    """Native and reference runs leave the same memory behind; so does the kernel as Python, if it is small."""
    verify_loops(kernel)
    expected = [array.copy() for array in operands]
    actual = [array.copy() for array in operands]
    with np.errstate(all="ignore"):
        run_loops(kernel, expected)
    run_native(kernel, actual, cuts)
    agree(actual, expected, tolerance)
    if math.prod(kernel.sizes) * len(kernel.instructions) <= 1 << 14:
        actual = [array.copy() for array in operands]
        run_python(kernel, actual)
        agree(actual, expected, tolerance)


def agree(actual, expected, tolerance):
    """Two memories hold the same numbers."""
    for got, wanted in zip(actual, expected, strict=True):
        if wanted.dtype.kind in "fc":
            eps = tolerance if wanted.dtype.itemsize == 4 else tolerance * 1e-6
            np.testing.assert_allclose(got, wanted, rtol=eps, atol=eps)
        else:
            np.testing.assert_array_equal(got, wanted)


# ------------------------------------------------------------------ random kernels
class Random:
    """A random kernel of one dtype: loads, operations, reductions and stores of every shape."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        rank = int(self.random.integers(1, 5))
        limit = (40, 20, 9, 4)[rank - 1]
        self.sizes = tuple(
            int(n) for n in self.random.integers(0 if seed % 5 == 0 else 1, limit, rank)
        )
        self.outer = int(self.random.integers(0, rank + 1))
        self.dtype = DTYPES[seed % len(DTYPES)]
        self.chunks = int(self.random.integers(2, 4)) if seed % 4 == 1 else 1
        self.parallel = int(self.random.integers(0, self.outer + 1)) if self.chunks == 1 else 0
        self.operands, self.arrays = [], []
        self.instructions, self.stores = [], []

    def chance(self, probability):
        return self.random.random() < probability

    def buffer(self, size):
        size = max(size, 1)
        numbers = self.random.choice([0, 1, 1, 2, 3, -1, -2, 0.5], size)
        if self.dtype.kind == "f" and self.chance(0.2):
            numbers[self.random.integers(size)] = np.nan
        if self.dtype.kind in "bu":
            numbers = np.abs(numbers)
        self.operands.append(Buffer(self.dtype, size))
        self.arrays.append(numbers.astype(self.dtype))
        return len(self.operands) - 1

    def access(self, keep, writes):
        """Dense strides over the dimensions kept, in random order, with gaps and signs."""
        strides, reach = [0] * len(self.sizes), 1
        kept = [d for d in range(len(self.sizes)) if keep[d]]
        order = kept if self.chance(0.6) else list(self.random.permutation(kept))
        for d in reversed(order):
            gap = int(self.random.integers(1, 4)) if self.chance(0.3) else 1
            strides[d] = reach * gap
            reach = strides[d] * max(self.sizes[d], 1)
        chunk_stride = reach if writes and self.chunks > 1 and not keep[0] else 0
        size = reach * (self.chunks if chunk_stride else 1)
        offset = int(self.random.integers(0, 3))
        start = offset
        for d in kept:
            if self.chance(0.25):
                offset += strides[d] * max(self.sizes[d] - 1, 0)
                strides[d] = -strides[d]
        operand = self.buffer(size + start)
        return Access(operand, tuple(strides), offset, chunk_stride)

    def add(self, op, args=(), dtype=None, attribute=None):
        self.instructions.append(Instruction(op, args, dtype or self.dtype, attribute))
        return len(self.instructions) - 1

    def values(self):
        return [n for n, i in enumerate(self.instructions) if i.dtype == self.dtype]

    def pick(self):
        return int(self.random.choice(self.values()))

    def grow(self):
        for _ in range(int(self.random.integers(1, 4))):
            keep = [self.chance(0.75) for _ in self.sizes]
            self.add("load", (), None, self.access(keep, False))
        names = {"b": ["and", "or", "xor"], "f": ["add", "mul", "max", "min", "sub"]}
        reducers = {"b": ["and", "or", "max"], "f": ["add", "max", "min"]}
        for _ in range(int(self.random.integers(2, 8))):
            chosen = self.random.random()
            reducer = str(self.random.choice(reducers.get(self.dtype.kind, list(REDUCERS))))
            if chosen < 0.25:
                self.add("reduce", (self.pick(),), None, reducer)
            elif chosen < 0.35 and len(self.sizes) - self.outer == 1:
                self.add("cumulate", (self.pick(),), None, reducer)
            elif chosen < 0.45 and self.dtype.kind == "f":
                self.add("tanh", (self.pick(),))
            elif chosen < 0.55:
                test = (
                    self.add("lt", (self.pick(), self.pick()), BOOL)
                    if self.dtype != BOOL
                    else self.pick()
                )
                self.add("select", (test, self.pick(), self.pick()))
            else:
                default = ["add", "sub", "mul", "max", "min", "xor"]
                op = str(self.random.choice(names.get(self.dtype.kind, default)))
                self.add(op, (self.pick(), self.pick()))

    def store_all(self):
        for value in {len(self.instructions) - 1, self.pick(), self.pick()}:
            if self.instructions[value].dtype != self.dtype:
                continue
            rank = len(self.sizes)
            if self.chance(0.4):
                keep = [d < self.parallel or self.chance(0.5) for d in range(rank)]
                reducer = (
                    "or" if self.dtype == BOOL else str(self.random.choice(["add", "max", "min"]))
                )
                access = self.access(keep, True)
                self.stores.append(Store(value, access, None, reducer, self.chance(0.7)))
            else:
                self.stores.append(Store(value, self.access([True] * rank, True)))

    def kernel(self):
        self.grow()
        self.store_all()
        kernel = Loops(
            self.sizes, self.outer, tuple(self.operands), tuple(self.instructions),
            tuple(self.stores), self.parallel, self.chunks,
        )  # fmt: skip
        return once_where(kernel, lambda: self.chance(0.5))


@pytest.mark.parametrize("seed", range(72))
def test_random_kernels(seed):
    maker = Random(seed)
    kernel = maker.kernel()
    extent = loops_extent(kernel)
    cuts = maker.random.integers(0, extent + 1, 3).tolist() if kernel.parallel else None
    check(kernel, maker.arrays, cuts, tolerance=1e-4)
    assert "for" in kernel_listing(kernel) or not kernel.sizes


# ------------------------------------------------------------------ structure
def vector(values, dtype=FLOAT):
    array = np.asarray(values, dtype)
    return Buffer(array.dtype, array.size), array


def test_softmax_in_place():
    """The last sweep overwrites what all sweeps load."""
    rows, width = 5, 37
    x, memory = vector(np.random.default_rng(0).normal(size=rows * width))
    instructions = (
        load(0, width, 1),
        unary("reduce", 0, FLOAT, "max"),
        Instruction("sub", (0, 1), FLOAT),
        unary("exp", 2),
        unary("reduce", 3, FLOAT, "add"),
        Instruction("div", (3, 4), FLOAT),
    )
    out, result = vector(np.zeros(rows * width))
    stores = (Store(5, Access(0, (width, 1))), Store(3, Access(1, (width, 1))))
    kernel = Loops((rows, width), 1, (x, out), instructions, stores, parallel=1)
    check(kernel, [memory, result], cuts=[2])


def test_expensive_values_wait_where_the_result_goes():
    """Softmax computes exp once: its numerators are parked in the output's row."""
    rows, width = 5, 37
    x, memory = vector(np.random.default_rng(0).normal(size=rows * width))
    out, result = vector(np.zeros(rows * width))
    instructions = (
        load(0, width, 1),
        unary("reduce", 0, FLOAT, "max"),
        Instruction("sub", (0, 1), FLOAT),
        unary("exp", 2),
        unary("reduce", 3, FLOAT, "add"),
        Instruction("div", (3, 4), FLOAT),
    )
    stores = (Store(5, Access(1, (width, 1))),)
    kernel = Loops((rows, width), 1, (x, out), instructions, stores, parallel=1)
    check(kernel, [memory, result], cuts=[2])
    assert kernel_listing(kernel).count("exp(") == 1


def test_empty_rows_give_identities():
    for reducer, dtype in itertools.product(REDUCERS, (FLOAT, INT, BOOL, np.dtype("u1"))):
        if dtype == FLOAT and reducer in ("and", "or", "xor"):
            continue
        if dtype == BOOL and reducer in ("add", "mul"):
            continue
        source, memory = vector(np.zeros(1), dtype)
        target, result = vector(np.zeros(3), dtype)
        instructions = (load(0, 0, 1, dtype=dtype), unary("reduce", 0, dtype, reducer))
        stores = (Store(1, Access(1, (1, 0))),)
        check(Loops((3, 0), 1, (source, target), instructions, stores), [memory, result])


def test_scalar_kernel_without_dimensions():
    source, memory = vector([3.0])
    target, result = vector([0.0])
    instructions = (load(0), unary("neg", 0), unary("reduce", 1, FLOAT, "add"))
    kernel = Loops((), 0, (source, target), instructions, (Store(2, Access(1, ())),))
    check(kernel, [memory, result])


def test_gather_and_scatter():
    table, numbers = vector(np.arange(10.0))
    where, places = vector([3, 3, 9, 0, 4], INT)
    target, result = vector(np.ones(10))
    instructions = (
        load(1, 1, dtype=INT),
        Instruction("load", (0,), FLOAT, Access(0, (0,))),
        Instruction("constant", (), INT, np.array(4, np.int64).tobytes()),
        Instruction("lt", (0, 2), BOOL),
    )
    store = Store(1, Access(2, (0,)), address=0, accumulate="add", guard=3)
    kernel = Loops((5,), 1, (table, where, target), instructions, (store,))
    check(kernel, [numbers, places, result])


def test_index_and_complex_parts():
    """A complex buffer is a real one of twice the length."""
    size = 33
    source = Buffer(np.dtype("c8"), size)
    target = Buffer(np.dtype("c8"), size)
    random = np.random.default_rng(1)
    values = (random.normal(size=size) + 1j * random.normal(size=size)).astype("c8")
    instructions = (
        load(0, 2), load(0, 2, offset=1), Instruction("mul", (0, 1), FLOAT), unary("neg", 0),
    )  # fmt: skip
    stores = (Store(2, Access(1, (2,))), Store(3, Access(1, (2,), 1)))
    kernel = Loops((size,), 1, (source, target), instructions, stores, parallel=1)
    check(kernel, [values, np.zeros(size, "c8")])


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1000])
def test_long_reductions_and_nan(size):
    random = np.random.default_rng(size)
    for dtype, reducer in itertools.product(("f4", "f8"), ("add", "min", "max")):
        kind = np.dtype(dtype)
        values = random.normal(size=(4, size))
        values[1, size // 2] = np.nan
        source, memory = vector(values.ravel(), kind)
        target, result = vector(np.zeros(4), kind)
        instructions = (load(0, size, 1, dtype=kind), unary("reduce", 0, kind, reducer))
        kernel = Loops((4, size), 1, (source, target), instructions, (Store(1, Access(1, (1, 0))),))
        check(kernel, [memory, result], tolerance=1e-5)


def test_chunked_sum():
    size, chunks = 1001, 4
    source, memory = vector(np.random.default_rng(2).integers(0, 9, size))
    target, result = vector(np.full(chunks, 5.0))
    store = Store(0, Access(1, (0,), 0, 1), None, "add", True)
    for outer in (0, 1):
        kernel = Loops((size,), outer, (source, target), (load(0, 1),), (store,), 0, chunks)
        check(kernel, [memory, result])


def test_large_float_sums_are_accurate():
    size = 1 << 20
    source, memory = vector(np.random.default_rng(3).uniform(0, 1, size))
    target, result = vector([0.0])
    instructions = (load(0, 1), unary("reduce", 0, FLOAT, "add"))
    kernel = Loops((size,), 0, (source, target), instructions, (Store(1, Access(1, (0,))),))
    run_native(kernel, [memory, result])
    assert abs(result[0] / memory.astype(np.float64).sum() - 1) < 2e-6


def test_one_code_for_all_sizes():
    def kernel(size, offset):
        source, target = Buffer(FLOAT, size), Buffer(FLOAT, size)
        return Loops(
            (size,), 1, (source, target), (load(0, 1, offset=offset),), (Store(0, Access(1, (1,))),)
        )

    assert loops_code(kernel(10, 0)).key == loops_code(kernel(99, 4)).key
    assert loops_code(kernel(10, 0)).symbol == loops_code(kernel(99, 4)).symbol


def test_kernels_over_few_elements_are_compiled_quickly():
    """The same results as with all passes, and LLVM's option is on again for other users of the library."""
    source, memory = vector(np.linspace(-2.0, 2.0, 100))
    target, result = vector(np.zeros(100))
    instructions = (load(0, 1), unary("exp", 0))
    few, many = (
        Loops((size,), 1, (source, target), instructions, (Store(1, Access(1, (1,))),), 1) for size in (100, 1 << 20)
    )
    quick, whole = loops_code(few), loops_code(many)
    assert quick.key == whole.key
    assert quick.ir == QUICK + whole.ir
    text = assembly(whole.ir)
    found = []
    for code in (quick, whole):
        data, _ = compile_ir(code.ir, code.symbol)
        run_native(few, [memory, result], address=load_object(data, code.symbol))
        found.append(result.tobytes())
    assert found[0] == found[1]
    assert assembly(whole.ir) == text


def test_object_code_loads_again():
    source, memory = vector(np.arange(100.0))
    target, result = vector(np.zeros(100))
    kernel = Loops(
        (100,), 1, (source, target), (load(0, 1), unary("sin", 0)), (Store(1, Access(1, (1,))),), 1
    )
    code = loops_code(kernel)
    data, _ = compile_ir(code.ir, code.symbol)
    run_native(kernel, [memory, result], address=load_object(data, code.symbol))
    np.testing.assert_allclose(result, np.sin(memory), rtol=1e-6)


# ------------------------------------------------------------------ scalars
def spread(dtype, size, random):
    """Values of a dtype, the extreme ones included."""
    if dtype.kind == "b":
        return random.integers(0, 2, size).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        numbers = random.integers(limits.min, limits.max, size, dtype, endpoint=True)
        numbers[: size // 2] = random.integers(0, 70, size // 2).astype(dtype)
        numbers[::7] = random.choice(
            np.array([0, limits.min, limits.max], dtype), numbers[::7].size
        )
        if dtype.kind == "i":
            numbers[::5] = -1
        return numbers
    numbers = random.normal(size=size) * 10.0 ** random.integers(-6, 6, size)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, 1e-320, 3e38]
    numbers[::3] = random.choice(special, numbers[::3].size)
    with np.errstate(over="ignore"):
        return numbers.astype(dtype)


def run_scalars(dtype, expressions, size=211):
    """One kernel that stores every expression of three loaded operands."""
    random = np.random.default_rng(size)
    arrays = [spread(dtype, size, random) for _ in range(3)] + [
        random.integers(0, 2, size).astype(bool)
    ]
    operands = [Buffer(a.dtype, size) for a in arrays]
    instructions = [load(n, 1, dtype=a.dtype) for n, a in enumerate(arrays)]
    stores = []
    for op, args, result, attribute in expressions:
        instructions.append(Instruction(op, args, result, attribute))
        operands.append(Buffer(result, size))
        arrays.append(np.zeros(size, result))
        stores.append(Store(len(instructions) - 1, Access(len(operands) - 1, (1,))))
    kernel = Loops((size,), 1, tuple(operands), tuple(instructions), tuple(stores), 1)
    expected = [a.copy() for a in arrays]
    with np.errstate(all="ignore"):
        run_loops(kernel, expected)
    run_native(kernel, arrays)
    for expression, got, wanted in zip(expressions, arrays[4:], expected[4:], strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=f"{expression} {arrays[:3]}")


@pytest.mark.parametrize("dtype", INTEGERS + [BOOL], ids=str)
def test_integer_operations(dtype):
    pairs = ["min", "max", "and", "or", "xor"]
    singles = ["not"]
    if dtype != BOOL:
        pairs += ["add", "sub", "mul", "div", "rem"]
        pairs += ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
        singles += ["neg", "abs", "sign", "population_count", "count_leading_zeros"]
    expressions = [(op, (0, 1), dtype, None) for op in pairs]
    expressions += [(op, (0,), dtype, None) for op in singles]
    expressions += [(op, (0, 1), BOOL, None) for op in ("eq", "ne", "lt", "le", "gt", "ge")]
    expressions += [("select", (3, 0, 1), dtype, None)]
    others = [BOOL, *INTEGERS, FLOAT, np.dtype("f8")]
    expressions += [("cast", (0,), other, None) for other in others]
    run_scalars(dtype, expressions)


@pytest.mark.parametrize("dtype", [FLOAT, np.dtype("f8")], ids=str)
def test_exact_float_operations(dtype):
    pairs = ["add", "sub", "mul", "div", "rem", "min", "max", "nextafter", "copysign"]
    singles = ["neg", "abs", "sign", "floor", "ceil", "round_even", "trunc", "sqrt"]
    expressions = [(op, (0, 1), dtype, None) for op in pairs]
    expressions += [(op, (0,), dtype, None) for op in singles]
    expressions += [("fma", (0, 1, 2), dtype, None), ("is_finite", (0,), BOOL, None)]
    expressions += [(op, (0, 1), BOOL, None) for op in ("eq", "ne", "lt", "le", "gt", "ge")]
    expressions += [("select", (3, 0, 1), dtype, None)]
    others = [BOOL, *INTEGERS, FLOAT, np.dtype("f8")]
    expressions += [("cast", (0,), other, None) for other in others]
    signed = np.dtype(f"i{dtype.itemsize}")
    expressions += [("bitcast", (0,), signed, None)]
    run_scalars(dtype, expressions)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_floats_convert_exactly(dtype):
    """Every code decodes to its value; every float32 encodes to the nearest code."""
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint32).astype(f"u{dtype.itemsize}")
    source, memory = Buffer(dtype, codes.size), codes.view(dtype)
    target, result = Buffer(FLOAT, codes.size), np.zeros(codes.size, np.float32)
    copy = (load(0, 1),), (Store(0, Access(1, (1,))),)
    run_native(Loops((codes.size,), 1, (source, target), *copy, 1), [memory, result])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, memory.astype(np.float32))

    random = np.random.default_rng(5)
    exact = result[np.isfinite(result)]
    between = (exact[:-1].astype("f8") + exact[1:]) / 2
    numbers = np.concatenate([
        exact, between.astype("f4"), np.nextafter(between.astype("f4"), np.float32(np.inf)),
        random.integers(0, 2**32, 20000, np.uint32).view("f4"), spread(FLOAT, 99, random),
    ]).astype("f4")  # fmt: skip
    coded = np.zeros(numbers.size, dtype)
    source, target = Buffer(FLOAT, numbers.size), Buffer(dtype, numbers.size)
    run_native(Loops((numbers.size,), 1, (source, target), *copy, 1), [numbers, coded])
    with np.errstate(all="ignore"):
        expected = numbers.astype(dtype)
    nan = np.isnan(expected.astype("f4"))
    np.testing.assert_array_equal(nan, np.isnan(coded.astype("f4")))
    unsigned = f"u{dtype.itemsize}"
    np.testing.assert_array_equal(coded.view(unsigned)[~nan], expected.view(unsigned)[~nan])


def test_sizes_of_extents():
    buffer = Buffer(FLOAT, 24)
    kernel = Loops((2, 3, 4), 3, (buffer,), (constant(1.0),), (Store(0, Access(0, (12, 4, 1))),), 2)
    assert loops_extent(kernel) == math.prod((2, 3))
    check(kernel, [np.zeros(24, "f4")], cuts=[1, 4])


@pytest.mark.parametrize("sizes", [(70, 64), (64, 3, 101), (2, 100, 65)])
def test_transposes_run_in_tiles(sizes):
    rank, count = len(sizes), math.prod(sizes)
    source, memory = vector(np.arange(count))
    target, result = vector(np.zeros(count))
    dense = tuple(math.prod(sizes[d + 1 :]) for d in range(rank))
    turned = tuple(math.prod(sizes[:d]) for d in range(rank))
    for read, written in ((dense, turned), (turned, dense)):
        kernel = Loops(
            sizes, rank, (source, target),
            (Instruction("load", (), FLOAT, Access(0, read)), unary("neg", 0)),
            (Store(1, Access(1, written)),), rank,
        )  # fmt: skip
        assert tiled(kernel).blocks
        check(kernel, [memory, result], cuts=[1, loops_extent(kernel) - 1])


_lgamma = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(math.lgamma)


def test_special_functions_are_external():
    """The run time binds rlx_special_<name>; kernels call it in float64."""
    llvmlite.binding.add_symbol(
        "rlx_special_lgamma", ctypes.cast(_lgamma, ctypes.c_void_p).value or 0
    )
    source, memory = vector([0.5, 3.0, 10.0])
    target, result = vector(np.zeros(3))
    instructions = (load(0, 1), unary("special", 0, FLOAT, "lgamma"))
    kernel = Loops((3,), 1, (source, target), instructions, (Store(1, Access(1, (1,))),), 1)
    code = loops_code(kernel)
    assert code.external == ("rlx_special_lgamma",)
    address = compile_ir(code.ir.replace(code.symbol, "special_test"), "special_test")[1]
    run_native(kernel, [memory, result], address=address)
    np.testing.assert_allclose(result, [math.lgamma(x) for x in memory], rtol=1e-6)


@pytest.mark.parametrize("columns", [8, 64, 100, 150])
@pytest.mark.parametrize("planes", [1, 3])
def test_rows_across_memory_run_in_panels(columns, planes):
    """Softmax, running sums and the place of the maximum along the leading axis."""
    rows = 11
    count = rows * planes * columns
    x, memory = vector(np.random.default_rng(4).normal(size=count))
    moved = (1, planes * columns, columns)
    instructions = (
        Instruction("load", (), FLOAT, Access(0, moved)),
        unary("reduce", 0, FLOAT, "max"),
        Instruction("sub", (0, 1), FLOAT),
        unary("exp", 2),
        unary("reduce", 3, FLOAT, "add"),
        Instruction("div", (3, 4), FLOAT),
        Instruction("eq", (0, 1), BOOL),
        Instruction("index", (), INT, 1),
        constant(99, INT),
        Instruction("select", (6, 7, 8), INT),
        unary("reduce", 9, INT, "min"),
        unary("reduce", 6, BOOL, "and"),
        Instruction("index", (), INT, 0),
        Instruction("add", (10, 12), INT),
    )
    targets = [
        vector(np.zeros(count)),
        vector(np.zeros(columns), INT),
        vector(np.zeros(columns), BOOL),
    ]
    operands = (x, *(buffer for buffer, _ in targets))
    stores = (
        Store(5, Access(1, moved)),
        Store(13, Access(2, (1, 0, 0))),
        Store(11, Access(3, (1, 0, 0))),
    )
    kernel = Loops((columns, rows, planes), 1, operands, instructions, stores, 1)
    assert tiled(kernel).panel
    check(kernel, [memory, *(array for _, array in targets)], cuts=[1], tolerance=1e-5)
    if planes == 1:
        running = Loops(
            (columns, rows), 1, operands[:2],
            (
                Instruction("load", (), FLOAT, Access(0, moved[:2])),
                unary("cumulate", 0, FLOAT, "add"),
            ),
            (Store(1, Access(1, moved[:2])),), 1,
        )  # fmt: skip
        assert tiled(running).panel
        check(running, [memory, targets[0][1]], tolerance=1e-5)
