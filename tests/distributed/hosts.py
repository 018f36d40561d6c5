"""Hosts that are namespaces of this one: each has a name, an address, processes and shared memory of its own.

They have the files of this machine in common, as of a network's file system, and reach each other by ssh. Nothing is
left when a block ends, and the kernel ends everything in them where the process that made them is killed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Host", "missing", "network"]

TOOLS = ("unshare", "nsenter", "mount", "ip", "tc", "ssh", "sshd", "ssh-keygen")
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
ALL = ("--net", "--uts", "--ipc", "--mount", "--pid")

# what makes a namespace a host; it lasts for as long as its standard input is open
BEGIN = """
hostname {name}
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mkdir /run/sshd
mount --bind {folder}/hosts /etc/hosts
mount --bind {folder}/ssh_config /etc/ssh/ssh_config
ip link set lo up
echo ready
exec cat
"""
CABLES = "ip link add bridge type bridge\nip link set bridge up\necho ready\nexec cat"
SERVER = """
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
"""
CLIENT = """
Host *
IdentityFile {folder}/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


@functools.cache
def missing() -> str:
    """What hosts lack here; nothing if they can be made."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "hosts are namespaces of Linux, which root makes"
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=PLACES) is None]
    if lacking:
        return f"{', '.join(lacking)} not found: apt-get install iproute2 openssh-server"
    tried = subprocess.run(["unshare", *ALL, "--fork", "true"], capture_output=True, text=True, timeout=20)
    return "" if tried.returncode == 0 else f"namespaces cannot be made here: {tried.stderr.strip()}"


class Host(NamedTuple):
    """A host by its name, address, and the process that stands for it."""

    name: str
    address: str
    pid: int
    switch: int

    def command(self, *words: object) -> list[str]:
        """What runs a command on this host, in the same folder."""
        return ["nsenter", f"--target={self.pid}", *ALL, f"--wd={os.getcwd()}", *map(str, words)]

    def start(self, *words: object, variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A command on this host, and what it prints."""
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(self.command(*words), env={**os.environ, "PATH": PLACES, **(variables or {})}, **both)

    def run(self, *words: object, seconds: float = 60, variables: Mapping[str, str] | None = None) -> tuple[int, str]:
        """The exit code of a command on this host, and what it printed."""
        started = self.start(*words, variables=variables)
        try:
            text, _ = started.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:  # what it has started ends with its host
            started.kill()
            raise AssertionError(f"{words} took more than {seconds} s: {late.output!r}") from None
        return started.returncode, text

    def serve(self, *words: object) -> None:
        """Let a command go on for as long as this host lasts."""
        code, text = self.run("sh", "-c", f"{shlex.join(map(str, words))} >> /run/served 2>&1 &")
        assert code == 0, text

    def link(self, state: str) -> None:
        """Put the cable in (up) or pull it out (down), at the switch."""
        _do(_switch(self.switch), f"ip link set to-{self.name} {state}")

    def limit(self, rate: str) -> None:
        """Let this host send no more than so many bits in a second: 20mbit."""
        _do(self.command(), f"tc qdisc replace dev eth0 root tbf rate {rate} burst 256kb latency 400ms")


def _do(where: list[str], line: str) -> None:
    subprocess.run([*where, *line.split()], check=True, timeout=20, env={**os.environ, "PATH": PLACES})


def _switch(pid: int) -> list[str]:
    return ["nsenter", f"--target={pid}", "--net"]


def _inside(scope: contextlib.ExitStack, kinds: tuple[str, ...], script: str) -> int:
    """The process that holds new namespaces, which end with the scope."""
    words = ["unshare", *kinds, "--fork", "--kill-child", *(["--mount-proc"] if "--mount" in kinds else [])]
    holder = subprocess.Popen(
        [*words, "sh", "-ec", script], env={**os.environ, "PATH": PLACES}, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    scope.callback(holder.wait, 20)
    assert holder.stdin is not None and holder.stdout is not None
    scope.callback(holder.stdout.close)
    scope.callback(holder.stdin.close)
    if holder.stdout.readline() != "ready\n":
        raise OSError(f"no namespace was made by: {script}")
    return int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()[0])


@contextlib.contextmanager
def network(folder: Path, count: int) -> Iterator[list[Host]]:
    """So many hosts on one switch, named a, b, ..., with the addresses 10.77.0.1, 10.77.0.2, ..."""
    names = "abcdefgh"[:count]
    addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    (folder / "ssh_config").write_text(CLIENT.format(folder=folder))
    (folder / "sshd_config").write_text(SERVER.format(folder=folder))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True, timeout=20)
    with contextlib.ExitStack() as scope:
        switch = _inside(scope, ("--net",), CABLES)
        hosts = []
        for name, address in addresses.items():
            pid = _inside(scope, ALL, BEGIN.format(name=name, folder=folder))
            host = Host(name, address, pid, switch)
            _do(_switch(switch), f"ip link add to-{name} type veth peer name eth0 netns {pid}")
            _do(_switch(switch), f"ip link set to-{name} master bridge up")
            _do(host.command(), f"ip addr add {address}/24 dev eth0")
            _do(host.command(), "ip link set eth0 up")
            _do(host.command(), f"{shutil.which('sshd', path=PLACES)} -f {folder}/sshd_config")
            hosts.append(host)
        _reach(hosts)
        yield hosts


def _reach(hosts: list[Host]) -> None:
    """Wait until the first host reaches all others, 20 seconds at most."""
    end = time.monotonic() + 20
    for host in hosts[1:]:
        while True:
            code, text = hosts[0].run("ssh", "-o", "ConnectTimeout=2", host.name, "hostname", seconds=20)
            if code == 0 and text.strip() == host.name:
                break
            if time.monotonic() > end:
                raise TimeoutError(f"host {host.name} is not reached: {text}")
            time.sleep(0.1)
