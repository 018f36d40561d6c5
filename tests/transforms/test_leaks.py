"""check_tracer_leaks: rlx itself holds no tracer of a function that has ended."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import CustomRuleError, UnexpectedTracerError

Function = Callable[[Any], Any]


@pytest.fixture(autouse=True, scope="module")
def collected() -> None:
    """The switch collects garbage at every call: what is there already need not be looked through each time."""
    gc.collect()
    gc.freeze()


def _forward(symbolic: bool = False) -> Function:
    f = rlx.custom_jvp(lambda x: jnp.sin(x))
    f.defjvp(lambda p, t: (f(*p), jnp.cos(p[0]) * jnp.ones(())), symbolic_zeros=symbolic)
    return f


def _by_argument() -> Function:
    f = rlx.custom_jvp(lambda x: jnp.sin(x))
    f.defjvps(lambda t, out, x: t * jnp.cos(x))
    return f


def _reverse(symbolic: bool = False) -> Function:
    f = rlx.custom_vjp(lambda x: jnp.sin(x))

    def ahead(x: Any) -> tuple[Any, Any]:
        x = x.value if symbolic else x
        return jnp.sin(x), x

    f.defvjp(ahead, lambda x, g: (g * jnp.cos(x),), symbolic_zeros=symbolic)
    return f


def _gradient() -> Function:
    return rlx.custom_gradient(lambda x: (jnp.sin(x), lambda g: g * jnp.cos(x)))


def _batching() -> Function:
    f = rlx.custom_batching.custom_vmap(lambda x: jnp.sin(x))
    f.def_vmap(lambda size, batched, x: (jnp.sin(x), batched[0]))
    return f


def _of_a_function() -> Function:
    f = partial(rlx.custom_jvp, nondiff_argnums=(0,))(lambda h, x: h(x))
    f.defjvp(lambda h, p, t: (h(*p), t[0]))
    return partial(f, jnp.sin)


FUNCTIONS: dict[str, Callable[[], Function]] = {
    "custom_jvp": _forward,
    "custom_jvp, symbolic zeros": partial(_forward, True),
    "defjvps": _by_argument,
    "nondiff_argnums": _of_a_function,
    "custom_vjp": _reverse,
    "custom_vjp, symbolic zeros": partial(_reverse, True),
    "custom_gradient": _gradient,
    "custom_vmap": _batching,
    "sequential_vmap": lambda: rlx.custom_batching.sequential_vmap(jnp.sin),
    "checkpoint": lambda: rlx.checkpoint(lambda x: jnp.sin(x)),
    "jit": lambda: rlx.jit(lambda x: jnp.sin(x)),
    "linearize": lambda: lambda x: rlx.linearize(jnp.sin, x)[1](x),
    "closure_convert": lambda: lambda x: rlx.closure_convert(jnp.sin, x)[0](x),
}
CALLS: dict[str, Callable[[Function], Any]] = {
    "jit": lambda f: rlx.jit(lambda x: f(x))(1.0),
    "grad": lambda f: rlx.jit(rlx.grad(lambda x: f(x)))(1.0),
    "vmap": lambda f: rlx.vmap(f)(jnp.ones(2)),
    "scan": lambda f: rlx.jit(lambda: rlx.lax.scan(lambda c, _: (f(c), None), 1.0, None, length=2))(),
    "cond": lambda f: rlx.jit(lambda x: rlx.lax.cond(x > 0, f, f, x))(1.0),
    "while_loop": lambda f: rlx.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, 1.0)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_with_rules_hold_nothing(make: Callable[[], Function], call: Callable[[Function], Any]) -> None:
    f = make()
    with rlx.checking_leaks():
        call(f)


def test_a_rule_that_fails_holds_nothing() -> None:
    f = rlx.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: None)
    with rlx.checking_leaks():
        rlx.jit(lambda x: f(x))(3.0)
        with pytest.raises(CustomRuleError):
            rlx.grad(lambda x: f(x))(3.0)


def test_what_a_rule_keeps_is_found() -> None:
    held: list[Any] = []
    f = rlx.custom_jvp(lambda x: held.append(x) or jnp.sin(x))
    f.defjvp(lambda p, t: (f(*p), t[0]))
    with rlx.checking_leaks(), pytest.raises(UnexpectedTracerError, match="Leaked"):
        rlx.jit(lambda x: f(x))(1.0)
