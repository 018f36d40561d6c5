"""rlx.profile: every kernel once, times that add up, the user's lines, pages and traces."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.backends.timing import Events, StepTime, TimedRun, TimedStep
from rlx.errors import InputTypeError, RlxError, UnsupportedError
from rlx.ir.work import kernel_work
from rlx.profiling import KernelProfile, Peaks, Profile, peaks, profile
from rlx.profiling.steady import Round

X = np.ones((96, 96), "f4") / 96


def model(x: Any, w: Any) -> Any:
    h = jnp.sort(x @ w)
    return jnp.tanh(h).sum(1)


def looped(x: Any) -> Any:
    def body(c: Any, v: Any) -> Any:
        return jnp.sort(c @ v), None

    return rlx.lax.scan(body, x, jnp.stack([x] * 5))[0]


def branched(x: Any) -> Any:
    return rlx.lax.cond(x[0, 0] > 5, lambda v: v @ v, lambda v: jnp.sort(v), x)


def counted(x: Any) -> Any:
    def more(state: Any) -> Any:
        return jnp.sum(state[1]) < 4.5

    return rlx.lax.while_loop(more, lambda s: (jnp.sort(s[0] @ s[0]), s[1] + 1), (x, jnp.zeros(1)))


def kernels_of(found: Profile) -> dict[str, KernelProfile]:
    return {kernel.path: kernel for kernel in found.kernels}


def test_every_kernel_has_a_row() -> None:
    found = profile(model, runs=5)(X, X)
    plan = rlx.inspect(model)(X, X).plan
    assert plan is not None and [k.kind for k in found.kernels] == [type(k).__name__ for k in plan.kernels]
    for number, (row, kernel) in enumerate(zip(found.kernels, plan.kernels, strict=True)):
        assert row.path == str(number) and row.runs == 1 and row.label == getattr(kernel, "label", "")
        assert row.work == kernel_work(kernel) and row.seconds > 0
    assert found.seconds == pytest.approx(sum(row.seconds for row in found.kernels))
    assert found.work.flops >= 2 * 96**3 and found.calls >= 5 and found.device == "cpu"
    assert [k.seconds for k in found.slowest(2)] == sorted((k.seconds for k in found.kernels), reverse=True)[:2]


def test_rates_follow_from_work_and_time() -> None:
    x = np.ones((384, 384), "f4")
    row = profile(lambda x: x @ x)(x).kernels[0]
    assert row.gigaflops == pytest.approx(2 * 384**3 / row.seconds / 1e9)
    assert row.gigabytes_per_second == pytest.approx(2 * x.nbytes / row.seconds / 1e9)
    assert row.efficiency == pytest.approx(row.roofline / row.seconds) and row.bound == "operations"
    assert profile(jnp.negative)(x).kernels[0].bound == "bytes"


def test_rows_name_the_users_line() -> None:
    found = rlx.profile(rlx.jit(model))(X, X)
    lines, first = inspect.getsourcelines(model)
    (product,) = [k for k in found.kernels if k.kind == "Contract"]
    assert product.source == f"test_profile.py:{first + 1}  {lines[1].strip()}"
    assert product.source[:30] in found.table()


def test_results_are_those_of_the_function() -> None:
    from rlx.profiling.timed_call import TimedCall

    (storage,) = TimedCall(model, (X, X), {}).run().outputs
    expected = rlx.jit(model)(X, X)
    np.testing.assert_array_equal(storage.view(expected.shape, expected.dtype), np.asarray(expected))


def test_kernels_inside_loops_count_their_runs() -> None:
    found = kernels_of(profile(looped)(X))
    inside = [k for path, k in found.items() if ".body." in path]
    assert inside and all(k.runs == 5 for k in inside)
    (product,) = [k for k in inside if k.kind == "Contract"]
    assert product.work.flops == 5 * 2 * 96**3 and product.gigaflops is not None
    holder = found[product.path.split(".")[0]]
    assert holder.kind == "Scan" and holder.runs == 1 and holder.work.flops == 0
    assert list(found).index(holder.path) < list(found).index(product.path)


def test_loops_of_unknown_length_count_turns_that_were_taken() -> None:
    found = kernels_of(profile(counted)(X))
    products = [k for path, k in found.items() if k.kind == "Contract"]
    assert [k.runs for k in products] == [5]
    assert any(path.split(".")[1] == "condition" and k.runs == 6 for path, k in found.items() if "." in path)


def test_branches_not_taken_take_no_time() -> None:
    found = profile(branched)(X)
    (product,) = [k for k in found.kernels if k.kind == "Contract"]
    (ordered,) = [k for k in found.kernels if k.kind == "Sort"]
    assert "branch" in product.path and {product.runs, ordered.runs} == {0, 1}
    idle = product if product.runs == 0 else ordered
    assert idle.seconds == 0 and idle.gigaflops is None and idle.efficiency is None and idle.work.bytes == 0


def test_compiled_loops_are_one_kernel() -> None:
    """A small body becomes one function: it has one row, with the work of all its turns."""

    def scalar(x: Any) -> Any:
        return rlx.lax.scan(lambda c, v: (c * 0.5 + v, None), x[0, 0], x[0])[0]

    found = [k for k in profile(scalar)(X).kernels if k.kind == "Scan"]
    assert len(found) == 1 and found[0].runs == 1 and found[0].work.flops == 2 * 96


def test_table_and_markup() -> None:
    found = profile(model)(X, X)
    lines = found.table().splitlines()
    rows = lines[3 : 3 + len(found.kernels)]
    assert lines[0] == f"model on cpu, medians over the quicker half of {found.calls} runs"
    assert lines[1].startswith("peaks: cpu, ")
    assert lines[2].split() == ["#", "line", "time", "share", "runs", "GB/s", "GFLOP/s", "roofline", "bound", "kernel"]
    texts = ("h = jnp.sort(x @ w)", "h = jnp.sort(x @ w)", "return jnp.tanh(h).sum(1)")
    for row, text in zip(rows, texts, strict=True):
        assert re.match(rf"\d  test_profile.py:\d+  {re.escape(text)}  ", row)  # named by the user's line
    assert len(lines) == 4 + len(found.kernels) + len(found.warnings)
    sums = lines[3 + len(found.kernels)]
    assert sums.startswith("kernels ") and "outside kernels" in sums
    markup = found._repr_html_()
    assert markup.count("<tr>") == 1 + len(found.kernels) and markup.count("<table>") == markup.count("</table>") == 1
    assert str(found) == repr(found) == found.table()
    assert sum(float(line.split("%")[0].split()[-1]) for line in rows) == pytest.approx(100, abs=1)


@pytest.mark.parametrize("function", [model, looped, counted, branched])
def test_traces_nest_and_follow_one_another(function: Any, tmp_path: Path) -> None:
    args = (X, X) if function is model else (X,)
    found = profile(function)(*args)
    content = json.loads(found.save_trace(tmp_path / "trace.json").read_text(encoding="utf-8"))
    events = [e for e in content["traceEvents"] if e["ph"] == "X"]
    assert {e["args"]["kernel"] for e in events} == {k.path for k in found.kernels if k.runs}
    assert len(events) == sum(k.runs for k in found.kernels)
    spans = sorted((e["ts"], -e["dur"], e["args"]["kernel"]) for e in events)
    open_ends: list[float] = []
    for begin, negative, _ in spans:
        while open_ends and open_ends[-1] <= begin + 1e-6:
            open_ends.pop()
        assert not open_ends or begin - negative <= open_ends[-1] + 1e-6  # inside what is open
        open_ends.append(begin - negative)
    for event in events:
        path = event["args"]["kernel"]
        if "." in path:
            holder = path.rsplit(".", 2)[0]
            assert any(
                e["args"]["kernel"] == holder and e["ts"] <= event["ts"] and event["dur"] <= e["dur"] for e in events
            )
    assert content["otherData"]["function"] == function.__name__


def test_traces_keep_the_first_events_of_long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.backends.cpu.runtime import timed

    monkeypatch.setattr(timed, "EVENTS", 6)
    found = profile(looped, runs=1)(X)
    assert len(found.median_run.events) == 4  # two more start the clock
    assert sum(k.runs for k in found.kernels if ".body." in k.path) >= 10


def test_nothing_is_computed() -> None:
    found = profile(lambda x: x)(X)
    assert found.kernels == () and found.agrees and not found.warnings
    assert found.seconds == 0 and "kernels 0 ns" in found.table()


def test_what_cannot_be_profiled() -> None:
    with pytest.raises(InputTypeError, match="without values"):
        profile(jnp.negative)(rlx.ShapeDtypeStruct((3,), "float32"))
    with pytest.raises(RlxError, match="runs=0"):
        profile(jnp.negative, runs=0)
    with rlx.default_device("reference"), pytest.raises(UnsupportedError, match="does not time its kernels"):
        profile(jnp.negative)(X)


def test_host_code_is_timed() -> None:
    calls: list[int] = []

    def host(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return x + 1

    found = profile(lambda x: rlx.pure_callback(host, rlx.ShapeDtypeStruct((96, 96), "float32"), x), runs=3)(X)
    (row,) = [k for k in found.kernels if k.kind == "Callback"]
    assert row.seconds > 0 and row.gigaflops is None and len(calls) >= 2 * 3


def test_several_threads_at_once() -> None:
    results: list[Profile] = []
    threads = [threading.Thread(target=lambda: results.append(profile(model, runs=3)(X, X))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3 and all(k.runs == 1 for found in results for k in found.kernels)


# ------------------------------------------------------------------ what speaks against the times
class FakeCall:
    """A call whose kernels take the times that a test says, in nanoseconds."""

    exchanges = False

    def __init__(self, kernel: Any, times: Iterator[tuple[float, float]]) -> None:
        self.name, self.device, self.steps, self.times = "fake", "cpu", (TimedStep("0", kernel),), times

    def lines(self) -> dict[int, Any]:
        return {}

    def round(self) -> Round:
        kernels, call = next(self.times)
        run = TimedRun([], (StepTime(kernels, 1),), Events(np.empty((0, 3), np.int64)))
        return Round(run, kernels / 1e9, call / 1e9)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Profile]:
    """profile_of(function, *args, times=...): a profile of times that were never taken."""
    low = Peaks("cpu", rlx.get_num_threads(), ((1 << 20, 1e9),), ((1 << 20, 1e9),), 1e9, 1e9)
    monkeypatch.setattr(peaks, "_known", {("cpu", low.threads): low})
    monkeypatch.setattr(peaks, "_doubted", set())
    monkeypatch.setattr(peaks, "measure_peaks", lambda threads, tries=None: low)
    monkeypatch.setenv("RLX_CACHE", "0")

    def profile_of(function: Any, *args: Any, times: Iterable[tuple[float, float]]) -> Profile:
        plan = rlx.inspect(function)(*args).plan
        assert plan is not None
        call = FakeCall(plan.kernels[0], iter(times))
        monkeypatch.setattr(sys.modules[profile.__module__], "TimedCall", lambda *_: call)
        return profile(function)(*args)

    return profile_of


def test_equal_times_need_no_warning(fake: Callable[..., Profile]) -> None:
    found = fake(jnp.sin, X, times=itertools.repeat((1e6, 1.1e6)))
    assert found.agrees and found.steady and found.warnings == () and "disagree" not in found.table()
    assert found.seconds == 1e-3 and found.call_seconds == found.quickest_seconds == pytest.approx(1.1e-3)


@pytest.mark.parametrize(
    ("kernels", "call", "said"), [(117e6, 4.35e6, "idle machine"), (1e3, 9e3, "the rest is the call itself")]
)
def test_disagreement_is_said(fake: Callable[..., Profile], kernels: float, call: float, said: str) -> None:
    found = fake(jnp.sin, X, times=itertools.repeat((kernels, call)))
    assert not found.agrees and found.warnings
    for page in (found.table(), found._repr_html_(), " ".join(found.warnings)):
        assert "kernels and call disagree by more than a fifth" in page and said in page


def test_unsteady_times_are_said(fake: Callable[..., Profile]) -> None:
    found = fake(jnp.sin, X, times=((1e3 * 1.5**n, 1e3 * 1.5**n) for n in itertools.count()))
    assert not found.steady and found.agrees
    assert found.warnings[0].startswith("not steady: ") and "not steady: " in found.table()
    assert "not steady: " in found._repr_html_()


def test_shares_are_of_peaks_that_allow_them(fake: Callable[..., Profile]) -> None:
    """Peaks of 1 GFLOP/s and 1 GB/s: what is quicker raises them to what it did; no share is cut off."""
    x = np.ones((256, 256), "f4")
    product = fake(jnp.matmul, x, x, times=itertools.repeat((1e6, 1e6)))
    (row,) = product.kernels
    assert row.efficiency == pytest.approx(1.0) and row.efficiency <= 1 and "100%" in product.table()
    assert product.peaks.float32_products == pytest.approx(2 * 256**3 / 1e-3)
    slower = fake(jnp.matmul, x, x, times=itertools.repeat((2e6, 2e6)))
    assert slower.kernels[0].efficiency == pytest.approx(0.5) and slower.peaks == product.peaks
    copied = fake(jnp.negative, x, times=itertools.repeat((1e5, 1e5)))
    assert copied.kernels[0].efficiency == pytest.approx(1.0) and copied.kernels[0].bound == "bytes"
    assert copied.peaks.bandwidth(2 * x.nbytes) == pytest.approx(2 * x.nbytes / 1e-4)


def test_a_share_that_nobody_knows_is_not_printed(fake: Callable[..., Profile]) -> None:
    """A gather counts each element that it takes, which may always be the same."""
    found = fake(lambda x, i: x[i], X.ravel(), np.zeros(9216, "i4"), times=itertools.repeat((5e4, 5e4)))
    (row,) = found.kernels
    assert row.efficiency is None and row.roofline == 0 and row.bound == "" and row.gigabytes_per_second is not None
    assert "%" not in found.table().splitlines()[3].replace("100.0%", "")
