"""Derivatives and batches of scan, cond and while_loop, to second order; against jax."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from points import reals
from twins import Build, assert_same, assert_twins

import rlx
import rlx.numpy as jnp
from rlx import errors, lax
from rlx.trace.primitive import registry


def _network(library: Any) -> Any:
    jnp_ = library.numpy

    def loss(w: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = {"h": jnp_.tanh(w @ c["h"] + x["u"]), "n": c["n"] + 1}
            return c, {"y": c["h"] * 2, "n": c["n"]}

        first = {"h": jnp_.zeros(2, "float64"), "n": np.asarray(0, "i4")}
        last, ys = library.lax.scan(step, first, xs)
        return last["h"].sum() + (ys["y"] ** 2).sum()

    return lambda x: library.grad(loss, argnums=(0, 1))(x[:2], {"u": x})


def _nested(library: Any) -> Any:
    def outer(c: Any, x: Any) -> Any:
        return library.lax.scan(lambda d, y: (d * y + x, d), c, reals(2))[0], c

    return library.grad(lambda x: library.lax.scan(outer, x[0], x)[1].sum())


def _swapping(library: Any) -> Any:
    def step(c: Any, y: Any) -> Any:
        return (c[1], c[2], c[0] * y), None

    return library.grad(lambda x: library.lax.scan(step, (x[0], x[1] * 2, x[2]), x)[0][0])


CASES: dict[str, tuple[Build, np.ndarray]] = {
    "a recurrent network": (_network, reals(4, 2)),
    "scan in reverse": (
        lambda L: L.value_and_grad(lambda x: L.lax.scan(lambda c, y: (c * y + 1, c), x[0], x, reverse=True)[1].sum()),
        reals(4),
    ),
    "scan of length zero": (
        lambda L: L.value_and_grad(lambda x: L.lax.scan(lambda c, y: (c * y + 1, c), x.sum(), x[:0])[0]),
        reals(4),
    ),
    "scan without xs": (
        lambda L: L.value_and_grad(lambda x: L.lax.scan(lambda c, _: (c * x, None), x, None, length=5)[0]),
        np.asarray(1.3),
    ),
    "scan that swaps its carries": (_swapping, reals(5)),
    "scan with a constant carry": (
        lambda L: L.grad(lambda x: L.lax.scan(lambda c, y: ((c[0], c[1] * y * c[0]), c[0]), (x[0], x[1]), x)[0][1]),
        reals(4),
    ),
    "scan in a scan": (_nested, reals(3)),
    "second derivative of a scan over a closure": (
        lambda L: L.hessian(lambda w: L.lax.scan(lambda c, x: (L.numpy.sin(w * c + x), None), w, reals(4))[0]),
        np.asarray(0.3),
    ),
    "fori_loop": (lambda L: L.grad(lambda x: L.lax.fori_loop(0, 4, lambda i, c: c * x + i, x)), np.asarray(1.1)),
    "map": (lambda L: L.grad(lambda x: L.lax.map(lambda y: L.numpy.sin(y) * x.sum(), x).sum()), reals(5)),
    "associative_scan": (lambda L: L.grad(lambda x: L.lax.associative_scan(L.numpy.multiply, x).sum()), reals(5)),
    "cond over a closure": (
        lambda L: L.grad(lambda x: L.lax.cond(x[0] > 0, lambda: L.numpy.sum(x**2), lambda: x[1])),
        reals(3),
    ),
    "second derivative of a cond": (
        lambda L: L.hessian(
            lambda x: L.lax.cond(x[0] > 5, lambda y: L.numpy.sum(L.numpy.log(y)), lambda y: L.numpy.prod(y), x)
        ),
        reals(3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_jax(name: str) -> None:
    """Eagerly and jitted."""
    build, x = CASES[name]
    assert_twins(build, x)


def _while(library: Any, x: Any, n: int) -> Any:
    """A loop whose derivative needs every state: known to jax as a scan."""
    if library is jax:
        return jax.lax.fori_loop(0, n, lambda i, c: jax.numpy.sin(c) * x + c, x)
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1]) * x + s[1]), (0, x))[1]


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_reverse_mode_of_a_while_loop(n: int) -> None:
    """First and second derivatives, eagerly; jax has them for counted loops only."""
    point = np.asarray(0.4)
    expected = [jax.grad(lambda x: _while(jax, x, n))(point), jax.hessian(lambda x: _while(jax, x, n))(point)]
    with rlx.disable_jit():
        found = [rlx.grad(lambda x: _while(rlx, x, n))(point), rlx.hessian(lambda x: _while(rlx, x, n))(point)]
    assert_same(found, expected)


@pytest.mark.parametrize("n", [255, 256, 257, 1000])
def test_reverse_mode_of_a_long_while_loop(n: int) -> None:
    """More steps than the tape has slots: states are thinned out and computed again."""
    point = np.asarray(0.3)
    expected = jax.grad(lambda x: jax.lax.fori_loop(0, n, lambda i, c: jax.numpy.cos(c) * x, x))(point)
    loop = rlx.grad(lambda x: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.cos(s[1]) * x), (0, x))[1])
    assert_same(rlx.jit(loop)(point), expected)


def test_reverse_mode_of_a_loop_of_unknown_length() -> None:
    """Each lane of a batch differentiates its own number of steps."""

    def grow(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 10.0, lambda c: c * 1.5 + 0.1, x)

    x = reals(4)
    steps = np.zeros(4)
    values = x.copy()
    while (values < 10).any():
        steps += values < 10
        values = np.where(values < 10, values * 1.5 + 0.1, values)
    np.testing.assert_allclose(rlx.vmap(rlx.grad(grow))(x), 1.5**steps, rtol=1e-12)


def test_while_loop_with_a_closed_over_bound() -> None:
    """The condition's constants have no derivative, the body's have."""

    def f(x: Any, bound: Any) -> Any:
        return lax.while_loop(lambda c: c < bound, lambda c: c * x, x)

    by_x, by_bound = rlx.grad(f, argnums=(0, 1))(jnp.float64(1.5), jnp.float64(4.0))
    assert (float(by_x), float(by_bound)) == (4 * 1.5**3, 0.0)


# ------------------------------------------------------------------ operands of the wrong type
def _regions() -> dict[str, tuple[Any, list[np.ndarray], dict[str, Any]]]:
    """Each primitive with good operands, float32 in the last place, and its parameters."""
    x, one = np.zeros(2, "f4"), np.zeros((), "i4")
    doubled = rlx.make_program(lambda c: c * 2)(x)
    positive = rlx.make_program(lambda c: (c > 0).any())(x)
    summed = rlx.make_program(lambda c, row: (c + 1, row * 2))(x, x)
    numbers = {"condition_constants": 0, "body_constants": 0}
    return {
        "cond": (registry["cond"], [one, x], {"branches": (doubled, doubled)}),
        "while_loop": (registry["while_loop"], [x], {"condition": positive, "body": doubled, **numbers}),
        "scan": (
            registry["scan"],
            [x, np.zeros((3, 2), "f4")],
            {"body": summed, "constants": 0, "carries": 1, "length": 3, "reverse": False},
        ),
    }


@pytest.mark.parametrize("name", ["cond", "while_loop", "scan"])
def test_operands_must_fit_the_regions(name: str) -> None:
    primitive, operands, params = _regions()[name]
    primitive.bind(*operands, **params)
    last = operands[-1]
    for wrong in (last.astype("f8"), last[..., :1], last[None]):
        with pytest.raises(errors.ControlFlowTypeError, match=name):
            primitive.bind(*operands[:-1], wrong, **params)
    with pytest.raises(errors.ControlFlowTypeError, match=name):
        primitive.bind(*operands, last, **params)
