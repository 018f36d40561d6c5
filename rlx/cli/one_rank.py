"""The process that `rlx launch` starts for each rank: it runs the program as a child process, and outlives it.

The launchers of MPI libraries end all processes as soon as one is killed. With this wrapper the others continue until
they find that it does not arrive, and report that with their lines. A rank that ends without leaving the group fails
the job, and no rank outlives this process. It is run by its path, without importing rlx, to start quickly.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

__all__ = ["main", "threads_each"]

_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_BESIDE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")  # the number of ranks on this machine
_THREADS = ("RLX_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_PR_SET_PDEATHSIG = 1
_LAST_WORDS = 5  # seconds for a rank to end after its launcher has died
# the states of ranks, see rlx/distributed/arrivals.py
_FOLDER = "RLX_LAUNCH_FOLDER"
_STARTED, _WAITS, _JOINED, _ENDED = "started", "waits", "joined", "ended"


def threads_each(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that divide the processors among the ranks of this machine; variables that are set are kept.

    >>> threads_each({"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"]
    '3'
    """
    ranks = next((int(variables[name]) for name in _BESIDE if name in variables), 1)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {**dict.fromkeys(_THREADS, str(max(1, usable // ranks))), **variables}


def _ends_with_parent(number: int) -> Callable[[], None] | None:
    """A function that asks Linux to send this process a signal when its parent dies; None elsewhere."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, number)


class _Words:
    """The files in which the ranks of this machine record their state."""

    def __init__(self, folder: str, rank: str) -> None:
        self._folder, self._own = Path(folder), Path(folder, f"rank-{rank}")
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._own.write_text(_STARTED)

    def fault(self) -> str | None:
        """The fault of a rank that has just ended; None if there is none."""
        word = self._own.read_text()
        if word in (_WAITS, _JOINED):
            return "without leaving the others: return from the program, or call rlx.distributed.shutdown() first"
        others = [file.read_text() for file in self._folder.glob("rank-*")]
        if word == _STARTED and any(other in (_WAITS, _JOINED) for other in others):
            return "without calling rlx.distributed.initialize(), where others wait for it"
        return None

    def end(self) -> None:
        """The rank has ended; the last one on this machine removes the folder."""
        self._own.write_text(_ENDED)
        if all(file.read_text() == _ENDED for file in self._folder.glob("rank-*")):
            shutil.rmtree(self._folder, ignore_errors=True)


def main(command: list[str], patience: float, folder: str = "") -> int:
    """Run a command. If a signal ends it, or it ends without leaving the group, report that, and wait `patience`
    seconds for the others to end everything. folder: where ranks record their state.
    """
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), "?")
    words = None
    with suppress(OSError):  # without the folder, faults are found later
        words = _Words(folder, rank) if folder and rank != "?" else None
    code, fault = _run(command, {_FOLDER: folder} if words is not None else {}, words)
    if fault is not None:
        said = f"rlx launch: rank {rank} on {platform.node()} {fault}; the others have {patience:g} s."
        print(said, file=sys.stderr, flush=True)
        time.sleep(patience)
    with suppress(OSError):
        if words is not None:
            words.end()
    return code


def _run(command: list[str], variables: dict[str, str], words: _Words | None) -> tuple[int, str | None]:
    """The exit code of a command, and its fault, if the other ranks do not know it yet."""
    parent = os.getppid()
    if (end_with_launcher := _ends_with_parent(signal.SIGTERM)) is not None:
        end_with_launcher()
    passed: list[int] = []  # signals from the launcher, which ends all ranks itself
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(received: int, _: FrameType | None) -> None:
        passed.append(received)
        for child in started:
            child.send_signal(received)
        if os.getppid() != parent:
            signal.signal(signal.SIGALRM, lambda *_: started[0].kill())
            signal.alarm(_LAST_WORDS)

    for name in _PASSED_ON:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), pass_on)
    # the program inherits the files that MPI's launcher has opened
    child = subprocess.Popen(
        command, close_fds=False, env=threads_each(os.environ | variables),
        preexec_fn=_ends_with_parent(signal.SIGKILL),
    )  # fmt: skip
    early = [*passed]
    started.append(child)
    for received in early:
        pass_on(received, None)
    code = child.wait()
    if code < 0:
        return 128 - code, None if passed else f"was ended by {signal.Signals(-code).name}"
    fault = None
    with suppress(OSError):
        fault = words.fault() if words is not None and not passed else None
    return (code, None) if fault is None else (code or 1, f"ended with code {code} {fault}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[3:], float(sys.argv[1]), sys.argv[2]))
