"""Peaks of the machine: the best of several tries, kept in the user's folder, raised by kernels that beat them."""

from __future__ import annotations

import itertools
import json
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import rlx
from rlx.ir.kernels import Contract, Loops
from rlx.ir.work import Work
from rlx.profiling import Peaks, machine_peaks, measure_peaks, peaks, probes
from rlx.profiling.peaks import peaks_for
from rlx.profiling.probes import BETTER, MOST_SECONDS, MOST_TRIES, STILL_TRIES, best_of_tries
from rlx.profiling.roofline import Evidence

SOME = Peaks("cpu", 3, ((1024, 2e9), (4096, 1e9)), ((4096, 3e9),), 5e9, 2e9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own, and no peaks known yet."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RLX_CACHE", raising=False)
    monkeypatch.setattr(peaks, "_known", {})
    monkeypatch.setattr(peaks, "_doubted", set())
    yield tmp_path / "cache"


class Machine:
    """What measuring finds, one after the other, and how often it was asked."""

    def __init__(self, *found: Peaks) -> None:
        self.found = list(found)
        self.asked: list[tuple[int, int | None]] = []

    def __call__(self, threads: int, tries: int | None = None) -> Peaks:
        self.asked.append((threads, tries))
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine that always finds SOME, with three threads in use."""
    found = Machine(SOME)
    monkeypatch.setattr(peaks, "measure_peaks", found)
    monkeypatch.setattr(peaks, "get_num_threads", lambda: 3)
    return found


# ------------------------------------------------------------------ measuring
def test_measured_peaks_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "TRAFFIC", (1 << 15, 1 << 21))
    monkeypatch.setattr(probes, "ORDER", 256)
    before = rlx.get_num_threads()
    found = measure_peaks(1)
    assert rlx.get_num_threads() == before and found.threads == 1 and found.device == "cpu"
    assert found.copies[-1][0] == found.reads[-1][0] == 1 << 21
    assert all(1e8 < rate < 1e13 for _, rate in (*found.copies, *found.reads))
    assert 1e8 < found.float64_products < found.float32_products * 4 < 1e14
    assert "1 threads: copies" in str(found) and "GFLOP/s in float32" in str(found)


def test_probes_run_our_own_kernels() -> None:
    product, copy = probes._product("float32").call, probes._traffic(rlx.numpy.negative, 2)[0].call
    assert [type(step.kernel) for step in product.steps] == [Contract]
    assert [type(step.kernel) for step in copy.steps] == [Loops]


def test_tries_go_on_until_none_is_better() -> None:
    busy = [(56.0, 10.0), (60.0, 10.0), (200.0, 9.0), (350.0, 10.1), (349.0, 10.2), (351.0, 8.0), (999.0, 99.0)]
    assert best_of_tries(iter(busy).__next__, clock=lambda: 0.0) == [351.0, 10.2]
    made = itertools.count(1)
    assert best_of_tries(lambda: [next(made) and 5.0], clock=lambda: 0.0) == [5.0]
    assert next(made) == 1 + STILL_TRIES + 1


def test_tries_are_bounded() -> None:
    rates = (BETTER * 1.1**n for n in itertools.count())
    assert best_of_tries(lambda: [next(rates)], clock=lambda: 0.0) == [pytest.approx(BETTER * 1.1 ** (MOST_TRIES - 1))]
    assert best_of_tries(lambda: [next(rates)], 1, lambda: 0.0) == [pytest.approx(BETTER * 1.1**MOST_TRIES)]
    seconds = itertools.count(0.0, MOST_SECONDS / 2)
    before = next(rates)
    assert best_of_tries(lambda: [next(rates)], clock=seconds.__next__) == [pytest.approx(before * 1.1**2)]


# ------------------------------------------------------------------ keeping
def test_a_process_tries_what_it_finds_once_more(folder: Path, machine: Machine) -> None:
    assert machine_peaks(3) == machine_peaks(3) == SOME
    (file,) = folder.rglob("peaks-*.json")
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    better = replace(SOME, float32_products=6e9)
    machine.found = [better]
    peaks._known.clear()  # another process
    assert machine_peaks(3) == machine_peaks(3) == better and machine.asked == [(3, None), (3, 1)]
    machine.found = [SOME]
    peaks._known.clear()
    assert machine_peaks(3) == better
    machine.found = [replace(SOME, threads=1)]
    machine_peaks(1)
    assert machine.asked[-1] == (1, None) and len(list(folder.rglob("peaks-*.json"))) == 2


def test_measuring_again_keeps_the_better_numbers(machine: Machine) -> None:
    machine.found = [SOME, Peaks("cpu", 3, ((1024, 1e9), (4096, 1.5e9)), ((4096, 1e9),), 6e9, 1e9)]
    machine_peaks(3)
    best = Peaks("cpu", 3, ((1024, 2e9), (4096, 1.5e9)), SOME.reads, 6e9, 2e9)
    assert machine_peaks(3, again=True) == best == machine_peaks(3)
    peaks._known.clear()
    assert machine_peaks(3) == best


def test_what_another_process_left_is_not_lost(machine: Machine) -> None:
    machine_peaks(3)
    other = replace(SOME, float64_products=9e9)
    peaks._save(peaks._file("cpu", 3), other)
    machine.found = [replace(SOME, float32_products=9e9)]
    best = replace(other, float32_products=9e9)
    assert machine_peaks(3, again=True) == best == peaks._load(peaks._file("cpu", 3))


# ------------------------------------------------------------------ kernels that beat them
PRODUCT = Work(flops=10e9, reads=2048, writes=2048)  # SOME allows it in two seconds


def test_kernels_within_the_peaks_measure_nothing(machine: Machine) -> None:
    assert peaks_for([Evidence(PRODUCT, PRODUCT, 2.1)]) == peaks_for([]) == SOME and len(machine.asked) == 1


def test_a_kernel_that_beats_them_has_them_measured_again(machine: Machine) -> None:
    """Peaks from a busy time: what is measured now allows the kernel, and nothing is raised."""
    quiet = replace(SOME, float32_products=50e9)
    machine.found = [SOME, quiet]
    assert peaks_for([Evidence(PRODUCT, PRODUCT, 1.0)]) == quiet and machine.asked == [(3, None), (3, None)]
    peaks._known.clear()
    machine.found = [SOME]
    assert peaks_for([Evidence(PRODUCT, PRODUCT, 1.0)]) == quiet  # from the file


def test_a_kernel_that_still_beats_them_raises_them(machine: Machine) -> None:
    evidence = Evidence(PRODUCT, PRODUCT, 0.5)
    raised = peaks_for([evidence])
    assert len(machine.asked) == 2 and raised.float32_products == pytest.approx(20e9) and raised.allow(evidence)
    assert replace(raised, float32_products=5e9) == SOME
    assert peaks_for([evidence]) == raised and len(machine.asked) == 2  # now they allow it
    peaks._known.clear()
    assert machine_peaks(3) == raised  # and so in another process


def test_work_that_is_not_certain_raises_nothing(machine: Machine) -> None:
    """It has them measured again, once in a process."""
    gather = Evidence(Work(reads=1 << 40), Work(reads=64), 0.5)
    assert [peaks_for([gather]) for _ in range(3)] == [SOME] * 3 and len(machine.asked) == 2
    assert not SOME.allow(gather)
    raised = peaks_for([gather, Evidence(PRODUCT, PRODUCT, 0.5)])  # a certain one among them
    assert len(machine.asked) == 3 and raised.float32_products == pytest.approx(20e9) and not raised.allow(gather)


# ------------------------------------------------------------------ the file
@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"copies": []}', '{"copies": [[1]]}', "rates"])
def test_damaged_files_are_measured_again(folder: Path, machine: Machine, damage: str) -> None:
    machine_peaks(3)
    (file,) = folder.rglob("peaks-*.json")
    whole = json.loads(file.read_text())
    file.write_text(json.dumps(whole | {"reads": [[4096, 0.0]]}) if damage == "rates" else damage)
    peaks._known.clear()
    assert machine_peaks(3) == SOME
    assert machine.asked == [(3, None)] * 2 and json.loads(file.read_text()) == whole


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes of folders")
def test_a_folder_that_others_can_change_keeps_nothing(folder: Path, machine: Machine) -> None:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    assert machine_peaks(3) == SOME and not list(folder.rglob("peaks-*.json"))


def test_without_a_disk(folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE", "0")
    assert machine_peaks(3) == SOME and not folder.exists()
