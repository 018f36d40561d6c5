"""A cluster of SLURM for as long as a block lasts: its node is this machine, or its nodes are hosts."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.distributed.hosts import Host

PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
SERVERS = ("munged", "slurmctld", "slurmd")

SETTINGS = """
ClusterName=one
SlurmctldHost={host}({address})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={own}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={own}/slurmctld.pid
SlurmdPidFile={own}/slurmd.pid
SlurmctldPort={first}
SlurmdPort={second}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def is_installed() -> bool:
    """Whether its servers are here."""
    return all(shutil.which(name, path=PLACES) for name in (*SERVERS, "sbatch", "srun"))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as scope:
        sockets = [scope.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]


@contextlib.contextmanager
def cluster(folder: Path, hosts: Sequence[Host] = ()) -> Iterator[dict[str, str]]:
    """The environment in which commands of SLURM mean the cluster, whose files lie in a folder."""
    for name in ("state", "spool", "key"):
        (folder / name).mkdir()
    key = folder / "key" / "munge"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    key.parent.chmod(0o700)
    first, second = _free_ports(2)
    addresses = {host.name: host.address for host in hosts} or {socket.gethostname().partition(".")[0]: "127.0.0.1"}
    own = Path("/run") if hosts else folder  # of each machine
    settings = folder / "slurm.conf"
    settings.write_text(
        SETTINGS.format(
            host=[*addresses][0], address=[*addresses.values()][0], user=getpass.getuser(), folder=folder, own=own,
            first=first, second=second,
            nodes="\n".join(f"NodeName={host} NodeAddr={where} CPUs=2" for host, where in addresses.items()),
        )
    )  # fmt: skip
    environment = {**os.environ, "SLURM_CONF": str(settings), "PATH": PLACES}
    munge = [f"--{name}={own}/munge.{end}" for name, end in (("socket", "socket"), ("pid-file", "pid"),
             ("log-file", "log"), ("seed-file", "seed"))]  # fmt: skip
    munge += ["-F", "--force", f"--key-file={key}"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "servers.log").open("wb") as log:
            for number, host in enumerate(hosts or [None]):
                for words in (["munged", *munge], *([["slurmctld", "-D"]] if number == 0 else []), ["slurmd", "-D"]):
                    command = words if host is None else host.command(*words)
                    started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
                    _wait_for(Path(f"/proc/{os.getpid() if host is None else host.pid}/root{own}/munge.socket"))
        _wait_for_nodes(environment, hosts)
        yield environment
    finally:
        for server in reversed(started):
            server.terminate()
            server.wait(10)


def finished(script: Path, said: Path, environment: dict[str, str], host: Host | None = None) -> tuple[str, str]:
    """How a job ended, and what it printed, after 120 seconds at most; sbatch --wait looks every 32 seconds only."""

    def answer(*words: object) -> str:
        command = [*map(str, words)] if host is None else host.command(*words)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return done.stdout if done.returncode == 0 else done.stderr

    job = answer("sbatch", "--parsable", "-o", said, script).strip()
    end, state = time.monotonic() + 120, ""
    while time.monotonic() < end:
        state = answer("scontrol", "show", "job", "-o", job)
        if "JobState=PENDING" not in state and "JobState=RUNNING" not in state and "COMPLETING" not in state:
            break
        time.sleep(0.2)
    return state, said.read_text() if said.exists() else ""


def _wait_for(path: Path) -> None:
    """Until there is such a file, 10 seconds at most."""
    end = time.monotonic() + 10
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)


def _wait_for_nodes(environment: dict[str, str], hosts: Sequence[Host]) -> None:
    """Until all nodes take work, 20 seconds at most."""
    words = ["sinfo", "-h", "-N", "-o", "%T"]
    end, found = time.monotonic() + 20, ""
    while time.monotonic() < end:
        command = hosts[0].command(*words) if hosts else words
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
        found = done.stdout.strip() or done.stderr.strip()
        if found.split() == ["idle"] * max(1, len(hosts)):
            return
        time.sleep(0.1)
    raise TimeoutError(f"the nodes of SLURM are {found!r}")
