"""Marks in the names of temporary files: which process created them, and whether it has certainly ended."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

__all__ = ["has_ended", "own_mark"]

_UNKNOWN = "0"


def own_mark() -> str:
    """The mark of this process: its machine, its number there, and when it was started.

    >>> from rlx.owners import has_ended, own_mark
    >>> has_ended(own_mark()), has_ended(own_mark().replace("-", "-99", 1)), has_ended("something else")
    (False, True, False)
    """
    return f"{_machine()}-{os.getpid()}-{_start(os.getpid()) or _UNKNOWN}"


def has_ended(mark: str) -> bool:
    """Whether the process of a mark has certainly ended; False for processes of another machine, and other strings."""
    machine, _, rest = mark.partition("-")
    pid, _, start = rest.partition("-")
    if machine != _machine() or not (pid.isdecimal() and start.isdecimal()):
        return False
    now = _start(int(pid))
    if now is not None:
        return start not in (_UNKNOWN, now)
    return not _exists(int(pid))


def _machine() -> str:
    """The scope of process numbers: a machine since its boot, or a container on it."""
    texts = [platform.node()]
    with suppress(OSError):
        texts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        texts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=6).hexdigest()


def _start(pid: int) -> str | None:
    """When a process was started, in ticks of the machine; None if there is none, or the system does not report it."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else after_name[19]  # only the exit code of an ended process is left


def _exists(pid: int) -> bool:
    if os.path.exists("/proc/self/stat"):
        return False  # its start would be known
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
