"""Native code by content: compiled once per process, kept on disk for the next one.

RLX_CACHE_DIR names the folder (default: the user's cache folder), RLX_CACHE=0 keeps off the disk.
A file contains object code and a checksum. Its name is a digest of the kernel's key and everything that
the code depends on. The checksum also covers these, so that a file under another's name counts as
damaged. Unreadable, foreign and damaged files are ignored and built again.

Code for the main thread is compiled in a thread that Ctrl-C cannot interrupt (rlx.interrupts).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rlx.backends.cpu.runtime.compile import compile_ir, load_object, processor
from rlx.backends.cpu.runtime.folder import Folder, UnsafeFolderError
from rlx.backends.cpu.runtime.threads import get_num_threads
from rlx.interrupts import in_background, uninterrupted

__all__ = [
    "CodeStore", "Maker", "ModuleSource", "StoreCounts", "Toolchain", "default_store", "digest_of", "files_made_by",
    "statistics", "user_folder",
]  # fmt: skip

MAGIC = b"rlx-obj2"
HEADER = struct.Struct("<8sQ32s")
DEFAULT_LIMIT = 1 << 30


class StoreCounts(NamedTuple):
    """How often a store compiled, read from disk, and answered from this process's memory."""

    compiled: int
    loaded: int
    hits: int


class ModuleSource(Protocol):
    """Code to compile: a module that defines a symbol, generated on demand."""

    @property
    def key(self) -> bytes: ...
    @property
    def symbol(self) -> str: ...
    @property
    def ir(self) -> str: ...


class Maker(Protocol):
    """A compiler: it makes code of text, and addresses of code."""

    def fingerprint(self) -> bytes:
        """All that code depends on besides its text; at most 64 bytes."""
        ...

    def compile(self, text: str, symbol: str) -> tuple[bytes, int]:
        """The object code of a module, and its address in memory."""
        ...

    def load(self, data: bytes, symbol: str) -> int:
        """The address of code that was compiled before. Raises RuntimeError for invalid code."""
        ...


class _LlvmMaker:
    """LLVM, by llvmlite."""

    def fingerprint(self) -> bytes:
        return fingerprint()

    def compile(self, text: str, symbol: str) -> tuple[bytes, int]:
        return compile_ir(text, symbol)

    def load(self, data: bytes, symbol: str) -> int:
        return load_object(data, symbol)


_alive: weakref.WeakSet[CodeStore] = weakref.WeakSet()


class CodeStore:
    """Key to native address, through this process's memory, a folder, and a compiler."""

    def __init__(self, folder: Path | None, limit: int = DEFAULT_LIMIT, maker: Maker | None = None) -> None:
        self._maker = maker or _LlvmMaker()
        self._path = folder  # None: without a disk, from the beginning or by now
        self._folder: Folder | None = None
        self._limit = limit
        self._written: int | None = None
        self._addresses: dict[bytes, int] = {}
        self._makers: dict[bytes, threading.Lock] = {}  # held while the code of a key is compiled
        self._given: dict[str, bytes] = {}  # imported files by name
        self._lock = threading.Lock()
        self._compiled = self._loaded = self._hits = 0
        _alive.add(self)

    def address(self, key: bytes, symbol: str, ir: Callable[[], str]) -> int:
        """The address of `symbol` in the code called `key`; `ir` is asked only to compile it."""
        address = self._addresses.get(key)
        if address is None:
            return self._make(key, symbol, ir)
        self._hits += 1
        return address

    def code(self, key: bytes, symbol: str, text: Callable[[], str]) -> bytes:
        """The code called `key` itself, for a device whose driver loads it; `text` is called only to compile it."""
        data = self._read(key, symbol)
        if data is None:
            return self._compile(key, symbol, text())[0]
        with self._lock:
            self._loaded += 1
        return data

    def prepare(self, codes: Sequence[ModuleSource]) -> None:
        """Prepare the given codes; missing ones are compiled on several threads.

        Errors are raised when the address is requested.
        """
        jobs = deque({c.key: c for c in codes if c.key not in self._addresses}.values())
        if not jobs:
            return
        try:
            self._make_all(jobs)
        finally:
            jobs.clear()  # after an interrupt no thread begins another one

    @uninterrupted
    def _make_all(self, jobs: deque[ModuleSource]) -> None:
        missing = sum(not self.on_disk(code.key) for code in list(jobs))

        def work() -> None:
            while jobs:
                with contextlib.suppress(Exception):
                    code = jobs.popleft()
                    self._make(code.key, code.symbol, partial(getattr, code, "ir"))

        helpers = [in_background(work) for _ in range(min(missing, get_num_threads()) - 1)]
        work()
        for helper in helpers:
            with helper:
                pass

    def take(self, files: Mapping[str, bytes]) -> None:
        """Import files from a trusted source; files of another compiler or processor are never used."""
        self._given.update(files)

    def statistics(self) -> StoreCounts:
        """What happened since the store was made."""
        return StoreCounts(self._compiled, self._loaded, self._hits)

    def after_fork(self) -> None:
        """In a forked child: forget the unfinished work of the parent's other threads."""
        self._lock = threading.Lock()
        self._makers = {}

    @uninterrupted
    def _make(self, key: bytes, symbol: str, ir: Callable[[], str]) -> int:
        """One thread makes a code. The others wait, and make it themselves if that one could not."""
        with self._makers.setdefault(key, threading.Lock()):
            address = self._addresses.get(key)
            if address is None:
                address = self._load(key, symbol) or self._compile(key, symbol, ir())[1]
                self._addresses[key] = address
            else:
                self._hits += 1
        self._makers.pop(key, None)
        return address

    def _read(self, key: bytes, symbol: str) -> bytes | None:
        """The code from disk, if it exists."""
        name = self._name(key)
        content = self._given.get(name)
        if content is None:
            folder = self._disk()
            content = folder.read(name) if folder else None
        return self._checked(content, key, symbol) if content else None

    def _load(self, key: bytes, symbol: str) -> int:
        """The address from disk, or 0."""
        data = self._read(key, symbol)
        if data is None:
            return 0
        try:
            address = self._maker.load(data, symbol)
        except RuntimeError:
            return 0
        with self._lock:
            self._loaded += 1
        return address

    def _compile(self, key: bytes, symbol: str, ir: str) -> tuple[bytes, int]:
        data, address = self._maker.compile(ir, symbol)
        with self._lock:
            self._compiled += 1
        self._write(self._name(key), HEADER.pack(MAGIC, len(data), self._checksum(data, key, symbol)) + data)
        return data, address

    def _identity(self, key: bytes, symbol: str) -> bytes:
        """All that the content of a file depends on: the form of the file, the compiler, the processor, the kernel."""
        digest = hashlib.blake2b(digest_size=64, key=self._maker.fingerprint())
        for part in (MAGIC, symbol.encode(), key):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.digest()

    def _name(self, key: bytes) -> str:
        """The name of the file of a key."""
        return hashlib.blake2b(key, digest_size=24, key=self._maker.fingerprint()).hexdigest() + ".o"

    def _checksum(self, data: bytes, key: bytes, symbol: str) -> bytes:
        """The checksum of the code and its identity. It detects accidents; owners and modes protect against malice."""
        return hashlib.blake2b(data, digest_size=32, key=self._identity(key, symbol)).digest()

    def _checked(self, content: bytes, key: bytes, symbol: str) -> bytes | None:
        """The code in a file's content, if it is whole and belongs to the key."""
        if len(content) < HEADER.size:
            return None
        magic, length, checksum = HEADER.unpack_from(content)
        data = content[HEADER.size :]
        if magic != MAGIC or length != len(data) or checksum != self._checksum(data, key, symbol):
            return None
        return data

    @uninterrupted
    def on_disk(self, key: bytes) -> bool:
        """Whether there is a file of this key."""
        if self._name(key) in self._given:
            return True
        folder = self._disk()
        return folder is not None and folder.has(self._name(key))

    def _disk(self) -> Folder | None:
        """The folder, or None if no folder can be used."""
        with self._lock:
            if self._folder is not None or self._path is None:
                return self._folder
            try:
                self._folder = Folder(self._path)
                return self._folder
            except UnsafeFolderError as error:
                reason = str(error)
            except OSError as error:
                reason = f"cannot be made ({error.strerror})"
        self._without_disk(reason)
        return None

    def _without_disk(self, reason: str) -> None:
        with self._lock:
            path, self._path, self._folder = self._path, None, None
        if path is None:  # another thread has said so
            return
        warnings.warn(
            f"rlx keeps no compiled code on disk: {path} {reason}. "
            "Set RLX_CACHE_DIR to a folder of yours, or RLX_CACHE=0.",
            RuntimeWarning,
            stacklevel=2,
        )

    def _write(self, name: str, content: bytes) -> None:
        folder = self._disk()
        if folder is None:
            return
        try:
            folder.write(name, content)
            with self._lock:
                self._account(folder, len(content))
        except OSError as error:
            self._without_disk(f"cannot be written ({error.strerror or error})")

    def _account(self, folder: Folder, nbytes: int) -> None:
        """Keep the folder under its limit: the files used longest ago go."""
        if self._written is not None:
            self._written += nbytes
        if self._written is None or self._written > self._limit:
            self._written = folder.shrink(self._limit)


def _source_digest() -> bytes:
    """A digest of this compiler, computed at import, so that later edits do not affect it."""
    digest = hashlib.blake2b(digest_size=32)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


_sources = _source_digest()


class Toolchain(NamedTuple):
    """Everything that compiled code depends on besides its key."""

    sources: str
    llvm: str
    platform: str
    processor: str
    features: tuple[str, ...]


def _toolchain() -> Toolchain:
    name, features = processor()
    import llvmlite

    present = tuple(sorted(feature for feature, there in features.items() if there))
    return Toolchain(_sources.hex(), llvmlite.__version__, sys.platform, name, present)


def digest_of(parts: tuple[Any, ...]) -> bytes:
    """A digest of a named tuple of texts."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=32).digest()


@lru_cache(maxsize=1)
def fingerprint() -> bytes:
    """The digest of everything that compiled code depends on besides its key."""
    return digest_of(_toolchain())


def user_folder() -> Path | None:
    """The folder of this user's compiled code; None if RLX_CACHE disables it."""
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


_default: CodeStore | None = None
_default_lock = threading.Lock()


def default_store() -> CodeStore:
    """The store of this process."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = CodeStore(user_folder())
    return _default


def files_made_by(work: Callable[[], object]) -> dict[str, bytes]:
    """The files, by name, that an initially empty store writes while `work` runs."""
    global _default
    before = default_store()
    with tempfile.TemporaryDirectory(prefix="rlx-code-") as folder:
        place = Path(folder) / "native"
        try:
            _default = CodeStore(place)
            work()
        finally:
            _default = before
        return {path.name: path.read_bytes() for path in sorted(place.glob("*.o"))}


def _after_fork() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for store in list(_alive):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def statistics() -> StoreCounts:
    """The statistics of this process's store."""
    return default_store().statistics()
