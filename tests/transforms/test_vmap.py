"""vmap: axes over trees, collectives, and what batching makes of programs; against jax."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from points import reals
from programs import primitives_of
from twins import Build, assert_same, assert_twins

import rlx
import rlx.numpy as jnp
from rlx import errors

CASES: dict[str, tuple[Build, tuple[Any, ...]]] = {
    "axes in and out": (
        lambda L: L.vmap(lambda x, y: (x @ y, x), in_axes=(1, None), out_axes=(0, -1)),
        (reals(3, 4), reals(3, 2)),
    ),
    "a dict": (
        lambda L: L.vmap(lambda d: {"o": d["a"] * d["b"]}, in_axes=({"a": 0, "b": None},), out_axes={"o": 1}),
        ({"a": reals(3, 2), "b": reals(2)},),
    ),
    "a list": (lambda L: L.vmap(lambda x: x[0] * x[1], in_axes=([0, None],)), ([reals(3, 2), reals(2)],)),
    "a prefix": (
        lambda L: L.vmap(lambda p, x: p["w"] * p["b"] + x, in_axes=(None, 0)),
        ({"w": 2.0, "b": 3.0}, reals(3)),
    ),
    "a keyword": (lambda L: lambda x: L.vmap(lambda y, *, s: y * s)(x, s=x), (reals(3),)),
    "no argument": (lambda L: L.vmap(lambda: L.numpy.ones(2, "float64"), axis_size=3), ()),
    "no mapped argument": (lambda L: L.vmap(lambda x: x, in_axes=None, axis_size=3), (reals(2),)),
    "a negative axis": (lambda L: L.vmap(lambda x: x * 2, in_axes=-1), (reals(2, 3),)),
    "no lane": (lambda L: L.vmap(lambda x: L.numpy.sum(x)), (reals(0, 3),)),
    "None among the arguments": (lambda L: L.vmap(lambda x, y: x, in_axes=(0, None)), (reals(3), None)),
    "an unbatched result": (lambda L: L.vmap(lambda x: (x, 1.5 * np.ones(2)), out_axes=(0, None)), (reals(3),)),
    "two axes": (
        lambda L: L.vmap(L.vmap(lambda x, y: x @ y, in_axes=(None, 1)), in_axes=(0, None)),
        (reals(3, 2), reals(2, 4)),
    ),
    "a gradient per example": (
        lambda L: L.vmap(L.grad(lambda w, x: L.numpy.tanh(w @ x).sum()), in_axes=(None, 0)),
        (reals(2, 3), reals(4, 3)),
    ),
    "a gather with batched indices": (lambda L: L.vmap(lambda x, i: x[i]), (reals(3, 4), np.array([0, 3, 1]))),
    "a batched dynamic slice": (
        lambda L: L.vmap(lambda x, i: L.lax.dynamic_slice(x, (i,), (2,)), in_axes=(None, 0)),
        (reals(5), np.array([0, 3, 9])),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_jax(name: str) -> None:
    """Eagerly, and some jitted."""
    build, args = CASES[name]
    assert_twins(build, *args, jit=name in ("axes in and out", "a gradient per example"))


RING = [(0, 1), (1, 2), (2, 0)]


def _every_collective(library: Any) -> Any:
    lax = library.lax

    def f(x: Any) -> Any:
        i = lax.axis_index("i")
        sums = lax.psum(x, "i"), lax.pmean(x, "i"), lax.pmax(x, "i"), lax.pmin(x, "i"), lax.psum(1, "i") * x
        return sums, lax.all_gather(x, "i"), lax.ppermute(x, "i", RING), x * i, i.astype("int32")

    return library.vmap(f, axis_name="i")


def _differentiated_collectives(library: Any) -> Any:
    lax = library.lax

    def f(x: Any) -> Any:
        moved = lax.ppermute(x, "i", RING) ** 2 + lax.all_gather(x, "i").sum() * x
        return lax.psum(x**2, "i") * x + lax.pmean(x**3, "i") + moved

    return library.grad(lambda x: library.numpy.sum(library.vmap(f, axis_name="i")(x)))


def _derivative_inside(library: Any) -> Any:
    return library.vmap(library.grad(lambda x: library.lax.psum(library.numpy.sum(x**2), "i")), axis_name="i")


def _two_names(library: Any) -> Any:
    lax = library.lax

    def f(x: Any) -> Any:
        return lax.psum(x, ("i", "j")) + lax.psum(x, "i") * 2 + lax.axis_index("j") * x

    return library.vmap(library.vmap(f, axis_name="j"), axis_name="i")


def _in_a_scan(library: Any) -> Any:
    def f(x: Any) -> Any:
        return library.lax.scan(lambda c, _: (c + library.lax.psum(c, "i") * 0.1, c), x, None, length=3)

    return library.vmap(f, axis_name="i")


def _in_a_branch(library: Any) -> Any:
    lax = library.lax
    mean = library.jit(lambda y: y + lax.pmean(y, "i"))
    return library.vmap(lambda x: lax.cond(True, mean, lambda y: y, x), axis_name="i")


@pytest.mark.parametrize(
    "build",
    [_every_collective, _differentiated_collectives, _derivative_inside, _two_names, _in_a_scan, _in_a_branch],
)
def test_collectives(build: Build) -> None:
    """psum, pmean, pmax, pmin, all_gather, axis_index, ppermute: values and derivatives as jax's."""
    assert_twins(build, reals(3, 2), jit=build is _every_collective)


def _loop(x: Any) -> Any:
    return rlx.lax.scan(lambda c, y: (c * y, c), x[0], x)[0]


def test_vmap_of_a_scan_is_a_scan() -> None:
    """One loop over batched carries."""
    assert primitives_of(rlx.vmap(_loop), reals(3, 4)).count("scan") == 1


def test_grad_of_a_scan_is_a_scan_forwards_and_one_in_reverse() -> None:
    """Two loops, of opposite directions."""
    program = rlx.make_program(rlx.grad(_loop))(reals(4))
    assert [e.params["reverse"] for e in program.equations if e.primitive.name == "scan"] == [False, True]


def test_vmap_of_a_cond() -> None:
    """With a batched predicate it is a select, with a shared one still a cond."""

    def f(p: Any, x: Any) -> Any:
        return rlx.lax.cond(p, jnp.sin, lambda y: y * 2, x)

    flags = np.array([True, False, True])
    batched = primitives_of(rlx.vmap(f), flags, reals(3))
    shared = primitives_of(rlx.vmap(f, in_axes=(None, 0)), True, reals(3))
    assert "cond" not in batched and "select" in batched
    assert "cond" in shared


def _guarded(library: Any) -> Any:
    lax, jnp_ = library.lax, library.numpy

    def lanes(x: Any, c: Any) -> Any:
        branch = library.vmap(lambda y: lax.cond(y > c, lambda: jnp_.sqrt(y - c), lambda: y * 2))
        return branch(x).sum()

    return library.grad(lanes, argnums=(0, 1))


def test_gradient_of_a_branch_not_taken_is_zero() -> None:
    """Even where that branch has an infinite or NaN derivative."""
    assert_twins(_guarded, reals(5), np.asarray(0.4))


@pytest.mark.parametrize("index", [np.array([-1, 0, 1, 2, 5], "i4"), np.array([1, 1, 1, 1, 1], "i4")])
def test_batched_switch_clamps_its_index(index: np.ndarray) -> None:
    """As an unbatched one."""
    assert_twins(
        lambda L: L.vmap(lambda i, x: L.lax.switch(i, [lambda y: y, lambda y: y * 2, lambda y: -y], x)),
        index,
        reals(5, 2),
    )


def test_batched_switch_of_one_branch() -> None:
    """The index does not matter."""
    assert_twins(lambda L: L.vmap(lambda i, x: L.lax.switch(i, [lambda y: y * 2], x)), np.arange(3), reals(3))


def test_unbatched_values_answer_questions() -> None:
    """Python control flow works on what is not mapped, and raises on what is."""

    def f(x: Any, n: Any) -> Any:
        return x * 2 if n > 1 else x

    np.testing.assert_array_equal(rlx.vmap(f, in_axes=(0, None))(reals(3), 2), reals(3) * 2)
    with pytest.raises(errors.TracerBoolConversionError):
        rlx.vmap(f)(reals(3), reals(3))


def test_batched_while_finishes_each_lane_on_its_own() -> None:
    """Lanes that are done keep their values while others go on."""

    def build(library: Any) -> Any:
        def f(x: Any) -> Any:
            return library.lax.while_loop(lambda s: s[0] < x * 5, lambda s: (s[0] + 1, s[1] * 1.1), (0.0 * x, x))

        return library.vmap(f)

    assert_twins(build, reals(5))


def test_wrong_axes_leave_nothing_behind() -> None:
    """After each refusal the same function works."""
    for in_axes in (2, (0, 0), "a", {"b": 0}):
        with pytest.raises(errors.VmapAxisError):
            rlx.vmap(lambda x: x, in_axes=in_axes)(reals(3))
    assert_same(rlx.vmap(lambda x: x + 1)(reals(3)), jax.vmap(lambda x: x + 1)(reals(3)))


def test_a_callable_object_lends_its_attributes_and_a_name_if_it_has_one() -> None:
    class Layer:
        def __init__(self) -> None:
            self.weight, self.__name__ = 2.0, np.ones(3)

        def __call__(self, x: Any) -> Any:
            return self.weight * x

    for library in (rlx, jax):
        mapped = library.vmap(Layer())
        assert mapped.weight == 2.0 and mapped(np.ones(2)).tolist() == [2.0, 2.0]
    assert rlx.grad(Layer())(1.0) == 2.0
