"""Batches of the samples of a data set: shuffled, stacked, prepared by workers, and resumable."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Literal, Protocol

import numpy as np

from rlx import random
from rlx.data.prefetch import prefetch
from rlx.data.workers import in_processes, in_threads, one_by_one
from rlx.errors import InputTypeError, OptionError, ShapeError, TreeMismatchError
from rlx.trees import tree

__all__ = ["DataLoader", "Samples", "stack"]


class Samples(Protocol):
    """A data set: `len(samples)` samples, of which `samples[i]` is one. Lists and arrays are data sets."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def stack(samples: Sequence[Any]) -> Any:
    """A batch of samples: trees of arrays and numbers as one tree of arrays with a new axis in front.

    Raises TreeMismatchError if the samples have different structures, ShapeError if their shapes differ.

    >>> from rlx.data import stack
    >>> stack([{"x": [1.0, 2.0], "y": 0}, {"x": [3.0, 4.0], "y": 1}])["y"].tolist()
    [0, 1]
    """
    first = tree.structure(samples[0])
    if other := next((s for s in map(tree.structure, samples) if s != first), None):
        raise TreeMismatchError(
            f"The samples of a batch have the structures {first} and {other}.", "Pass collate= to combine them."
        )
    return tree.map(_stacked, *samples)


def _stacked(*leaves: Any) -> np.ndarray:
    arrays = [np.asarray(leaf) for leaf in leaves]
    shapes = dict.fromkeys(array.shape for array in arrays)
    if len(shapes) > 1:
        shown = " and ".join(map(str, [*shapes][:2]))
        raise ShapeError(
            f"The samples of a batch have the shapes {shown}.",
            "Pad them to one shape, or pass collate= to combine them.",
        )
    return np.stack(arrays)


class DataLoader:
    """Batches of a data set's samples; each pass over the loader is an epoch.

    Args:
      dataset: an object with `len(dataset)` and `dataset[i]`: a tree of arrays and numbers.
      batch_size: samples in a batch.
      key: a random key, or a seed: each epoch has another order, the same for the same key. None keeps the order.
      drop_last: drop the incomplete batch at the end, so that all batches have one shape.
      workers: how many batches are prepared at once; 0 prepares a batch when it is asked for.
      kind: "threads" for samples that are read, decoded or computed by NumPy, which run beside Python; "processes" for
        samples that Python code computes. The data set is then sent to them, and their batches come back through pipes.
      ahead: batches that each worker, and the copy to `device`, may be in front of the loop.
      collate: a function from a list of samples to a batch; `stack` by default.
      device: a device or sharding: batches are copied there while the loop computes. None leaves them as collated.

    The position is part of a checkpoint: `state()` is a dict of integers, and after `restore(state)` the next pass
    continues with the following batch. Workers exist during a pass only: they end with it, also after an exception,
    after Ctrl-C, and when the loop is left. An exception in a worker is raised in place of its batch; processes add
    the worker's traceback.

    Raises OptionError for an invalid option, InputTypeError for a data set without length or samples.

    >>> from rlx.data import DataLoader
    >>> squares = [{"x": float(i), "y": i * i} for i in range(7)]
    >>> loader = DataLoader(squares, 2, workers=2)
    >>> len(loader), [batch["y"].tolist() for batch in loader]
    (3, [[0, 1], [4, 9], [16, 25]])
    """

    def __init__(
        self,
        dataset: Samples,
        batch_size: int,
        *,
        key: Any = None,
        drop_last: bool = True,
        workers: int = 0,
        kind: Literal["threads", "processes"] = "threads",
        ahead: int = 2,
        collate: Callable[[list[Any]], Any] = stack,
        device: Any = None,
    ) -> None:
        batch_size = _count("batch_size", batch_size, 1)
        workers, ahead = _count("workers", workers, 0), _count("ahead", ahead, 1)
        if kind not in ("threads", "processes"):
            raise OptionError(f"DataLoader got kind={kind!r}.", 'Pass kind="threads" or kind="processes".')
        if isinstance(key, (bool, float, str)):
            raise OptionError(f"DataLoader got key={key!r}.", "Pass a seed, as key=0, or a key of rlx.random.key.")
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise InputTypeError(
                f"DataLoader got a data set of type {type(dataset).__name__}, without len(dataset) or dataset[i].",
                "For an iterable use rlx.data.prefetch, for a tree of arrays rlx.data.batches.",
            )
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self._key = random.key(int(key)) if isinstance(key, (int, np.integer)) else key
        self._workers, self._kind, self._ahead = workers, kind, ahead
        self._collate, self._device = collate, device
        self._next = (0, 0)  # the epoch and the number of the next batch
        self._begun = -1  # the epoch of the last pass; the next pass has the following one
        self._pass: object = None  # the pass that the state belongs to

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        samples = len(self.dataset)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def state(self) -> dict[str, int]:
        """The position after the last batch that the loop was given, for a checkpoint."""
        epoch, batch = self._next
        return {"epoch": epoch, "batch": batch, "batch_size": self.batch_size, "samples": len(self.dataset)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue at a state: the next pass has the rest of its epoch.

        Raises OptionError if the state is of another batch size or data set, in which it is another position.
        """
        own = self.state()
        try:
            found = {name: int(state[name]) for name in own}
        except (KeyError, TypeError, ValueError):
            raise OptionError(f"DataLoader.restore got {state!r:.200}.", f"Pass a dict like {own}.") from None
        for name in ("batch_size", "samples"):
            if found[name] != own[name]:
                raise OptionError(
                    f"DataLoader.restore got a state with {name}={found[name]}; this loader has {own[name]}.",
                    "Continue with the data and the batch size of the saved run, or begin a new epoch without restore.",
                )
        if found["epoch"] < 0 or not 0 <= found["batch"] <= len(self):
            what = f"DataLoader.restore got epoch={found['epoch']}, batch={found['batch']}; an epoch has {len(self)}."
            raise OptionError(what, "Pass what state() returned.")
        self._next = (found["epoch"], found["batch"])
        self._begun, self._pass = -1, None

    def __iter__(self) -> Iterator[Any]:
        if self._begun >= 0:
            self._next = (self._begun + 1, 0)
        epoch, first = self._next
        self._begun = epoch
        own = self._pass = object()
        return self._batches(epoch, first, own)

    def _batches(self, epoch: int, first: int, own: object) -> Generator[Any]:
        count = len(self)
        # the thread of prefetch ends before the generator that it reads
        with closing(self._prepared(epoch, range(first, count))) as found, closing(self._delivered(found)) as batches:
            for number, batch in enumerate(batches, first + 1):
                if self._pass is own:
                    self._next = (epoch, number) if number < count else (epoch + 1, 0)
                yield batch

    def _delivered(self, found: Generator[Any]) -> Generator[Any]:
        return found if self._device is None else prefetch(found, self._ahead, self._device)

    def _prepared(self, epoch: int, numbers: range) -> Generator[Any]:
        work = _Batch(self.dataset, self._order(epoch), self.batch_size, self._collate)
        if not self._workers:
            return one_by_one(work, numbers)
        run = in_threads if self._kind == "threads" else in_processes
        return run(work, numbers, self._workers, self._ahead)

    def _order(self, epoch: int) -> np.ndarray | None:
        if self._key is None:
            return None
        return np.asarray(random.permutation(random.fold_in(self._key, epoch), len(self.dataset)))


def _count(name: str, value: Any, least: int) -> int:
    """An option as an integer, also of NumPy."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise OptionError(f"DataLoader got {name}={value!r}.", f"Pass an integer of at least {least}.")
    return number


class _Batch:
    """Makes the batch of a number. Worker processes get a copy."""

    def __init__(
        self, dataset: Samples, order: np.ndarray | None, size: int, collate: Callable[[list[Any]], Any]
    ) -> None:
        self._dataset, self._order, self._size, self._collate = dataset, order, size, collate

    def __call__(self, number: int) -> Any:
        places = range(number * self._size, min((number + 1) * self._size, len(self._dataset)))
        indices = places if self._order is None else self._order[places.start : places.stop].tolist()
        return self._collate([self._sample(index) for index in indices])

    def _sample(self, index: int) -> Any:
        try:
            return self._dataset[index]
        except Exception as error:
            error.add_note(f"This happened in dataset[{index}].")
            raise
