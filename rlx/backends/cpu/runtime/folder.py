"""A folder of files that are executed: only this user's files are read, and only files written here are changed.

On systems with users, every folder on the path is opened relative to its parent and checked once it is open. The
last one stays open, so a folder put at its path later is not used. A folder on the path must be one that only
this user and root can change, or, like /tmp, sticky; a link must belong to them. A file must belong to this user, and
only this user may be able to write it.

Windows has neither these owners and modes nor open folders: files have plain paths there, and the profile folder that
contains them protects them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["File", "Folder", "UnsafeFolderError"]

USERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# without waiting for the writer of a pipe, without following a link
FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# a folder on the way may be one that can be entered, not listed
ON_THE_WAY = DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
LARGEST = 1 << 28  # an upper bound for files of code, in bytes
MOST_LINKS = 40
ABANDONED = 3600.0  # seconds after which an unfinished file is abandoned

NAME = re.compile(r"[0-9a-f]{48}\.o")
UNFINISHED = re.compile(r"\.[0-9a-f]{48}\.[0-9a-f.]+")


class UnsafeFolderError(OSError):
    """Another user could change the contents of a folder."""


class File(NamedTuple):
    """A file in a folder: its name, when it was used last, its size in bytes."""

    name: str
    used: float
    size: int


class Folder:
    """Files called by 48 hexadecimal digits and .o, in a folder that is made if need be.

    Raises UnsafeFolderError for a folder that others could change, OSError for one that cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.path.abspath(path)
        self._identity = (0, 0)
        self._descriptor: int | None = None
        if USERS:
            self._open()
        else:
            os.makedirs(self._path, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        """The content of a file, if it exists and belongs to this user; marks it as used now."""
        try:
            descriptor = os.open(self._at(name), os.O_RDONLY | FILE, dir_fd=self._held())
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not _is_ours(status) or status.st_size > LARGEST:
                return None
            with contextlib.suppress(OSError):  # a file on a disk that cannot be written is as good
                os.utime(descriptor if USERS else self._at(name))
            return _read_all(descriptor, status.st_size)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def write(self, name: str, content: bytes) -> None:
        """Write atomically: readers see no file or a whole one."""
        unfinished = f".{name.removesuffix('.o')}.{os.urandom(8).hex()}"
        held = self._held()
        try:
            descriptor = os.open(self._at(unfinished), os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE, 0o600, dir_fd=held)
            try:
                _write_all(descriptor, content)
            finally:
                os.close(descriptor)
            os.replace(self._at(unfinished), self._at(name), src_dir_fd=held, dst_dir_fd=held)
        except BaseException:
            self.remove(unfinished)
            raise

    def has(self, name: str) -> bool:
        """Whether there is a file of this name, with any content."""
        try:
            os.stat(self._at(name), dir_fd=self._held(), follow_symlinks=False)
        except OSError:
            return False
        return True

    def shrink(self, limit: int) -> int:
        """Remove unfinished files of killed writers, and the least recently used files if all are over `limit`.

        Returns the bytes of the files that stay. Files that are not written here do not count, and stay.
        """
        files = []
        for file in self.files():
            if NAME.fullmatch(file.name):
                files.append(file)
            elif file.used < time.time() - ABANDONED:
                self.remove(file.name)
        total = sum(file.size for file in files)
        if total > limit:
            for file in sorted(files, key=lambda f: f.used):
                if total <= limit * 3 // 4:
                    break
                self.remove(file.name)
                total -= file.size
        return total

    def files(self, *patterns: re.Pattern[str]) -> Iterator[File]:
        """This user's files whose whole names match one of the patterns, by default files of compiled code."""
        for name in self._names():
            if any(pattern.fullmatch(name) for pattern in patterns or (NAME, UNFINISHED)):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(self._at(name), dir_fd=self._held(), follow_symlinks=False)
                    if _is_ours(status):
                        yield File(name, status.st_mtime, status.st_size)

    def _names(self) -> list[str]:
        if not USERS:
            return os.listdir(self._path)
        own = os.open(".", os.O_RDONLY | DIRECTORY, dir_fd=self._held())  # forked processes share a descriptor's place
        try:
            return os.listdir(own)
        finally:
            os.close(own)

    def remove(self, name: str) -> None:
        """Remove a file if that can be done."""
        with contextlib.suppress(OSError):
            os.unlink(self._at(name), dir_fd=self._held())

    def _at(self, name: str) -> str:
        """What to call a file, inside the folder held open if there is one."""
        return name if USERS else os.path.join(self._path, name)

    def _held(self) -> int | None:
        """The folder, open. A process that closes every descriptor, to become a daemon, opens it again."""
        if not USERS:
            return None
        if self._descriptor is None or not _is_descriptor_of(self._descriptor, self._identity):
            self._open()
        return self._descriptor

    def _open(self) -> None:
        descriptor = _open_safely(self._path)
        try:
            status = os.fstat(descriptor)
            identity = status.st_dev, status.st_ino
            weakref.finalize(self, _close, descriptor, identity).atexit = False
        except BaseException:
            os.close(descriptor)
            raise
        self._identity, self._descriptor = identity, descriptor


# ------------------------------------------------------------- contents of files
def _read_all(descriptor: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _is_ours(status: os.stat_result) -> bool:
    """Whether it is a plain file of this user's that only they can write."""
    if not stat.S_ISREG(status.st_mode):
        return False
    return not USERS or (status.st_uid == os.geteuid() and not status.st_mode & OTHERS_WRITE)


# ------------------------------------------------------------- the way to a folder
def _is_descriptor_of(descriptor: int, identity: tuple[int, int]) -> bool:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == identity


def _close(descriptor: int, identity: tuple[int, int]) -> None:
    """Close it unless its number stands for something else by now."""
    if _is_descriptor_of(descriptor, identity):
        os.close(descriptor)


def _open_safely(path: str) -> int:
    """A descriptor of the folder at an absolute path, which is made if need be."""
    names = list(reversed(Path(path).parts[1:]))  # the remaining names, the next one last
    place, links = "/", 0
    current = os.open(place, ON_THE_WAY)
    try:
        _require_trusted(os.fstat(current), place)
        while names:
            name = names.pop()
            place = os.path.join(place, name)
            target = _link(name, current, place)
            if target is not None:
                place, links = os.path.dirname(place), links + 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                names += reversed(Path(target).parts)
                continue
            inner = os.open(name, ON_THE_WAY, dir_fd=current)
            os.close(current)
            current = inner
            if names:
                _require_trusted(os.fstat(current), place)
        _require_own(os.fstat(current))
        return os.open(".", os.O_RDONLY | DIRECTORY, dir_fd=current)
    finally:
        os.close(current)


def _link(name: str, folder: int, place: str) -> str | None:
    """The target of a link; None for anything else, which is a new folder if the name was free."""
    status = None
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if status is None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        return None
    if not stat.S_ISLNK(status.st_mode):
        return None
    if status.st_uid not in _trusted():
        raise UnsafeFolderError(f"is reached through the link {place}, which belongs to another user")
    return os.readlink(name, dir_fd=folder)


def _require_own(status: os.stat_result) -> None:
    """The folder itself is this user's alone."""
    if status.st_uid != os.geteuid():
        raise UnsafeFolderError("belongs to another user")
    if status.st_mode & OTHERS_WRITE:
        raise UnsafeFolderError("can be written by other users")


def _require_trusted(status: os.stat_result, place: str) -> None:
    """Raise UnsafeFolderError unless only this user and root can replace folders in this one."""
    if status.st_uid not in _trusted():
        raise UnsafeFolderError(f"is in {os.path.normpath(place)}, which belongs to another user")
    if status.st_mode & stat.S_ISVTX:
        return  # only the owners of its entries and of the folder can rename them
    private = stat.S_IWGRP if _is_private(status) else 0
    if status.st_mode & OTHERS_WRITE & ~private:
        raise UnsafeFolderError(f"is in {os.path.normpath(place)}, which other users can write")


def _trusted() -> set[int]:
    """This user, root, and the owner of the root folder, who can change everything anyway."""
    return {os.geteuid(), 0, os.stat("/").st_uid}


def _is_private(status: os.stat_result) -> bool:
    """Whether a folder's group is this user alone, as on systems with a group for each user."""
    if not status.st_mode & stat.S_IWGRP or status.st_uid != os.geteuid():
        return False
    try:
        import grp
        import pwd

        group, user = grp.getgrgid(status.st_gid), pwd.getpwuid(os.geteuid())
    except (ImportError, KeyError):
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
