"""rlx launch: run a program as several processes, started by the mpiexec of this Python's MPI library.

They run on this machine, or on others that have the same files at the same paths and are reachable by ssh.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rlx.cli import one_rank
from rlx.cli.leftovers import launch_folder, remove_leftovers
from rlx.cli.mistakes import Mistake
from rlx.distributed.members import patience
from rlx.installation import install_command

__all__ = ["add_options", "launch"]

_GRACE = 10.0  # seconds in addition to the time that ranks wait for each other
_MANAGERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID", "FLUX_JOB_ID")
_HOST = re.compile(r"[\w.-]+:[1-9]\d*")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx launch`."""
    parser.add_argument("-n", "--processes", type=int, required=True, metavar="N", help="number of processes")
    parser.add_argument("--hosts", metavar="A,B", help="machines to run on: a,b or a:3,b:1 (default: this one)")
    parser.add_argument("-m", "--module", action="store_true", help="PROGRAM is a module, as of python -m")
    parser.add_argument("program", metavar="PROGRAM", help="a Python file that calls rlx.distributed.initialize()")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program")


def _remedy() -> str:
    return f"{install_command('mpi')} installs mpi4py and MPICH."


def launch(options: argparse.Namespace) -> int:
    """Start the processes: this process becomes their launcher, or returns their exit code."""
    if options.processes < 1:
        raise Mistake(f"-n {options.processes} starts no processes.", "Pass 1 or more: rlx launch -n 2 program.py.")
    if not options.module and not Path(options.program).is_file():
        raise Mistake(f"There is no file {options.program}.", "For a module write rlx launch -n 2 -m MODULE.")
    if importlib.util.find_spec("mpi4py") is None:
        raise Mistake("mpi4py, which connects the processes, is not installed.", _remedy())
    what = [sys.executable, *(["-m"] if options.module else []), options.program, *options.arguments]
    outliving = [sys.executable, "-S", "-E", one_rank.__file__, str(patience() + _GRACE), str(launch_folder())]
    starter = mpiexec()
    where = [] if options.hosts is None else ["-hosts", shares(options.hosts, options.processes)]
    if where and not _is_hydra(starter):
        raise Mistake(
            f"rlx launch --hosts needs the mpiexec of MPICH; {starter} is another one.",
            "Call it directly, with its own option for hosts, and set RLX_NUM_THREADS.",
        )
    remove_leftovers()
    variables = dict(os.environ)
    if not where and (forking := _forking(starter)) is not None:
        starter, variables["MPI_LOCALNRANKS"] = forking, str(options.processes)
    return _become([starter, *where, "-n", str(options.processes), *outliving, *what], variables)


def _forking(starter: str) -> str | None:
    """MPICH's launcher for one machine, in the folder of its mpiexec: it opens no port. None if it is missing, and
    for jobs of resource managers, which may have several machines."""
    found = Path(starter).with_name("mpiexec.gforker")
    return None if not found.is_file() or any(name in os.environ for name in _MANAGERS) else str(found)


def _become(command: list[str], variables: dict[str, str]) -> int:
    """Replace this process by another program, which then receives its signals. Outside POSIX, wait for it."""
    if os.name != "posix":
        return subprocess.call(command, env=variables)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, variables)


def mpiexec() -> str:
    """The command that starts processes. Raises Mistake if there is none."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        raise Mistake("There is no mpiexec next to this Python or on PATH.", _remedy())
    return found


def shares(hosts: str, processes: int) -> str:
    """Hosts with the number of processes on each, in MPICH's format. Raises Mistake if the numbers do not match.

    >>> shares("a,b", 3), shares("a:1,b:2", 3)
    ('a:2,b:1', 'a:1,b:2')
    """
    found = [host.strip() for host in hosts.split(",")]
    if len(found) > processes:
        raise Mistake(f"{processes} processes leave some of {len(found)} hosts with none.", "Name fewer hosts.")
    if not any(":" in host for host in found):
        even, more = divmod(processes, len(found))
        found = [f"{host}:{even + (number < more)}" for number, host in enumerate(found)]
    if not all(_HOST.fullmatch(host) for host in found):
        raise Mistake(f"--hosts {hosts} is not a list of hosts.", "Write --hosts a,b, or counts for all: a:3,b:1.")
    counts = [int(host.rpartition(":")[2]) for host in found]
    if sum(counts) != processes:
        raise Mistake(f"--hosts {hosts} is for {sum(counts)} processes, not {processes}.", "-n must be their sum.")
    return ",".join(found)


def _is_hydra(starter: str) -> bool:
    """Whether a mpiexec is the launcher of MPICH, or of a library based on MPICH."""
    said = subprocess.run([starter, "--version"], capture_output=True, text=True, timeout=60, check=False)
    return "HYDRA" in said.stdout
