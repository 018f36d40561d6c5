"""Small factorisations and triangular systems: a group holds a matrix, or some right-hand sides, in its memory.

Columns are processed in order, and the group's work-items share the columns to the right. Values are as in
`rlx.routines`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, code_step, position_in
from rlx.backends.gpu.tile_sizes import RIGHT_SIDES
from rlx.backends.loops.dialect import Parameter
from rlx.code.split_numbers import SplitArray, SplitNumber
from rlx.code.tree import Apply, Array, Barrier, Both, Coordinate, Either, Expression, Number, Register
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import element_dtype

__all__ = ["SMALL", "small_matrix_steps"]

_BOOL, _INT32, _UINT32 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.uint32)
_T = Register(_UINT32, "t")  # an element of what the work-items share
_J = Register(_INT32, "j")  # the column in turn


class _Group:
    """The code of a group that processes the matrices of some operands, one after the other within each operand."""

    def __init__(self, limits: Limits, position: np.dtype, work: int) -> None:
        self.items = min(limits.group, 1 << max(work - 1, 1).bit_length())
        self.code = CodeWriter()
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
    m, failed = SplitArray.of_group(code, "m", dtype, n * n), code.allocate(Array("failed", _INT32, "group", (1,)))
    source, first = group.operand("source", given, n * n)
    target, start = group.operand("target", result, n * n, written=True)
    with group.every(n * n):
        m.write(code, _T, source[first + _T])
    with code.when(ITEM.equals(0)):
        code.write(failed[0], Number(_INT32, 0))
    group.meet()
    with code.loop(_J, 0, n):
        _cholesky_column(group, n, m, failed)
    with group.every(n * n):
        real, *imaginary = (_or_zero(_T % n <= _T // n, part) for part in m[_T].parts)
        broken = Number(real.dtype, float("nan"))
        whole = Apply(real.dtype, "select", (failed[0].equals(0), m[_T].parts[0], broken))
        target.write(code, start + _T, SplitNumber((_or_zero(_T % n <= _T // n, whole), *imaginary)))
    return group.step(kernel.label or "cholesky", "a group for each matrix", dialect, prod(given.shape[:-2]))


def _or_zero(condition: Expression, value: Expression) -> Apply:
    return Apply(value.dtype, "select", (condition, value, Number(value.dtype, 0)))


def _cholesky_column(group: _Group, n: int, m: SplitArray, failed: Array) -> None:
    """Scale a column, and subtract its products from the columns to the right."""
    code, r = group.code, Register(_INT32, "r")
    pivot = code.declare("pivot", m[_J * (n + 1)].parts[0])
    with code.when(Both(_BOOL, ITEM.equals(0), Apply(_BOOL, "not", (pivot > 0,)))):
        code.write(failed[0], Number(_INT32, 1))
    root = code.declare("root", Apply(pivot.dtype, "sqrt", (pivot,)))
    group.meet()
    with group.every(n, r):
        with code.when(r > _J):
            parts = (Apply(root.dtype, "div", (part, root)) for part in m[r * n + _J].parts)
            m.write(code, r * n + _J, SplitNumber(tuple(parts)))
        with code.when(r.equals(_J)):
            m.write(code, r * n + _J, SplitNumber((root, *m.zero().parts[1:])))
    group.meet()
    with group.every((n - 1 - _J) * n):
        row, column = code.declare("r", _J + 1 + _T // n, _INT32), code.declare("c", _T % n, _INT32)
        with code.when(Both(_BOOL, column > _J, column <= row)):
            right = m[column * n + _J].conjugate().declared(code, "right")
            _subtract(code, m, row * n + column, m[row * n + _J].declared(code, "left") * right)
    group.meet()


def _subtract(code: CodeWriter, array: SplitArray, place: Expression, value: SplitNumber) -> None:
    array.write(code, place, array[place] - value)


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
    with code.loop(_J, 0, short):
        with code.when(ITEM.equals(0)):
            pivot = _largest(code, m, rows, columns)
            _exchange(code, order, pivot, _J)
            code.write(chosen[0], pivot)
            code.write(exchanged[0].arrays[0][exchanged[1] + _J], pivot)
        group.meet()
        _lu_column(group, m, rows, columns, chosen)
    with group.every(size):
        target.write(code, start + _T, m[_T])
    with group.every(rows):
        moved.write(code, moved_start + _T, order[_T])
    return group.step(kernel.label or "lu", "a group for each matrix", dialect, prod(given.shape[:-2]))


def _largest(code: CodeWriter, m: SplitArray, rows: int, columns: int) -> Register:
    """The row of the largest element of a column, from the diagonal."""
    r = Register(_INT32, "r")
    best = code.declare("best", Number(m.arrays[0].dtype, -1), changes=True)
    pivot = code.declare("pivot", _J, changes=True)
    with code.loop(r, _J, rows):
        size = code.declare("size", m[r * columns + _J].magnitude())
        with code.when(size > best):
            code.assign(best, size)
            code.assign(pivot, r)
    return pivot


def _exchange(code: CodeWriter, array: SplitArray, left: Expression, right: Expression) -> None:
    """Exchange two elements."""
    kept = array[left].declared(code, "kept")
    array.write(code, left, array[right])
    array.write(code, right, kept)


def _lu_column(group: _Group, m: SplitArray, rows: int, columns: int, chosen: Array) -> None:
    """Exchange two rows, scale a column, and subtract its products from the columns to the right."""
    code, r, c = group.code, Register(_INT32, "r"), Register(_INT32, "c")
    other = code.declare("other", chosen[0])
    with code.when(other.differs(_J)), group.every(columns, c):
        _exchange(code, m, other * columns + c, _J * columns + c)
    group.meet()
    divisor = m[_J * (columns + 1)].declared(code, "divisor")
    nonzero: Expression = divisor.parts[0].differs(0)
    for part in divisor.parts[1:]:
        nonzero = Either(_BOOL, nonzero, part.differs(0))
    with group.every(rows, r), code.when(Both(_BOOL, r > _J, nonzero)):
        place = r * columns + _J
        m.write(code, place, m[place].divided(divisor, code))
    group.meet()
    with group.every((rows - 1 - _J) * columns):
        row, column = code.declare("r", _J + 1 + _T // columns, _INT32), code.declare("c", _T % columns, _INT32)
        with code.when(column > _J):
            left, right = m[row * columns + _J].declared(code, "left"), m[_J * columns + column].declared(code, "right")
            _subtract(code, m, row * columns + column, left * right)
    group.meet()


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
    for phase in phases:
        _substitute(group, x, coefficients, n, together, phase, kernel.attributes.get("conjugate_a", False))
    with group.every(n * together):
        inside, at = place(last=True)
        with code.when(inside):
            target.write(code, start + at, x[_T])
    strategy = f"a group for {together} right side{'s' * (together > 1)}"
    return group.step(kernel.label or "solve", strategy, dialect, prod(a.shape[:-2]) * tiles)


def _substitute(
    group: _Group, x: SplitArray, coefficients: tuple[SplitArray, Register], n: int, together: int,
    phase: tuple[bool, bool, bool], conjugate: bool,
) -> None:  # fmt: skip
    """Substitution row by row; the solved row is subtracted from the rows that remain."""
    (lower, transposed, unit), code = phase, group.code
    a, start = coefficients
    forward, i = lower != transposed, Register(_INT32, "i")

    def coefficient(name: str, place: Expression) -> SplitNumber:
        found = a[start + place]
        return (found.conjugate() if conjugate else found).declared(code, name)

    with code.loop(i, 0, n, backward=not forward):
        if not unit:
            divisor = coefficient("divisor", i * (n + 1))
            with group.every(together):
                solved = i * together + _T
                x.write(code, solved, x[solved].divided(divisor, code))
            group.meet()
        with group.every(n * together):
            r = code.declare("r", _T // together, _INT32)
            with code.when(r > i if forward else r < i):
                factor = coefficient("factor", i * n + r if transposed else r * n + i)
                _subtract(code, x, _T, factor * x[i * together + _T % together].declared(code, "known"))
        group.meet()


SMALL: dict[str, Callable[[Library, Limits, np.dtype, DeviceDialect], list[LaunchStep] | None]] = {
    "cholesky": _cholesky,
    "lu": _lu,
    "lu_solve": _lu_solve,
    "triangular_solve": _triangular_solve,
}
