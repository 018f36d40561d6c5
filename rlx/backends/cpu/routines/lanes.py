"""Small matrices of a large batch, factorised and solved side by side: native code over lanes.

Written once over names that `lane_functions` binds for each dtype. The actions belong to scripts
(see scripts.py) whose `matrix` is a block of LANES matrices; lanes without a matrix repeat the last.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from rlx.backends.cpu.routines.lane_operations import VECTOR_BYTES, lane_count, lane_operations
from rlx.backends.cpu.routines.scripts import ACTION_HEAD, MATRIX, PLACE_WORDS, place, store_int32
from rlx.backends.cpu.runtime.native import NativeFunction, Operation, Word, in_scope, load_int32, minimum, native

__all__ = ["lane_functions"]

# Bound for each dtype.
LANES = 16
ELEMENT = 64  # bytes of an element of all lanes
NUMBER = 4  # bytes of a real number
_unbound = Operation("")
subtract_product = subtract_conjugate_product = divide = divide_unless_zero = divide_by_real = _unbound
square_root = spoil = clear = start_search = look_at = is_picked = swap_picked = _unbound
lane_number = move_number = conjugate = turn_to_lanes = turn_from_lanes = _unbound

# Fields of an action that moves matrices between memory and lanes, after the places of the lanes and
# of the first matrix of the block.
NUMBERS = 8  # real numbers in a matrix
MATRIX_STEP = 9  # bytes
COUNT = 10  # matrices in the batch
# and of one that moves rows in an order
COLUMNS = 8  # real numbers in a row
ROWS = 11
ORDER = 12  # place of the int32 order of the block's first matrix: row r of the lanes is row order[r]


@native
def lanes_filled(state: Word, count: Word) -> int:
    """The number of lanes of the current block that have a matrix."""
    return minimum(LANES, count - LANES * state[MATRIX])


@native
def pack_lanes(state: Word, action: Word) -> int:
    """Matrices from memory to lanes."""
    target = place(state, action + 8 * ACTION_HEAD)
    source = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    step = action[MATRIX_STEP]
    filled = lanes_filled(state, action[COUNT])
    done = 0
    if filled == LANES:
        while done + LANES <= action[NUMBERS]:
            turn_to_lanes(target + VECTOR_BYTES * done, source + NUMBER * done, step)
            done = done + LANES
    for lane in range(LANES):
        whence = source + minimum(lane, filled - 1) * step
        to = target + NUMBER * lane
        for number in range(done, action[NUMBERS]):
            move_number(to + VECTOR_BYTES * number, whence + NUMBER * number)
    return 0


@native
def unpack_lanes(state: Word, action: Word) -> int:
    """Matrices from lanes to memory."""
    source = place(state, action + 8 * ACTION_HEAD)
    target = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    step = action[MATRIX_STEP]
    filled = lanes_filled(state, action[COUNT])
    done = 0
    if filled == LANES:
        while done + LANES <= action[NUMBERS]:
            turn_from_lanes(source + VECTOR_BYTES * done, target + NUMBER * done, step)
            done = done + LANES
    for lane in range(filled):
        to = target + lane * step
        whence = source + NUMBER * lane
        for number in range(done, action[NUMBERS]):
            move_number(to + NUMBER * number, whence + VECTOR_BYTES * number)
    return 0


@native
def pack_ordered(state: Word, action: Word) -> int:
    """Matrices from memory to lanes, rows in an order."""
    target = place(state, action + 8 * ACTION_HEAD)
    source = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    order = place(state, action + 8 * ORDER)
    filled = lanes_filled(state, action[COUNT])
    columns = action[COLUMNS]
    for lane in range(LANES):
        given = minimum(lane, filled - 1)
        for row in range(action[ROWS]):
            other = load_int32(order + 4 * (given * action[ROWS] + row))
            whence = source + given * action[MATRIX_STEP] + NUMBER * columns * other
            to = target + VECTOR_BYTES * columns * row + NUMBER * lane
            for number in range(columns):
                move_number(to + VECTOR_BYTES * number, whence + NUMBER * number)
    return 0


@native
def unpack_ordered(state: Word, action: Word) -> int:
    """Matrices from lanes to memory, rows in an order."""
    source = place(state, action + 8 * ACTION_HEAD)
    target = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    order = place(state, action + 8 * ORDER)
    columns = action[COLUMNS]
    for lane in range(lanes_filled(state, action[COUNT])):
        for row in range(action[ROWS]):
            other = load_int32(order + 4 * (lane * action[ROWS] + row))
            to = target + lane * action[MATRIX_STEP] + NUMBER * columns * other
            whence = source + VECTOR_BYTES * columns * row + NUMBER * lane
            for number in range(columns):
                move_number(to + NUMBER * number, whence + VECTOR_BYTES * number)
    return 0


@native
def conjugate_lanes(state: Word, action: Word) -> int:
    """[lanes, elements]."""
    target = place(state, action + 8 * ACTION_HEAD)
    for element in range(action[5]):
        conjugate(target + ELEMENT * element)
    return 0


@native
def cholesky_lanes(state: Word, action: Word) -> int:
    """[lanes, order]: the lower factor in place; NaN if a pivot is not positive."""
    first = place(state, action + 8 * ACTION_HEAD)
    order = action[5]
    step = order * ELEMENT
    for pivot in range(order):
        diagonal = first + pivot * (step + ELEMENT)
        square_root(diagonal)
        for row in range(pivot + 1, order):
            divide_by_real(first + row * step + pivot * ELEMENT, diagonal)
        for row in range(pivot + 1, order):
            factor = first + row * step + pivot * ELEMENT
            target = first + row * step
            for column in range(pivot + 1, row + 1):
                other = first + column * step + pivot * ELEMENT
                subtract_conjugate_product(target + column * ELEMENT, factor, other)
    last = first + (order - 1) * (step + ELEMENT)
    for row in range(order):
        for column in range(row + 1):
            spoil(first + row * step + column * ELEMENT, last)
        for column in range(row + 1, order):
            clear(first + row * step + column * ELEMENT)
    return 0


@native
def lu_lanes(state: Word, action: Word) -> int:
    """[lanes, pivots (a vector for each, behind one more), rows, columns]: packed factors in place."""
    first = place(state, action + 8 * ACTION_HEAD)
    best = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    rows = action[8]
    columns = action[9]
    step = columns * ELEMENT
    for pivot in range(minimum(rows, columns)):
        index = best + VECTOR_BYTES * (1 + pivot)
        upper = first + pivot * step
        start_search(best, index, pivot)
        for row in range(pivot, rows):
            look_at(best, index, first + row * step + pivot * ELEMENT, row)
        for row in range(pivot + 1, rows):
            if is_picked(index, row):
                for column in range(columns):
                    swap_picked(upper + column * ELEMENT, first + row * step + column * ELEMENT, index, row)
        for row in range(pivot + 1, rows):
            target = first + row * step
            factor = target + pivot * ELEMENT
            divide_unless_zero(factor, upper + pivot * ELEMENT)
            for column in range(pivot + 1, columns):
                subtract_product(target + column * ELEMENT, factor, upper + column * ELEMENT)
    return 0


@native
def unpack_pivots(state: Word, action: Word) -> int:
    """[pivots (a vector for each), int32 pivots, int32 permutations, steps, rows, count]."""
    source = place(state, action + 8 * ACTION_HEAD)
    pivots = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    order = place(state, action + 8 * (ACTION_HEAD + 2 * PLACE_WORDS))
    steps = action[11]
    rows = action[12]
    for lane in range(lanes_filled(state, action[13])):
        for row in range(rows):
            store_int32(order + 4 * row, row)
        for step in range(steps):
            other = lane_number(source + VECTOR_BYTES * step + NUMBER * lane)
            store_int32(pivots + 4 * step, other)
            moved = load_int32(order + 4 * other)
            store_int32(order + 4 * other, load_int32(order + 4 * step))
            store_int32(order + 4 * step, moved)
        pivots = pivots + 4 * steps
        order = order + 4 * rows
    return 0


@native
def substitute_lanes(state: Word, action: Word) -> int:
    """[triangles, right sides, order, right sides' number, lower, unit, four steps]: solutions in place.

    Steps are elements from row to row and from column to column, of a triangle, of right sides.
    """
    matrix = place(state, action + 8 * ACTION_HEAD)
    first = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    order = action[8]
    matrix_row = action[12] * ELEMENT
    matrix_column = action[13] * ELEMENT
    side_row = action[14] * ELEMENT
    side_column = action[15] * ELEMENT
    for turn in range(order):
        row = turn
        begin = 0
        if not action[10]:
            row = order - 1 - turn
            begin = row + 1
        for column in range(action[9]):
            side = first + column * side_column
            target = side + row * side_row
            for other in range(begin, begin + turn):
                factor = matrix + row * matrix_row + other * matrix_column
                subtract_product(target, factor, side + other * side_row)
            if not action[11]:
                divide(target, matrix + row * (matrix_row + matrix_column))
    return 0


_ACTIONS = (
    pack_lanes,
    unpack_lanes,
    pack_ordered,
    unpack_ordered,
    conjugate_lanes,
    cholesky_lanes,
    lu_lanes,
    unpack_pivots,
    substitute_lanes,
)


@cache
def lane_functions(dtype: np.dtype) -> tuple[NativeFunction, ...]:
    """The actions for matrices of a dtype."""
    is_complex = dtype.kind == "c"
    sizes = {
        "LANES": lane_count(dtype),
        "ELEMENT": VECTOR_BYTES * (1 + is_complex),
        "NUMBER": VECTOR_BYTES // lane_count(dtype),
    }
    return in_scope((*_ACTIONS, lanes_filled), lane_operations(dtype) | sizes)[: len(_ACTIONS)]
