"""What jobs of `rlx launch` that were killed leave on a machine: folders of their ranks, and MPICH's shared memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rlx.owners import has_ended, own_mark

__all__ = ["launch_folder", "remove_leftovers"]

_FOLDERS = "rlx-launch-"
_MEMORY = Path("/dev/shm")
_PROCESSES = Path("/proc")
_ALL_PROCESSES = "pid:[4026531836]"  # Linux's first namespace, from which every process of the machine is seen
_OLD = 3600.0  # seconds after which memory that no process of a container uses is no other container's, either


def launch_folder() -> Path:
    """The folder in which the ranks that this process starts say how far they are."""
    return Path(tempfile.gettempdir(), _FOLDERS + own_mark())


def remove_leftovers() -> None:
    """Remove what belongs to this user, and to processes that have certainly ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*"):
        if has_ended(folder.name.removeprefix(_FOLDERS)) and _is_own(folder):
            shutil.rmtree(folder, ignore_errors=True)
    for file in unused_memory():
        with suppress(OSError):
            file.unlink()


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except (OSError, AttributeError):
        return False


def unused_memory(memory: Path = _MEMORY, processes: Path = _PROCESSES) -> list[Path]:
    """MPICH's files of shared memory that no process has open or mapped; none where that cannot be known."""
    files = {file.name: file for file in memory.glob("mpich_shm_*") if _is_own(file)}
    if not files:
        return []
    try:
        if os.readlink(processes / "self/ns/pid") != _ALL_PROCESSES:
            files = {name: file for name, file in files.items() if file.stat().st_mtime < time.time() - _OLD}
        used = "\n".join(text for process in processes.glob("[0-9]*") for text in _uses(process))
    except OSError:
        return []
    return [file for name, file in files.items() if name not in used]


def _uses(process: Path) -> Iterator[str]:
    """The files that a process has open, and those that it has mapped: one opens a file before it maps it.

    A process that does not tell is another user's, or one with privileges, which ranks do not have.
    """
    with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        for descriptor in os.listdir(process / "fd"):
            with suppress(FileNotFoundError):
                yield os.readlink(process / "fd" / descriptor)
        yield (process / "maps").read_text()
