"""Native code of Cholesky factors of sparse matrices: the pattern's analysis, and the multifrontal factorisation.

The columns of the factor are divided into fronts: runs of columns whose rows are alike. A front is a dense panel by
columns: the triangle of its own columns, above its other rows. Fronts are numbered in postorder, so that what the
children of a front add to it is on top of a stack. Arrays of the analysis are int64; a matrix is its lower triangle by
rows in the order of the elimination, as (indptr, indices), with columns up to the diagonal.

Sources: Liu 1990 (elimination trees), Duff and Reid 1983 (fronts), Ashcraft and Grimes 1989 (joined fronts), Takahashi,
Fagan and Chin 1973 (the inverse at the places of the factor).
"""

from __future__ import annotations

import numpy as np

from rlx.backends.cpu.routines.scripts import call_fortran
from rlx.backends.cpu.runtime.native import (
    NativeFunction,
    Operation,
    Word,
    copy_bytes,
    in_scope,
    load_int32,
    maximum,
    minimum,
    native,
    pointer_operation,
    stack,
)

__all__ = ["ANALYSIS", "LETTERS_TEXT", "STATE_WORDS", "numeric_functions"]

move_bytes = pointer_operation(
    "{b} = inttoptr i64 {1} to ptr\n"
    "call void @llvm.memmove.p0.p0.i64(ptr {a}, ptr {b}, i64 {2}, i1 false)\n"
    "{result} = add i64 0, 0",
    "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)",
)

# ------------------------------------------------------------- analysis
# fronts up to so many columns are joined whatever zeros it stores, and wider ones up to parts of 16
SMALL, MIDDLE, MIDDLE_ZEROS, WIDE, WIDE_ZEROS, MOST_ZEROS = 8, 16, 12, 48, 2, 1


@native
def elimination_tree(order: Word, indptr: Word, indices: Word, parent: Word, ancestor: Word) -> int:
    """The parent of each column in the tree, -1 for a root."""
    for row in range(order):
        parent[row] = -1
        ancestor[row] = -1
        for k in range(indptr[row], indptr[row + 1]):
            column = indices[k]
            while column != -1 and column < row:
                above = ancestor[column]
                ancestor[column] = row
                if above == -1:
                    parent[column] = row
                column = above
    return 0


@native
def tree_postorder(order: Word, parent: Word, head: Word, following: Word, pile: Word, found: Word) -> int:
    """The columns of a tree, children before their parent."""
    for column in range(order):
        head[column] = -1
    for back in range(order):
        column = order - 1 - back
        if parent[column] != -1:
            following[column] = head[parent[column]]
            head[parent[column]] = column
    count = 0
    for root in range(order):
        if parent[root] != -1:
            continue
        top = 1
        pile[0] = root
        while top > 0:
            column = pile[top - 1]
            child = head[column]
            if child == -1:
                top = top - 1
                found[count] = column
                count = count + 1
            else:
                head[column] = following[child]
                pile[top] = child
                top = top + 1
    return count


@native
def column_counts(order: Word, indptr: Word, indices: Word, parent: Word, seen: Word, counts: Word) -> int:
    """The number of elements of each column of the factor: each row visits its subtree."""
    for column in range(order):
        counts[column] = 1
        seen[column] = -1
    for row in range(order):
        seen[row] = row
        for k in range(indptr[row], indptr[row + 1]):
            column = indices[k]
            while seen[column] != row:
                seen[column] = row
                counts[column] = counts[column] + 1
                column = parent[column]
    return 0


@native
def keeps_joined(columns: Word, rows: Word, zeros: Word) -> int:
    """Whether a joined front of so many columns may store so many zeros."""
    if columns <= SMALL or zeros == 0:
        return 1
    size = columns * rows
    if columns <= MIDDLE:
        return zeros * 16 < MIDDLE_ZEROS * size
    if columns <= WIDE:
        return zeros * 16 < WIDE_ZEROS * size
    return zeros * 16 < MOST_ZEROS * size


@native
def find_fronts(order: Word, parent: Word, counts: Word, firsts: Word, heights: Word, zeros: Word) -> int:
    """The first columns of the fronts and their numbers of rows; returns how many there are.

    Columns with equal rows are one front; then a front is joined to the one after it, if that is its parent and the
    zeros are few. zeros, heights, firsts: [order + 1], firsts has the end too.
    """
    count = 0
    for column in range(order):
        if column == 0 or parent[column - 1] != column or counts[column - 1] != counts[column] + 1:
            firsts[count] = column
            heights[count] = counts[column]
            zeros[count] = 0
            count = count + 1
    firsts[count] = order
    # from the last front to the first: kept fronts are at the end of the arrays
    kept = count - 1
    for back in range(1, count):
        front = count - 1 - back
        joins = 0
        columns = firsts[front + 1] - firsts[front]
        above = parent[firsts[front + 1] - 1]
        if above >= firsts[kept] and above < firsts[kept + 1]:
            height = columns + heights[kept]
            new_zeros = zeros[front] + zeros[kept] + columns * (height - heights[front])
            width = firsts[kept + 1] - firsts[front]
            joins = keeps_joined(width, height, new_zeros)
        if joins:
            heights[kept] = height
            zeros[kept] = new_zeros
            firsts[kept] = firsts[front]
        else:
            kept = kept - 1
            first = firsts[front]
            height = heights[front]
            zero = zeros[front]
            firsts[kept] = first
            heights[kept] = height
            zeros[kept] = zero
    number = count - kept
    for front in range(number):
        firsts[front] = firsts[kept + front]
        heights[front] = heights[kept + front]
    firsts[number] = order
    return number


@native
def front_rows(
    order: Word, indptr: Word, indices: Word, number: Word, firsts: Word, starts: Word, rows: Word, above: Word,
    work: Word,
) -> int:  # fmt: skip
    """The rows of each front below its own columns, in any order, and the front that each front is added to, or -1.

    indptr, indices: the lower triangle by columns. work: [2 order + 2 number] words. Fails if the rows are not as many
    as `starts` says.
    """
    seen = work
    owner = work + 8 * order
    child = owner + 8 * order
    following = child + 8 * number
    for front in range(number):
        child[front] = -1
        for column in range(firsts[front], firsts[front + 1]):
            seen[column] = -1
            owner[column] = front
    for front in range(number):
        end = firsts[front + 1]
        place = starts[front]
        least = order
        for k in range(indptr[firsts[front]], indptr[end]):
            row = indices[k]
            if row >= end and seen[row] != front:
                seen[row] = front
                rows[place] = row
                place = place + 1
                least = minimum(least, row)
        below = child[front]
        while below != -1:
            for k in range(starts[below], starts[below + 1]):
                row = rows[k]
                if row >= end and seen[row] != front:
                    seen[row] = front
                    rows[place] = row
                    place = place + 1
                    least = minimum(least, row)
            below = following[below]
        if place != starts[front + 1]:
            return 1
        above[front] = -1
        if least < order:
            parent = owner[least]
            above[front] = parent
            following[front] = child[parent]
            child[parent] = front
    return 0


@native
def relative_places(number: Word, firsts: Word, starts: Word, rows: Word, above: Word, places: Word) -> int:
    """The place of each front's rows among the rows of the front above, whose own columns are the first ones."""
    for front in range(number):
        parent = above[front]
        if parent == -1:
            continue
        first = firsts[parent]
        columns = firsts[parent + 1] - first
        at = starts[parent]
        for k in range(starts[front], starts[front + 1]):
            if rows[k] < first + columns:
                places[k] = rows[k] - first
            else:
                while rows[at] != rows[k]:
                    at = at + 1
                places[k] = columns + at - starts[parent]
    return 0


@native
def stored_places(
    number: Word, firsts: Word, starts: Word, rows: Word, panels: Word, indptr: Word, indices: Word, places: Word
) -> int:
    """The place in the panels of each element of the lower triangle by columns."""
    for front in range(number):
        first = firsts[front]
        columns = firsts[front + 1] - first
        height = columns + starts[front + 1] - starts[front]
        for column in range(first, first + columns):
            base = panels[front] + (column - first) * height
            for k in range(indptr[column], indptr[column + 1]):
                row = indices[k]
                if row < first + columns:
                    places[k] = base + row - first
                else:
                    low = starts[front]
                    high = starts[front + 1]
                    while low < high:
                        middle = (low + high) // 2
                        if rows[middle] < row:
                            low = middle + 1
                        else:
                            high = middle
                    places[k] = base + columns + low - starts[front]
    return 0


@native
def stack_sizes(number: Word, firsts: Word, starts: Word, above: Word, sums: Word, found: Word) -> int:
    """The most elements of the stacks: of updates in the factorisation, and of fronts in the inversion.

    sums: [2 number] zeros.
    """
    deep = sums + 8 * number
    top = 0
    most = 0
    for front in range(number):
        height = starts[front + 1] - starts[front]
        most = maximum(most, top + height * height)
        top = top - sums[front] + height * height
        if above[front] != -1:
            sums[above[front]] = sums[above[front]] + height * height
    found[0] = most
    most = 0
    for back in range(number):
        front = number - 1 - back
        height = firsts[front + 1] - firsts[front] + starts[front + 1] - starts[front]
        total = height * height
        if above[front] != -1:
            total = total + deep[above[front]]
        deep[front] = total
        most = maximum(most, total)
    found[1] = most
    return 0


ANALYSIS = (
    elimination_tree, tree_postorder, column_counts, find_fronts, front_rows, relative_places, stored_places,
    stack_sizes,
)  # fmt: skip

# ------------------------------------------------------------- numbers
# Words of the state of a factorisation, a solve or an inversion: arrays of the analysis,
NUMBER, FIRSTS, STARTS, ROWS, PLACES, ABOVE, PANELS = range(7)
# elements, work for them, work of two words for each front,
VALUES, WORK, WAITING, RESULT = range(7, 11)
# routines, numbers and characters that they take, and the size of right-hand sides.
POTRF, POTRI, TRSM, RANK_UPDATE, MULTIPLY, TRSV, MULTIPLY_VECTOR = range(11, 18)
ONE, MINUS_ONE, ZERO, LETTERS, COLUMNS, ORDER = range(18, 24)
STATE_WORDS = 24
LETTERS_TEXT = b"LNRC"
LOWER, NOT_TURNED, RIGHT, TURNED = range(4)
LEFT = LOWER  # the same letter
ITEM = 8  # bytes of an element; this and the next two names have another meaning for each dtype

_unset = Operation("")
add_element = conjugate_element = _unset


@native
def call_blas(
    function: Word, a: Word, b: Word, c: Word, d: Word, e: Word, f: Word, g: Word, h: Word, i: Word, j: Word, k: Word,
    last: Word, final: Word,
) -> int:  # fmt: skip
    """A routine with Fortran's conventions: addresses, then the lengths of its characters."""
    call_fortran(function, a, b, c, d, e, f, g, h, i, j, k, last, final, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    return 0


@native
def add_to_panel(panel: Word, height: Word, columns: Word, update: Word, size: Word, places: Word) -> int:
    """Add the columns of a child's update that belong to a front's own columns; returns their number."""
    column = 0
    while column < size and places[column] < columns:
        base = panel + ITEM * places[column] * height
        source = update + ITEM * column * size
        for row in range(column, size):
            add_element(base + ITEM * places[row], source + ITEM * row)
        column = column + 1
    return column


@native
def add_to_update(target: Word, rows: Word, columns: Word, update: Word, size: Word, places: Word, first: Word) -> int:
    """Add the other columns of a child's update, from the first of them on, to the update of its front."""
    for column in range(first, size):
        base = target + ITEM * ((places[column] - columns) * rows - columns)
        source = update + ITEM * column * size
        for row in range(column, size):
            add_element(base + ITEM * places[row], source + ITEM * row)
    return 0


@native
def factor_fronts(state: Word) -> int:
    """Turn the panels, which have the matrix's elements, into the factor. Returns 0, or 1 + the front that fails."""
    sizes = stack(4)
    letters = state[LETTERS]
    firsts = state[FIRSTS]
    starts = state[STARTS]
    ids = state[WAITING]
    offsets = ids + 8 * state[NUMBER]
    updates = state[WORK]
    top = 0
    waiting = 0
    for front in range(state[NUMBER]):
        columns = firsts[front + 1] - firsts[front]
        size = starts[front + 1] - starts[front]
        sizes[0] = columns
        sizes[1] = size
        sizes[2] = columns + size
        sizes[3] = 0
        panel = state[VALUES] + ITEM * state[PANELS][front]
        low = waiting
        base = top
        while low > 0 and state[ABOVE][ids[low - 1]] == front:
            low = low - 1
            base = offsets[low]
            child = ids[low]
            add_to_panel(
                panel, columns + size, columns, updates + ITEM * base, starts[child + 1] - starts[child],
                state[PLACES] + 8 * starts[child],
            )  # fmt: skip
        call_blas(state[POTRF], letters + LOWER, sizes, panel, sizes + 16, sizes + 24, 1, 1, 1, 1, 1, 1, 1, 1)
        if load_int32(sizes + 24) != 0:
            return front + 1
        if size > 0:
            below = panel + ITEM * columns
            update = updates + ITEM * top
            call_blas(
                state[TRSM], letters + RIGHT, letters + LOWER, letters + TURNED, letters + NOT_TURNED, sizes + 8,
                sizes, state[ONE], panel, sizes + 16, below, sizes + 16, 1, 1,
            )  # fmt: skip
            call_blas(
                state[RANK_UPDATE], letters + LOWER, letters + NOT_TURNED, sizes + 8, sizes, state[MINUS_ONE], below,
                sizes + 16, state[ZERO], update, sizes + 8, 1, 1, 1,
            )  # fmt: skip
            for number in range(low, waiting):
                child = ids[number]
                count = starts[child + 1] - starts[child]
                places = state[PLACES] + 8 * starts[child]
                first = 0
                while first < count and places[first] < columns:
                    first = first + 1
                add_to_update(update, size, columns, updates + ITEM * offsets[number], count, places, first)
            if low < waiting:
                move_bytes(updates + ITEM * base, update, ITEM * size * size)
            ids[low] = front
            offsets[low] = base
            low = low + 1
            base = base + size * size
        waiting = low
        top = base
    return 0


@native
def solve_triangle(state: Word, panel: Word, turn: Word, sizes: Word, own: Word) -> int:
    """A solve with the triangle of a front, or with its adjoint; sizes: its columns, rows, both, and columns of x."""
    letters = state[LETTERS]
    if sizes[3] == 1:
        call_blas(
            state[TRSV], letters + LOWER, turn, letters + NOT_TURNED, sizes, panel, sizes + 16, own, sizes + 24, 1, 1,
            1, 1, 1,
        )  # fmt: skip
        return 0
    call_blas(
        state[TRSM], letters + LEFT, letters + LOWER, turn, letters + NOT_TURNED, sizes, sizes + 24, state[ONE], panel,
        sizes + 16, own, state + 8 * ORDER, 1, 1,
    )  # fmt: skip
    return 0


@native
def add_product(
    state: Word, below: Word, turn: Word, rows: Word, depth: Word, sizes: Word, x: Word, x_column: Word, before: Word,
    y: Word, y_column: Word,
) -> int:  # fmt: skip
    """y := before * y - B x, with the rows B below a front's triangle or their adjoint, of sizes [rows, depth]."""
    letters = state[LETTERS]
    if sizes[3] == 1:
        call_blas(
            state[MULTIPLY_VECTOR], turn, sizes + 8, sizes, state[MINUS_ONE], below, sizes + 16, x, sizes + 24, before,
            y, sizes + 24, 1, 1,
        )  # fmt: skip
        return 0
    call_blas(
        state[MULTIPLY], turn, letters + NOT_TURNED, rows, sizes + 24, depth, state[MINUS_ONE], below, sizes + 16, x,
        x_column, before, y, y_column,
    )  # fmt: skip
    return 0


@native
def solve_fronts(state: Word) -> int:
    """Turn right-hand sides by columns into solutions: with the factor, then with its adjoint."""
    sizes = stack(4)
    letters = state[LETTERS]
    firsts = state[FIRSTS]
    starts = state[STARTS]
    count = state[COLUMNS]
    order = state[ORDER]
    work = state[WORK]
    sizes[3] = count
    for turn in range(2 * state[NUMBER]):
        backwards = turn >= state[NUMBER]
        front = turn
        if backwards:
            front = 2 * state[NUMBER] - 1 - turn
        columns = firsts[front + 1] - firsts[front]
        size = starts[front + 1] - starts[front]
        rows = state[ROWS] + 8 * starts[front]
        sizes[0] = columns
        sizes[1] = size
        sizes[2] = columns + size
        panel = state[VALUES] + ITEM * state[PANELS][front]
        own = state[RESULT] + ITEM * firsts[front]
        if backwards:
            if size > 0:
                for column in range(count):
                    source = state[RESULT] + ITEM * column * order
                    target = work + ITEM * column * size
                    for row in range(size):
                        copy_bytes(target + ITEM * row, source + ITEM * rows[row], ITEM)
                add_product(
                    state, panel + ITEM * columns, letters + TURNED, sizes, sizes + 8, sizes, work, sizes + 8,
                    state[ONE], own, state + 8 * ORDER,
                )  # fmt: skip
            solve_triangle(state, panel, letters + TURNED, sizes, own)
            continue
        solve_triangle(state, panel, letters + NOT_TURNED, sizes, own)
        if size > 0:
            add_product(
                state, panel + ITEM * columns, letters + NOT_TURNED, sizes + 8, sizes, sizes, own, state + 8 * ORDER,
                state[ZERO], work, sizes + 8,
            )  # fmt: skip
            for column in range(count):
                target = state[RESULT] + ITEM * column * order
                source = work + ITEM * column * size
                for row in range(size):
                    add_element(target + ITEM * rows[row], source + ITEM * row)
    return 0


@native
def invert_fronts(state: Word) -> int:
    """Write the inverse at the places of the factor to the panels of the result.

    With Y = B inv(L) for a front's triangle L and the rows B below it, and the inverse Z at those rows: the inverse is
    -Z Y there, and inv(L L*) + Y* Z Y in its own columns. The front above has Z.
    """
    sizes = stack(4)
    letters = state[LETTERS]
    firsts = state[FIRSTS]
    starts = state[STARTS]
    offsets = state[WAITING]
    for back in range(state[NUMBER]):
        front = state[NUMBER] - 1 - back
        columns = firsts[front + 1] - firsts[front]
        size = starts[front + 1] - starts[front]
        height = columns + size
        sizes[0] = columns
        sizes[1] = size
        sizes[2] = height
        panel = state[VALUES] + ITEM * state[PANELS][front]
        result = state[RESULT] + ITEM * state[PANELS][front]
        parent = state[ABOVE][front]
        base = 0
        if parent != -1:
            other = firsts[parent + 1] - firsts[parent] + starts[parent + 1] - starts[parent]
            above = state[WORK] + ITEM * offsets[parent]
            base = offsets[parent] + other * other
        offsets[front] = base
        # a front of the inverse, by columns
        found = state[WORK] + ITEM * base
        inner = found + ITEM * (columns * height + columns)
        places = state[PLACES] + 8 * starts[front]
        for column in range(size):
            source = above + ITEM * places[column] * other
            target = inner + ITEM * column * height
            for row in range(size):
                copy_bytes(target + ITEM * row, source + ITEM * places[row], ITEM)
        copy_bytes(result, panel, ITEM * columns * height)
        if size > 0:
            call_blas(
                state[TRSM], letters + RIGHT, letters + LOWER, letters + NOT_TURNED, letters + NOT_TURNED, sizes + 8,
                sizes, state[ONE], panel, sizes + 16, result + ITEM * columns, sizes + 16, 1, 1,
            )  # fmt: skip
            call_blas(
                state[MULTIPLY], letters + NOT_TURNED, letters + NOT_TURNED, sizes + 8, sizes, sizes + 8,
                state[MINUS_ONE], inner, sizes + 16, result + ITEM * columns, sizes + 16, state[ZERO],
                found + ITEM * columns, sizes + 16,
            )  # fmt: skip
        call_blas(state[POTRI], letters + LOWER, sizes, result, sizes + 16, sizes + 24, 1, 1, 1, 1, 1, 1, 1, 1)
        for column in range(columns):
            start = ITEM * (column * height + column)
            copy_bytes(found + start, result + start, ITEM * (columns - column))
            for row in range(column + 1, columns):
                conjugate_element(
                    found + ITEM * (row * height + column), found + ITEM * (column * height + row)
                )
        if size > 0:
            call_blas(
                state[MULTIPLY], letters + TURNED, letters + NOT_TURNED, sizes, sizes, sizes + 8, state[MINUS_ONE],
                result + ITEM * columns, sizes + 16, found + ITEM * columns, sizes + 16, state[ONE], found, sizes + 16,
            )  # fmt: skip
        for column in range(columns):
            for row in range(size):
                conjugate_element(
                    found + ITEM * ((columns + row) * height + column),
                    found + ITEM * (column * height + columns + row),
                )
        copy_bytes(result, found, ITEM * columns * height)
    return 0


_NUMERIC = (
    call_blas, add_to_panel, add_to_update, factor_fronts, solve_triangle, add_product, solve_fronts,
    invert_fronts,
)  # fmt: skip


def _added(kind: str, parts: int) -> Operation:
    """An Operation that adds an element of several parts to another."""
    vector = f"<{parts} x {kind}>"
    align = {"float": 4, "double": 8}[kind]
    return Operation(
        f"{{a}} = inttoptr i64 {{0}} to ptr\n{{b}} = inttoptr i64 {{1}} to ptr\n"
        f"{{a}}old = load {vector}, ptr {{a}}, align {align}\n{{b}}more = load {vector}, ptr {{b}}, align {align}\n"
        f"{{c}} = fadd {vector} {{a}}old, {{b}}more\nstore {vector} {{c}}, ptr {{a}}, align {align}\n"
        "{result} = add i64 0, 0"
    )


def _conjugated(kind: str, parts: int) -> Operation:
    """An Operation that writes the conjugate of an element."""
    vector, align = f"<{parts} x {kind}>", {"float": 4, "double": 8}[kind]
    lanes = ", ".join(f"{kind} {value}" for value in ("1.0", "-1.0")[:parts])
    return Operation(
        f"{{a}} = inttoptr i64 {{0}} to ptr\n{{b}} = inttoptr i64 {{1}} to ptr\n"
        f"{{b}}old = load {vector}, ptr {{b}}, align {align}\n{{c}} = fmul {vector} {{b}}old, <{lanes}>\n"
        f"store {vector} {{c}}, ptr {{a}}, align {align}\n{{result}} = add i64 0, 0"
    )


def numeric_functions(dtype: np.dtype) -> tuple[NativeFunction, ...]:
    """factor_fronts, solve_fronts and invert_fronts for elements of a dtype."""
    kind, parts = "float" if dtype.str[-1] in "4" or dtype == np.dtype("c8") else "double", 1 + (dtype.kind == "c")
    names = {
        "ITEM": dtype.itemsize,
        "add_element": _added(kind, parts),
        "conjugate_element": _conjugated(kind, parts),
    }
    return in_scope(_NUMERIC, names)
