"""What `rlx launch` starts for each rank: it runs the program as a process of its own, and outlives it.

The launchers of MPI libraries end all processes as soon as one is killed. Here the others go on until they find that
it does not come, and say so with their lines. Run by its path, without rlx, so that it costs little.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import FrameType

__all__ = ["main", "threads_each"]

_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_BESIDE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")  # how many ranks are on this machine
_THREADS = ("RLX_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def threads_each(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables by which the ranks of this machine share its processors, where nothing else has been said.

    >>> threads_each({"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"]
    '3'
    """
    ranks = next((int(variables[name]) for name in _BESIDE if name in variables), 1)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {**dict.fromkeys(_THREADS, str(max(1, usable // ranks))), **variables}


def main(command: list[str], patience: float) -> int:
    """Run a command; where a signal ends it, say so, and wait so many seconds for the others to end everything.

    >>> main([sys.executable, "-c", "raise SystemExit(3)"], 1.0)
    3
    """
    # what MPI's launcher has opened is for the program
    child = subprocess.Popen(command, close_fds=False, env=threads_each(os.environ))
    passed: list[int] = []  # signals of the launcher, which ends all ranks itself

    def pass_on(received: int, _: FrameType | None) -> None:
        passed.append(received)
        child.send_signal(received)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    code = child.wait()
    if code >= 0:
        return code
    if passed:
        return 128 - code
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), "?")
    name = signal.Signals(-code).name
    said = f"rlx launch: rank {rank} on {platform.node()} was ended by {name}; the others have {patience:g} s."
    print(said, file=sys.stderr, flush=True)
    time.sleep(patience)
    return 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], float(sys.argv[1])))
