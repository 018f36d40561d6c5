"""Sparse matrices by rows in native code: products (see sparse_text.py for the loops), and sparse_triangle_text.py's.

Rows are divided by the merge path (Merrill and Garland 2016): each part has an equal number of rows' ends and stored
elements together, so that one long row is divided too. A part adds up the beginning of the row that it ends in; a last
step adds these sums, in order. The parts depend on the sizes alone, and so do the rounded results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rlx.backends.cpu.routines.script_builder import MatrixAddress, MissingRoutine, Script
from rlx.backends.cpu.routines.scripts import ACTION_HEAD, MATRIX, PLACE_WORDS, operand_place
from rlx.backends.cpu.routines.sparse_text import CARRY, PUSH, ROWS, SAMPLE
from rlx.backends.cpu.routines.sparse_triangle_text import INCOMPLETE, PULL, SPREAD
from rlx.backends.cpu.runtime.native import (
    NativeSignature,
    Word,
    clear_bytes,
    load_int32,
    maximum,
    minimum,
    native,
    stack,
)

__all__ = ["SPARSE_ACTIONS", "SPARSE_ROUTINES", "fill_sparse"]

_PART = 1 << 14  # rows and stored elements of a part
_MOST_PARTS = 64
_ELEMENT_NANOSECONDS = 0.7  # with its index, for one column
_COLUMN_NANOSECONDS = 0.15
_TRIANGLE_NANOSECONDS = 3.0  # an element of a triangle, for one column
_INCOMPLETE_NANOSECONDS = 10.0

call_rows = NativeSignature("void", ("ptr",) * 6 + ("i64",) * 5)
call_carry = NativeSignature("void", ("ptr", "ptr", "i64"))
call_push = NativeSignature("void", ("ptr",) * 5 + ("i64",) * 5)
call_sample = NativeSignature("void", ("ptr",) * 5 + ("i64",) * 5)
call_triangle = NativeSignature("void", ("ptr",) * 5 + ("i64",) * 4)
call_incomplete = NativeSignature("void", ("ptr",) * 5 + ("i64",))

# Fields of an action: six places, then these.
FIELDS = ACTION_HEAD + 6 * PLACE_WORDS
FUNCTION = FIELDS
MATRIX_ROWS = FIELDS + 1
STORED = FIELDS + 2  # elements
COLUMNS = FIELDS + 3  # of dense matrices
DIVISIONS = FIELDS + 4  # parts
WIDE = FIELDS + 5  # whether indices are int64
ITEM = FIELDS + 6  # bytes of an element
RESULT_BYTES = FIELDS + 7
CARRY_BYTES = FIELDS + 8  # of one part: the row, then the sum
CARRY_HEAD = 8
SIGN = FIELDS + 9  # of a triangle: 1 for the lower one, -1 for the upper one
UNIT = FIELDS + 10  # whether its diagonal counts as ones


@native
def row_end(indptr: Word, row: Word, wide: Word) -> Word:
    """Where a row ends in the stored elements."""
    if wide:
        return indptr[row + 1]
    return load_int32(indptr + 4 * (row + 1))


@native
def ended_rows(indptr: Word, diagonal: Word, rows: Word, stored: Word, wide: Word) -> Word:
    """The number of rows that end before a diagonal of the merge path."""
    low = maximum(0, diagonal - stored)
    high = minimum(diagonal, rows)
    while low < high:
        middle = (low + high) // 2
        if row_end(indptr, middle, wide) <= diagonal - middle - 1:
            low = middle + 1
        else:
            high = middle
    return low


@native
def find_part(state: Word, action: Word, indptr: Word, found: Word) -> int:
    """Write where a part of the merge path begins and ends: [row, last row, element, last element]."""
    total = action[MATRIX_ROWS] + action[STORED]
    for end in range(2):
        diagonal = total * (state[MATRIX] + end) // action[DIVISIONS]
        row = ended_rows(indptr, diagonal, action[MATRIX_ROWS], action[STORED], action[WIDE])
        found[end] = row
        found[end + 2] = diagonal - row
    return 0


@native
def multiply_sparse_rows(state: Word, action: Word) -> int:
    """[y, data, indices, indptr, x, carries]: a part of A @ x."""
    indptr = operand_place(state, action, 3)
    carry = operand_place(state, action, 5)
    part = stack(4)
    find_part(state, action, indptr, part)
    carry[0] = part[1]
    call_rows(
        action[FUNCTION], operand_place(state, action, 0), operand_place(state, action, 1),
        operand_place(state, action, 2), indptr, operand_place(state, action, 4), carry + CARRY_HEAD,
        part[0], part[1], part[2], part[3], action[COLUMNS],
    )  # fmt: skip
    return 0


@native
def add_carried_rows(state: Word, action: Word) -> int:
    """[y, carries]: add the sums of beginnings of rows, part by part."""
    y = operand_place(state, action, 0)
    carry = operand_place(state, action, 1)
    for _ in range(action[DIVISIONS]):
        if carry[0] < action[MATRIX_ROWS]:
            call_carry(
                action[FUNCTION], y + carry[0] * action[ITEM] * action[COLUMNS], carry + CARRY_HEAD, action[COLUMNS]
            )
        carry = carry + action[CARRY_BYTES]
    return 0


@native
def push_sparse_rows(state: Word, action: Word) -> int:
    """[y, data, indices, indptr, x]: some columns of A.T @ x."""
    y = operand_place(state, action, 0)
    columns = action[COLUMNS]
    first = columns * state[MATRIX] // action[DIVISIONS]
    last = columns * (state[MATRIX] + 1) // action[DIVISIONS]
    if action[DIVISIONS] == 1:
        clear_bytes(y, action[RESULT_BYTES])
    else:
        step = columns * action[ITEM]
        for row in range(action[RESULT_BYTES] // step):
            clear_bytes(y + row * step + first * action[ITEM], (last - first) * action[ITEM])
    call_push(
        action[FUNCTION], y, operand_place(state, action, 1), operand_place(state, action, 2),
        operand_place(state, action, 3), operand_place(state, action, 4),
        0, action[MATRIX_ROWS], columns, first, last,
    )  # fmt: skip
    return 0


@native
def sample_sparse_rows(state: Word, action: Word) -> int:
    """[out, x, y, indices, indptr]: a part of the elements of x @ y.T."""
    indptr = operand_place(state, action, 4)
    part = stack(4)
    find_part(state, action, indptr, part)
    call_sample(
        action[FUNCTION], operand_place(state, action, 0), operand_place(state, action, 1),
        operand_place(state, action, 2), operand_place(state, action, 3), indptr,
        part[0], minimum(part[1] + 1, action[MATRIX_ROWS]), part[2], part[3], action[COLUMNS],
    )  # fmt: skip
    return 0


@native
def row_places(state: Word, action: Word, found: Word) -> int:
    """Write the addresses of [result, data, indices, indptr, other operand]."""
    for number in range(5):
        found[number] = operand_place(state, action, number)
    return 0


@native
def solve_sparse_triangle(state: Word, action: Word) -> int:
    """[x, data, indices, indptr, b]: a solve with a triangle, or with a transposed one."""
    at = stack(5)
    row_places(state, action, at)
    call_triangle(
        action[FUNCTION], at[0], at[1], at[2], at[3], at[4], action[MATRIX_ROWS], action[COLUMNS], action[SIGN],
        action[UNIT],
    )  # fmt: skip
    return 0


@native
def factor_sparse_rows(state: Word, action: Word) -> int:
    """[factors, data, indices, indptr, work]: an incomplete factorisation."""
    at = stack(5)
    row_places(state, action, at)
    call_incomplete(action[FUNCTION], at[0], at[1], at[2], at[3], at[4], action[MATRIX_ROWS])
    return 0


SPARSE_ACTIONS = (
    multiply_sparse_rows, add_carried_rows, push_sparse_rows, sample_sparse_rows, solve_sparse_triangle,
    factor_sparse_rows,
)  # fmt: skip


# ------------------------------------------------------------- scripts
NewScript = Callable[[], Script]
Between = Callable[[int], MatrixAddress]


def _fixed(places: Sequence[MatrixAddress]) -> list[MatrixAddress]:
    """Places that are the same for all parts."""
    return [replace(p, step=0) for p in places]


def _fields(script: Script, indices: int, columns: int, parts: int) -> list[int]:
    """The fields of an action after its function."""
    inputs = script.kernel.inputs
    (stored,), (pointers,) = inputs[indices].shape, inputs[indices + 1].shape
    result = script.kernel.outputs[0]
    nbytes = int(np.prod(result.shape)) * script.item
    carry = CARRY_HEAD + -(-columns * script.item // 8) * 8
    wide = inputs[indices].buffer.dtype.itemsize == 8
    return [pointers - 1, stored, columns, parts, wide, script.item, nbytes, carry]


def _parts(script: Script, indices: int, columns: int) -> int:
    """The number of parts; sets the script's cost."""
    inputs = script.kernel.inputs
    total = inputs[indices].shape[0] + inputs[indices + 1].shape[0]
    script.nanoseconds = total * (_ELEMENT_NANOSECONDS + _COLUMN_NANOSECONDS * (columns - 1))
    return max(1, min(_MOST_PARTS, total * columns // _PART))


def _product_scripts(new: NewScript, functions: dict[str, int], between: Between) -> list[Script]:
    script = new()
    columns = script.kernel.inputs[3].shape[1]
    data, indices, indptr, x = _fixed(script.inputs)
    (out,) = _fixed(script.outputs)
    parts = _parts(script, 1, columns)
    if script.attributes["transposed"]:
        parts = max(1, min(columns // 8, parts))
        fields = _fields(script, 1, columns, parts)
        script.turns = parts
        script.act("push_sparse_rows", out, data, indices, indptr, x, MatrixAddress(0), functions[PUSH], *fields)
        return [script]
    fields = _fields(script, 1, columns, parts)
    carry_bytes = fields[-1]
    carries = between(parts * carry_bytes)
    script.turns = parts
    script.act(
        "multiply_sparse_rows", out, data, indices, indptr, x, replace(carries, step=carry_bytes),
        functions[ROWS], *fields,
    )  # fmt: skip
    if parts == 1:
        return [script]
    joining = new()
    joining.act("add_carried_rows", out, carries, *[MatrixAddress(0)] * 4, functions[CARRY], *fields)
    return [script, joining]


def _sample_scripts(new: NewScript, functions: dict[str, int], between: Between) -> list[Script]:
    script = new()
    columns = script.kernel.inputs[0].shape[1]
    x, y, indices, indptr = _fixed(script.inputs)
    script.turns = _parts(script, 2, columns)
    fields = _fields(script, 2, columns, script.turns)
    (out,) = _fixed(script.outputs)
    script.act("sample_sparse_rows", out, x, y, indices, indptr, MatrixAddress(0), functions[SAMPLE], *fields)
    return [script]


def _triangle_scripts(new: NewScript, functions: dict[str, int], between: Between) -> list[Script]:
    script = new()
    columns = script.kernel.inputs[3].shape[1]
    options = script.attributes
    script.turns, script.nanoseconds = 1, _TRIANGLE_NANOSECONDS * columns * script.kernel.inputs[1].shape[0]
    function = functions[SPREAD if options["transposed"] else PULL]
    places = (*_fixed(script.outputs), *_fixed(script.inputs), MatrixAddress(0))
    sign, unit = 1 if options["lower"] else -1, int(options["unit_diagonal"])
    script.act("solve_sparse_triangle", *places, function, *_fields(script, 1, columns, 1), sign, unit)
    return [script]


def _incomplete_scripts(new: NewScript, functions: dict[str, int], between: Between) -> list[Script]:
    script = new()
    fields = _fields(script, 1, 1, 1)
    script.turns, script.nanoseconds = 1, _INCOMPLETE_NANOSECONDS * script.kernel.inputs[1].shape[0]
    places = (*_fixed(script.outputs), *_fixed(script.inputs), between(16 * fields[0]), MatrixAddress(0))
    script.act("factor_sparse_rows", *places, functions[INCOMPLETE], *fields)
    return [script]


# a routine, and the number of its indices among its operands
SPARSE_ROUTINES = {
    "csr_product": (_product_scripts, 1),
    "sampled_product": (_sample_scripts, 2),
    "csr_triangular_solve": (_triangle_scripts, 1),
    "csr_incomplete_lu": (_incomplete_scripts, 1),
}


def fill_sparse(routine: str, new: NewScript, functions: dict[str, int], between: Between) -> list[Script]:
    """The scripts of a routine; `functions`: addresses of the loops by name."""
    fill, _ = SPARSE_ROUTINES[routine]
    kernel = new().kernel
    if any(0 in operand.shape for operand in (*kernel.inputs, *kernel.outputs)):
        raise MissingRoutine("an operand is empty")
    return fill(new, functions, between)
