"""Recurrent and state-space layers against plain loops, and torch where RLX_TEST_LM=1 has it; they learn a toy task."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from needs import beside

import rlx
import rlx.numpy as jnp
from rlx.lm import recurrent

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_lstm_and_gru_are_their_loops() -> None:
    x, p = drawn(2, 7, 3), {"input": drawn(20, 3), "hidden": drawn(20, 5), "bias": drawn(20)}
    h = c = np.zeros((2, 5))
    rows = []
    for t in range(7):
        i, f, g, o = np.split(x[:, t] @ p["input"].T + p["bias"] + h @ p["hidden"].T, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        rows.append(h)
    found, last = rlx.jit(recurrent.lstm)(x, p)
    np.testing.assert_allclose(found, np.stack(rows, 1), atol=1e-5)
    np.testing.assert_allclose(last[1], c, atol=1e-5)
    first, state = recurrent.lstm(x[:, :4], p)
    np.testing.assert_allclose(jnp.concatenate([first, recurrent.lstm(x[:, 4:], p, state)[0]], 1), found, atol=1e-6)
    p = {"input": drawn(15, 3), "hidden": drawn(15, 5), "bias": drawn(15), "hidden_bias": drawn(15)}
    h, rows = np.zeros((2, 5)), []
    for t in range(7):
        r, z, n = np.split(x[:, t] @ p["input"].T + p["bias"], 3, -1)
        hr, hz, hn = np.split(h @ p["hidden"].T + p["hidden_bias"], 3, -1)
        u = sigmoid(z + hz)
        h = (1 - u) * np.tanh(n + sigmoid(r + hr) * hn) + u * h
        rows.append(h)
    np.testing.assert_allclose(rlx.jit(recurrent.gru)(x, p)[0], np.stack(rows, 1), atol=1e-5)


def test_state_spaces_are_their_loops() -> None:
    x, step, a, b, c, d = (
        drawn(2, 6, 4),
        np.abs(drawn(2, 6, 4)),
        -np.abs(drawn(4, 3)),
        drawn(2, 6, 3),
        drawn(2, 6, 3),
        drawn(4),
    )
    h, rows = np.zeros((2, 4, 3)), []
    for t in range(6):
        h = np.exp(step[:, t, :, None] * a) * h + (step[:, t] * x[:, t])[..., None] * b[:, t, None]
        rows.append((h * c[:, t, None]).sum(-1) + d * x[:, t])
    found, last = rlx.jit(recurrent.selective_scan)(x, step, a, b, c, d)
    np.testing.assert_allclose(found, np.stack(rows, 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(last, h, rtol=1e-5, atol=1e-5)
    x, step, a, b, c = (
        drawn(2, 6, 4, 5),
        np.abs(drawn(2, 6, 4)),
        -np.abs(drawn(4)),
        drawn(2, 6, 2, 3),
        drawn(2, 6, 2, 3),
    )
    h, rows = np.zeros((2, 4, 5, 3)), []
    for t in range(6):
        into, out = np.repeat(b[:, t], 2, 1), np.repeat(c[:, t], 2, 1)
        h = np.exp(step[:, t] * a)[..., None, None] * h + np.einsum("bh,bhf,bhs->bhfs", step[:, t], x[:, t], into)
        rows.append(np.einsum("bhfs,bhs->bhf", h, out))
    np.testing.assert_allclose(
        rlx.jit(recurrent.state_space_dual)(x, step, a, b, c)[0], np.stack(rows, 1), rtol=1e-4, atol=1e-5
    )


def test_the_delta_rule_is_its_loop() -> None:
    q, k, v = drawn(2, 6, 3, 4), drawn(2, 6, 3, 4), drawn(2, 6, 3, 5)
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    g, b = -np.abs(drawn(2, 6, 3)), sigmoid(drawn(2, 6, 3))
    s, rows = np.zeros((2, 3, 4, 5)), []
    for t in range(6):
        s = np.exp(g[:, t])[..., None, None] * s
        wrong = (v[:, t] - np.einsum("bhfv,bhf->bhv", s, k[:, t])) * b[:, t, :, None]
        s = s + np.einsum("bhf,bhv->bhfv", k[:, t], wrong)
        rows.append(np.einsum("bhfv,bhf->bhv", s, q[:, t]))
    np.testing.assert_allclose(
        rlx.jit(recurrent.gated_delta_rule)(q, k, v, g, b)[0], np.stack(rows, 1), rtol=1e-4, atol=1e-5
    )


# inputs of a layer that are linear in what comes: their names and shapes of a position
MADE: dict[str, dict[str, tuple[int, ...]]] = {
    "selective_scan": {"x": (4,), "step": (4,), "b": (3,), "c": (3,)},
    "state_space_dual": {"x": (2, 3), "step": (2,), "b": (1, 4), "c": (1, 4)},
    "gated_delta_rule": {"q": (2, 4), "k": (2, 4), "v": (2, 3), "decay": (2,), "beta": (2,)},
}


def rows_of(kind: str, p: Any, x: Any) -> Any:
    """What a layer gives for x [batch, time, features], all of whose inputs are made of x: [batch, time, outputs]."""
    if kind in ("lstm", "gru"):
        return getattr(recurrent, kind)(x, p)[0]
    made = {
        name: (x @ p[name]["weight"] + p[name]["bias"]).reshape(*x.shape[:2], *shape)
        for name, shape in MADE[kind].items()
    }
    if kind == "gated_delta_rule":
        key = made["k"] / jnp.linalg.norm(made["k"], axis=-1, keepdims=True)
        decay, beta = -rlx.nn.softplus(made["decay"]), rlx.nn.sigmoid(made["beta"])
        found, _ = recurrent.gated_delta_rule(made["q"], key, made["v"], decay, beta)
    else:
        given = (made["x"], rlx.nn.softplus(made["step"]), -jnp.exp(p["a"]), made["b"], made["c"])
        found, _ = getattr(recurrent, kind)(*given)
    return found.reshape(*x.shape[:2], -1)


def parameters_of(kind: str) -> dict[str, Any]:
    """Parameters for two features, and for what reads eight or fewer outputs."""
    if kind in ("lstm", "gru"):
        gates, size = {"lstm": 4, "gru": 3}[kind], 8
        p: dict[str, Any] = {
            "input": drawn(gates * size, 2),
            "hidden": 0.3 * drawn(gates * size, size),
            "bias": 0 * drawn(gates * size),
        }
        return p | ({"hidden_bias": 0 * drawn(gates * size)} if kind == "gru" else {}) | {"out": 0.3 * drawn(size)}
    p = {
        name: {"weight": 0.5 * drawn(2, math.prod(shape)), "bias": 0.5 * drawn(math.prod(shape))}
        for name, shape in MADE[kind].items()
    }
    shape = {"selective_scan": (4, 3), "state_space_dual": (2,), "gated_delta_rule": ()}[kind]
    return p | {"a": 0 * drawn(*shape), "out": 0.3 * drawn(4 if kind == "selective_scan" else 6)}


@pytest.mark.parametrize("kind", ["lstm", "gru", *MADE])
@pytest.mark.selected(1)
def test_it_learns_to_remember_the_first_bit(kind: str) -> None:
    """Of eight bits, the first of which is marked."""
    bits = RNG.integers(0, 2, (64, 8)).astype(np.float32)
    x = np.stack([bits, np.zeros_like(bits)], axis=-1)
    x[:, 0, 1] = 1
    p = parameters_of(kind)

    def loss(p: Any) -> Any:
        return ((rlx.nn.sigmoid(rows_of(kind, p, x)[:, -1] @ p["out"]) - bits[:, 0]) ** 2).mean()

    rule = rlx.optim.adam(0.03)
    state, first = rule.init(p), float(loss(p))

    @rlx.jit
    def move(p: Any, state: Any) -> Any:
        change, state = rule.update(rlx.grad(loss)(p), state, p)
        return rlx.optim.apply_updates(p, change), state

    for _ in range(150):
        p, state = move(p, state)
    assert float(loss(p)) < 0.2 * first


@beside
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_layers_and_gradients_are_torchs(kind: str) -> None:
    import torch

    theirs = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](3, 5, batch_first=True)
    given = {name: value.detach().numpy() for name, value in theirs.named_parameters()}
    p = {"input": given["weight_ih_l0"], "hidden": given["weight_hh_l0"], "bias": given["bias_ih_l0"]}
    if kind == "gru":
        p["hidden_bias"] = given["bias_hh_l0"]
    else:
        p["bias"] = p["bias"] + given["bias_hh_l0"]
    x = drawn(2, 7, 3)
    expected, _ = theirs(torch.tensor(x))
    (expected**2).sum().backward()
    np.testing.assert_allclose(getattr(recurrent, kind)(x, p)[0], expected.detach().numpy(), atol=1e-5)
    slope = rlx.grad(lambda p: (getattr(recurrent, kind)(x, p)[0] ** 2).sum())(p)
    np.testing.assert_allclose(slope["input"], theirs.weight_ih_l0.grad, atol=1e-4)
    np.testing.assert_allclose(slope["hidden"], theirs.weight_hh_l0.grad, atol=1e-4)
