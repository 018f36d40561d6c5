"""Folders that several processes write and read: on other numbers of them, in other divisions, after failures."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.distributed import threads
from rlx.errors import CollectiveError, FileFormatError, TreeMismatchError
from rlx.experimental.multihost_utils import process_allgather
from rlx.owners import own_mark
from rlx.serialization import atomic, shard_writing, shards
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P

X = np.arange(96.0).reshape(12, 8)
SMALL = np.arange(5, dtype=np.int8)


def mesh_of(*axes: str, shape: tuple[int, ...] = (-1,)) -> Mesh:
    return Mesh(np.array(rlx.devices()).reshape(shape), axes)


def value_of(shape: tuple[int, ...], spec: P, scale: float = 1.0) -> dict[str, Any]:
    """A tree of an array that processes divide, one that all have, a number and keys."""
    mesh = mesh_of("a", "b", shape=shape)
    divided = rlx.device_put(scale * X, NamedSharding(mesh, spec))
    return {"x": divided, "rest": [jnp.asarray(SMALL), 3.0, None], "key": rlx.random.key(1)}


def save(path: Path, shape: tuple[int, ...], spec: P, scale: float = 1.0) -> None:
    rlx.save(path, value_of(shape, spec, scale))


def check(path: Path, shape: tuple[int, ...], spec: P, scale: float = 1.0) -> None:
    """What the folder holds, as this number of processes, and this division."""
    like = value_of(shape, spec)
    found = rlx.load(path, like)
    assert found["x"].sharding == like["x"].sharding
    np.testing.assert_array_equal(process_allgather(found["x"], tiled=True), scale * X)
    whole = rlx.load(path)
    np.testing.assert_array_equal(whole["x"], scale * X)
    for tree in (found, whole):
        np.testing.assert_array_equal(tree["rest"][0], SMALL)
        assert float(tree["rest"][1]) == 3.0
        assert (rlx.random.key_data(tree["key"]) == rlx.random.key_data(like["key"])).all()


@pytest.mark.parametrize(
    ("writers", "written"), [(1, P()), (2, P("a")), (4, P("a", "b")), (4, P(None, "b")), (4, P(("b", "a")))]
)
def test_what_some_write_others_read(tmp_path: Path, writers: int, written: P) -> None:
    path = tmp_path / "model.shards"
    for scale in (1.0, 2.0):  # the second replaces the first
        threads.run(writers, save, path, (writers // 2 or 1, min(writers, 2)), written, scale)
    others = ((1, (1, 1), P()), (2, (2, 1), P(None, "a")), (3, (1, 3), P("b")), (4, (2, 2), written))
    for readers, shape, spec in others:
        threads.run(readers, check, path, shape, spec, 2.0)
    index = json.loads((path / "index.json").read_text())
    files = {block["file"] for entry in index["arrays"].values() for block in entry["blocks"]}
    assert {file.name for file in path.iterdir()} == {"index.json", *files}
    held = sum(file.stat().st_size for file in path.iterdir())
    assert held < X.nbytes + 6000, "each part is written once"


def test_a_process_reads_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.shards"
    threads.run(4, save, path, (4, 1), P("a"))
    opened: list[str] = []
    original = shards.Shards._block

    def block(self: Any, entry: Any, wanted: Any) -> Any:
        opened.append(wanted.name)
        found = original(self, entry, wanted)
        assert not found.flags.owndata  # it is the mapped file
        return found

    monkeypatch.setattr(shards.Shards, "_block", block)
    assert shards.Shards(path).part("x", (slice(3, 7), slice(2, 4))).tolist() == X[3:7, 2:4].tolist()
    assert opened == ["x#1", "x#2"]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    path = tmp_path / "model.shards"
    threads.run(2, save, path, (2, 1), P("a"))
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    original = atomic.create

    def full(target: Path, write: Any) -> None:
        if target.name.endswith(f"-{failing}.safetensors"):
            raise OSError(28, "No space left on device")
        original(target, write)

    monkeypatch.setattr(shard_writing, "create", full)

    def again() -> str:
        try:
            save(path, (2, 1), P("a"), 2.0)
        except OSError as error:
            return f"{error.errno}"
        except CollectiveError as error:
            return str(error)
        return ""

    messages = threads.run(2, again)
    assert messages[failing] == "28"
    assert f"Rank {failing} could not write its blocks" in messages[1 - failing]
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_a_process_that_dies_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.shards"
    threads.run(2, save, path, (2, 1), P("a"))

    class Killed(BaseException):
        pass

    original = shard_writing._gathered

    def killed(array: np.ndarray, place: str) -> np.ndarray:
        if rlx.process_index() == 1 and place == "its blocks":
            raise Killed
        return original(array, place)

    monkeypatch.setattr(shard_writing, "_gathered", killed)
    with pytest.raises((Killed, CollectiveError)):
        threads.run(2, save, path, (2, 1), P("a"), 2.0)
    monkeypatch.undo()
    threads.run(2, check, path, (2, 1), P("a"))


def spoil(path: Path, change: Any) -> None:
    index = json.loads((path / "index.json").read_text())
    del index["blake2b"]  # as in folders that were written before there were checksums
    change(index["arrays"]["x"])
    (path / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x["blocks"].pop(),
        lambda x: x["blocks"].__setitem__(1, x["blocks"][0]),
        lambda x: x["blocks"][0].update(start=[-3, 0]),
        lambda x: x["blocks"][0].update(start=[11, 0]),
        lambda x: x["blocks"][0].update(file="../elsewhere.safetensors"),
        lambda x: x["blocks"][0].update(name="x#1", file="other"),
        lambda x: x["blocks"][0].update(name="y"),
        lambda x: x.update(dtype="float32"),
        lambda x: x.update(dtype="object"),
        lambda x: x.update(shape=[1 << 62, 8]),
        lambda x: x.update(shape=[12.0, 8]),
        lambda x: x.pop("blocks"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "model.shards"
    threads.run(2, save, path, (2, 1), P("a"))
    spoil(path, change)
    with pytest.raises(FileFormatError, match="not a folder of shards"):
        rlx.load(path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100])
def test_broken_blocks_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.shards"
    threads.run(2, save, path, (2, 1), P("a"))
    next(path.glob("*-1.safetensors")).write_bytes(content)
    with pytest.raises(FileFormatError, match="not a folder of shards"):
        rlx.load(path)


def damaged_block(path: Path) -> Any:
    """A byte of the last array in a file is another one."""
    file = next(path.glob("*-1.safetensors"))
    content = bytearray(file.read_bytes())
    content[-5] ^= 4
    file.write_bytes(content)
    return file.name


def mixed_up_blocks(path: Path) -> Any:
    one, other = sorted(path.glob("*.safetensors"))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return one.name.rsplit("-", 1)[0]


def truncated_block(path: Path) -> Any:
    file = next(path.glob("*-1.safetensors"))
    file.write_bytes(file.read_bytes()[:-8])
    return file.name


def older_block(path: Path) -> Any:
    """A file of the same names, shapes and dtypes, of another save."""
    other = path.with_name("other.shards")
    threads.run(2, save, other, (2, 1), P("a"), 2.0)
    file = next(path.glob("*-1.safetensors"))
    file.write_bytes(next(other.glob("*-1.safetensors")).read_bytes())
    return file.name


def damaged_index(path: Path) -> Any:
    """Two blocks of one shape change places."""
    index = json.loads((path / "index.json").read_text())
    blocks = index["arrays"]["x"]["blocks"]
    blocks[0]["start"], blocks[1]["start"] = blocks[1]["start"], blocks[0]["start"]
    (path / "index.json").write_text(json.dumps(index))
    return "index.json"


@pytest.mark.parametrize("damage", [damaged_block, mixed_up_blocks, truncated_block, older_block, damaged_index])
def test_every_process_finds_damage_and_names_the_file(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "model.shards"
    threads.run(2, save, path, (2, 1), P("a"))
    file = damage(path)

    def load() -> None:
        with pytest.raises(FileFormatError, match=file):
            rlx.load(path, value_of((1, 2), P(None, "b")))  # each reads of both files

    threads.run(2, load)
    with pytest.raises(FileFormatError, match=file):
        rlx.load(path)


def test_folders_without_checksums_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.shards"
    threads.run(2, save, path, (2, 1), P("a"))

    def without(x: Any) -> None:
        for block in x["blocks"]:
            del block["blake2b"]

    spoil(path, without)
    threads.run(2, check, path, (2, 1), P("a"))


# ------------------------------------------------------------- who writes what
def test_processes_share_the_writing_of_what_all_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is not equal, and of small arrays, the first process has what is saved."""
    monkeypatch.setattr(shard_writing, "SHARED", 1 << 10)
    path = tmp_path / "model.shards"
    equal, whole = np.arange(4096.0).reshape(64, 64), np.arange(2048, dtype=np.int8)

    def write() -> None:
        own = equal + rlx.process_index()
        rlx.save(path, {"equal": equal, "own": own, "whole": whole, "rank": rlx.process_index()})

    threads.run(4, write)
    found = rlx.load(path)
    np.testing.assert_array_equal(found["equal"], equal)
    np.testing.assert_array_equal(found["own"], equal)
    np.testing.assert_array_equal(found["whole"], whole)
    assert found["rank"] == 0
    index = json.loads((path / "index.json").read_text())
    writers = {name: {block["file"][-13] for block in entry["blocks"]} for name, entry in index["arrays"].items()}
    assert writers["own"] == writers["rank"] == {"0"} and writers["equal"] == {"1", "2", "3"}


def test_copies_of_a_part_are_written_by_different_processes(tmp_path: Path) -> None:
    path = tmp_path / "model.shards"

    def write() -> None:
        sharding = NamedSharding(mesh_of("a", "b", shape=(2, 2)), P("a"))
        rlx.save(path, [rlx.device_put(X + n, sharding) for n in range(2)])

    threads.run(4, write)
    assert sorted(file.name[-13] for file in path.glob("*.safetensors")) == ["0", "1", "2", "3"]
    np.testing.assert_array_equal(rlx.load(path)[1], X + 1)


def test_large_arrays_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writing, "LARGEST_BLOCK", 200)
    path = tmp_path / "model.shards"
    threads.run(2, save, path, (2, 1), P("a"))
    threads.run(2, check, path, (1, 2), P(None, "b"))
    index = json.loads((path / "index.json").read_text())
    assert max(np.prod(block["shape"]) for block in index["arrays"]["x"]["blocks"]) * 8 <= 200


def test_a_writer_is_waited_for_while_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than members wait for each other, and up to a limit of its own."""
    monkeypatch.setattr(shard_writing, "_LONGEST_PAUSE", 0.1)
    path = tmp_path / "model.shards"
    original = atomic.create
    meetings = threading.Semaphore(0)
    gathered = shard_writing._gathered

    def counted(array: np.ndarray, place: str) -> np.ndarray:
        if place == "its blocks":
            meetings.release()
        return gathered(array, place)

    def slow(target: Path, write: Any) -> None:
        for _ in range(8):  # it goes on for as long as the others ask
            assert meetings.acquire(timeout=100)
        original(target, write)

    monkeypatch.setattr(shard_writing, "_gathered", counted)
    monkeypatch.setattr(shard_writing, "create", slow)
    threads.run(2, save, path, (2, 1), P("a"))
    threads.run(2, check, path, (2, 1), P("a"))
    monkeypatch.setenv("RLX_SAVE_TIMEOUT", "0.01")
    monkeypatch.setattr(shard_writing, "create", lambda target, write: threading.Event().wait(1))
    with pytest.raises(CollectiveError, match=r"took more than 0\.01 s for its blocks"):
        threads.run(2, save, path, (2, 1), P("a"), 2.0)
    monkeypatch.undo()
    threads.run(2, check, path, (2, 1), P("a"))


# ------------------------------------------------------------- readers and writers
WRITER = """
import sys, rlx
from rlx.serialization import shard_writing
original = shard_writing.replace
def replace(*arguments):
    print("writes", flush=True)
    sys.stdin.readline()
    original(*arguments)
shard_writing.replace = replace
rlx.save(sys.argv[1], {"x": rlx.numpy.ones(3)})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
def test_a_second_writer_is_refused_and_takes_over_from_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "model.shards"
    rlx.save(path, {"x": jnp.zeros(3)})
    words = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"writes\n"
        with pytest.raises(BlockingIOError, match=rf"process {other.pid} on .* is saving"):
            rlx.save(path, {"x": jnp.full(3, 2.0)})

        def both() -> str:
            with pytest.raises((BlockingIOError, CollectiveError)) as caught:
                save(path, (2, 1), P("a"))
            return str(caught.value)

        messages = threads.run(2, both)
        assert f"process {other.pid}" in messages[0] and "Rank 0 could not write the lock" in messages[1]
        assert rlx.load(path)["x"].tolist() == [0.0] * 3
        other.kill()
    assert len(list(path.glob("blocks-*"))) == 2, "of the one that was killed, too"
    foreign = path / "foreign.safetensors"
    foreign.write_bytes(b"mine")
    rlx.save(path, {"x": jnp.full(3, 2.0)})
    assert rlx.load(path)["x"].tolist() == [2.0] * 3
    assert foreign.exists() and len(list(path.iterdir())) == 3  # and the index, and one file of blocks


@pytest.mark.parametrize("there", [False, True])
def test_processes_that_save_to_different_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Each rank to a folder of its own name, or to a disk of its own. What was there stays."""
    monkeypatch.setattr(shard_writing, "_SEEN", 0.05)
    folders = [tmp_path / f"rank-{rank}.shards" for rank in range(2)]
    for folder in folders if there else []:
        rlx.save(folder, {"x": X})

    def write() -> str:
        with pytest.raises((FileNotFoundError, CollectiveError)) as caught:
            rlx.save(folders[rlx.process_index()], {"x": X + 1})
        return str(caught.value)

    messages = threads.run(2, write)
    assert "not the folder on" in messages[1] and folders[1].name in messages[1]
    assert "Rank 1 could not write the folder of rank 0" in messages[0]
    for folder in folders if there else []:
        np.testing.assert_array_equal(rlx.load(folder)["x"], X)
    assert there or not folders[1].exists()


def test_a_folder_that_is_seen_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = itertools.count()
    original = shard_writing.note_of
    monkeypatch.setattr(shard_writing, "note_of", lambda folder: original(folder) if next(seen) > 5 else "")
    threads.run(2, save, tmp_path / "model.shards", (2, 1), P("a"))
    threads.run(2, check, tmp_path / "model.shards", (2, 1), P("a"))


def test_a_reader_beside_a_writer_reads_the_new_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.shards"
    rlx.save(path, {"x": X})
    original, saved = shards.Shards._block, []

    def block(self: Any, *arguments: Any) -> Any:
        if len(saved) < 3:  # between reading the index and opening the file
            saved.append(X + 1 + len(saved))
            rlx.save(path, {"x": saved[-1]})
        return original(self, *arguments)

    monkeypatch.setattr(shards.Shards, "_block", block)
    np.testing.assert_array_equal(rlx.load(path)["x"], X + 3)
    monkeypatch.undo()
    next(path.glob("*.safetensors")).unlink()
    with pytest.raises(FileNotFoundError):
        rlx.load(path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
def test_unfinished_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """Those of others stay."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    machine, _, start = own_mark().split("-")
    names = {
        "dead": f".rlx-save-{machine}-{ended.pid}-{start}.00",
        "own": f".rlx-save-{own_mark()}.00",
        "elsewhere": f".rlx-save-0123456789ab-{ended.pid}-{start}.00",
        "old": ".rlx-save-0123456789abcdef",
    }
    for name in names.values():
        (tmp_path / name).write_bytes(b"")
    rlx.save(tmp_path / "model.npz", {"x": X})
    left = {key for key, name in names.items() if (tmp_path / name).exists()}
    assert left == {"own", "elsewhere", "old"}


def test_another_shape_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.shards"
    rlx.save(path, {"x": X})
    with pytest.raises(TreeMismatchError, match="the tree's leaf"):
        rlx.load(path, {"x": X[:1]})
    with pytest.raises(OSError, match="index"):
        rlx.load(tmp_path / "nothing.shards")
