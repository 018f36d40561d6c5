"""Sizes as arguments: kernels whose outer sizes, strides, offsets and counts are passed by the launch.

The text of a kernel then depends on its structure, on the lengths of its rows, and on decisions about its sizes, such
as the strategy and the width of vectors. A new batch size, offset or length of a sequence compiles nothing.
"""

from __future__ import annotations

from dataclasses import replace

from rlx.backends.gpu.grid import ordered
from rlx.backends.loops.constants import argument_constants
from rlx.backends.loops.row_schedule import row_schedule
from rlx.code.passed import PassedBytes, PassedInteger
from rlx.ir.kernels import Access, Contract, Kernel, Library, Loops, Operand, RowTiles, Store

__all__ = ["sized"]

_SHORT_ROW = 256  # compilers unroll loops of known lengths
_STATIC_STRIDE = 4  # strides up to this stay in the text: of parts of complex numbers, and of short rows


def sized(kernel: Kernel, name: str = "k") -> Kernel:
    """The kernel with passed numbers in place of its sizes, or the kernel itself. name: distinguishes kernels."""
    match kernel:
        case Loops():
            return _loops(kernel, name)
        case Contract():
            operands = {n: _operand(getattr(kernel, n), f"{name}_{n}") for n in ("lhs", "rhs", "out")}
            return replace(kernel, **_with_one_name(operands))
        case RowTiles():
            inner = [sized(k, f"{name}{n}_") for n, k in enumerate(kernel.kernels)]
            return replace(kernel, kernels=tuple(k for k in inner if isinstance(k, (Loops, Contract))))
        case Library() if kernel.meaning is not None:
            sides = {
                side: tuple(_operand(o, f"{name}_{side}{n}", 1) for n, o in enumerate(getattr(kernel, side)))
                for side in ("inputs", "outputs")
            }
            return replace(kernel, **sides)
    return kernel


def _passed(value: int, name: str, least: int = 2) -> int:
    return PassedInteger(value, name) if abs(value) >= least else value


def _loops(kernel: Loops, name: str) -> Loops:
    """Rows that are read several times keep their lengths, which decide how many registers hold them, and short rows
    do; other numbers are passed."""
    passed = _passed_dimensions(kernel)
    constants = {*argument_constants(kernel)}
    strides: dict[tuple[int, ...], str] = {}

    def access(given: Access, gathers: bool) -> Access:
        steps = strides.setdefault(given.strides, f"{name}_strides{len(strides)}_")
        moved = tuple(_passed(s, f"{steps}{d}", _STATIC_STRIDE + 1) for d, s in enumerate(given.strides))
        offset = given.offset
        if not gathers and _reads_part(given, kernel):
            offset = PassedInteger(offset, f"{name}_offset{given.operand}")
        return replace(given, strides=moved, offset=offset, chunk_stride=_passed(given.chunk_stride, f"{steps}chunk"))

    instructions = [
        replace(i, attribute=access(i.attribute, bool(i.args))) if i.op == "load"
        else replace(i, attribute=PassedBytes(i.attribute, f"{name}_constant{n}")) if n in constants
        else i
        for n, i in enumerate(kernel.instructions)
    ]  # fmt: skip
    stores: list[Store] = [replace(s, access=access(s.access, s.address is not None)) for s in kernel.stores]
    return replace(
        kernel,
        sizes=tuple(_passed(s, f"{name}_size{d}") if d in passed else s for d, s in enumerate(kernel.sizes)),
        chunks=_passed(kernel.chunks, f"{name}_chunks"),
        instructions=tuple(instructions),
        stores=tuple(stores),
    )


def _passed_dimensions(kernel: Loops) -> range:
    rank = len(kernel.sizes)
    if not ordered(kernel):
        return range(rank)
    if sum(not sweep.empty for sweep in row_schedule(kernel).passes) > 1:
        return range(kernel.outer)
    return range(rank - 1 if kernel.outer and kernel.sizes[-1] <= _SHORT_ROW else rank)


def _reads_part(access: Access, kernel: Loops) -> bool:
    """Whether an access leaves elements of its buffer out, as slices do: the offset is then one of several."""
    buffer = kernel.operands[access.operand]
    moved = sum(abs(s) * max(n - 1, 0) for s, n in zip(access.strides, kernel.sizes, strict=True))
    parts = 2 if buffer.dtype.kind == "c" else 1
    return kernel.chunks == 1 and moved + parts < buffer.real_size


def _operand(operand: Operand, name: str, fixed: int = 0) -> Operand:
    """An operand with passed sizes, strides and offset; the last `fixed` sizes stay."""
    free = len(operand.shape) - fixed
    return replace(
        operand,
        shape=tuple(_passed(n, f"{name}_size{d}") if d < free else n for d, n in enumerate(operand.shape)),
        strides=tuple(_passed(s, f"{name}_stride{d}", _STATIC_STRIDE + 1) for d, s in enumerate(operand.strides)),
        offset=_passed(operand.offset, f"{name}_offset", 1),
    )


def _with_one_name(operands: dict[str, Operand]) -> dict[str, Operand]:
    """Operands of a product whose rows, columns, depth and batches have one name each: the result's, and the depth."""
    lhs, rhs, out = operands["lhs"], operands["rhs"], operands["out"]
    batches, (rows, columns), depth = out.shape[:-2], out.shape[-2:], lhs.shape[-1]
    return {
        "lhs": replace(lhs, shape=(*batches, rows, depth)),
        "rhs": replace(rhs, shape=(*batches, depth, columns)),
        "out": out,
    }
