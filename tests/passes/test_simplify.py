"""Rewrite rules: each is exact, and gives the program that it should."""

# annotations are the types of printed programs, not Python's
# ruff: noqa: F722, F821

import numpy as np
import pytest

import rlx.lax  # defines the primitives
from rlx.array import wrap
from rlx.errors import DtypeError
from rlx.ir.program import Literal, Program, Var
from rlx.ir.rewrite import Rule, _EquationPattern, _NumberPattern
from rlx.ir.show import show_program
from rlx.ir.types import TensorType, bfloat16, is_complex, is_float
from rlx.ir.verify import verify_program
from rlx.passes.algebra import lossless
from rlx.passes.simplify import rules, simplify
from rlx.trace.builder import Builder
from rlx.trace.interpret import interpret
from rlx.trace.primitive import registry
from rlx.trace.text import bool_, float32, float64, inf, int32, ops, program, uint8, weak

assert rlx.lax

DTYPES = [np.dtype(d) for d in ("?", "i1", "i4", "u1", "u8", "f2", bfloat16, "f4", "f8", "c8")]


def becomes(before: Program, after: Program) -> None:
    """`before` is simplified to exactly `after`, and both compute the same."""
    verify_program(before)
    simplified = simplify(before)
    verify_program(simplified)
    assert simplified == after, f"\n{show_program(simplified)}\nexpected\n{show_program(after)}"
    agree(before, simplified)


def stays(before: Program) -> None:
    """No rule applies."""
    assert simplify(before) is before, f"\n{show_program(simplify(before))}"


def agree(before: Program, after: Program) -> None:
    for seed in range(3):
        arrays = [special(t, seed + 3 * i) for i, t in enumerate(before.input_types)]
        for one, other in zip(run(before, arrays), run(after, arrays), strict=True):
            assert one.dtype == other.dtype
            same(one, other)


def same(one: np.ndarray, other: np.ndarray) -> None:
    """Equal bits, except that all NaNs are one."""
    assert one.shape == other.shape
    if is_complex(one.dtype):
        same(one.real, other.real)
        same(one.imag, other.imag)
        return
    nan = one != one
    np.testing.assert_array_equal(nan, other != other)
    width = f"u{one.dtype.itemsize}"
    bits = [np.ascontiguousarray(np.where(nan, np.zeros((), a.dtype), a)).view(width) for a in (one, other)]
    np.testing.assert_array_equal(*bits)


def run(program: Program, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(x.numpy()) for x in interpret(program, [wrap(a) for a in arrays])]


def special(type: TensorType, seed: int) -> np.ndarray:
    """Edge values of a dtype, in an order that depends on the seed."""
    generator = np.random.default_rng(seed)
    if type.dtype.kind == "b":
        pool = np.array([False, True])
    elif is_float(type.dtype) or is_complex(type.dtype):
        pool = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.1, -7.5, 3e4, 1e-7, 5e-324, 65504, 0.3])
        if is_complex(type.dtype):
            pool = np.concatenate([pool + 1j * x for x in (0.0, -0.0, np.inf, 2.0)])
    else:
        info = np.iinfo(type.dtype)
        pool = np.array([0, 1, 2, 5, info.max, info.min, info.max - 1, info.min + 1], type.dtype)
    with np.errstate(all="ignore"):
        return generator.choice(pool.astype(type.dtype), type.shape)


# ------------------------------------------------------------------ every rule of a pattern
PATTERNS = [rule for rule in rules if rule.before.operands is not None]


def matching(rule: Rule, dtype: np.dtype) -> Program:
    """A program of one equation's worth of the rule's left-hand side, on arrays of edge values."""
    variables: dict[str, object] = {}
    with Builder("before") as builder:

        def build(pattern: object, dtype: np.dtype) -> object:
            if isinstance(pattern, _NumberPattern):
                return weak(pattern.value, dtype.name)
            if isinstance(pattern, str):
                if pattern not in variables:
                    variables[pattern] = builder.input(TensorType((24,), dtype))
                return variables[pattern]
            assert isinstance(pattern, _EquationPattern) and pattern.operands is not None
            params = {"exponent": 2} if pattern.name == "integer_power" else {}
            kinds = [np.dtype(bool), dtype, dtype] if pattern.name == "select" else [dtype] * 2
            operands = [build(p, d) for p, d in zip(pattern.operands, kinds, strict=False)]
            return registry[pattern.name](*operands, **params)

        result = build(rule.before, dtype)
        recorded, _ = builder.close([result])
    return recorded


@pytest.mark.parametrize("rule", PATTERNS, ids=lambda rule: rule.text)
def test_rule_is_exact(rule: Rule) -> None:
    fired = 0
    for dtype in DTYPES:
        try:
            before = matching(rule, dtype)
        except (DtypeError, OverflowError):
            continue  # the primitive does not take the dtype, or the dtype not the number
        hits = rules.hits[rule.text]
        after = simplify(before)
        verify_program(after)
        fired += rules.hits[rule.text] - hits
        agree(before, after)
    assert fired, "the rule never fired"


# ------------------------------------------------------------------ numbers
def test_what_is_not_exact_stays() -> None:
    @program
    def plus_zero(x: "float32[3]"):
        return ops.add(x, 0.0)

    @program
    def times_zero(x: "float32[3]"):
        return ops.multiply(x, 0.0)

    @program
    def minus_itself(x: "float32[3]"):
        return ops.subtract(x, x)

    @program
    def negative_of_zero_minus(x: "float32[3]"):
        return ops.subtract(0.0, x)

    @program
    def complex_times_one(x: "complex64[3]"):
        return ops.multiply(x, 1.0)

    @program
    def third(x: "float32[3]"):
        return ops.divide(x, 3.0)

    @program
    def by_a_subnormal(x: "float32[3]"):
        return ops.divide(x, 2.0**-130)

    @program
    def integer_half(x: "int32[3]"):
        return ops.divide(x, 2)

    for before in (
        plus_zero, times_zero, minus_itself, negative_of_zero_minus, complex_times_one, third,
        by_a_subnormal, integer_half,
    ):  # fmt: skip
        stays(before)


def test_division_by_a_power_of_two_is_a_product() -> None:
    @program
    def before(x: "float32[24]"):
        return ops.divide(x, float32(-8.0))

    @program
    def after(x: "float32[24]"):
        return ops.multiply(x, float32(-0.125))

    becomes(before, after)


def test_rules_reach_a_fixpoint_in_one_walk() -> None:
    @program
    def before(x: "float32[3]"):
        y = ops.negative(ops.multiply(ops.negative(x), 1.0))
        y = ops.integer_power(y, exponent=1)
        return ops.subtract(ops.add(y, -0.0), 0.0)

    @program
    def after(x: "float32[3]"):
        return x

    becomes(before, after)


def test_integer_powers() -> None:
    @program
    def before(x: "int32[3]"):
        return ops.integer_power(x, exponent=0), ops.integer_power(x, exponent=2)

    @program
    def after(x: "int32[3]"):
        return ops.broadcast_in_dim(int32(1), shape=(3,), dims=()), ops.multiply(x, x)

    becomes(before, after)

    @program
    def cube(x: "int32[3]"):
        return ops.integer_power(x, exponent=3)

    stays(cube)


# ------------------------------------------------------------------ truth and bits
def test_known_bits() -> None:
    @program
    def before(x: "bool[4]", y: "uint8[4]"):
        return (
            ops.bitwise_and(x, True), ops.bitwise_and(False, x), ops.bitwise_or(x, True), ops.bitwise_or(False, x),
            ops.bitwise_xor(x, True), ops.bitwise_and(y, uint8(255)), ops.bitwise_and(y, uint8(1)),
        )  # fmt: skip

    @program
    def after(x: "bool[4]", y: "uint8[4]"):
        return (
            x, ops.broadcast_in_dim(bool_(False), shape=(4,), dims=()),
            ops.broadcast_in_dim(bool_(True), shape=(4,), dims=()), x, ops.bitwise_not(x), y,
            ops.bitwise_and(y, uint8(1)),
        )  # fmt: skip

    becomes(before, after)


def test_bools_chosen_by_themselves() -> None:
    @program
    def before(p: "bool[2,3]"):
        return ops.select(p, True, False), ops.select(p, False, True), ops.select(p, float32(1), float32(0))

    @program
    def after(p: "bool[2,3]"):
        return p, ops.bitwise_not(p), ops.select(p, float32(1), float32(0))

    becomes(before, after)


def test_select_of_a_known_predicate() -> None:
    @program
    def before(x: "float32[2,1]", y: "float32[1,3]", p: "bool[2,3]"):
        yes = ops.broadcast_in_dim(bool_(True), shape=(2, 3), dims=())
        return ops.select(yes, x, y), ops.select(p, x, x), ops.select(ops.bitwise_not(p), x, y)

    @program
    def after(x: "float32[2,1]", y: "float32[1,3]", p: "bool[2,3]"):
        first = ops.broadcast_in_dim(x, shape=(2, 3), dims=(0, 1))
        second = ops.broadcast_in_dim(x, shape=(2, 3), dims=(0, 1))
        return first, second, ops.select(p, y, x)

    becomes(before, after)


# ------------------------------------------------------------------ dtypes
def test_conversions() -> None:
    @program
    def before(x: "int16[8]", y: "float32[24]", z: "bfloat16[24]"):
        there_and_back = ops.convert(ops.convert(x, dtype=np.dtype("f4")), dtype=np.dtype("i2"))
        narrowed = ops.convert(ops.convert(y, dtype=np.dtype("f2")), dtype=np.dtype("f4"))
        widened = ops.convert(ops.convert(z, dtype=np.dtype("f4")), dtype=np.dtype("f8"))
        return there_and_back, narrowed, widened, ops.convert(y, dtype=np.dtype("f4"))

    @program
    def after(x: "int16[8]", y: "float32[24]", z: "bfloat16[24]"):
        narrowed = ops.convert(ops.convert(y, dtype=np.dtype("f2")), dtype=np.dtype("f4"))
        return x, narrowed, ops.convert(z, dtype=np.dtype("f8")), y

    becomes(before, after)


def test_conversions_of_every_three_dtypes_are_exact() -> None:
    dtypes = [d for d in DTYPES if not is_complex(d)]
    for first in dtypes:
        for middle in dtypes:
            for last in dtypes:
                with Builder("before") as builder:
                    x = builder.input(TensorType((40,), first))
                    y = ops.convert(ops.convert(x, dtype=middle), dtype=last)
                    before, _ = builder.close([y])
                after = simplify(before)
                if after is not before:
                    agree(before, after)


def test_lossless_is_a_round_trip() -> None:
    for source in DTYPES:
        for target in DTYPES:
            if lossless(source, target):
                values = special(TensorType((60,), source), 0)
                with np.errstate(all="ignore"):
                    back = values.astype(target).astype(source)
                same(values, back)


# ------------------------------------------------------------------ arrays filled with a number
def test_filled_arrays_are_numbers() -> None:
    @program
    def before(x: "float32[2,3]", y: "float32[3]"):
        twos = ops.broadcast_in_dim(float32(2.0), shape=(2, 3), dims=())
        ones = ops.multiply(twos, 0.5)
        return ops.add(x, twos), ops.multiply(x, ones), ops.add(y, twos), ops.transpose(twos, permutation=(1, 0))

    @program
    def after(x: "float32[2,3]", y: "float32[3]"):
        twos = ops.broadcast_in_dim(float32(2.0), shape=(2, 3), dims=())
        added = ops.add(x, float32(2.0))
        other = ops.add(y, twos)
        return added, x, other, ops.broadcast_in_dim(float32(2.0), shape=(3, 2), dims=())

    becomes(before, after)


# ------------------------------------------------------------------ movement
def test_identities_of_movement() -> None:
    @program
    def before(x: "float32[2,3]"):
        y = ops.transpose(ops.transpose(x, permutation=(1, 0)), permutation=(1, 0))
        y = ops.reshape(ops.reshape(y, shape=(6,)), shape=(2, 3))
        y = ops.reverse(ops.reverse(y, axes=(0, 1)), axes=(1, 0))
        y = ops.slice(y, starts=(0, 0), limits=(2, 3), strides=(1, 1))
        y = ops.pad(y, float32(0.0), config=((0, 0, 0), (0, 0, 0)))
        y = ops.broadcast_in_dim(y, shape=(2, 3), dims=(0, 1))
        y = ops.concatenate(y, axis=0)
        return ops.reduce_max(y, axes=())

    @program
    def after(x: "float32[2,3]"):
        return x

    becomes(before, after)


def test_two_movements_become_one() -> None:
    @program
    def before(x: "float32[4,5,6]", y: "float32[1,3]"):
        moved = ops.transpose(ops.transpose(x, permutation=(1, 2, 0)), permutation=(0, 2, 1))
        cut = ops.slice(x, starts=(1, 0, 2), limits=(4, 5, 6), strides=(2, 1, 3))
        cut = ops.slice(cut, starts=(1, 1, 0), limits=(2, 5, 2), strides=(1, 3, 1))
        wide = ops.broadcast_in_dim(y, shape=(2, 1, 3), dims=(1, 2))
        wide = ops.broadcast_in_dim(wide, shape=(2, 4, 4, 3), dims=(0, 2, 3))
        turned = ops.reverse(ops.reverse(x, axes=(0, 1)), axes=(2, 1))
        return moved, cut, wide, turned, ops.reverse(y, axes=(0, 1))

    @program
    def after(x: "float32[4,5,6]", y: "float32[1,3]"):
        moved = ops.transpose(x, permutation=(1, 0, 2))
        cut = ops.slice(x, starts=(3, 1, 2), limits=(4, 5, 6), strides=(2, 3, 3))
        wide = ops.broadcast_in_dim(y, shape=(2, 4, 4, 3), dims=(2, 3))
        turned = ops.reverse(x, axes=(0, 2))
        return moved, cut, wide, turned, ops.reverse(y, axes=(1,))

    becomes(before, after)


def test_empty_parts_and_known_places() -> None:
    @program
    def before(x: "float32[2,3]", y: "float32[0,3]"):
        joined = ops.concatenate(y, x, y, axis=0)
        taken = ops.dynamic_slice(x, int32(7), int32(-1), sizes=(1, 2))
        ones = ops.broadcast_in_dim(float32(1.0), shape=(2,), dims=())
        padded = ops.pad(ones, float32(1.0), config=((1, 2, 1),))
        empty = ops.slice(x, starts=(0, 1), limits=(2, 3), strides=(1, 1))
        empty = ops.slice(empty, starts=(1, 2), limits=(1, 2), strides=(1, 1))
        return joined, taken, padded, empty, ops.reduce_max(ops.reshape(x, shape=(2, 1, 3)), axes=(1,))

    @program
    def after(x: "float32[2,3]", y: "float32[0,3]"):
        taken = ops.slice(x, starts=(1, 0), limits=(2, 2), strides=(1, 1))
        padded = ops.broadcast_in_dim(float32(1.0), shape=(6,), dims=())
        empty = ops.slice(x, starts=(0, 0), limits=(0, 0), strides=(1, 1))
        return x, taken, padded, empty, x

    becomes(before, after)


def test_a_sum_over_one_element_keeps_the_sign_of_zero() -> None:
    @program
    def before(x: "float32[1]"):
        return ops.reduce_sum(x, axes=(0,)), ops.reduce_sum(x, axes=())

    stays(before)


# ------------------------------------------------------------------ cond
@program
def add_one(x: "float32[3]", y: "float32[3]"):
    return ops.add(x, 1.0), y


@program
def double(x: "float32[3]", y: "float32[3]"):
    return ops.add(x, x), y


def test_cond_of_a_known_index_is_its_branch() -> None:
    @program
    def before(x: "float32[3]", y: "float32[3]"):
        return ops.cond(int32(9), x, y, branches=(add_one, double))

    @program
    def after(x: "float32[3]", y: "float32[3]"):
        return ops.add(x, x), y

    becomes(before, after)


def test_cond_of_equal_branches_is_the_branch() -> None:
    @program
    def before(i: "int32[]", x: "float32[3]"):
        return ops.cond(i, x, x, branches=(add_one, add_one))

    @program
    def after(i: "int32[]", x: "float32[3]"):
        return ops.add(x, 1.0), x

    becomes(before, after)


def test_cond_hands_over_only_what_branches_use() -> None:
    @program
    def before(i: "int32[]", x: "float32[3]", y: "float32[3]"):
        return ops.cond(i, x, y, branches=(add_one, double))

    @program
    def left(x: "float32[3]"):
        return ops.add(x, 1.0)

    @program
    def right(x: "float32[3]"):
        return ops.add(x, x)

    @program
    def after(i: "int32[]", x: "float32[3]", y: "float32[3]"):
        (z,) = ops.cond(i, x, branches=(left, right))
        return z, y

    becomes(before, after)


def test_cond_without_its_dead_results() -> None:
    @program
    def one(x: "float32[3]"):
        return ops.sin(x), ops.exp(x)

    @program
    def other(x: "float32[3]"):
        return ops.cos(x), ops.tanh(x)

    @program
    def before(i: "int32[]", x: "float32[3]"):
        return ops.cond(i, x, branches=(one, other))[1]

    @program
    def exponential(x: "float32[3]"):
        return ops.exp(x)

    @program
    def tangent(x: "float32[3]"):
        return ops.tanh(x)

    @program
    def after(i: "int32[]", x: "float32[3]"):
        return ops.cond(i, x, branches=(exponential, tangent))

    becomes(before, after)


# ------------------------------------------------------------------ scan
def scan(*operands: object, body: Program, constants: int, carries: int, length: int, reverse: bool = False) -> object:
    return ops.scan(*operands, body=body, constants=constants, carries=carries, length=length, reverse=reverse)


def test_scan_of_no_steps() -> None:
    @program
    def body(c: "float32[3]", x: "float32[2]"):
        return ops.add(c, c), ops.negative(x)

    @program
    def before(c: "float32[3]", x: "float32[0,2]"):
        return scan(c, x, body=body, constants=0, carries=1, length=0)

    @program
    def after(c: "float32[3]", x: "float32[0,2]"):
        return c, ops.broadcast_in_dim(float32(0.0), shape=(0, 2), dims=())

    becomes(before, after)


def test_scan_with_still_carries_known_ys_and_unused_operands() -> None:
    @program
    def body(k: "float32[]", unused: "float32[5]", c: "float32[]", still: "float32[]", x: "float32[]", z: "float32[]"):
        following = ops.add(ops.multiply(c, k), ops.multiply(still, x))
        return following, still, ops.exp(c), x, k

    @program
    def before(c: "float32[]", still: "float32[]", big: "float32[5]", x: "float32[4]", z: "float32[4]"):
        return scan(float32(1.0), big, c, still, x, z, body=body, constants=2, carries=2, length=4)

    @program
    def shorter(still: "float32[]", c: "float32[]", x: "float32[]"):
        return ops.add(c, ops.multiply(still, x)), ops.exp(c)

    @program
    def after(c: "float32[]", still: "float32[]", big: "float32[5]", x: "float32[4]", z: "float32[4]"):
        ones = ops.broadcast_in_dim(float32(1.0), shape=(4,), dims=())
        final, ys = scan(still, c, x, body=shorter, constants=1, carries=1, length=4)
        return final, still, ys, x, ones

    becomes(before, after)


def test_scan_over_equal_slices_takes_them_as_numbers() -> None:
    @program
    def body(c: "float32[2]", x: "float32[2]"):
        return ops.multiply(ops.add(c, x), x)

    @program
    def before(c: "float32[2]"):
        ones = ops.broadcast_in_dim(float32(1.0), shape=(4, 2), dims=())
        return scan(c, ones, body=body, constants=0, carries=1, length=4)

    @program
    def shorter(c: "float32[2]"):
        return ops.add(c, float32(1.0))

    @program
    def after(c: "float32[2]"):
        return scan(c, body=shorter, constants=0, carries=1, length=4)

    becomes(before, after)


def test_scan_without_dead_carries_and_ys() -> None:
    @program
    def body(c: "float32[]", d: "float32[]", e: "float32[]", x: "float32[]"):
        return ops.add(c, d), ops.multiply(d, x), ops.exp(e), ops.sin(c), ops.cos(e)

    @program
    def before(c: "float32[]", d: "float32[]", e: "float32[]", x: "float32[4]"):
        results = scan(c, d, e, x, body=body, constants=0, carries=3, length=4, reverse=True)
        return results[0]

    @program
    def shorter(c: "float32[]", d: "float32[]", x: "float32[]"):
        return ops.add(c, d), ops.multiply(d, x)

    @program
    def after(c: "float32[]", d: "float32[]", e: "float32[]", x: "float32[4]"):
        return scan(c, d, x, body=shorter, constants=0, carries=2, length=4, reverse=True)[0]

    becomes(before, after)


def test_nested_scans_are_pruned_from_the_outside() -> None:
    @program
    def inner(c: "float32[]", d: "float32[]"):
        return ops.sin(c), ops.cos(d)

    @program
    def outer(c: "float32[]", d: "float32[]"):
        return scan(c, d, body=inner, constants=0, carries=2, length=3)

    @program
    def before(c: "float32[]", d: "float32[]"):
        return scan(c, d, body=outer, constants=0, carries=2, length=2)[0]

    @program
    def sine(c: "float32[]"):
        return ops.sin(c)

    @program
    def sines(c: "float32[]"):
        return scan(c, body=sine, constants=0, carries=1, length=3)

    @program
    def after(c: "float32[]", d: "float32[]"):
        return scan(c, body=sines, constants=0, carries=1, length=2)

    becomes(before, after)


# ------------------------------------------------------------------ while_loop
def test_while_loop_that_does_not_begin() -> None:
    @program
    def never(x: "float32[]"):
        return ops.less(float32(1.0), float32(0.0))

    @program
    def body(x: "float32[]"):
        return ops.add(x, 1.0)

    @program
    def before(x: "float32[]"):
        condition = simplify(never)
        return ops.while_loop(x, condition=condition, body=body, condition_constants=0, body_constants=0)

    @program
    def after(x: "float32[]"):
        return x

    becomes(before, after)


def test_while_loop_with_still_and_dead_carries_and_numbers() -> None:
    @program
    def condition(limit: "int32[]", i: "int32[]", x: "float32[]", step: "int32[]", dead: "float32[]"):
        return ops.less(i, limit)

    @program
    def body(unused: "float32[7]", i: "int32[]", x: "float32[]", step: "int32[]", dead: "float32[]"):
        return ops.add(i, step), ops.add(x, 0.5), step, ops.exp(dead)

    @program
    def before(x: "float32[]", big: "float32[7]", dead: "float32[]"):
        results = ops.while_loop(
            int32(5), big, int32(0), x, int32(2), dead,
            condition=condition, body=body, condition_constants=1, body_constants=1,
        )  # fmt: skip
        return results[1], results[2]

    @program
    def test(i: "int32[]", x: "float32[]"):
        return ops.less(i, int32(5))

    @program
    def step(i: "int32[]", x: "float32[]"):
        return ops.add(i, int32(2)), ops.add(x, 0.5)

    @program
    def after(x: "float32[]", big: "float32[7]", dead: "float32[]"):
        results = ops.while_loop(int32(0), x, condition=test, body=step, condition_constants=0, body_constants=0)
        return results[1], int32(2)

    becomes(before, after)


# ------------------------------------------------------------------ literals that became known
def test_numbers_are_folded_as_they_appear() -> None:
    @program
    def before(x: "float64[]"):
        twos = ops.broadcast_in_dim(float64(2.0), shape=(3,), dims=())
        row = ops.slice(twos, starts=(0,), limits=(1,), strides=(1,))
        return ops.multiply(ops.reshape(row, shape=()), float64(inf)), x

    after = simplify(before)
    assert not after.equations
    literal = after.outputs[0]
    assert isinstance(literal, Literal) and literal.value == np.inf
    assert isinstance(after.outputs[1], Var)
