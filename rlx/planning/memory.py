"""Memory planning: removal of copies, reuse of a dying operand's memory, and lifetimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlx.ir.kernels import Buffer, Kernel, Loops, Plan, RowTiles, nested_plans
from rlx.ir.rename import renamed
from rlx.ir.size_functions import greatest
from rlx.ir.verify_loops import may_share
from rlx.planning.arena import MemoryBlock, place
from rlx.planning.in_place import KernelRows, carries_in_place
from rlx.storage import ALIGNMENT

__all__ = [
    "arena_bytes",
    "blocks_of",
    "offsets_of",
    "place_temporaries",
    "plan_statistics",
    "remove_copies",
    "temporary_bytes",
    "update_carries_in_place",
    "update_in_place",
]


def place_temporaries(plan: Plan, alignment: int = ALIGNMENT) -> Plan:
    """The plan with a place for each of its temporaries in an arena, and no unused buffers."""
    used = {b for k in plan.kernels for b in (*k.reads, *k.writes)} | {*plan.inputs, *plan.outputs}
    used |= {b for k in plan.kernels if isinstance(k, RowTiles) for b in k.local}
    offsets, arena = offsets_of(blocks_of(plan.kernels, alignment))
    return replace(plan, buffers=tuple(b for b in plan.buffers if b in used), arena=arena, offsets=offsets)


def arena_bytes(kernels: Sequence[Kernel], alignment: int = ALIGNMENT) -> int:
    """The bytes that the temporaries of these kernels need."""
    return place(blocks_of(kernels, alignment)).size


def temporary_bytes(plan: Plan) -> int:
    """Bytes of temporaries that a plan and the plans inside it need at once."""
    inner = [temporary_bytes(p) for kernel in plan.kernels for p in nested_plans(kernel)]
    return plan.arena + max(inner, default=0)


def offsets_of(blocks: Sequence[MemoryBlock]) -> tuple[dict[Buffer, int], int]:
    """The offset of each buffer of the blocks, and the bytes of the arena."""
    placement = place(blocks)
    pairs = zip(blocks, placement.offsets, strict=True)
    return {buffer: offset for block, offset in pairs for buffer in block.buffers}, placement.size


# ---------------------------------------------------------------- copies
def remove_copies(plan: Plan) -> Plan:
    """Drop copies of a temporary that is not needed afterwards: its memory becomes the copy's."""
    kernels = plan.kernels
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
            # the copy's life now starts when the source's did
            first_write[target] = first_write[source]
    if not alias:
        return plan

    def resolve(buffer: Buffer) -> Buffer:
        while buffer in alias:
            buffer = alias[buffer]
        return buffer

    renames = {buffer: resolve(buffer) for buffer in alias}
    kept = [k for n, k in enumerate(kernels) if n not in dropped]
    return replace(plan, kernels=tuple(renamed(kernel, renames) for kernel in kept))


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


def update_in_place(plan: Plan) -> Plan:
    """Drop copies that are partly overwritten, if the original is not needed afterwards."""
    rows = KernelRows(plan.kernels)
    # from the last copy to the first: in a chain of copies, each join then visits its own kernels only
    for position in reversed(range(len(plan.kernels))):
        pair = _plain_copy(rows.rows[position][0]) if len(rows.rows[position]) == 1 else None
        if pair is None or pair[0].role != "temporary" or pair[0].dtype != pair[1].dtype:
            continue
        if pair[0].size == pair[1].size:
            rows.join(*pair)
    return replace(plan, kernels=rows.kernels, buffers=(*plan.buffers, *rows.temporaries))


def update_carries_in_place(plan: Plan, constants: int, carries: int) -> Plan:
    """The plan of a loop's body that updates carries in place, if it writes only part of each.

    Its inputs are `constants` constants, then carries; its outputs begin with the next ones.
    """
    joined = carries_in_place(plan, constants, carries)
    return update_in_place(remove_copies(joined)) if joined.held else joined


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


def blocks_of(
    kernels: Sequence[Kernel], alignment: int = ALIGNMENT, element_bytes: int | None = None
) -> list[MemoryBlock]:
    """The blocks of memory with their first and last kernels: temporaries, and chains of temporaries that share memory.

    element_bytes: the size of an element; by default the size of its dtype.
    """
    last = _last_uses(kernels)
    blocks: dict[Buffer, MemoryBlock] = {}
    found: list[MemoryBlock] = []
    for position, kernel in enumerate(kernels):
        touched = dict.fromkeys((*kernel.writes, *kernel.reads))
        temporaries = [b for b in touched if b.role == "temporary"]
        born = [b for b in temporaries if b not in blocks]
        dying = [b for b in temporaries if last[b] == position and b in blocks]
        shared = _in_place(kernel, dying, born) if dying and born else {}
        for buffer in born:
            if buffer in shared:
                block = blocks[buffer] = blocks[shared[buffer]]
                block.buffers.append(buffer)
            else:
                nbytes = buffer.nbytes if element_bytes is None else buffer.size * element_bytes
                size = greatest(alignment, -(-nbytes // alignment) * alignment)
                block = blocks[buffer] = MemoryBlock(size, position, last[buffer], [buffer])
                found.append(block)
            block.last = max(block.last, last[buffer])
    return found


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
