"""Numbers that leave un-jitted derivatives: refused where they would lose a derivative, given where they have none."""

from __future__ import annotations

import cmath
import copy
import decimal
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import errors
from rlx import numpy as jnp

# each takes a number out of a 0-d array
LEAVING: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "complex": complex,
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "tobytes": lambda x: x.tobytes(),
    "math": math.sin,
    "cmath": cmath.sin,
    "np.float64": np.float64,
    "np.asarray": np.asarray,
    "np.array": lambda x: np.array(x, np.float64),
    "dlpack": np.from_dlpack,
    "arange": lambda x: jnp.arange(x),
}
# each gives a function's derivative, of a float
DERIVATIVES: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda f: rlx.grad(f)(2.5),
    "value_and_grad": lambda f: rlx.value_and_grad(f)(2.5),
    "jvp": lambda f: rlx.jvp(f, (2.5,), (1.0,)),
    "vjp": lambda f: rlx.vjp(f, 2.5),
    "linearize": lambda f: rlx.linearize(f, 2.5),
    "hvp": lambda f: rlx.hvp(f, (2.5,), (1.0,)),
    "hessian": lambda f: rlx.hessian(f)(2.5),
    "jacfwd": lambda f: rlx.jacfwd(f)(2.5),
    "jacrev": lambda f: rlx.jacrev(f)(2.5),
    "nested": lambda f: rlx.grad(lambda x: rlx.grad(f)(x) * x)(2.5),
    "of the outer": lambda f: rlx.grad(lambda x: rlx.grad(lambda y: f(x) * y)(1.0))(2.5),
    "vmap inside": lambda f: rlx.grad(lambda x: rlx.vmap(lambda y: f(x) * y)(jnp.ones(2)).sum())(2.5),
    "checkpoint": lambda f: rlx.grad(rlx.checkpoint(f))(2.5),
}


@pytest.mark.parametrize("way", LEAVING)
@pytest.mark.parametrize("derivative", ["grad", "jvp"])
def test_every_way_out_is_refused(way: str, derivative: str) -> None:
    """The error names the line and what to write."""

    def f(x: Any) -> Any:
        LEAVING[way](jnp.sin(x) + 1)  # the user's line
        return x * x

    with pytest.raises(errors.ConcretizationTypeError) as caught:
        DERIVATIVES[derivative](f)
    message = str(caught.value)
    assert "stop_gradient" in message and "in <lambda>" in message or "the user's line" in message


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_every_derivative_refuses(derivative: str) -> None:
    with pytest.raises(errors.ConcretizationTypeError, match=r"without its derivative|not known while tracing"):
        DERIVATIVES[derivative](lambda x: float(x * 2) * x)


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_values_without_a_derivative_are_given(derivative: str) -> None:
    """Constants, stop_gradient, integers, what has no derivative, comparisons; bool, int and text of anything."""
    if derivative in ("hvp", "hessian", "jacfwd"):  # vmap or another derivative is around: the value is not known
        pytest.skip("the function is differentiated of a mapped or of a moving value")

    def f(x: Any) -> Any:
        y = x * 2
        still = [jnp.ones(()) * 3, rlx.lax.stop_gradient(y), jnp.floor(y), y > 1, jnp.argmax(y), y.astype(int)]
        for value in still:
            for way in (float, complex, lambda v: v.item(), lambda v: v.tolist(), np.asarray, math.sin):
                way(value)
        operator.index(y.astype(int))
        assert (int(y), bool(y > 1), f"{y:.1f}") == (5, True, "5.0")
        assert "5." in str(y) and "5." in repr(y) and "5" in f"{y}"
        return y * float(rlx.lax.stop_gradient(y))

    DERIVATIVES[derivative](f)


def test_what_a_derivative_does_not_touch() -> None:
    """Arguments that are not differentiated, and functions of those."""
    gradient = rlx.grad(lambda x, y: x * math.sin(y), argnums=0)
    assert float(gradient(1.0, jnp.asarray(2.0))) == pytest.approx(math.sin(2.0))
    _, tangent = rlx.jvp(lambda x, n: x * float(n), (2.0, 3), (1.0, np.zeros((), rlx.float0)))
    assert float(tangent) == 3.0
    outer = rlx.grad(lambda x: rlx.jvp(lambda y: y * float(rlx.lax.stop_gradient(y)), (2.0,), (1.0,))[1] * x)
    assert float(outer(3.0)) == 2.0


def test_copies_of_tracers_do_not_leave() -> None:
    """Pickling and deep copies."""
    for way in (pickle.dumps, copy.deepcopy, decimal.Decimal):
        with pytest.raises(Exception):  # noqa: B017  each says so in its own words
            rlx.grad(lambda x, way=way: float(way(x * 1.0)) * x)(2.0)


def sine(x: Any) -> Any:
    """Computed by NumPy and math."""
    return jnp.asarray(np.float32(math.sin(float(x)))) + 0 * np.asarray(x).sum()


def test_functions_with_rules_may_compute_in_python() -> None:
    """The rule states the derivative, at every order."""
    forward, reverse = rlx.custom_jvp(sine), rlx.custom_vjp(sine)
    forward.defjvp(lambda p, t: (forward(*p), t[0] * jnp.cos(p[0])))
    reverse.defvjp(lambda x: (reverse(x), x), lambda x, ct: (ct * jnp.cos(x),))
    for f in (forward, reverse):
        assert float(rlx.grad(f)(1.0)) == pytest.approx(math.cos(1.0))
        assert float(rlx.grad(rlx.grad(f))(1.0)) == pytest.approx(-math.sin(1.0))


def test_rules_may_not_lose_the_next_derivative() -> None:
    """The derivative by a rule is differentiated in turn."""
    f = rlx.custom_jvp(sine)
    f.defjvp(lambda p, t: (f(*p), t[0] * math.cos(float(p[0]))))
    assert float(rlx.grad(f)(1.0)) == pytest.approx(math.cos(1.0))
    with pytest.raises(errors.ConcretizationTypeError):
        rlx.grad(rlx.grad(f))(1.0)
    g = rlx.custom_vjp(sine)
    g.defvjp(lambda x: (g(x), float(x)), lambda x, ct: (ct * math.cos(float(x)),))
    with pytest.raises(errors.ConcretizationTypeError):
        rlx.grad(rlx.grad(g))(1.0)


@pytest.mark.parametrize("way", LEAVING)
def test_mapped_values_are_not_known(way: str) -> None:
    with pytest.raises(errors.ConcretizationTypeError):
        rlx.vmap(lambda x: LEAVING[way](x) or x)(jnp.ones(2))


def test_a_loop_of_questions_is_linear() -> None:
    """Each equation is looked at once, however often numbers of it are asked for."""
    seen: list[float] = []

    def f(x: Any) -> Any:
        for _ in range(50):
            x = jnp.sin(x)
            seen.append(float(rlx.lax.stop_gradient(x)))
        return x

    rlx.grad(f)(1.0)
    assert len(seen) == 50
