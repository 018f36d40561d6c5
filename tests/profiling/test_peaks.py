"""Peaks of the machine: measured once, kept in the user's folder, never believed when damaged."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlx
from rlx.profiling import Peaks, machine_peaks, measure_peaks, peaks

SOME = Peaks("cpu", 3, ((1024, 2e9), (4096, 1e9)), 5e9, 2e9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own, and no peaks known yet."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RLX_CACHE", raising=False)
    known = dict(peaks._known)
    peaks._known.clear()
    yield tmp_path / "cache"
    peaks._known.clear()
    peaks._known.update(known)


def test_measured_peaks_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "COPY_SIZES", (1 << 14, 1 << 20))
    monkeypatch.setattr(peaks, "ORDER", 256)
    before = rlx.get_num_threads()
    found = measure_peaks(1)
    assert rlx.get_num_threads() == before and found.threads == 1 and found.device == "cpu"
    assert [size for size, _ in found.copies] == [1 << 15, 1 << 21]
    assert all(1e8 < rate < 1e13 for _, rate in found.copies)
    assert 1e8 < found.float64_products < found.float32_products * 4 < 1e14
    assert "1 threads: copies" in str(found) and "GFLOP/s in float32" in str(found)


def test_peaks_are_measured_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(threads: int) -> Peaks:
        measured.append(threads)
        return SOME

    monkeypatch.setattr(peaks, "measure_peaks", measure)
    assert machine_peaks(3) == machine_peaks(3) == SOME
    (file,) = folder.rglob("peaks-*.json")
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    peaks._known.clear()  # another process
    assert machine_peaks(3) == SOME and measured == [3]
    machine_peaks(1)
    assert measured == [3, 1] and len(list(folder.rglob("peaks-*.json"))) == 2


def test_measuring_again_keeps_the_better_numbers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [SOME, Peaks("cpu", 3, ((1024, 1e9), (4096, 3e9)), 6e9, 1e9)]
    monkeypatch.setattr(peaks, "measure_peaks", lambda threads: found.pop(0))
    machine_peaks(3)
    best = Peaks("cpu", 3, ((1024, 2e9), (4096, 3e9)), 6e9, 2e9)
    assert machine_peaks(3, again=True) == best == machine_peaks(3)
    peaks._known.clear()
    assert machine_peaks(3) == best and not found


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", json.dumps({"copies": []}), json.dumps({"copies": [[1]]})])
def test_damaged_files_are_measured_again(folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setattr(peaks, "measure_peaks", lambda threads: SOME)
    machine_peaks(3)
    (file,) = folder.rglob("peaks-*.json")
    file.write_text(damage)
    peaks._known.clear()
    assert machine_peaks(3) == SOME
    assert json.loads(file.read_text())["threads"] == 3


def test_without_a_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE", "0")
    monkeypatch.setattr(peaks, "measure_peaks", lambda threads: SOME)
    assert machine_peaks(3) == SOME and not folder.exists()
