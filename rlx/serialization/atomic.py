"""Replacing files atomically."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rlx.owners import has_ended, own_mark

__all__ = ["create", "rename", "replace"]

_BESIDE = ".rlx-save-"
_POSIX = os.name == "posix"  # elsewhere folders cannot be opened, and files have neither mode nor owner


def replace(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Replace a file by the output of `write`.

    It is written next to the file and moved there when it is complete and on the disk: after an earlier failure the old
    file is unchanged, and nothing else is left. The new file has the mode and, if permitted, the owner of the
    old one. For a symbolic link, its target is replaced. A pipe or a device is written to directly.
    """
    real = Path(os.path.realpath(path))
    old = _status(real)
    if old is not None and not stat.S_ISREG(old.st_mode):
        with real.open("wb") as file:
            write(file)
        return
    with _kept(real.parent):
        _clear(real.parent)
        beside = real.with_name(f"{_BESIDE}{own_mark()}.{secrets.token_hex(8)}")
        try:
            _write_whole(beside, old, write)
            os.replace(beside, real)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def create(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Make a new file, which is on the disk at the end. After a failure it does not exist."""
    with _kept(path.parent):
        try:
            _write_whole(path, None, write)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def rename(path: Path, new: Path) -> None:
    """Rename a file or a folder, on the disk as well. Both names are in one folder."""
    with _kept(new.parent):
        os.rename(path, new)


def _clear(folder: Path) -> None:
    """Remove unfinished files of this user's processes that were killed."""
    for left in folder.glob(f"{_BESIDE}*"):
        if has_ended(left.name.removeprefix(_BESIDE).partition(".")[0]):
            with suppress(OSError):  # another process has removed it
                if not _POSIX or left.lstat().st_uid == os.geteuid():
                    left.unlink()


def _status(path: Path) -> os.stat_result | None:
    """The file's status, None if there is none. Raises PermissionError for a file that may not be written."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return found


def _write_whole(path: Path, old: os.stat_result | None, write: Callable[[BinaryIO], None]) -> None:
    """Make a file that is on the disk at the end. Only its owner can read it before it has the old one's mode."""
    mode = 0o666 if old is None else 0o600
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        if old is not None and _POSIX:
            _make_like(file.fileno(), old)
        write(file)
        file.flush()
        os.fsync(file.fileno())


def _make_like(descriptor: int, old: os.stat_result) -> None:
    with suppress(PermissionError):  # only root may change owners
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


@contextmanager
def _kept(folder: Path) -> Generator[None]:
    """Flush changes to the names in a folder to the disk."""
    if not _POSIX:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield
        _flush_folder(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of file systems that write names immediately
            raise
