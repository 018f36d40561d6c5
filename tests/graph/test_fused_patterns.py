"""The patterns that the seeds fuse by name, each one kernel here, and their traps."""

from __future__ import annotations

import numpy as np
import pytest
from graph_cases import random

import rlx
import rlx.numpy as jnp
from rlx.fusion import fusion_report
from rlx.graph.operations import ACTIVATIONS
from rlx.ir.kernels import Contract, RowTiles

ROWS, WIDTH, HIDDEN, HEADS = 256, 64, 128, 4


def layer_norm(x, gain, offset):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + offset


def rms_norm(x, gain):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def attention_block(x, gain, offset, qkv, out):
    batch, time, width = x.shape
    parts = jnp.split(layer_norm(x, gain, offset) @ qkv, 3, -1)
    q, k, v = (p.reshape(batch, time, HEADS, width // HEADS).transpose(0, 2, 1, 3) for p in parts)
    weights = rlx.nn.softmax(q @ k.transpose(0, 1, 3, 2) / (width // HEADS) ** 0.5, -1)
    return x + (weights @ v).transpose(0, 2, 1, 3).reshape(batch, time, width) @ out


def transformer_layer(x, gain, offset, qkv, out, up, down):
    x = attention_block(x, gain, offset, qkv, out)
    return x + rlx.nn.gelu(layer_norm(x, gain, offset) @ up) @ down


X, W, BIAS = random(ROWS, WIDTH), random(WIDTH, HIDDEN), random(HIDDEN)
GAIN, OFFSET = random(WIDTH), random(WIDTH)
TOKENS = random(8, 32, WIDTH)
LAYER = (GAIN, OFFSET, random(WIDTH, 3 * WIDTH), random(WIDTH, WIDTH), W, random(HIDDEN, WIDTH))

PATTERNS = {
    "product, bias, silu, product": (
        lambda x, w, b, v: rlx.nn.silu(x @ w + b) @ v,
        (X, W, BIAS, random(HIDDEN, WIDTH)),
    ),
    "residual and layer norm": (lambda x, y, g, o: layer_norm(x + y, g, o), (X, random(ROWS, WIDTH), GAIN, OFFSET)),
    "residual and rms norm": (lambda x, y, g: rms_norm(x + y, g), (X, random(ROWS, WIDTH), GAIN)),
    "rms norm and reshape": (lambda x, g: rms_norm(x, g).reshape(ROWS * 2, WIDTH // 2), (X, GAIN)),
    "swiglu of one product": (
        lambda x, w: (lambda h: rlx.nn.silu(h[:, :HIDDEN]) * h[:, HIDDEN:])(x @ w),
        (X, random(WIDTH, 2 * HIDDEN)),
    ),
    "swiglu of two products": (lambda x, w, v: rlx.nn.silu(x @ w) * (x @ v), (X, W, random(WIDTH, HIDDEN))),
    "attention block": (attention_block, (TOKENS, *LAYER[:4])),
    "transformer layer": (transformer_layer, (TOKENS, *LAYER)),
}


def check(function, args):
    """Compiled in float32 as computed op by op in float64."""
    expected = np.asarray(function(*(np.asarray(a, np.float64) for a in args)))
    result = np.asarray(rlx.jit(function)(*args))
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_one_kernel_with_the_same_values(name):
    function, args = PATTERNS[name]
    report = fusion_report(function, *args)
    assert report.kernels == 1, str(report)
    assert not report.spills
    check(function, args)


@pytest.mark.parametrize("kind", sorted(ACTIVATIONS))
def test_every_activation_follows_its_product_and_bias(kind):
    activation = ACTIVATIONS[kind]

    def function(x, w, b):
        return activation(jnp.tanh(jnp.abs(x @ w + b)) * 0.8 + 0.1)

    args = (random(1024, WIDTH), W, BIAS)
    (kernel,) = rlx.inspect(function)(*args).plan.kernels
    assert isinstance(kernel, RowTiles)
    assert [type(k).__name__ for k in kernel.kernels] == ["Contract", "Loops"]
    assert len(kernel.local) == 1
    check(function, args)


def test_several_consumers_keep_the_value_and_stay_right():
    def function(x, w, b, v):
        h = jnp.tanh(x @ w + b)
        return jnp.concatenate([h @ v, h.sum(-1, keepdims=True)], -1)

    check(function, (X, W, BIAS, random(HIDDEN, WIDTH)))


def test_an_output_in_the_middle_is_written():
    def function(x, w, v):
        h = jnp.tanh(x @ w)
        return h, h @ v

    args = (X, W, random(HIDDEN, WIDTH))
    (chain,) = fusion_report(function, *args).chains
    assert chain.steps[0] == chain.steps[2] == "product"
    for got, wanted in zip(rlx.jit(function)(*args), function(*args), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_effects_are_not_moved():
    seen = []

    def function(x, w):
        h = jnp.tanh(x @ w)
        rlx.debug.callback(lambda total: seen.append(float(total)), h.sum())
        return jnp.tanh(h @ w.T) @ w

    args = (X, W)
    rlx.block_until_ready(rlx.jit(function)(*args))
    assert len(seen) == 1
    np.testing.assert_allclose(seen[0], np.tanh(X.astype(float) @ W.astype(float)).sum(), rtol=1e-3, atol=1e-2)


def test_rows_that_other_rows_need_split_the_chain():
    def function(x, w):
        h = jnp.tanh(x @ w)
        return h - h.mean(0)

    kernels = rlx.inspect(function)(X, W).plan.kernels
    assert len(kernels) > 1
    check(function, (X, W))


def test_reports_name_the_chain():
    function, args = PATTERNS["transformer layer"]
    (chain,) = fusion_report(function, *args).chains
    assert chain.steps.count("product") == 6
    assert "one kernel in" in str(fusion_report(function, *args))
    assert isinstance(rlx.inspect(function)(*args).plan.kernels[0].kernels[1], Contract)
