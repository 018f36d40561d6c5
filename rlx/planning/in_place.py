"""Carries of loops that steps update in place: a copy of a carry that is then written in part.

A body that copies a carry and writes over some of the copy gets one buffer for both, if nothing
needs the old value after the first write. Carries that a step computes anew are left alone: those
alternate between two buffers without copies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from rlx.ir.kernels import Access, Buffer, Instruction, Kernel, Loops, Plan, Scan, Store, While
from rlx.ir.rename import renamed
from rlx.ir.verify_loops import may_update

__all__ = ["KernelRows", "carries_in_place", "results_over_arguments"]


def carries_in_place(body: Plan, constants: int, carries: int) -> Plan:
    """The body with copies of carries left out; `held` lists the carries that it now updates in place."""
    rows = KernelRows(body.kernels)
    pairs = zip(body.inputs[constants : constants + carries], body.outputs, strict=False)
    held = tuple(number for number, (old, new) in enumerate(pairs) if rows.join(old, new))
    if not held:
        return body
    return replace(body, kernels=rows.kernels, buffers=(*body.buffers, *rows.temporaries), held=held)


def results_over_arguments(plan: Plan, pairs: Sequence[tuple[int, int]]) -> Plan:
    """The plan with some outputs written over inputs, for pairs of an input's and an output's number.

    These outputs are held and stand for the inputs, which kernels no longer read. A result that would overwrite a value
    which a kernel still needs is computed in a temporary and copied at the end. Temporaries have to be placed again.
    """
    rows = KernelRows(plan.kernels)
    copied = [(i, o) for i, o in pairs if not rows.join(plan.inputs[i], plan.outputs[o], always=True)]
    renames: dict[Buffer, Buffer] = {}
    copies: list[Kernel] = []
    for i, o in copied:
        place = plan.outputs[o]
        result = _added(rows.temporaries, place.dtype, place.size)
        renames |= {plan.inputs[i]: place, place: result}
        copies.append(_copy(result, place))
    kernels = (*(renamed(kernel, renames) for kernel in rows.kernels), *copies)
    held = tuple(sorted({*plan.held, *(o for _, o in pairs)}))
    return replace(plan, kernels=kernels, buffers=(*plan.buffers, *rows.temporaries), held=held)


def _copy(source: Buffer, target: Buffer) -> Loops:
    load = Instruction("load", (), source.dtype, Access(0, (1,)))
    return Loops((source.size,), 1, (source, target), (load,), (Store(0, Access(1, (1,))),), parallel=1, label="copy")


class KernelRows:
    """Kernels in order, in which buffers are joined; a join visits only kernels that touch the two buffers.

    A row holds the replacement of one kernel: itself, nothing, or a few kernels. `temporaries` are the buffers
    that joins have added.
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.rows: list[tuple[Kernel, ...]] = [(kernel,) for kernel in kernels]
        self.temporaries: list[Buffer] = []
        self._touching: dict[Buffer, list[int]] = {}  # rows of a buffer, ascending
        for position in range(len(self.rows)):
            self._note(position)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels as they are now."""
        return tuple(kernel for row in self.rows for kernel in row)

    def join(self, old: Buffer, new: Buffer, *, always: bool = False) -> bool:
        """Let `new`, a copy of `old` at first, take the place of both.

        Returns False without a change if that saves no copy (unless `always`), or if `old` is needed after `new`
        has changed.
        """
        of_old = self._touching.get(old, [])
        if not of_old or new not in self._touching:
            return always
        # kernels after the last use of `old` are not affected
        of_new = self._touching[new][: bisect_right(self._touching[new], of_old[-1])]
        joining = _Joining(old, new, self.rows)
        for position in sorted({*of_old, *of_new}):
            joining.rows[position] = []
            for kernel in self.rows[position]:
                rest = _without_copies(kernel, old, new)
                joining.saved = joining.saved or rest is not kernel or _is_updating_loop(kernel, old, new)
                if rest is not None and not joining.take(rest, position):
                    return False
        if not (joining.saved or always):
            return False
        for position, row in joining.rows.items():
            self.rows[position] = tuple(renamed(kernel, {old: new}) for kernel in row)
            self._note(position)
        self.temporaries += joining.temporaries
        del self._touching[old]
        return True

    def _note(self, position: int) -> None:
        """Enter a row under the buffers that it touches."""
        for kernel in self.rows[position]:
            for buffer in (*kernel.reads, *kernel.writes):
                found = self._touching.setdefault(buffer, [])
                place = bisect_left(found, position)
                if place == len(found) or found[place] != position:
                    found.insert(place, position)


class _Joining:
    """The attempt to make two buffers the same, kernel by kernel."""

    def __init__(self, old: Buffer, new: Buffer, before: Sequence[tuple[Kernel, ...]]) -> None:
        self.old, self.new, self.before = old, new, before
        self.temporaries: list[Buffer] = []
        self.rows: dict[int, list[Kernel]] = {}  # those that change
        self.saved = False
        self.first_write: tuple[int, int] | None = None  # of `new`: a row, and a kernel in it

    def take(self, kernel: Kernel, position: int) -> bool:
        """Continue with the next kernel of a row; False if it would read a value that has changed."""
        writes, reads = self.new in kernel.writes, self.old in kernel.reads
        if self.old in kernel.writes and (self.saved or self.first_write is not None):
            return False
        if reads and self.first_write is not None:
            parts: tuple[Kernel, ...] = self.loaded_early(kernel, position)
        elif reads and writes and not _loads_before_storing(kernel, self.old, self.new):
            parts = self.computed_first(kernel)
        else:
            parts = (kernel,)
        self.rows[position].extend(parts)
        if writes and self.first_write is None:
            self.first_write = position, len(self.rows[position]) - 1
        return bool(parts)

    def changed_until(self, position: int) -> set[Buffer]:
        """The buffers written from the first write of `new` to a row."""
        assert self.first_write is not None
        row, place = self.first_write
        kernels = list(self.rows[row][place:])
        for later in range(row + 1, position + 1):
            kernels += self.rows.get(later, self.before[later])
        return {buffer for kernel in kernels for buffer in kernel.writes}

    def loaded_early(self, kernel: Kernel, position: int) -> tuple[Loops, ...]:
        """A row's kernel with its loads of `old` moved before the first write of `new`."""
        if not isinstance(kernel, Loops) or not self.is_small(kernel) or self.first_write is None:
            return ()
        instructions = list(kernel.instructions)
        operands, stores = list(kernel.operands), []
        for number, instruction in enumerate(kernel.instructions):
            if instruction.op == "load" and kernel.operands[instruction.attribute.operand] is self.old:
                access = Access(len(operands), _dense(kernel.sizes))
                operands.append(_added(self.temporaries, instruction.dtype, prod(kernel.sizes)))
                stores.append(Store(number, access))
                instructions[number] = Instruction("load", (), instruction.dtype, access)
        wide = replace(kernel, operands=tuple(operands))
        early = _with_stores(wide, tuple(stores))
        if self.changed_until(position).intersection(early.reads):
            return ()
        row, place = self.first_write
        self.rows[row].insert(place, replace(early, parallel=0))
        self.first_write = row, place + 1
        return (_with_stores(replace(wide, instructions=tuple(instructions)), kernel.stores),)

    def is_small(self, kernel: Loops) -> bool:
        """Whether values of all iterations are cheaper to keep than a copy."""
        whole = kernel.chunks == 1 and not _has_passes(kernel) and not any(s.once for s in kernel.stores)
        return whole and 2 * prod(kernel.sizes) <= self.new.size

    def computed_first(self, kernel: Kernel) -> tuple[Loops, ...]:
        """The kernel split in two: the first computes, the second updates the carry."""
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
            held = _added(self.temporaries, kernel.instructions[store.value].dtype, prod(kernel.sizes))
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


def _added(temporaries: list[Buffer], dtype: np.dtype, size: int) -> Buffer:
    """A new buffer among temporaries."""
    temporaries.append(Buffer(dtype, size))
    return temporaries[-1]


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
    """The kernel with these stores only, and the instructions that they need."""
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
    so kernels with reductions may not.
    """
    if not isinstance(kernel, Loops):
        return _is_updating_loop(kernel, old, new)
    return kernel.chunks == 1 and not _has_passes(kernel) and may_update(kernel, old, new)
