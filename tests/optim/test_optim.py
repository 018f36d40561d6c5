"""Optimisers against the textbook formulas written with NumPy; schedules against theirs."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rlx
from rlx import optim

F = np.float32
PARAMS = {"w": np.linspace(-1, 1, 6, dtype=F).reshape(2, 3), "b": np.array([0.5, -0.2], F)}


def gradients(step: int) -> dict[str, np.ndarray]:
    return {k: np.sin(3 * v + step).astype(F) for k, v in PARAMS.items()}


def run(optimizer: optim.GradientTransformation, steps: int = 5, jit: bool = False) -> dict[str, np.ndarray]:
    params, state = PARAMS, optimizer.init(PARAMS)
    update = rlx.jit(optimizer.update) if jit else optimizer.update
    for step in range(steps):
        updates, state = update(gradients(step), state, params)
        params = optim.apply_updates(params, updates)
    return {k: np.asarray(v) for k, v in params.items()}


def by_hand(rule, steps: int = 5) -> dict[str, np.ndarray]:
    """Each leaf in float64: rule(step, gradient, parameter, memory) -> the change."""
    result = {}
    for name, start in PARAMS.items():
        value, memory = start.astype(np.float64), {}
        for step in range(steps):
            gradient = gradients(step)[name].astype(np.float64)
            value = value + rule(step, gradient, value, memory)
        result[name] = value
    return result


def agree(optimizer, rule) -> None:
    expected = by_hand(rule)
    for jit in (False, True):
        found = run(optimizer, jit=jit)
        for name, value in expected.items():
            assert found[name].dtype == F
            np.testing.assert_allclose(found[name], value, rtol=3e-5, atol=1e-6)


def test_sgd():
    agree(optim.sgd(0.1), lambda step, g, p, m: -0.1 * g)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov):
    def rule(step, g, p, m):
        m["v"] = g + 0.9 * m.get("v", 0)
        return -0.1 * (g + 0.9 * m["v"] if nesterov else m["v"])

    agree(optim.sgd(0.1, 0.9, nesterov), rule)


def _adam(step, g, m, nesterov=False):
    m["m"] = 0.9 * m.get("m", 0) + 0.1 * g
    m["v"] = 0.999 * m.get("v", 0) + 0.001 * g * g
    mean = m["m"] / (1 - 0.9 ** (step + 1))
    if nesterov:
        ahead = m["m"] / (1 - 0.9 ** (step + 2))
        mean = 0.9 * ahead + 0.1 * g / (1 - 0.9 ** (step + 1))
    return mean / (np.sqrt(m["v"] / (1 - 0.999 ** (step + 1))) + 1e-8)


def test_adam():
    agree(optim.adam(0.1), lambda step, g, p, m: -0.1 * _adam(step, g, m))
    agree(optim.nadam(0.1), lambda step, g, p, m: -0.1 * _adam(step, g, m, True))


def test_adamw():
    agree(optim.adamw(0.1, weight_decay=0.2), lambda step, g, p, m: -0.1 * (_adam(step, g, m) + 0.2 * p))


def test_adamw_mask():
    masked = run(optim.adamw(0.1, weight_decay=0.5, mask={"w": True, "b": False}))
    both, none = run(optim.adamw(0.1, weight_decay=0.5)), run(optim.adam(0.1))
    np.testing.assert_array_equal(masked["w"], both["w"])
    np.testing.assert_array_equal(masked["b"], none["b"])
    by_function = run(optim.adamw(0.1, weight_decay=0.5, mask=lambda p: {k: v.ndim > 1 for k, v in p.items()}))
    np.testing.assert_array_equal(by_function["b"], none["b"])


def test_lion():
    def rule(step, g, p, m):
        old = m.get("m", 0)
        m["m"] = 0.99 * old + 0.01 * g
        return -0.1 * (np.sign(0.9 * old + 0.1 * g) + 1e-3 * p)

    agree(optim.lion(0.1), rule)


@pytest.mark.parametrize("inside", [True, False])
def test_rmsprop(inside):
    def rule(step, g, p, m):
        m["v"] = 0.9 * m.get("v", 0) + 0.1 * g * g
        scaled = g / np.sqrt(m["v"] + 1e-8) if inside else g / (np.sqrt(m["v"]) + 1e-8)
        m["t"] = -0.1 * scaled + 0.5 * m.get("t", 0)
        return m["t"]

    agree(optim.rmsprop(0.1, eps_in_sqrt=inside, momentum=0.5), rule)


def test_adagrad():
    def rule(step, g, p, m):
        m["s"] = m.get("s", 0.1) + g * g
        return -0.1 * g / np.sqrt(m["s"] + 1e-7)

    agree(optim.adagrad(0.1), rule)


def test_schedule_in_optimizer():
    schedule = optim.linear_schedule(0.4, 0.0, 4)
    agree(optim.sgd(schedule), lambda step, g, p, m: -0.4 * (1 - min(step, 4) / 4) * g)


def test_clipping():
    g = {"a": np.array([3.0, 0.5], F), "b": np.array([4.0], F)}
    clipped, _ = optim.clip(1.0).update(g, optim.EmptyState())
    assert np.asarray(clipped["a"]).tolist() == [1.0, 0.5]
    norm = float(optim.global_norm(g))
    assert norm == pytest.approx(math.sqrt(25.25))
    shrunk, _ = optim.clip_by_global_norm(1.0).update(g, optim.EmptyState())
    np.testing.assert_allclose(np.asarray(shrunk["b"]), 4 / norm, rtol=1e-6)
    same, _ = optim.clip_by_global_norm(100.0).update(g, optim.EmptyState())
    assert np.asarray(same["a"]).tolist() == [3.0, 0.5]


def test_learning_converges_under_jit_and_scan():
    target = np.array([1.0, -2.0, 0.5], F)
    optimizer = optim.chain(optim.clip_by_global_norm(10.0), optim.adam(0.1))

    def step(carry, _):
        params, state = carry
        loss, gradient = rlx.value_and_grad(lambda p: ((p - target) ** 2).sum())(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optim.apply_updates(params, updates), state), loss

    start = np.zeros(3, F)
    (params, _), losses = rlx.jit(lambda p: rlx.lax.scan(step, (p, optimizer.init(p)), None, length=200))(start)
    np.testing.assert_allclose(np.asarray(params), target, atol=1e-2)
    assert float(losses[-1]) < 1e-3


def test_apply_updates_keeps_dtypes_and_none():
    params = {"a": np.ones(2, np.float16), "b": None}
    found = optim.apply_updates(params, {"a": np.ones(2, F), "b": None})
    assert found["a"].dtype == np.float16
    assert found["b"] is None


def test_mu_dtype():
    optimizer = optim.adam(0.1, mu_dtype=np.float16)
    state = optimizer.init(PARAMS)
    assert state[0].mu["w"].dtype == np.float16
    _, state = optimizer.update(gradients(0), state, PARAMS)
    assert state[0].mu["w"].dtype == np.float16
    assert state[0].nu["w"].dtype == F


# ------------------------------------------------------------- schedules
def _cosine(i, peak, steps, alpha=0.0):
    return peak * ((1 - alpha) * 0.5 * (1 + math.cos(math.pi * min(i, steps) / steps)) + alpha)


SCHEDULES = [
    (optim.constant_schedule(0.3), lambda i: 0.3),
    (optim.linear_schedule(1.0, 0.1, 5, 2), lambda i: 1 - 0.9 * min(max(i - 2, 0), 5) / 5),
    (optim.polynomial_schedule(1.0, 0.1, 2, 5), lambda i: 0.9 * (1 - min(i, 5) / 5) ** 2 + 0.1),
    (optim.exponential_decay(1.0, 3, 0.5), lambda i: 0.5 ** (i / 3)),
    (optim.exponential_decay(1.0, 3, 0.5, 2, True, 0.2), lambda i: max(0.5 ** (max(i - 2, 0) // 3), 0.2)),
    (optim.cosine_decay_schedule(2.0, 7, 0.1), lambda i: _cosine(i, 2.0, 7, 0.1)),
    (
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 3, 9),
        lambda i: i / 3 if i < 3 else _cosine(i - 3, 1.0, 6),
    ),
    (
        optim.piecewise_constant_schedule(1.0, {3: 0.5, 6: 0.1}),
        lambda i: 1.0 if i < 3 else 0.5 if i < 6 else 0.05,
    ),
    (
        optim.warmup_exponential_decay_schedule(0.0, 1.0, 3, 4, 0.5),
        lambda i: i / 3 if i < 3 else 0.5 ** ((i - 3) / 4),
    ),
]


@pytest.mark.parametrize(("schedule", "expected"), SCHEDULES)
def test_schedules(schedule, expected):
    jitted = rlx.jit(schedule)
    for i in range(12):
        assert float(schedule(i)) == pytest.approx(expected(i), abs=1e-6)
        assert float(jitted(np.int32(i))) == pytest.approx(expected(i), abs=1e-6)


# ------------------------------------------------------------- errors
def test_errors():
    with pytest.raises(rlx.errors.TreeMismatchError, match="parameters"):
        optim.add_decayed_weights(0.1).update(1.0, optim.EmptyState(), None)
    with pytest.raises(rlx.errors.TreeMismatchError, match="parts"):
        optim.chain(optim.identity()).update(1.0, ())
    with pytest.raises(rlx.errors.ShapeError, match="positive"):
        optim.cosine_decay_schedule(1.0, 0)
    with pytest.raises(rlx.errors.ShapeError, match="boundary"):
        optim.join_schedules([optim.constant_schedule(1.0)], [3])
