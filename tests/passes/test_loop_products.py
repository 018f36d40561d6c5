"""Products taken out of scans, and sums of padded parts: what is computed, and in how many kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.backends.cpu import CpuBackend
from rlx.ir.kernels import Contract, Plan, Scan
from rlx.ir.options import LoweringOptions, ProductLimits

rng = np.random.default_rng(3)


def vector(*shape: int) -> np.ndarray:
    return (rng.normal(size=shape) * 0.3).astype(np.float32)


def plan_of(function: Callable[..., Any], *arrays: np.ndarray) -> Plan:
    return rlx.jit(function).lower(*arrays).compile().plan


def body_products(plan: Plan) -> list[int]:
    """How many products the body of each scan has."""
    scans = [k for k in plan.kernels if isinstance(k, Scan)]
    return [sum(isinstance(k, Contract) for k in s.body.kernels) for s in scans]


def recurrent(weights, xs):
    """The states of a network with weights (inputs, units), (units, units), (units,)."""
    w, u, b = weights

    def step(h, x):
        h = jnp.tanh(x @ w + h @ u + b)
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], u.shape[0])), xs)[1]


@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_of_a_recurrent_network(reverse):
    weights, xs = (vector(96, 128), vector(128, 128), vector(128)), vector(9, 5, 96)

    def loss(weights, xs):
        return (recurrent(weights, xs[::-1] if reverse else xs) ** 2).sum()

    gradient = rlx.grad(loss)
    plan = plan_of(gradient, weights, xs)
    assert body_products(plan) == [1, 1]
    actual = rlx.jit(gradient)(weights, xs)
    expected = gradient(weights, xs)  # without jit: one step after the other
    for mine, reference in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, reference, rtol=2e-4, atol=2e-5)


def test_sums_start_from_their_initial_value_and_keep_other_terms():
    def function(start, a, b):
        def step(total, slices):
            x, y = slices
            return total + jnp.outer(jnp.sin(x), y) + x[0] * jnp.ones_like(total), None

        return lax.scan(step, start, (a, b))[0]

    start, a, b = vector(80, 90), vector(7, 80), vector(7, 90)
    expected = start + np.sin(a).T @ b + a[:, 0].sum()
    np.testing.assert_allclose(rlx.jit(function)(start, a, b), expected, rtol=1e-4, atol=1e-5)


def test_a_sum_that_is_looked_at_stays_in_the_loop():
    def function(start, a, b):
        def step(total, slices):
            x, y = slices
            following = total + jnp.outer(x, y)
            return following, following[0]

        return lax.scan(step, start, (a, b))

    start, a, b = vector(80, 90), vector(7, 80), vector(7, 90)
    total, rows = rlx.jit(function)(start, a, b)
    np.testing.assert_allclose(total, start + a.T @ b, rtol=1e-4, atol=1e-5)
    expected = start[0] + np.cumsum(a[:, :1] * b, axis=0)
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)


def test_products_with_slices_on_either_side():
    def function(w, xs):
        return lax.scan(lambda c, x: (c + 1.0, (x @ w) * c + (w @ x.T).T), 1.0, xs)

    w, xs = vector(32, 32), vector(6, 4, 32)
    plan = plan_of(function, w, xs)
    assert body_products(plan) == [0]
    _, ys = rlx.jit(function)(w, xs)
    scale = np.arange(1, 7, dtype=np.float32)[:, None, None]
    np.testing.assert_allclose(ys, xs @ w * scale + xs @ w.T, rtol=1e-4, atol=1e-5)


def test_no_more_memory_than_allowed(monkeypatch):
    few = LoweringOptions(products=ProductLimits(loop_bytes=1000))
    monkeypatch.setattr(CpuBackend, "lowering", few)
    weights, xs = (vector(96, 128), vector(128, 128), vector(128)), vector(9, 6, 96)
    plan = plan_of(rlx.grad(lambda w, x: (recurrent(w, x) ** 2).sum()), weights, xs)
    assert body_products(plan)[1] > 1


def test_parts_of_a_gradient_are_joined():
    def loss(x):
        a, b, c = jnp.split(x, 3, axis=1)
        return (jnp.sin(a) * b * c + c).sum()

    x = vector(40, 90)
    text = rlx.jit(rlx.grad(loss)).lower(x).as_text()
    assert "pad" not in text and "concatenate" in text
    a, b, c = np.split(x, 3, axis=1)
    expected = np.concatenate([np.cos(a) * b * c, np.sin(a) * c, np.sin(a) * b + 1], axis=1)
    np.testing.assert_allclose(rlx.jit(rlx.grad(loss))(x), expected, rtol=1e-5, atol=1e-6)


def test_parts_of_shifted_arrays_are_joined_by_axis():
    def loss(x):
        shifted = [jnp.roll(x, shift, axis) for shift in (1, -1) for axis in (0, 1)]
        return (sum(shifted) * jnp.arange(30.0).reshape(5, 6) + x).sum()

    x = vector(5, 6)
    assert "pad" not in rlx.jit(rlx.grad(loss)).lower(x).as_text()
    weights = np.arange(30, dtype=np.float32).reshape(5, 6)
    expected = 1 + sum(np.roll(weights, -shift, axis) for shift in (1, -1) for axis in (0, 1))
    np.testing.assert_allclose(rlx.jit(rlx.grad(loss))(x), expected, rtol=1e-5)


def test_parts_that_overlap_or_leave_a_gap_are_added():
    def function(x, y):
        overlapping = jnp.pad(x, (0, 2)) + jnp.pad(y, (1, 1))
        beside = jnp.pad(x, (1, 6)) + jnp.pad(y, (4, 3))
        apart = jnp.pad(x, (0, 4)) + jnp.pad(y, (4, 0))
        return overlapping, beside, apart

    x, y = np.ones(3, np.float32), np.full(3, 2, np.float32)
    overlapping, beside, apart = rlx.jit(function)(x, y)
    np.testing.assert_array_equal(apart, [1, 1, 1, 0, 2, 2, 2])
    np.testing.assert_array_equal(overlapping, [1, 3, 3, 2, 0])
    np.testing.assert_array_equal(beside, [0, 1, 1, 1, 2, 2, 2, 0, 0, 0])
