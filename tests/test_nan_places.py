"""debug_nans names the user's line, the iteration and the operands' values, in every transform, eager and jitted."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors, lax

START = jnp.array([3.5, 4.0, 5.0])
LARGE = jnp.arange(100.0)


def log_of(x: Any) -> Any:
    """The logarithm of x - 2."""
    return jnp.log(x - 2)  # the line


def total(x: Any) -> Any:
    """A loss whose derivative, not its value, has a NaN."""
    return (jnp.sqrt(x - x) * 0).sum()  # the line


def step(c: Any, _: Any) -> Any:
    """One step of a loop whose derivative has a NaN."""
    return c * (1 + 0 * jnp.sqrt(c - c)), None  # the line


def looped(x: Any) -> Any:
    """log_of four times; it makes a NaN in iteration 1."""
    return lax.fori_loop(0, 4, lambda i, c: log_of(c), x)


def scanned(x: Any) -> Any:
    """The same as a scan."""
    return lax.scan(lambda c, _: (log_of(c), None), x, None, length=4)[0]


def repeated(x: Any) -> Any:
    """The same as a while_loop."""
    return lax.while_loop(lambda c: c.sum() < 100, log_of, x)


def chosen(x: Any) -> Any:
    """log_of of negative numbers in a branch."""
    return lax.cond(x.sum() > 0, lambda y: log_of(y - 4), lambda y: y, x)


def nested(x: Any) -> Any:
    """A loop in a loop."""
    return lax.fori_loop(0, 3, lambda i, c: looped(c), x)


SECOND = "[-1.594535, -1.306853, -0.901388]. It happened in iteration 1, counted from 0, of a "
FORI = SECOND + "loop of 4 steps."
SLOPE = "multiply made a NaN"
CASES: dict[str, tuple[Callable[[Any], Any], Any, str, str]] = {
    "plain": (log_of, 1 - START, "log", "[-4.5, -5. , -6. ]."),
    "large": (log_of, LARGE, "log", "values from -2 to 97."),
    "scan": (scanned, START, "log", FORI),
    "fori_loop": (looped, START, "log", FORI),
    "while_loop": (repeated, START, "log", SECOND + "while_loop."),
    "cond": (chosen, START, "log", "[-2.5, -2. , -1. ]."),
    "nested": (nested, START, "log", FORI[:-1] + ", in iteration 0, counted from 0, of a loop of 3 steps."),
    "vmap": (rlx.vmap(log_of), 1 - START, "log", "[-4.5, -5. , -6. ]."),
    "vmap of scan": (rlx.vmap(scanned), START, "log", FORI),
    "vmap of fori_loop": (rlx.vmap(looped), START, "log", FORI),
    "vmap of while_loop": (rlx.vmap(repeated), START[:1], "log", "of a while_loop."),
    "vmap of cond": (rlx.vmap(chosen), START, "log", "[-2.5, -2. , -1. ]."),
    "value_and_grad": (rlx.value_and_grad(lambda x: log_of(x).sum()), 1 - START, "log", "[-4.5, -5. , -6. ]."),
    "grad of scan": (rlx.grad(lambda x: scanned(x).sum()), START, "log", FORI),
    "grad of fori_loop": (rlx.grad(lambda x: looped(x).sum()), START, "log", FORI),
    "slope": (rlx.grad(total), START, "multiply", "[0., 0., 0.]; [inf, inf, inf]."),
    "vmap of slope": (rlx.vmap(rlx.grad(total)), START, "multiply", "; [inf, inf, inf]."),
    "slope of scan": (
        rlx.grad(lambda x: lax.scan(step, x, None, length=3)[0].sum()),
        START,
        "multiply",
        "[inf, inf, inf]. It happened in iteration 2, counted from 0, of a reverse loop of 3 steps.",
    ),
    "jvp": (lambda x: rlx.jvp(log_of, (x,), (x,)), 1 - START, "log", "[-4.5, -5. , -6. ]."),
    "checkpoint": (rlx.checkpoint(log_of), 1 - START, "log", "[-4.5, -5. , -6. ]."),
}


@pytest.mark.selected("all")
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", CASES)
def test_names_line_iteration_and_values(name: str, jitted: bool) -> None:
    function, start, operation, values = CASES[name]
    with rlx.debug_nans(True), pytest.raises(errors.NanError) as caught:
        (rlx.jit(function) if jitted else function)(start)
    what, place, text, *_ = str(caught.value).splitlines()
    assert what.startswith(f"{operation} made a NaN from operands (")
    assert what.endswith(values)
    assert text.endswith("# the line")
    file, number = place.split("at ")[1].split(", in ")[0].split(":")
    assert file == "test_nan_places.py"
    assert linecache.getline(__file__, int(number)).strip() == text.strip()


def test_a_line_of_a_rule_is_kept() -> None:
    """An operation in a custom rule, called while equations run, keeps its own line."""

    @rlx.custom_jvp
    def f(x: Any) -> Any:
        return x * 2

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return primals[0] * 2, tangents[0] * jnp.log(primals[0])  # the line

    with rlx.debug_nans(True), pytest.raises(errors.NanError, match="# the line"):
        rlx.jvp(f, (-1.0,), (1.0,))


def test_infinities_too() -> None:
    with rlx.debug_infs(True), pytest.raises(errors.NanError, match=r"log made an infinity from .*in iteration 1,"):
        lax.fori_loop(0, 3, lambda i, c: jnp.log(c), 1.0)
