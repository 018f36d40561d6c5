"""rlx.model: functions and classes that are compiled, with their parameters as arguments."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import DonatedArrayError, OptionError

traced: list[str] = []


@rlx.model
class Dense:
    """A layer with an activation that is no parameter."""

    def __init__(self, n: int, m: int, activation: Any = jnp.tanh, scale: float = 1.0) -> None:
        self.w, self.b = jnp.ones((n, m)) / n, jnp.zeros(m)
        self.activation, self.scale = activation, scale

    def __call__(self, x: Any) -> Any:
        traced.append("Dense")
        return self.scale * self.activation(x @ self.w + self.b)


@rlx.model
class Network:
    """Models in a list."""

    def __init__(self) -> None:
        self.layers = [Dense(3, 4), Dense(4, 2, jnp.sin)]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def test_parameters_are_arguments() -> None:
    """Another array of the same type compiles nothing anew; another function or number does."""
    layer, x = Dense(2, 2), jnp.ones((1, 2))
    traced.clear()
    np.testing.assert_allclose(layer(x), np.tanh(1.0) * np.ones((1, 2)), rtol=1e-6)
    layer.b = jnp.ones(2)
    np.testing.assert_allclose(layer(x), np.tanh(2.0) * np.ones((1, 2)), rtol=1e-6)
    assert len(traced) == 1
    layer.scale = 2.0
    np.testing.assert_allclose(layer(x), 2 * np.tanh(2.0) * np.ones((1, 2)), rtol=1e-6)
    layer.activation = jnp.sin
    np.testing.assert_allclose(layer(x), 2 * np.sin(2.0) * np.ones((1, 2)), rtol=1e-6)
    assert len(traced) == 3


def test_models_are_trees_and_nest() -> None:
    """Gradients are models, and what an optimiser makes of them runs without being traced anew."""
    network, x = Network(), jnp.ones((5, 3))
    loss = rlx.jit(lambda n: (n(x) ** 2).mean())
    before = float(loss(network))
    slopes = rlx.grad(loss)(network)
    assert isinstance(slopes, Network)
    assert slopes.layers[1].activation is jnp.sin
    better = rlx.tree.map(lambda p, g: p - 0.1 * g, network, slopes)
    traced.clear()
    assert float(loss(better)) < before
    assert not traced
    expected = np.sin(np.tanh(np.ones((5, 3)) @ np.full((3, 4), 1 / 3)) @ np.full((4, 2), 1 / 4))
    np.testing.assert_allclose(network(x), expected, rtol=1e-5)


def test_compiled_programs_have_the_parameters_of_their_moment() -> None:
    layer = Dense(2, 1)
    program = layer.compiled(rlx.ShapeDtypeStruct((1, 2), "float32"))
    found = program(jnp.ones((1, 2)))
    np.testing.assert_array_equal(found, layer(jnp.ones((1, 2))))


def test_functions() -> None:
    """They keep their name and documentation, take keywords, and give arguments away if that is asked for."""

    @rlx.model(donate=1)
    def step(w: Any, x: Any) -> Any:
        """One step."""
        return x + w

    assert (step.__name__, step.__doc__) == ("step", "One step.")
    x = jnp.ones(3)
    assert step(1.0, x).tolist() == [2, 2, 2]
    with pytest.raises(DonatedArrayError):
        x.tolist()
    assert step(1.0, x=jnp.ones(3)).tolist() == [2, 2, 2]
    assert step.compiled(1.0, rlx.ShapeDtypeStruct((3,), "float32"))(1.0, jnp.ones(3)).tolist() == [2, 2, 2]


def test_classes_give_arguments_away() -> None:
    """By the numbers of the call's arguments, among which the instance is not."""

    @rlx.model(donate=0, device="cpu")
    class Shift:
        def __init__(self) -> None:
            self.by = jnp.ones(3)

        def __call__(self, x: Any) -> Any:
            return x + self.by

    shift, x = Shift(), jnp.ones(3)
    assert shift(x).tolist() == [2, 2, 2]
    with pytest.raises(DonatedArrayError):
        x.tolist()
    assert shift.by.tolist() == [1, 1, 1]


def test_threads_share_a_model() -> None:
    layer, x = Dense(8, 8), jnp.ones((2, 8))
    traced.clear()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(float(layer(x).sum()))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 6
    assert len(traced) == 1


def test_mistakes() -> None:
    with pytest.raises(OptionError, match="no __call__"):
        rlx.model(type("Empty", (), {}))
    with pytest.raises(OptionError, match="has an attribute `compiled`"):
        rlx.model(type("Taken", (), {"__call__": lambda self: 1, "compiled": 1}))
