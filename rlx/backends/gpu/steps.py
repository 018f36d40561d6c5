"""Step: one launch of a kernel, as source and sizes; and the helpers of all strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import REGISTER_BYTES, Limits
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.names import identifier
from rlx.backends.loops.printing import printed
from rlx.backends.loops.walk import Mapping, kernel_code, kernel_parameters
from rlx.code.checking import check_code
from rlx.code.inlining import inlined
from rlx.code.passed import with_arguments
from rlx.code.tree import Allocate, Argument, Array, Block, Coordinate, Divisor, Number
from rlx.code.writing import CodeWriter
from rlx.config import config
from rlx.ir.kernels import Access, Buffer, Loops, Operand, reaches_apart
from rlx.ir.types import element_dtype

__all__ = [
    "LaunchStep", "arrays_of", "ceiling", "cleared", "code_step", "element_bytes", "is_wide", "loops_step",
    "moves_apart", "parameter_array", "position_dtype", "position_in", "step_of",
]  # fmt: skip

_NARROW = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class LaunchStep:
    """One launch: `groups` groups of `items` work-items run a kernel on arrays, in the order of its parameters.

    strategy: a description of how the work is shared. text: the kernel's, by its name. Arrays that are not in a
    plan are scratch memory for this kernel and its other launches. unit: the name of the matrix unit that computes its
    products, if one does (`Fragments.name`). parameters and body: the parts of the text. together: groups wait for one
    another, so that all of them have to run at the same time; `groups` is then the largest useful number. code: the
    tree from which the text is printed. numbers: those that the launch passes after the arrays.
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
    code: Block = ()
    numbers: tuple[Argument, ...] = ()

    @property
    def passed(self) -> tuple[np.generic, ...]:
        """The numbers as the kernel takes them."""
        return tuple(number for argument in self.numbers for number in _passed(argument))


def _passed(argument: Argument) -> tuple[np.generic, ...]:
    number = argument.dtype.type(argument.value)
    if isinstance(argument, Divisor):
        return number, np.uint32(argument.multiplier), np.uint32(argument.shift)
    return (number,)


def ceiling(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)


def element_bytes(buffer: Buffer) -> int:
    """Bytes of one element as a kernel sees it: one part, for a complex number."""
    dtype = buffer.dtype
    return element_dtype(dtype).itemsize


def arrays_of(kernel: Loops) -> tuple[Buffer, ...]:
    """The arrays of a kernel, in the order of its parameters."""
    return tuple(dict.fromkeys(kernel.operands))


def _reach(access: Access, kernel: Loops) -> int:
    """An upper bound of the positions computed on the way to an element."""
    moved = sum(abs(s) * max(n - 1, 0) for s, n in zip(access.strides, kernel.sizes, strict=True))
    return abs(access.offset) + moved + abs(access.chunk_stride) * kernel.chunks


def is_wide(kernel: Loops, limits: Limits) -> bool:
    """Whether positions need 64 bits: of elements, of iterations, of the beginnings of chunks."""
    largest = max((_reach(a, kernel) for a in kernel.accesses), default=0)
    first = kernel.sizes[0] * (kernel.chunks + 1) if kernel.chunks > 1 else 0
    sizes = max((b.real_size for b in kernel.operands), default=0)
    # the last group, and the last vector of a work-item, may extend this far beyond the last element
    points = math.prod(kernel.sizes) + 64 * limits.group
    return limits.wide or max(largest, first, sizes, points) + 64 * limits.group > _NARROW


def moves_apart(access: Access, sizes: Sequence[int], dimensions: Sequence[int]) -> bool:
    """Whether different indices reach different elements, for those dimensions that move the access."""
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
    code: Block = (),
    numbers: tuple[Argument, ...] = (),
) -> LaunchStep:
    """A step of a kernel with this body. roomy: see DeviceDialect.kernel_mark; unit, code, numbers: see LaunchStep."""

    def text(name: str) -> str:
        return dialect.kernel(name, parameters, items, body, roomy, numbers)

    name = f"{identifier(label, 'nest')}_kernel"
    return LaunchStep(
        name, strategy, text, tuple(arrays), int(groups), items, unit, tuple(parameters), tuple(body), code=code,
        numbers=numbers,
    )  # fmt: skip


def cleared(label: str, buffer: Buffer, limits: Limits, dialect: DeviceDialect) -> LaunchStep:
    """The launch that sets a buffer of 32-bit integers to 0."""
    code = CodeWriter()
    item, group = Coordinate(np.dtype(np.int32), "item"), Coordinate(np.dtype(np.uint32), "group")
    point = code.declare("point", group * limits.group + item)
    with code.when(point < buffer.size):
        code.write(Array("cleared", buffer.dtype)[point], Number(buffer.dtype, 0))
    return code_step(
        f"{label}_start", "items", dialect, [Parameter("cleared", buffer.dtype, True)], [buffer], code.block,
        ceiling(buffer.size, limits.group), limits.group,
    )  # fmt: skip


def code_step(
    label: str,
    strategy: str,
    dialect: DeviceDialect,
    parameters: Sequence[Parameter],
    arrays: Sequence[Buffer],
    code: Block,
    groups: int,
    items: int,
    unit: str = "",
    roomy: int = 0,
) -> LaunchStep:
    """A step of a kernel with this code. roomy: see DeviceDialect.kernel_mark."""
    small, numbers = with_arguments(inlined(code))
    if config.check:
        check_code(small, most_item_bytes=REGISTER_BYTES)
    body = printed(small, dialect)
    return step_of(label, strategy, dialect, parameters, arrays, body, groups, items, roomy, unit, small, numbers)


def position_dtype(wide: bool) -> np.dtype:
    """The dtype of positions: devices divide and multiply 64-bit numbers slowly."""
    return np.dtype(np.int64 if wide else np.int32)


def position_in(limits: Limits, *operands: Operand) -> np.dtype:
    """The dtype of positions in arrays of real numbers, or of the parts of complex ones."""
    return position_dtype(limits.wide or max(operand.buffer.size for operand in operands) >= 1 << 29)


def parameter_array(parameters: dict[Parameter, Buffer], name: str, buffer: Buffer, written: bool) -> Array:
    """An array that a kernel takes, added to its parameters; references to one array share a name."""
    for known, other in parameters.items():
        if other is buffer:
            known.written |= written
            return Array(known.name, element_dtype(buffer.dtype))
    parameters[Parameter(name, buffer.dtype, written)] = buffer
    return Array(name, element_dtype(buffer.dtype))


def loops_step(
    kernel: Loops,
    dialect: DeviceDialect,
    limits: Limits,
    mapping: Mapping,
    strategy: str,
    groups: int,
    items: int,
    group_arrays: Sequence[Array] = (),
    scratch: Sequence[tuple[Parameter, Buffer]] = (),
) -> LaunchStep:
    """A nest as one launch: the walk makes the code, the mapping divides it among the work-items."""
    code = kernel_code(kernel, mapping, position_dtype(is_wide(kernel, limits)))
    parameters = [*kernel_parameters(kernel), *(parameter for parameter, _ in scratch)]
    arrays = [*arrays_of(kernel), *(buffer for _, buffer in scratch)]
    whole = (*map(Allocate, group_arrays), *code)
    return code_step(kernel.label, strategy, dialect, parameters, arrays, whole, groups, items)
