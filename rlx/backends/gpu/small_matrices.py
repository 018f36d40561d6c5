"""Small factorisations and triangular systems: a group holds a matrix, or some right-hand sides, in its memory.

Columns are processed in order, and the group's work-items share the columns to the right. Values are as in
`rlx.routines`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, code_step, position_in
from rlx.backends.gpu.tile_sizes import RIGHT_SIDES
from rlx.backends.loops.dialect import Parameter
from rlx.code.factorisations import (
    Factors,
    Point,
    Size,
    Span,
    SplitMatrix,
    Team,
    factor_cholesky,
    factor_lu,
    solve_triangle,
)
from rlx.code.split_numbers import SplitArray, SplitNumber
from rlx.code.tree import Apply, Array, Barrier, Both, Coordinate, Expression, Number, Register
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import element_dtype

__all__ = ["SMALL", "small_matrix_steps"]

_BOOL, _INT32, _UINT32 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.uint32)
_T = Register(_UINT32, "t")  # an element of what the work-items share


class _Group(Team):
    """A group that processes the matrices of some operands, one after the other within each operand."""

    index = _INT32
    alone = False

    def __init__(self, limits: Limits, position: np.dtype, work: int) -> None:
        super().__init__()
        self.items = min(limits.group, 1 << max(work - 1, 1).bit_length())
        self.position = position
        self.number: Expression = Coordinate(unsigned(position), "group")
        self.parameters: list[Parameter] = []
        self.buffers: list[Buffer] = []

    def operand(
        self, name: str, operand: Operand, each: int, written: bool = False, matrix: Expression | None = None
    ) -> tuple[SplitArray, Register]:
        """A parameter, and where the `each` numbers of the group's matrix begin in it."""
        self.parameters.append(Parameter(name, element_dtype(operand.buffer.dtype), written))
        self.buffers.append(operand.buffer)
        number = self.number if matrix is None else matrix
        start = self.code.declare(f"{name}_at", number * each + operand.offset, self.position)
        return SplitArray.of_device(name, operand.buffer.dtype), start

    def every(self, count: Expression | int, index: Register = _T) -> AbstractContextManager[None]:
        """A loop that the work-items share."""
        return self.code.loop(index, ITEM, count, self.items)

    def meet(self) -> None:
        """A barrier."""
        self.code.add(Barrier())

    def one(self) -> AbstractContextManager[None]:
        """The first work-item."""
        return self.code.when(ITEM.equals(0))

    def rows(self, row: Register, start: Expression | int, stop: Expression | int) -> AbstractContextManager[None]:
        """A loop that the work-items share."""
        return self.code.loop(row, ITEM + start, stop, self.items)

    @contextmanager
    def elements(self, rows: Span, columns: Span, factors: Factors, triangular: bool = False) -> Generator[Point]:
        """One loop over all elements of the rows, after the changes of factors."""
        (start, stop), (left, width), code, r = rows, columns, self.code, Register(_INT32, "r")
        assert isinstance(width, int), "the sizes of a group's matrix are known"
        if factors.change is not None:
            with self.rows(r, start, stop):
                factors.of(code, r, changes=True)
            self.meet()
        with self.every((stop - start) * width):
            row, column = code.declare("row", start + _T // width, _INT32), code.declare("column", _T % width, _INT32)
            inside: Expression = column >= left
            if triangular:
                inside = Both(_BOOL, inside, column <= row)
            with nullcontext() if left == 0 else code.when(inside):
                yield row, column, factors.of(code, row, changes=False)

    def exchange(self, m: SplitMatrix, pivot: Register, chosen: Expression, rows: Size, columns: Size) -> None:
        """A loop over columns."""
        c, other = Register(_INT32, "c"), self.code.declare("other", chosen)
        with self.code.when(other.differs(pivot)), self.rows(c, 0, columns):
            _exchange(self.code, m.array, m.place(other, c), m.place(pivot, c))

    def step(self, label: str, strategy: str, dialect: DeviceDialect, groups: int) -> list[LaunchStep]:
        """The launch."""
        return [
            code_step(
                label, strategy, dialect, self.parameters, self.buffers, self.code.block, groups, self.items
            )
        ]  # fmt: skip


def small_matrix_steps(kernel: Library, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """The launches of a routine of `SMALL`; None if a matrix does not fit in a group's memory."""
    operands = (*kernel.inputs, *kernel.outputs)
    if 0 in [size for operand in operands for size in operand.shape]:
        return None
    return SMALL[kernel.routine](kernel, limits, position_in(limits, *operands), dialect)


# ------------------------------------------------------------------ factorisations
def _cholesky(
    kernel: Library, limits: Limits, position: np.dtype, dialect: DeviceDialect
) -> list[LaunchStep] | None:
    """The lower factor; all NaN if a pivot is not positive."""
    (given,), (result,) = kernel.inputs, kernel.outputs
    n, dtype = given.shape[-1], given.buffer.dtype
    if n * n * dtype.itemsize > limits.least_group_bytes - 16:
        return None
    group = _Group(limits, position, n * n)
    code = group.code
    m = SplitArray.of_group(code, "m", dtype, n * n)
    source, first = group.operand("source", given, n * n)
    target, start = group.operand("target", result, n * n, written=True)
    with group.every(n * n):
        m.write(code, _T, source[first + _T])
    group.meet()
    positive = code.declare("positive", factor_cholesky(group, SplitMatrix(m, n), n))
    with group.every(n * n):
        real, *imaginary = (_or_zero(_T % n <= _T // n, part) for part in m[_T].parts)
        broken = Number(real.dtype, float("nan"))
        whole = Apply(real.dtype, "select", (positive, m[_T].parts[0], broken))
        target.write(code, start + _T, SplitNumber((_or_zero(_T % n <= _T // n, whole), *imaginary)))
    return group.step(kernel.label or "cholesky", "a group for each matrix", dialect, prod(given.shape[:-2]))


def _or_zero(condition: Expression, value: Expression) -> Apply:
    return Apply(value.dtype, "select", (condition, value, Number(value.dtype, 0)))


def _lu(kernel: Library, limits: Limits, position: np.dtype, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """Partial pivoting; the first work-item finds the pivot."""
    (given,), (packed, pivots, permutation) = kernel.inputs, kernel.outputs
    (rows, columns), dtype = given.shape[-2:], given.buffer.dtype
    size, short = rows * columns, min(rows, columns)
    if size * dtype.itemsize + 4 * rows > limits.least_group_bytes - 16:
        return None
    group = _Group(limits, position, size)
    code = group.code
    m, order = SplitArray.of_group(code, "m", dtype, size), SplitArray.of_group(code, "order", _INT32, rows)
    chosen = code.allocate(Array("chosen", _INT32, "group", (1,)))
    source, first = group.operand("source", given, size)
    target, start = group.operand("packed", packed, size, written=True)
    exchanged = group.operand("pivots", pivots, short, written=True)
    moved, moved_start = group.operand("permutation", permutation, rows, written=True)
    with group.every(size):
        m.write(code, _T, source[first + _T])
    with group.every(rows):
        order.write(code, _T, SplitNumber((Apply(_INT32, "cast", (_T,)),)))
    group.meet()

    def choose(step: Register, pivot: Expression) -> Expression:
        _exchange(code, order, pivot, step)
        code.write(chosen[0], pivot)
        code.write(exchanged[0].arrays[0][exchanged[1] + step], pivot)
        return chosen[0]

    factor_lu(group, SplitMatrix(m, columns), rows, columns, short, choose)
    with group.every(size):
        target.write(code, start + _T, m[_T])
    with group.every(rows):
        moved.write(code, moved_start + _T, order[_T])
    return group.step(kernel.label or "lu", "a group for each matrix", dialect, prod(given.shape[:-2]))


def _exchange(code: CodeWriter, array: SplitArray, left: Expression, right: Expression) -> None:
    """Exchange two elements."""
    kept = array[left].declared(code, "kept")
    array.write(code, left, array[right])
    array.write(code, right, kept)


# ------------------------------------------------------------------ systems
def _triangular_solve(
    kernel: Library, limits: Limits, position: np.dtype, dialect: DeviceDialect
) -> list[LaunchStep] | None:
    how = kernel.attributes
    left, turned = how.get("left_side", True), how.get("transpose_a", False)
    phase = (how.get("lower", True), turned == left, how.get("unit_diagonal", False))
    return _solved(kernel, [phase], left, None, False, limits, position, dialect)


def _lu_solve(
    kernel: Library, limits: Limits, position: np.dtype, dialect: DeviceDialect
) -> list[LaunchStep] | None:
    """Rows are permuted before both systems, or, if these are transposed, after them."""
    turned = kernel.attributes.get("transpose_a", False)
    phases = [(True, turned, True), (False, turned, False)]
    order = phases[::-1] if turned else phases
    return _solved(kernel, order, True, kernel.inputs[1], turned, limits, position, dialect)


def _solved(
    kernel: Library, phases: Sequence[tuple[bool, bool, bool]], left: bool, permutation: Operand | None,
    ordered_last: bool, limits: Limits, position: np.dtype, dialect: DeviceDialect,
) -> list[LaunchStep] | None:  # fmt: skip
    """Systems one after the other, as (lower, transposed, unit diagonal), for some right-hand sides of a matrix."""
    a, b, (result,) = kernel.inputs[0], kernel.inputs[-1], kernel.outputs
    n, dtype = a.shape[-1], a.buffer.dtype
    sides = b.shape[-1] if left else b.shape[-2]
    together = min(sides, RIGHT_SIDES, limits.least_group_bytes // 2 // (n * dtype.itemsize))
    if not together:
        return None
    tiles, group = ceiling(sides, together), _Group(limits, position, n * together)
    code, matrix = group.code, group.number // tiles
    x = SplitArray.of_group(code, "x", dtype, n * together)
    coefficients = group.operand("a", a, n * n, matrix=matrix)
    given, given_start = group.operand("b", b, n * sides, matrix=matrix)
    target, start = group.operand("result", result, n * sides, True, matrix)
    order = None if permutation is None else group.operand("permutation", permutation, n, matrix=matrix)
    first = code.declare("first", group.number % tiles * together, position) if tiles > 1 else 0

    def place(last: bool) -> tuple[Expression, Expression]:
        """Whether there is the work-item's right-hand side, and the place of its element."""
        row: Expression = code.declare("row", _T // together, position)
        side = code.declare("side", _T % together + first, position)
        if order is not None and last == ordered_last:
            row = code.declare("chosen", order[0][order[1] + row].parts[0], position)
        return side < sides, row * sides + side if left else side * n + row

    with group.every(n * together):
        inside, at = place(last=False)
        x.write(code, _T, SplitNumber(tuple(_or_zero(inside, part) for part in given[given_start + at].parts)))
    group.meet()
    for lower, transposed, unit in phases:
        steps = (1, n) if transposed else (n, 1)
        triangle = SplitMatrix(coefficients[0], *steps, coefficients[1], kernel.attributes.get("conjugate_a", False))
        solve_triangle(group, SplitMatrix(x, together), triangle, n, together, lower != transposed, not unit)
    with group.every(n * together):
        inside, at = place(last=True)
        with code.when(inside):
            target.write(code, start + at, x[_T])
    strategy = f"a group for {together} right side{'s' * (together > 1)}"
    return group.step(kernel.label or "solve", strategy, dialect, prod(a.shape[:-2]) * tiles)


SMALL: dict[str, Callable[[Library, Limits, np.dtype, DeviceDialect], list[LaunchStep] | None]] = {
    "cholesky": _cholesky,
    "lu": _lu,
    "lu_solve": _lu_solve,
    "triangular_solve": _triangular_solve,
}
