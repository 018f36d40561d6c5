"""Checkpoints of a training run: numbered steps in one directory, each a folder of shards with the step's metrics."""

from __future__ import annotations

import errno
import json
import operator
import os
import re
import secrets
import shutil
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

from rlx.errors import FileFormatError, OptionError, TreeMismatchError, UnsupportedError, warn
from rlx.forks import reopen_after_fork
from rlx.interrupts import uninterrupted
from rlx.ir.collectives import communicator
from rlx.owners import has_ended, own_mark
from rlx.serialization import load
from rlx.serialization.atomic import create, rename
from rlx.serialization.contents import Broken, parsed_object
from rlx.serialization.locks import FolderLock
from rlx.serialization.shard_writing import SavedTree, in_all, text_of_first, tree_to_save, write_tree

__all__ = ["CheckpointManager"]

_SUFFIX = ".shards"
_STEP = re.compile(rf"(0|[1-9][0-9]{{0,17}}){re.escape(_SUFFIX)}")
_UNFINISHED = ".rlx-step-"  # a folder that is being written or removed; the mark of its process follows
_METRICS = "metrics.json"
_MOST_METRICS = 1 << 20  # bytes of that file


class CheckpointManager:
    """Saves the steps of a training run to a directory, removes old ones, and restores them.

    Args:
      directory: one folder "42.shards" for each saved step, which `rlx.load` also reads. It is created by the first
        save; several processes need one that all of them can access.
      max_to_keep: the number of newest steps to keep; None keeps all.
      keep_period: steps divisible by this number are kept in addition.
      best: the name of a metric, or a function from the dict of metrics to a number. The best step is kept in addition.
      mode: whether "min" or "max" of `best` is the best.
      save_interval_steps: save only steps that are divisible by this number.
      async_: write in a background thread while training continues. None: if there is one process.

    A step appears in the directory when all its files are on the disk: a process that is killed leaves all earlier
    steps as they were, and the next writer removes the unfinished folder. From its first save until `close`, a manager
    is the directory's only writer; any number of managers may read. Use it in a `with` block, or call `close`: this
    waits for the background thread and raises its error.

    Raises OptionError for an invalid option.

    >>> import rlx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with rlx.CheckpointManager(folder, max_to_keep=2, best="loss", mode="min") as manager:
    ...         for step, loss in enumerate([3.0, 1.0, 2.0, 4.0, 5.0]):
    ...             _ = manager.save(step, {"w": rlx.numpy.full(2, step)}, metrics={"loss": loss})
    ...         manager.wait_until_finished()
    ...         print(manager.all_steps(), manager.best_step(), manager.restore())
    [1, 3, 4] 1 {'w': Array([4, 4], dtype=int32)}
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int | None = None,
        keep_period: int | None = None,
        best: str | Callable[[dict[str, float]], float] | None = None,
        mode: Literal["min", "max"] | None = None,
        save_interval_steps: int = 1,
        async_: bool | None = None,
    ) -> None:
        counts = {"max_to_keep": max_to_keep, "keep_period": keep_period, "save_interval_steps": save_interval_steps}
        for name, count in counts.items():
            if count is not None and not _is_count(count):
                raise OptionError(f"CheckpointManager got {name}={count!r}.", "Pass an integer of at least 1.")
        if mode not in (("min", "max") if best is not None else (None, "min", "max")):
            raise OptionError(f"CheckpointManager got best= with mode={mode!r}.", 'Pass mode="min" or mode="max".')
        if not (best is None or isinstance(best, str) or callable(best)):
            raise OptionError(f"CheckpointManager got best={best!r}.", 'Pass a metric\'s name, such as "loss".')
        alone = communicator().size == 1
        if async_ and not alone:
            raise UnsupportedError(
                "Several processes cannot save in the background: their exchanges would mix with the program's.",
                "Pass async_=False.",
            )
        self.directory = Path(directory)
        self._max_to_keep, self._keep_period, self._interval = max_to_keep, keep_period, save_interval_steps
        self._best, self._mode = best, mode
        self._async = alone if async_ is None else async_
        self._writer = _StepWriter()
        self._closed = False
        self._lock = threading.RLock()
        reopen_after_fork(self)
        weakref.finalize(self, self._writer.abandon)

    # --------------------------------------------------------- saving
    def save(self, step: int, tree: Any, *, metrics: Mapping[str, Any] | None = None, force: bool = False) -> bool:
        """Save a tree of arrays as a step, then remove the steps that are no longer kept.

        Args:
          step: a number greater than all saved ones.
          tree: as for `rlx.save`. Its values are copied before this returns if they are written in the background, so
            that the caller may donate or modify its arrays.
          metrics: numbers by name; a step without the metric `best` is never the best one.
          force: save the step even if `save_interval_steps` does not select it.

        Returns whether the step is saved. Waits for the previous save, and raises its error. With several processes,
        all must call this.

        Raises BlockingIOError if another manager writes to the directory, OSError if it cannot be written,
        OptionError for an unsuitable step or metric, and the errors of `rlx.save`.
        """
        number = _step_number(step)
        if number % self._interval and not force:
            return False
        with self._lock:
            self._settle()
            if self._closed:
                raise OptionError("This CheckpointManager is closed.", "Save inside its `with` block.")
            latest = self.latest_step()
            if latest is not None and number <= latest:
                raise OptionError(
                    f"Step {number} cannot be saved after step {latest}, which {self.directory} contains.",
                    f"Continue with step {latest + 1}, delete(step) the later steps, or use another directory.",
                )
            text = self._metrics_text(metrics)
            self._writer.acquire(self.directory)
            work = partial(self._write, number, tree_to_save(tree, copy=self._async), text)
            if self._async:
                self._writer.start(number, work)
            else:
                work()
            return True

    def delete(self, step: int) -> None:
        """Remove a step. Raises FileNotFoundError if it is not saved. With several processes, all must call this."""
        with self._lock:
            self._settle()
            self._writer.acquire(self.directory)
            text_of_first("", "removal")  # the others have read what they need
            first = communicator().rank == 0
            in_all("the removal of a step", (lambda: self._remove([self._known(step)])) if first else _nothing)

    def wait_until_finished(self) -> None:
        """Wait for the background thread, and raise its error if it has failed."""
        with self._lock:
            self._settle()

    def close(self) -> None:
        """Wait for the background thread, let other managers write, and raise the thread's error if it has failed."""
        with self._lock:
            self._closed = True
            try:
                self._settle()
            finally:
                self._writer.release()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --------------------------------------------------------- reading
    def restore(self, step: int | None = None, template: Any = None) -> Any:
        """The tree of a step; of the latest one for None.

        Args: template: a tree of arrays or ShapeDtypeStructs, whose structure and shardings the result has. Without
          it arrays are whole, and a tree that has other nodes than dicts, lists and tuples is a dict of arrays by name.

        Raises FileNotFoundError if the step is not saved, TreeMismatchError if it does not match the template,
        FileFormatError if its files are damaged.
        """
        with self._lock:
            self._settle()
            number = self._known(step)
            try:
                return load(self._folder(number), template)
            except TreeMismatchError as error:
                raise TreeMismatchError(
                    f"Step {number} of {self.directory} does not match the template. {error.what}",
                    "Build the template like the saved tree; without a template, restore(step) returns its arrays.",
                ) from None

    def all_steps(self) -> list[int]:
        """The saved steps in increasing order, without one that is still being written."""
        with self._lock:
            self._writer.raise_failure()
            return self._steps()

    def latest_step(self) -> int | None:
        """The last saved step; None if there is none."""
        return max(self.all_steps(), default=None)

    def best_step(self) -> int | None:
        """The step with the best metric, the later one of equals; None if no step has the metric.

        Raises OptionError without `best`.
        """
        if self._best is None:
            raise OptionError("This CheckpointManager has no metric.", 'Pass best="loss", mode="min", for instance.')
        return self._best_of(self.all_steps())

    def metrics(self, step: int | None = None) -> dict[str, float]:
        """The metrics of a step, of the latest one for None. Raises FileNotFoundError if the step is not saved."""
        with self._lock:
            self._settle()
            return self._read_metrics(self._known(step))

    # --------------------------------------------------------- parts
    def _settle(self) -> None:
        """Wait for the background thread, and raise its error."""
        self._writer.wait()
        self._writer.raise_failure()

    def _folder(self, step: int) -> Path:
        return self.directory / f"{step}{_SUFFIX}"

    def _steps(self) -> list[int]:
        with suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            found = [_STEP.fullmatch(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
            return sorted(int(match[1]) for match in found if match)
        return []

    def _known(self, step: int | None) -> int:
        """The step, the latest one for None, if it is saved."""
        steps = self._steps()
        number = max(steps, default=None) if step is None else _step_number(step)
        if number in steps:
            return number
        shown = ", ".join(map(str, steps[-10:]))
        one = f"Step {shown} is saved" if steps else "No step is saved"
        there = f"The steps {shown} are saved" if len(steps) > 1 else one
        what = there if number is None else f"Step {number} is not saved. {there}"
        raise FileNotFoundError(errno.ENOENT, what, str(self.directory))

    def _write(self, step: int, saved: SavedTree, metrics: bytes) -> None:
        """Write a step to a temporary folder, and rename it when it is on the disk."""
        temporary = self.directory / text_of_first(_unfinished_name(), "step")
        first = communicator().rank == 0
        try:
            write_tree(temporary, saved)
            in_all("the step", partial(self._publish, step, temporary, metrics) if first else _nothing)
        except BaseException:
            if first:
                shutil.rmtree(temporary, ignore_errors=True)
            raise

    def _publish(self, step: int, temporary: Path, metrics: bytes) -> None:
        """Make a written folder the step, and remove the steps that are no longer kept."""

        def write(file: BinaryIO) -> None:
            file.write(metrics)

        create(temporary / _METRICS, write)
        rename(temporary, self._folder(step))
        self._remove(self._unwanted())

    def _unwanted(self) -> list[int]:
        steps = self._steps()
        if self._max_to_keep is None:
            return []
        kept = set(steps[-self._max_to_keep :])
        if self._keep_period is not None:
            kept |= {step for step in steps if step % self._keep_period == 0}
        best = None if self._best is None else self._best_of(steps)
        return [step for step in steps if step not in kept and step != best]

    def _remove(self, steps: list[int]) -> None:
        """Remove steps. A reader finds a step whole, or not at all."""
        for step in steps:
            removed = self.directory / _unfinished_name()
            rename(self._folder(step), removed)
            shutil.rmtree(removed, ignore_errors=True)

    def _metrics_text(self, metrics: Mapping[str, Any] | None) -> bytes:
        if not isinstance(metrics, Mapping | None):
            raise OptionError(f"save got metrics of type {type(metrics).__name__}.", 'Pass a dict, as {"loss": loss}.')
        try:
            found = {str(name): float(value) for name, value in (metrics or {}).items()}
        except (TypeError, ValueError, OverflowError):
            shown = {name: type(value).__name__ for name, value in (metrics or {}).items()}
            raise OptionError(f"save got metrics of types {shown}.", "Pass numbers by name.") from None
        if isinstance(self._best, str) and found and self._best not in found:
            raise OptionError(f"save got metrics without {self._best!r}: {', '.join(found)}.", f"Add {self._best!r}.")
        text = json.dumps(found).encode()
        if len(text) > _MOST_METRICS:
            raise OptionError(f"save got metrics of {len(text)} bytes.", "Save arrays in the tree.")
        return text

    def _read_metrics(self, step: int) -> dict[str, float]:
        path = self._folder(step) / _METRICS
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_METRICS + 1)
            found = parsed_object(text, "text")
            if len(text) > _MOST_METRICS or not all(type(value) in (int, float) for value in found.values()):
                raise Broken("its values are not numbers")
            return {name: float(value) for name, value in found.items()}
        except FileNotFoundError:
            return {}
        except (Broken, OverflowError) as broken:
            raise FileFormatError(f"{path} is not a file of metrics: {broken}.") from None

    def _best_of(self, steps: list[int]) -> int | None:
        found = {step: self._score(self._read_metrics(step)) for step in steps}
        known = [step for step in steps if found[step] == found[step]]  # NaN is never the best
        sign = 1.0 if self._mode == "max" else -1.0
        return max(known, key=lambda step: (sign * found[step], step), default=None)

    def _score(self, metrics: dict[str, float]) -> float:
        """The metric of a step; NaN if it has none."""
        if self._best is None or not metrics:
            return float("nan")
        if isinstance(self._best, str):
            return metrics.get(self._best, float("nan"))
        return float(self._best(metrics))


class _StepWriter:
    """The lock of the directory, and the thread that writes a step. The finalizer of a manager needs only this."""

    def __init__(self) -> None:
        self._lock: FolderLock | None = None
        self._pid = 0  # of the process that writes
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def acquire(self, directory: Path) -> None:
        """Make this process the only writer, and remove unfinished folders of processes that have ended."""
        if self._pid == os.getpid():
            return
        first = communicator().rank == 0

        def acquire() -> None:
            directory.mkdir(parents=True, exist_ok=True)
            if first:
                self._take(directory)
                _clear(directory)

        in_all("the lock of the directory", acquire)
        self._pid = os.getpid()

    @uninterrupted
    def _take(self, directory: Path) -> None:
        self._lock = FolderLock(directory, "")

    def start(self, step: int, work: Callable[[], None]) -> None:
        """Run work in a thread. The process does not end before it is done."""

        self._thread = threading.Thread(target=self._run, args=(step, work), name="rlx.checkpoints", daemon=False)
        self._thread.start()

    def _run(self, step: int, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            error.add_note(f"This happened in the background thread that saved step {step}.")
            traceback.clear_frames(error.__traceback__)  # they refer to the manager, which may be dropped
            self._failure = error
        del work  # this frame is in the traceback

    def wait(self) -> None:
        """Wait for the thread."""
        mine = self._pid == os.getpid() and self._thread is not threading.current_thread()
        if self._thread is not None and mine:
            self._thread.join()
        self._thread = None

    def raise_failure(self) -> None:
        """Raise the error of the thread, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def release(self) -> None:
        """Let other managers write."""
        lock, self._lock = self._lock, None
        if lock is not None and self._pid == os.getpid():
            lock.release(finished=True)
        self._pid = 0

    def abandon(self) -> None:
        """The end of a manager that may not have been closed: an error that no call has raised becomes a warning."""
        self.wait()
        self.release()
        failure, self._failure = self._failure, None
        if failure is not None:
            warn(f"A step was not saved, and its CheckpointManager was not closed: {failure}", RuntimeWarning)


def _is_count(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and operator.index(value) >= 1


def _step_number(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if not 0 <= number < 10**18 or isinstance(step, bool):
        raise OptionError(f"A step is an integer from 0 to 10**18 - 1, got {step!r:.60}.")
    return number


def _nothing() -> None:
    """The part of other processes in the work of the first one."""


def _unfinished_name() -> str:
    """A new name for a folder that this process writes or removes."""
    return f"{_UNFINISHED}{own_mark()}.{secrets.token_hex(8)}"


def _clear(directory: Path) -> None:
    """Remove unfinished folders of this user's processes that have ended."""
    for left in directory.glob(f"{_UNFINISHED}*"):
        if has_ended(left.name.removeprefix(_UNFINISHED).partition(".")[0]):
            with suppress(OSError):  # of another user
                if not hasattr(os, "geteuid") or left.lstat().st_uid == os.geteuid():
                    shutil.rmtree(left)
