"""linearize and closure_convert."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from points import reals
from twins import assert_same, assert_twins

import rlx
from rlx import errors


def _with_aux(library: Any) -> Any:
    def f(x: Any) -> Any:
        y, push, auxiliary = library.linearize(lambda z: (z**2, z * 3), x, has_aux=True)
        return y, push(x), auxiliary

    return f


def _tree(library: Any) -> Any:
    def f(x: Any) -> Any:
        y, push = library.linearize(lambda z, w: {"o": z * w["a"]}, x, {"a": x})
        return y, push(x, {"a": x * 2})

    return f


def _transposed(library: Any) -> Any:
    def f(x: Any) -> Any:
        y, push = library.linearize(lambda z: library.numpy.sin(z) * z, x)
        return library.linear_transpose(push, x)(y)

    return f


def _mapped(library: Any) -> Any:
    def f(x: Any) -> Any:
        _, push = library.linearize(lambda z: library.numpy.sin(z) * z, x)
        return library.vmap(push)(np.eye(3))

    return f


def _differentiated(library: Any) -> Any:
    def f(x: Any) -> Any:
        _, push = library.linearize(lambda z: library.numpy.sin(z) * z, x)
        return push(x).sum()

    return library.grad(f)


@pytest.mark.parametrize("build", [_with_aux, _tree, _transposed, _mapped, _differentiated])
def test_equals_jax(build: Any) -> None:
    """Eagerly and jitted."""
    assert_twins(build, reals(3))


def test_the_nonlinear_part_runs_once() -> None:
    """Pushing a tangent traces nothing and computes no sine."""
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return rlx.numpy.sin(x)

    _, push = rlx.linearize(f, reals(3))
    push(np.ones(3))
    push(np.ones(3))
    names = {e.primitive.name for e in rlx.make_program(push)(np.ones(3)).equations}
    assert calls == [1]
    assert "sin" not in names and "cos" not in names


def test_tangents_of_another_structure() -> None:
    """Are refused."""
    _, push = rlx.linearize(lambda x: x * 2, reals(3))
    with pytest.raises(errors.TreeMismatchError, match="structure"):
        push(reals(3), reals(3))


def test_closure_convert() -> None:
    """What a function closes over becomes arguments that can be differentiated."""

    def build(library: Any) -> Any:
        def g(x: Any) -> Any:
            converted, values = library.closure_convert(lambda y: library.numpy.sin(y) * x, x)
            return library.numpy.sum(converted(x, *values))

        return library.grad(g)

    assert_same(build(rlx)(reals(3)), jax.grad(lambda x: jax.numpy.sum(jax.numpy.sin(x) * x))(reals(3)))
    converted, values = rlx.closure_convert(lambda y: y * 2, reals(3))
    assert values == []
    np.testing.assert_array_equal(converted(reals(3)), reals(3) * 2)
