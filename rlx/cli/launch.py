"""rlx launch: a program as several processes, started by the mpiexec that belongs to the MPI library of this Python."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rlx.cli import one_rank
from rlx.cli.mistakes import Mistake
from rlx.distributed.members import patience

__all__ = ["add_options", "launch"]

_INSTALL = 'pip install "rlx[mpi]" installs mpi4py and MPICH.'
_GRACE = 10.0  # seconds beyond those that ranks wait for each other
_THREADS = ("RLX_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `rlx launch` takes."""
    parser.add_argument("-n", "--processes", type=int, required=True, metavar="N", help="how many processes")
    parser.add_argument("-m", "--module", action="store_true", help="PROGRAM is a module, as of python -m")
    parser.add_argument("program", metavar="PROGRAM", help="a Python file that calls rlx.distributed.initialize()")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the program is given")


def launch(options: argparse.Namespace) -> int:
    """Start the processes, and give back their exit code."""
    if options.processes < 1:
        raise Mistake(f"{options.processes} processes are none.", "Ask for 1 or more: rlx launch -n 2 program.py.")
    if not options.module and not Path(options.program).is_file():
        raise Mistake(f"There is no file {options.program}.", "For a module write rlx launch -n 2 -m MODULE.")
    if importlib.util.find_spec("mpi4py") is None:
        raise Mistake("mpi4py, by which processes find each other, is not installed.", _INSTALL)
    what = [sys.executable, *(["-m"] if options.module else []), options.program, *options.arguments]
    outliving = [sys.executable, "-S", "-E", one_rank.__file__, str(patience() + _GRACE)]
    command = [mpiexec(), "-n", str(options.processes), *outliving, *what]
    return subprocess.call(command, env={**threads_each(options.processes), **os.environ})


def mpiexec() -> str:
    """The command that starts processes. Raises Mistake without one."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        raise Mistake("There is no mpiexec beside this Python, nor on PATH.", _INSTALL)
    return found


def threads_each(processes: int) -> dict[str, str]:
    """Variables by which so many processes share the processors, where nothing else has been said."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return dict.fromkeys(_THREADS, str(max(1, usable // processes)))
