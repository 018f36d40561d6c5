"""Numbers of less than 8 bits and 8-bit floats: against Python's integers, ml_dtypes and jax."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as other
import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.types import supported_dtypes

INTEGERS = sorted(d.name for d in INTEGER_FORMATS)
FLOATS = sorted(d.name for d in FLOAT_FORMATS if d.itemsize == 1)
ALL = sorted(d.name for d in supported_dtypes)


def numbers(name):
    """Every number of an integer dtype."""
    info = ml_dtypes.iinfo(name)
    return np.arange(int(info.min), int(info.max) + 1)


def wrapped(values, name):
    """Python's integers reduced to a dtype's range."""
    info = ml_dtypes.iinfo(name)
    return (np.asarray(values, np.int64) - int(info.min)) % (1 << info.bits) + int(info.min)


def both(function, *arguments):
    """A function's value, which must be the same compiled."""
    eager, compiled = function(*arguments), rlx.jit(function)(*arguments)
    assert eager.dtype == compiled.dtype, (eager, compiled)
    np.testing.assert_array_equal(eager.astype("float32"), compiled.astype("float32"))
    return eager


# ---------------------------------------------------------------- names
@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_a_name_is_a_dtype_and_makes_arrays(name):
    kind = getattr(jnp, name)
    assert np.dtype(kind) == np.dtype(name) and kind == getattr(ml_dtypes, name)
    assert kind(1).dtype == jnp.ones(2, kind).dtype == jnp.array([1, 1], name).dtype == np.dtype(name)
    assert isinstance(kind(1).item(), int if name in INTEGERS else float)
    assert np.asarray(jnp.ones(3, kind)).dtype == np.dtype(name)
    assert rlx.dtypes.itemsize_bits(name) == jax.dtypes.itemsize_bits(name)


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("kind", ["integer", "signedinteger", "unsignedinteger", "floating", "inexact", "number"])
def test_categories(name, kind):
    assert jnp.issubdtype(name, getattr(np, kind)) == other.issubdtype(name, getattr(np, kind))


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_kinds(name):
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric"):
        assert jnp.isdtype(name, kind) == other.isdtype(np.dtype(name), kind)
    assert rlx.dtypes.scalar_type_of(jnp.ones((), name)) is (int if name in INTEGERS else float)


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_limits(name):
    ours, theirs = jnp.iinfo(name), other.iinfo(name)
    assert (ours.min, ours.max, ours.bits) == (theirs.min, theirs.max, theirs.bits)


def test_representation():
    assert repr(jnp.array([-1, 7], "int4")) == "Array([-1,  7], dtype=int4)"
    assert repr(jnp.array([0.5, 6.0], "float4_e2m1fn")) == "Array([0.5, 6. ], dtype=float4_e2m1fn)"


def promoted(namespace, x, y):
    try:
        return np.dtype(namespace.promote_types(x, y))
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("x", ALL)
def test_promotion_of_all_pairs(x):
    with jax.enable_x64(True), rlx.enable_x64(True):
        for y in (*ALL, int, float, complex):
            assert promoted(jnp, x, y) == promoted(other, x, y), (x, y)


def test_python_numbers_yield_to_narrow_dtypes():
    assert (jnp.ones(2, "int4") + 1).dtype == np.dtype("int4")
    assert (jnp.ones(2, "float4_e2m1fn") * 0.5).dtype == np.dtype("float4_e2m1fn")
    with pytest.raises(TypeError):
        jnp.ones(2, "int4") + 1.5
    with pytest.raises(TypeError):
        jnp.ones(2, "int4") + jnp.ones(2, "int8")


# ---------------------------------------------------------------- conversions
def float32_samples():
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 1 << 32, 4000, dtype=np.uint32)
    near = generator.uniform(-20, 20, 4000).astype(np.float32)
    ties = (np.arange(-600, 601) / 64).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 2.0**-127, 1.5 * 2.0**-127, 3e38], np.float32)
    return np.concatenate([bits.view(np.float32), near, ties, near * np.float32(1e-3), special])


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_rounded_as_by_ml_dtypes(name):
    x = float32_samples()
    x = x[~(np.isnan(x) & np.signbit(x))]  # ml_dtypes takes the sign of a NaN for a number's where there is none
    with np.errstate(all="ignore"):
        expected = x.astype(name)
    found = rlx.jit(lambda v: v.astype(name))(x)
    np.testing.assert_array_equal(np.asarray(found).view("u1"), expected.view("u1"))
    np.testing.assert_array_equal(np.asarray(jnp.asarray(x).astype(name)).view("u1"), expected.view("u1"))


@pytest.mark.parametrize("name", FLOATS)
def test_every_code_is_read_exactly(name):
    codes = np.arange(1 << ml_dtypes.finfo(name).bits, dtype=np.uint8).view(name)
    np.testing.assert_array_equal(both(lambda v: v.astype("float32"), jnp.asarray(codes)), codes.astype(np.float32))


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("source", ["int32", "uint8", "int64", "bool"])
def test_integers_wrap(name, source):
    x = np.arange(-40, 40).astype(source)
    found = both(lambda v: v.astype(name), jnp.asarray(x))
    np.testing.assert_array_equal(np.asarray(found).astype(np.int64), wrapped(x.astype(np.int64), name))


@pytest.mark.parametrize("name", INTEGERS)
def test_floats_saturate(name):
    x = np.array([0.4, -0.6, 1.9, 3.0, 6.5, -7.9, -9.0, 20.0, np.inf, -np.inf, np.nan, 1e9], np.float32)
    info = ml_dtypes.iinfo(name)
    expected = np.clip(np.nan_to_num(np.trunc(x)), int(info.min), int(info.max))
    found = both(lambda v: v.astype(name), jnp.asarray(x))
    np.testing.assert_array_equal(np.asarray(found).astype(np.float32), expected)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("target", ["int8", "uint32", "float32", "bfloat16", "bool", "complex64", "int4", "float16"])
def test_integers_to_others(name, target):
    x = numbers(name)
    expected = wrapped(x, target) if target == "int4" else x.astype(np.float32 if "float" in target else target)
    found = both(lambda v: v.astype(target), jnp.asarray(x.astype(name)))
    np.testing.assert_array_equal(np.asarray(found).astype(expected.dtype), expected)


# ---------------------------------------------------------------- arithmetic
def quotient(x, y):
    return -1 if y == 0 else int(abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)


OPERATIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": quotient,
    "rem": lambda x, y: x if y == 0 else x - y * quotient(x, y),
    "max": max,
    "min": min,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_arithmetic_of_all_pairs(name, operation):
    pairs = list(itertools.product(numbers(name).tolist(), repeat=2))
    x, y = (jnp.array(side, name) for side in zip(*pairs, strict=True))
    expected = [OPERATIONS[operation](*pair) for pair in pairs]
    found = np.asarray(both(getattr(lax, operation), x, y))
    if found.dtype != bool:
        expected = wrapped(expected, name)
    np.testing.assert_array_equal(found.astype(np.int64), expected)


@pytest.mark.parametrize("name", INTEGERS)
def test_bits_of_all_numbers(name):
    width = ml_dtypes.iinfo(name).bits
    x = numbers(name)
    codes = x & ((1 << width) - 1)
    operand = jnp.array(x, name)
    cases = {
        "neg": -x,
        "bitwise_not": ~x,
        "abs": abs(x),
        "sign": np.sign(x),
        "population_count": np.array([int(c).bit_count() for c in codes]),
        "clz": width - np.array([int(c).bit_length() for c in codes]),
    }
    for operation, expected in cases.items():
        found = both(getattr(lax, operation), operand)
        np.testing.assert_array_equal(np.asarray(found).astype(np.int64), wrapped(expected, name), operation)


@pytest.mark.parametrize("name", INTEGERS)
def test_shifts_of_all_pairs(name):
    width = ml_dtypes.iinfo(name).bits
    mask = (1 << width) - 1
    pairs = list(itertools.product(numbers(name).tolist(), repeat=2))
    x, y = (jnp.array(side, name) for side in zip(*pairs, strict=True))
    signed = wrapped([a for a, _ in pairs], f"int{width}").tolist()
    amounts = [b & mask for _, b in pairs]
    codes = [a & mask for a, _ in pairs]
    cases = {
        "shift_left": [c << n if n < width else 0 for c, n in zip(codes, amounts, strict=True)],
        "shift_right_logical": [c >> n for c, n in zip(codes, amounts, strict=True)],
        "shift_right_arithmetic": [a >> n for a, n in zip(signed, amounts, strict=True)],
    }
    for operation, expected in cases.items():
        found = both(getattr(lax, operation), x, y)
        np.testing.assert_array_equal(np.asarray(found).astype(np.int64), wrapped(expected, name), operation)


@pytest.mark.parametrize("name", ["int4", "uint4", "int2"])
def test_fused_arithmetic_wraps_at_every_step(name):
    x = jnp.array(numbers(name), name)

    def function(v):
        doubled = v + v
        return lax.max(lax.div(doubled * 3, jnp.array(2, name)), v) > doubled

    expected = [
        max(wrapped(quotient(int(wrapped(wrapped(2 * a, name) * 3, name)), int(wrapped(2, name))), name), a)
        > wrapped(2 * a, name)
        for a in numbers(name).tolist()
    ]
    np.testing.assert_array_equal(both(function, x), expected)


# ---------------------------------------------------------------- arrays
@pytest.mark.parametrize("name", ["int4", "uint4", "uint2"])
@pytest.mark.parametrize("shape", [(3,), (5, 40), (300, 7)])
def test_reductions_wrap(name, shape):
    x = np.random.default_rng(1).choice(numbers(name), shape)
    operand = jnp.array(x, name)
    total = both(lambda v: lax.reduce(v, jnp.zeros((), name), lax.add, (0,)), operand)
    np.testing.assert_array_equal(np.asarray(total).astype(int), wrapped(x.sum(0), name))
    product = both(lambda v: lax.reduce(v, jnp.ones((), name), lax.mul, (0,)), operand)
    python = np.array([n % 256 for n in np.ravel(np.multiply.reduce(x.astype(object), 0))]).reshape(shape[1:])
    np.testing.assert_array_equal(np.asarray(product).astype(int), wrapped(python, name))
    running = both(lambda v: lax.cumsum(v, 0), operand)
    np.testing.assert_array_equal(np.asarray(running).astype(int), wrapped(x.cumsum(0), name))
    compared = both(lambda v: lax.reduce(v, jnp.zeros((), name), lax.add, (0,)) > jnp.array(1, name), operand)
    np.testing.assert_array_equal(compared, wrapped(x.sum(0), name) > 1)
    np.testing.assert_array_equal(both(lambda v: v.max(0), operand).astype(int), x.max(0))
    np.testing.assert_array_equal(both(lambda v: jnp.sum(v), operand), x.sum())
    assert jnp.sum(operand).dtype == (np.int32 if name[0] == "i" else np.uint32)


def test_extrema_of_nothing_are_the_limits():
    empty = jnp.zeros((0, 3), "int4")
    limit = jnp.array(-8, "int4")
    np.testing.assert_array_equal(both(lambda v: lax.reduce(v, limit, lax.max, (0,)), empty).astype(int), [-8] * 3)


@pytest.mark.parametrize("name", ["int4", "uint4", "float4_e2m1fn", "float6_e3m2fn", "float8_e3m4"])
def test_order_places_and_products(name):
    generator = np.random.default_rng(2)
    x = generator.integers(0 if name[0] == "u" else -5, 7, (6, 5))
    operand = jnp.array(x, "int32").astype(name)
    plain = np.asarray(operand).astype(np.float32)
    as_float = lambda v: np.asarray(v).astype(np.float32)  # noqa: E731
    np.testing.assert_array_equal(as_float(both(lambda v: jnp.sort(v, 0), operand)), np.sort(plain, 0))
    np.testing.assert_array_equal(both(lambda v: jnp.argmax(v, 1), operand), plain.argmax(1))
    np.testing.assert_array_equal(as_float(both(lambda v: v[jnp.array([2, 0])], operand)), plain[[2, 0]])
    joined = both(lambda v: jnp.concatenate([v, v[::-1]]).T, operand)
    np.testing.assert_array_equal(as_float(joined), np.concatenate([plain, plain[::-1]]).T)
    small = jnp.array(x % 2, "int32").astype(name)
    product = as_float(both(lambda v: v.T @ v, small))
    exact = (x % 2).T @ (x % 2)
    expected = wrapped(exact, name) if name in INTEGERS else exact.astype(np.float32).astype(name).astype(np.float32)
    np.testing.assert_array_equal(product, expected)
    added = as_float(both(lambda v: v.at[jnp.array([1, 1])].add(v[0]), small))
    expected = (x % 2).astype(float)
    expected[1] += 2 * expected[0]
    np.testing.assert_array_equal(added, expected)
    np.testing.assert_array_equal(as_float(rlx.jit(rlx.vmap(lambda v: v + v))(small)), 2.0 * (x % 2))
    selected = both(lambda v: jnp.where(v > v[0], v, v[0]), operand)
    np.testing.assert_array_equal(as_float(selected), np.maximum(plain, plain[0]))


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_leaves_of_derivatives(name):
    x = jnp.array([1.0, 2.0, 4.0], name)
    one = rlx.grad(lambda v: jnp.sum((v * 2).astype("float32")))(x)
    assert one.dtype == np.dtype(name)
    np.testing.assert_array_equal(np.asarray(one).astype(np.float32), [2.0, 2.0, 2.0])
    with pytest.raises(TypeError):
        rlx.grad(lambda v: v)(jnp.array(1, "int4"))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("function", ["add", "multiply", "sqrt", "exp", "negative", "less", "floor", "sign"])
def test_functions_of_floats(name, function):
    codes = np.arange(1 << ml_dtypes.finfo(name).bits, dtype=np.uint8).view(name)
    operands = (codes,) if function in ("sqrt", "exp", "negative", "floor", "sign") else (codes, codes[::-1])
    found = rlx.jit(getattr(jnp, function))(*operands)
    with np.errstate(all="ignore"):
        expected = getattr(np, function)(*(v.astype(np.float32) for v in operands))
        expected = expected if function == "less" else expected.astype(name)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found).astype(np.float32), expected.astype(np.float32))


def test_neighbours():
    for name in ("float4_e2m1fn", "float6_e2m3fn", "float8_e3m4", "float8_e8m0fnu"):
        codes = np.arange(3, dtype=np.uint8).view(name)
        up = both(lambda v: jnp.nextafter(v[:2], v[2]), jnp.asarray(codes))
        np.testing.assert_array_equal(np.asarray(up).view("u1"), [1, 2])


# ---------------------------------------------------------------- bits
@pytest.mark.parametrize(("source", "target"), [("int4", "uint4"), ("uint4", "int4"), ("float4_e2m1fn", "uint4"),
                                                ("uint4", "float4_e2m1fn"), ("int2", "uint2"), ("float8_e3m4", "int8"),
                                                ("uint8", "float8_e8m0fnu"), ("float8_e8m0fnu", "uint8")])  # fmt: skip
def test_bits_read_as_another_dtype_of_the_width(source, target):
    codes = np.arange(1 << rlx.dtypes.itemsize_bits(source), dtype=np.uint8)
    codes = codes[~np.isnan(codes.view(source).astype(np.float32))]  # one NaN is as good as another
    found = np.asarray(rlx.jit(lambda v: lax.bitcast_convert_type(v, target))(codes.view(source)))
    eager = np.asarray(lax.bitcast_convert_type(codes.view(source), target))
    number = ~np.isnan(eager.astype(np.float32))
    np.testing.assert_array_equal(found.view("u1")[number], codes[number])
    np.testing.assert_array_equal(eager.view("u1"), codes)


@pytest.mark.parametrize("name", ["int4", "uint4", "uint2", "float4_e2m1fn"])
def test_bytes_are_rows_of_narrow_numbers(name):
    x = np.arange(256, dtype=np.uint8)
    parts = both(lambda v: lax.bitcast_convert_type(v, name), jnp.asarray(x))
    np.testing.assert_array_equal(
        np.asarray(parts).astype(np.float32), np.asarray(jax.lax.bitcast_convert_type(x, name)).astype(np.float32)
    )
    np.testing.assert_array_equal(both(lambda v: lax.bitcast_convert_type(v, "uint8"), parts), x)
    with pytest.raises(ValueError):
        lax.bitcast_convert_type(parts[:, :1], "uint8")


@pytest.mark.parametrize("name", [*FLOATS, "float16", "bfloat16"])
def test_signs_of_all_codes(name):
    """Of zeros and NaN, too: eagerly, compiled, and negated."""
    form = FLOAT_FORMATS[np.dtype(name)]
    codes = np.arange(1 << form.bits).astype(f"u{np.dtype(name).itemsize}")
    x, negative = codes.view(name), (codes & form.sign) != 0
    np.testing.assert_array_equal(both(jnp.signbit, x), negative)
    if form.zero and form.special != "minus zero":
        np.testing.assert_array_equal(both(lambda v: jnp.signbit(-v), x), ~negative)
        np.testing.assert_array_equal(both(lambda v: jnp.signbit(jnp.copysign(jnp.ones_like(v), v)), x), negative)
        assert not both(lambda v: jnp.signbit(abs(v)), x).any()
