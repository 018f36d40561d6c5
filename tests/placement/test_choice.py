"""Estimates, calibration, learning and the choice of a device, on simulated devices with secret costs."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from simulated_device import simulated

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.errors import DeviceError, OptionError
from rlx.placement import DeviceRates, Policy, calibrate, choose, estimate, rates_of
from rlx.placement.choice import chosen_program, decide, forget_decisions
from rlx.placement.fitting import fitted
from rlx.placement.model import terms_of
from rlx.placement.rates import COSTS, Observation, typical_rates
from rlx.placement.stored_rates import forget_rates, keep_rates, read_rates, write_rates
from rlx.placement.turns import forget_turns
from rlx.placement.winners import forget_winners

X = np.linspace(0.1, 1.0, 64, dtype=np.float32).reshape(8, 8)
FAST = {name: 0.001 for name in COSTS if name not in ("compile", "latency", "link")}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No rates and no decisions of other tests or of this machine."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    forget_rates(), forget_decisions(), forget_winners(), rlx.clear_caches()
    yield
    forget_rates(), forget_decisions(), forget_winners(), rlx.clear_caches()


def large(x: Any) -> Any:
    return jnp.sin(x @ x).sum()


BIG = np.linspace(-1.0, 1.0, 512 * 512, dtype=np.float32).reshape(512, 512)


# ------------------------------------------------------------------ estimates
def test_nothing_runs_and_nothing_is_compiled_for_an_estimate() -> None:
    with simulated() as device:
        table = estimate(large, rlx.ShapeDtypeStruct((512, 512), "float32"), devices=["cpu", "simulated"])
        assert device.runs == device.memory.puts == 0
    assert {e.device for e in table} == {"cpu", "simulated"}
    found = table["simulated"]
    assert found.memory >= 512 * 512 * 4 and found.transfer == 0.0 and found.exact


def test_an_estimate_is_the_time_of_a_run_if_the_costs_are_known() -> None:
    with simulated(factors=FAST) as device:
        keep_rates(device.secret)
        expected = estimate(large, BIG, devices=["simulated"])[0]
        f = rlx.jit(large, device="simulated")
        x = rlx.device_put(BIG, "simulated")
        f(x)
        begin = device.now
        f(x)
        assert device.now - begin == pytest.approx(expected.seconds, rel=1e-6)
        assert expected.transfer == pytest.approx(device.secret.copy_seconds(BIG.nbytes))


def test_steps_of_unknown_number_are_not_exact_and_known_steps_count() -> None:
    def looped(x: Any, steps: int) -> Any:
        return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=steps)[0]

    once, often = (estimate(lambda x, n=n: looped(x, n), X, devices=["cpu"])[0] for n in (1000, 4000))
    assert often.seconds > 2 * once.seconds and often.exact
    assert not estimate(lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x), X, devices=["cpu"])[
        0
    ].exact


def test_steps_of_unknown_number_are_known_after_runs() -> None:
    """Runs whose number of steps is unknown teach this number, not the costs; other devices know it, too."""
    steps = lambda x: lax.while_loop(lambda c: c[0] < 300, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]  # noqa: E731
    with simulated(factors={"launch": 1.0}) as device:
        keep_rates(device.secret)
        before = {n: estimate(steps, X, devices=[n])[0].seconds for n in ("simulated", "cpu")}
        f = rlx.jit(steps, device=Policy(only=["simulated"]))
        device.turns = 300.0
        for _ in range(8):
            f(X)
        assert rates_of("simulated").basis == device.secret.basis
        after = {n: estimate(steps, X, devices=[n])[0] for n in before}
        assert all(after[n].seconds > 3 * before[n] and not after[n].exact for n in before)
        expected = device.secret.seconds(terms_of(rlx.inspect(steps)(X).plan, device, 300.0).terms)
        assert after["simulated"].seconds == pytest.approx(expected, rel=0.05)
    forget_turns()
    forget_rates()


def test_inspection_shows_the_decision() -> None:
    found = rlx.inspect(rlx.jit(lambda x: x @ x, device=Policy(only=["cpu", "reference"])))(X)
    assert found.placement.device == found.backend.name == "cpu"
    assert "reference" in str(found.placement) and "slower" in str(found)
    with simulated():
        there = rlx.device_put(X, "simulated")
        assert rlx.inspect(lambda x: x @ x, device="auto")(there).placement.device == "simulated"
    assert rlx.inspect(lambda x: x @ x)(X).placement is None


def test_unsupported_dtypes_routines_on_the_host_and_memory_are_blockers() -> None:
    with simulated(routines=False) as device:
        device.memory.room = 10_000
        (found,) = estimate(lambda x: jnp.linalg.eig(x)[0], BIG, devices=["simulated"])
        assert any("eig" in b for b in found.blockers) and any("MiB" in b for b in found.blockers)


# ------------------------------------------------------------------ calibration and learning
@pytest.mark.thorough
def test_calibration_finds_secret_costs() -> None:
    with simulated(factors={"product": 0.2, "function": 5.0, "far": 0.3}, noise=0.1) as device:
        rates = calibrate("simulated", seconds=60.0)
        for name in ("product", "function", "far", "call"):
            assert rates.costs[name] == pytest.approx(device.secret.costs[name], rel=0.3), name
        forget_rates()
        assert rates_of("simulated").costs == pytest.approx(rates.costs)


def test_runs_teach_costs() -> None:
    """After 50 noisy runs of different programs the costs that they need are known within 20 %."""
    generator = np.random.default_rng(3)
    start = typical_rates("cpu")
    secret = typical_rates("cpu", "")
    factors = {"product": 4.0, "near": 0.3, "call": 3.0, "sine": 3.0}
    secret = DeviceRates("cpu", {n: c * factors.get(n, 1.0) for n, c in secret.costs.items()})
    seen = []
    for _ in range(50):
        n = int(generator.integers(2, 10)) * 32
        kind = [lambda x: x @ x, lambda x: x + 1.0, lambda x: jnp.exp(jnp.sin(x))][int(generator.integers(3))]
        terms = estimate(kind, rlx.ShapeDtypeStruct((n, n), "float32"), devices=["cpu"])[0].terms
        seen.append(Observation(terms, secret.seconds(terms) * float(np.exp(0.1 * generator.standard_normal()))))
    found = fitted(start, seen, prior=0.05, forgetting=0.98)
    for name in ("product", "sine"):
        assert found.costs[name] == pytest.approx(secret.costs[name], rel=0.2), name
    unseen = estimate(lambda x: jnp.exp(x @ x), rlx.ShapeDtypeStruct((200, 200), "float32"), devices=["cpu"])[0].terms
    assert found.seconds(unseen) == pytest.approx(secret.seconds(unseen), rel=0.2)


def test_an_outlier_does_not_decide() -> None:
    start = typical_rates("cpu")
    terms = estimate(lambda x: x @ x, BIG, devices=["cpu"])[0].terms
    seen = [Observation(terms, start.seconds(terms))] * 20 + [Observation(terms, 1000 * start.seconds(terms))]
    assert fitted(start, seen, 0.05).seconds(terms) == pytest.approx(start.seconds(terms), rel=0.2)


def test_calls_of_an_automatic_function_teach() -> None:
    with simulated(factors=FAST | {"product": 0.5}) as device:
        f = rlx.jit(large, device=Policy(only=["simulated"]))
        for _ in range(8):
            f(BIG)
        rates = rates_of("simulated")
        assert "1 runs" in rates.basis
        wrong = abs(np.log(estimate(large, BIG, devices=["simulated"])[0].seconds / device.secret.seconds(
            estimate(large, BIG, devices=["simulated"])[0].terms)))  # fmt: skip
        assert wrong < abs(np.log(typical_rates("simulated").costs["product"] / device.secret.costs["product"]))
        forget_rates()
        assert len(rates_of("simulated").observations) == 1, "the next process knows the run"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda told: told.update(form=99),
        lambda told: told["costs"].update(far="quick"),
        lambda told: told["costs"].update(far=-1.0),
        lambda told: told["costs"].pop("far"),
        lambda told: told.update(observations=[{"seconds": 0, "terms": []}]),
        lambda told: told.update(device="cuda"),
    ],
)
@pytest.mark.selected("all")
def test_an_invalid_file_is_not_read(spoil: Any, tmp_path: Path) -> None:
    write_rates(typical_rates("cpu"))
    (file,) = tmp_path.rglob("rates-*.json")
    assert read_rates("cpu") is not None and file.stat().st_mode & 0o077 == 0
    told = json.loads(file.read_text())
    spoil(told)
    file.write_text(json.dumps(told))
    assert read_rates("cpu") is None
    file.write_text("[" * 100_000)
    assert read_rates("cpu") is None


# ------------------------------------------------------------------ the choice
def test_the_quicker_device_is_chosen_and_the_default_stays_within_the_margin() -> None:
    with simulated("quick", FAST) as quick, simulated("alike", {"product": 0.9}) as alike:
        keep_rates(quick.secret), keep_rates(alike.secret)
        f = rlx.jit(large, device=Policy(only=["cpu", "quick"], calls=10**6))
        assert f(BIG).device == "quick"
        np.testing.assert_allclose(f(BIG), rlx.jit(large)(BIG), rtol=1e-5)
        decision = choose(large, BIG, policy=Policy(only=["cpu", "alike"]))
        assert decision.device == "cpu" and "times" in decision.reasons["alike"]
        assert choose(large, BIG, policy=Policy(only=["cpu", "alike"], prefer=["alike"])).device == "alike"
        assert choose(large, BIG, policy=Policy(only=["cpu", "quick"], deny=["quick"])).device == "cpu"


def test_compiling_counts_over_the_expected_calls() -> None:
    with simulated("quick", FAST | {"compile": 1e4}) as quick:
        keep_rates(quick.secret)
        names = ["cpu", "quick"]
        assert choose(large, BIG, policy=Policy(only=names, calls=1)).device == "cpu"
        assert choose(large, BIG, policy=Policy(only=names, calls=10**7)).device == "quick"


def test_arrays_on_devices_decide() -> None:
    with simulated("quick", FAST) as quick, simulated("other") as other:
        keep_rates(quick.secret), keep_rates(other.secret)
        f = rlx.jit(lambda x, y: (x @ y).sum(), device=Policy(only=["cpu", "quick", "other"], calls=10**6))
        here = rlx.device_put(BIG, "other")
        assert f(here, BIG).device == "other" and f(BIG, BIG).device == "quick"
        with pytest.raises(DeviceError, match="different devices"):
            f(here, rlx.device_put(BIG, "quick"))
        assert f(rlx.device_put(BIG, rlx.devices("cpu")[0]), BIG).device == "cpu"


def test_a_decision_does_not_flip_by_noise() -> None:
    generator = np.random.default_rng(1)
    program = rlx.make_program(large)(X)
    with simulated("quick") as quick, simulated("twin") as twin:
        policy = Policy(only=["quick", "twin"], prefer=["quick"])
        found = []
        for _ in range(60):
            for device in (quick, twin):
                noisy = {
                    n: c * float(np.exp(0.1 * generator.standard_normal())) for n, c in device.secret.costs.items()
                }
                keep_rates(DeviceRates(device.name, noisy))
            found.append(decide(program, policy).device)
        assert sum(a != b for a, b in zip(found, found[1:], strict=False)) <= 1


def test_measurement_overrules_the_estimate_and_is_remembered() -> None:
    with simulated("slow", {"product": 50.0, "call": 50.0}) as slow, simulated("quick") as quick:
        for device in (slow, quick):  # the estimates are wrong
            keep_rates(DeviceRates(device.name, {**COSTS, "product": 1e-15 if device is slow else 1e-9}))
        policy = Policy(only=["slow", "quick"], prefer=["slow"], measure=True)
        assert choose(large, BIG, policy=policy).device == "slow"
        f = rlx.jit(large, device=policy)
        assert f(BIG).device == "quick"
        forget_winners(), rlx.clear_caches()
        runs = slow.runs
        assert rlx.jit(lambda x: large(x), device=policy)(BIG).device == "quick" and slow.runs == runs


def test_the_environment_sets_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEVICES", "cpu, reference")
    monkeypatch.setenv("RLX_DENY_DEVICES", "cpu")
    monkeypatch.setenv("RLX_BENCHMARK_PICK", "1")
    policy = Policy.from_env()
    assert (policy.only, policy.deny, policy.measure) == (("cpu", "reference"), ("cpu",), True)
    assert set(choose(large, X).reasons) == {"cpu", "reference"} and choose(large, X).device == "reference"
    with rlx.default_device("auto"):
        assert rlx.config.auto_device and rlx.default_backend() == "cpu"
        assert float(rlx.jit(large)(X)) == pytest.approx(float(large(X)), rel=1e-5)
    assert not rlx.config.auto_device


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Policy(only=["toaster"]), DeviceError, "unknown device 'toaster'"),
        (lambda: Policy(memory={"toaster": 1}), DeviceError, "unknown device"),
        (lambda: Policy(margin=0.5), OptionError, "margin"),
        (lambda: Policy(calls=0), OptionError, "calls"),
        (lambda: choose(large, X, policy=Policy(only=["cpu"], deny=["cpu"])), DeviceError, "no device"),
        (lambda: rlx.jit(large, device="auto", in_shardings=rlx.P()), OptionError, "Shardings"),
    ],
)
@pytest.mark.selected("all")
def test_invalid_policies(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_determinism_and_an_automatic_choice_exclude_each_other() -> None:
    with rlx.scoped(deterministic=True), pytest.raises(OptionError, match="deterministic"):
        rlx.jit(large, device="auto")(X)


def test_two_threads_choose_once() -> None:
    with simulated("quick", FAST) as quick:
        keep_rates(quick.secret)
        f = rlx.jit(large, device=Policy(only=["cpu", "quick"], calls=10**6))
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.append(float(f(BIG)))) for _ in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
        assert len(set(found)) == 1 and f.cache_info().misses == 1


@pytest.mark.thorough
def test_a_hundred_thousand_automatic_calls_hold_no_memory() -> None:
    """The process's memory, after the calls that fill caches; arrays, decisions and timings are let go."""
    f = rlx.jit(lambda x: jnp.tanh(x) * 2.0, device=Policy(only=["cpu", "reference"]))
    sizes = [X[:n] for n in (3, 5, 8)]
    process = psutil.Process()

    def calls(count: int) -> int:
        for n in range(count):
            f(sizes[n % 3])
        gc.collect()
        return process.memory_info().rss

    before = calls(5_000)
    assert calls(100_000) - before < 2_000_000  # 20 bytes for each call


def test_effects_are_not_repeated_by_a_measurement() -> None:
    seen: list[float] = []

    def told(x: Any) -> Any:
        rlx.debug.callback(lambda v: seen.append(float(v)), x.sum())
        return x + 1.0

    policy = Policy(only=["cpu", "numba"], measure=True, fallback=True)
    program = rlx.make_program(told)(jnp.asarray(X))
    chosen_program(program, [jnp.asarray(X)], policy, None).run([jnp.asarray(X)])
    rlx.effects_barrier()
    assert len(seen) == 1
