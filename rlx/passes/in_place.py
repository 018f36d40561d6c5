"""Carries of loops that steps update in place: a copy of a carry that is then written in part.

A body that copies a carry and writes over some of the copy gets one buffer for both, if nothing
needs the old value after the first write. Carries that a step computes anew are left alone: those
alternate between two buffers without copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from rlx.ir.kernels import Access, Buffer, Instruction, Kernel, Loops, Plan, Scan, Store, While
from rlx.ir.verify_loops import is_injective, may_share
from rlx.passes.memory import renamed

__all__ = ["carries_in_place"]


def carries_in_place(body: Plan, constants: int, carries: int) -> tuple[Plan, tuple[int, ...]]:
    """The body with copies of carries left out, and which carries it now updates in place.

    The body's inputs are `constants` constants, then carries; its outputs begin with the next ones.
    """
    kernels: Sequence[Kernel] = body.kernels
    found = []
    for number in range(carries):
        changed = _in_place(kernels, body.inputs[constants + number], body.outputs[number])
        if changed is not None:
            kernels = changed
            found.append(number)
    return replace(body, kernels=tuple(kernels)) if found else body, tuple(found)


def _in_place(kernels: Sequence[Kernel], old: Buffer, new: Buffer) -> list[Kernel] | None:
    """The kernels with `old` and `new` as one buffer, or None where that saves or means nothing."""
    saved = written = False
    result: list[Kernel] = []
    for kernel in kernels:
        rest = _without_copies(kernel, old, new)
        saved = saved or rest is not kernel or _is_updating_loop(kernel, old, new)
        if rest is None:
            continue
        writes, reads = new in rest.writes, old in rest.reads
        if reads and (written or (writes and not _loads_before_storing(rest, old, new))):
            return None
        written = written or writes
        result.append(rest)
    return [renamed(kernel, {old: new}) for kernel in result] if saved else None


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

    def number(old: int | None) -> int | None:
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
                address=number(s.address),
                guard=number(s.guard),
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
    """Whether the kernel may read and write one buffer in place of the two."""
    if not isinstance(kernel, Loops):
        return _is_updating_loop(kernel, old, new)
    if kernel.chunks > 1 or any(i.op in ("reduce", "cumulate") for i in kernel.instructions):
        return False
    return (
        prod(kernel.sizes) == 1 or may_share(kernel, old, new) or _at_one_place(kernel, old, new)
    )


def _at_one_place(kernel: Loops, old: Buffer, new: Buffer) -> bool:
    """Whether each iteration loads only what it stores, all at one computed distance."""
    loads = [
        i for i in kernel.instructions
        if i.op == "load" and kernel.operands[i.attribute.operand] is old
    ]  # fmt: skip
    stores = [s for s in kernel.stores if kernel.operands[s.access.operand] is new]
    places = {(i.attribute.strides, i.attribute.offset, i.args) for i in loads}
    places |= {
        (s.access.strides, s.access.offset, () if s.address is None else (s.address,)) for s in stores
    }
    if len(places) != 1:
        return False
    ((_, _, address),) = places
    return is_injective(stores[0].access, kernel.sizes) and not any(_varies(kernel, n) for n in address)


def _varies(kernel: Loops, number: int) -> bool:
    """Whether an instruction has different values in different iterations."""
    instruction = kernel.instructions[number]
    if instruction.op == "index" or (instruction.op == "load" and any(instruction.attribute.strides)):
        return True
    return any(_varies(kernel, argument) for argument in instruction.args)
