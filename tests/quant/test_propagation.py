"""Roundings that change nothing are found through what lies between, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, nn, quant
from rlx.errors import InputTypeError, OptionError
from rlx.trace.interpret import interpret

X = np.random.default_rng(0).normal(0, 2, (4, 6, 8)).astype(np.float32)
SCALES = np.linspace(0.1, 0.8, 8).astype(np.float32)
ENTRY = quant.CalibrationEntry.per_tensor(0.1, 3)
Rounding = Callable[[Any], Any]


def run(program: Any) -> Rounding:
    return lambda x: interpret(program, [x])[0]


def whole(x: Any) -> Any:
    return quant.fake_quantize(x, 0.25, bits=4)


def along(axis: int) -> Rounding:
    return lambda x: quant.fake_quantize(x, SCALES, axis=axis)


def coded(x: Any) -> Any:
    return quant.quantize_dequantize(x, ENTRY)


def slow(x: Any) -> Any:
    return quant.fake_quantize(x, 0.25, straight_through="tanh")


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 1), (1, 2, 1), "VALID")


GONE: dict[str, tuple[Rounding, Callable[[Any], Any], Rounding]] = {
    "nothing": (whole, lambda x: x, whole),
    "reshape": (whole, lambda x: x.reshape(8, -1), whole),
    "transpose": (coded, lambda x: x.T, coded),
    "slice": (whole, lambda x: x[1:, ::2], whole),
    "relu": (whole, nn.relu, whole),
    "relu of codes": (coded, nn.relu, coded),
    "pool": (whole, pooled, whole),
    "greatest": (coded, lambda x: x.max(axis=1), coded),
    "joined": (whole, lambda x: jnp.concatenate([x[:1], x]), whole),
    "jitted": (rlx.jit(whole), lambda x: jnp.flip(x).T, whole),
    "several": (whole, lambda x: nn.relu(whole(x.reshape(4, 48)).T), whole),
    "axis, transposed": (along(2), lambda x: x.transpose(2, 0, 1), along(0)),
    "axis, reshaped": (along(-1), lambda x: x.reshape(24, 8), along(1)),
    "axis, reduced": (along(2), lambda x: nn.relu(x).max(axis=0), along(1)),
    "axis, sliced": (along(2), lambda x: x[2:, 1], along(1)),
}
STAY: dict[str, tuple[Rounding, Callable[[Any], Any], Rounding]] = {
    "sum": (whole, lambda x: x + 1, whole),
    "sum of both": (whole, lambda x: x + x.mean(), whole),
    "other scale": (whole, nn.relu, lambda x: quant.fake_quantize(x, 0.5, bits=4)),
    "other bits": (whole, nn.relu, lambda x: quant.fake_quantize(x, 0.25)),
    "own scale": (quant.fake_quantize, lambda x: x.T, quant.fake_quantize),
    "other kind": (whole, lambda x: x.T, coded),
    "tanh": (slow, lambda x: x.T, slow),
    "axis cut": (along(2), lambda x: jnp.concatenate([x[..., :4], x[..., :4]], axis=2), along(2)),
    "axis turned": (along(2), lambda x: jnp.flip(x, 2), along(2)),
    "axis reshaped": (along(2), lambda x: x.reshape(4, 8, 6).transpose(0, 2, 1), along(2)),
    "limit": (whole, lambda x: jnp.minimum(x, 0.6), whole),
}


@pytest.mark.parametrize("name", GONE)
def test_a_rounding_that_changes_nothing_goes_and_the_rest_stays(name: str) -> None:
    first, between, second = GONE[name]
    program = rlx.make_program(lambda x: second(between(first(x))))(X)
    found, count = quant.quant_propagate(program)
    assert count == (2 if name == "several" else 1)
    np.testing.assert_array_equal(run(found)(jnp.asarray(X)), second(between(first(X))))
    np.testing.assert_array_equal(run(found)(jnp.asarray(X)), between(first(X)))

    def loss(x: Any) -> Any:
        return (run(found)(x) ** 2).sum()

    expected = rlx.grad(lambda x: (second(between(first(x))) ** 2).sum())(X)
    np.testing.assert_allclose(rlx.grad(loss)(X), expected, atol=1e-5)


@pytest.mark.parametrize("name", STAY)
def test_a_rounding_that_may_change_something_stays(name: str) -> None:
    first, between, second = STAY[name]
    program = rlx.make_program(lambda x: second(between(first(x))))(X)
    found, count = quant.quant_propagate(program)
    assert count == 0
    np.testing.assert_array_equal(run(found)(jnp.asarray(X)), second(between(first(X))))


def test_graphs_are_rounded_and_cleared_by_node() -> None:
    graph = rlx.Graph("net")
    x, w = graph.input("x", rlx.Shape([2, 4])), graph.param("w", rlx.Shape([4, 3]))
    hidden = graph.relu(x)
    graph.set_outputs([graph.matmul(hidden, w), hidden])
    rounded = quant.insert_q_dq(graph, {x: ENTRY, hidden: ENTRY})
    values = {"x": X[0, :2, :4], "w": X[1, :4, :3]}
    product, kept = rounded(**values)
    expected = np.asarray(coded(nn.relu(coded(values["x"]))))
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_allclose(product, expected @ values["w"], rtol=1e-5)
    assert list(rounded.signature) == ["x", "w"]
    cleared, count = quant.quant_propagate(rounded)
    assert count == 1
    np.testing.assert_array_equal(cleared(**values)[1], kept)
    stranger = rlx.Graph("other").input("x", rlx.Shape([2]))
    with pytest.raises(OptionError, match="nodes that no output"):
        quant.insert_q_dq(graph, {stranger: ENTRY})
    with pytest.raises(InputTypeError, match="function is neither a program nor a graph"):
        quant.quant_propagate(coded)


def test_bits_of_a_value_are_told() -> None:
    weight = quant.quantize(np.ones((3, 32), np.float32), "gguf_q4_0")

    def f(x: Any, w: Any, y: Any) -> Any:
        return whole(x).T, coded(x)[1:], x * 2, quant.dequant_matmul(y, w), whole(x) + 1

    program = rlx.make_program(f)(X, weight, np.ones((2, 32), np.float32))
    assert [quant.quantized_weight_bits(program, v) for v in program.outputs] == [4, 8, None, 4, None]
    graph = rlx.Graph("g")
    x = graph.input("x", rlx.Shape([4]))
    y = graph.apply(whole, x)
    graph.set_outputs(y)
    assert quant.quantized_weight_bits(graph, y) == 4 and quant.quantized_weight_bits(graph, x) is None
