"""Memory planning: liveness, sharing of dying operands, and offsets in the arena."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlx.ir.kernels import Buffer, Kernel, Loops, Plan
from rlx.ir.verify_loops import may_share
from rlx.passes.in_place import join_buffers
from rlx.passes.rename import renamed

__all__ = ["plan_memory", "plan_statistics"]

ALIGNMENT = 64


def plan_memory(plan: Plan) -> Plan:
    """The plan without needless copies, its temporaries placed in an arena."""
    kernels, temporaries = _updated_in_place(_without_copies(plan.kernels))
    used = {b for k in kernels for b in (*k.reads, *k.writes)} | {*plan.inputs, *plan.outputs}
    buffers = tuple(b for b in (*plan.buffers, *temporaries) if b in used)
    arena = _assign_offsets(kernels)
    return replace(plan, kernels=kernels, buffers=buffers, arena=arena)


# ---------------------------------------------------------------- copies
def _without_copies(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Drop copies of a temporary that is not needed afterwards: its memory becomes the copy's."""
    last_use = _last_uses(kernels)
    first_write = _first_writes(kernels)
    alias: dict[Buffer, Buffer] = {}
    dropped: set[int] = set()
    for position, kernel in enumerate(kernels):
        pair = _plain_copy(kernel)
        if pair is None:
            continue
        source, target = pair
        fits = source.role == "temporary" and source.dtype == target.dtype
        fits = fits and source.size == target.size and target.role in ("temporary", "output")
        if fits and last_use[source] == position and first_write[target] == position:
            alias[source] = target
            dropped.add(position)
            # the copy's life now starts where the source's did
            first_write[target] = first_write[source]
    if not alias:
        return tuple(kernels)

    def resolve(buffer: Buffer) -> Buffer:
        while buffer in alias:
            buffer = alias[buffer]
        return buffer

    renames = {buffer: resolve(buffer) for buffer in alias}
    kept = [k for n, k in enumerate(kernels) if n not in dropped]
    return tuple(renamed(kernel, renames) for kernel in kept)


def _plain_copy(kernel: Kernel) -> tuple[Buffer, Buffer] | None:
    """(source, target) of a kernel that only copies one buffer to another, element by element."""
    if not isinstance(kernel, Loops) or len(kernel.instructions) != 1 or len(kernel.stores) != 1:
        return None
    load, store = kernel.instructions[0], kernel.stores[0]
    if load.op != "load" or load.args or store.address is not None or store.guard is not None:
        return None
    read, written = load.attribute, store.access
    if store.accumulate or read.offset or written.offset or read.strides != written.strides:
        return None
    source, target = kernel.operands[read.operand], kernel.operands[written.operand]
    step = 1
    for size, stride in zip(reversed(kernel.sizes), reversed(read.strides), strict=True):
        if stride != step:
            return None
        step *= size
    return (source, target) if step == source.size else None


def _updated_in_place(kernels: tuple[Kernel, ...]) -> tuple[tuple[Kernel, ...], tuple[Buffer, ...]]:
    """Drop copies that are written in part, where the original is not needed after that.

    Also returns buffers that this takes.
    """
    temporaries: tuple[Buffer, ...] = ()
    for kernel in kernels:
        pair = _plain_copy(kernel)
        if pair is None or pair[0].role != "temporary" or pair[0].dtype != pair[1].dtype:
            continue
        if pair[0].size == pair[1].size:
            joined = join_buffers(kernels, *pair)
            if joined is not None:
                kernels = joined.kernels
                temporaries += joined.temporaries
    return kernels, temporaries


# ---------------------------------------------------------------- liveness
def _last_uses(kernels: Sequence[Kernel]) -> dict[Buffer, int]:
    last: dict[Buffer, int] = {}
    for position, kernel in enumerate(kernels):
        for buffer in (*kernel.reads, *kernel.writes):
            last[buffer] = position
    return last


def _first_writes(kernels: Sequence[Kernel]) -> dict[Buffer, int]:
    first: dict[Buffer, int] = {}
    for position, kernel in enumerate(kernels):
        for buffer in kernel.writes:
            first.setdefault(buffer, position)
    return first


def _in_place(kernel: Kernel, dying: list[Buffer], born: list[Buffer]) -> dict[Buffer, Buffer]:
    """Which new buffers may take over the memory of buffers that die in this kernel.

    Not in kernels with several passes over a row: a backend may keep a value of an early pass in
    the place that a later one writes.
    """
    if not isinstance(kernel, Loops) or kernel.chunks > 1:
        return {}
    if any(i.op in ("reduce", "cumulate") for i in kernel.instructions):
        return {}
    result: dict[Buffer, Buffer] = {}
    free = list(dying)
    for buffer in born:
        for candidate in free:
            if candidate.nbytes == buffer.nbytes and may_share(kernel, candidate, buffer):
                result[buffer] = candidate
                free.remove(candidate)
                break
    return result


def _assign_offsets(kernels: Sequence[Kernel]) -> int:
    """Walk the kernels once, giving memory to what is born and taking it from what has died."""
    last = _last_uses(kernels)
    pool = _Pool()
    placed: dict[Buffer, int] = {}
    for position, kernel in enumerate(kernels):
        touched = dict.fromkeys((*kernel.writes, *kernel.reads))
        temporaries = [b for b in touched if b.role == "temporary"]
        born = [b for b in temporaries if b not in placed]
        dying = [b for b in temporaries if last[b] == position and b in placed]
        shared = _in_place(kernel, dying, born) if dying and born else {}
        for buffer, source in shared.items():
            placed[buffer] = buffer.offset = placed[source]
        for buffer in born:
            if buffer not in shared:
                placed[buffer] = buffer.offset = pool.take(_rounded(buffer.nbytes))
        taken = set(shared.values())
        for buffer in temporaries:
            if last[buffer] == position and buffer not in taken:
                pool.give(placed[buffer], _rounded(buffer.nbytes))
    return pool.size


def _rounded(nbytes: int) -> int:
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


class _Pool:
    """Free runs of the arena: best fit, neighbours merged."""

    def __init__(self) -> None:
        self.size = 0
        self._by_size: list[tuple[int, int]] = []  # (length, start), sorted
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def take(self, length: int) -> int:
        """The start of a run of `length` bytes; the arena grows where none is free."""
        at = bisect.bisect_left(self._by_size, (length, -1))
        if at == len(self._by_size):
            return self._grow(length)
        found, start = self._by_size.pop(at)
        del self._starts[start], self._ends[start + found]
        if found > length:
            self._insert(start + length, found - length)
        return start

    def _grow(self, length: int) -> int:
        start = self._ends.get(self.size)
        if start is None:
            start = self.size
        else:  # extend the free run at the end of the arena
            self._remove(start)
        self.size = start + length
        return start

    def give(self, start: int, length: int) -> None:
        """Return a run."""
        before = self._ends.get(start)
        if before is not None:
            length += start - before
            self._remove(before)
            start = before
        after = self._starts.get(start + length)
        if after is not None:
            self._remove(start + length)
            length += after
        self._insert(start, length)

    def _insert(self, start: int, length: int) -> None:
        bisect.insort(self._by_size, (length, start))
        self._starts[start] = length
        self._ends[start + length] = start

    def _remove(self, start: int) -> None:
        length = self._starts.pop(start)
        del self._ends[start + length]
        self._by_size.pop(bisect.bisect_left(self._by_size, (length, start)))


# ---------------------------------------------------------------- inspection
def plan_statistics(plan: Plan) -> dict[str, Any]:
    """Kernels by kind, bytes that kernels read and write, and the arena, nested plans included."""
    kinds: dict[str, int] = {}
    moved = 0
    nested: list[Plan] = []
    for kernel in plan.kernels:
        name = type(kernel).__name__
        kinds[name] = kinds.get(name, 0) + 1
        moved += sum(b.nbytes for b in (*kernel.reads, *kernel.writes))
        for field in ("body", "condition"):
            if hasattr(kernel, field):
                nested.append(getattr(kernel, field))
        nested.extend(getattr(kernel, "branches", ()))
    return {
        "kernels": kinds,
        "bytes": moved,
        "arena": plan.arena,
        "regions": [plan_statistics(inner) for inner in nested],
    }
