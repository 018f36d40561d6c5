"""Loops that write over parts of what they carry: in place, and equal on both backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from native_plans import agree

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.ir.kernels import Loops, Plan, Scan, While, nested_plans
from rlx.ir.rename import renamed
from rlx.ir.verify_plan import verify_plan

rng = np.random.default_rng(5)


def compiled(function: Callable, *arrays: np.ndarray) -> Plan:
    """The verified plan of a function of arrays."""
    plan = rlx.jit(function).lower(*arrays).compile().plan
    verify_plan(plan)
    return plan


def loops(plan: Plan) -> Iterator[Scan | While]:
    """Scans and while loops of a plan, outer ones first."""
    for kernel in plan.kernels:
        if isinstance(kernel, (Scan, While)):
            yield kernel
        for inner in nested_plans(kernel):
            yield from loops(inner)


def check(function: Callable, expected: np.ndarray, *arrays: np.ndarray) -> Plan:
    plan = compiled(function, *arrays)
    results = agree(plan, *arrays, rtol=1e-6)
    np.testing.assert_allclose(results[0], expected.reshape(-1), rtol=1e-5)
    return plan


def vector(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("size", [12, 500])
def test_elements_of_a_carried_vector(size):
    def function(x):
        return lax.fori_loop(0, 10, lambda i, x: x.at[i].set(x[i - 1] * 0.5 + 1.0), x)

    x = vector(size)
    expected = x.copy()
    for i in range(10):
        expected[i] = expected[i - 1] * np.float32(0.5) + 1
    plan = check(function, expected, x)
    (loop,) = loops(plan)
    assert len(loop.in_place) == 1


def test_a_while_loop_updates_in_place():
    def function(x):
        state = lax.while_loop(
            lambda s: s[1][s[0]] < 5.0, lambda s: (s[0] + 1, s[1].at[s[0] + 1].add(s[1][s[0]])), (0, x)
        )
        return state[1]

    x = np.ones(300, np.float32)
    expected = x.copy()
    for i in range(4):
        expected[i + 1] += expected[i]
    plan = check(function, expected, x)
    (loop,) = loops(plan)
    assert isinstance(loop, While) and len(loop.in_place) == 1


def test_rows_that_grow_by_themselves():
    def function(x):
        return lax.fori_loop(0, 4, lambda i, x: x.at[i].set(jnp.exp(x[i]) * 2), x)

    x = vector(6, 700)
    expected = x.copy()
    expected[:4] = np.exp(x[:4]) * 2
    plan = check(function, expected, x)
    (loop,) = loops(plan)
    assert len(loop.in_place) == 1
    assert all(isinstance(k, Loops) and k.sizes in ((), (700,)) for k in loop.body.kernels)


def test_a_row_made_of_another_row_is_read_before_it_is_written():
    def function(x):
        def step(i, x):
            return x.at[i].set(x[i + 1] + jnp.roll(x[i], 1))

        return lax.fori_loop(0, 4, step, x)

    x = vector(6, 300)
    expected = x.copy()
    for i in range(4):
        expected[i] = expected[i + 1] + np.roll(expected[i], 1)
    check(function, expected, x)


def test_an_old_value_that_is_needed_afterwards_is_kept():
    def function(x):
        def step(i, carry):
            x, total = carry
            new = x.at[i].set(1.0)
            return new, total + (x * jnp.roll(new, 1)).sum()

        return lax.fori_loop(0, 5, step, (x, jnp.float32(0)))[1]

    x = vector(400)
    current, total = x.copy(), np.float32(0)
    for i in range(5):
        new = current.copy()
        new[i] = 1
        total += (current * np.roll(new, 1)).sum()
        current = new
    check(function, np.asarray(total), x)


def test_two_updates_in_one_step_and_a_stacked_result():
    def function(x, v):
        def step(x, t):
            i, value = t
            x = x.at[i].set(value)
            x = x.at[i + 1].multiply(2.0)
            return x, x[0] + x[i]

        return lax.scan(step, x, (jnp.arange(5), v))

    x, v = vector(200), vector(5)
    expected = x.copy()
    for i in range(5):
        expected[i] = v[i]
        expected[i + 1] *= 2
    plan = check(function, expected, x, v)
    (loop,) = loops(plan)
    assert loop.in_place == (0,)


def test_a_loop_in_a_loop_works_on_the_outer_loops_carry():
    def function(x):
        def row(i, x):
            return lax.fori_loop(0, 3, lambda j, x: x.at[i, j].set(x[i, j] + x[j, i]), x)

        return lax.fori_loop(0, 3, row, x)

    x = vector(20, 20)
    expected = x.copy()
    for i in range(3):
        for j in range(3):
            expected[i, j] += expected[j, i]
    plan = check(function, expected, x)
    assert [len(loop.in_place) for loop in loops(plan)] == [1, 1]


def test_updates_out_of_bounds_are_dropped():
    def function(x):
        return lax.fori_loop(0, 8, lambda i, x: x.at[2 * i].add(1.0, mode="drop"), x)

    x = vector(9)
    expected = x.copy()
    expected[::2] += 1
    check(function, expected, x)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_few_steps(steps):
    def function(x):
        return lax.fori_loop(0, steps, lambda i, x: x.at[i].set(jnp.sin(x).sum()), x)

    x = vector(1000)
    expected = x.copy()
    for i in range(steps):
        expected[i] = np.sin(expected).sum()
    check(function, expected, x)


@pytest.mark.parametrize("dtype", ["complex64", "float16", "bool", "int64"])
def test_dtypes(dtype):
    def function(x, v):
        return lax.fori_loop(0, 5, lambda i, x: x.at[i + 3].set(v[i]), x)

    x, v = np.zeros(90, dtype), np.arange(5).astype(dtype)
    if dtype == "complex64":
        v = v + np.complex64(1j)
    plan = compiled(function, x, v)
    (result,) = agree(plan, x, v)
    expected = x.copy()
    expected[3:8] = v
    np.testing.assert_array_equal(result, expected)
    (loop,) = loops(plan)
    assert len(loop.in_place) == 1


def test_the_operand_is_left_as_it_was():
    x = jnp.zeros(50)
    rlx.jit(lambda x: lax.fori_loop(0, 5, lambda i, x: x.at[i].set(1.0), x))(x)
    assert float(x.sum()) == 0.0


def test_gradient_of_look_ups_adds_to_the_rows_that_were_read():
    def loss(p, x):
        c, _ = lax.scan(lambda c, i: (jnp.tanh(c * p[i]), None), x, jnp.arange(20) % 7)
        return c.sum()

    p, x = vector(50, 8), vector(8)
    gradient = rlx.grad(loss)
    plan = compiled(gradient, p, x)
    (result,) = agree(plan, p, x, rtol=1e-5)
    np.testing.assert_allclose(result, np.asarray(gradient(p, x)).ravel(), rtol=1e-4, atol=1e-6)
    backward = list(loops(plan))[1]
    assert len(backward.in_place) == 1
    assert all(b.size < p.size for b in backward.body.buffers if b.role == "temporary")


def test_gradient_of_updates_in_place_is_in_place():
    def loss(x):
        return (lax.fori_loop(0, 10, lambda i, x: x.at[i].set(x[i - 1] * 0.5 + 1.0), x) ** 2).sum()

    x = vector(1000)
    gradient = rlx.grad(loss)
    plan = compiled(gradient, x)
    (result,) = agree(plan, x, rtol=1e-5)
    np.testing.assert_allclose(result, gradient(x), rtol=1e-4)
    assert [len(loop.in_place) for loop in loops(plan)] == [1, 1]


@pytest.mark.parametrize("position", [0, 3, 30])
def test_sums_of_parts_written_into_zeros(position):
    def function(x, y, i):
        spread = lax.dynamic_update_slice(jnp.zeros(20), y, (i,))
        return jnp.sin(x) + spread, spread + jnp.zeros(20).at[jnp.stack([i, i])].add(y[:2])

    x, y = vector(20), vector(4)
    i = np.int32(position)
    for mine, eager in zip(rlx.jit(function)(x, y, i), function(x, y, i), strict=True):
        np.testing.assert_allclose(mine, eager, rtol=1e-5, atol=1e-6)


def test_loops_share_code_whether_or_not_the_carry_is_there_already():
    def function(x, y):
        def row(i, x):
            return lax.fori_loop(0, 3, lambda j, x: x.at[i, j].add(x[j, 2] * 0.1), x)

        def step(i, carry):
            x, y = carry
            return row(i, x), row(i, row(i, y))

        return lax.fori_loop(0, 2, step, (x, y))

    x, y = vector(6, 6), vector(6, 6)
    expected = [x.copy(), y.copy()]
    for i in range(2):
        for array, times in zip(expected, (1, 2), strict=True):
            for j in list(range(3)) * times:
                array[i, j] += array[j, 2] * np.float32(0.1)
    for mine, theirs in zip(rlx.jit(function)(x, y), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    agree(compiled(function, x, y), x, y, rtol=1e-5)


def test_a_chain_of_updates_is_one_buffer_and_takes_time_in_proportion(monkeypatch):
    def chain(length: int) -> Callable:
        def function(x, v):
            for i in range(length):
                x = x.at[i % 50].add(v[i % 7] * 1.5)
            return x

        return function

    def renames(length: int) -> int:
        counted = 0

        def counting(kernel, buffers):
            nonlocal counted
            counted += 1
            return renamed(kernel, buffers)

        monkeypatch.setattr("rlx.planning.in_place.renamed", counting)
        rlx.inspect(chain(length))(vector(100), vector(7)).plan  # noqa: B018
        return counted

    x, v = vector(100), vector(7)
    expected = x.copy()
    for i in range(40):
        expected[i % 50] += v[i % 7] * np.float32(1.5)
    plan = check(chain(40), expected, x, v)
    assert plan.arena == 0  # no copy is kept between steps
    assert 0 < renames(82) < 2.2 * renames(41)
