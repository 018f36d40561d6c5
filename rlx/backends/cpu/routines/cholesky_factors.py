"""Cholesky factors of sparse matrices, by the native code of sparse_cholesky.py and BLAS."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from rlx.backends.cpu.routines.blas import load_blas
from rlx.backends.cpu.routines.native_library import native_addresses
from rlx.backends.cpu.routines.sparse_cholesky import LETTERS_TEXT, STATE_WORDS

__all__ = ["CholeskyFactors", "CholeskyPattern", "cholesky_pattern"]

_INT64 = np.dtype("i8")


def _run(family: str, name: str, *arguments: Any, dtype: np.dtype | None = None) -> int:
    """Call a native function with numbers and the addresses of arrays."""
    words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(words))
    return signature(native_addresses(family, dtype)[name])(*words)


def _words(count: int) -> np.ndarray:
    return np.empty(count, _INT64)


def cholesky_pattern(indices: np.ndarray, indptr: np.ndarray, order: np.ndarray) -> CholeskyPattern | None:
    """The fronts of a pattern by columns, with sorted rows; None if it is not symmetric, or if BLAS is lacking."""
    mirrored = _mirrored(indices, indptr)
    complete = all(all(_routines(dtype)) for dtype in _LETTERS)
    return CholeskyPattern(indices, indptr, order, mirrored) if complete and mirrored is not None else None


class CholeskyPattern:
    """The fronts of a symmetric pattern in an order of elimination.

    indices, indptr: the pattern by columns, with sorted rows. order: the columns in the order of the elimination.
    mirrored: for each element the number of the one at the transposed place.
    """

    def __init__(self, indices: np.ndarray, indptr: np.ndarray, order: np.ndarray, mirrored: np.ndarray) -> None:
        size = len(order)
        self.size, self.mirrored = size, mirrored
        pairs = _lower_triangle(indices, indptr, order)
        parent, counts, after = _tree(size, *_compressed(size, pairs[0], pairs[1])[:2])
        self.order = order[after]
        back = np.empty(size, _INT64)
        back[after] = np.arange(size)
        rows, columns = (np.maximum(*(back[p] for p in pairs[:2])), np.minimum(*(back[p] for p in pairs[:2])))
        renumbered = np.where(parent[after] < 0, -1, back[parent[after]])
        self.firsts, heights = _fronts(size, renumbered, counts[after])
        self.number = len(heights)
        below = heights - np.diff(self.firsts)
        self.starts = np.concatenate([[0], np.cumsum(below)])
        self.panels = np.concatenate([[0], np.cumsum(np.diff(self.firsts) * heights)])
        indptr, indices, sorting = _compressed(size, columns, rows)
        self.elements, self.turned = pairs[2][sorting], pairs[3][sorting]
        self._find_rows(indptr, indices)
        self.stored = _words(len(indices))
        _run(
            "cholesky", "stored_places", self.number, self.firsts, self.starts, self.rows, self.panels, indptr, indices,
            self.stored,
        )  # fmt: skip
        self.work, self.inverse_work = self._stack_sizes()

    def _find_rows(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        """The rows of the fronts, the fronts above them, and the places of the rows there."""
        self.rows, self.above = _words(max(1, self.starts[-1])), _words(self.number)
        work = _words(2 * self.size + 2 * self.number)
        if _run(
            "cholesky", "front_rows", self.size, indptr, indices, self.number, self.firsts, self.starts, self.rows,
            self.above, work,
        ):  # fmt: skip
            raise AssertionError("the rows of the fronts are not as many as the tree says")
        fronts = np.repeat(np.arange(self.number), np.diff(self.starts))
        keys = np.sort(fronts * self.size + self.rows[: len(fronts)])
        self.rows[: len(fronts)] = keys - fronts * self.size
        self.places = np.zeros_like(self.rows)
        _run("cholesky", "relative_places", self.number, self.firsts, self.starts, self.rows, self.above, self.places)

    def _stack_sizes(self) -> tuple[int, int]:
        found = _words(2)
        sums = np.zeros(2 * self.number, _INT64)
        _run("cholesky", "stack_sizes", self.number, self.firsts, self.starts, self.above, sums, found)
        return int(found[0]), int(found[1])

    @property
    def nnz(self) -> int:
        """The number of stored elements of the factor, some zeros among them."""
        return int(self.panels[-1])

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    def factors(self, values: np.ndarray) -> CholeskyFactors | None:
        """The factor of a Hermitian matrix with these elements of the pattern; None if it is not positive definite."""
        panels = np.zeros(self.nnz, values.dtype)
        lower = values[self.elements]
        panels[self.stored] = np.where(self.turned, lower.conj(), lower) if values.dtype.kind == "c" else lower
        factors = CholeskyFactors(self, panels)
        return factors if factors.failure == 0 else None


class CholeskyFactors:
    """The panels of a factor L with L L* = A in the order of the pattern."""

    def __init__(self, pattern: CholeskyPattern, panels: np.ndarray) -> None:
        self.pattern, self.panels, self.dtype = pattern, panels, panels.dtype
        work = np.empty(max(1, pattern.work), self.dtype)
        self.failure = self._call("factor_fronts", work)

    @property
    def nnz(self) -> int:
        """The number of stored elements."""
        return self.pattern.nnz

    def solve(self, b: np.ndarray, trans: str = "N") -> np.ndarray:
        """x with A x = b, or with the transposed A for "T"; b [order] or [order, columns]."""
        turned = trans == "T" and self.dtype.kind == "c"
        columns = b.reshape(len(b), -1)
        x = np.asfortranarray((columns.conj() if turned else columns)[self.pattern.order], self.dtype)
        work = np.empty(max(1, int(np.diff(self.pattern.starts).max()) * x.shape[1]), self.dtype)
        self._call("solve_fronts", work, x, x.shape[1])
        found = np.empty(x.shape, self.dtype)
        found[self.pattern.order] = x.conj() if turned else x
        return found.reshape(b.shape)

    def slogdet(self) -> tuple[Any, Any]:
        """The sign of the determinant, and the logarithm of its absolute value."""
        pattern = self.pattern
        widths = np.diff(pattern.firsts)
        heights = widths + np.diff(pattern.starts)
        inside = np.arange(pattern.size) - np.repeat(pattern.firsts[:-1], widths)
        diagonal = self.panels[np.repeat(pattern.panels[:-1], widths) + inside * (np.repeat(heights, widths) + 1)]
        return self.dtype.type(1), 2 * np.log(diagonal.real).sum()

    def inverse_entries(self) -> np.ndarray:
        """The elements of the transposed inverse at the places of the pattern."""
        pattern = self.pattern
        found = np.empty_like(self.panels)
        self._call("invert_fronts", np.empty(max(1, pattern.inverse_work), self.dtype), found)
        lower = found[pattern.stored]
        every = np.empty(len(pattern.mirrored), self.dtype)
        every[pattern.mirrored[pattern.elements]] = np.where(pattern.turned, lower.conj(), lower)
        every[pattern.elements] = np.where(pattern.turned, lower, lower.conj())
        return every

    def _call(self, name: str, work: np.ndarray, result: np.ndarray | None = None, columns: int = 0) -> int:
        pattern, kept = self.pattern, [np.array(v, self.dtype) for v in (1, -1, 0)]
        waiting, letters = _words(2 * pattern.number), np.frombuffer(LETTERS_TEXT, np.uint8)
        arrays = [
            pattern.firsts, pattern.starts, pattern.rows, pattern.places, pattern.above, pattern.panels, self.panels,
            work, waiting, work if result is None else result,
        ]  # fmt: skip
        state = np.array([
            pattern.number, *(a.ctypes.data for a in arrays), *_routines(self.dtype.str[1:]),
            *(k.ctypes.data for k in kept), letters.ctypes.data, columns, pattern.size,
        ])  # fmt: skip
        assert len(state) == STATE_WORDS
        return _run("fronts", name, state, dtype=self.dtype)


_LETTERS = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}


def _routines(dtype: str) -> list[int]:
    letter = _LETTERS[dtype]
    names = ("potrf", "potri", "trsm", "herk" if letter in "cz" else "syrk", "gemm", "trsv", "gemv")
    return [load_blas().fortran(letter + name) for name in names]


# ------------------------------------------------------------- analysis
def _lower_triangle(indices: np.ndarray, indptr: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, ...]:
    """The rows and columns of one triangle in an order, their elements' numbers, and whether they are transposed.

    It is the lower triangle of the given matrix by columns.
    """
    size = len(order)
    columns = np.repeat(np.arange(size), np.diff(indptr))
    numbers = np.flatnonzero(indices >= columns)
    back = np.empty(size, _INT64)
    back[order] = np.arange(size)
    first, second = back[indices[numbers]], back[columns[numbers]]
    return np.maximum(first, second), np.minimum(first, second), numbers, first < second


def _mirrored(indices: np.ndarray, indptr: np.ndarray) -> np.ndarray | None:
    """For each element of a pattern by columns the number of the transposed one; None if one is lacking."""
    from scipy.sparse import csc_array

    size = len(indptr) - 1
    by_rows = csc_array((np.arange(len(indices)), indices, indptr), shape=(size, size)).tocsr()
    same = np.array_equal(by_rows.indptr, indptr) and np.array_equal(by_rows.indices, indices)
    return by_rows.data if same else None


def _compressed(size: int, major: np.ndarray, minor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """indptr, indices and the order of elements, sorted by the major and then the minor number."""
    from scipy.sparse import coo_array

    found = coo_array((np.arange(len(major)), (major, minor)), shape=(size, size)).tocsr()
    return found.indptr.astype(_INT64), found.indices.astype(_INT64), found.data


def _tree(size: int, indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parents of columns, the numbers of elements of columns, and a postorder."""
    parent, counts, after, one, two, three = (_words(size) for _ in range(6))
    _run("cholesky", "elimination_tree", size, indptr, indices, parent, one)
    _run("cholesky", "column_counts", size, indptr, indices, parent, one, counts)
    _run("cholesky", "tree_postorder", size, parent, one, two, three, after)
    return parent, counts, after


def _fronts(size: int, parent: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first columns of fronts, with the end, and their numbers of rows."""
    firsts, heights, zeros = (_words(size + 1) for _ in range(3))
    number = _run("cholesky", "find_fronts", size, parent, counts, firsts, heights, zeros)
    return firsts[: number + 1].copy(), heights[:number].copy()
