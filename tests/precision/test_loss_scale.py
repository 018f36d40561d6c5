"""Dynamic loss scaling: what it rescues, when it skips, how the scale moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import RlxError
from rlx.precision import LossScale, LossScaler, Unscaled, all_finite, choose

SCALER = LossScaler(initial=2.0**12, interval=3, greatest=2.0**14)


def tiny(w: Any) -> Any:
    """A loss whose float16 gradient is too small for float16."""
    return jnp.sum((w.astype("float16") * np.float16(1e-4)).astype("float32") * np.float32(1e-5))


def test_gradients_survive() -> None:
    w = jnp.ones(3)
    assert not rlx.grad(tiny)(w).any()
    state = SCALER.init()
    scaled = rlx.grad(lambda w: SCALER.scale(state, tiny(w)))(w)
    found = SCALER.unscale(state, {"w": scaled, "count": jnp.arange(2)})
    assert isinstance(found, Unscaled) and bool(found.finite)
    np.testing.assert_allclose(found.gradients["w"], 1e-9, rtol=2e-2)
    assert found.gradients["count"].dtype == np.dtype("i4")


def test_the_scale_moves() -> None:
    state = SCALER.init()
    scales = []
    for finite in (True, True, True, True, True, True, True, True, True, False, True, False):
        state = rlx.jit(SCALER.update)(state, finite)
        scales.append(float(state.scale))
    k = 2.0**10
    assert scales == [4 * k, 4 * k, 8 * k, 8 * k, 8 * k, 16 * k, 16 * k, 16 * k, 16 * k, 8 * k, 8 * k, 4 * k]
    assert int(state.good_steps) == 0
    least = LossScaler(initial=2.0, least=1.0)
    state = least.init()
    for _ in range(4):
        state = least.update(state, False)
    assert float(state.scale) == 1.0


@pytest.mark.parametrize("jitted", [False, True])
def test_steps_that_overflow_are_skipped(jitted: bool) -> None:
    scaler = LossScaler(initial=2.0**20, greatest=2.0**20)

    def step(state: LossScale, w: Any) -> Any:
        def loss(w: Any) -> Any:
            return scaler.scale(state, jnp.sum((w * w).astype("float16").astype("float32")))

        gradients, finite = scaler.unscale(state, rlx.grad(loss)(w))
        return scaler.update(state, finite), choose(finite, w - 0.1 * gradients, w), finite

    run = rlx.jit(step) if jitted else step
    state, w, skipped = scaler.init(), jnp.array([1.0, 2.0]), 0
    for _ in range(40):
        before = w
        state, w, finite = run(state, w)
        if not bool(finite):
            skipped += 1
            np.testing.assert_array_equal(np.asarray(w), np.asarray(before))
        assert np.isfinite(np.asarray(w)).all()
    assert skipped >= 4 and float(state.scale) < 2.0**17
    assert float(jnp.abs(w).max()) < 0.01


def test_trees_and_narrow_gradients() -> None:
    state = SCALER.init()
    half = SCALER.unscale(state, [jnp.array([4096.0], "float16"), jnp.array([2.0**13], "float64")])
    assert [g.dtype.name for g in half.gradients] == ["float32", "float64"]
    assert [float(g[0]) for g in half.gradients] == [1.0, 2.0]
    assert SCALER.scale(state, jnp.asarray(1.0, "float16")).dtype == np.dtype("f4")
    assert not bool(SCALER.unscale(state, (jnp.array([np.nan]),)).finite)
    assert bool(all_finite({})) and not bool(all_finite([jnp.array([1, -np.inf]), jnp.arange(2)]))


def test_under_vmap() -> None:
    states = rlx.vmap(SCALER.update)(LossScale(jnp.full(2, 4096.0), jnp.array([2, 2])), jnp.array([True, False]))
    np.testing.assert_array_equal(np.asarray(states.scale), [8192.0, 2048.0])


@pytest.mark.parametrize("wrong", [{"factor": 1.0}, {"interval": 0}, {"initial": 0.5}, {"greatest": 2.0}])
def test_rules_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(RlxError, match="is not a valid loss scale rule"):
        LossScaler(**wrong)
