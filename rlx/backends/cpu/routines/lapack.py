"""Factorisations and solves as scripts of LAPACK calls; rlx.routines documents them.

LAPACK stores columns, rlx rows. Where LAPACK's view of rlx's memory, the transposed matrix, serves as
well, nothing is copied; elsewhere matrices are transposed into and out of scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.backends.cpu.routines.script_builder import (
    INFORMATION,
    WORK,
    WORK_SIZE,
    MatrixAddress,
    MatrixView,
    MissingRoutine,
    Script,
)

__all__ = ["FACTORISATIONS", "turned_copy"]

INT32 = 4


def turned_copy(script: Script, number: int = 0, part: str = "whole") -> MatrixView:
    """An input in column-major scratch memory."""
    rows, columns = script.sizes(number)
    copied = script.column_major(rows, columns)
    script.copy(copied, script.row_major(script.inputs[number], rows, columns), part)
    return copied


def cholesky(script: Script) -> None:
    """L of the lower triangle is, seen by columns, U of the upper one."""
    order, _ = script.sizes()
    target = script.outputs[0]
    matrix = script.row_major(target, order, order)
    script.copy(matrix, script.row_major(script.inputs[0], order, order), "lower")
    script.call("potrf", "U", order, target, order, INFORMATION)
    script.fail_if_informed()
    script.fail_if_nan(target.behind((order * order - 1) * script.item))
    script.nan_after_failure(0, "lower")


def lu(script: Script) -> None:
    """Singular matrices have factors too."""
    rows, columns = script.sizes()
    packed, pivots, permutation = script.outputs
    work = turned_copy(script)
    script.call("getrf", rows, columns, work.place, rows, pivots, INFORMATION)
    script.copy(script.row_major(packed, rows, columns), work)
    script.act("lower_numbers", pivots, min(rows, columns))
    script.act("permute_by_pivots", pivots, permutation, min(rows, columns), rows)


def pivots_to_permutation(script: Script) -> None:
    """No arithmetic at all."""
    steps = script.kernel.inputs[0].shape[-1]
    script.act("permute_by_pivots", script.inputs[0], script.outputs[0], steps, script.attributes["rows"])


def qr(script: Script) -> None:
    """Householder's."""
    rows, columns = script.sizes()
    work = turned_copy(script)
    factors = script.scratch(min(rows, columns) * script.item)
    script.call("geqrf", rows, columns, work.place, rows, factors, WORK, WORK_SIZE, INFORMATION)
    _unpack_qr(script, work, factors)


def packed_qr(script: Script) -> None:
    """Like qr, but returns the reflectors."""
    rows, columns = script.sizes()
    packed, factors = script.outputs
    work = turned_copy(script)
    script.call("geqrf", rows, columns, work.place, rows, factors, WORK, WORK_SIZE, INFORMATION)
    script.copy(script.row_major(packed, rows, columns), work)


def pivoted_qr(script: Script) -> None:
    """As qr, LAPACK choosing the next column."""
    rows, columns = script.sizes()
    work = turned_copy(script)
    factors = script.scratch(min(rows, columns) * script.item)
    order = script.outputs[2]
    free = MatrixView(script.constant(0), 1, columns, 0, 0)
    script.copy(script.row_major(order, 1, columns, INT32), free, item=INT32)
    real_work = [script.scratch(2 * columns * script.real_item)] if script.is_complex else []
    script.call(
        "geqp3", rows, columns, work.place, rows, order, factors, WORK, WORK_SIZE, *real_work, INFORMATION
    )  # fmt: skip
    script.act("lower_numbers", order, columns)
    _unpack_qr(script, work, factors)


def _unpack_qr(script: Script, work: MatrixView, factors: MatrixAddress) -> None:
    """The triangle of the packed factors, and the product of the reflectors below it."""
    rows, columns = work.rows, work.columns
    inner = rows if script.attributes.get("full_matrices", False) else min(rows, columns)
    script.copy(script.row_major(script.outputs[1], inner, columns), work, "upper")
    product = work
    if inner > columns:
        product = script.column_major(rows, inner)
        script.copy(product.part(rows, columns), work)
    _multiply_reflectors(script, product.part(rows, inner), factors, min(rows, columns))
    script.copy(script.row_major(script.outputs[0], rows, inner), product)


def _multiply_reflectors(script: Script, product: MatrixView, factors: MatrixAddress, count: int) -> None:
    name = "ungqr" if script.is_complex else "orgqr"
    rows, columns, place = product.rows, product.columns, product.place
    script.call(name, rows, columns, count, place, rows, factors, WORK, WORK_SIZE, INFORMATION)


def householder_product(script: Script) -> None:
    """The reflectors are given."""
    rows, columns = script.sizes()
    work = turned_copy(script)
    _multiply_reflectors(script, work, script.inputs[1], script.kernel.inputs[1].shape[-1])
    script.copy(script.row_major(script.outputs[0], rows, columns), work)


# ------------------------------------------------------------- solves
def _substitute(
    script: Script,
    matrix: MatrixAddress,
    target: MatrixAddress,
    sizes: tuple[int, int],
    lower: bool,
    transposed: bool,
    unit: bool,
) -> None:
    """Solve op(a) x = b in place, both stored by rows: seen by columns, x^T op(a)^T = b^T."""
    order, count = sizes
    triangle = "U" if lower else "L"
    diagonal = "U" if unit else "N"
    if count == 1:
        script.call("trsv", triangle, "N" if transposed else "T", diagonal, order, matrix, order, target, 1)
        return
    operation = "T" if transposed else "N"
    one = script.number(1)
    script.call(
        "trsm", "R", triangle, operation, diagonal, count, order, one, matrix, order, target, count
    )  # fmt: skip


def triangular_solve(script: Script) -> None:
    """conj(a) x = b is a conj(x) = conj(b)."""
    order = script.kernel.inputs[0].shape[-1]
    rows, columns = script.sizes(1)
    attributes = script.attributes
    conjugate = script.is_complex and attributes.get("conjugate_a", False)
    lower = attributes.get("lower", True)
    transposed = attributes.get("transpose_a", False)
    unit = attributes.get("unit_diagonal", False)
    target = script.outputs[0]
    solution = script.row_major(target, rows, columns)
    script.copy(solution, script.row_major(script.inputs[1], rows, columns), conjugate=conjugate)
    if attributes.get("left_side", True):
        _substitute(script, script.inputs[0], target, (rows, columns), lower, transposed, unit)
    else:
        script.call(
            "trsm", "L", "U" if lower else "L", "T" if transposed else "N", "U" if unit else "N", columns, rows,
            script.number(1), script.inputs[0], order, target, columns,
        )  # fmt: skip
    if conjugate:
        script.copy(solution, solution, conjugate=True)


def lu_solve(script: Script) -> None:
    """Two triangular solves between (or behind) an interchange of rows."""
    rows, columns = sizes = script.sizes(2)
    factors, permutation, right_sides = script.inputs
    target = script.outputs[0]
    transposed = script.attributes.get("transpose_a", False)
    conjugate = script.is_complex and script.attributes.get("conjugate_a", False)
    solution = script.row_major(target, rows, columns)
    if not transposed:
        script.act("take_rows", target, right_sides, permutation, rows, columns * script.item, 0)
        if conjugate:
            script.copy(solution, solution, conjugate=True)
        _substitute(script, factors, target, sizes, True, False, True)
        _substitute(script, factors, target, sizes, False, False, False)
        if conjugate:
            script.copy(solution, solution, conjugate=True)
        return
    work = script.row_major(script.scratch(rows * columns * script.item), rows, columns)
    script.copy(work, script.row_major(right_sides, rows, columns), conjugate=conjugate)
    _substitute(script, factors, work.place, sizes, False, True, False)
    _substitute(script, factors, work.place, sizes, True, True, True)
    if conjugate:
        script.copy(work, work, conjugate=True)
    script.act("take_rows", target, work.place, permutation, rows, columns * script.item, 1)


def tridiagonal_solve(script: Script) -> None:
    """Gaussian elimination with pivoting."""
    rows, columns = script.sizes(3)
    if rows < 2:
        raise MissingRoutine("systems of one equation")
    diagonals = []
    for number, skipped in ((0, 1), (1, 0), (2, 0)):
        diagonal = script.row_major(script.scratch(rows * script.item), 1, rows)
        given = script.inputs[number].behind(skipped * script.item)
        script.copy(diagonal.part(1, rows - skipped), script.row_major(given, 1, rows))
        diagonals.append(diagonal.place)
    work = turned_copy(script, 3)
    script.call("gtsv", rows, columns, *diagonals, work.place, rows, INFORMATION)
    script.fail_if_informed()
    script.copy(script.row_major(script.outputs[0], rows, columns), work)
    script.nan_after_failure(0)


# a routine and the number of its first operand's axes without the batch
FACTORISATIONS: dict[str, tuple[Callable[[Script], None], int]] = {
    "cholesky": (cholesky, 2),
    "lu": (lu, 2),
    "lu_solve": (lu_solve, 2),
    "pivots_to_permutation": (pivots_to_permutation, 1),
    "qr": (qr, 2),
    "packed_qr": (packed_qr, 2),
    "pivoted_qr": (pivoted_qr, 2),
    "householder_product": (householder_product, 2),
    "triangular_solve": (triangular_solve, 2),
    "tridiagonal_solve": (tridiagonal_solve, 1),
}
