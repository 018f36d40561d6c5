"""A new batch size, rate or weight of a loss compiles no kernel."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp
from rlx.backends.cpu.runtime.store import statistics

RANDOM = np.random.default_rng(0)


def floats(*shape):
    return (RANDOM.standard_normal(shape) * 0.1).astype(np.float32)


def norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / rnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def layer_loss(weights, x):
    batch, time, width = x.shape
    q, k, v = rnp.split(norm(x) @ weights["qkv"], 3, -1)
    heads = [p.reshape(batch, time, 2, width // 2).transpose(0, 2, 1, 3) for p in (q, k, v)]
    mixed = rlx.nn.softmax(heads[0] @ heads[1].transpose(0, 1, 3, 2) / 4.0, -1) @ heads[2]
    x = x + mixed.transpose(0, 2, 1, 3).reshape(x.shape)
    return (rlx.nn.gelu(norm(x) @ weights["up"]) ** 2).mean()


def train(weights, x, y):
    def loss(weights):
        hidden = rlx.nn.relu(x @ weights["w"] + weights["b"])
        return -(rlx.nn.log_softmax(hidden @ weights["v"]) * y).sum(-1).mean()

    value, slopes = rlx.value_and_grad(loss)(weights)
    return value, rlx.tree.map(lambda w, g: w - 0.01 * g, weights, slopes)


def convolve(w, x):
    y = rlx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return (rlx.nn.relu(y) ** 2).mean()


LAYER = {"qkv": floats(32, 96), "up": floats(32, 64)}
MLP = {"w": floats(20, 64), "b": floats(64), "v": floats(64, 10)}

PROGRAMS = {
    "layer gradient": (rlx.value_and_grad(layer_loss), lambda n: (LAYER, floats(n, 24, 32)), 32, (48, 24, 36)),
    "training step": (train, lambda n: (MLP, floats(n, 20), floats(n, 10)), 500, (448, 600, 1000)),
    "convolution gradient": (rlx.grad(convolve), lambda n: (floats(3, 3, 4, 8), floats(n, 16, 16, 4)), 12, (20, 10)),
    "chain": (lambda x: rnp.sqrt(x * x * 0.5 + 1.0) - x * 0.1, lambda n: (floats(n),), 1000, (10, 99_999)),
    "scan": (
        lambda w, xs: rlx.lax.scan(lambda h, x: (rnp.tanh(h @ w + x),) * 2, xs[0], xs),
        lambda n: (floats(64, 64), floats(7, n, 64)),
        20,
        (24, 40),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_new_batch_size_compiles_nothing(name):
    function, arguments, first, others = PROGRAMS[name]
    jitted = rlx.jit(function)
    rlx.block_until_ready(jitted(*arguments(first)))
    for size in others:
        args = arguments(size)
        before = statistics()
        result = jitted(*args)
        after = statistics()
        assert (after.compiled, after.loaded) == (before.compiled, before.loaded), size
        expected = function(*(rlx.tree.map(lambda a: a.astype(np.float64), a) for a in args))
        for got, wanted in zip(rlx.tree.leaves(result), rlx.tree.leaves(expected), strict=True):
            wanted = np.asarray(wanted)
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * max(np.abs(wanted).max(), 1e-3))


def test_other_constants_compile_nothing():
    x = floats(5000)
    rlx.jit(lambda x: rnp.exp(x * 0.37) + 1.25)(x)
    before = statistics().compiled
    result = rlx.jit(lambda x: rnp.exp(x * 0.41) + 3.75)(x)
    assert statistics().compiled == before
    np.testing.assert_allclose(result, np.exp(x * np.float32(0.41)) + 3.75, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "float16", "bfloat16", "complex64"])
def test_constants_of_every_dtype_arrive_whole(dtype):
    x = np.arange(40).astype(np.int8).astype(rnp.dtype(dtype) if dtype != "bfloat16" else rnp.bfloat16)
    for constant in (3, 77, 100):
        value = x.dtype.type(constant)
        result = np.asarray(rlx.jit(lambda x, value=value: x + value)(x))
        np.testing.assert_array_equal(result, np.asarray(x + value))


def test_special_constants_survive():
    x = floats(33).astype(np.float64)
    for constant in (np.nan, -np.inf, 5e-324, 1.7976931348623157e308, -0.0, 1 / 3):
        expected = x * constant
        np.testing.assert_array_equal(rlx.jit(lambda x, c=constant: x * np.float64(c))(x), expected)
