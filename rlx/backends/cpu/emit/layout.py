"""Which numbers of a Loops kernel are part of its code and which are run-time arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx.backends.cpu.emit.tiling import Tiling, tiled
from rlx.backends.loops.constants import argument_constants, constant_number
from rlx.ir.dims import is_sized
from rlx.ir.kernels import Access, Buffer, Instruction, Loops

__all__ = ["AccessForm", "AccessGroup", "Layout", "layout_of"]

# strides of the innermost loops up to this are part of the code: 1 and -1 make vector loads,
# small ones interleaved groups (complex numbers, trailing dimensions of pairs and triples)
_STATIC_STRIDE = 4
# a trailing row dimension of at most this size is unrolled
_STATIC_SIZE = 8
# accesses of one buffer and equal strides this near share their address arithmetic
_NEAR = 8


@dataclass(frozen=True, slots=True)
class AccessGroup:
    """Accesses of one operand with equal strides: static strides or the row slots of the others."""

    operand: int
    strides: tuple[int | None, ...]
    stride_slots: tuple[int, ...]
    offset_slot: int
    chunk_slot: int | None
    access: Access


@dataclass(frozen=True, slots=True)
class AccessForm:
    """An access as a group and a static distance from the group's own offset."""

    group: int
    delta: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a kernel's row of arguments; its code depends only on `signature`.

    `tiling.kernel` is the kernel that runs. Row: slots, sizes, full sizes of tiled dimensions, then
    for each group its offset, strides and chunk stride unless static, then the
    constants among the instructions that are arguments (number of the instruction -> slot).
    """

    tiling: Tiling
    alias: tuple[int, ...]
    static_sizes: tuple[int | None, ...]
    size_slots: tuple[int, ...]
    groups: tuple[AccessGroup, ...]
    load_forms: dict[int, AccessForm]
    store_forms: dict[int, AccessForm]
    constant_slots: dict[int, int]
    signature: tuple[object, ...]

    @property
    def classes(self) -> int:
        """The number of distinct buffers."""
        return 1 + max(self.alias, default=-1)

    @property
    def full_size_slots(self) -> dict[int, int]:
        """The slot of each tiled dimension's full size."""
        start = len(self.alias) + len(self.size_slots)
        return {d: start + n for n, d in enumerate(self.tiling.blocks)}

    def row(self, slot_of: Callable[[Buffer], int]) -> list[int]:
        """The numbers, in the order of the slots."""
        kernel = self.tiling.kernel
        numbers = [slot_of(buffer) for buffer in kernel.operands]
        numbers += kernel.sizes
        numbers += [size for _, size in self.tiling.blocks.values()]
        for group in self.groups:
            numbers.append(group.access.offset)
            numbers += [
                stride
                for stride, static in zip(group.access.strides, group.strides, strict=True)
                if static is None
            ]
            if group.chunk_slot is not None:
                numbers.append(group.access.chunk_stride)
        numbers += [_word(kernel.instructions[n]) for n in self.constant_slots]
        return numbers


def _word(instruction: Instruction) -> int:
    """The constant in a word: an integer itself, a float's bits."""
    if is_sized(instruction.attribute):
        return instruction.attribute.bits()
    number = constant_number(instruction)
    if instruction.dtype.kind == "f":
        number = number.view(f"i{instruction.dtype.itemsize}")
    return int(number)


def _static_sizes(kernel: Loops) -> tuple[int | None, ...]:
    sizes: list[int | None] = [None] * len(kernel.sizes)
    last = len(kernel.sizes) - 1
    chunked = kernel.chunks > 1 and last == 0
    if kernel.outer < len(kernel.sizes) and not chunked and kernel.sizes[last] <= _STATIC_SIZE:
        sizes[last] = kernel.sizes[last]
    return tuple(sizes)


def _static_strides(access: Access, innermost: int) -> tuple[int | None, ...]:
    return tuple(
        stride if stride == 0 or (d >= innermost and abs(stride) <= _STATIC_STRIDE) else None
        for d, stride in enumerate(access.strides)
    )


class _Grouping:
    """Collects access groups and gives their numbers places in the row."""

    def __init__(self, kernel: Loops, static_sizes: tuple[int | None, ...], start: int) -> None:
        self.chunked = kernel.chunks > 1
        unrolled = bool(static_sizes) and static_sizes[-1] is not None
        self.innermost = len(kernel.sizes) - (2 if unrolled else 1)
        self.groups: list[AccessGroup] = []
        self.next_slot = start

    def form(self, access: Access) -> AccessForm:
        for number, group in enumerate(self.groups):
            first = group.access
            delta = access.offset - first.offset
            same = (access.operand, access.strides, access.chunk_stride) == (
                first.operand, first.strides, first.chunk_stride,
            )  # fmt: skip
            if same and abs(delta) <= _NEAR:
                return AccessForm(number, delta)
        self.groups.append(self._group(access))
        return AccessForm(len(self.groups) - 1, 0)

    def _take(self) -> int:
        self.next_slot += 1
        return self.next_slot - 1

    def _group(self, access: Access) -> AccessGroup:
        strides = _static_strides(access, self.innermost)
        offset_slot = self._take()
        stride_slots = tuple(self._take() if s is None else -1 for s in strides)
        chunked = self.chunked and access.chunk_stride != 0
        chunk_slot = self._take() if chunked else None
        return AccessGroup(access.operand, strides, stride_slots, offset_slot, chunk_slot, access)


def layout_of(kernel: Loops, tile: bool = True) -> Layout:
    """The layout of a kernel; `tile` lets it be cut in tiles or panels."""
    tiling = tiled(kernel) if tile else Tiling(kernel, kernel, {})
    kernel = tiling.kernel
    numbers: dict[int, int] = {}
    alias = tuple(numbers.setdefault(id(b), len(numbers)) for b in kernel.operands)
    operands, rank = len(kernel.operands), len(kernel.sizes)
    static_sizes = _static_sizes(kernel)
    grouping = _Grouping(kernel, static_sizes, operands + rank + len(tiling.blocks))
    load_forms = {
        n: grouping.form(i.attribute) for n, i in enumerate(kernel.instructions) if i.op == "load"
    }
    store_forms = {n: grouping.form(s.access) for n, s in enumerate(kernel.stores)}
    groups = tuple(grouping.groups)
    constants = argument_constants(kernel)
    constant_slots = {n: grouping.next_slot + k for k, n in enumerate(constants)}
    parallel = kernel.parallel if kernel.chunks == 1 else 0
    signature = (
        (rank, kernel.outer, parallel, kernel.chunks > 1, static_sizes, alias),
        (tiling.panel, *((inner, block) for inner, (block, _) in tiling.blocks.items())),
        tuple(b.dtype.name for b in kernel.operands),
        tuple((g.operand, g.strides, g.chunk_slot is not None) for g in groups),
        tuple((f.group, f.delta) for f in (*load_forms.values(), *store_forms.values())),
        tuple(constants),
    )
    return Layout(
        tiling=tiling,
        alias=alias,
        static_sizes=static_sizes,
        size_slots=tuple(range(operands, operands + rank)),
        groups=groups,
        load_forms=load_forms,
        store_forms=store_forms,
        constant_slots=constant_slots,
        signature=signature,
    )
