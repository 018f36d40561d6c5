"""Forward mode: jvp, jacfwd, hessian, hvp against jax and finite differences."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from points import complexes, reals
from twins import Build, assert_same, assert_twins

import rlx
import rlx.numpy as jnp
from rlx import errors

TREE = {"a": reals(3), "b": reals(3) + 1}


def _double(library: Any) -> Any:
    return lambda x: library.jvp(lambda y: (y * 2, library.numpy.argmax(y).astype("int32")), (x,), (x,))


CASES: dict[str, tuple[Build, tuple[Any, ...]]] = {
    "a real function": (lambda L: lambda x: L.jvp(lambda y: L.numpy.sin(y) * y, (x,), (x,)), (reals(3),)),
    "two arguments": (lambda L: lambda x, y: L.jvp(lambda a, b: a @ b, (x, y), (y.T, x.T)), (reals(2, 3), reals(3, 2))),
    "a tree": (lambda L: lambda t: L.jvp(lambda s: {"o": s["a"] * s["b"]}, (t,), (t,)), (TREE,)),
    "auxiliary data": (lambda L: lambda x: L.jvp(lambda y: (y * 2, y * 3), (x,), (x,), has_aux=True), (reals(3),)),
    "real to complex": (lambda L: lambda x: L.jvp(lambda y: L.numpy.exp(1j * y) * y, (x,), (x,)), (reals(3),)),
    "complex to real": (lambda L: lambda x: L.jvp(L.numpy.abs, (x,), (x,)), (complexes(3),)),
    "an integer result": (_double, (reals(3),)),
    "a constant result": (lambda L: lambda x: L.jvp(lambda y: L.numpy.ones(2, "float64"), (x,), (x,)), (reals(3),)),
    "zero elements": (lambda L: lambda x: L.jvp(lambda y: y * 2, (x,), (x,)), (reals(0),)),
    "jacfwd of a tree": (lambda L: L.jacfwd(lambda t: {"o": t["a"] * t["b"], "s": L.numpy.sum(t["a"])}), (TREE,)),
    "jacfwd of two arguments": (lambda L: L.jacfwd(lambda a, b: a**2 * b, argnums=(0, 1)), (reals(2), reals(2) + 1)),
    "jacfwd of a scalar": (lambda L: L.jacfwd(lambda a: L.numpy.stack([a, a * a])), (np.asarray(2.0),)),
    "jacfwd of nothing": (lambda L: L.jacfwd(lambda a: a * 2), (reals(0),)),
    "jacfwd of a constant": (lambda L: L.jacfwd(lambda a: L.numpy.ones(2, "float64")), (reals(3),)),
    "jacfwd with auxiliary data": (lambda L: L.jacfwd(lambda a: (a**2, a * 3), has_aux=True), (reals(2),)),
    "holomorphic jacfwd": (lambda L: L.jacfwd(lambda z: L.numpy.sin(z) * z, holomorphic=True), (complexes(3),)),
    "hessian of a tree": (lambda L: L.hessian(lambda t: L.numpy.sum(t["a"] ** 2 * t["b"])), (TREE,)),
    "hessian of two arguments": (
        lambda L: L.hessian(lambda a, b: L.numpy.sum(a**2 * b), argnums=(0, 1)),
        (reals(2), reals(2) + 1),
    ),
    "hessian with auxiliary data": (lambda L: L.hessian(lambda a: ((a**2).sum(), a * 3), has_aux=True), (reals(2),)),
    "holomorphic hessian": (
        lambda L: L.hessian(lambda z: L.numpy.sum(L.numpy.sin(z) * z), holomorphic=True),
        (complexes(3),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_jax(name: str) -> None:
    """Eagerly and jitted."""
    build, args = CASES[name]
    assert_twins(build, *args, jit=name.startswith(("a ", "jacfwd of a tree", "hessian of a")))


def test_equals_a_central_difference() -> None:
    """In float64 the derivative is sharper than the difference by far."""
    x, v, h = reals(4), np.array([1.0, -2.0, 0.5, 0.1]), 1e-6

    def f(y: Any) -> Any:
        return jnp.exp(jnp.sin(y)) / (1 + y[::-1] ** 2)

    _, tangent = rlx.jvp(f, (x,), (v,))
    difference = (np.asarray(f(x + h * v)) - np.asarray(f(x - h * v))) / (2 * h)
    np.testing.assert_allclose(tangent, difference, rtol=1e-8)


def test_python_number_tangent_takes_the_primal_dtype() -> None:
    """A weak tangent does not widen anything."""
    y, dy = rlx.jvp(lambda x: x * x, (jnp.float64(3.0),), (1.0,))
    assert (y.dtype, dy.dtype, float(dy)) == (np.float64, np.float64, 6.0)


@pytest.mark.thorough
def test_hvp_is_the_hessian_times_the_vector() -> None:
    """Without forming the Hessian."""
    x, v = reals(4), np.arange(4.0)

    def f(library: Any) -> Any:
        return lambda y: library.numpy.prod(library.numpy.cosh(y)) + library.numpy.sum(y**3)

    found = rlx.hvp(f(rlx), (x,), (v,))
    assert_same(found, jax.hessian(f(jax))(x) @ v)
    assert_same(rlx.jit(lambda y: rlx.hvp(f(rlx), (y,), (v,)))(x), found)


def test_python_control_flow_on_values() -> None:
    """Un-jitted jvp runs the branch that the value takes."""

    def f(x: Any) -> Any:
        while x < 10:
            x = x * x if x > 1 else x + 1
        return x

    y, dy = rlx.jvp(f, (1.5,), (1.0,))
    assert (float(y), float(dy)) == (1.5**8, 8 * 1.5**7)


def test_integer_tangents_are_ignored() -> None:
    """Integers have the zero tangent, whatever is given."""
    _, tangent = rlx.jvp(lambda x, i: x * i, (2.0, 3), (1.0, 0))
    assert float(tangent) == 3.0


@pytest.mark.parametrize(
    ("primals", "tangents", "error"),
    [
        (1.0, 1.0, errors.TreeMismatchError),
        ((1.0,), (1.0, 2.0), errors.TreeMismatchError),
        ((reals(3),), (reals(2),), errors.TreeMismatchError),
        ((reals(3),), (reals(3).astype("f4"),), errors.DtypeError),
    ],
)
def test_tangents_that_do_not_fit(primals: Any, tangents: Any, error: type[Exception]) -> None:
    """Are refused by name."""
    with pytest.raises(error, match="jvp"):
        rlx.jvp(lambda *x: x[0], primals, tangents)
