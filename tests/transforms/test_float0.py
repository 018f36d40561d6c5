"""Tangents and cotangents of integers and bools: zeros of dtype float0 at every border, as JAX's."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from twins import assert_same, assert_twins

import rlx
from rlx import errors

VECTOR, INDEX = np.linspace(0.5, 1.5, 3), np.array([2, 0], np.int32)
FLOAT0 = rlx.float0


@pytest.mark.parametrize(
    "build",
    [
        lambda L: L.grad(lambda x, i: L.numpy.sum(x[i]), argnums=(0, 1), allow_int=True),
        lambda L: L.value_and_grad(lambda x, i: L.numpy.sum(x[i]), argnums=1, allow_int=True),
        lambda L: lambda x, i: L.vjp(lambda x, i: (x[i], i + 1), x, i)[1]((x[:2], np.zeros(2, FLOAT0))),
        lambda L: lambda x, i: L.jvp(lambda x, i: (x[i], i > 1), (x, i), (x, np.zeros(2, FLOAT0))),
        lambda L: lambda x, i: L.linearize(lambda x, i: (x[i], i * 2), x, i)[1](x, np.zeros(2, FLOAT0)),
        lambda L: lambda x, i: L.vmap(L.grad(lambda i, x: x[i], allow_int=True), (0, None))(i, x),
        lambda L: lambda x, i: L.vmap(L.grad(lambda i, x: x[i], allow_int=True), (0, None), 0)(i[None][0], x),
        lambda L: lambda x, i: L.jit(lambda z: (z, x))(np.zeros((2, 3), FLOAT0)),
        lambda L: lambda x, i: L.vmap(lambda z, x: (z, x), out_axes=(1, 0))(np.zeros((3, 2), FLOAT0), x),
        lambda L: lambda x, i: L.grad(lambda t: L.numpy.sum(t["x"]) * t["n"], allow_int=True)({"x": x, "n": 2}),
        lambda L: lambda x, i: L.jvp(L.grad(lambda x, n: L.numpy.sum(x**n)), (x, 3), (x, np.zeros((), FLOAT0))),
    ],
)
def test_float0_where_jax_has_it(build: Any) -> None:
    assert_twins(build, VECTOR, INDEX)


def test_jacobians_of_integers() -> None:
    found = rlx.jacrev(lambda x, i: x[i] * 2.0, argnums=(0, 1), allow_int=True)(VECTOR, INDEX)
    expected = jax.jacrev(lambda x, i: x[i] * 2.0, argnums=(0, 1), allow_int=True)(VECTOR, INDEX)
    assert_same(found, expected)
    assert found[1].shape == (2, 2) and found[1].dtype == np.int32


@pytest.mark.parametrize("given", [np.zeros(2, FLOAT0), np.zeros(2, np.int32)], ids=["float0", "zeros"])
def test_tangents_of_integers_are_taken(given: Any) -> None:
    def f(x: Any, i: Any) -> Any:
        return x[i], i

    _, (slope, zeros) = rlx.jvp(f, (VECTOR, INDEX), (VECTOR, given))
    assert zeros.dtype == FLOAT0 and slope.shape == (2,)
    with pytest.raises(TypeError):
        rlx.jvp(f, (VECTOR, INDEX), (np.zeros(3, FLOAT0), given))
    with pytest.raises(errors.TreeMismatchError):
        rlx.jvp(f, (VECTOR, INDEX), (VECTOR, np.zeros(3, FLOAT0)))


def test_rules_see_float0() -> None:
    seen: list[Any] = []

    @rlx.custom_jvp
    def pick(x: Any, i: Any) -> Any:
        return x[i], i + 1

    @pick.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, i), (dx, di) = primals, tangents
        seen.append(di)
        return pick(x, i), (3.0 * dx[i], di)

    slope, zeros = rlx.jvp(pick, (VECTOR, INDEX), (VECTOR, np.zeros(2, FLOAT0)))[1]
    assert np.allclose(slope, 3.0 * VECTOR[INDEX]) and zeros.dtype == FLOAT0
    assert seen[-1].dtype == FLOAT0 and seen[-1].shape == (2,)

    @rlx.custom_vjp
    def count(x: Any, n: Any) -> Any:
        return x * n, n

    def backward(n: Any, ct: Any) -> Any:
        seen.append(ct[1])
        return ct[0] * n, np.zeros((), FLOAT0)

    count.defvjp(lambda x, n: ((x * n, n), n), backward)
    slope, zeros = rlx.vjp(count, VECTOR, 2)[1]((VECTOR, np.zeros((), FLOAT0)))
    assert np.allclose(slope, 2 * VECTOR) and zeros.dtype == seen[-1].dtype == FLOAT0


def test_arithmetic_with_float0_is_refused() -> None:
    zeros = rlx.grad(lambda n: n * 1.5, allow_int=True)(3)
    with pytest.raises(TypeError, match="float0"):
        rlx.numpy.add(zeros, 1.0)
