"""while_loop and fori_loop against jax and against Python loops."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from control_cases import check, check_forward_only, compare

import rlx
from rlx import errors, lax
from rlx.ir.program import dead_code

F = np.float32


def _collatz(lib):
    L = lib.lax

    def function(n):
        def step(carry):
            n, count = carry
            even = L.eq(L.rem(n, np.int32(2)), np.int32(0))
            halved, tripled = L.div(n, np.int32(2)), L.add(L.mul(n, np.int32(3)), np.int32(1))
            return L.select(even, halved, tripled), L.add(count, np.int32(1))

        return L.while_loop(lambda c: L.gt(c[0], np.int32(1)), step, (n, np.int32(0)))

    return function


def test_while_values():
    check_forward_only(_collatz, np.int32(27))


def test_ragged_trip_counts_under_vmap():
    numbers = np.array([1, 2, 3, 7, 27], np.int32)
    compare(rlx.vmap(_collatz(rlx))(numbers), jax.vmap(_collatz(jax))(numbers))
    compare(rlx.jit(rlx.vmap(_collatz(rlx)))(numbers), jax.vmap(_collatz(jax))(numbers))


def _doubling(x):
    """x -> sin(1.5 x) until it would pass 0.9, with a count."""
    return lax.while_loop(
        lambda c: lax.lt(c[0], F(5.0)),
        lambda c: (lax.add(lax.mul(c[0], F(1.5)), lax.sin(c[0])), lax.add(c[1], 1)),
        (x, 0),
    )[0]


@pytest.mark.selected(1)
@pytest.mark.parametrize("x", [0.1, 0.5, 1.0, 6.0])
def test_reverse_mode_equals_the_python_loop(x):
    expected = jax.grad(partial(_unrolled, count=_count(F(x))))(F(x))
    compare(rlx.grad(_doubling)(F(x)), expected)
    compare(rlx.jit(rlx.grad(_doubling))(F(x)), expected)
    compare(rlx.jvp(_doubling, (F(x),), (F(1),))[1], expected)
    second = jax.grad(jax.grad(partial(_unrolled, count=_count(F(0.1)))))(F(0.1))
    compare(rlx.grad(rlx.grad(_doubling))(F(0.1)), second, 1e-4)


def _count(x):
    count, value = 0, x
    while value < 5.0:
        value, count = value * F(1.5) + np.sin(value), count + 1
    return count


def _unrolled(x, count):
    for _ in range(count):
        x = x * F(1.5) + jax.lax.sin(x)
    return x


def test_reverse_mode_under_vmap():
    xs = np.array([0.1, 0.5, 1.0, 6.0], F)
    expected = [jax.grad(partial(_unrolled, count=_count(x)))(x) for x in xs]
    compare(rlx.vmap(rlx.grad(_doubling))(xs), np.stack(expected))
    compare(rlx.grad(lambda v: lax.reduce_sum(rlx.vmap(_doubling)(v), (0,)))(xs), np.stack(expected))


def test_while_with_captured_values():
    def build(lib):
        L = lib.lax

        def function(limit, x, step):
            scaled = L.mul(step, F(2))
            return L.while_loop(lambda v: L.lt(v, limit), lambda v: L.add(v, scaled), x)

        return function

    check_forward_only(build, F(3.0), F(0.0), F(0.2))
    gradient = rlx.grad(build(rlx), argnums=(1, 2))(F(3.0), F(0.0), F(0.2))
    compare(gradient, (F(1), F(16)))


def test_never_entered():
    def function(x):
        return lax.while_loop(lambda v: lax.lt(v, F(0)), lambda v: lax.sin(v), x)

    compare(function(F(2)), F(2))
    compare(rlx.grad(function)(F(2)), F(1))


@pytest.mark.thorough
def test_fori_constant_bounds():
    def build(lib):
        L = lib.lax

        def body(i, v):
            return L.add(L.sin(v), L.convert_element_type(i, "float32"))

        return lambda x: L.fori_loop(2, 6, body, x)

    check(build, np.array([0.2, 0.4], F))


def test_fori_traced_bounds():
    def build(lib):
        L = lib.lax
        return lambda n, x: L.fori_loop(0, n, lambda i, v: L.sin(v), x)

    check_forward_only(build, np.int32(4), F(0.7))
    compare(
        rlx.jit(rlx.grad(build(rlx), 1))(np.int32(4), F(0.7)),
        jax.grad(lambda x: build(jax)(4, x))(F(0.7)),
    )


def test_fori_empty_and_backwards():
    for lower, upper in [(3, 3), (5, 1)]:
        assert int(np.asarray(lax.fori_loop(lower, upper, lambda i, v: v + 1, np.int32(7)))) == 7


def test_fori_counter_dtype():
    seen = []
    lax.fori_loop(0, 2, lambda i, v: (seen.append((i.dtype, i.weak_type)), v)[1], F(0))
    assert seen[0] == (np.dtype("i4"), True)
    seen.clear()
    lax.fori_loop(np.int8(0), np.int8(2), lambda i, v: (seen.append(i.dtype), v)[1], F(0))
    assert seen[0] == np.dtype("i1")


def test_python_loops_under_disable_jit():
    with rlx.disable_jit():
        assert int(np.asarray(lax.fori_loop(0, 5, lambda i, v: v + i, 0))) == 10
        assert int(np.asarray(lax.while_loop(lambda v: v < 10, lambda v: v * 2, 1))) == 16


def test_weak_initial_carry():
    def body(v):
        return lax.add(v[0], 1), lax.mul(v[1], np.float16(2))

    out = lax.while_loop(lambda v: lax.lt(v[0], 3), body, (0, 1.0))
    assert out[1].dtype == np.float16


# ------------------------------------------------------------- errors
def test_condition_must_be_one_bool():
    with pytest.raises(errors.ControlFlowTypeError, match="a scalar bool"):
        lax.while_loop(lambda v: lax.lt(v, F(1)), lambda v: v, np.zeros(2, F))
    with pytest.raises(errors.ControlFlowTypeError, match="a scalar bool"):
        lax.while_loop(lambda v: (True, True), lambda v: v, F(0))


def test_body_type_is_named():
    with pytest.raises(errors.ControlFlowTypeError, match=r"carry\[1\].*float32\[\].*int32\[\]"):
        lax.while_loop(lambda v: True, lambda v: (v[0], np.int32(1)), (F(0), F(0)))


def test_the_condition_is_a_bool():
    """Numbers are refused, jitted and not."""
    for run in (lambda f: f, rlx.jit):
        with pytest.raises(errors.ControlFlowTypeError, match="scalar bool"):
            run(lambda n: lax.while_loop(lambda v: v, lambda v: v - 1, n))(3)
        with pytest.raises(errors.ControlFlowTypeError, match="scalar bool"):
            run(lambda n: lax.while_loop(lambda v: v > 0, lambda v: v - 1, n))(np.ones(2))


def test_bounds_are_checked():
    with pytest.raises(errors.ControlFlowTypeError, match="real scalars"):
        lax.fori_loop(0j, 3, lambda i, v: v, 0)
    with pytest.raises(errors.ControlFlowTypeError, match="unroll"):
        rlx.jit(lambda n: lax.fori_loop(0, n, lambda i, v: v, 0, unroll=2))(3)


def test_bounds_may_be_floats():
    """The counter goes up by one."""
    assert lax.fori_loop(0.5, 3.0, lambda i, v: v + i, 0.0).item() == 0.5 + 1.5 + 2.5
    with pytest.raises(errors.ControlFlowTypeError, match="dtypes"):
        lax.fori_loop(np.int32(0), np.asarray(3, np.int64), lambda i, v: v, 0)


# what each step writes into a carry: at the lane's own index, beyond the end, at one for all lanes, at one twice
_WRITES = {
    "scatter": lambda lib, x, i: x.at[i].set(i * 2.0),
    "slice": lambda lib, x, i: lib.lax.dynamic_update_slice(x, x[:2] + 1.0, (i,)),
    "beyond": lambda lib, x, i: x.at[i + 6].set(-1.0),
    "one place": lambda lib, x, i: x.at[0].set(i * 1.0),
    "twice": lambda lib, x, i: x.at[i].set(x[i - 1] + 1.0).at[lib.numpy.array([1, 1, 3])].set(i * 1.0),
}


def _writing(lib, write):
    def function(i, x):
        def step(carry):
            i, x = carry
            return i + 1, write(lib, x, i)

        return lib.lax.while_loop(lambda c: c[0] < 7, step, (i, x))

    return function


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
def test_lanes_that_are_done_keep_what_others_write_into(write):
    starts, xs = np.array([0, 5, 7, 9], np.int32), np.arange(32, dtype=F).reshape(4, 8)
    compare(rlx.jit(rlx.vmap(_writing(rlx, write)))(starts, xs), jax.vmap(_writing(jax, write))(starts, xs))
    nested, several = (np.stack([a, a[::-1]]) for a in (starts, xs))
    expected = jax.vmap(jax.vmap(_writing(jax, write)))(nested, several)
    compare(rlx.vmap(rlx.vmap(_writing(rlx, write)))(nested, several), expected)


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
def test_a_mapped_loop_copies_no_carry_that_it_writes_into(write):
    loop = rlx.vmap(_writing(rlx, write))
    program = rlx.make_program(loop)(np.zeros(3, np.int32), np.zeros((3, 8), F))
    (body,) = [e.params["body"] for e in program.equations if e.primitive.name == "while_loop"]
    used = dead_code(body).equations
    assert not [e for e in used if e.primitive.name == "select" and e.outputs[0].type.shape == (3, 8)]
