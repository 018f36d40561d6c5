"""Every method of KernelBuilder, on the reference backend, against NumPy."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from graphs import Graph, loops, run_lowering

from rlx.ir.kernels import Contract
from rlx.ir.types import TensorType

rng = np.random.default_rng(7)
DTYPES = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


def array(shape, dtype="float32"):
    dtype = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0, 5, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def check(lower, expected, *arrays, tolerance=1e-5, **options):
    result = run_lowering(lower, TensorType(expected.shape, expected.dtype), *arrays, **options)
    assert result.dtype == expected.dtype
    if result.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
    else:
        wide = np.complex128 if result.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)
    return result


# ---------------------------------------------------------------- elementwise
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_elementwise_broadcasts(dtype):
    x, y = array((3, 1, 4), dtype), array((5, 1), dtype)
    expected = x * y + x
    type = TensorType(expected.shape, expected.dtype)
    tolerance = 2e-2 if expected.dtype.itemsize == 2 else 1e-5
    check(lambda k, a, b: k.elementwise(lambda s, p, q: p * q + p, (a, b), type), expected, x, y, tolerance=tolerance)


def test_elementwise_tuple():
    x = array((4,))
    types = [TensorType((4,), x.dtype), TensorType((4,), np.dtype(bool))]
    double, positive = run_lowering(lambda k, v: k.elementwise(lambda s, p: (p * 2, s.gt(p, 0)), (v,), types), types, x)
    np.testing.assert_array_equal(double, x * 2)
    np.testing.assert_array_equal(positive, x > 0)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2, 3)])
def test_outputs_of_every_kind(shape):
    graph = Graph()
    x = graph.input(shape)
    same = graph.map("add", lambda s, a: a + 1, x)
    constant = graph.op("full", lambda k, v: k.full(v.type, 3), shape, x)
    source = array(shape)
    for result, expected in zip(
        graph.run([x, same, same, constant], source),
        [source, source + 1, source + 1, np.full(shape, 3, np.float32)],
        strict=True,
    ):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_casts(source, target):
    x = np.abs(array((6,), source)) if source != "bool" else array((6,), source)
    x = x.astype(array((1,), source).dtype)
    dtype = array((1,), target).dtype
    with np.errstate(all="ignore"):
        parts = x.real if dtype.kind != "c" and x.dtype.kind == "c" else x
        parts = x != 0 if dtype.kind == "b" else parts
        expected = parts.astype(dtype)
    type = TensorType((6,), dtype)
    check(lambda k, v: k.elementwise(lambda s, p: s.cast(p, dtype), (v,), type), expected, x)


@pytest.mark.parametrize(
    "name",
    ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz"],
)
def test_narrow_bits_round_trip(name):
    dtype = np.dtype(getattr(ml_dtypes, name, getattr(np, name, None)))
    unsigned = np.dtype(f"u{dtype.itemsize}")
    codes = np.arange(1 << (8 * dtype.itemsize)).astype(unsigned)
    values = codes.view(dtype)
    back = run_lowering(
        lambda k, v: k.elementwise(lambda s, p: s.bitcast(p, unsigned), (v,), TensorType(v.shape, unsigned)),
        TensorType(codes.shape, unsigned),
        values,
    )
    number = ~np.isnan(values.astype(np.float32))
    np.testing.assert_array_equal(back[number], codes[number])
    assert np.isnan(back.view(dtype)[~number].astype(np.float32)).all()
    forth = run_lowering(
        lambda k, v: k.elementwise(lambda s, p: s.bitcast(p, dtype), (v,), TensorType(v.shape, dtype)),
        TensorType(codes.shape, dtype),
        codes,
    )
    np.testing.assert_array_equal(forth.astype(np.float32), values.astype(np.float32))


COMPLEX_FUNCTIONS = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "exp2": np.exp2,
    "abs": np.abs,
    "neg": np.negative,
    "log2": np.log2,
    "sign": np.sign,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("name", COMPLEX_FUNCTIONS)
def test_complex_functions(name):
    x = 3 * array((64,), "complex128")
    expected = COMPLEX_FUNCTIONS[name](x)
    type = TensorType(expected.shape, expected.dtype)
    check(lambda k, v: k.elementwise(lambda s, p: getattr(s, name)(p), (v,), type), expected, x, tolerance=1e-12)


# ---------------------------------------------------------------- views
def test_views_are_free():
    x = array((2, 3, 4))
    steps = [
        (lambda k, v: k.transpose(v, (2, 0, 1)), x.transpose(2, 0, 1)),
        (lambda k, v: k.slice(v, (0, 1, 0), (2, 3, 4), (1, 1, 2)), x[:, 1:3, ::2]),
        (lambda k, v: k.reverse(v, (0, 2)), x[::-1, :, ::-1]),
        (lambda k, v: k.broadcast(v, (2, 5, 3, 4), (0, 2, 3)), np.broadcast_to(x[:, None], (2, 5, 3, 4))),
        (lambda k, v: k.reshape(v, (6, 2, 2)), x.reshape(6, 2, 2)),
        (lambda k, v: k.reshape(k.transpose(v, (2, 0, 1)), (8, 3)), x.transpose(2, 0, 1).reshape(8, 3)),
        (lambda k, v: k.reshape(k.transpose(v, (1, 0, 2)), (3, 2, 2, 2)), x.transpose(1, 0, 2).reshape(3, 2, 2, 2)),
    ]
    for lower, expected in steps:
        check(lower, np.asarray(expected), x)


def test_reshape_of_an_expression_makes_one_kernel():
    graph = Graph()
    x, b = graph.input((4, 6)), graph.input((6,))
    y = graph.map("add", lambda s, p, q: p + q, x, b)
    z = graph.map("exp", lambda s, p: s.exp(p), graph.reshape(y, (2, 2, 6)))
    assert len(graph.plan(z).kernels) == 1


def test_window():
    x = array((6, 7))
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 2))[::2, ::3]
    check(lambda k, v: k.window(v, (3, 2), (2, 3)), np.ascontiguousarray(view), x)


PADS = [
    ((0, 0, 0), (1, 2, 0)),
    ((1, 0, 0), (0, 1, 0)),
    ((0, 0, 1), (2, 0, 2)),
    ((-1, 0, 0), (0, -2, 0)),
    ((-1, 2, 0), (3, -1, 0)),
    ((-2, 1, 2), (1, -1, 1)),
    ((0, 0, 0), (0, 0, 0)),
    ((-4, 3, 0), (0, 0, 0)),
]


def padded(x, value, config):
    for axis, (low, high, interior) in enumerate(config):
        x = np.moveaxis(x, axis, 0)
        n = len(x)
        wide = np.full((n + max(0, n - 1) * interior, *x.shape[1:]), value, x.dtype)
        wide[:: interior + 1] = x
        out = np.full((max(0, low + high + len(wide)), *x.shape[1:]), value, x.dtype)
        for i in range(len(wide)):
            if 0 <= i + low < len(out):
                out[i + low] = wide[i]
        x = np.moveaxis(out, 0, axis)
    return np.ascontiguousarray(x)


@pytest.mark.parametrize("config", PADS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_pad(config, dtype):
    x, value = array((4, 3), dtype), array((), dtype)
    check(lambda k, v, w: k.pad(v, w, config), padded(x, value, config), x, value)


@pytest.mark.parametrize("axis", [0, 1])
def test_concatenate(axis):
    parts = [array((2, 3)), array((2, 3)), array((0, 3) if axis == 0 else (2, 0))]
    check(lambda k, *vs: k.concatenate(vs, axis), np.concatenate(parts, axis), *parts)


# ---------------------------------------------------------------- reductions
@pytest.mark.parametrize("shape", [(4, 5, 6), (3, 40, 2), (70,), (1, 9), (9, 1, 1)])
@pytest.mark.parametrize("op", ["add", "mul", "min", "max"])
def test_reduce(shape, op):
    x = array(shape)
    function = {"add": np.sum, "mul": np.prod, "min": np.min, "max": np.max}[op]
    for count in range(len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            expected = np.asarray(function(x, axis=axes), np.float32)
            check(lambda k, v, axes=axes: k.reduce(op, v, axes), expected, x, tolerance=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reduce_add_dtypes(dtype):
    x = array((3, 50), dtype)
    op = "or" if dtype == "bool" else "add"
    for axis in (0, 1):
        reduced = (
            np.any(x, axis)
            if dtype == "bool"
            else x.astype("complex128" if x.dtype.kind == "c" else "float64").sum(axis).astype(x.dtype)
        )
        tolerance = 1e-1 if dtype in ("bfloat16", "float16") else 1e-4
        check(lambda k, v, axis=axis: k.reduce(op, v, (axis,)), reduced, x, tolerance=tolerance)


def test_reduce_of_transposed_and_repeated_values():
    x = array((7, 30))
    check(lambda k, v: k.reduce("add", k.transpose(v, (1, 0)), (0,)), x.sum(1), x, tolerance=1e-4)
    check(lambda k, v: k.reduce("add", k.broadcast(v, (20, 7, 30), (1, 2)), (0, 1)), 20 * x.sum(0), x, tolerance=1e-4)
    check(lambda k, v: k.reduce("mul", k.broadcast(v, (3, 7, 30), (1, 2)), (0, 2)), (x**3).prod(1), x, tolerance=1e-4)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_reduce_nothing(axes):
    x = np.zeros((0, 3), np.float32)
    check(lambda k, v: k.reduce("add", v, axes), np.sum(x, axis=axes), x)
    if axes != (1,):
        check(lambda k, v: k.reduce("max", v, axes), np.max(x, axis=axes, initial=-np.inf), x)


@pytest.mark.parametrize("shape", [(300, 256), (100_003,), (70_000,), (2, 40_000), (40_000, 2)])
def test_large_sums_are_cut_into_chunks(shape):
    x = array(shape, "float64")
    for axes in [(0,), tuple(range(len(shape)))]:
        check(lambda k, v, axes=axes: k.reduce("add", v, axes), np.asarray(x.sum(axes)), x, tolerance=1e-9)


def test_reduce_general():
    x, positions = array((3, 13)), np.broadcast_to(np.arange(13, dtype=np.int32), (3, 13))

    def larger(s, best, at, value, place):
        better = s.or_(s.gt(value, best), s.and_(s.eq(value, best), s.lt(place, at)))
        return s.select(better, value, best), s.select(better, place, at)

    def lower(k, v, p):
        inits = (k.full(TensorType((), v.dtype), -np.inf), k.full(TensorType((), p.dtype), 0))
        return k.reduce_general(larger, (v, p), inits, (1,))

    types = [TensorType((3,), x.dtype), TensorType((3,), positions.dtype)]
    best, at = run_lowering(lower, types, x, positions)
    np.testing.assert_array_equal(best, x.max(1))
    np.testing.assert_array_equal(at, x.argmax(1))


def test_reduce_complex_product():
    x = array((3, 11), "complex128")
    check(lambda k, v: k.reduce("mul", v, (1,)), x.prod(1), x)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
def test_cumulate(axis, reverse, dtype):
    x = array((4, 5, 3), dtype)
    flip = (lambda a: np.flip(a, axis)) if reverse else (lambda a: a)
    for op, function in (("add", np.cumsum), ("mul", np.cumprod)):
        expected = np.ascontiguousarray(flip(function(flip(x), axis))).astype(x.dtype)
        check(lambda k, v, op=op: k.cumulate(op, v, axis, reverse), expected, x, tolerance=1e-4)


# ---------------------------------------------------------------- indexing
def test_dynamic_slice_and_update():
    x, update = array((5, 6)), array((2, 3))
    start = np.array(2, np.int32)
    check(lambda k, v, i: k.dynamic_slice(v, (i, i), (2, 3)), x[2:4, 2:5], x, start)
    expected = x.copy()
    expected[2:4, 2:5] = update
    check(lambda k, v, u, i: k.dynamic_update_slice(v, u, (i, i)), expected, x, update, start)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16", "bool"])
def test_gather(dtype):
    x, rows = array((5, 4), dtype), np.array([3, 0, 3], np.int32)

    def lower(k, v, r):
        return k.gather(v, lambda s, i, j: [s.load(r, [i]), j], (3, 4))

    check(lower, x[rows], x, rows)


@pytest.mark.parametrize("op", [None, "add", "mul", "max"])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
def test_scatter(op, dtype):
    if op == "max" and dtype == "complex64":
        pytest.skip("complex numbers have no reducer max")
    x, updates, rows = array((5, 4), dtype), array((3, 4), dtype), np.array([3, 0, 3])
    expected = x.copy()
    for row, update in zip(rows, updates, strict=True):
        if row == 0:
            continue
        combined = {
            None: update,
            "add": expected[row] + update,
            "mul": expected[row] * update,
            "max": np.maximum(expected[row], update),
        }[op]
        expected[row] = combined

    def lower(k, v, u, r):
        return k.scatter(op, v, u, lambda s, i, j: [s.load(r, [i]), j], lambda s, i, j: s.ne(s.load(r, [i]), 0))

    check(lower, expected, x, updates, rows)


# ---------------------------------------------------------------- contractions and sorts
CONTRACTIONS = [
    ("ij,jk->ik", (4, 5), (5, 6)),
    ("ji,jk->ik", (5, 4), (5, 6)),
    ("ij,kj->ik", (4, 5), (6, 5)),
    ("bij,bjk->bik", (3, 4, 5), (3, 5, 6)),
    ("bhij,bhkj->bhik", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bihd,bjhd->bhij", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("ij,j->i", (4, 5), (5,)),
    ("i,ij->j", (5,), (5, 6)),
    ("i,i->", (7,), (7,)),
    ("i,j->ij", (3,), (4,)),
    ("abij,ijc->abc", (2, 3, 4, 5), (4, 5, 6)),
    ("ajbi,ijc->abc", (2, 5, 3, 4), (4, 5, 6)),
]


def dimension_numbers(equation):
    inputs, _ = equation.split("->")
    left, right = inputs.split(",")
    out = equation.split("->")[1]
    batch = [c for c in left if c in right and c in out]
    contracted = [c for c in left if c in right and c not in out]
    result = batch + [c for c in left if c not in right] + [c for c in right if c not in left]
    pairs = [([left.index(c) for c in cs], [right.index(c) for c in cs]) for cs in (contracted, batch)]
    return pairs, "".join(result)


@pytest.mark.parametrize(("equation", "left", "right"), CONTRACTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", "float16"])
def test_contract(equation, left, right, dtype):
    x, y = array(left, dtype), array(right, dtype)
    (contracting, batch), result = dimension_numbers(equation)
    operands = (x, y)
    if dtype == "float16":
        operands = x.astype("float32"), y.astype("float32")
    expected = np.einsum(equation.split("->")[0] + "->" + result, *operands).astype(x.dtype)
    tolerance = 1e-2 if dtype == "float16" else 1e-4
    check(lambda k, a, b: k.contract(a, b, contracting, batch), np.asarray(expected), x, y, tolerance=tolerance)
    # operands that are expressions, views with gaps, or read backwards
    check(
        lambda k, a, b: k.contract(
            k.elementwise(lambda s, p: p + p, (a,), a.type), k.reverse(b, range(len(right))), contracting, batch
        ),
        np.asarray(
            np.einsum(equation.split("->")[0] + "->" + result, 2 * operands[0], np.flip(operands[1])).astype(x.dtype)
        ),
        x,
        y,
        tolerance=tolerance,
    )


def test_transposed_operands_are_not_copied():
    graph = Graph()
    x, y = graph.input((8, 4)), graph.input((6, 8))
    z = graph.op("dot", lambda k, a, b: k.contract(a, b, ([0], [1]), ([], [])), (4, 6), x, y)
    assert [type(k) for k in graph.plan(z).kernels] == [Contract]


def test_bool_contraction():
    x, y = array((4, 9), "bool"), array((9, 3), "bool")
    check(lambda k, a, b: k.contract(a, b, ([1], [0]), ([], [])), x @ y, x, y)


@pytest.mark.parametrize("axis", [0, 1])
def test_sort(axis):
    x = array((6, 7))
    check(lambda k, v: k.sort((v,), axis)[0], np.sort(x, axis), x)

    def order(k, v):
        return k.sort((v, k.iota(TensorType(v.shape, np.dtype(np.int32)), axis)), axis)[1]

    check(order, np.argsort(x, axis, kind="stable").astype(np.int32), x)


def test_iota_and_constants():
    x = array((2, 3))
    table = np.arange(6, dtype=np.float32).reshape(2, 3)

    def lower(k, v):
        return k.elementwise(lambda s, a, b, c: a + b * c, (v, k.iota(v.type, 1), k.constant(table)), v.type)

    check(lower, x + np.arange(3, dtype=np.float32) * table, x)


@pytest.mark.thorough
def test_long_chains_do_not_recurse():
    graph = Graph()
    x = y = graph.input((3,))
    for _ in range(3000):
        y = graph.map("add", lambda s, a: a * 0.5 + 1, y)
    (result,) = graph.run([y], np.ones(3, np.float32))
    np.testing.assert_allclose(result, 2, rtol=1e-6)
    assert len(loops(graph.plan(y))) < 30
    assert x.type.shape == (3,)
