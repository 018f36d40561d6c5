"""Products that are one kernel with the nests around them: a nest that only makes an operand, and one that only reads
the result. Indices of the one are digits of indices of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rlx.ir.kernels import Access, Buffer, Contract, Instruction, Loops, Operand, RowTiles, Store

__all__ = ["Digit", "FusedProduct", "fused_product", "is_map", "operand_digits", "result_digits", "with_stores"]


class Digit(NamedTuple):
    """A part of a loop's index: axis // divisor, modulo `modulus` if there is one (None: the axis ends there), times
    weight."""

    axis: int
    divisor: int
    modulus: int | None
    weight: int


class FusedProduct(NamedTuple):
    """A product with the nests fused into it: the producers of lhs and rhs, and the consumer of the result, which
    is stored if it has other consumers."""

    contract: Contract
    lhs: Loops | None = None
    rhs: Loops | None = None
    reader: Loops | None = None
    stored: bool = True

    @property
    def grows(self) -> bool:
        """Whether an operand is larger than the buffers that it is computed from, like the windows of a convolution."""
        return any(
            maker is not None and sum(b.nbytes for b in maker.writes) > sum(b.nbytes for b in {*maker.reads})
            for maker in (self.lhs, self.rhs)
        )


def fused_product(kernel: RowTiles) -> FusedProduct | None:
    """The product that row tiles stand for, if they are one with the nests around it."""
    products = [k for k in kernel.kernels if isinstance(k, Contract)]
    if kernel.count != 1 or len(products) != 1:
        return None
    (product,) = products
    makers: dict[Buffer, Loops] = {}
    reader = None
    for nest in kernel.kernels:
        if isinstance(nest, Loops) and product.out.buffer in nest.reads:
            reader = nest
        elif isinstance(nest, Loops):
            makers |= dict.fromkeys(nest.writes, nest)
    lhs, rhs = (makers.get(operand.buffer) for operand in (product.lhs, product.rhs))
    return FusedProduct(product, lhs, rhs, reader, product.out.buffer not in kernel.local)


def is_map(kernel: Loops) -> bool:
    """Whether every iteration computes and writes its own elements, at positions given by indices."""
    plain = all(s.address is None and s.guard is None and s.accumulate is None for s in kernel.stores)
    return plain and kernel.chunks == 1 and not any(i.op in ("reduce", "cumulate") for i in kernel.instructions)


def with_stores(kernel: Loops, stores: Sequence[Store]) -> Loops:
    """A nest with only some of its stores."""
    wanted = {n for s in stores for n in (s.value, s.address, s.guard) if n is not None}
    for number in reversed(range(len(kernel.instructions))):
        if number in wanted:
            wanted |= {*kernel.instructions[number].args}
    kept = {old: new for new, old in enumerate(sorted(wanted))}
    loads = {i.attribute.operand for n, i in enumerate(kernel.instructions) if n in kept and i.op == "load"}
    operands = {old: new for new, old in enumerate(sorted(loads | {s.access.operand for s in stores}))}

    def moved(access: Access) -> Access:
        return replace(access, operand=operands[access.operand])

    def renumbered(instruction: Instruction) -> Instruction:
        attribute = moved(instruction.attribute) if instruction.op == "load" else instruction.attribute
        return replace(instruction, args=tuple(kept[a] for a in instruction.args), attribute=attribute)

    def rewritten(store: Store) -> Store:
        numbers = {
            name: kept[n] for name in ("value", "address", "guard") if (n := getattr(store, name)) is not None
        }
        return replace(store, access=moved(store.access), **numbers)

    return replace(
        kernel,
        operands=tuple(kernel.operands[n] for n in operands),
        instructions=tuple(renumbered(kernel.instructions[n]) for n in kept),
        stores=tuple(map(rewritten, stores)),
    )


def operand_digits(maker: Loops, operand: Operand) -> list[list[Digit]] | None:
    """The index of each of a nest's loops, of the axes of the operand that it makes; None if they are not digits."""
    (store,) = maker.stores
    return _digits(store.access, maker.sizes, operand)


def result_digits(reader: Loops, result: Operand) -> list[list[Digit]] | None:
    """The index of each of a nest's loops, of the axes of the result that it reads; None if they are not digits."""
    loads = [i for i in reader.instructions if i.op == "load" and reader.operands[i.attribute.operand] is result.buffer]
    if len({i.attribute for i in loads}) != 1 or any(i.args for i in loads):
        return None
    return _digits(loads[0].attribute, reader.sizes, result)


def _digits(access: Access, sizes: Sequence[int], operand: Operand) -> list[list[Digit]] | None:
    """Each loop's index as a sum of digits of axes: both walk the same run of elements, innermost first."""
    axes = sorted((s, n, number) for number, (s, n) in enumerate(zip(operand.strides, operand.shape, strict=True)))
    loops = sorted((s, n, number) for number, (s, n) in enumerate(zip(access.strides, sizes, strict=True)) if n > 1)
    axes = [(s, n, number) for s, n, number in axes if n > 1 and s]
    found: list[list[Digit]] = [[] for _ in sizes]
    place, inside, within = 1, 1, 1  # of elements, of the axis, of the loop
    if access.offset != operand.offset or operand.buffer.dtype.kind == "c":
        return None
    while axes and loops:
        (axis_stride, size, axis), (stride, count, loop) = axes[0], loops[0]
        if axis_stride * inside != place or stride * within != place:
            return None
        rest = (size // inside, count // within)
        step = min(rest)
        if rest[0] % step or rest[1] % step:
            return None
        found[loop].append(Digit(axis, inside, None if rest[0] == step else step, within))
        place, inside, within = place * step, inside * step, within * step
        if inside == size:
            axes, inside = axes[1:], 1
        if within == count:
            loops, within = loops[1:], 1
    return None if axes or loops else found
