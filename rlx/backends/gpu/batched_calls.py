"""Users' kernels over a batch: one launch of a kernel that calls the user's, along a third dimension."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.loops.names import unused_name
from rlx.ir.user_functions import KernelCall

__all__ = ["BatchedCall", "batched_call"]

_DIMENSIONS = 3
_MOST_ELEMENTS = 65_535  # the largest number of groups along the third dimension on CUDA


@dataclass(frozen=True, slots=True)
class BatchedCall:
    """A kernel that calls a user's for each element of a batch. It takes arrays as rlx's own kernels do."""

    source: str
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]


def _element_of(call: KernelCall, moving: tuple[bool, ...]) -> str:
    """The index of an operand's element, from `element`, the index of the call in its batch."""
    terms, after, stride = [], 1, 1
    for (size, _), moves in reversed(list(zip(call.levels, moving, strict=True))):
        if moves:
            terms.append(f"element / {after} % {size} * {stride}")
            stride *= size
        after *= size
    return "element" if stride == after else " + ".join(reversed(terms))


def batched_call(call: KernelCall, dialect: DeviceDialect) -> BatchedCall | None:
    """One launch for a whole batch. None if the kernel is launched once for each element.

    That is the case if it has no batch, too many elements, three dimensions already, or reads the third one's indices.
    """
    elements = prod(size for size, _ in call.levels)
    grid, block = ((*sizes, 1, 1)[:_DIMENSIONS] for sizes in (call.grid, call.block))
    if not call.levels or not 0 < elements <= _MOST_ELEMENTS or (grid[-1], block[-1]) != (1, 1):
        return None
    if not dialect.calls_by_element(call.source):
        return None
    starts = []
    for number, each in enumerate((*call.outputs, *call.inputs)):
        of_input = number - len(call.outputs)
        index = _element_of(call, tuple(of_input < 0 or has[of_input] for _, has in call.levels))
        starts.append(f"({index}) * {each.size * each.dtype.itemsize}" if index else "0")
    name = unused_name(f"{call.name}_of_each_element", call.source)
    source = dialect.kernel_of_batch(call.source, name, call.name, block, starts)
    return BatchedCall(source, name, (*grid[:-1], elements), block)
