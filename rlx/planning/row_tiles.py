"""Kernels along one dimension run tile by tile, so that the next kernel finds each tile in cache.

A product and the operations on its result, a softmax between two products, a whole layer: each tile of
rows passes through all of them on one thread. Values that only these kernels need never exist as a whole.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlx.ir.kernels import Buffer, Contract, Kernel, Loops, Plan, RowTiles, merged_numbers
from rlx.ir.options import LoweringOptions
from rlx.ir.row_tiles import iterations, stays_in_row_tiles
from rlx.ir.size_functions import common_divisor, exact_half, greatest
from rlx.planning.arena import MemoryBlock, place
from rlx.planning.fuse import has_effect
from rlx.planning.memory import arena_bytes

__all__ = ["group_row_tiles", "row_tiles_of"]

_MOST_KERNELS = 64  # in one group; with the most kernels that are skipped, it keeps grouping linear in time
_MOST_PASSED = 12


def group_row_tiles(plan: Plan, options: LoweringOptions) -> Plan:
    """The plan with every worthwhile run of kernels as one RowTiles of at least `options.least_row_tiles` row tiles.

    RowTiles may move work across a barrier, and then take more memory; such a plan stays unchanged.
    """
    if not options.least_row_tiles:
        return plan
    uses = Counter(buffer for kernel in plan.kernels for buffer in {*kernel.reads, *kernel.writes})
    grouped = tuple(_grouped(plan.kernels, options, uses))
    alignment = options.alignment
    if plan.barriers and arena_bytes(plan.kernels, alignment) < arena_bytes(grouped, alignment):
        return plan
    return replace(plan, kernels=grouped)


def _grouped(kernels: Sequence[Kernel], options: LoweringOptions, uses: Counter[Buffer]) -> Iterator[Kernel]:
    waiting = deque(kernels)
    while waiting:
        first = waiting.popleft()
        group = _TileGroup(options)
        if not group.join(first):
            yield first
            continue
        seen: list[Kernel] = []
        before, after = _gather(group, waiting, seen)
        if not group.worthwhile:
            yield first
            waiting.extendleft(reversed(seen))
            continue
        yield from _grouped(before, options, uses)
        yield group.made(uses)
        waiting.extendleft(reversed(after))


def _gather(group: _TileGroup, waiting: deque[Kernel], seen: list[Kernel]) -> tuple[list[Kernel], list[Kernel]]:
    """Let waiting kernels join; the others: those that run before the group, and those that run after it.

    All visited kernels move from `waiting` to `seen`.
    """
    before: list[Kernel] = []
    after: list[Kernel] = []
    touched: set[Buffer] = set()  # by kernels that run after the group
    written: set[Buffer] = set()
    while waiting:
        kernel = waiting[0]
        passed = max(len(before), len(after))
        if len(group.members) >= _MOST_KERNELS or passed >= _MOST_PASSED or has_effect(kernel):
            break
        seen.append(waiting.popleft())
        late = not written.isdisjoint(kernel.reads) or not touched.isdisjoint(kernel.writes)
        if not late and group.join(kernel):
            continue
        if not late and group.is_apart(kernel):
            before.append(kernel)
            continue
        after.append(kernel)
        touched.update(kernel.reads, kernel.writes)
        written.update(kernel.writes)
    return _before(group, before), after


def _before(group: _TileGroup, kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels that have to run before the group; others become its first ones."""
    before: list[Kernel] = []
    needed: set[Buffer] = set()
    for kernel in reversed(kernels):
        if needed.isdisjoint(kernel.writes) and group.begin_with(kernel):
            continue
        before.append(kernel)
        needed.update(kernel.reads, kernel.writes)
    before.reverse()
    return before


@dataclass(slots=True)
class _TileGroup:
    """Kernels that stay in `count` row tiles of everything that one of them writes."""

    options: LoweringOptions
    count: int = 0
    members: list[Loops | Contract] = field(default_factory=list)
    written: set[Buffer] = field(default_factory=set)
    loose: set[Buffer] = field(default_factory=set)  # written in no row tiles: only one kernel may touch them
    read: set[Buffer] = field(default_factory=set)

    def join(self, kernel: Kernel) -> bool:
        """Take the kernel in, if it can run tile by tile with the others."""
        if not isinstance(kernel, (Loops, Contract)) or (isinstance(kernel, Contract) and not kernel.depth):
            return False
        touched = {*kernel.reads, *kernel.writes}
        if (self.members and not self.written & touched) or self.loose & touched:
            return False
        if any(b in self.read and b not in self.written for b in kernel.writes):
            return False
        form = self._form(kernel)
        if form is None:
            return False
        self.count, loose = form
        self.members.append(kernel)
        self.written.update(kernel.writes)
        self.loose.update(loose)
        self.read.update(kernel.reads)
        return True

    def begin_with(self, kernel: Kernel) -> bool:
        """Add a kernel whose results the group reads, without changing the row tiles."""
        if not isinstance(kernel, (Loops, Contract)) or self.read.isdisjoint(kernel.writes):
            return False
        if iterations(kernel) % self.count or any(b in kernel.reads for b in kernel.writes):
            return False
        if not all(stays_in_row_tiles(k, b, self.count) for b in kernel.writes for k in (kernel, *self.members)):
            return False
        self.members.insert(0, kernel)
        self.written.update(kernel.writes)
        self.read.update(kernel.reads)
        return True

    def _form(self, kernel: Loops | Contract) -> tuple[int, set[Buffer]] | None:
        """The number of row tiles that the group with the kernel can be cut into, and its untiled outputs."""
        bound = {b for b in kernel.reads if b in self.written}
        bound |= {b for b in kernel.writes if b in kernel.reads}
        free = set(kernel.writes) - bound
        most = common_divisor(self.count, iterations(kernel))
        for count in self._counts(most):
            if any(b.nbytes > count * self.options.row_tiles.widest for b in (*bound, *free)):
                break
            if all(stays_in_row_tiles(kernel, buffer, count) for buffer in (*bound, *free)):
                return count, set()
        for count in self._counts(most):
            if all(stays_in_row_tiles(kernel, buffer, count) for buffer in bound):
                return count, {b for b in free if not stays_in_row_tiles(kernel, b, count)}
        return None

    def _counts(self, most: int) -> Iterator[int]:
        """Numbers of row tiles to try: wider tiles contain more of the elements that a kernel reads together.

        A symbolic size is not halved: no kernel needs pairs of elements along it.
        """
        while most >= self.options.least_row_tiles:
            yield most
            half = exact_half(most)
            if half is None:
                return
            most = half

    def is_apart(self, kernel: Kernel) -> bool:
        """Whether the kernel may run before the group although it follows it."""
        touched = {*kernel.reads, *kernel.writes}
        return not (touched & self.written) and not (set(kernel.writes) & self.read)

    @property
    def worthwhile(self) -> bool:
        """Whether there is enough to do for each tile."""
        least = self.options.row_tiles.work * self.options.least_row_tiles
        return len(self.members) > 1 and sum(map(_work, self.members)) >= least

    def made(self, uses: Mapping[Buffer, int]) -> RowTiles:
        """The kernel."""
        return row_tiles_of(self.members, uses, self.count, self.options.alignment)


def row_tiles_of(
    members: Sequence[Loops | Contract], uses: Mapping[Buffer, int], count: int, alignment: int
) -> RowTiles:
    """Kernels as one in row tiles; temporaries that no other kernel uses are local to these."""
    own = Counter(buffer for kernel in members for buffer in {*kernel.reads, *kernel.writes})
    written = dict.fromkeys(b for k in members for b in k.writes)
    local = tuple(b for b in written if b.role == "temporary" and own[b] == uses[b])
    offsets, scratch = _place_local(members, {*local}, count, alignment)
    label = "+".join(dict.fromkeys(k.label.split("+")[0] for k in members))
    origins = dict.fromkeys(origin for k in members for origin in k.origins)
    equations = merged_numbers(*(k.equations for k in members))
    return RowTiles(count, tuple(members), local, scratch, offsets, tuple(origins), label, equations=equations)


def _work(kernel: Loops | Contract) -> int:
    if isinstance(kernel, Contract):
        return kernel.batches * kernel.rows * kernel.columns * kernel.depth // 8
    total = 1
    for size in kernel.sizes:
        total *= size
    return total * len(kernel.instructions) // 8


def _place_local(
    kernels: Sequence[Loops | Contract], local: set[Buffer], count: int, alignment: int
) -> tuple[dict[Buffer, int], int]:
    """Offsets of one tile's parts of local buffers among each other, and bytes of all of them."""
    blocks: dict[Buffer, MemoryBlock] = {}
    for position, kernel in enumerate(kernels):
        for buffer in (*kernel.writes, *kernel.reads):
            if buffer not in local:
                continue
            if buffer not in blocks:
                size = -(-buffer.nbytes // count // alignment) * alignment
                blocks[buffer] = MemoryBlock(greatest(size, alignment), position, position, [buffer])
            blocks[buffer].last = position
    placement = place(list(blocks.values()))
    return dict(zip(blocks, placement.offsets, strict=True)), placement.size
