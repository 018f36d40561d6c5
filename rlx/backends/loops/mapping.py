"""Who runs which iterations of a kernel: how a walk enters its outer loops, sweeps rows, and combines what they found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rlx.ir.kernels import Store

if TYPE_CHECKING:
    from rlx.backends.loops.walk import Walk

__all__ = ["Mapping", "SequentialMapping"]


class Mapping(ABC):
    """How iterations are shared among those that run the same function: one, or every work-item of a device."""

    @abstractmethod
    def enter(self, walk: Walk, nest: ExitStack) -> int:
        """Open the chunk and the leading dimensions that may run apart; -> how many dimensions are open."""

    def row_dimension(self, walk: Walk, dimension: int) -> str:
        """The head of a loop over a row dimension."""
        start, stop = walk.bounds(dimension)
        return walk.dialect.loop(walk.index(dimension), start, stop)

    def combine_rows(self, walk: Walk, number: int) -> None:
        """A reduction's parts, one for each that swept the row, become its result, known to all of them."""
        del walk, number

    def accumulate(self, walk: Walk, store: Store, place: str, value: str) -> None:
        """Combine a value with what is in memory."""
        walk.accumulate(store, place, value)

    def initialized(self, walk: Walk) -> None:
        """What accumulating stores begin with was written, by all that run this point."""
        del walk

    @contextmanager
    def once(self, walk: Walk) -> Generator[None]:
        """What is written inside happens once for a row."""
        del walk
        yield


class SequentialMapping(Mapping):
    """One function runs all iterations; the outermost loop may be shared by threads of the language's own."""

    def __init__(self, threads: bool) -> None:
        self.threads = threads

    def enter(self, walk: Walk, nest: ExitStack) -> int:
        """Loops over the chunks or over the parallel dimensions."""
        if walk.loops.chunks > 1:
            head = walk.dialect.loop("chunk", "0", str(walk.loops.chunks), self.threads)
            nest.enter_context(walk.lines.block(head))
            return 0
        for dimension in range(walk.loops.parallel):
            start, stop = walk.bounds(dimension)
            head = walk.dialect.loop(walk.index(dimension), start, stop, self.threads and dimension == 0)
            nest.enter_context(walk.lines.block(head))
        return walk.loops.parallel
