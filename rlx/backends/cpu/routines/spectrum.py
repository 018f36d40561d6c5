"""Fourier transforms side by side, one in each lane: native code for lengths that are products of 2, 3 and 5.

Written once over names that `spectrum_functions` binds for each dtype. The actions belong to scripts
(see scripts.py) whose `matrix` is a block of LANES transforms. Stockham's algorithm: each stage reads
one buffer and writes another, and the results come in order.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from rlx.backends.cpu.routines.lane_operations import VECTOR_BYTES
from rlx.backends.cpu.routines.scripts import ACTION_HEAD, MATRIX, PLACE_WORDS, copy_elements, place
from rlx.backends.cpu.routines.spectrum_operations import spectrum_operations
from rlx.backends.cpu.runtime.native import NativeFunction, Operation, Word, clear_bytes, in_scope, minimum, native

__all__ = ["spectrum_functions"]

# Bound for each dtype.
LANES = 8
ITEM = 8  # bytes of a complex number
_unbound = Operation("")
butterfly_two = butterfly_three = butterfly_four = butterfly_five = _unbound
scale_element = join_halves = part_halves = only_real = conjugate_element = copy_element = multiply_element = _unbound
turn_to_lanes = turn_from_lanes = _unbound

# Fields of an action that moves numbers between memory and lanes, behind their two places: element e of
# the transform in lane l of the block's panel is l lane steps and e element steps from the panel's first.
NUMBERS = 8  # of one transform
LANE_STEP = 9  # bytes
ELEMENT_STEP = 10
WIDTH = 11  # the number of transforms side by side
OUTER_STEP = 12  # bytes from one row of panels to the next
BYTES = 13  # of a number: ITEM, or half of it for real ones


@native
def panel_offset(state: Word, action: Word) -> int:
    """Bytes to the first number of the current panel."""
    panels = (action[WIDTH] + LANES - 1) // LANES
    across = state[MATRIX] % panels * LANES * action[LANE_STEP]
    return state[MATRIX] // panels * action[OUTER_STEP] + across


@native
def panel_lanes(state: Word, action: Word) -> int:
    """The number of lanes of the current panel that are in use."""
    panels = (action[WIDTH] + LANES - 1) // LANES
    return minimum(LANES, action[WIDTH] - state[MATRIX] % panels * LANES)


@native
def load_panel(state: Word, action: Word) -> int:
    """[lanes, memory, ...]: numbers to lanes; zeros in lanes that are not in use."""
    target = place(state, action + 8 * ACTION_HEAD)
    source = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS)) + panel_offset(state, action)
    filled = panel_lanes(state, action)
    numbers = action[NUMBERS]
    step = action[ELEMENT_STEP]
    done = 0
    if filled == LANES and action[BYTES] == ITEM:
        if action[LANE_STEP] == ITEM:
            for number in range(numbers):
                copy_element(target + VECTOR_BYTES * number, source + step * number)
            return 0
        if step == ITEM:
            while done + LANES <= numbers:
                turn_to_lanes(target + VECTOR_BYTES * done, source + ITEM * done, action[LANE_STEP])
                done = done + LANES
    else:
        clear_bytes(target, VECTOR_BYTES * numbers)
    for lane in range(filled):
        whence = source + lane * action[LANE_STEP] + done * step
        to = target + VECTOR_BYTES * done + ITEM * lane
        copy_elements(to, whence, numbers - done, VECTOR_BYTES, step, action[BYTES])
    return 0


@native
def store_panel(state: Word, action: Word) -> int:
    """[lanes, memory, ...]: numbers (or their real parts) from lanes."""
    source = place(state, action + 8 * ACTION_HEAD)
    target = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS)) + panel_offset(state, action)
    filled = panel_lanes(state, action)
    numbers = action[NUMBERS]
    step = action[ELEMENT_STEP]
    done = 0
    if filled == LANES and action[BYTES] == ITEM:
        if action[LANE_STEP] == ITEM:
            for number in range(numbers):
                copy_element(target + step * number, source + VECTOR_BYTES * number)
            return 0
        if step == ITEM:
            while done + LANES <= numbers:
                turn_from_lanes(source + VECTOR_BYTES * done, target + ITEM * done, action[LANE_STEP])
                done = done + LANES
    for lane in range(filled):
        to = target + lane * action[LANE_STEP] + done * step
        whence = source + VECTOR_BYTES * done + ITEM * lane
        copy_elements(to, whence, numbers - done, step, VECTOR_BYTES, action[BYTES])
    return 0


@native
def transform_stage(state: Word, action: Word) -> int:
    """[from, to, factors, direction, radix, groups, width]: one stage of all transforms."""
    source = place(state, action + 8 * ACTION_HEAD)
    target = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    factors = place(state, action + 8 * (ACTION_HEAD + 2 * PLACE_WORDS))
    direction = place(state, action + 8 * (ACTION_HEAD + 3 * PLACE_WORDS))
    radix = action[14]
    groups = action[15]
    row = VECTOR_BYTES * action[16]
    whence = row * groups
    for _ in range(groups):
        end = source + row
        to = target
        while source != end:
            if radix == 4:
                butterfly_four(source, whence, to, row, factors, direction)
            elif radix == 2:
                butterfly_two(source, whence, to, row, factors, direction)
            elif radix == 3:
                butterfly_three(source, whence, to, row, factors, direction)
            else:
                butterfly_five(source, whence, to, row, factors, direction)
            source = source + VECTOR_BYTES
            to = to + VECTOR_BYTES
        target = target + radix * row
        factors = factors + 2 * ITEM * (radix - 1)
    return 0


@native
def scale_lanes(state: Word, action: Word) -> int:
    """[lanes, factor, numbers]."""
    target = place(state, action + 8 * ACTION_HEAD)
    factor = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    for number in range(action[8]):
        scale_element(target + VECTOR_BYTES * number, factor)
    return 0


@native
def multiply_lanes(state: Word, action: Word) -> int:
    """[lanes, factors, numbers, numbers after these]: the latter become zeros."""
    target = place(state, action + 8 * ACTION_HEAD)
    factors = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    for number in range(action[8]):
        multiply_element(target + VECTOR_BYTES * number, factors + 2 * ITEM * number)
    clear_bytes(target + VECTOR_BYTES * action[8], VECTOR_BYTES * action[9])
    return 0


@native
def join_spectrum(state: Word, action: Word) -> int:
    """[to, from, factors, direction, half]: half + 1 numbers of a real signal's spectrum."""
    target = place(state, action + 8 * ACTION_HEAD)
    source = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    factors = place(state, action + 8 * (ACTION_HEAD + 2 * PLACE_WORDS))
    direction = place(state, action + 8 * (ACTION_HEAD + 3 * PLACE_WORDS))
    half = action[14]
    for number in range(half + 1):
        here = source + VECTOR_BYTES * (number % half)
        there = source + VECTOR_BYTES * ((half - number) % half)
        join_halves(target + VECTOR_BYTES * number, here, there, factors + 2 * ITEM * number, direction)
    return 0


@native
def part_spectrum(state: Word, action: Word) -> int:
    """[to, from, factors, direction, half]: part of the transform of a real signal by one of `half` numbers."""
    target = place(state, action + 8 * ACTION_HEAD)
    source = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    factors = place(state, action + 8 * (ACTION_HEAD + 2 * PLACE_WORDS))
    direction = place(state, action + 8 * (ACTION_HEAD + 3 * PLACE_WORDS))
    half = action[14]
    only_real(source)
    only_real(source + VECTOR_BYTES * half)
    for number in range(half):
        here = source + VECTOR_BYTES * number
        there = source + VECTOR_BYTES * (half - number)
        part_halves(target + VECTOR_BYTES * number, here, there, factors + 2 * ITEM * number, direction)
    return 0


@native
def mirror_spectrum(state: Word, action: Word) -> int:
    """[lanes, length]: the other half of a real signal's spectrum."""
    target = place(state, action + 8 * ACTION_HEAD)
    length = action[5]
    for number in range(length // 2 + 1, length):
        conjugate_element(target + VECTOR_BYTES * number, target + VECTOR_BYTES * (length - number))
    return 0


_ACTIONS = (
    load_panel,
    store_panel,
    transform_stage,
    scale_lanes,
    multiply_lanes,
    join_spectrum,
    part_spectrum,
    mirror_spectrum,
)


@cache
def spectrum_functions(real: np.dtype) -> tuple[NativeFunction, ...]:
    """The actions for complex numbers whose parts have a dtype."""
    sizes = {"LANES": VECTOR_BYTES // (2 * real.itemsize), "ITEM": 2 * real.itemsize}
    helpers = (panel_offset, panel_lanes)
    return in_scope((*_ACTIONS, *helpers), spectrum_operations(real) | sizes)[: len(_ACTIONS)]
