"""Library routines in native code: for every matrix of a batch, a script of copies and LAPACK calls.

A script is stored in its row: actions [function, length in words, fields...], then the actions for a
matrix that failed, then constants. An action returns 1 if the matrix failed. Places are three
words: a slot of the frame (or SCRATCH, CONSTANT), the first byte, and bytes from matrix to matrix.
Tasks are parts of the batch, each with its own scratch memory, run over the thread pool.
"""

from __future__ import annotations

from rlx.backends.cpu.runtime.frame import STOPPED
from rlx.backends.cpu.runtime.native import (
    NativeFunction,
    NativeSignature,
    Word,
    address_of,
    clear_bytes,
    copy_bytes,
    load_int32,
    maximum,
    minimum,
    native,
    pointer_operation,
    stack,
    stack_of,
)
from rlx.backends.cpu.runtime.signals import interrupted, may_be_interrupted

__all__ = ["ACTIONS", "script_step"]

# Fields of a row.
BATCH = 2
TASKS = 3
PARTS = 4  # the number of threads that the work is worth
SCRATCH_SLOT = 5
SCRATCH_BYTES = 6  # of one task
CONSTANTS = 7  # words from the row to the constants
FAILURE = 8  # words from the row to the actions for a failed matrix, which end at the constants
LAUNCH = 9  # address of parallel_regions.launch
FIRST_ACTION = 10

# Slots that name no buffer: words of a frame that are none.
SCRATCH = 0
CONSTANT = 1
PLACE_WORDS = 3
ACTION_HEAD = 2

# The state of an action: the frame, the row, the task's scratch memory, the number of the matrix.
SLOTS = 0
ROW = 1
MEMORY = 2
MATRIX = 3

call_launch = NativeSignature("i64", ("i64",) * 5)
call_action = NativeSignature("i64", ("i64", "i64"))
# LAPACK takes addresses, followed by the lengths of its strings: ones. Extra arguments do no harm.
call_fortran = NativeSignature("void", ("i64",) * 24)
FORTRAN_ARGUMENTS = 24

store_int32 = pointer_operation("{b} = trunc i64 {1} to i32\nstore i32 {b}, ptr {a}\n{result} = add i64 0, 0")


def _reciprocal(kind: str) -> str:
    return (
        f"{{b}} = load {kind}, ptr {{a}}\n{{c}} = fdiv {kind} 1.0, {{b}}\n"
        f"{{a}}to = inttoptr i64 {{1}} to ptr\nstore {kind} {{c}}, ptr {{a}}to\n{{result}} = add i64 0, 0"
    )


reciprocal_single = pointer_operation(_reciprocal("float"))
reciprocal_double = pointer_operation(_reciprocal("double"))


@native
def place(state: Word, reference: Word) -> Word:
    """The address that three words give for the current matrix."""
    if reference[0] == SCRATCH:
        return state[MEMORY] + reference[1]
    if reference[0] == CONSTANT:
        return state[ROW] + 8 * state[ROW][CONSTANTS] + reference[1]
    return state[SLOTS][reference[0]] + reference[1] + state[MATRIX] * reference[2]


@native
def operand_place(state: Word, action: Word, number: Word) -> Word:
    """The address of an operand of an action whose first fields are places."""
    return place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS * number))


@native
def run_actions(state: Word, action: Word, end: Word) -> int:
    """Run the actions up to `end`, or to the first that fails."""
    while action != end:
        if call_action(action[0], state, action):
            return 1
        action = action + 8 * action[1]
    return 0


@native
def script_task(context: Word, task: Word) -> int:
    """A part of the batch; context is [slots, row]."""
    row = context[1]
    state = stack_of(context[0], row, context[0][row[SCRATCH_SLOT]] + task * row[SCRATCH_BYTES], 0)
    end = row[BATCH] * (task + 1) // row[TASKS]
    asks = may_be_interrupted(context[0])
    for matrix in range(row[BATCH] * task // row[TASKS], end):
        state[MATRIX] = matrix
        if run_actions(state, row + 8 * FIRST_ACTION, row + 8 * row[FAILURE]):
            run_actions(state, row + 8 * row[FAILURE], row + 8 * row[CONSTANTS])
        if asks:
            interrupted(context[0])
        if context[0][STOPPED]:
            return 0
    return 0


@native
def script_step(slots: Word, row: Word) -> int:
    """Run a script for a whole batch."""
    context = stack_of(slots, row)
    return call_launch(row[LAUNCH], slots, address_of(script_task), context, row[TASKS], row[PARTS])


# ------------------------------------------------------------- calls and checks
@native
def call_routine(state: Word, action: Word) -> int:
    """[function, places of the arguments...]."""
    given = stack(FORTRAN_ARGUMENTS)
    count = (action[1] - 3) // PLACE_WORDS
    for number in range(FORTRAN_ARGUMENTS):
        given[number] = 1
    for number in range(count):
        given[number] = place(state, action + 8 * (3 + PLACE_WORDS * number))
    call_fortran(
        action[2], given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7],
        given[8], given[9], given[10], given[11], given[12], given[13], given[14], given[15],
        given[16], given[17], given[18], given[19], given[20], given[21], given[22], given[23],
    )  # fmt: skip
    return 0


@native
def check_information(state: Word, action: Word) -> int:
    """[place of LAPACK's info]: fails unless it is 0."""
    return load_int32(place(state, action + 8 * ACTION_HEAD)) != 0


@native
def check_numbers(state: Word, action: Word) -> int:
    """[place, count, bytes of a number, limit]: fails if the bits of a magnitude are over the limit."""
    numbers = place(state, action + 8 * ACTION_HEAD)
    count = action[5]
    limit = action[7]
    if action[6] == 4:
        for number in range(count):
            if load_int32(numbers + 4 * number) & 0x7FFFFFFF > limit:
                return 1
        return 0
    for number in range(count):
        if numbers[number] & 0x7FFFFFFFFFFFFFFF > limit:
            return 1
    return 0


# ------------------------------------------------------------- copies
# Fields of a copy: two places, then these.
ROWS = 8
COLUMNS = 9
TARGET_ROW = 10  # bytes from row to row
TARGET_COLUMN = 11
SOURCE_ROW = 12
SOURCE_COLUMN = 13
ITEM = 14
PART = 15
CONJUGATE = 16

WHOLE = 0
LOWER = 1  # zeros above the diagonal
UPPER = 2
BAND = 16


@native
def copy_elements(target: Word, source: Word, count: Word, target_step: Word, source_step: Word, item: Word) -> int:
    """Copy `count` elements of 4, 8 or 16 bytes."""
    if item == 4:
        for _ in range(count):
            store_int32(target, load_int32(source))
            target = target + target_step
            source = source + source_step
    elif item == 8:
        for _ in range(count):
            target[0] = source[0]
            target = target + target_step
            source = source + source_step
    else:
        for _ in range(count):
            target[0] = source[0]
            target[1] = source[1]
            target = target + target_step
            source = source + source_step
    return 0


@native
def clear_elements(target: Word, count: Word, step: Word, item: Word) -> int:
    for _ in range(count):
        if item == 4:
            store_int32(target, 0)
        else:
            target[0] = 0
            if item == 16:
                target[1] = 0
        target = target + step
    return 0


@native
def conjugate_elements(target: Word, count: Word, step: Word, item: Word) -> int:
    """Change the sign of imaginary parts, the topmost bits of elements."""
    target = target + item - 8
    for _ in range(count):
        target[0] = target[0] ^ (1 << 63)
        target = target + step
    return 0


@native
def copy_matrix(state: Word, action: Word) -> int:
    """[target, source, rows, columns, four steps, bytes of an element, part, conjugate]."""
    target = place(state, action + 8 * ACTION_HEAD)
    source = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    rows = action[ROWS]
    columns = action[COLUMNS]
    item = action[ITEM]
    row_step = action[TARGET_ROW]
    column_step = action[TARGET_COLUMN]
    if action[PART] + action[CONJUGATE] == 0 and column_step == item and action[SOURCE_COLUMN] == item:
        for row in range(rows):
            copy_bytes(target + row * row_step, source + row * action[SOURCE_ROW], columns * item)
        return 0
    for band in range((rows + BAND - 1) // BAND):
        top = BAND * band
        bottom = minimum(top + BAND, rows)
        for column in range(columns):
            first = top
            last = bottom
            if action[PART] == LOWER:
                first = minimum(maximum(top, column), bottom)
            if action[PART] == UPPER:
                last = maximum(minimum(bottom, column + 1), top)
            to = target + column * column_step
            whence = source + column * action[SOURCE_COLUMN] + first * action[SOURCE_ROW]
            clear_elements(to + top * row_step, first - top, row_step, item)
            copy_elements(to + first * row_step, whence, last - first, row_step, action[SOURCE_ROW], item)
            clear_elements(to + last * row_step, bottom - last, row_step, item)
            if action[CONJUGATE]:
                conjugate_elements(to + first * row_step, last - first, row_step, item)
    return 0


@native
def take_rows(state: Word, action: Word) -> int:
    """[target, source, int32 order, rows, bytes of a row, scatter]: target[i] = source[order[i]],
    or target[order[i]] = source[i]."""
    target = place(state, action + 8 * ACTION_HEAD)
    source = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    order = place(state, action + 8 * (ACTION_HEAD + 2 * PLACE_WORDS))
    size = action[12]
    for row in range(action[11]):
        other = load_int32(order + 4 * row)
        if action[13]:
            copy_bytes(target + size * other, source + size * row, size)
        else:
            copy_bytes(target + size * row, source + size * other, size)
    return 0


# ------------------------------------------------------------- work that LAPACK leaves to its caller
@native
def lower_numbers(state: Word, action: Word) -> int:
    """[place, count]: int32 numbers that count from 1 count from 0."""
    numbers = place(state, action + 8 * ACTION_HEAD)
    for number in range(action[5]):
        store_int32(numbers + 4 * number, load_int32(numbers + 4 * number) - 1)
    return 0


@native
def permute_by_pivots(state: Word, action: Word) -> int:
    """[pivots from 0, permutation, steps, rows]: the order of rows that interchanges make."""
    pivots = place(state, action + 8 * ACTION_HEAD)
    order = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    rows = action[9]
    for row in range(rows):
        store_int32(order + 4 * row, row)
    for step in range(action[8]):
        other = minimum(maximum(load_int32(pivots + 4 * step), 0), rows - 1)
        moved = load_int32(order + 4 * other)
        store_int32(order + 4 * other, load_int32(order + 4 * step))
        store_int32(order + 4 * step, moved)
    return 0


@native
def invert_number(state: Word, action: Word) -> int:
    """[target, source, bytes]: target = 1 / source, a real number."""
    target = place(state, action + 8 * ACTION_HEAD)
    source = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    if action[8] == 4:
        reciprocal_single(source, target)
    else:
        reciprocal_double(source, target)
    return 0


@native
def is_zero(number: Word, item: Word) -> int:
    """Whether a real number in memory is 0 (or -0)."""
    if item == 4:
        return load_int32(number) & 0x7FFFFFFF == 0
    return number[0] & 0x7FFFFFFFFFFFFFFF == 0


@native
def pair_eigenvectors(state: Word, action: Word) -> int:
    """[target, vectors, imaginary parts of the eigenvalues, order, bytes of a real number].

    LAPACK packs a conjugate pair of complex vectors as two real columns: real part, imaginary part.
    Elements of the target that are not written are zeros.
    """
    target = place(state, action + 8 * ACTION_HEAD)
    vectors = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    imaginary = place(state, action + 8 * (ACTION_HEAD + 2 * PLACE_WORDS))
    order = action[11]
    item = action[12]
    row_step = 2 * item * order
    clear_bytes(target, row_step * order)
    column = 0
    while column < order:
        to = target + 2 * item * column
        real = vectors + item * order * column
        copy_elements(to, real, order, row_step, item, item)
        if is_zero(imaginary + item * column, item) or column + 1 == order:
            column = column + 1
        else:
            copy_elements(to + item, real + item * order, order, row_step, item, item)
            copy_elements(to + 2 * item, real, order, row_step, item, item)
            copy_elements(to + 3 * item, real + item * order, order, row_step, item, item)
            negate_elements(to + 3 * item, order, row_step, item)
            column = column + 2
    return 0


@native
def negate_elements(target: Word, count: Word, step: Word, item: Word) -> int:
    """Change the sign of real numbers."""
    for _ in range(count):
        if item == 4:
            store_int32(target, load_int32(target) ^ (1 << 31))
        else:
            target[0] = target[0] ^ (1 << 63)
        target = target + step
    return 0


ACTIONS: tuple[NativeFunction, ...] = (
    call_routine,
    check_information,
    check_numbers,
    copy_matrix,
    take_rows,
    lower_numbers,
    permute_by_pivots,
    invert_number,
    pair_eigenvectors,
)
