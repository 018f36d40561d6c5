"""The lock of a folder. A second writer is refused, unless the first one was killed."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import json
import os
import platform
from pathlib import Path

from rlx.errors import warn

__all__ = ["FolderLock", "note_of"]

LOCK = ".rlx-writer"
_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


class FolderLock:
    """The lock of a folder, until `release`. The system releases it when its process ends.

    `before`: the note of a writer that was killed, or has failed; "" if the last one has finished.

    Raises: BlockingIOError, which names the other process, if another process has the lock.
    """

    def __init__(self, folder: Path, note: str) -> None:
        self._path = folder / LOCK
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._lock()
            while not self._is_there():  # the last owner has removed it in between
                os.close(self._file)
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
                self._lock()
            self.before = _note_in(self._file)
            owner = {"host": platform.node(), "pid": os.getpid(), "note": note}
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(owner).encode(), 0)
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        if importlib.util.find_spec("fcntl") is None:
            return  # this system refuses to remove open files
        fcntl = importlib.import_module("fcntl")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner_in(self._file)
            who = f"process {owner.get('pid', '?')} on {owner.get('host', '?')} is saving to this folder"
            raise BlockingIOError(errno.EWOULDBLOCK, who, str(self._path.parent)) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            warn(f"The file system of {self._path.parent} has no locks: a second writer would not be noticed.")

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def release(self, finished: bool) -> None:
        """Release the lock. Unless the writer has finished, the next one finds its note."""
        if finished:
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def note_of(folder: Path) -> str:
    """The note of the process that has the lock of a folder; "" if there is none."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return _note_in(file)
    finally:
        os.close(file)


def _note_in(file: int) -> str:
    return str(_owner_in(file).get("note", ""))


def _owner_in(file: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(file, 1 << 12, 0) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
