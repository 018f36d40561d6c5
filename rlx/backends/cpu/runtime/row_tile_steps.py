"""Kernels run tile by tile: each worker takes a tile through all of them, then takes the next one."""

from __future__ import annotations

from rlx.backends.cpu.routines.gemm import BAND_ROWS, COLUMNS, ROWS, STRIPE_COLUMNS, gemm_block
from rlx.backends.cpu.runtime.kernel_calls import call_kernel, run_chunk
from rlx.backends.cpu.runtime.native import Word, address_of, atomic_add, minimum, native, stack_of
from rlx.backends.cpu.runtime.parallel_regions import launch
from rlx.backends.cpu.runtime.signals import interrupted, may_be_interrupted

__all__ = ["row_tiles_step"]

# Fields of a row. After them: the slots of the frame that the kernels use, two words for each
# local buffer, and the kernels.
COUNT = 2  # the number of parts of every buffer
ROW_TILES = 3  # runs of parts that are taken at a time
WORKERS = 4
PARTS = 5
SCRATCH = 6  # slot of the workers' memory: their own slots, then local buffers
WORKER_BYTES = 7
SHARED = 8  # the number of slots of the frame
LOCALS = 9  # the number of local slots
LOCAL_START = 10  # bytes from the start of a worker's memory
LONGEST = 11  # most parts in a tile
MEMBERS = 12  # words from the row's start to the kernels
ENTRIES = 13

# A local buffer: the offset of one part's bytes, and their number.
LOCAL_WORDS = 2
LOCAL_OFFSET = 0
LOCAL_BYTES = 1

# A kernel: its kind, its length in words, iterations in one part, and its own words.
KIND = 0
LENGTH = 1
EACH = 2
KERNEL = 3
KERNEL_ROW = 4
CHUNK_EXTENT = 4
CHUNK_COUNT = 5
CHUNKED_ROW = 6
PRODUCT_ROW = 3
LOOPS = 0
CHUNKED = 1
PRODUCT = 2


@native
def product_rows(slots: Word, row: Word, first: Word, last: Word) -> int:
    """Rows of a product, numbered through all batches, in blocks."""
    while first < last:
        batch = first // row[ROWS]
        top = first % row[ROWS]
        rows = minimum(minimum(row[BAND_ROWS], row[ROWS] - top), last - first)
        left = 0
        while left < row[COLUMNS]:
            columns = minimum(row[STRIPE_COLUMNS], row[COLUMNS] - left)
            gemm_block(slots, row, batch, top, rows, left, columns)
            left = left + columns
        first = first + rows
    return 0


@native
def run_member(slots: Word, member: Word, begin: Word, end: Word) -> int:
    """One kernel for the parts [begin, end)."""
    first = begin * member[EACH]
    last = end * member[EACH]
    if member[KIND] == LOOPS:
        call_kernel(member[KERNEL], slots, member + 8 * KERNEL_ROW, first, last, 0)
    elif member[KIND] == CHUNKED:
        own = member + 8 * CHUNKED_ROW
        for chunk in range(first, last):
            run_chunk(member[KERNEL], slots, own, member[CHUNK_EXTENT], member[CHUNK_COUNT], chunk)
    else:
        product_rows(slots, member + 8 * PRODUCT_ROW, first, last)
    return 0


@native
def run_row_tile(row: Word, own: Word, begin: Word, end: Word) -> int:
    """All kernels for one tile; `own` is the worker's memory."""
    local = row + 8 * (ENTRIES + row[SHARED])
    slot = row[SHARED]
    for _ in range(row[LOCALS]):
        start = own + row[LOCAL_START] + local[LOCAL_OFFSET] * row[LONGEST]
        own[slot] = start - begin * local[LOCAL_BYTES]
        slot = slot + 1
        local = local + 8 * LOCAL_WORDS
    member = row + 8 * row[MEMBERS]
    after = row + 8 * row[1]
    while member != after:
        run_member(own, member, begin, end)
        member = member + 8 * member[LENGTH]
    return 0


@native
def row_tile_worker(context: Word, worker: Word) -> int:
    """Take row tiles until there are no more; context is [slots, row, row tiles taken]."""
    slots = context[0]
    row = context[1]
    own = slots[row[SCRATCH]] + worker * row[WORKER_BYTES]
    for slot in range(row[SHARED]):
        own[slot] = slots[row[ENTRIES + slot]]
    row_tiles = row[ROW_TILES]
    asks = may_be_interrupted(slots)
    while 1:
        tile = atomic_add(context + 16, 1)
        if tile >= row_tiles:
            return 0
        run_row_tile(row, own, row[COUNT] * tile // row_tiles, row[COUNT] * (tile + 1) // row_tiles)
        if asks and interrupted(slots):
            atomic_add(context + 16, row_tiles)
    return 0


@native
def row_tiles_step(slots: Word, row: Word) -> int:
    """All row tiles, on as many workers as have memory."""
    return launch(slots, address_of(row_tile_worker), stack_of(slots, row, 0), row[WORKERS], row[PARTS])
