"""A file is replaced whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["replace"]

_POSIX = os.name == "posix"  # elsewhere folders cannot be opened, and files have neither mode nor owner


def replace(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Put what `write` writes in the place of a file.

    It is written beside the file and moved there when it is whole and on the disk: after a failure before that the old
    file is there as it was, and nothing else. The new file has the mode and, if that is permitted, the owner of the
    old one; of a symbolic link, the file that it leads to is replaced. A pipe or a device is written to.
    """
    real = Path(os.path.realpath(path))
    old = _status(real)
    if old is not None and not stat.S_ISREG(old.st_mode):
        with real.open("wb") as file:
            write(file)
        return
    with _kept(real.parent):
        beside = real.with_name(f".rlx-save-{secrets.token_hex(8)}")
        try:
            _write_whole(beside, old, write)
            os.replace(beside, real)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _status(path: Path) -> os.stat_result | None:
    """What the file is, None where there is none. Raises PermissionError for one that may not be written."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return found


def _write_whole(path: Path, old: os.stat_result | None, write: Callable[[BinaryIO], None]) -> None:
    """Make a file that is on the disk at the end. Nobody but its owner can read it before it is like the old one."""
    mode = 0o666 if old is None else 0o600
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        if old is not None and _POSIX:
            _make_like(file.fileno(), old)
        write(file)
        file.flush()
        os.fsync(file.fileno())


def _make_like(descriptor: int, old: os.stat_result) -> None:
    with suppress(PermissionError):  # only root gives files away
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


@contextmanager
def _kept(folder: Path) -> Generator[None]:
    """What happens to the names in a folder is on the disk at the end."""
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
        if error.errno != errno.EINVAL:  # of file systems that write names at once
            raise
