"""DataLoader: batches are those of one process whatever prepares them, positions resume, and workers end."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from sample_sets import Squares

import rlx
from rlx.data import DataLoader, prefetch, stack
from rlx.errors import InputTypeError, JaxRuntimeError, OptionError, ShapeError, TreeMismatchError

TESTS = Path(__file__).resolve().parent.parent


def numbers(batches: Any) -> list[list[int]]:
    return [batch["x"].astype(int).tolist() for batch in batches]


def flat(batches: Any) -> list[int]:
    return [x for batch in numbers(batches) for x in batch]


@pytest.mark.parametrize("options", [{}, {"workers": 1}, {"workers": 3, "ahead": 1}, {"device": "cpu", "workers": 2}])
@pytest.mark.selected("all")
def test_batches_are_the_samples_in_order(options: dict[str, Any]) -> None:
    before = threading.active_count()
    loader = DataLoader(Squares(11), 4, drop_last=False, **options)
    assert len(loader) == 3 and numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert [len(b["y"][0]) for b in DataLoader(Squares(11), 4, **options)] == [4, 4]
    found = next(iter(loader))
    assert isinstance(found["x"], rlx.Array if "device" in options else np.ndarray)
    assert list(DataLoader(Squares(0), 4, drop_last=False, **options)) == []
    assert threading.active_count() == before


def test_keys_give_orders() -> None:
    loader = DataLoader(Squares(40), 8, key=rlx.random.key(1))
    first, second = flat(loader), flat(loader)
    assert sorted(first) == sorted(second) == list(range(40)) and first != second != list(range(40))
    assert flat(DataLoader(Squares(40), 8, key=1, workers=2)) == first
    assert flat(DataLoader(Squares(40), np.int64(8), key=np.int32(1), workers=np.int8(2))) == first
    assert flat(DataLoader(Squares(40), 8, key=2)) != first


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_continues_after_the_last_batch(workers: int) -> None:
    """Also where workers are in front; a loop that is left ends its epoch, and a state at its end is the next one."""

    def loader() -> DataLoader:
        return DataLoader(Squares(10), 2, key=0, workers=workers, device="cpu" if workers else None)

    whole = loader()
    expected = [numbers(whole), numbers(whole), numbers(whole)]
    seen, states = [], []
    first = loader()
    for batch in first:
        seen += numbers([batch])
        states.append(first.state())
        if len(seen) == 3:
            break
    assert states[2] == {"epoch": 0, "batch": 3, "batch_size": 2, "samples": 10}
    assert numbers(first) == expected[1]  # the next epoch
    again = loader()
    again.restore({name: np.int64(value) for name, value in states[2].items()})
    assert seen + numbers(again) == expected[0] and numbers(again) == expected[1]
    assert again.state() == {"epoch": 2, "batch": 0, "batch_size": 2, "samples": 10}
    again.restore(again.state())
    assert numbers(again) == expected[2]
    first_state = states[0]
    changes: tuple[dict[str, int], ...] = ({"samples": 11}, {"batch_size": 3}, {"batch": 9}, {"epoch": -1})
    for wrong in ({"epoch": 0}, *({**first_state, **change} for change in changes)):
        with pytest.raises(OptionError, match="DataLoader.restore got"):
            again.restore(wrong)


def test_two_passes_at_once_are_two_epochs() -> None:
    loader = DataLoader(Squares(6), 2, key=0)
    pairs = list(zip(loader, loader, strict=True))
    alone = DataLoader(Squares(6), 2, key=0)
    for epoch in range(2):
        assert numbers(pair[epoch] for pair in pairs) == numbers(alone)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_in_place_of_its_batch(workers: int) -> None:
    before = threading.active_count()
    found = iter(DataLoader(Squares(8, failing=5), 2, workers=workers))
    assert numbers([next(found), next(found)]) == [[0, 1], [2, 3]]
    with pytest.raises(LookupError, match="broken") as raised:
        next(found)
    assert raised.traceback[-1].path.name == "sample_sets.py" and "dataset[5]" in raised.value.__notes__[0]
    assert threading.active_count() == before


def test_a_loop_that_is_left_ends_its_threads() -> None:
    before = threading.active_count()
    found = iter(DataLoader(Squares(1000), 2, workers=2, device="cpu"))
    next(found)
    assert threading.active_count() > before
    found.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_what_cannot_be_stacked_says_so() -> None:
    with pytest.raises(ShapeError, match=r"shapes \(2,\) and \(3,\).*(?s:.*)collate="):
        list(DataLoader([np.ones(2), np.ones(3)], 2))
    with pytest.raises(TreeMismatchError, match="collate="):
        list(DataLoader([{"a": 1}, {"b": 1}], 2))
    assert [list(map(len, b)) for b in DataLoader([[1], [2, 3]], 2, collate=list)] == [[1, 2]]
    assert stack([(1, {"a": 2.0})])[1]["a"].tolist() == [2.0]


@pytest.mark.parametrize("options", [{"workers": 1}, {"device": "cpu"}, {"workers": 1, "kind": "processes"}])
def test_errors_of_workers_show_the_line_of_the_loop(options: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match="pad|Pad") as found:
        list(DataLoader([np.zeros(1), np.zeros(2)], 2, **options))  # this line
    assert "# this line" in found.value.line


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 0}, {"workers": -1}, {"ahead": 0}, {"kind": "no"}, {"key": True}, {"key": 0.5}, {"workers": 1.5}],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))}="):
        DataLoader(Squares(3), **{"batch_size": 1, **options})


def test_an_iterable_is_no_data_set() -> None:
    with pytest.raises(InputTypeError, match="prefetch"):
        DataLoader(iter([1, 2]), 1)  # type: ignore[arg-type]


def test_prefetch_copies_to_a_device() -> None:
    (found,) = prefetch([{"x": np.ones(2)}], device=rlx.devices()[0])
    assert isinstance(found["x"], rlx.Array) and found["x"].committed


# ------------------------------------------------------------- processes
def test_processes_prepare_the_same_batches() -> None:
    loader = DataLoader(Squares(12), 2, key=3, workers=2, kind="processes")
    found = list(loader)
    assert numbers(found) == numbers(DataLoader(Squares(12), 2, key=3))
    pids = [int(batch["pid"][0]) for batch in found]
    assert pids[::2] == [pids[0]] * 3 and pids[1::2] == [pids[1]] * 3 and len({*pids, os.getpid()}) == 3
    assert not any(psutil.pid_exists(pid) for pid in pids) and not multiprocessing.active_children()


def test_a_data_set_that_cannot_be_sent_says_so() -> None:
    with pytest.raises(InputTypeError, match="cannot be sent to worker processes"):
        list(DataLoader([1], 1, collate=lambda x: x, workers=1, kind="processes"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ("raise", LookupError, "raise LookupError.*# the line of the error"),
        ("unpicklable", JaxRuntimeError, "cannot be pickled.*raise Unpicklable"),
        ("kill", JaxRuntimeError, "Worker process 0 ended with exit code -9"),
    ],
)
def test_errors_of_processes(how: str, error: type[Exception], text: str) -> None:
    found = iter(DataLoader(Squares(8, failing=5, how=how), 2, workers=2, kind="processes"))
    assert numbers([next(found), next(found)]) == [[0, 1], [2, 3]]
    with pytest.raises(error) as raised:
        next(found)
    said = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert re.search(text, said, re.DOTALL), said
    assert not multiprocessing.active_children()


PROGRAM = """
import sys
from rlx.data import DataLoader
from sample_sets import Squares

def main():
    for batch in DataLoader(Squares(100, failing=6, how="sleep"), 2, workers=2, kind="processes"):
        print("pid", int(batch["pid"][0]), flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_no_process_is_left_after(how: int, tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group of processes; a killed parent cannot tell its workers, one of which is busy."""
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    running = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py")],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert running.stdout is not None
    workers = {int(running.stdout.readline().split()[1]) for _ in range(3)}
    assert len(workers) == 2 and all(psutil.pid_exists(pid) for pid in workers)
    left = [psutil.Process(pid) for pid in workers]
    (os.killpg if how == signal.SIGINT else os.kill)(running.pid, how)
    _, errors = running.communicate(timeout=200)
    assert running.returncode != 0
    if how == signal.SIGINT:
        assert errors.count("Traceback") == 1 and "KeyboardInterrupt" in errors, errors
    _, alive = psutil.wait_procs(left, timeout=200)
    assert not alive
