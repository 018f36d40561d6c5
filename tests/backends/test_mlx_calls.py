"""How many operations of MLX the benchmark programs are, beside programs written by hand."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx

mx: Any = pytest.importorskip("mlx.core", reason="mlx is not installed: pip install 'rlx[mlx]'")

ROOT = Path(__file__).resolve().parents[2]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT)
    calls: Any = importlib.import_module("benchmarks.mlx_calls")
PROGRAMS = {program.name: program for program in calls.programs}
BAR = 1.3


@pytest.mark.parametrize("name", sorted(calls.by_hand))
def test_no_more_operations_than_by_hand(name: str) -> None:
    written = calls.careful if name in calls.careful else calls.by_hand
    counts, (operations, _) = calls.counts_of(PROGRAMS[name]), calls.counts_by_hand(PROGRAMS[name], written)
    assert counts.operations <= BAR * operations
    assert (counts.traced, counts.loops, counts.host_steps) == (1, 0, 0), "one function of MLX"


@pytest.mark.parametrize(
    ("name", "written"),
    [*((name, calls.by_hand) for name in calls.by_hand), *((name, calls.careful) for name in calls.careful)],
)
def test_a_program_by_hand_computes_the_same(name: str, written: dict[str, Any]) -> None:
    function, arguments = PROGRAMS[name].build(rlx, np.random.default_rng(0))
    if written is calls.careful:
        numbers, bound = arguments[1], {"gather_rows": 50000, "segment_sum": 500}[name]
        numbers[:6] = [-1, -bound, -bound - 1, bound - 1, bound, 2**31 - 1]
    given = rlx.tree.map(mx.array, arguments)
    found = rlx.tree.leaves(written[name](mx)(*given))
    for made, expected in zip(found, rlx.tree.leaves(rlx.jit(function)(*arguments)), strict=True):
        largest = float(np.abs(np.asarray(expected)).max())
        # MLX's own sum of millions of numbers has three good digits on the processor
        tolerance = 1e-2 if name == "sum_of_squares" else 1e-3
        np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance * max(largest, 1e-6))


def test_a_loop_is_counted_once() -> None:
    counts = calls.counts_of(PROGRAMS["recurrent_forward"])
    assert counts.loops == 1 and counts.host_steps == 0 and counts.operations < 30


def test_views_are_no_operations() -> None:
    x = mx.zeros((2, 3))
    mx.eval(x)
    assert calls.counted(calls.names_of([mx.transpose(mx.reshape(x, (3, 2))) + x])) == (1, 2)


@pytest.fixture(scope="module")
def check() -> Any:
    """What `make check-mac` runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        return importlib.import_module("benchmarks.check_mac")


def test_the_first_run_on_a_mac(check: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """`make check-mac` with --quick, on the processor: times are positive, results those of the CPU, tests pass."""
    monkeypatch.setattr(check, "QUICK", (["tests/backends/test_mlx.py", "-k", "test_fact_sign", "-n", "0"],))
    assert check.main(["--quick"]) == 0
    printed = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    assert [name for name, *_ in rows[1:]] == list(check.SMALL)
    for _, ours, theirs, ratio, error in rows[1:]:
        assert min(map(float, (ours, theirs, ratio))) > 0 and float(error) < 1e-3
    assert "devices mlx:" in printed.splitlines()[0] and "1 passed" in printed.splitlines()[-1]


def test_a_run_of_tests_that_fails_is_said(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = "..F\n\nFAILED tests/nn/test_it.py::test_this - 1 is not 2\n1 failed, 2 passed in 3s\n"
    done = subprocess.CompletedProcess([], 1, printed, "")
    monkeypatch.setattr(check.subprocess, "run", lambda command, **options: done)
    said, passed = check.conformance([["tests/nn"]])
    assert not passed and said == [
        "- tests/nn: 1 failed, 2 passed in 3s", "    FAILED tests/nn/test_it.py::test_this - 1 is not 2",
    ]  # fmt: skip


@pytest.mark.parametrize(("system", "device"), [("darwin", None), ("linux", "mlx")])
def test_tests_run_on_a_macs_default_device(
    check: Any, monkeypatch: pytest.MonkeyPatch, system: str, device: str | None
) -> None:
    """So that what has float64 runs, too."""
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    monkeypatch.setattr(check.sys, "platform", system)
    found = check.surroundings(RLX_METAL_KERNELS="1")
    assert found.get("RLX_DEVICE") == device and found["RLX_METAL_KERNELS"] == "1" and "PATH" in found
