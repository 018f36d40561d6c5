"""Matrix products in native code: blocks of a batch over the thread pool, each one a BLAS call."""

from __future__ import annotations

from rlx.backends.cpu.runtime.frame import POOL, THREADS
from rlx.backends.cpu.runtime.native import (
    NativeSignature,
    Word,
    address_of,
    clear_bytes,
    maximum,
    minimum,
    native,
    stack_of,
)
from rlx.backends.cpu.runtime.parallel_regions import launch

__all__ = ["gemm_step"]


def _blas_signature(integers: int, scalar: str) -> NativeSignature:
    """(integers..., alpha, a, lda, b or x, ldb or step, beta, c or y, ldc or step)."""
    array = ("ptr", "i32")
    return NativeSignature("void", (*("i32",) * integers, scalar, *array, *array, scalar, *array))


# cblas_?gemm(order, transpose a, transpose b, m, n, k, alpha, ...)
call_single = _blas_signature(6, "float")
call_double = _blas_signature(6, "double")
call_complex = _blas_signature(6, "ptr")
# cblas_?gemv(order, transpose, m, n, alpha, ...)
call_single_vector = _blas_signature(4, "float")
call_double_vector = _blas_signature(4, "double")
call_complex_vector = _blas_signature(4, "ptr")

# Fields of a row.
FUNCTION = 2  # the cblas function: gemm, or gemv if MATRIX says so
KIND = 3  # its type: SINGLE, DOUBLE or COMPLEX
PARTS = 4  # the number of tasks that the work is worth
BATCH = 5
ROWS = 6
COLUMNS = 7
DEPTH = 8
# slot, first byte, bytes from batch to batch, from row to row; flag, leading dimension; bytes from
# stack to stack of batches
LEFT = 9
RIGHT = 16  # the same, from column to column
OUT = 23
ACCUMULATE = 30
ALPHA = 31  # address of a complex one
BETA = 32  # address of a complex zero or one
ITEM_BYTES = 33
MATRIX = 34  # for one row or column of results: the factor that is a matrix, LEFT or RIGHT; or 0
VECTOR_STEP = 35  # elements from one to the next of the factor that is a vector
RESULT_STEP = 36
BAND_ROWS = 37  # the most rows and columns of a block: BLAS is faster on small blocks
STRIPE_COLUMNS = 38
STACK = 39  # batches in one stack
BLOCK_THREADS = 40  # threads for which the product is cut in blocks, or 0: those of the pool

SLOT = 0
OFFSET = 1
BATCH_STEP = 2
BLOCK_STEP = 3
TRANSPOSE = 4
LEADING = 5
STACK_STEP = 6

SINGLE = 0
DOUBLE = 1
COMPLEX = 2

ROW_MAJOR = 101
NOT_TRANSPOSED = 111
TRANSPOSED = 112


@native
def matrix_place(slots: Word, row: Word, side: Word, batch: Word) -> int:
    """The address of one batch's matrix."""
    start = slots[row[side]] + row[side + OFFSET]
    stack = row[STACK]
    return start + batch // stack * row[side + STACK_STEP] + batch % stack * row[side + BATCH_STEP]


@native
def gemm_block(
    slots: Word, row: Word, batch: Word, top: Word, rows: Word, left: Word, columns: Word
) -> int:
    """One BLAS call: `rows` x `columns` of the result from (top, left) on, in one batch."""
    a = matrix_place(slots, row, LEFT, batch) + top * row[LEFT + BLOCK_STEP]
    b = matrix_place(slots, row, RIGHT, batch) + left * row[RIGHT + BLOCK_STEP]
    c = matrix_place(slots, row, OUT, batch) + top * row[OUT + BLOCK_STEP] + left * row[ITEM_BYTES]
    if row[MATRIX] == LEFT:
        return gemv_block(row, a, b, c, rows)
    if row[MATRIX] == RIGHT:
        return gemv_block(row, b, a, c, columns)
    ta = row[LEFT + TRANSPOSE]
    tb = row[RIGHT + TRANSPOSE]
    lda = row[LEFT + LEADING]
    ldb = row[RIGHT + LEADING]
    ldc = row[OUT + LEADING]
    f = row[FUNCTION]
    k = row[DEPTH]
    beta = row[ACCUMULATE]
    if row[KIND] == SINGLE:
        call_single(f, ROW_MAJOR, ta, tb, rows, columns, k, 1, a, lda, b, ldb, beta, c, ldc)
    elif row[KIND] == DOUBLE:
        call_double(f, ROW_MAJOR, ta, tb, rows, columns, k, 1, a, lda, b, ldb, beta, c, ldc)
    else:
        alpha = row[ALPHA]
        beta = row[BETA]
        call_complex(f, ROW_MAJOR, ta, tb, rows, columns, k, alpha, a, lda, b, ldb, beta, c, ldc)
    return 0


@native
def gemv_block(row: Word, a: Word, x: Word, y: Word, size: Word) -> int:
    """A BLAS call for `size` elements of a result that is a vector."""
    f = row[FUNCTION]
    t = row[row[MATRIX] + TRANSPOSE]
    lda = row[row[MATRIX] + LEADING]
    xs = row[VECTOR_STEP]
    ys = row[RESULT_STEP]
    beta = row[ACCUMULATE]
    m = size
    n = row[DEPTH]
    if t == TRANSPOSED:
        m = row[DEPTH]
        n = size
    if row[KIND] == SINGLE:
        call_single_vector(f, ROW_MAJOR, t, m, n, 1, a, lda, x, xs, beta, y, ys)
    elif row[KIND] == DOUBLE:
        call_double_vector(f, ROW_MAJOR, t, m, n, 1, a, lda, x, xs, beta, y, ys)
    else:
        alpha = row[ALPHA]
        beta = row[BETA]
        call_complex_vector(f, ROW_MAJOR, t, m, n, alpha, a, lda, x, xs, beta, y, ys)
    return 0


@native
def gemm_task(context: Word, task: Word) -> int:
    """One block of one batch; context is [slots, row, blocks of rows, blocks of columns]."""
    row = context[1]
    bands = context[2]
    stripes = context[3]
    batch = task // (bands * stripes)
    band = task // stripes % bands
    stripe = task % stripes
    top = row[ROWS] * band // bands
    left = row[COLUMNS] * stripe // stripes
    rows = row[ROWS] * (band + 1) // bands - top
    columns = row[COLUMNS] * (stripe + 1) // stripes - left
    gemm_block(context[0], row, batch, top, rows, left, columns)
    return 0


@native
def clear_result(slots: Word, row: Word) -> int:
    """A product over nothing."""
    if row[ACCUMULATE]:
        return 0
    for batch in range(row[BATCH]):
        place = matrix_place(slots, row, OUT, batch)
        for _ in range(row[ROWS]):
            clear_bytes(place, row[COLUMNS] * row[ITEM_BYTES])
            place = place + row[OUT + BLOCK_STEP]
    return 0


@native
def choose_bands(row: Word, blocks: Word) -> int:
    """The number of bands of rows for the `blocks` blocks that read least: the squarest ones."""
    best = 1
    least = -1
    for bands in range(1, blocks + 1):
        if blocks % bands == 0:
            reads = row[ROWS] // bands + row[COLUMNS] * bands // blocks
            if least < 0 or reads < least:
                least = reads
                best = bands
    return minimum(best, row[ROWS])


@native
def gemm_step(slots: Word, row: Word) -> int:
    """A batch of products, cut in blocks if there are fewer products than threads."""
    if row[BATCH] * row[ROWS] * row[COLUMNS] == 0:
        return 0
    if row[DEPTH] == 0:
        return clear_result(slots, row)
    threads = row[BLOCK_THREADS]
    if threads == 0:
        threads = slots[POOL][THREADS]
    limit = minimum(row[PARTS], threads)
    bands = 1
    stripes = 1
    if limit > row[BATCH]:
        blocks = (limit + row[BATCH] - 1) // row[BATCH]
        bands = choose_bands(row, blocks)
        stripes = minimum(maximum(blocks // bands, 1), row[COLUMNS])
    bands = maximum(bands, (row[ROWS] + row[BAND_ROWS] - 1) // row[BAND_ROWS])
    stripes = maximum(stripes, (row[COLUMNS] + row[STRIPE_COLUMNS] - 1) // row[STRIPE_COLUMNS])
    context = stack_of(slots, row, bands, stripes)
    return launch(slots, address_of(gemm_task), context, row[BATCH] * bands * stripes, row[PARTS])
