"""Folders that several processes write and read: on other numbers of them, in other divisions, after failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.distributed import threads
from rlx.errors import CollectiveError, FileFormatError, TreeMismatchError
from rlx.experimental.multihost_utils import process_allgather
from rlx.serialization import atomic, shards
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
    original = atomic.replace

    def full(target: Path, write: Any) -> None:
        if rlx.process_index() == failing and target.name.startswith("blocks"):
            raise OSError(28, "No space left on device")
        original(target, write)

    monkeypatch.setattr(shards, "replace", full)

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
    original = atomic.replace

    class Killed(BaseException):
        pass

    def killed(target: Path, write: Any) -> None:
        if rlx.process_index() == 1:
            raise Killed
        original(target, write)

    monkeypatch.setattr(shards, "replace", killed)
    with pytest.raises((Killed, CollectiveError)):
        threads.run(2, save, path, (2, 1), P("a"), 2.0)
    monkeypatch.undo()
    threads.run(2, check, path, (2, 1), P("a"))


def spoil(path: Path, change: Any) -> None:
    index = json.loads((path / "index.json").read_text())
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
    with pytest.raises(FileFormatError, match="no folder of shards"):
        rlx.load(path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100])
def test_broken_blocks_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.shards"
    threads.run(2, save, path, (2, 1), P("a"))
    next(path.glob("*-1.safetensors")).write_bytes(content)
    with pytest.raises(FileFormatError, match="no folder of shards"):
        rlx.load(path)


def test_another_shape_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.shards"
    rlx.save(path, {"x": X})
    with pytest.raises(TreeMismatchError, match="the tree's leaf"):
        rlx.load(path, {"x": X[:1]})
    with pytest.raises(OSError, match="index"):
        rlx.load(tmp_path / "nothing.shards")
