"""The cache's folder: what is read, what is removed, by which way it is reached, and what other users can do to it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from rlx.backends.cpu.runtime import folder as folder_module
from rlx.backends.cpu.runtime.folder import Folder, UnsafeFolderError

ROOT = Path(__file__).resolve().parents[2]
NAME = "0123456789abcdef" * 3 + ".o"
OTHER = "f" * 48 + ".o"

users = pytest.mark.skipif(not folder_module.USERS, reason="needs users and folders held open")
root_only = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="only root on Linux can be several users"
)


def names(path: Path) -> set[str]:
    return set(os.listdir(path))


# ------------------------------------------------------------- files
def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a" / "b")
    assert folder.read(NAME) is None and not folder.has(NAME)
    for content in (b"", b"one", b"two\r\n" * 70_000):
        folder.write(NAME, content)
        assert folder.read(NAME) == content and folder.has(NAME)
    assert names(tmp_path / "a" / "b") == {NAME}


def test_a_part_that_is_written_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write, and read, less than was asked for."""
    write, read = os.write, os.read
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, min(size, 5)))
    folder = Folder(tmp_path)
    folder.write(NAME, bytes(range(100)))
    assert folder.read(NAME) == bytes(range(100))


def test_only_files_that_are_written_here_are_removed(tmp_path: Path) -> None:
    """By name, by kind and by age; others do not count either."""
    folder = Folder(tmp_path)
    foreign = ["thesis.bin", "notes.txt", ".hidden", "a.o", "0" * 47 + ".o", "0" * 48, "g" * 48 + ".o", NAME + "x"]
    for name in foreign:
        (tmp_path / name).write_bytes(b"mine" * 1000)
        os.utime(tmp_path / name, (1, 1))
    outside = tmp_path.parent / "outside"
    outside.write_bytes(b"mine" * 1000)
    linked, nested = "a" * 48 + ".o", "b" * 48 + ".o"
    (tmp_path / linked).symlink_to(outside)
    (tmp_path / nested).mkdir()
    for number in range(10):
        folder.write(f"{number:048x}.o", b"x" * 100)
        os.utime(tmp_path / f"{number:048x}.o", (number, number))
    assert folder.shrink(500) <= 375
    left = {f"{number:048x}.o" for number in range(7, 10)}
    assert names(tmp_path) == {*foreign, linked, nested, *left}
    assert outside.read_bytes() == b"mine" * 1000
    assert folder.shrink(500) == 300


def test_what_killed_writers_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    old, new = f".{'0' * 48}.12ab", f".{'1' * 48}.12ab"
    before = f".{'2' * 48}.4711.140245"  # as an older version called them
    for name in (old, new, before):
        (tmp_path / name).touch()
    for name in (old, before):
        os.utime(tmp_path / name, (1, 1))
    folder.shrink(1000)
    assert names(tmp_path) == {new}


@users
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large", "writable"])
def test_what_is_no_file_of_this_user_is_not_read(tmp_path: Path, kind: str) -> None:
    """Nor waited for; it is replaced, unless it is a folder."""
    folder = Folder(tmp_path)
    path = tmp_path / NAME
    if kind == "link":
        (tmp_path / "file").write_bytes(b"code")
        path.symlink_to(tmp_path / "file")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"code")
        path.chmod(0o620 if kind == "writable" else 0o600)
        if kind == "large":
            os.truncate(path, 1 << 40)
    assert folder.read(NAME) is None
    if kind == "folder":
        with pytest.raises(OSError):
            folder.write(NAME, b"new")
        assert names(tmp_path) == {NAME}
    else:
        folder.write(NAME, b"new")
        assert folder.read(NAME) == b"new"
        if kind == "link":
            assert (tmp_path / "file").read_bytes() == b"code"


# ------------------------------------------------------------- the way
@users
def test_what_is_put_at_the_path_later_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "native"
    folder = Folder(path)
    folder.write(NAME, b"own")
    path.rename(tmp_path / "old")
    path.mkdir()
    (path / NAME).write_bytes(b"planted")
    (path / OTHER).write_bytes(b"planted")
    assert folder.read(NAME) == b"own" and folder.read(OTHER) is None
    folder.write(OTHER, b"own, too")
    assert (path / OTHER).read_bytes() == b"planted"


@users
def test_links_of_this_user_are_followed(tmp_path: Path) -> None:
    """Absolute and relative ones, upwards too, in the middle and at the end; not in circles."""
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep").chmod(0o700)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("absolute/../real/deep")
    for path in (tmp_path / "absolute" / "deep", tmp_path / "relative"):
        Folder(path).write(NAME, str(path).encode())
        assert (tmp_path / "real" / "deep" / NAME).read_bytes() == str(path).encode()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        Folder(tmp_path / "circle")


@users
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_folder_above_that_others_can_write(tmp_path: Path, mode: int) -> None:
    """It is refused unless it is sticky, as /tmp is; the folder itself in any case."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    if mode & 0o1000:
        Folder(above / "native").write(NAME, b"code")
    else:
        with pytest.raises(UnsafeFolderError, match="is in .*above, which other users can write"):
            Folder(above / "native")
        assert not list(above.iterdir())
    with pytest.raises(UnsafeFolderError, match="can be written by other users"):
        Folder(above)


@users
def test_a_folder_above_that_a_group_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused unless the group is this user alone."""
    import grp
    import pwd

    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o770)
    user = pwd.getpwuid(os.geteuid()).pw_name
    groups = {"alone": (user, []), "listed": (user, [user]), "others": (user, ["someone"]), "named": ("staff", [])}
    for number, (kind, (name, members)) in enumerate(groups.items()):
        found = grp.struct_group((name, "x", 1, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, found=found: found)
        if kind in ("alone", "listed"):
            Folder(above / f"native{number}")
        else:
            with pytest.raises(UnsafeFolderError, match="which other users can write"):
                Folder(above / f"native{number}")


@users
def test_descriptors_that_a_process_closes(tmp_path: Path) -> None:
    """As daemons do; whatever has the number then is left alone."""
    folder = Folder(tmp_path / "native")
    folder.write(NAME, b"code")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / NAME).write_bytes(b"mine")
    number = folder._descriptor
    assert number is not None
    other = os.open(victim, os.O_RDONLY)
    os.dup2(other, number)
    os.close(other)
    try:
        folder.write(OTHER, b"code, too")
        assert folder.read(NAME) == b"code" and folder.shrink(0) == 0
        assert names(victim) == {NAME} and not names(tmp_path / "native")
        del folder
        assert os.fstat(number).st_ino == victim.stat().st_ino
    finally:
        os.close(number)


@users
def test_a_folder_is_closed_with_its_owner(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    number = folder._descriptor
    assert number is not None
    del folder
    with pytest.raises(OSError):
        os.fstat(number)


def test_without_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are neither owners nor folders held open, as on Windows, paths do."""
    monkeypatch.setattr(folder_module, "USERS", False)
    folder = Folder(tmp_path / "a" / "b")
    folder.write(NAME, b"code")
    folder.write(OTHER, b"code" * 100)
    assert folder.read(NAME) == b"code" and folder.has(OTHER)
    assert folder._descriptor is None
    os.utime(tmp_path / "a" / "b" / OTHER, (1, 1))
    assert folder.shrink(300) == 4
    assert names(tmp_path / "a" / "b") == {NAME}


# ------------------------------------------------------------- other users
VICTIM, ATTACKER = 2001, 2002
SCRIPT = """
import os, sys, warnings
from pathlib import Path
from rlx.backends.cpu.runtime import compile
from rlx.backends.cpu.runtime.store import CodeStore, fingerprint
TEXT = "define i64 @answer() {\\nret i64 42\\n}\\n"
CodeStore(None).address(b"key", "answer", lambda: TEXT)  # all that is imported is imported by now
root = Path(sys.argv[1])
def become(user):
    os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
def compiled(path, key=b"key"):
    "How many a store compiled that works in this folder, and what it warned of."
    store = CodeStore(path)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        store.address(key, "answer", lambda: TEXT)
    return store.statistics().compiled, " ".join(str(w.message) for w in seen)
"""


def run_as_users(body: str) -> None:
    """A script that begins as root, and may become the users, with a folder that both can enter."""
    with tempfile.TemporaryDirectory() as root:  # pytest's own folders let nobody else in
        os.chmod(root, 0o755)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT + textwrap.dedent(body), root],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": str(ROOT), "RLX_CACHE": "0"},
        )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


@root_only
def test_another_user_who_owns_the_folder_above() -> None:
    """They could put another folder in its place at any time."""
    body = f"""
    above = root / "above"
    above.mkdir(); os.chown(above, {ATTACKER}, {ATTACKER}); above.chmod(0o777)
    become({VICTIM})
    for path in (above / "native", above / "deep" / "native"):
        number, warned = compiled(path)
        assert number == 1 and "above, which belongs to another user" in warned, warned
    assert not list(above.iterdir())
    print("done")
    """
    run_as_users(body)


@root_only
def test_a_link_that_another_user_planted() -> None:
    """In a folder that is shared, as /tmp is, they made the name first; it leads to the victim's own files."""
    body = f"""
    shared, documents = root / "shared", root / "documents"
    shared.mkdir(); shared.chmod(0o1777)
    documents.mkdir(); (documents / "data.bin").write_text("mine"); os.truncate(documents / "data.bin", 2 << 30)
    for path in (documents, documents / "data.bin"):
        os.chown(path, {VICTIM}, {VICTIM})
    documents.chmod(0o700)
    (shared / "native").symlink_to(documents)
    os.chown(shared / "native", {ATTACKER}, {ATTACKER}, follow_symlinks=False)
    (shared / "of_root").mkdir(); (shared / "of_root").chmod(0o755)
    become({VICTIM})
    number, warned = compiled(shared / "native")
    assert number == 1 and "link" in warned and "belongs to another user" in warned, warned
    assert os.listdir(documents) == ["data.bin"] and (documents / "data.bin").stat().st_size == 2 << 30
    assert "belongs to another user" in compiled(shared / "of_root")[1]
    assert compiled(shared / "own") == (1, "") and compiled(shared / "own") == (0, "")
    print("done")
    """
    run_as_users(body)


@root_only
@pytest.mark.parametrize("change", ["owner", "mode"])
@pytest.mark.selected(1)
def test_a_file_of_another_user_is_not_executed(change: str) -> None:
    """Whole as it is, and under the right name."""
    body = f"""
    folder = root / "native"
    folder.mkdir(mode=0o700); os.chown(folder, {VICTIM}, {VICTIM})
    if os.fork() == 0:
        become({VICTIM})
        assert compiled(folder) == (1, "") and compiled(folder) == (0, "")
        os._exit(0)
    assert os.wait()[1] == 0
    (file,) = folder.iterdir()
    if {change!r} == "owner":
        os.chown(file, {ATTACKER}, {ATTACKER}); file.chmod(0o644)
    else:
        file.chmod(0o666)
    become({VICTIM})
    assert compiled(folder) == (1, "")  # written anew
    assert compiled(folder) == (0, "")
    print("done")
    """
    run_as_users(body)


@root_only
def test_folders_above_that_can_be_entered_and_not_listed() -> None:
    """/home on machines that many share."""
    body = f"""
    home, own = root / "home", root / "home" / "victim"
    own.mkdir(parents=True); home.chmod(0o711); os.chown(own, {VICTIM}, {VICTIM})
    become({VICTIM})
    assert compiled(own / ".cache" / "rlx") == (1, "") and compiled(own / ".cache" / "rlx") == (0, "")
    print("done")
    """
    run_as_users(body)


@root_only
def test_a_process_that_becomes_another_user() -> None:
    """A server that began as root reads no code of root's, and writes where it may not without harm."""
    body = f"""
    folder = root / "native"
    assert compiled(folder) == (1, "")
    store = CodeStore(folder)
    store.address(b"key", "answer", lambda: TEXT)
    become({VICTIM})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        store.address(b"other", "answer", lambda: TEXT)
    assert "cannot be written (Permission denied)" in str(seen[0].message)
    print("done")
    """
    run_as_users(body)
