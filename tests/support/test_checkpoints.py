"""Steps of a training run: which are kept, what a killed writer leaves, errors of the background thread."""

from __future__ import annotations

import os
import signal
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
from rlx.errors import CollectiveError, FileFormatError, OptionError, TreeMismatchError, UnsupportedError
from rlx.owners import own_mark
from rlx.serialization import manager as module
from rlx.serialization import shard_writing
from rlx.serialization.manager import CheckpointManager
from rlx.sharding import NamedSharding
from rlx.sharding import PartitionSpec as P


def tree_of(step: int) -> dict[str, Any]:
    return {"w": np.full((3, 2), step, np.float32), "rest": [np.int32(step), None]}


def check(found: Any, step: int) -> None:
    np.testing.assert_array_equal(found["w"], tree_of(step)["w"])
    assert int(found["rest"][0]) == step and found["rest"][1] is None


def hidden(folder: Path) -> list[str]:
    """The files that are not steps."""
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("."))


def test_which_steps_are_kept(tmp_path: Path) -> None:
    losses = [9.0, 1.0, 5.0, float("nan"), 3.0, 1.0, 7.0, 8.0, 6.0, 4.0]
    kept = {"max_to_keep": 2, "keep_period": 4, "best": "loss", "mode": "min", "async_": False}
    with CheckpointManager(tmp_path / "run", **kept) as steps:
        assert steps.latest_step() is None and steps.best_step() is None and steps.all_steps() == []
        with pytest.raises(FileNotFoundError, match="No step is saved"):
            steps.restore()
        for step, loss in enumerate(losses):
            assert steps.save(step, tree_of(step), metrics={"loss": loss, "other": step})
            check(steps.restore(), step)
        assert steps.all_steps() == [0, 4, 5, 8, 9]  # 5 is as good as 1, and later
        assert (steps.best_step(), steps.latest_step()) == (5, 9)
        check(steps.restore(5), 5)
        check(rlx.load(tmp_path / "run" / "8.shards"), 8)
        assert steps.metrics(9) == {"loss": 4.0, "other": 9.0}
        steps.delete(9)
        assert steps.latest_step() == 8
        assert steps.save(9, tree_of(90)) and steps.metrics() == {}  # without metrics
        assert steps.best_step() == 5
    assert hidden(tmp_path / "run") == []
    highest = CheckpointManager(tmp_path / "run", best=lambda found: found["other"], mode="max")
    assert highest.best_step() == 8


def test_intervals_and_wrong_steps(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, save_interval_steps=np.int64(10), async_=False) as steps:
        assert steps.save(0, tree_of(0))
        with pytest.raises(FileNotFoundError, match="Step 7 is not saved. Step 0 is saved"):
            steps.restore(7)
        assert [steps.save(step, tree_of(step)) for step in (5, 10)] == [False, True]
        assert steps.save(13, tree_of(13), force=True)
        with pytest.raises(OptionError, match="Step 10 cannot be saved after step 13"):
            steps.save(10, tree_of(10))
        with pytest.raises(FileNotFoundError, match="Step 7 is not saved. The steps 0, 10, 13 are saved"):
            steps.restore(7)
        for wrong in (-1, 1.5, True, 10**18):
            with pytest.raises(OptionError, match="A step is an integer"):
                steps.save(wrong, tree_of(0), force=True)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="has no metric"):
            steps.best_step()
    with pytest.raises(OptionError, match="is closed"):
        steps.save(20, tree_of(20))
    bad = [{"max_to_keep": 0}, {"max_to_keep": True}, {"keep_period": 1.5}, {"best": "loss"}, {"mode": "least"}]
    for options in (*bad, {"best": 3, "mode": "min"}):
        with pytest.raises(OptionError):
            CheckpointManager(tmp_path, **options)  # type: ignore[arg-type]
    with CheckpointManager(tmp_path, best="loss", mode="min") as steps:
        with pytest.raises(OptionError, match="metrics without 'loss'"):
            steps.save(20, tree_of(20), metrics={"accuracy": 1.0})
        with pytest.raises(OptionError, match="types"):
            steps.save(20, tree_of(20), metrics={"loss": "low"})
        with pytest.raises(OptionError, match="types"):
            steps.save(20, tree_of(20), metrics={"loss": 10**400})
        with pytest.raises(OptionError, match="type list"):
            steps.save(20, tree_of(20), metrics=[("loss", 1.0)])  # type: ignore[arg-type]
    assert steps.all_steps() == [0, 10, 13]


class Gate:
    """Holds a background save before its files are written, until `open` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        original = module.write_tree

        def write(folder: Path, saved: Any) -> None:
            self.reached.set()
            assert self.open.wait(100)
            original(folder, saved)

        monkeypatch.setattr(module, "write_tree", write)


def test_values_are_those_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thread writes, the caller's arrays are donated and overwritten; nothing is visible before the end."""
    gate = Gate(monkeypatch)
    step = rlx.jit(lambda x: x + 1.0, donate_argnums=0)
    with CheckpointManager(tmp_path) as steps:
        tree = {"numpy": np.ones(1000), "rlx": jnp.ones(1000), "key": rlx.random.key(3)}
        assert steps.save(1, tree)
        assert gate.reached.wait(100)
        tree["numpy"][:] = 7.0
        donated = step(tree["rlx"])
        assert float(donated[0]) == 2.0 and steps.all_steps() == [] and len(hidden(tmp_path)) == 1
        gate.open.set()
        found = steps.restore(1)  # waits
        assert steps.all_steps() == [1]
    assert (found["numpy"] == 1.0).all() and (found["rlx"] == 1.0).all()
    assert (rlx.random.key_data(found["key"]) == rlx.random.key_data(rlx.random.key(3))).all()


def test_errors_of_the_thread_are_raised_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(target: Path, write: Any) -> None:
        raise OSError(28, "No space left on device", str(target))

    steps = CheckpointManager(tmp_path)
    steps.save(1, tree_of(1))
    steps.wait_until_finished()
    for call in (lambda: steps.save(3, tree_of(3)), steps.wait_until_finished, steps.restore):
        with monkeypatch.context() as patched:
            patched.setattr(shard_writing, "create", full)
            assert steps.save(2, tree_of(2))
            with pytest.raises(OSError, match="No space left") as raised:
                call()
        assert "saved step 2" in raised.value.__notes__[0]
        assert steps.all_steps() == [1] and hidden(tmp_path) == [".rlx-writer"]  # the folder of step 2 is gone
    steps.save(2, tree_of(2))
    check(steps.restore(), 2)
    monkeypatch.setattr(shard_writing, "create", full)
    steps.save(3, tree_of(3))
    with pytest.raises(OSError, match="No space left"):
        steps.close()
    monkeypatch.undo()
    with CheckpointManager(tmp_path) as again:  # closed despite the error
        assert again.save(3, tree_of(3))


def test_a_manager_that_is_dropped_warns_of_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writing, "create", lambda target, write: (_ for _ in ()).throw(OSError(28, "full")))
    steps = CheckpointManager(tmp_path)
    steps.save(1, tree_of(1))
    thread = steps._writer._thread
    assert thread is not None
    thread.join()
    with pytest.warns(RuntimeWarning, match="A step was not saved.*full"):
        del steps
    monkeypatch.undo()
    with CheckpointManager(tmp_path) as steps:  # the lock is free
        assert steps.save(1, tree_of(1))


def test_a_second_writer_is_refused_and_readers_are_not(tmp_path: Path) -> None:
    first, second = CheckpointManager(tmp_path, async_=False), CheckpointManager(tmp_path, async_=False)
    first.save(1, tree_of(1))
    check(second.restore(), 1)
    with pytest.raises(BlockingIOError, match=f"process {os.getpid()} on"):
        second.save(2, tree_of(2))
    with pytest.raises(BlockingIOError):
        second.delete(1)
    first.close()
    assert second.save(2, tree_of(2)) and first.all_steps() == [1, 2]
    second.close()


@pytest.mark.thorough
def test_threads_share_a_manager(tmp_path: Path) -> None:
    """Of concurrent saves, one that is overtaken by a later step is refused; whatever is saved is whole."""
    refused: list[int] = []

    def save(steps: CheckpointManager, numbers: range) -> None:
        for step in numbers:
            try:
                steps.save(step, tree_of(step))
            except OptionError:
                refused.append(step)
            found = steps.restore()
            check(found, int(found["rest"][0]))

    with CheckpointManager(tmp_path) as steps:
        runners = [threading.Thread(target=save, args=(steps, range(start, 24, 3))) for start in range(3)]
        for runner in runners:
            runner.start()
        for runner in runners:
            runner.join()
        steps.wait_until_finished()
        saved = steps.all_steps()
        assert sorted([*saved, *refused]) == list(range(24)) and 23 in saved
        for step in saved:
            check(steps.restore(step), step)


def test_a_template_gives_structure_and_divisions(tmp_path: Path) -> None:
    mesh = rlx.make_mesh((1,), ("rows",))
    divided = rlx.device_put(jnp.arange(8.0), NamedSharding(mesh, P("rows")))
    with CheckpointManager(tmp_path) as steps:
        steps.save(0, {"a": divided, "b": (jnp.ones(2),)})
        like = {"a": rlx.ShapeDtypeStruct((8,), "float32", sharding=divided.sharding), "b": (jnp.zeros(2),)}
        found = steps.restore(template=like)
        assert found["a"].sharding == divided.sharding
        assert found["a"].tolist() == list(range(8)) and found["b"][0].tolist() == [1.0, 1.0]
        wrong = ({"a": divided, "c": 1.0}, {"a": jnp.ones(8), "b": (jnp.ones(3),)})
        says = ("has no array called 'c'", r"'b.0' is float32\[2\], the tree's leaf float32\[3\]")
        for template, text in zip(wrong, says, strict=True):
            with pytest.raises(TreeMismatchError, match=f"Step 0 of .* does not match the template.*{text}"):
                steps.restore(0, template)


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"loss": "low"}', '{"loss": [1]}', '{"a": 1, "a": 2}', '{"a": 1%s}' % ("0" * 400), "[" * 10**5]
)
def test_damaged_metrics_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "3.shards").mkdir()
    (tmp_path / "3.shards" / "metrics.json").write_text(text)
    with pytest.raises(FileFormatError, match="not a file of metrics"):
        CheckpointManager(tmp_path, best="loss", mode="min").best_step()


def test_other_names_are_no_steps(tmp_path: Path) -> None:
    for name in ("03.shards", "-1.shards", "x.shards", "٣.shards", "1" * 30 + ".shards", "5", ".rlx-step-a.b"):
        (tmp_path / name).mkdir()
    (tmp_path / "7.shards").write_text("a file")
    (tmp_path / "8.shards").symlink_to(tmp_path / "5")
    (tmp_path / "9.shards").mkdir()
    assert CheckpointManager(tmp_path).all_steps() == [9]
    (tmp_path / "9.shards" / "index.json").write_text("{}")
    with pytest.raises(FileFormatError):
        CheckpointManager(tmp_path).restore()


# ------------------------------------------------------------- killed writers
POINTS = {
    "blocks": "shard_writing.safetensors.write",
    "index": "shard_writing.replace",
    "metrics": "manager.create",
    "before the rename": "manager.rename",
    "after the rename": "manager.CheckpointManager._unwanted",
    "removal": "manager.shutil.rmtree",
}
VICTIM = """
import operator, os, signal, sys
import numpy as np
import rlx
from rlx import serialization
from rlx.serialization import manager, shard_writing
folder, point, background = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
steps = rlx.CheckpointManager(folder, max_to_keep=2, async_=background)
tree = lambda step: {"w": np.full((3, 2), step, np.float32), "rest": [np.int32(step), None]}
for step in (1, 2):
    steps.save(step, tree(step))
steps.wait_until_finished()
owner, _, name = point.rpartition(".")
place = operator.attrgetter(owner)(serialization)
def killed(*args, **kwargs):
    if name == "write":  # some of the bytes are there
        args[0].write(b"half")
        args[0].flush()
    os.kill(os.getpid(), signal.SIGKILL)
setattr(place, name, killed)
steps.save(3, tree(3))
steps.wait_until_finished()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_writer_leaves_whole_steps(tmp_path: Path, point: str, background: bool) -> None:
    command = [sys.executable, "-c", VICTIM, str(tmp_path), POINTS[point], str(background)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    renamed = point in ("after the rename", "removal")
    with CheckpointManager(tmp_path, max_to_keep=2) as steps:
        for step in steps.all_steps():
            check(steps.restore(step), step)
        assert steps.latest_step() == (3 if renamed else 2)
        left = [name for name in hidden(tmp_path) if name.startswith(".rlx-step-")]
        assert len(left) == (0 if point == "after the rename" else 1)
        live = tmp_path / f".rlx-step-{own_mark()}.live"
        live.mkdir()
        assert steps.save(4, tree_of(4))
        steps.wait_until_finished()
        assert steps.all_steps() == ([3, 4] if renamed else [2, 4])
        assert hidden(tmp_path) == [live.name, ".rlx-writer"]  # another live writer's folder is kept


# ------------------------------------------------------------- several processes
def test_several_processes_write_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(12.0).reshape(4, 3)

    def run(fails: bool) -> str:
        mesh = rlx.sharding.Mesh(np.array(rlx.devices()), ("a",))
        tree = {"x": rlx.device_put(x, NamedSharding(mesh, P("a"))), "n": np.int32(1)}
        with CheckpointManager(tmp_path, max_to_keep=2) as steps:
            try:
                for step in (4,) if fails else (1, 2, 3):
                    steps.save(step, tree, metrics={"loss": step})
            except (OSError, CollectiveError) as error:
                return type(error).__name__
            found = steps.restore(template=tree)
            assert found["x"].sharding == tree["x"].sharding
            assert steps.all_steps() == [2, 3] and steps.metrics() == {"loss": 3.0}
            steps.delete(2)
            assert steps.all_steps() == [3]
        with pytest.raises(UnsupportedError, match="Several processes"):
            CheckpointManager(tmp_path, async_=True)
        return "saved"

    assert threads.run(2, run, False) == ["saved", "saved"]
    np.testing.assert_array_equal(CheckpointManager(tmp_path).restore()["x"], x)
    original = shard_writing.create

    def full(target: Path, write: Any) -> None:
        if target.name.endswith("-1.safetensors"):
            raise OSError(28, "No space left on device")
        original(target, write)

    monkeypatch.setattr(shard_writing, "create", full)
    assert threads.run(2, run, True) == ["CollectiveError", "OSError"]
    assert CheckpointManager(tmp_path).all_steps() == [3] and hidden(tmp_path) == []
