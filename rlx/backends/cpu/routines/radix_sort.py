"""Sorting in native code: stable radix sorts of records, each a key's ordered bits and the element's position.

A pass moves the records by eight bits of the key. Long rows are divided into chunks, one for each thread: each chunk
counts its digits, and moves its records to places that follow those of earlier chunks. The result is the same for any
number of chunks. Many rows are divided between threads as whole rows.

Source: Knuth, The Art of Computer Programming, volume 3, section 5.2.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rlx.backends.cpu.runtime.frame import STOPPED
from rlx.backends.cpu.runtime.native import (
    NativeSignature,
    Word,
    address_of,
    clear_bytes,
    load_byte,
    load_int32,
    native,
    pointer_operation,
    stack_of,
)
from rlx.backends.cpu.runtime.parallel_regions import launch
from rlx.backends.cpu.runtime.signals import interrupted, may_be_interrupted
from rlx.ir.kernels import Buffer, Sort

__all__ = ["sort_fields", "sort_form", "sort_step", "suits_radix_sort"]

call_task = NativeSignature("void", ("i64", "i64"))
load_half = pointer_operation("{b} = load i16, ptr {a}\n{result} = zext i16 {b} to i64")
store_byte = pointer_operation("{b} = trunc i64 {1} to i8\nstore i8 {b}, ptr {a}\n{result} = add i64 0, 0")
store_half = pointer_operation("{b} = trunc i64 {1} to i16\nstore i16 {b}, ptr {a}\n{result} = add i64 0, 0")
store_int32 = pointer_operation("{b} = trunc i64 {1} to i32\nstore i32 {b}, ptr {a}\n{result} = add i64 0, 0")

SHORTEST_ROW = 1024  # NumPy sorts shorter ones faster
LONGEST_ROW = 1 << 31
BINS = 256
TABLE_BYTES = 2048  # of the counts of a chunk

# Fields of a row, then an entry for each array, the keys first.
ROW_COUNT = 2
LENGTH = 3
PARTS = 4
CHUNKS = 5  # of a row, or with ROW_TASKS > 1 one
ROW_TASKS = 6  # threads that take whole rows
SCRATCH = 7  # slot of the records and counts
SCRATCH_BYTES = 8  # of a thread that takes rows
KEYS = 9
ARRAYS = 10
RECORD_WORDS = 11  # 1: key and position in one word, 2: in one word each
INDEX = 12  # slot of the permutation, or 0
INDEX_BYTES = 13
ENTRIES = 14

# An array: slots, and for keys how its bits are ordered.
ENTRY_WORDS = 6
SOURCE = 0
TARGET = 1
BYTES = 2
IS_FLOAT = 3
SIGN = 4  # the bit that changes the order: 0 for unsigned integers
INFINITY = 5  # bits of a float; greater ones are NaN

# The state of the sort of a row.
ROW = 0
MATRIX = 1  # the number of the row
FROM = 2
TO = 3
COUNTS = 4
SHIFT = 5
PIECES = 6
KEY = 7  # the entry of the current key
ORDERED = 8  # whether the records are already ordered by another key
SLOTS = 9

POSITION = 0xFFFFFFFF


@native
def load_item(place: Word, nbytes: Word) -> Word:
    """The bits of an element, as an unsigned number if it is shorter than a word."""
    if nbytes == 4:
        return load_int32(place) & POSITION
    if nbytes == 8:
        return place[0]
    if nbytes == 2:
        return load_half(place)
    return load_byte(place)


@native
def store_item(place: Word, nbytes: Word, bits: Word) -> int:
    """Write an element."""
    if nbytes == 4:
        store_int32(place, bits)
    elif nbytes == 8:
        place[0] = bits
    elif nbytes == 2:
        store_half(place, bits)
    else:
        store_byte(place, bits)
    return 0


@native
def ordered_bits(entry: Word, place: Word) -> int:
    """Bits that order as unsigned numbers as the elements do: -0. equals 0., and NaN is last."""
    bits = load_item(place, entry[BYTES])
    sign = entry[SIGN]
    if not entry[IS_FLOAT]:
        return bits ^ sign
    magnitude = bits & (sign - 1)
    every = sign | (sign - 1)
    if magnitude == 0:
        return sign
    if magnitude > entry[INFINITY]:
        return every
    negative = 0 - ((bits & sign) != 0)
    return bits ^ (negative & every | sign)


@native
def piece_begin(state: Word, piece: Word) -> Word:
    """The first record of a chunk."""
    return state[ROW][LENGTH] * piece // state[PIECES]


@native
def load_keys(state: Word, piece: Word) -> int:
    """Write the keys of a chunk, in the order so far."""
    entry = state[KEY]
    nbytes = entry[BYTES]
    source = state[SLOTS][entry[SOURCE]] + state[MATRIX] * state[ROW][LENGTH] * nbytes
    records = state[FROM]
    ordered = state[ORDERED]
    end = piece_begin(state, piece + 1)
    if state[ROW][RECORD_WORDS] == 1:
        for n in range(piece_begin(state, piece), end):
            position = n
            if ordered:
                position = records[n] & POSITION
            records[n] = (ordered_bits(entry, source + nbytes * position) << 32) | position
        return 0
    for n in range(piece_begin(state, piece), end):
        if not ordered:
            records[2 * n + 1] = n
        records[2 * n] = ordered_bits(entry, source + nbytes * records[2 * n + 1])
    return 0


@native
def count_digits(state: Word, piece: Word) -> int:
    """How many records of a chunk have each digit."""
    counts = state[COUNTS] + TABLE_BYTES * piece
    clear_bytes(counts, TABLE_BYTES)
    stride = 8 * state[ROW][RECORD_WORDS]
    shift = state[SHIFT]
    record = state[FROM] + stride * piece_begin(state, piece)
    end = state[FROM] + stride * piece_begin(state, piece + 1)
    while record != end:
        digit = (record[0] >> shift) & (BINS - 1)
        counts[digit] = counts[digit] + 1
        record = record + stride
    return 0


@native
def place_digits(state: Word) -> int:
    """Turn counts into first places: by digit, then by chunk. 1 if all records have one digit."""
    counts = state[COUNTS]
    pieces = state[PIECES]
    total = 0
    for digit in range(BINS):
        before = total
        for piece in range(pieces):
            count = counts[BINS * piece + digit]
            counts[BINS * piece + digit] = total
            total = total + count
        if total - before == state[ROW][LENGTH]:
            return 1
    return 0


@native
def move_records(state: Word, piece: Word) -> int:
    """Move the records of a chunk to their places."""
    places = state[COUNTS] + TABLE_BYTES * piece
    shift = state[SHIFT]
    records = state[FROM]
    target = state[TO]
    end = piece_begin(state, piece + 1)
    if state[ROW][RECORD_WORDS] == 1:
        for n in range(piece_begin(state, piece), end):
            digit = (records[n] >> shift) & (BINS - 1)
            place = places[digit]
            places[digit] = place + 1
            target[place] = records[n]
        return 0
    for n in range(piece_begin(state, piece), end):
        digit = (records[2 * n] >> shift) & (BINS - 1)
        place = places[digit]
        places[digit] = place + 1
        target[2 * place] = records[2 * n]
        target[2 * place + 1] = records[2 * n + 1]
    return 0


@native
def record_position(state: Word, number: Word) -> Word:
    """The position of an element before it was sorted."""
    if state[ROW][RECORD_WORDS] == 1:
        return state[FROM][number] & POSITION
    return state[FROM][2 * number + 1]


@native
def write_results(state: Word, piece: Word) -> int:
    """Gather the elements of a chunk of all arrays, and write their positions."""
    row = state[ROW]
    begin = piece_begin(state, piece)
    end = piece_begin(state, piece + 1)
    start = state[MATRIX] * row[LENGTH]
    for number in range(row[ARRAYS]):
        entry = row + 8 * (ENTRIES + ENTRY_WORDS * number)
        nbytes = entry[BYTES]
        source = state[SLOTS][entry[SOURCE]] + start * nbytes
        target = state[SLOTS][entry[TARGET]] + start * nbytes
        for n in range(begin, end):
            from_place = source + nbytes * record_position(state, n)
            if nbytes == 16:
                target[2 * n] = from_place[0]
                target[2 * n + 1] = from_place[1]
            else:
                store_item(target + nbytes * n, nbytes, load_item(from_place, nbytes))
    if row[INDEX]:
        nbytes = row[INDEX_BYTES]
        target = state[SLOTS][row[INDEX]] + start * nbytes
        for n in range(begin, end):
            store_item(target + nbytes * n, nbytes, record_position(state, n))
    return 0


@native
def for_pieces(state: Word, function: Word) -> int:
    """Run a function for each chunk; 1 if Ctrl-C ended it."""
    if state[PIECES] == 1:
        call_task(function, state, 0)
        return state[SLOTS][STOPPED]
    return launch(state[SLOTS], function, state, state[PIECES], state[ROW][PARTS])


@native
def sort_by_key(state: Word) -> int:
    """Order the records by the current key, from its lowest digit on."""
    row = state[ROW]
    first = 64 - 32 * row[RECORD_WORDS]
    if for_pieces(state, address_of(load_keys)):
        return 1
    for number in range(state[KEY][BYTES]):
        state[SHIFT] = first + 8 * number
        if for_pieces(state, address_of(count_digits)):
            return 1
        if not place_digits(state):
            if for_pieces(state, address_of(move_records)):
                return 1
            swapped = state[FROM]
            state[FROM] = state[TO]
            state[TO] = swapped
    return 0


@native
def sort_row(slots: Word, row: Word, number: Word, scratch: Word) -> int:
    """Sort one row by all keys, the last one first; 1 if Ctrl-C ended it."""
    nbytes = 8 * row[RECORD_WORDS] * row[LENGTH]
    state = stack_of(row, number, scratch, scratch + nbytes, scratch + 2 * nbytes, 0, row[CHUNKS], 0, 0, slots)
    key = row[KEYS]
    while key > 0:
        key = key - 1
        state[KEY] = row + 8 * (ENTRIES + ENTRY_WORDS * key)
        if sort_by_key(state):
            return 1
        state[ORDERED] = 1
    return for_pieces(state, address_of(write_results))


@native
def sort_rows(context: Word, task: Word) -> int:
    """One thread's rows; context is [slots, row]."""
    slots = context[0]
    row = context[1]
    asks = may_be_interrupted(slots)
    scratch = slots[row[SCRATCH]] + task * row[SCRATCH_BYTES]
    for number in range(row[ROW_COUNT] * task // row[ROW_TASKS], row[ROW_COUNT] * (task + 1) // row[ROW_TASKS]):
        if sort_row(slots, row, number, scratch):
            return 0
        if asks:
            interrupted(slots)
    return 0


@native
def sort_step(slots: Word, row: Word) -> int:
    """Sort all rows."""
    if row[ROW_TASKS] > 1:
        return launch(slots, address_of(sort_rows), stack_of(slots, row), row[ROW_TASKS], row[PARTS])
    for number in range(row[ROW_COUNT]):
        if sort_row(slots, row, number, slots[row[SCRATCH]]) or interrupted(slots):
            return 1
    return 0


# ------------------------------------------------------------- rows of tables
def suits_radix_sort(kernel: Sort) -> bool:
    """Whether a sort runs here: its rows are long, and its keys are ordinary numbers."""
    sizes = {1, 2, 4, 8}
    keys = kernel.inputs[: kernel.keys]
    return (
        SHORTEST_ROW <= kernel.length < LONGEST_ROW
        and all(b.dtype.kind in "buif" and b.dtype.itemsize in sizes for b in keys)
        and all(b.dtype.itemsize in {*sizes, 16} for b in kernel.inputs)
    )


class SortForm(NamedTuple):
    """How a sort is divided between threads.

    words: of a record. chunks: of a row. row_tasks: threads that take whole rows. scratch: bytes of each. parts: the
    threads that the work between two hand-overs is worth.
    """

    words: int
    chunks: int
    row_tasks: int
    scratch: int
    parts: int


def sort_form(kernel: Sort, parts: int, threads: int) -> SortForm:
    """The form for a machine with `threads` threads. parts: the threads that the whole work is worth."""
    sizes = [b.dtype.itemsize for b in kernel.inputs[: kernel.keys]]
    words = 2 if max(sizes) == 8 else 1
    useful = min(parts, threads)
    by_rows = kernel.rows >= useful
    if not by_rows:
        parts = max(parts // (kernel.rows * (1 + sum(1 + 2 * size for size in sizes))), 1)
        useful = min(parts, threads)
    chunks = 1 if by_rows else useful
    scratch = 16 * words * kernel.length + TABLE_BYTES * chunks
    return SortForm(words, chunks, useful if by_rows else 1, scratch, parts)


def sort_fields(kernel: Sort, form: SortForm, scratch: int, slot_of: Callable[[Buffer], int]) -> list[int]:
    """The fields of a row of `sort_step`. scratch: the slot of memory for all row tasks."""
    pairs = list(zip(kernel.inputs, kernel.outputs, strict=False))
    index = kernel.outputs[-1] if kernel.index else None
    places = [0, 0] if index is None else [slot_of(index), index.dtype.itemsize]
    head = [kernel.rows, kernel.length, form.parts, form.chunks, form.row_tasks, scratch, form.scratch]
    entries = [word for a, b in pairs for word in (slot_of(a), slot_of(b), *_bits_of(a.dtype))]
    return [*head, kernel.keys, len(pairs), form.words, *places, *entries]


def _bits_of(dtype: np.dtype) -> list[int]:
    """Bytes of an element, whether it is a float, the bit that changes the order, and the bits of infinity."""
    sign = -1 << (8 * dtype.itemsize - 1) if dtype.itemsize == 8 else 1 << (8 * dtype.itemsize - 1)
    if dtype.kind == "f":
        return [dtype.itemsize, 1, sign, int(np.array(np.inf, dtype).view(f"i{dtype.itemsize}"))]
    return [dtype.itemsize, 0, sign if dtype.kind == "i" else 0, 0]
