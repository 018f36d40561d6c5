"""Wrappers of optimisers and L-BFGS against optax's, in float64: updates and states, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, optim
from rlx.errors import DtypeError, ShapeError, TreeMismatchError

PARAMS = {"w": np.linspace(-1, 1, 6).reshape(2, 3), "b": np.array([0.5, -0.2])}
MASK = {"w": True, "b": False}
STEPS = 7


def gradients(step: int) -> dict[str, np.ndarray]:
    bad = np.nan if step == 2 else 1.0
    return {"w": np.sin(3 * PARAMS["w"] + step), "b": np.cos(PARAMS["b"] * step) * bad}


def finite(step: int) -> dict[str, np.ndarray]:
    return gradients(step + 3)


Factory = Callable[[Any], Any]
CASES: dict[str, tuple[Factory, Callable[[int], Any]]] = {
    "chain": (lambda o: o.chain(o.trace(0.9), o.scale(-0.1)), finite),
    "named_chain": (lambda o: o.named_chain(("mean", o.ema(0.8)), ("step", o.scale(-0.1))), finite),
    "ema": (lambda o: o.ema(0.9), finite),
    "ema without debias": (lambda o: o.ema(0.9, debias=False), finite),
    "masked": (lambda o: o.masked(o.adam(0.1), MASK), finite),
    "masked by function": (lambda o: o.masked(o.adam(0.1), lambda p: {k: v.ndim > 1 for k, v in p.items()}), finite),
    "partition": (lambda o: o.partition({1: o.adam(0.1), 2: o.sgd(0.5, 0.9)}, {"w": 1, "b": 2}), finite),
    "multi_transform": (
        lambda o: o.multi_transform({"a": o.sgd(0.1), "z": o.set_to_zero()}, lambda p: {"w": "a", "b": "z"}),
        finite,
    ),
    "freeze": (lambda o: o.chain(o.adam(0.1), o.freeze({"w": False, "b": True})), finite),
    "selective_transform": (lambda o: o.selective_transform(o.adam(0.1), freeze_mask=MASK), finite),
    "apply_every": (lambda o: o.chain(o.adam(0.1), o.apply_every(3)), finite),
    "MultiSteps": (lambda o: o.MultiSteps(o.adam(0.1), 3, accumulator_dtype=np.float64), finite),
    "MultiSteps of sums": (lambda o: o.MultiSteps(o.adam(0.1), 2, False, accumulator_dtype=np.float64), finite),
    "MultiSteps with schedule": (
        lambda o: o.MultiSteps(o.adam(0.1), lambda step: step + 1, accumulator_dtype=np.float64),
        finite,
    ),
    "MultiSteps that skips": (
        lambda o: o.MultiSteps(o.adam(0.1), 2, should_skip_update_fn=o.skip_not_finite, accumulator_dtype=np.float64),
        gradients,
    ),
    "apply_if_finite": (lambda o: o.apply_if_finite(o.adam(0.1), 5), gradients),
    "conditionally_transform": (lambda o: o.conditionally_transform(o.adam(0.1), lambda step: step % 2 == 0), finite),
    "conditionally_mask": (lambda o: o.conditionally_mask(o.adam(0.1), lambda step: step > 2), finite),
    "inject_hyperparams": (
        lambda o: o.inject_hyperparams(o.adam)(learning_rate=o.linear_schedule(0.1, 0.01, 5), b1=0.8),
        finite,
    ),
    "lbfgs without search": (lambda o: o.lbfgs(0.1, memory_size=3, linesearch=None), finite),
    "scale_by_lbfgs": (lambda o: o.scale_by_lbfgs(2, scale_init_precond=False), finite),
}
# the states of optax have other parts: an injected schedule counts its own steps
OTHER_STATES = {"inject_hyperparams"}


@pytest.fixture(scope="module")
def optax() -> Any:
    """The oracle."""
    return pytest.importorskip("optax")


def trajectory(rule: Any, grads: Callable[[int], Any], apply: Any, jit: Any) -> list[Any]:
    params, state, found = PARAMS, rule.init(PARAMS), []
    update = jit(rule.update)
    for step in range(STEPS):
        updates, state = update(grads(step), state, params)
        params = apply(params, updates)
        found.append((updates, params, state))
    return found


def agree(optax: Any, name: str) -> None:
    import jax

    factory, grads = CASES[name]
    with jax.enable_x64(True):
        expected = trajectory(factory(optax), grads, optax.apply_updates, jax.jit)
        parts = 2 if name in OTHER_STATES else 3
        expected = [[np.asarray(x) for x in jax.tree.leaves(step[:parts])] for step in expected]
    with rlx.enable_x64(True):
        for jit in (rlx.jit, lambda f: f):
            found = trajectory(factory(optim), grads, optim.apply_updates, jit)
            for step, wanted in zip(found, expected, strict=True):
                leaves = rlx.tree.leaves(step[:parts])
                assert [np.asarray(x).dtype.kind for x in leaves] == [x.dtype.kind for x in wanted]
                for ours, theirs in zip(leaves, wanted, strict=True):
                    # a schedule of an int32 count is computed in float32
                    rtol = 1e-6 if name == "inject_hyperparams" else 1e-10
                    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-13)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_updates_and_states_are_those_of_optax(optax: Any, name: str) -> None:
    agree(optax, name)


def types(values: Any) -> list[Any]:
    return [(jnp.asarray(x).dtype, jnp.shape(x)) for x in rlx.tree.leaves(values)]


@pytest.mark.thorough
@pytest.mark.parametrize("own", [np.dtype(d) for d in (ml_dtypes.bfloat16, np.float32, np.float64)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_states_are_carries_of_scans_and_can_be_mapped(name: str, own: Any) -> None:
    """Types stay the same; vmap gives the result of each."""
    rule = CASES[name][0](optim)
    with rlx.enable_x64(True):
        params = rlx.tree.map(lambda x: jnp.asarray(x, own), PARAMS)

        def run(params: Any) -> Any:
            def step(carry: Any, count: Any) -> Any:
                params, state = carry
                grads = rlx.tree.map(lambda p: jnp.sin(3 * p + count.astype(p.dtype)).astype(np.float32), params)
                updates, state = rule.update(grads, state, params)
                return (optim.apply_updates(params, updates), state), None

            return lax.scan(step, (params, rule.init(params)), jnp.arange(4))[0]

        after = run(params)
        assert types(after) == types((params, rule.init(params)))
        if own == np.float64:
            pairs = rlx.tree.map(lambda x: jnp.stack([x, 2 * x]), params)
            for ours, alone in zip(rlx.tree.leaves(rlx.vmap(run)(pairs)), rlx.tree.leaves(after), strict=True):
                np.testing.assert_allclose(ours[0], alone, rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------- line searches
def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def minimized(module: Any, library: Any, rule: Any, start: Any, steps: int) -> tuple[list[Any], ...]:
    """The values, the step sizes and the numbers of evaluations of each step."""
    value_and_grad = library.value_and_grad_from_state(rosenbrock)

    def step(x: Any, state: Any) -> Any:
        value, grad = value_and_grad(x, state=state)
        updates, state = rule.update(grad, state, x, value=value, grad=grad, value_fn=rosenbrock)
        return library.apply_updates(x, updates), state, value

    compiled, x, state = module.jit(step), module.numpy.asarray(start), rule.init(module.numpy.asarray(start))
    values, rates, counts = [], [], []
    for _ in range(steps):
        x, state, value = compiled(x, state)
        values.append(float(value))
        rates.append(float(state[-1].learning_rate))
        counts.append(int(state[-1].info.num_linesearch_steps))
    return values, rates, counts


SEARCHES: dict[str, Factory] = {
    "lbfgs": lambda o: o.lbfgs(),
    "keep, limited": lambda o: o.lbfgs(linesearch=o.scale_by_zoom_linesearch(10, max_learning_rate=1.5)),
    "exact": lambda o: o.chain(o.sgd(1.0), o.scale_by_zoom_linesearch(40, curv_rtol=0.05, approx_dec_rtol=None)),
    "failing": lambda o: o.chain(o.sgd(1.0), o.scale_by_zoom_linesearch(6, curv_rtol=1e-4)),
    "backtracking": lambda o: o.chain(o.sgd(1.0), o.scale_by_backtracking_linesearch(60, store_grad=True)),
    "short backtracking": lambda o: o.chain(o.sgd(1.0), o.scale_by_backtracking_linesearch(3, store_grad=True)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SEARCHES)
def test_searches_take_the_steps_of_optax(optax: Any, name: str) -> None:
    import jax

    start = np.array([-1.2, 1.0, 0.5])
    steps = 2 if name == "short backtracking" else 12
    with jax.enable_x64(True):
        expected = minimized(jax, optax, SEARCHES[name](optax), start, steps)
    with rlx.enable_x64(True):
        found = minimized(rlx, optim, SEARCHES[name](optim), start, steps)
    assert found[2] == expected[2]
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.thorough
def test_lbfgs_finds_the_minimum_of_rosenbrocks_function() -> None:
    """The value falls below 1e-12."""
    rule = optim.lbfgs()

    def run(start: Any) -> Any:
        value_and_grad = optim.value_and_grad_from_state(rosenbrock)

        def step(carry: Any) -> Any:
            x, state, count, _ = carry
            value, grad = value_and_grad(x, state=state)
            updates, state = rule.update(grad, state, x, value=value, grad=grad, value_fn=rosenbrock)
            return optim.apply_updates(x, updates), state, count + 1, state[-1].value

        def go_on(carry: Any) -> Any:
            return (carry[3] > 1e-12) & (carry[2] < 60)

        return lax.while_loop(go_on, step, (start, rule.init(start), 0, jnp.full((), np.inf, start.dtype)))

    x, _, count, value = rlx.jit(run)(np.array([-1.2, 1.0]))
    np.testing.assert_allclose(x, [1.0, 1.0], atol=1e-5)
    assert float(value) < 1e-12 and int(count) < 45


@pytest.mark.thorough
def test_value_fn_takes_arguments_of_update_and_other_parts_ignore_them() -> None:
    def objective(x: Any, center: Any) -> Any:
        return jnp.sum((x - center) ** 2)

    rule = optim.chain(optim.clip(100.0), optim.masked(optim.lbfgs(), True))
    x, center = jnp.zeros(2), jnp.array([1.0, 2.0])
    state = rule.init(x)
    for _ in range(4):
        value, grad = rlx.value_and_grad(objective)(x, center)
        updates, state = rule.update(grad, state, x, value=value, grad=grad, value_fn=objective, center=center)
        x = optim.apply_updates(x, updates)
    np.testing.assert_allclose(x, center, atol=1e-5)
    with pytest.raises(TypeError, match=r"\['middle'\], which value_fn does not take"):
        rule.update(grad, state, x, value=value, grad=grad, value_fn=objective, middle=center)


def test_a_search_without_a_finite_value_does_not_move() -> None:
    for search in (optim.scale_by_zoom_linesearch(4), optim.scale_by_backtracking_linesearch(4)):
        rule = optim.chain(optim.sgd(1.0), search)
        updates, _ = rule.update(
            1.0, rule.init(0.0), 0.0, value=1.0, grad=1.0, value_fn=lambda x: jnp.where(x == 0, 1.0, jnp.nan) * (1 + x)
        )
        assert float(updates) == 0.0


# ------------------------------------------------------------- other properties
def test_nan_between_updates_does_not_leak() -> None:
    """A mean that is not yet applied, and an update that is refused, do not turn zeros into NaN."""
    steps = optim.MultiSteps(optim.sgd(1.0), 3)
    updates, _ = steps.update(jnp.array([np.inf]), steps.init(jnp.zeros(1)))
    assert updates.tolist() == [0.0]
    rule = optim.apply_if_finite(optim.adam(0.1), 1)
    state = rule.init(jnp.zeros(1))
    for expected in (True, True, False):
        updates, state = rule.update(jnp.array([np.nan]), state)
        assert (updates.tolist() == [0.0]) is (expected and int(state.notfinite_count) <= 1)


def test_injected_numbers_change_without_a_new_trace() -> None:
    rule, traces = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5), []

    @rlx.jit
    def step(grad: Any, state: Any) -> Any:
        traces.append(1)
        return rule.update(grad, state)

    state = rule.init(jnp.zeros(1))
    for rate in (0.5, 2.0):
        state.hyperparams["learning_rate"] = jnp.float32(rate)
        updates, state = step(jnp.ones(1), state)
        assert updates.tolist() == [-rate]
    assert len(traces) == 1


def test_means_of_parameters() -> None:
    mean = {"w": jnp.zeros(2)}
    for _ in range(3):
        mean = optim.incremental_update({"w": jnp.ones(2)}, mean, 0.5)
    np.testing.assert_allclose(mean["w"], [0.875, 0.875])
    assert optim.periodic_update(1.0, 2.0, 3, 2).item() == 2.0


def test_what_is_refused() -> None:
    with pytest.raises(TreeMismatchError, match="the labels 'c', which"):
        optim.partition({"a": optim.sgd(0.1)}, {"w": "a", "b": "c"}).init(PARAMS)
    with pytest.raises(ValueError, match="must be different"):
        optim.named_chain(("a", optim.sgd(0.1)), ("a", optim.sgd(0.1)))
    with pytest.raises(ShapeError, match="memory_size=0"):
        optim.scale_by_lbfgs(0)
    with pytest.raises(TreeMismatchError, match="0 values and 0 gradients"):
        optim.value_and_grad_from_state(rosenbrock)(jnp.ones(2), state=optim.sgd(0.1).init(1.0))
    with pytest.raises(DtypeError, match="one bool"):
        optim.MultiSteps(optim.sgd(0.1), 2, should_skip_update_fn=lambda *_: (1.0, ())).update(
            jnp.ones(1), optim.MultiSteps(optim.sgd(0.1), 2).init(jnp.ones(1))
        )
    with pytest.raises(TreeMismatchError, match="static_args"):
        optim.inject_hyperparams(optim.sgd, "rate")
    with pytest.raises(ValueError, match="initial_guess_strategy"):
        optim.scale_by_zoom_linesearch(3, initial_guess_strategy="two")  # ty: ignore[invalid-argument-type]
    with pytest.raises(TreeMismatchError, match="needs the parameters"):
        optim.scale_by_lbfgs().update(1.0, optim.scale_by_lbfgs().init(1.0))
