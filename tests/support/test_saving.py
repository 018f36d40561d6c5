"""rlx.save replaces a file whole or not at all, whatever fails on the way."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import serialization
from rlx.serialization import atomic

ENDINGS = (".safetensors", ".npz")
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX")
OLD, NEW = {"w": np.arange(3.0)}, {"w": np.arange(5.0)}


class Failing:
    """The module `os`, whose n-th call from here on does something else."""

    def __init__(self, number: int, instead: Any) -> None:
        self.calls = itertools.count()
        self.number = number
        self.instead = instead
        self.happened = ""

    def __getattr__(self, name: str) -> Any:
        value = getattr(os, name)
        return self.counted(name, value) if callable(value) and name != "close" else value

    def counted(self, name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if next(self.calls) == self.number:
                self.happened = name
                return self.instead(*args)
            return function(*args, **options)

        return call


def raising(error: BaseException) -> Any:
    def call(*_: Any) -> Any:
        raise error

    return call


def size(file: Path) -> int:
    return len(rlx.load(file)["w"])


def write_with(monkeypatch: pytest.MonkeyPatch, ending: str, write: Any) -> None:
    """Write files of this ending in another way."""
    formats = serialization._FORMATS
    monkeypatch.setitem(formats, ending, formats[ending]._replace(write=write))


@contextmanager
def old_file(folder: Path, ending: str) -> Iterator[Path]:
    """A file in a folder, and nothing else; neither other files nor open ones are left."""
    file = folder / f"model{ending}"
    rlx.save(file, OLD)
    opened = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    yield file
    assert os.listdir(folder) == [file.name]
    assert not opened or len(os.listdir("/proc/self/fd")) == len(opened)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_step_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, error: BaseException
) -> None:
    """The old file is there until the new one is whole."""
    failed = []
    for number in itertools.count():
        with old_file(tmp_path, ending) as file:
            system = Failing(number, raising(error))
            monkeypatch.setattr(atomic, "os", system)
            try:
                rlx.save(file, NEW)
            except type(error):
                failed.append(system.happened)
            monkeypatch.undo()
            moved = failed.count("replace") and number == len(failed) - 1 and system.happened != "replace"
            assert size(file) == (3 if system.happened and not moved else 5)
        if not system.happened:
            break
    assert {"open", "fsync", "replace"} <= set(failed) and failed[-1] == "fsync"


class Recording:
    """The module `os`, which notes calls that reach the file system, in their order."""

    NOTED = ("open", "fsync", "replace", "fchown", "fchmod", "unlink")

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        return self.noted(name, function) if name in self.NOTED else function

    def noted(self, name: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            found = function(*args)
            what: Any = args[0] if name in ("open", "replace") else os.readlink(f"/proc/self/fd/{args[0]}")
            mode = [oct(args[2])] if name == "open" and len(args) == 3 else []
            size = [os.path.getsize(what)] if name == "fsync" and os.path.isfile(what) else []
            self.calls.append((name, self.kind(str(what)), *mode, *size))
            return found

        return call

    def kind(self, path: str) -> str:
        name = os.path.basename(path)
        return "folder" if os.path.isdir(path) else "beside" if name.startswith(".rlx-save-") else name


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads names of open files from /proc")
@pytest.mark.selected("all")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("existing", [False, True])
def test_the_order_of_system_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, existing: bool
) -> None:
    """Contents reach the disk before the name does, and the name before `save` returns.

    The new file is its owner's alone until it has the owner and the mode of the old one.
    """
    file = tmp_path / f"model{ending}"
    if existing:
        rlx.save(file, OLD)
        file.chmod(0o604)
    system = Recording()
    monkeypatch.setattr(atomic, "os", system)
    rlx.save(file, NEW)
    monkeypatch.undo()
    like_the_old_one = [("fchown", "beside"), ("fchmod", "beside")]
    assert system.calls == [
        ("open", "folder"),
        ("open", "beside", "0o600" if existing else "0o666"),
        *(like_the_old_one if existing else []),
        ("fsync", "beside", file.stat().st_size),  # all of it
        ("replace", "beside"),
        ("fsync", "folder"),
    ]
    assert stat.S_IMODE(file.stat().st_mode) == (0o604 if existing else 0o666 & ~_mask())


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("ending", ENDINGS)
def test_writing_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """Also in the middle."""

    def half(file: Any, contents: Any) -> None:
        file.write(b"half of it")
        raise OSError(errno.EIO, "Input/output error")

    with old_file(tmp_path, ending) as file:
        with monkeypatch.context() as patch:
            write_with(patch, ending, half)
            with pytest.raises(OSError, match="Input/output"):
                rlx.save(file, NEW)
        assert size(file) == 3


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_cannot_be_saved_leaves_the_old_file(tmp_path: Path, ending: str) -> None:
    with old_file(tmp_path, ending) as file:
        with pytest.raises(rlx.errors.InputTypeError):
            rlx.save(file, {"w": "text"})
        if ending == ".safetensors":
            with pytest.raises(rlx.errors.DtypeError):
                rlx.save(file, {"v": 1.0, "w": np.ones(2, complex)})
        assert size(file) == 3


PROCESS = """
import os, signal, sys, itertools, numpy as np, rlx
from rlx.serialization import atomic
sys.path.insert(0, {folder!r})
from test_saving import Failing, size
from pathlib import Path

file = Path(sys.argv[1])
rlx.save(file, {{"w": np.arange(3.0)}})
found = []
for number in itertools.count():
    child = os.fork()
    if not child:
        atomic.os = Failing(number, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        rlx.save(file, {{"w": np.arange(5.0)}})
        os._exit(0)
    found.append(size(file) if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else 0)
    if not found[-1]:
        break
    rlx.save(file, {{"w": np.arange(3.0)}})
print(found)
"""


def in_process(program: str, file: Path) -> str:
    command = [sys.executable, "-c", program, str(file)]
    # a limit on the size of files would cut Python's own files of bytecode, too
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@posix
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.selected(1)
def test_a_process_may_be_killed_at_every_step(tmp_path: Path, ending: str) -> None:
    """What is under the name is a whole file: the old one, or after the last step the new one."""
    program = PROCESS.format(folder=os.path.dirname(__file__))
    found = [int(n) for n in in_process(program, tmp_path / f"model{ending}").strip("[]").split(",")]
    assert len(found) > 5 and set(found[:-2]) == {3} and found[-2:] == [5, 0]


FULL = """
import resource, sys, numpy as np, rlx
rlx.save(sys.argv[1], {"w": np.arange(3.0)})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    rlx.save(sys.argv[1], {"w": np.arange(100_000.0)})
except OSError as error:
    print(type(error).__name__, len(rlx.load(sys.argv[1])["w"]))
"""


@posix
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.selected(1)
def test_a_full_disk(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"model{ending}"
    assert in_process(FULL, file) == "OSError 3"
    assert os.listdir(tmp_path) == [file.name]


@posix
@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_a_fresh_file_has_the_mode_of_any_fresh_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        rlx.save(tmp_path / "model.npz", OLD)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model.npz").stat().st_mode) == 0o666 & ~mask


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_file_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """And at no time can others read the new one who could not read the old one."""
    file = tmp_path / "model.npz"
    rlx.save(file, OLD)
    file.chmod(mode)
    seen = []

    original = serialization._FORMATS[".npz"].write

    def spied(file: Any, contents: Any) -> None:
        seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        original(file, contents)

    write_with(monkeypatch, ".npz", spied)
    rlx.save(file, NEW)
    assert stat.S_IMODE(file.stat().st_mode) == mode and seen == [mode] and size(file) == 5


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="needs root")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    rlx.save(file, OLD)
    os.chown(file, 12, 34)
    rlx.save(file, NEW)
    assert (file.stat().st_uid, file.stat().st_gid) == (12, 34)


@posix
def test_a_file_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everything, so the refusal is made up."""
    with old_file(tmp_path, ".npz") as file:
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda path, mode: False)
            with pytest.raises(PermissionError, match=file.name):
                rlx.save(file, NEW)
        assert size(file) == 3


@posix
def test_links_stay(tmp_path: Path) -> None:
    """A link leads to the new file, whether the old one was there or not."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.npz"
    link.symlink_to(Path("there") / "model.npz")
    for value in (OLD, NEW):
        rlx.save(link, value)
        assert link.is_symlink() and not (tmp_path / "there" / "model.npz").is_symlink()
        assert size(link) == size(tmp_path / "there" / "model.npz") == len(value["w"])
        assert os.listdir(tmp_path / "there") == ["model.npz"]
    around = tmp_path / "around.npz"
    around.symlink_to(around)
    with pytest.raises(OSError):
        rlx.save(around, NEW)
    assert around.is_symlink()


@posix
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """It stays a pipe, and gets what a file would."""
    rlx.save(tmp_path / "model.safetensors", NEW)
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    rlx.save(pipe, NEW)
    reader.join()
    assert received == [(tmp_path / "model.safetensors").read_bytes()] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rlx.save(tmp_path / "nowhere" / "model.npz", OLD)
    (tmp_path / "model.npz").mkdir()
    with pytest.raises(IsADirectoryError if os.name == "posix" else OSError):
        rlx.save(tmp_path / "model.npz", OLD)
