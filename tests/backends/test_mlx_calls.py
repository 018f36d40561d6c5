"""How many operations of MLX the benchmark programs are, beside programs written by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx

mx: Any = pytest.importorskip("mlx.core", reason="mlx is not installed: pip install 'rlx[mlx]'")

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).resolve().parents[2])
    calls: Any = importlib.import_module("benchmarks.mlx_calls")
PROGRAMS = {program.name: program for program in calls.programs}
BAR = 1.3
# operations and kernels per plan: more of them is a change to look at
MOST = {"elementwise_chain": 11, "layer_norm_rows": 11, "gather_rows": 11, "segment_sum": 12, "sum_of_columns": 1}


@pytest.mark.parametrize("name", calls.by_hand)
def test_no_more_operations_than_by_hand(name: str) -> None:
    counts, (operations, _) = calls.counts_of(PROGRAMS[name]), calls.counts_by_hand(PROGRAMS[name])
    assert counts.operations <= BAR * operations
    assert (counts.traced, counts.loops, counts.host_steps) == (1, 0, 0), "one function of MLX"


@pytest.mark.parametrize("name", calls.by_hand)
def test_a_program_by_hand_computes_the_same(name: str) -> None:
    function, arguments = PROGRAMS[name].build(rlx, np.random.default_rng(0))
    given = rlx.tree.map(mx.array, arguments)
    found = rlx.tree.leaves(calls.by_hand[name](mx)(*given))
    for made, expected in zip(found, rlx.tree.leaves(rlx.jit(function)(*arguments)), strict=True):
        largest = float(np.abs(np.asarray(expected)).max())
        np.testing.assert_allclose(np.asarray(made), np.asarray(expected), rtol=1e-3, atol=1e-3 * max(largest, 1e-6))


@pytest.mark.parametrize("name", MOST)
def test_operations_of_a_program(name: str) -> None:
    assert calls.counts_of(PROGRAMS[name]).operations <= MOST[name]


def test_a_loop_is_counted_once() -> None:
    counts = calls.counts_of(PROGRAMS["recurrent_forward"])
    assert counts.loops == 1 and counts.host_steps == 0 and counts.operations < 30


def test_views_are_no_operations() -> None:
    x = mx.zeros((2, 3))
    mx.eval(x)
    assert calls.counted(calls.names_of([mx.transpose(mx.reshape(x, (3, 2))) + x])) == (1, 2)


def test_the_table_of_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of `make check-mac`, on the processor: times are positive, results are those of the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).resolve().parents[2])
        check: Any = importlib.import_module("benchmarks.check_mac")
    monkeypatch.setattr(check, "CALLS", 1)
    name, ours, theirs, ratio, error = check.row("nbody_forces").strip("| ").split(" | ")
    assert name == "nbody_forces" and float(ours) > 0 and float(theirs) > 0 and float(ratio) > 0
    assert float(error) < 1e-5 and "devices mlx:" in check.machine()
