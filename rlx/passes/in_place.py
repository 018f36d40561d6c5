"""Carries of loops that steps update in place: a copy of a carry that is then written in part.

A body that copies a carry and writes over some of the copy gets one buffer for both, if nothing
needs the old value after the first write. Carries that a step computes anew are left alone: those
alternate between two buffers without copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from rlx.ir.kernels import Access, Buffer, Instruction, Kernel, Loops, Plan, Scan, Store, While
from rlx.ir.verify_loops import may_update
from rlx.passes.rename import renamed

__all__ = ["Joined", "carries_in_place", "join_buffers"]


class Joined(NamedTuple):
    """Kernels in which two buffers became one, and the buffers that this took."""

    kernels: tuple[Kernel, ...]
    temporaries: tuple[Buffer, ...]


def carries_in_place(body: Plan, constants: int, carries: int) -> tuple[Plan, tuple[int, ...]]:
    """The body with copies of carries left out, and which carries it now updates in place.

    The body's inputs are `constants` constants, then carries; its outputs begin with the next ones.
    Its memory has to be planned again.
    """
    found = []
    for number in range(carries):
        joined = join_buffers(body.kernels, body.inputs[constants + number], body.outputs[number])
        if joined is not None:
            buffers = (*body.buffers, *joined.temporaries)
            body = replace(body, kernels=joined.kernels, buffers=buffers)
            found.append(number)
    return body, tuple(found)


def join_buffers(kernels: Sequence[Kernel], old: Buffer, new: Buffer) -> Joined | None:
    """The kernels with `new`, a copy of `old` at first, in the place of both.

    None where that saves no copy, or `old` is needed after `new` has changed.
    """
    joining = _Joining(old, new)
    for kernel in kernels:
        rest = _without_copies(kernel, old, new)
        joining.saved = joining.saved or rest is not kernel or _is_updating_loop(kernel, old, new)
        if rest is not None and not joining.take(rest):
            return None
    if not joining.saved:
        return None
    result = tuple(renamed(kernel, {old: new}) for kernel in joining.kernels)
    return Joined(result, tuple(joining.temporaries))


class _Joining:
    """The attempt to make two buffers the same, kernel by kernel."""

    def __init__(self, old: Buffer, new: Buffer) -> None:
        self.old, self.new = old, new
        self.temporaries: list[Buffer] = []
        self.kernels: list[Kernel] = []
        self.saved = False
        self.first_write: int | None = None  # of `new`: a position in kernels

    def take(self, kernel: Kernel) -> bool:
        """Go on with the next kernel; False where it would see what it must not."""
        writes, reads = self.new in kernel.writes, self.old in kernel.reads
        if self.old in kernel.writes and (self.saved or self.first_write is not None):
            return False
        if reads and self.first_write is not None:
            parts: tuple[Kernel, ...] = self.loaded_early(kernel, self.first_write)
        elif reads and writes and not _loads_before_storing(kernel, self.old, self.new):
            parts = self.computed_first(kernel)
        else:
            parts = (kernel,)
        if writes and self.first_write is None:
            self.first_write = len(self.kernels) + len(parts) - 1
        self.kernels.extend(parts)
        return bool(parts)

    def loaded_early(self, kernel: Kernel, position: int) -> tuple[Loops, ...]:
        """The kernel with what it loads of `old` loaded before `new` changed, at `position`."""
        if not isinstance(kernel, Loops) or not self.is_small(kernel):
            return ()
        instructions = list(kernel.instructions)
        operands, stores = list(kernel.operands), []
        for number, instruction in enumerate(kernel.instructions):
            if instruction.op == "load" and kernel.operands[instruction.attribute.operand] is self.old:
                access = Access(len(operands), _dense(kernel.sizes))
                operands.append(self.temporary(instruction.dtype, prod(kernel.sizes)))
                stores.append(Store(number, access))
                instructions[number] = Instruction("load", (), instruction.dtype, access)
        wide = replace(kernel, operands=tuple(operands))
        early = _with_stores(wide, tuple(stores))
        changed = {buffer for later in self.kernels[position:] for buffer in later.writes}
        if changed.intersection(early.reads):
            return ()
        self.kernels.insert(position, replace(early, parallel=0))
        self.first_write = position + 1
        return (_with_stores(replace(wide, instructions=tuple(instructions)), kernel.stores),)

    def is_small(self, kernel: Loops) -> bool:
        """Whether values of all iterations are cheaper to keep than a copy."""
        return kernel.chunks == 1 and not _has_passes(kernel) and 2 * prod(kernel.sizes) <= self.new.size

    def computed_first(self, kernel: Kernel) -> tuple[Loops, ...]:
        """The kernel in two, of which the first computes and the second updates the carry."""
        if not isinstance(kernel, Loops) or not self.is_small(kernel):
            return ()
        strides = _dense(kernel.sizes)
        first: list[Store] = []
        second: list[Store] = []
        temporaries: list[tuple[int, Access, Buffer]] = []
        for store in kernel.stores:
            if kernel.operands[store.access.operand] is not self.new:
                first.append(store)
                continue
            held = self.temporary(kernel.instructions[store.value].dtype, prod(kernel.sizes))
            access = Access(len(kernel.operands) + len(temporaries), strides)
            temporaries.append((store.value, access, held))
            first.append(Store(store.value, access))
            second.append(store)
        wide = replace(kernel, operands=(*kernel.operands, *(held for _, _, held in temporaries)))
        instructions = list(wide.instructions)
        places = {}
        for value, access, _ in temporaries:
            places[value] = len(instructions)
            instructions.append(Instruction("load", (), instructions[value].dtype, access))
        moved = tuple(replace(store, value=places[store.value]) for store in second)
        update = _with_stores(replace(wide, instructions=tuple(instructions)), moved)
        if self.old in update.reads:
            return ()
        return _with_stores(wide, tuple(first)), update

    def temporary(self, dtype: np.dtype, size: int) -> Buffer:
        """A new buffer."""
        self.temporaries.append(Buffer(dtype, size))
        return self.temporaries[-1]


def _dense(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _has_passes(kernel: Loops) -> bool:
    return any(i.op in ("reduce", "cumulate") for i in kernel.instructions)


# ---------------------------------------------------------------- copies
def _without_copies(kernel: Kernel, old: Buffer, new: Buffer) -> Kernel | None:
    """The kernel without stores of elements of `old` to the same places of `new`."""
    if not isinstance(kernel, Loops) or kernel.chunks > 1:
        return kernel
    stores = tuple(s for s in kernel.stores if not _copies(kernel, s, old, new))
    if len(stores) == len(kernel.stores):
        return kernel
    return _with_stores(kernel, stores) if stores else None


def _copies(kernel: Loops, store: Store, old: Buffer, new: Buffer) -> bool:
    value = kernel.instructions[store.value]
    if value.op != "load" or value.args or store.address is not None or store.accumulate:
        return False
    read: Access = value.attribute
    same = (read.strides, read.offset, read.chunk_stride) == (
        store.access.strides, store.access.offset, store.access.chunk_stride,
    )  # fmt: skip
    operands = kernel.operands
    return same and operands[read.operand] is old and operands[store.access.operand] is new


def _with_stores(kernel: Loops, stores: tuple[Store, ...]) -> Loops:
    """The kernel with these stores only, and what they need."""
    needed: set[int] = set()
    pending = [n for s in stores for n in (s.value, s.address, s.guard) if n is not None]
    while pending:
        number = pending.pop()
        if number not in needed:
            needed.add(number)
            pending.extend(kernel.instructions[number].args)
    kept = sorted(needed)
    place = {old: new for new, old in enumerate(kept)}
    used = {kernel.instructions[n].attribute.operand for n in kept if kernel.instructions[n].op == "load"}
    used |= {store.access.operand for store in stores}
    operand = {old: new for new, old in enumerate(sorted(used))}

    def moved(access: Access) -> Access:
        return replace(access, operand=operand[access.operand])

    def instruction(old: Instruction) -> Instruction:
        args = tuple(place[a] for a in old.args)
        attribute = moved(old.attribute) if old.op == "load" else old.attribute
        return replace(old, args=args, attribute=attribute)

    def placed(old: int | None) -> int | None:
        return None if old is None else place[old]

    return replace(
        kernel,
        operands=tuple(kernel.operands[n] for n in sorted(used)),
        instructions=tuple(instruction(kernel.instructions[n]) for n in kept),
        stores=tuple(
            replace(
                s,
                value=place[s.value],
                access=moved(s.access),
                address=placed(s.address),
                guard=placed(s.guard),
            )
            for s in stores
        ),
    )


# ---------------------------------------------------------------- hazards
def _is_updating_loop(kernel: Kernel, old: Buffer, new: Buffer) -> bool:
    """Whether the kernel is a loop that brings the carry from `old` to `new` in place."""
    if not isinstance(kernel, (Scan, While)) or kernel.reads.count(old) != 1:
        return False
    pairs = [(kernel.initial[k], kernel.final[k]) for k in kernel.in_place]
    return (old, new) in pairs


def _loads_before_storing(kernel: Kernel, old: Buffer, new: Buffer) -> bool:
    """Whether the kernel may read and write one buffer in place of the two.

    A backend may keep a value of an early pass over a row in the place that a later pass writes,
    so that kernels with reductions may not.
    """
    if not isinstance(kernel, Loops):
        return _is_updating_loop(kernel, old, new)
    return kernel.chunks == 1 and not _has_passes(kernel) and may_update(kernel, old, new)
