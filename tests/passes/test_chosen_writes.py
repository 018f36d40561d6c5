"""An array, or what was written into it: the choice is made for what is written, and nothing else is copied."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp

N = 24
START = np.int32(3)
ROWS = jnp.arange(4 * N, dtype=np.float32).reshape(4, N)
STARTS = np.array([0, 5, N - 1, 2 * N], np.int32)
GOES_ON = np.array([True, False, True, True])

WRITES = {
    "scatter": lambda x, i: x.at[i].set(-1.0),
    "window": lambda x, i: rlx.lax.dynamic_update_slice(x, x[:3] * 2, (i,)),
    "twice": lambda x, i: x.at[i].set(-1.0).at[jnp.array([1, 1, 3])].set(i * 1.0),
    "after what it read": lambda x, i: x.at[i].set(x[i - 1] + x[0]).at[i + 1].set(x[i]),
}


def _selects(function, *args):
    """The shapes that are chosen between, in loops too, once the program is optimised."""
    (stage,) = (s for s in rlx.inspect(function)(*args).stages if s.name == "dce")
    bodies = [e.params["body"] for e in stage.form.equations if e.primitive.name == "while_loop"]
    equations = [e for program in (stage.form, *bodies) for e in program.equations]
    return [e.outputs[0].type.shape for e in equations if e.primitive.name == "select"]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("goes_on", [True, False])
def test_one_predicate_chooses_what_is_written(write, goes_on):
    def chosen(goes_on, x, i):
        return jnp.where(goes_on, write(x, i), x)

    def otherwise(goes_on, x, i):
        return jnp.where(goes_on, x, jnp.array(write(x, i)))

    for function in (chosen, otherwise):
        found = rlx.jit(function)(goes_on, ROWS[0], START)
        np.testing.assert_array_equal(found, function(goes_on, ROWS[0], START))
        assert (N,) not in _selects(function, goes_on, ROWS[0], START)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_lanes_choose_what_is_written(write):
    def chosen(goes_on, x, i):
        return jnp.where(goes_on[:, None], rlx.vmap(write)(x, i), x)

    found = rlx.jit(chosen)(GOES_ON, ROWS, STARTS)
    np.testing.assert_array_equal(found, chosen(GOES_ON, ROWS, STARTS))
    assert (4, N) not in _selects(chosen, GOES_ON, ROWS, STARTS)


KEPT = {
    "another array": lambda p, x, i: jnp.where(p[0], x.at[0, i].set(1.0), x + 1),
    "columns": lambda p, x, i: jnp.where(x[0] > 3, x.at[0, i].set(1.0), x),
    "across lanes": lambda p, x, i: jnp.where(p[:, None], x.at[jnp.array([2, 0]), i].set(1.0), x),
    "most of it": lambda p, x, i: jnp.where(p[0], rlx.lax.dynamic_update_slice(x, x[:, 1:] * 2, (0, i)), x),
}


@pytest.mark.parametrize("function", KEPT.values(), ids=KEPT)
def test_other_choices_stay(function):
    found = rlx.jit(function)(GOES_ON, ROWS, START)
    np.testing.assert_array_equal(found, function(GOES_ON, ROWS, START))
    assert (4, N) in _selects(function, GOES_ON, ROWS, START)


def test_a_loop_that_chooses_its_whole_carry_writes_in_place():
    def step(carry):
        i, goes_on, xs = carry
        written = jnp.where(goes_on[:, None], rlx.vmap(lambda x, i: x.at[i].set(i * 2.0))(xs, i), xs)
        return jnp.where(goes_on, i + 1, i), goes_on & (i < 7), written

    def loop(i, xs):
        i = jnp.asarray(i)
        return rlx.lax.while_loop(lambda c: c[1].any(), step, (i, i < 7, xs))

    starts = np.array([0, 3, 7, 9], np.int32)
    expected = np.array(ROWS)
    for row, start in enumerate(starts):
        for i in range(start, 8 if start < 7 else start):
            expected[row, i] = i * 2.0
    np.testing.assert_array_equal(rlx.jit(loop)(starts, ROWS)[2], expected)
    assert (4, N) not in _selects(loop, starts, ROWS)
