"""Native code by content: compiled once per process, kept on disk for the next one.

RLX_CACHE_DIR names the folder (default: the user's cache folder), RLX_CACHE=0 keeps off the disk.
A file holds object code and its checksum, under a name made of the kernel's key and of all that
the code depends on. Anything unreadable, foreign or damaged is ignored and built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Protocol

from rlx.backends.cpu.compile import compile_ir, load_object
from rlx.backends.cpu.threads import get_num_threads
from rlx.forks import unforked

__all__ = ["Code", "Statistics", "Store", "default_store", "statistics"]

MAGIC = b"rlx-obj1"
HEADER = struct.Struct("<8sQ32s")
DEFAULT_LIMIT = 1 << 30


class Statistics(NamedTuple):
    """How often a store compiled, read from disk, and answered from this process's memory."""

    compiled: int
    loaded: int
    hits: int


class Code(Protocol):
    """What can be compiled: a module's text, made when it is needed, that defines a symbol."""

    @property
    def key(self) -> bytes: ...
    @property
    def symbol(self) -> str: ...
    @property
    def ir(self) -> str: ...


class _Entry:
    """The address of one kernel, or the wait for whoever is making it."""

    __slots__ = ("address", "error", "ready")

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.address = 0
        self.error: BaseException | None = None


class Store:
    """Key to native address, through this process's memory, a folder, and the compiler."""

    def __init__(self, folder: Path | None, limit: int = DEFAULT_LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._checked = False
        self._written: int | None = None
        self._entries: dict[bytes, _Entry] = {}
        self._lock = threading.Lock()
        self._compiled = self._loaded = self._hits = 0

    def address(self, key: bytes, symbol: str, ir: Callable[[], str]) -> int:
        """The address of `symbol` in the code called `key`; `ir` is asked only to compile it."""
        entry = self._entries.get(key)
        if entry is None or not entry.ready.is_set():
            entry, mine = self._claim(key)
            if mine:
                self._fill(entry, key, symbol, ir)
            entry.ready.wait()
            if entry.error is not None:
                raise entry.error
        else:
            self._hits += 1
        return entry.address

    def prepare(self, codes: Sequence[Code]) -> None:
        """Make the given codes ready; those that nobody has yet are compiled on several threads.

        What goes wrong is raised when the address is asked for.
        """
        jobs = deque({c.key: c for c in codes if c.key not in self._entries}.values())
        missing = sum(not self.on_disk(code.key) for code in jobs)

        def work() -> None:
            while jobs:
                with contextlib.suppress(Exception):
                    code = jobs.popleft()
                    self.address(code.key, code.symbol, partial(getattr, code, "ir"))

        helpers = [
            threading.Thread(target=work, name="rlx-compiler", daemon=True)
            for _ in range(min(missing, get_num_threads()) - 1)
        ]
        for helper in helpers:
            helper.start()
        work()
        for helper in helpers:
            helper.join()

    def statistics(self) -> Statistics:
        """What happened since the store was made."""
        return Statistics(self._compiled, self._loaded, self._hits)

    def after_fork(self) -> None:
        """In a forked child: forget what other threads of the parent were making."""
        self._lock = threading.Lock()
        self._entries = {k: e for k, e in self._entries.items() if e.ready.is_set()}

    def _claim(self, key: bytes) -> tuple[_Entry, bool]:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._hits += 1
                return entry, False
            entry = self._entries[key] = _Entry()
            return entry, True

    def _fill(self, entry: _Entry, key: bytes, symbol: str, ir: Callable[[], str]) -> None:
        try:
            entry.address = self._load(key, symbol) or self._compile(key, symbol, ir())
        except BaseException as error:
            entry.error = error
            with self._lock:
                self._entries.pop(key, None)
        finally:
            entry.ready.set()

    def _load(self, key: bytes, symbol: str) -> int:
        """The address from disk, or 0."""
        path = self._path(key)
        data = _read(path) if path else None
        if data is None:
            return 0
        try:
            address = load_object(data, symbol)
        except RuntimeError:
            return 0
        with self._lock:
            self._loaded += 1
        return address

    def _compile(self, key: bytes, symbol: str, ir: str) -> int:
        data, address = compile_ir(ir, symbol)
        with self._lock:
            self._compiled += 1
        path = self._path(key)
        if path:
            self._write(path, data)
        return address

    def on_disk(self, key: bytes) -> bool:
        """Whether there is a file of this key."""
        path = self._path(key)
        return path is not None and path.exists()

    def _path(self, key: bytes) -> Path | None:
        if not self._checked:
            self._checked = True
            self._open_folder()
        if self._folder is None:
            return None
        digest = hashlib.blake2b(key, digest_size=24, key=fingerprint())
        return self._folder / f"{digest.hexdigest()}.o"

    def _open_folder(self) -> None:
        """Make the folder; go on without one that is not safely this user's."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            status = self._folder.stat()
        except OSError as error:
            self._without_disk(f"cannot be made ({error.strerror})")
            return
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            self._without_disk("belongs to another user")
        elif hasattr(os, "getuid") and status.st_mode & 0o022:
            self._without_disk("can be written by other users")

    def _without_disk(self, reason: str) -> None:
        folder, self._folder = self._folder, None
        if folder is None:  # another thread has said so
            return
        warnings.warn(
            f"rlx keeps no compiled code on disk: {folder} {reason}. "
            "Set RLX_CACHE_DIR to a folder of yours, or RLX_CACHE=0.",
            RuntimeWarning,
            stacklevel=2,
        )

    def _write(self, path: Path, data: bytes) -> None:
        """Write atomically: readers see no file or a whole one."""
        checksum = hashlib.blake2b(data, digest_size=32).digest()
        temporary = path.with_name(f".{path.stem}.{os.getpid()}.{threading.get_ident()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(HEADER.pack(MAGIC, len(data), checksum) + data)
                os.replace(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            with self._lock:
                self._account(len(data) + HEADER.size)
        except OSError as error:
            self._without_disk(f"cannot be written ({error.strerror})")

    def _account(self, nbytes: int) -> None:
        """Keep the folder under its limit: the files used longest ago go."""
        if self._written is not None:
            self._written += nbytes
            if self._written <= self._limit:
                return
        files = []
        for item in os.scandir(self._folder or ""):
            try:
                status = item.stat()
            except FileNotFoundError:
                continue
            files.append((status.st_mtime, status.st_size, item.path))
        self._written = sum(size for _, size, _ in files)
        if self._written > self._limit:
            for _, size, path in sorted(files):
                if self._written <= self._limit * 3 // 4:
                    break
                Path(path).unlink(missing_ok=True)
                self._written -= size


def _read(path: Path) -> bytes | None:
    """The object code of a file, if it is whole; marks it as used now."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    with contextlib.suppress(OSError):  # code on a disk that cannot be written is as good
        os.utime(path)
    if len(content) < HEADER.size:
        return None
    magic, length, checksum = HEADER.unpack_from(content)
    data = content[HEADER.size :]
    if magic != MAGIC or length != len(data):
        return None
    if hashlib.blake2b(data, digest_size=32).digest() != checksum:
        return None
    return data


def _source_digest() -> bytes:
    """What this compiler is, taken when it is imported so that later edits do not mix with it."""
    digest = hashlib.blake2b(digest_size=32)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


_sources = _source_digest()


@lru_cache(maxsize=1)
def fingerprint() -> bytes:
    """All that compiled code depends on besides its key: this compiler, LLVM, the processor."""
    with unforked():
        import llvmlite
        import llvmlite.binding as llvm

        processor, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    digest = hashlib.blake2b(_sources, digest_size=32)
    for part in (llvmlite.__version__, processor, sys.platform):
        digest.update(part.encode() + b"\0")
    digest.update(",".join(sorted(name for name, there in features.items() if there)).encode())
    return digest.digest()


def user_folder() -> Path | None:
    """Where this user's compiled code lives; None when RLX_CACHE says no."""
    if os.environ.get("RLX_CACHE", "1").lower() in ("0", "false", "off", "no"):
        return None
    chosen = os.environ.get("RLX_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser() / "native"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "rlx" / "native"


_default: Store | None = None
_default_lock = threading.Lock()


def default_store() -> Store:
    """The store of this process."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Store(user_folder())
    return _default


def _after_fork() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    if _default is not None:
        _default.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def statistics() -> Statistics:
    """What the store of this process did so far."""
    return default_store().statistics()
