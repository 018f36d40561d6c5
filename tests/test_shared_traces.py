"""jit of one function twice: what was traced and compiled is shared, as long as the function lives."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import numpy as jnp


def counting() -> tuple[Any, list[Any]]:
    """A function, and the shapes that it was traced with."""
    seen: list[Any] = []

    def f(x: Any, n: int = 2) -> Any:
        seen.append(x.shape)
        return x * n

    return f, seen


def test_equal_options_share_traces() -> None:
    f, seen = counting()
    for _ in range(3):
        assert rlx.jit(f)(jnp.ones(2)).tolist() == [2.0, 2.0]
    assert len(seen) == 1
    for _ in range(2):
        assert rlx.jit(f, static_argnums=1)(jnp.ones(2), 3).tolist() == [3.0, 3.0]
        assert rlx.jit(f, static_argnames="n")(jnp.ones(2), n=4).tolist() == [4.0, 4.0]
    assert len(seen) == 3
    rlx.jit(f)(jnp.ones(3))
    rlx.jit(f, donate_argnums=0)(jnp.ones(3))
    assert seen[3:] == [(3,), (3,)]


def test_stages_share_traces() -> None:
    f, seen = counting()
    assert rlx.eval_shape(f, jnp.ones(2)).shape == (2,)
    rlx.jit(f)(jnp.ones(2))
    assert rlx.jit(f).lower(rlx.ShapeDtypeStruct((2,), np.float32)).compile()(jnp.ones(2)).tolist() == [2.0, 2.0]
    assert len(rlx.make_jaxpr(f)(jnp.ones(2)).eqns) == 1
    assert len(seen) == 1
    with rlx.enable_x64():
        rlx.jit(f)(jnp.ones(2))
    assert seen == [(2,), (2,)]


def test_other_functions_and_cleared_caches_are_traced_again() -> None:
    f, seen = counting()
    rlx.jit(f)(jnp.ones(2))
    rlx.jit(partial(f, n=3))(jnp.ones(2))
    rlx.jit(partial(f, n=3))(jnp.ones(2))
    assert len(seen) == 3
    rlx.jit(f).clear_cache()
    rlx.jit(f)(jnp.ones(2))
    rlx.clear_caches()
    rlx.jit(f)(jnp.ones(2))
    assert len(seen) == 5


def test_equal_callables_are_not_mixed_up() -> None:
    class Scale:
        def __init__(self, n: float) -> None:
            self.n = n

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Scale)

        def __hash__(self) -> int:
            return 0

        def __call__(self, x: Any) -> Any:
            return x * self.n

    assert [float(rlx.jit(Scale(n))(1.0)) for n in (2.0, 3.0)] == [2.0, 3.0]
    objects = [type("Plain", (), {"n": n, "__call__": lambda self, x: x * self.n})() for n in (2.0, 3.0)]
    assert [float(rlx.jit(o)(1.0)) for o in objects] == [2.0, 3.0]
    assert float(rlx.jit(Scale(4.0).__call__)(1.0)) == 4.0


def test_traces_go_with_the_function() -> None:
    held = jnp.ones(7)

    def make() -> Any:
        constant = held + 1.0

        def f(x: Any) -> Any:
            return x + constant

        rlx.jit(f)(held)
        return weakref.ref(f), weakref.ref(constant)

    function, constant = make()
    gc.collect()
    assert function() is None
    rlx.clear_caches()  # compiled programs are kept by what they compute
    gc.collect()
    assert constant() is None


def test_failures_are_not_kept() -> None:
    attempts: list[Any] = []

    def f(x: Any) -> Any:
        attempts.append(x)
        if len(attempts) < 2:
            raise ValueError("first time")
        return x

    with pytest.raises(ValueError, match="first time"):
        rlx.jit(f)(1.0)
    assert rlx.jit(f)(1.0) == 1.0 and len(attempts) == 2
