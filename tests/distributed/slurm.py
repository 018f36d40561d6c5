"""A cluster of SLURM with one node, which is this machine, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
SERVERS = ("munged", "slurmctld", "slurmd")

SETTINGS = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={first}
SlurmdPort={second}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2
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
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which commands of SLURM mean the cluster, whose files lie in a folder."""
    for name in ("state", "spool", "key"):
        (folder / name).mkdir()
    key = folder / "key" / "munge"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    key.parent.chmod(0o700)
    first, second = _free_ports(2)
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    settings = folder / "slurm.conf"
    settings.write_text(SETTINGS.format(host=host, user=user, folder=folder, first=first, second=second))
    environment = {**os.environ, "SLURM_CONF": str(settings), "PATH": PLACES}
    munge = [f"--{name}={folder}/munge.{end}" for name, end in (("socket", "socket"), ("pid-file", "pid"),
             ("log-file", "log"), ("seed-file", "seed"))]  # fmt: skip
    commands = (["munged", "-F", "--force", f"--key-file={key}", *munge], ["slurmctld", "-D"], ["slurmd", "-D"])
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "servers.log").open("wb") as log:
            for command in commands:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
                _wait_for(folder / "munge.socket")
        _wait_for_node(environment)
        yield environment
    finally:
        for server in reversed(started):
            server.terminate()
            server.wait(10)


def _wait_for(path: Path) -> None:
    """Until there is such a file, 10 seconds at most."""
    end = time.monotonic() + 10
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)


def _wait_for_node(environment: dict[str, str]) -> None:
    """Until the node takes work, 20 seconds at most."""
    end, found = time.monotonic() + 20, ""
    while time.monotonic() < end:
        done = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True, timeout=20)
        found = done.stdout.strip() or done.stderr.strip()
        if found == "idle":
            return
        time.sleep(0.1)
    raise TimeoutError(f"the node of SLURM is {found!r}")
