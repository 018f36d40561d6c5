"""Types of the user's that vmap maps by rules of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.interpreters import batching as jax_batching

import rlx
import rlx.numpy as jnp
from rlx.custom_batching import register_vmappable, unregister_vmappable
from rlx.errors import InputTypeError, VmapAxisError

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


class Labelled:
    """An array with a name: no node of trees."""

    def __init__(self, data: Any, label: str = "") -> None:
        self.data, self.label = data, label


class Along:
    """Which axis of a Labelled is mapped; None for none."""

    def __init__(self, axis: int | None) -> None:
        self.axis = axis


def _element(part: Callable[..., Any], _: Any, value: Labelled, spec: Any) -> Labelled:
    axis = spec.axis if isinstance(spec, Along) else spec
    return Labelled(part(value.data + 1, axis), value.label)


def _whole(whole: Callable[..., Any], size: int, element: Labelled, spec: Any) -> Labelled:
    axis = spec.axis if isinstance(spec, Along) else spec
    result = whole(size, element.data * 3, axis)
    assert axis is None or result.ndim == element.data.ndim + 1
    return Labelled(result - 1, element.label)


@pytest.fixture(autouse=True, params=[Along, int])
def spec(request: pytest.FixtureRequest) -> Iterator[type]:
    """The type is registered with both libraries, with ints or objects in in_axes."""
    for register in (jax_batching.register_vmappable, register_vmappable):
        register(Labelled, request.param, int, _element, _whole, None)
    yield request.param
    for unregister in (jax_batching.unregister_vmappable, unregister_vmappable):
        unregister(Labelled)


def _alone(library: Any, spec: Any) -> Any:
    f = library.vmap(lambda a: Labelled(library.numpy.sin(a.data), a.label + "!"), spec(0), spec(1), axis_size=2)
    result = f(Labelled(library.numpy.asarray(MATRIX), "x"))
    assert result.label == "x!"
    return result.data


def _beside_arrays_and_in_trees(library: Any, spec: Any) -> Any:
    f = library.vmap(
        lambda a, b: {"first": Labelled(a["p"].data * b.sum()), "second": b, "third": [a["p"].data]},
        in_axes=({"p": spec(1)}, 0),
        out_axes={"first": spec(1), "second": 0, "third": [1]},
        axis_size=3,
    )
    result = f({"p": Labelled(library.numpy.asarray(MATRIX))}, library.numpy.ones((3, 4)))
    return result["first"].data, result["second"], result["third"][0]


def _nested_in_a_gradient(library: Any, spec: Any) -> Any:
    def f(x: Any) -> Any:
        inner = library.vmap(lambda a: Labelled(library.numpy.sin(a.data)), spec(0), spec(0), axis_size=3)
        return library.vmap(inner, spec(0), spec(0), axis_size=2)(Labelled(x)).data.sum()

    return library.jit(library.grad(f))(library.numpy.asarray(MATRIX))


def _unmapped(library: Any, spec: Any) -> Any:
    f = library.vmap(lambda a, b: (a.data * b, Labelled(a.data)), (None, 0), (0, spec(0)))
    first, second = f(Labelled(library.numpy.ones(3)), library.numpy.arange(2.0))
    return first, second.data


@pytest.mark.parametrize("case", [_alone, _beside_arrays_and_in_trees, _nested_in_a_gradient])
def test_equals_jax(case: Callable[[Any, Any], Any], spec: type) -> None:
    found, expected = (jax.tree.leaves(tuple(rlx.tree.leaves(case(library, spec)))) for library in (rlx, jax))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_value_that_is_not_mapped_is_handed_through(spec: type) -> None:
    first, second = _unmapped(rlx, spec)
    np.testing.assert_array_equal(first, np.outer([0, 1], np.ones(3)))
    np.testing.assert_array_equal(second, np.full((2, 3), 2.0))


def test_rules_may_compute_with_elements_and_ask_for_their_number(spec: type) -> None:
    register_vmappable(
        Labelled,
        spec,
        int,
        lambda part, index, value, axis: Labelled(jnp.exp(part(value.data, 0)) * index()),
        lambda whole, size, element, axis: Labelled(whole(size, jnp.log(element.data), 0).sum() + size),
    )
    result = rlx.vmap(lambda a: Labelled(a.data + 1.0), spec(0), spec(0))(Labelled(jnp.arange(3.0)))
    expected = np.log(np.exp(np.arange(3.0)) * np.arange(3) + 1).sum() + 3
    assert float(result.data) == pytest.approx(expected, rel=1e-6)


def test_what_does_not_fit_is_said(spec: type) -> None:
    with pytest.raises(VmapAxisError, match="axis 3 of an array of shape"):
        rlx.vmap(lambda a: a, spec(3), spec(0))(Labelled(jnp.ones(3)))
    with pytest.raises(VmapAxisError, match="different sizes"):
        rlx.vmap(lambda a, b: a, (spec(0), 0), spec(0))(Labelled(jnp.ones(3)), jnp.ones(2))
    with pytest.raises(VmapAxisError, match="no mapped argument"):
        rlx.vmap(lambda a: a, spec(None) if spec is Along else None, None)(Labelled(jnp.ones(3)))


def test_without_rules_it_is_no_array() -> None:
    class Other:
        data = 1.0

    with pytest.raises(InputTypeError, match="Other"):
        rlx.vmap(lambda a: a)(Other())
    with pytest.raises(VmapAxisError):
        rlx.vmap(lambda a: a, in_axes=Other())


@pytest.mark.parametrize("axes", [True, (True,), ({"a": False},), 1.0, (1.0,), {"a": 0}])
def test_an_axis_is_an_integer(axes: Any) -> None:
    with pytest.raises(VmapAxisError):
        rlx.vmap(lambda a: a, in_axes=axes)({"a": jnp.ones((2, 2))})
