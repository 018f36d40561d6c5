"""Recordings: runs of a plan whose launches were put into graphs, which a device starts at once."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rlx.backends.gpu.engine import View
from rlx.backends.gpu.memory import Pool, rounded
from rlx.ir.kernels import Buffer, Kernel, Plan

__all__ = [
    "MOST_LAUNCHES", "GivenBuffers", "KeptGraphs", "Recording", "Recordings", "Stretch", "Workspace", "stretches",
]  # fmt: skip

_WORTH = 3  # launches: a smaller graph costs more than it saves
MOST_LAUNCHES = 4096  # launches of a graph: the device keeps all of them
_KEPT = 8  # runs of a plan that are remembered, by the addresses of fixed buffers
_MOST_COPIED = 16 << 20  # bytes of inputs and outputs that a recording copies: some microseconds on a GPU


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Consecutive kernels of a plan; their `launches` form a graph; None if they are queued."""

    kernels: tuple[Kernel, ...]
    launches: int | None


def stretches(kernels: Sequence[Kernel], launches: Callable[[Kernel], int | None]) -> list[Stretch]:
    """A plan's kernels as stretches that become graphs, and the kernels between them.

    launches: the number of a kernel's launches; None if the host or a library takes part.

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
    """Blocks of a pool that belong to the recordings of a plan, which run one after the other and share them.

    Freed blocks are reused in the same order. While it is `full`, it takes no more from the pool: nothing may be
    allocated while a graph is recorded.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._blocks: list[View] = []
        self._free: defaultdict[int, list[View]] = defaultdict(list)
        self.full = False

    def take(self, nbytes: int) -> View:
        """A block of at least this many bytes."""
        free = self._free[rounded(nbytes)]
        if free:
            return free.pop()
        assert not self.full, "the rehearsal takes every block that the recording needs"
        self._blocks.append(self._pool.take(nbytes))
        return self._blocks[-1]

    def give(self, block: View) -> None:
        """Return a block from `take`."""
        self._free[block.nbytes].append(block)

    def restart(self) -> None:
        """Free all blocks, for the next recording."""
        self._free.clear()
        for block in reversed(self._blocks):
            self.give(block)
        self.full = False

    def __del__(self) -> None:
        for block in self._blocks:
            self._pool.give(block)


class KeptGraphs:
    """The graphs of a recording, kept until the device has done all work queued before the recording is freed."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._graphs: list[Any] = []

    def keep(self, graph: Any) -> None:
        """Keep a graph."""
        self._graphs.append(graph)

    def __del__(self) -> None:
        self._pool.release(self._graphs.clear)


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A run as graphs: its own memory, and each stretch with its graph, or None.

    table: memory for the addresses of inputs and outputs, which kernels follow; each run sets them.
    """

    memory: dict[Buffer, View]
    table: View
    parts: tuple[tuple[Stretch, Any], ...]
    kept: KeptGraphs


@dataclass(frozen=True, slots=True)
class GivenBuffers:
    """How recordings find the inputs and outputs of a plan.

    rlx's kernels follow addresses in memory. Other work, such as a library's products, has the addresses themselves:
    `copied` inputs and outputs are copied from and to memory of the recordings; those that are too large are `fixed`,
    and there is a recording for each of their addresses.
    """

    copied: tuple[Buffer, ...]
    fixed: tuple[Buffer, ...]

    @staticmethod
    def of(plan: Plan, addressed: Iterable[Buffer]) -> GivenBuffers:
        """addressed: the buffers whose addresses other work has."""
        given = dict.fromkeys((*plan.inputs, *plan.outputs))
        found = sorted((b for b in dict.fromkeys(addressed) if b in given), key=lambda b: b.nbytes)
        sums = accumulate(b.nbytes for b in found)
        count = sum(total <= _MOST_COPIED for total in sums)
        return GivenBuffers(tuple(found[:count]), tuple(found[count:]))


class Recordings:
    """The latest runs of a plan by the addresses of its fixed buffers: None for runs that were seen once.

    workspace: the memory that they share.
    """

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[int, ...], Recording | None] = OrderedDict()
        self.workspace: Workspace | None = None
        self.given_up = False

    def seen(self, addresses: tuple[int, ...]) -> bool:
        """Whether there was such a run among the latest; it is remembered from now on."""
        known = addresses in self._runs
        self._runs.setdefault(addresses)
        self._runs.move_to_end(addresses)
        if len(self._runs) > _KEPT:
            self._runs.popitem(last=False)
        return known

    def of(self, addresses: tuple[int, ...]) -> Recording | None:
        """The recording for these addresses."""
        found = self._runs.get(addresses)
        if found is not None:
            self._runs.move_to_end(addresses)
        return found

    def keep(self, addresses: tuple[int, ...], recording: Recording) -> None:
        """Keep a recording."""
        self._runs[addresses] = recording

    def clear(self) -> None:
        """Forget all recordings."""
        self._runs.clear()
        self.workspace = None
