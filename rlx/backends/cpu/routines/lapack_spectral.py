"""Eigenvalues, singular values, Schur forms and Sylvester's equation as scripts of LAPACK calls."""

from __future__ import annotations

from collections.abc import Callable

from rlx.backends.cpu.routines.lapack import turned_copy
from rlx.backends.cpu.routines.script_builder import INFORMATION, WORK, WORK_SIZE, MatrixAddress, MatrixView, Script

__all__ = ["SPECTRA"]

INT32 = 4


def _order(script: Script, number: int = 0) -> int:
    return script.kernel.inputs[number].shape[-1]


def _nan_everywhere(script: Script) -> None:
    for number in range(len(script.outputs)):
        script.nan_after_failure(number)


def eigh(script: Script) -> None:
    """Divide and conquer."""
    order = _order(script)
    values, vectors = script.outputs
    lower = script.attributes.get("lower", True)
    work = turned_copy(script, 0, "lower" if lower else "upper")
    script.fail_unless_finite(work.place, order * order)
    integers = 3 + 5 * order
    integer_work = script.scratch(INT32 * integers)
    real_work: list[MatrixAddress | int] = []
    if script.is_complex:
        reals = 1 + 5 * order + 2 * order * order
        real_work = [script.scratch(reals * script.real_item), reals]
    script.call(
        "heevd" if script.is_complex else "syevd", "V", "L" if lower else "U", order, work.place, order, values,
        WORK, WORK_SIZE, *real_work, integer_work, integers, INFORMATION,
    )  # fmt: skip
    script.fail_if_informed()
    script.copy(script.row_major(vectors, order, order), work)
    _nan_everywhere(script)


def svd(script: Script) -> None:
    """Divide and conquer."""
    rows, columns = script.kernel.inputs[0].shape[-2:]
    inner, longer = sorted((rows, columns))
    full = script.attributes.get("full_matrices", False)
    wanted = script.attributes.get("compute_uv", True)
    work = turned_copy(script)
    script.fail_unless_finite(work.place, rows * columns)
    left_columns, right_rows = (rows, columns) if full else (inner, inner)
    left = right = MatrixView(script.scratch(script.item), 1, 1, 0, 0)
    if wanted:
        left, right = script.column_major(rows, left_columns), script.column_major(right_rows, columns)
    real_work = []
    if script.is_complex:
        reals = inner * max(5 * inner + 7, 2 * longer + 2 * inner + 1) if wanted else 7 * inner
        real_work = [script.scratch(reals * script.real_item)]
    script.call(
        "gesdd", ("A" if full else "S") if wanted else "N", rows, columns, work.place, rows,
        script.outputs[1 if wanted else 0], left.place, rows, right.place, right_rows, WORK, WORK_SIZE, *real_work,
        script.scratch(8 * inner * INT32), INFORMATION,
    )  # fmt: skip
    script.fail_if_informed()
    if wanted:
        script.copy(script.row_major(script.outputs[0], rows, left_columns), left)
        script.copy(script.row_major(script.outputs[2], right_rows, columns), right)
    _nan_everywhere(script)


def eig(script: Script) -> None:
    """The QR algorithm; for real matrices LAPACK returns real and imaginary parts separately."""
    order = _order(script)
    left = script.attributes.get("compute_left", False)
    right = script.attributes.get("compute_right", True)
    work = turned_copy(script)
    script.fail_unless_finite(work.place, order * order)
    one = MatrixView(script.scratch(script.item), 1, 1, 0, 0)
    found = [script.column_major(order, order) if asked else one for asked in (left, right)]
    jobs = ["V" if asked else "N" for asked in (left, right)]
    vectors = [found[0].place, order, found[1].place, order]
    head = [*jobs, order, work.place, order]
    targets = script.outputs[1:]
    asked = [matrix for matrix in found if matrix is not one]
    if script.is_complex:
        real_work = script.scratch(2 * order * script.real_item)
        script.call("geev", *head, script.outputs[0], *vectors, WORK, WORK_SIZE, real_work, INFORMATION)
        script.fail_if_informed()
        for target, matrix in zip(targets, asked, strict=True):
            script.copy(script.row_major(target, order, order), matrix)
    else:
        parts = [script.scratch(order * script.item) for _ in range(2)]
        script.call("geev", *head, *parts, *vectors, WORK, WORK_SIZE, INFORMATION)
        script.fail_if_informed()
        for number, part in enumerate(parts):
            halves = MatrixView(script.outputs[0].behind(number * script.item), order, 1, 2 * script.item, script.item)
            script.copy(halves, MatrixView(part, order, 1, script.item, script.item))
        for target, matrix in zip(targets, asked, strict=True):
            script.act("pair_eigenvectors", target, matrix.place, parts[1], order, script.item)
    _nan_everywhere(script)


def _schur(script: Script, number: int) -> tuple[MatrixView, MatrixView]:
    """The Schur form of an input, and the unitary matrix that makes it."""
    order = _order(script, number)
    form = turned_copy(script, number)
    script.fail_unless_finite(form.place, order * order)
    vectors = script.column_major(order, order)
    values = [script.scratch(order * script.item) for _ in range(1 if script.is_complex else 2)]
    real_work = [script.scratch(order * script.real_item)] if script.is_complex else []
    nothing = script.scratch(8 * order)  # no function that selects is called
    count = script.scratch(8)
    script.call(
        "gees", "V", "N", nothing, order, form.place, order, count, *values, vectors.place, order, WORK, WORK_SIZE,
        *real_work, nothing, INFORMATION,
    )  # fmt: skip
    script.fail_if_informed()
    return form, vectors


def schur(script: Script) -> None:
    """Eigenvalues in the order in which they are found."""
    order = _order(script)
    for target, matrix in zip(script.outputs, _schur(script, 0), strict=True):
        script.copy(script.row_major(target, order, order), matrix)
    _nan_everywhere(script)


def hessenberg(script: Script) -> None:
    """All rows and columns."""
    order = _order(script)
    packed, factors = script.outputs
    work = turned_copy(script)
    script.call("gehrd", order, 1, order, work.place, order, factors, WORK, WORK_SIZE, INFORMATION)
    script.copy(script.row_major(packed, order, order), work)


def tridiagonal(script: Script) -> None:
    """Hessenberg form of a Hermitian matrix."""
    order = _order(script)
    packed, diagonal, off_diagonal, factors = script.outputs
    work = turned_copy(script)
    script.call(
        "hetrd" if script.is_complex else "sytrd", "L" if script.attributes.get("lower", True) else "U", order,
        work.place, order, diagonal, off_diagonal, factors, WORK, WORK_SIZE, INFORMATION,
    )  # fmt: skip
    script.copy(script.row_major(packed, order, order), work)


def sylvester(script: Script) -> None:
    """Bartels and Stewart: through the Schur forms of both matrices."""
    rows, columns = _order(script, 0), _order(script, 1)
    (first, turn), (second, other) = _schur(script, 0), _schur(script, 1)
    given = turned_copy(script, 2)
    script.fail_unless_finite(given.place, rows * columns)
    middle = script.column_major(rows, columns)
    one, zero = script.number(1), script.number(0)
    adjoint = "C" if script.is_complex else "T"

    def multiply(
        left: tuple[str, MatrixView],
        right: tuple[str, MatrixView],
        target: MatrixView,
        factor: MatrixAddress,
        depth: int,
    ) -> None:
        (left_operation, a), (right_operation, b) = left, right
        script.call(
            "gemm", left_operation, right_operation, rows, columns, depth, factor, a.place, a.rows, b.place, b.rows,
            zero, target.place, rows,
        )  # fmt: skip

    multiply((adjoint, turn), ("N", given), middle, one, rows)
    multiply(("N", middle), ("N", other), given, one, columns)
    scale = script.scratch(16)
    script.call(
        "trsyl", "N", "N", 1, rows, columns, first.place, rows, second.place, columns, given.place, rows, scale,
        INFORMATION,
    )  # fmt: skip
    script.fail_if_informed()
    # the scale is real; so is the factor, whose imaginary part stays 0
    factor = script.scratch(16)
    script.copy(MatrixView(factor, 1, 1, 16, 16), MatrixView(zero, 1, 1, 16, 16))
    script.act("invert_number", factor, scale, script.real_item)
    multiply(("N", turn), ("N", given), middle, factor, rows)
    multiply(("N", middle), (adjoint, other), given, one, columns)
    script.copy(script.row_major(script.outputs[0], rows, columns), given)
    script.nan_after_failure(0)


SPECTRA: dict[str, tuple[Callable[[Script], None], int]] = {
    "eigh": (eigh, 2),
    "svd": (svd, 2),
    "eig": (eig, 2),
    "schur": (schur, 2),
    "hessenberg": (hessenberg, 2),
    "tridiagonal": (tridiagonal, 2),
    "sylvester": (sylvester, 2),
}
