"""rlx launch: a program as several processes, started by the mpiexec that belongs to the MPI library of this Python.

They run on this machine, or on others that have the same files at the same places and are reached by ssh.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
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
_HOST = re.compile(r"[\w.-]+:[1-9]\d*")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `rlx launch` takes."""
    parser.add_argument("-n", "--processes", type=int, required=True, metavar="N", help="how many processes")
    parser.add_argument("--hosts", metavar="A,B", help="machines that share them: a,b or a:3,b:1 (this one)")
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
    starter = mpiexec()
    where = [] if options.hosts is None else ["-hosts", shares(options.hosts, options.processes)]
    if where and not _is_hydra(starter):
        raise Mistake(
            f"rlx launch --hosts is for the mpiexec of MPICH, which {starter} is not.",
            "Call that one itself, with its own option for hosts, and set RLX_NUM_THREADS.",
        )
    return subprocess.call([starter, *where, "-n", str(options.processes), *outliving, *what])


def mpiexec() -> str:
    """The command that starts processes. Raises Mistake without one."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        raise Mistake("There is no mpiexec beside this Python, nor on PATH.", _INSTALL)
    return found


def shares(hosts: str, processes: int) -> str:
    """Hosts with the number of processes on each, as MPICH wants them. Raises Mistake where they are not as many.

    >>> shares("a,b", 3), shares("a:1,b:2", 3)
    ('a:2,b:1', 'a:1,b:2')
    """
    found = [host.strip() for host in hosts.split(",")]
    if len(found) > processes:
        raise Mistake(f"{processes} processes leave some of {len(found)} hosts with none.", "Name as many as are used.")
    if not any(":" in host for host in found):
        even, more = divmod(processes, len(found))
        found = [f"{host}:{even + (number < more)}" for number, host in enumerate(found)]
    if not all(_HOST.fullmatch(host) for host in found):
        raise Mistake(f"--hosts {hosts} is not a list of hosts.", "Write --hosts a,b or, all with counts, a:3,b:1.")
    counts = [int(host.rpartition(":")[2]) for host in found]
    if sum(counts) != processes:
        raise Mistake(f"--hosts {hosts} is for {sum(counts)} processes, not {processes}.", "-n is their sum.")
    return ",".join(found)


def _is_hydra(starter: str) -> bool:
    """Whether a mpiexec is MPICH's launcher, or that of a library made of MPICH."""
    said = subprocess.run([starter, "--version"], capture_output=True, text=True, timeout=60, check=False)
    return "HYDRA" in said.stdout
