"""Step: one launch of a kernel, as text and sizes; and the words that all strategies share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.names import identifier
from rlx.backends.loops.walk import Lines, Mapping, kernel_lines, kernel_parameters
from rlx.ir.kernels import Access, Buffer, Loops, reaches_apart
from rlx.ir.types import element_dtype

__all__ = [
    "Step", "arrays_of", "ceiling", "cleared", "element_bytes", "is_wide", "loops_step", "moves_apart", "step_of",
]  # fmt: skip

_NARROW = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One launch: `groups` groups of `items` work-items run a kernel on arrays, in the order of its parameters.

    strategy: how the work was shared, for people. text: the kernel's, by its name. Arrays that no plan has are
    scratch, for this kernel and those beside it that do the same work. unit: the name of the unit for matrices that
    makes its products, if one does (`Fragments.name`). parameters and body: what the text was made of. together: groups
    wait for one another, so that all of them have to run at the same time; `groups` is the most that are of use then.
    barriers: how often they do, a loop that ends by a condition counted once.
    """

    label: str
    strategy: str
    text: Callable[[str], str]
    arrays: tuple[Buffer, ...]
    groups: int
    items: int
    unit: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: tuple[str, ...] = ()
    together: bool = False
    barriers: int = 0


def ceiling(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)


def element_bytes(buffer: Buffer) -> int:
    """Bytes of one element as a kernel sees it: a part of a complex number."""
    dtype = buffer.dtype
    return element_dtype(dtype).itemsize


def arrays_of(kernel: Loops) -> tuple[Buffer, ...]:
    """The arrays of a kernel, in the order of its parameters."""
    return tuple(dict.fromkeys(kernel.operands))


def _reach(access: Access, kernel: Loops) -> int:
    """No position on the way to an element is farther from the array's beginning than this."""
    moved = sum(abs(s) * max(n - 1, 0) for s, n in zip(access.strides, kernel.sizes, strict=True))
    return abs(access.offset) + moved + abs(access.chunk_stride) * kernel.chunks


def is_wide(kernel: Loops, limits: Limits) -> bool:
    """Whether positions need 64 bits: of an element, of an iteration, of where a chunk begins."""
    largest = max((_reach(a, kernel) for a in kernel.accesses), default=0)
    first = kernel.sizes[0] * (kernel.chunks + 1) if kernel.chunks > 1 else 0
    sizes = max((b.size * (2 if b.dtype.kind == "c" else 1) for b in kernel.operands), default=0)
    # a group, and what an item takes at once, may go that far beyond the last one
    points = math.prod(kernel.sizes) + 64 * limits.group
    return limits.wide or max(largest, first, sizes, points) + 64 * limits.group > _NARROW


def moves_apart(access: Access, sizes: Sequence[int], dimensions: Sequence[int]) -> bool:
    """Whether different indices along those of the dimensions that move the access reach different elements."""
    moving = [d for d in dimensions if access.strides[d]]
    return reaches_apart([access.strides[d] for d in moving], [sizes[d] for d in moving])


def step_of(
    label: str,
    strategy: str,
    dialect: DeviceDialect,
    parameters: Sequence[Parameter],
    arrays: Sequence[Buffer],
    body: Sequence[str],
    groups: int,
    items: int,
    roomy: int = 0,
    unit: str = "",
) -> Step:
    """A step of a kernel with this body. roomy: see DeviceDialect.kernel_mark; unit: see Step."""

    def text(name: str) -> str:
        return dialect.kernel(name, parameters, items, body, roomy)

    name = f"{identifier(label, 'nest')}_kernel"
    return Step(name, strategy, text, tuple(arrays), groups, items, unit, tuple(parameters), tuple(body))


def cleared(label: str, buffer: Buffer, limits: Limits, dialect: DeviceDialect) -> Step:
    """The launch that sets a buffer of 32-bit integers to 0."""
    item = f"({dialect.number_type}){dialect.group_number()} * {limits.group} + {dialect.number_in_group()}"
    body = [dialect.number("point", item), f"if (point < {buffer.size}) cleared[point] = 0;"]
    return step_of(
        f"{label}_start", "items", dialect, [Parameter("cleared", buffer.dtype, True)], [buffer], body,
        ceiling(buffer.size, limits.group), limits.group,
    )  # fmt: skip


def loops_step(
    kernel: Loops,
    dialect: DeviceDialect,
    limits: Limits,
    mapping: Mapping,
    strategy: str,
    groups: int,
    items: int,
    declarations: Sequence[str] = (),
    scratch: Sequence[tuple[Parameter, Buffer]] = (),
) -> Step:
    """A nest as one launch: the walk says what is done, the mapping who does it."""
    with dialect.positions(is_wide(kernel, limits)):
        lines = Lines(dialect)
        lines.add(*declarations, *kernel_lines(kernel, dialect, mapping))
    parameters = [*kernel_parameters(kernel), *(parameter for parameter, _ in scratch)]
    arrays = [*arrays_of(kernel), *(buffer for _, buffer in scratch)]
    return step_of(kernel.label, strategy, dialect, parameters, arrays, lines.text, groups, items)
