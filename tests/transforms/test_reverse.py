"""Reverse mode: grad, value_and_grad, vjp, jacrev, linear_transpose against jax."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from points import complexes, reals
from twins import Build, assert_twins

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.testing import check_grads

TREE = {"a": reals(3), "b": reals(3) + 1}


def _second_by_pullback(library: Any) -> Any:
    def f(x: Any) -> Any:
        _, pull = library.vjp(lambda y: library.numpy.sin(y) * y, x)
        return pull(x)[0].sum()

    return library.hessian(f)


CASES: dict[str, tuple[Build, tuple[Any, ...]]] = {
    "a real function": (lambda L: L.grad(lambda x: L.numpy.sum(L.numpy.sin(x) * x)), (reals(3),)),
    "several arguments": (
        lambda L: L.grad(lambda x, y, z: L.numpy.sum(x * y["a"] - z), argnums=(0, 1)),
        (reals(3), TREE, reals(3)),
    ),
    "the last argument": (lambda L: L.grad(lambda x, y: L.numpy.sum(x * y), argnums=-1), (reals(3), reals(3) * 2)),
    "one argument in a tuple": (lambda L: L.grad(lambda x, y: L.numpy.sum(x * y), argnums=(1,)), (reals(3), reals(3))),
    "a value and auxiliary data": (
        lambda L: L.value_and_grad(
            lambda x: (L.numpy.sum(x**3), {"n": x * 2, "i": L.numpy.argmax(x).astype("int32")}), has_aux=True
        ),
        (reals(3),),
    ),
    "auxiliary None": (lambda L: L.grad(lambda x: (L.numpy.sum(x**3), None), has_aux=True), (reals(3),)),
    "a keyword": (lambda L: lambda x: L.grad(lambda y, *, s=2.0: L.numpy.sum(y * s))(x, s=3.0), (reals(3),)),
    "integers allowed": (
        lambda L: L.grad(lambda x, i: L.numpy.sum(x[i]), argnums=(0, 1), allow_int=True),
        (reals(3), np.asarray(1, "i4")),
    ),
    "a constant": (lambda L: L.grad(lambda x: L.numpy.asarray(1.0, "float64")), (reals(3),)),
    "the identity": (lambda L: L.grad(lambda x: x), (np.asarray(2.0),)),
    "a real function of complex numbers": (
        lambda L: L.grad(lambda z: L.numpy.sum(L.numpy.abs(z) ** 2 * L.numpy.real(z))),
        (complexes(3),),
    ),
    "a holomorphic function": (
        lambda L: L.grad(lambda z: L.numpy.sum(L.numpy.sin(z) * z), holomorphic=True),
        (complexes(3),),
    ),
    "vjp of real to complex": (
        lambda L: lambda x: L.vjp(lambda y: L.numpy.exp(1j * y) * y, x)[1](complexes(3)),
        (reals(3),),
    ),
    "vjp of complex to real": (lambda L: lambda x: L.vjp(L.numpy.abs, x)[1](reals(3)), (complexes(3),)),
    "vjp with an integer argument": (
        lambda L: lambda x, i: L.vjp(lambda y, j: y * j, x, i)[1](x),
        (reals(3), np.arange(3, dtype="i4")),
    ),
    "vjp of repeated results": (lambda L: lambda x: L.vjp(lambda y: (y, y, y * 2), x)[1]((x, x, x)), (reals(3),)),
    "vjp of a result with None": (lambda L: lambda x: L.vjp(lambda y: (y, None), x)[1]((x, None)), (reals(3),)),
    "vjp through a narrower dtype": (
        lambda L: lambda x: L.vjp(lambda y: y.astype("float32") * 2, x)[1](np.ones(3, "f4")),
        (reals(3),),
    ),
    "derivatives of a pullback": (_second_by_pullback, (reals(3),)),
    "jacrev of a tree": (lambda L: L.jacrev(lambda t: {"o": t["a"] * t["b"], "s": L.numpy.sum(t["a"])}), (TREE,)),
    "jacrev of a matrix": (lambda L: L.jacrev(lambda a: a @ a.T), (reals(2, 3),)),
    "jacrev of nothing": (lambda L: L.jacrev(lambda a: a * 2), (reals(0),)),
    "jacrev of a constant": (lambda L: L.jacrev(lambda a: L.numpy.ones(2, "float64")), (reals(3),)),
    "jacrev with auxiliary data": (lambda L: L.jacrev(lambda a: (a**2, a * 3), has_aux=True), (reals(2),)),
    "holomorphic jacrev": (lambda L: L.jacrev(lambda z: L.numpy.sin(z) * z, holomorphic=True), (complexes(3),)),
    "a NaN behind where": (
        lambda L: L.grad(lambda x: L.numpy.sum(L.numpy.where(x > 0.5, L.numpy.sqrt(x), 0.0))),
        (reals(5),),
    ),
    "a sort": (lambda L: L.grad(lambda x: L.numpy.sum(L.numpy.sort(x) * np.arange(5.0))), (reals(5)[::-1],)),
    "repeated indices": (lambda L: L.hessian(lambda x: L.numpy.sum(x[np.array([0, 0, 2])] ** 3)), (reals(3),)),
    "updates": (
        lambda L: L.grad(lambda x: L.numpy.sum(x.at[1].set(x[0] ** 2).at[0].add(x[2]) ** 2)),
        (rlx.numpy.asarray(reals(3)),),
    ),
    "stop_gradient": (lambda L: L.grad(lambda x: L.lax.stop_gradient(x).sum() * x.sum()), (reals(5),)),
    "a jitted function": (
        lambda L: L.grad(L.jit(lambda x: L.numpy.sum(L.jit(L.numpy.sin)(x) * x))),
        (reals(3),),
    ),
    "a transpose": (lambda L: lambda x: L.linear_transpose(lambda y: (2 + 1j) * y, x)(x), (complexes(3),)),
    "a transpose of a tree": (
        lambda L: lambda x: L.linear_transpose(lambda y, z: {"o": y + 2 * z}, x, x)({"o": x}),
        (reals(3),),
    ),
}
JITTED = ("a real function", "several arguments", "a value and auxiliary data", "a transpose", "updates")


@pytest.mark.parametrize("name", CASES)
def test_equals_jax(name: str) -> None:
    """Eagerly, and some jitted."""
    build, args = CASES[name]
    args = tuple(np.asarray(a) if isinstance(a, rlx.Array) else a for a in args)
    if name == "updates":  # .at needs an array of the library
        original = build
        build = lambda library: lambda x: original(library)(library.numpy.asarray(x))  # noqa: E731
    assert_twins(build, *args, jit=name in JITTED)


def test_finite_differences_in_both_modes_to_second_order() -> None:
    """check_grads, on a function with a product, a division and a reduction."""
    check_grads(lambda x, y: jnp.sum(jnp.sin(x) / y) * jnp.prod(y), (reals(3), reals(3) + 1), order=2)


def test_python_control_flow_on_values() -> None:
    """Un-jitted grad follows `if` and `while` on the values; jitted it raises."""

    def f(x: Any) -> Any:
        total = 0.0
        while x > 0.1:
            total, x = total + x, x / 2 if x > 0.5 else x / 4
        return total

    assert float(rlx.grad(f)(0.9)) == pytest.approx(1 + 1 / 2 + 1 / 8)
    with pytest.raises(errors.TracerBoolConversionError):
        rlx.jit(rlx.grad(f))(0.9)


def test_values_can_be_read_while_differentiating() -> None:
    """print, f-strings, int and bool answer in un-jitted grad; float and item of what has no derivative there."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        still = rlx.lax.stop_gradient(y)
        seen.extend([float(still), still.item(), f"{y:.1f}", int(y), bool(y > 5), str(y)])
        return y * y

    assert float(rlx.grad(f)(3.0)) == 24.0
    assert seen[:5] == [6.0, 6.0, "6.0", 6, True]
    assert "value 6." in seen[5]


def test_a_pullback_can_be_called_many_times() -> None:
    """Its residuals stay."""
    _, pull = rlx.vjp(lambda x: jnp.sin(x) * x, reals(3))
    first, second = pull(np.ones(3)), pull(np.ones(3))
    np.testing.assert_array_equal(first[0], second[0])
    (batched,) = rlx.vmap(pull)(np.eye(3))
    np.testing.assert_array_equal(np.diagonal(batched), first[0])


def test_gradient_dtype_is_the_arguments() -> None:
    """Every float width keeps itself."""
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        x = jnp.ones(3, dtype)
        assert rlx.grad(lambda y: (y * 2).sum())(x).dtype == x.dtype


def test_fourth_derivative() -> None:
    """To any order."""
    f = jnp.sin
    for _ in range(4):
        f = rlx.grad(f)
    assert float(f(jnp.float64(0.3))) == pytest.approx(np.sin(0.3), rel=1e-14)


@pytest.mark.parametrize("function", [jnp.sin, lambda x: x * x, lambda x: 1 / x, jnp.max])
def test_transpose_of_what_is_not_linear(function: Any) -> None:
    """Is refused."""
    with pytest.raises(errors.NotLinearError, match="not linear"):
        rlx.linear_transpose(function, reals(3))(function(reals(3)))


@pytest.mark.thorough
def test_gradients_are_as_weak_as_their_arguments() -> None:
    scale = np.float32(2.0)

    def weakness(library: Any) -> list[bool]:
        row = library.numpy.ones(3, np.float32)
        found = [
            library.grad(lambda x: x * scale)(1.0),
            library.grad(lambda x: (x * row).sum())(1.0),
            library.jit(library.grad(lambda x: x * scale))(1.0),
            library.grad(lambda x: x * 2)(library.numpy.float32(1)),
            library.vjp(lambda x: x * row, 1.0)[1](row)[0],
            library.jacrev(lambda x: x * row)(1.0),
            library.hessian(lambda x: x * x * 2)(1.0),
            library.grad(lambda t: t["a"] * t["b"])({"a": 1.0, "b": row[0]})["a"],
        ]
        return [x.weak_type for x in found]

    assert weakness(rlx) == weakness(jax)


def test_linear_transpose_of_integers() -> None:
    (found,) = rlx.linear_transpose(lambda x: 2 * x, 3)(np.int32(4))
    assert found == 8 and found.dtype == np.int32
    for mixed in (lambda x: 2.0 * x, lambda x: x.astype(np.int32)):
        with pytest.raises(TypeError, match="linear_transpose needs"):
            rlx.linear_transpose(mixed, np.int32(1) if mixed(rlx.numpy.ones((), np.int32)).dtype != np.int32 else 1.0)


def test_auxiliary_data_may_be_of_any_kind() -> None:
    token = object()

    def found(library: Any) -> Any:
        def f(x: Any) -> Any:
            return x * x, {"name": "square", "token": token, "double": 2 * x}

        pulled = library.vjp(f, 3.0, has_aux=True)
        pushed = library.jvp(f, (3.0,), (1.0,), has_aux=True)
        return [
            library.grad(f, has_aux=True)(3.0)[1],
            library.value_and_grad(f, has_aux=True)(3.0)[0][1],
            pulled[2],
            pushed[2],
        ]

    for data in (*found(rlx), *found(jax)):
        assert data["name"] == "square" and data["token"] is token and float(data["double"]) == 6.0
