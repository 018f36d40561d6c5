"""Taylor mode against nested forward mode, in float64; its cost; its composition with other transforms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, nn
from rlx.experimental.jet import jet

ORDER = 4
X = np.array([[0.3, -0.7, 1.2], [0.9, 0.4, -0.2]])
MATRIX = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, -0.4], [0.0, 0.6, 1.8]])


@rlx.custom_jvp
def own(x: Any) -> Any:
    """A function whose rule says something else than its program."""
    return jnp.floor(x)


@own.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return own(primals[0]), tangents[0] * primals[0] ** 2


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: getattr(jnp, name) for name in "sin cos exp expm1 tanh sinh cosh arctan arcsinh square cbrt".split()
} | {
    "log": lambda x: jnp.log(x + 2),
    "roots": lambda x: jnp.sqrt(x + 1) * lax.rsqrt(x + 3),
    "powers": lambda x: (x + 1.0) ** 2.5 + x**5 + (x + 2) ** x,
    "quotient": lambda x: (1 + x) / (2 + x * x),
    "atan2": lambda x: jnp.arctan2(x, x**2 + 1),
    "erf": lambda x: lax.erf(x) + lax.erf_inv(x / 3),
    "gelu": nn.gelu,
    "softmax": lambda x: nn.softmax(x, axis=1),
    "lgamma": lambda x: lax.lgamma(x + 3),
    "product": lambda x: x @ (MATRIX + x.T @ x),
    "solve": lambda x: jnp.linalg.solve(MATRIX + jnp.diag(x[0]), x[1]),
    "convolution": lambda x: jnp.convolve(x[0], x[1] ** 2),
    "indices": lambda x: x[:, 1:] * x[1, ::-1][jnp.array([0, 2])] + jnp.sort(x, axis=0)[0, :2],
    "updates": lambda x: jnp.asarray(x).at[0, 1].mul(x[1, 1]).at[1].add(jnp.sin(x[0])),
    "choices": lambda x: (
        jnp.where(x > 0, jnp.sin(x), x**3) + jnp.maximum(x, 0.35) + jnp.abs(x) + jnp.clip(x, -0.5, 0.5)
    ),
    "reductions": lambda x: jnp.prod(x, axis=1) + jnp.max(x) + jnp.cumsum(x * x, axis=1)[:, -1] + nn.logsumexp(x),
    "pieces": lambda x: {"a": jnp.round(x), "b": jnp.full_like(x, 2.0), "c": x},
    "own rule": own,
    "jit": lambda x: rlx.jit(lambda y: jnp.sin(y) * y)(x),
    "checkpoint": rlx.checkpoint(lambda x: jnp.exp(jnp.sin(x))),
    "gradient": rlx.grad(lambda x: jnp.sum(jnp.sin(x) ** 2 * x)),
    "scan": lambda x: lax.scan(lambda c, row: (jnp.sin(c) * row, c), x[0], x)[1],
    "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) + x), (0, x))[1],
    "cond": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "python control flow": lambda x: x * x if x[0, 0] > 0 else x,
}


def derivatives(function: Callable[[Any], Any], x: Any, terms: Any) -> list[Any]:
    """Those along the curve by nested forward mode."""

    def along(t: Any) -> Any:
        return function(x + sum(term * t ** (k + 1) / math.factorial(k + 1) for k, term in enumerate(terms)))

    found = []
    for _ in terms:
        along = rlx.jacfwd(along)
        found.append(along(0.0))
    return found


def close(a: Any, b: Any) -> None:
    for mine, wanted in zip(rlx.tree.leaves(a), rlx.tree.leaves(b), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jet_agrees_with_nested_forward_mode(name: str) -> None:
    function = FUNCTIONS[name]
    terms = [np.random.default_rng(k).normal(size=X.shape) for k in range(ORDER)]
    wanted = derivatives(function, X, terms)
    value, found = jet(function, (X,), (terms,))
    close(value, function(X))
    close(rlx.tree.transpose(rlx.tree.structure(value), rlx.tree.structure([0] * ORDER), found), wanted)


def test_several_arguments_and_coefficients() -> None:
    y = np.float64(1.3)
    function = lambda x, y, n: x**n * jnp.exp(y * x)  # noqa: E731
    first, second = [np.ones(()), 0.5, 0.25], [0.3, -0.1, 2.0]
    value, found = jet(function, (0.7, y, 3), (first, second, [0.0] * 3))

    def along(t: Any) -> Any:
        steps = [t, t**2 / 2, t**3 / 6]
        return function(0.7 + np.dot(first, 1) @ jnp.array(steps), y + np.array(second) @ jnp.array(steps), 3)

    for term in found:
        along = rlx.jacfwd(along)
        np.testing.assert_allclose(term, along(0.0), rtol=1e-6)
    _, coefficients = jet(
        function,
        (0.7, y, 3),
        [[term / math.factorial(k + 1) for k, term in enumerate(row)] for row in (first, second)] + [[0.0] * 3],
        factorial_scaled=False,
    )
    np.testing.assert_allclose(coefficients, [t / math.factorial(k + 1) for k, t in enumerate(found)], rtol=1e-6)


def test_it_nests_with_other_transforms() -> None:
    def third(x: Any) -> Any:
        return jet(jnp.sin, (x,), ((1.0, 0.0, 0.0),))[1][2]

    x = np.linspace(-1, 1, 5)
    for found in (rlx.vmap(third)(x), rlx.jit(rlx.vmap(third))(x)):
        np.testing.assert_allclose(found, -np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(rlx.vmap(rlx.grad(third))(x), np.sin(x), rtol=1e-6, atol=1e-7)
    twice = jet(third, (x[0],), ((1.0, 0.0),))[1]
    np.testing.assert_allclose(twice, [np.sin(x[0]), np.cos(x[0])], rtol=1e-6)


COSTS = [jnp.exp, jnp.tanh, lambda x: 1 / jnp.sin(x), jnp.log, nn.sigmoid, lambda x: x**2.5]


@pytest.mark.parametrize("function", COSTS)
def test_the_cost_grows_polynomially(function: Any) -> None:
    def count(order: int) -> int:
        curve = ((1.0, *[0.0] * (order - 1)),)
        return len(rlx.make_program(lambda x: jet(function, (x,), curve))(0.5).equations)

    assert count(16) < 12 * count(8)  # cubic is 8, nested forward mode 256


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="all of one length"):
        jet(jnp.add, (1.0, 2.0), ((1.0,), (1.0, 0.0)))
    with pytest.raises(ValueError, match="function of the leaves"):
        jet(sum, ((1.0, 2.0),), ((1.0,),))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        jet(jnp.sin, (1.0,), ((np.ones(2),),))
