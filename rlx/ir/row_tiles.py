"""Which kernels can run tile by tile: cut along one dimension, each part touching only its own.

A buffer in row tiles consists of `count` equal consecutive parts. A kernel is tiled if part r of its
iterations touches only part r of the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from rlx.ir.kernels import Access, Buffer, Contract, Kernel, Loops, Operand
from rlx.ir.size_functions import divides

__all__ = ["iterations", "stays_in_row_tiles"]


def iterations(kernel: Kernel) -> int:
    """The number of independent parts that a kernel can be cut into; 1 if it cannot be cut."""
    if isinstance(kernel, Contract):
        return kernel.batches * kernel.rows
    if not isinstance(kernel, Loops):
        return 1
    if kernel.chunks > 1:
        return kernel.chunks if kernel.sizes[0] % kernel.chunks == 0 else 1
    return prod(kernel.sizes[: kernel.parallel]) if kernel.parallel else 1


def stays_in_row_tiles(kernel: Kernel, buffer: Buffer, count: int) -> bool:
    """Whether the kernel, cut in `count` parts, touches only part r of the buffer in part r."""
    if isinstance(kernel, Contract):
        return all(_view_stays(kernel, operand, count) for operand in _views(kernel) if operand.buffer is buffer)
    assert isinstance(kernel, Loops)
    return all(_access_stays(kernel, access, count) for access in _accesses(kernel, buffer))


def _views(kernel: Contract) -> tuple[Operand, ...]:
    return kernel.lhs, kernel.rhs, kernel.out


def _view_stays(kernel: Contract, operand: Operand, count: int) -> bool:
    shape, strides = operand.shape, operand.strides
    if operand is kernel.rhs:  # every row of a batch reads the whole matrix
        shape = (*shape[:-2], kernel.rows, *shape[-2:])
        strides = (*strides[:-2], 0, *strides[-2:])
    return _stays(shape, strides, len(kernel.out.shape) - 1, operand.offset, count, operand.buffer.size)


def _accesses(kernel: Loops, buffer: Buffer) -> Iterator[Access | None]:
    """The index maps by which a kernel touches a buffer; None for places that it computes."""
    for instruction in kernel.instructions:
        if instruction.op == "load" and kernel.operands[instruction.attribute.operand] is buffer:
            yield None if instruction.args else instruction.attribute
    for store in kernel.stores:
        if kernel.operands[store.access.operand] is buffer:
            yield None if store.address is not None else store.access


def _access_stays(kernel: Loops, access: Access | None, count: int) -> bool:
    if access is None:
        return False
    buffer = kernel.operands[access.operand]
    size = buffer.real_size
    if kernel.chunks == 1:
        return _stays(kernel.sizes, access.strides, kernel.parallel, access.offset, count, size)
    if not access.chunk_stride:
        return _stays(kernel.sizes, access.strides, 1, access.offset, count, size)
    if access.strides[0]:
        return False
    sizes, strides = (kernel.chunks, *kernel.sizes[1:]), (access.chunk_stride, *access.strides[1:])
    return _stays(sizes, strides, 1, access.offset, count, size)


def _stays(
    sizes: Sequence[int], strides: Sequence[int], parallel: int, offset: int, count: int, elements: int
) -> bool:
    """Whether part r of the first `parallel` dimensions, taken as one, reaches only part r of the elements.

    A symbolic size is not cut in parts, even if a number happens to divide it.
    """
    if not divides(count, elements):
        return False
    part = elements // count
    remaining, leading, rest = count, [], []
    for dimension, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if dimension >= parallel or remaining == 1:
            rest.append((size, stride))
        elif divides(size, remaining):
            leading.append((size, stride))
            remaining //= size
        elif divides(remaining, size):
            length = size // remaining
            leading.append((remaining, stride * length))
            rest.append((length, stride))
            remaining = 1
        else:
            return False
    expected = part
    for size, stride in reversed(leading):
        if size > 1 and stride != expected:
            return False
        expected *= size
    low = offset + sum(stride * (size - 1) for size, stride in rest if stride < 0)
    high = offset + sum(stride * (size - 1) for size, stride in rest if stride > 0)
    return remaining == 1 and 0 <= low and high < part
