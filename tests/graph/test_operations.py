"""Every operation of graphs against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_cases import random, run_one
from scipy import special

from rlx.errors import RlxError
from rlx.graph.layers import MASK_KINDS
from rlx.graph.operations import ACTIVATIONS, BINARY, COMPARISONS, REDUCTIONS
from rlx.testing import assert_close

X = np.linspace(0.1, 2.5, 12, dtype=np.float32).reshape(3, 4)
SIGNED = X - 1.3


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


EXPECTED: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "atan": np.arctan,
    "cos": np.cos,
    "exp": np.exp,
    "gelu": lambda x: x * 0.5 * (1 + special.erf(x / math.sqrt(2))),
    "gelu_approx": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "log": np.log,
    "neg": np.negative,
    "recip": lambda x: 1 / x,
    "relu": lambda x: np.maximum(x, 0),
    "round": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "sin": np.sin,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations(kind: str) -> None:
    x = X if kind in ("log", "sqrt", "rsqrt", "recip") else SIGNED
    assert_close(run_one(lambda g, x: g.activation(kind, x), x=x), EXPECTED[kind](x))


def test_binary_operations_broadcast() -> None:
    functions = dict(
        add=np.add,
        div=np.divide,
        max=np.maximum,
        min=np.minimum,
        mul=np.multiply,
        pow=np.power,
        sub=np.subtract,
    )
    assert set(functions) == set(BINARY)
    for name, function in functions.items():
        for y in (X[0], X[:, :1], X[:1, :1], np.float32(1.5)):
            assert_close(run_one(lambda g, x, y, name=name: g.binary(name, x, y), x=X, y=y), function(X, y))


def test_comparisons_and_where() -> None:
    functions = dict(
        eq=np.equal, ge=np.greater_equal, gt=np.greater, le=np.less_equal, lt=np.less, ne=np.not_equal
    )
    assert set(functions) == set(COMPARISONS)
    y = X[::-1].copy()
    for name, function in functions.items():
        found = run_one(lambda g, x, y, name=name: g.compare(name, x, y), x=X, y=y)
        assert found.dtype == bool and np.array_equal(found, function(X, y))
    found = run_one(lambda g, x, y: g.where(g.equal(x, y), x, y * 2), x=X, y=y)
    assert_close(found, np.where(X == y, X, y * 2))


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions(kind: str) -> None:
    function = getattr(np, kind)
    for axes, keep in ((None, False), (0, True), ((0, 1), False), (-1, False)):
        found = run_one(lambda g, x, a=axes, k=keep: g.reduce(kind, x, a, keep_dim=k), x=X)
        assert_close(found, np.asarray(function(X, axis=axes, keepdims=keep)))


def test_shape_operations() -> None:
    assert np.array_equal(run_one(lambda g, x: g.reshape(x, (2, -1)), x=X), X.reshape(2, -1))
    assert np.array_equal(run_one(lambda g, x: g.transpose(x, (1, 0)), x=X), X.T)
    assert np.array_equal(run_one(lambda g, x: g.narrow(x, 1, 1, 2), x=X), X[:, 1:3])
    assert np.array_equal(run_one(lambda g, x: g.concat([x, x], 1), x=X), np.concatenate([X, X], 1))
    assert np.array_equal(run_one(lambda g, x: g.expand(x, (2, 3, 4)), x=X), np.broadcast_to(X, (2, 3, 4)))
    assert run_one(lambda g, x: g.cast(x, "int8"), x=X).dtype == np.int8


def test_indexing_operations() -> None:
    index = np.array([2, 0, 2], np.int32)
    assert np.array_equal(run_one(lambda g, x, i: g.gather(x, i), x=X, i=index), X[index])
    rows = np.ones((3, 4), np.float32)
    expected = X.copy()
    np.add.at(expected, index, rows)
    assert_close(run_one(lambda g, x, i, r: g.scatter_add(x, i, r), x=X, i=index, r=rows), expected)
    positions = run_one(lambda g, x: g.topk(x, 2)[1], x=SIGNED)
    assert positions.dtype == np.int32 and np.array_equal(positions, np.tile([3, 2], (3, 1)))


def test_running_sums() -> None:
    assert_close(run_one(lambda g, x: g.cumsum(x, 1), x=X), np.cumsum(X, 1))
    found = run_one(lambda g, x: g.cumsum(x, 1, exclusive=True), x=X)
    assert_close(found, np.cumsum(X, 1) - X)
    empty = run_one(lambda g, x: g.cumsum(x, 0, exclusive=True), x=np.zeros((0, 2), np.float32))
    assert empty.shape == (0, 2)


def test_linear_layers() -> None:
    w, v, b = random(4, 5), random(4, 5, seed=1), random(5, seed=2)
    found = run_one(lambda g, x, w, b: g.linear(x, w, b, "relu"), x=SIGNED, w=w, b=b)
    assert_close(found, np.maximum(SIGNED @ w + b, 0))
    gate = SIGNED @ w
    assert_close(
        run_one(lambda g, x, w, v: g.swiglu(x, w, v), x=SIGNED, w=w, v=v), gate * sigmoid(gate) * (SIGNED @ v)
    )
    a, r = random(2, 3, 3), random(2, 3, 2, seed=1)
    assert_close(
        run_one(lambda g, a, r: g.solve(a, r), a=a, r=r), np.linalg.solve(a, r), rtol=1e-3, atol=1e-3
    )
    numbers = (((2,), (0,)), ((0,), (2,)))
    y = random(3, 5, 2, seed=3)
    found = run_one(lambda g, x, y: g.dot_general(x, y, numbers), x=a, y=y)
    assert_close(found, np.einsum("bik,kjb->bij", a, y))


def test_normalisations() -> None:
    gamma, beta = random(4), random(4, seed=1)
    mean, variance = X.mean(1, keepdims=True), X.var(1, keepdims=True)
    found = run_one(lambda g, x, a, b: g.layer_norm(x, a, b), x=X, a=gamma, b=beta)
    assert_close(found, (X - mean) / np.sqrt(variance + 1e-5) * gamma + beta, rtol=1e-4)
    found = run_one(lambda g, x, a: g.rms_norm(x, a), x=X, a=gamma)
    assert_close(found, X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-6) * gamma, rtol=1e-4)
    image = random(2, 4, 3, 3)
    found = run_one(lambda g, x, a, b: g.group_norm(x, a, b, 2), x=image, a=gamma, b=beta)
    groups = image.reshape(2, 2, -1)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    assert_close(
        found, normal.reshape(image.shape) * gamma[:, None, None] + beta[:, None, None], rtol=1e-4, atol=1e-5
    )
    found = run_one(lambda g, x: g.softmax(x, 0), x=X)
    assert_close(found, special.softmax(X, axis=0))


def attention_by_hand(
    q: Any, k: Any, v: Any, heads: int, allowed: Any = None, bias: Any = 0, scale: Any = None, cap: Any = None
) -> Any:
    split = [x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3).astype(np.float64) for x in (q, k, v)]
    scores = split[0] @ split[1].swapaxes(-1, -2) * (split[0].shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if cap is None else cap * np.tanh(scores / cap)
    scores = scores + bias
    scores = scores if allowed is None else np.where(allowed, scores, -np.inf)
    mixed = special.softmax(scores, axis=-1) @ split[2]
    return mixed.transpose(0, 2, 1, 3).reshape(q.shape).astype(np.float32)


def test_attention_masks_scale_and_cap() -> None:
    q, k, v = (random(2, 5, 8, seed=s) for s in range(3))
    at = np.arange(5)
    causal, near = at[:, None] >= at, abs(at[:, None] - at) < 2
    keys = np.array([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1]], np.float32)
    bias = random(2, 2, 5, 5, seed=4)
    given = dict(q=q, k=k, v=v)

    def run(mask: Any = None, **options: Any) -> np.ndarray:
        more = {} if mask is None else {"m": mask}
        return run_one(lambda g, q, k, v, m=None: g.attention(q, k, v, 2, mask=m, **options), **given, **more)

    close = dict(rtol=1e-4, atol=1e-5)
    assert set(MASK_KINDS) == {"none", "causal", "sliding_window", "custom", "bias"}
    assert_close(run(), attention_by_hand(q, k, v, 2), **close)
    assert_close(run(mask_kind="causal"), attention_by_hand(q, k, v, 2, causal), **close)
    assert_close(
        run(mask_kind="sliding_window", window=2), attention_by_hand(q, k, v, 2, causal & near), **close
    )
    assert_close(
        run(keys, mask_kind="custom"), attention_by_hand(q, k, v, 2, keys[:, None, None] > 0), **close
    )
    assert_close(run(bias, mask_kind="bias"), attention_by_hand(q, k, v, 2, bias=bias), **close)
    assert_close(
        run(score_scale=0.1, softcap=0.5), attention_by_hand(q, k, v, 2, scale=0.1, cap=0.5), **close
    )
    with pytest.raises(RlxError, match="without a mask"):
        run(mask_kind="custom")
    with pytest.raises(RlxError, match="window=None"):
        run(mask_kind="sliding_window")


def test_rotary_embedding() -> None:
    x, angle = random(5, 6), np.linspace(0, 2, 10).reshape(5, 2).astype(np.float32)
    found = run_one(lambda g, x, c, s: g.rope(x, c, s), x=x, c=np.cos(angle), s=np.sin(angle))
    first, second = x[:, :2] + 1j * x[:, 2:4], np.exp(1j * angle)
    turned = first * second
    assert_close(
        found,
        np.concatenate([turned.real, turned.imag, x[:, 4:]], 1).astype(np.float32),
        rtol=1e-5,
        atol=1e-6,
    )


def test_convolution_and_pooling() -> None:
    x, w = random(1, 2, 5, 5), random(3, 2, 3, 3, seed=1)
    found = run_one(lambda g, x, w: g.conv2d(x, w, stride=(2, 2), padding=(1, 1)), x=x, w=w)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2]
    assert_close(found, np.einsum("nchwij,ocij->nohw", windows, w), rtol=1e-4, atol=1e-5)
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    for kind, fill, reduce in (("max", -np.inf, np.max), ("sum", 0, np.sum), ("mean", np.nan, np.nanmean)):
        filled = np.pad(x, pads, constant_values=fill)
        expected = reduce(
            np.lib.stride_tricks.sliding_window_view(filled, (3, 3), (2, 3))[:, :, ::2, ::2], axis=(-2, -1)
        )
        found = run_one(lambda g, x, kind=kind: g.pool(kind, x, (3, 3), (2, 2), (1, 1)), x=x)
        assert_close(found, expected.astype(np.float32), rtol=1e-5, atol=1e-6)


def test_fourier_transforms() -> None:
    z = (random(3, 6) + 1j * random(3, 6, seed=1)).astype(np.complex64)
    assert_close(
        run_one(lambda g, x: g.fft(x), x=z), np.fft.fft(z).astype(np.complex64), rtol=1e-4, atol=1e-5
    )
    found = run_one(lambda g, x: g.fft(g.fft(x, norm="ortho"), inverse=True, norm="ortho"), x=z)
    assert_close(found, z, rtol=1e-4, atol=1e-5)
