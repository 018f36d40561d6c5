"""Recordings: runs of a plan whose launches were put into graphs, which a device starts at once."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.backends.gpu.engine import View
from rlx.backends.gpu.memory import Pool, rounded
from rlx.ir.kernels import Buffer, Kernel

__all__ = ["MOST_LAUNCHES", "Recording", "Recordings", "Stretch", "Workspace", "stretches"]

_WORTH = 3  # launches: a graph of fewer costs more than it saves
MOST_LAUNCHES = 4096  # launches of a graph: the device keeps each
_KEPT = 8  # runs of a plan that are remembered by their addresses


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Kernels of a plan that follow each other; `launches` of them make a graph, or None if they are queued."""

    kernels: tuple[Kernel, ...]
    launches: int | None


def stretches(kernels: Sequence[Kernel], launches: Callable[[Kernel], int | None]) -> list[Stretch]:
    """A plan's kernels as stretches that are graphs, and what lies between them.

    launches: how many launches a kernel is, None for what the host or a library takes part in.

    >>> [s.launches for s in stretches("abcde", {"a": 2, "b": 1, "c": None, "d": 9, "e": 5000}.get)]
    [3, None, 9, None]
    """
    found: list[Stretch] = []
    for kernel in kernels:
        number = launches(kernel)
        last = found[-1] if found else None
        before = None if last is None else last.launches
        if last is not None and number is not None and before is not None and before + number <= MOST_LAUNCHES:
            found[-1] = Stretch((*last.kernels, kernel), before + number)
        else:
            found.append(Stretch((kernel,), number if number is not None and number <= MOST_LAUNCHES else None))
    return [s if s.launches is None or s.launches >= _WORTH else Stretch(s.kernels, None) for s in found]


class Workspace:
    """Blocks of a pool that are one recording's: what was given back comes again in the same order.

    Once it is `full` it takes none from the pool: while a graph is recorded nothing may be allocated.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._blocks: list[View] = []
        self._free: defaultdict[int, list[View]] = defaultdict(list)
        self._graphs: list[Any] = []
        self.full = False

    def take(self, nbytes: int) -> View:
        """A block of at least so many bytes."""
        free = self._free[rounded(nbytes)]
        if free:
            return free.pop()
        assert not self.full, "the rehearsal has taken everything that the recording takes"
        self._blocks.append(self._pool.take(nbytes))
        return self._blocks[-1]

    def give(self, block: View) -> None:
        """Have a block back that `take` gave."""
        self._free[block.nbytes].append(block)

    def keep(self, graph: Any) -> None:
        """Keep a graph, until the device is done with all that was queued before the workspace went."""
        self._graphs.append(graph)

    def __del__(self) -> None:
        self._pool.release(self._graphs.clear)
        for block in self._blocks:
            self._pool.give(block)


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A run with some inputs and outputs: its memory but for those, and each stretch with its graph, or None."""

    workspace: Workspace
    memory: dict[Buffer, View]
    parts: tuple[tuple[Stretch, Any], ...]


class Recordings:
    """The latest runs of a plan by the addresses of inputs and outputs: None for those that were seen once."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[int, ...], Recording | None] = OrderedDict()
        self.given_up = False

    def seen(self, addresses: tuple[int, ...]) -> bool:
        """Whether there was such a run among the latest; there is one now."""
        known = addresses in self._runs
        self._runs.setdefault(addresses)
        self._runs.move_to_end(addresses)
        if len(self._runs) > _KEPT:
            self._runs.popitem(last=False)
        return known

    def of(self, addresses: tuple[int, ...]) -> Recording | None:
        """What was recorded for these addresses."""
        found = self._runs.get(addresses)
        if found is not None:
            self._runs.move_to_end(addresses)
        return found

    def keep(self, addresses: tuple[int, ...], recording: Recording) -> None:
        """Keep a recording."""
        self._runs[addresses] = recording

    def clear(self) -> None:
        """Forget all."""
        self._runs.clear()
