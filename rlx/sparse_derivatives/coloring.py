"""Colourings: groups of columns or rows of a sparse matrix that one product determines.

Sources: A. Curtis, M. Powell, J. Reid, On the estimation of sparse Jacobian matrices (1974), for columns and rows;
A. Gebremedhin, F. Manne, A. Pothen, What color is your Jacobian? (2005), for both, and for star colouring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import InputTypeError, ShapeError, UnsupportedError
from rlx.sparse.patterns import RowPattern
from rlx.sparse_derivatives.pattern import Pattern
from rlx.trees import tree

__all__ = ["MODES", "SYMMETRIC_MODES", "Coloring", "color", "symmetric_coloring"]

MODES = ("auto", "forward", "reverse", "both")
SYMMETRIC_MODES = ("symmetric", "acyclic")
_REVERSE_COST = 2.0  # of a product with a row, in products with a column
_MANY = 8  # products: with more, products with the longest rows are tried
_ROUNDS = 4  # of recolouring
_TREE = 24  # edges of a tree of an acyclic colouring, about
_LARGE = 200_000  # places: for more, one order of the columns instead of the best of several


class Facts(NamedTuple):
    """The static part of a colouring: its mode, the numbers of its colours, and the matrix's places."""

    mode: str
    column_count: int
    row_count: int
    places: RowPattern
    recovery: RowPattern | None = None  # for each element, the positions whose products are added


class Coloring:
    """Colours of a matrix's columns and rows, and where its elements are in the products. A tree: usable inside jit.

    columns, rows: the colour of each, -1 without one. positions: of each element in the array of all products,
    column colours first. mode: "forward" (columns), "reverse" (rows), "both", "symmetric", or "acyclic": elements are
    then sums of several products, and positions has the sign of each.

    >>> import rlx
    >>> import numpy as np
    >>> pattern = rlx.sparsity(lambda x: x[1:] * x[:-1])(np.ones(4))
    >>> rlx.color(pattern)
    Coloring(shape=(3, 4), forward, colors=2)
    """

    def __init__(self, columns: Any, rows: Any, positions: Any, facts: Facts) -> None:
        self.columns, self.rows, self.positions, self.facts = columns, rows, positions, facts

    @property
    def mode(self) -> str:
        """The products that it needs."""
        return self.facts.mode

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        return self.facts.places.shape

    @property
    def colors(self) -> int:
        """The number of products that determine the matrix."""
        return self.facts.column_count + self.facts.row_count

    def __repr__(self) -> str:
        return f"Coloring(shape={self.shape}, {self.mode}, colors={self.colors})"


tree.register_node(
    Coloring, lambda c: ((c.columns, c.rows, c.positions), c.facts), lambda facts, kids: Coloring(*kids, facts)
)


def color(pattern: Pattern, mode: str = "auto") -> Coloring:
    """A colouring of a matrix's columns ("forward"), rows ("reverse"), or columns and rows ("both").

    "auto" takes the cheapest. Two modes are for Hessians: with "symmetric", each element is in the product of its
    column or of its row. "acyclic" needs fewer colours: elements follow from others by substitution, which adds
    rounding errors.
    The colouring is greedy, the best of several orders, and always the same for the same pattern.

    >>> import rlx
    >>> import numpy as np
    >>> arrow = rlx.sparsity(lambda x: (x * x[0]).at[0].set(x.sum()))(np.ones(1000))
    >>> rlx.color(arrow, "forward").colors, rlx.color(arrow, "both").colors
    (1000, 3)
    """
    if not isinstance(pattern, Pattern):
        raise InputTypeError(
            f"color got {type(pattern).__name__}, not a Pattern.",
            "Pass the result of rlx.sparsity(f)(x), or rlx.sparse_derivatives.Pattern.of_pairs(rows, cols, shape).",
        )
    if mode in SYMMETRIC_MODES:
        return symmetric_coloring(pattern.places, mode)
    if mode not in MODES:
        raise UnsupportedError(f"color has no mode {mode!r}.", f"Use one of {(*MODES, *SYMMETRIC_MODES)}.")
    return _colored(pattern.places, mode)


@lru_cache(maxsize=64)
def _colored(places: RowPattern, mode: str) -> Coloring:
    if mode == "reverse":
        return _reverse(places)
    if mode == "both":
        return _both(places)
    best = _forward(places)
    if mode == "auto":
        longest = _longest(places.transposition[0])
        if _REVERSE_COST * longest < _cost(best):
            best = min(best, _reverse(places), key=_cost)
        if _cost(best) > _MANY:
            best = min(best, _both(places), key=_cost)
    return best


def _cost(found: Coloring) -> float:
    return found.facts.column_count + _REVERSE_COST * found.facts.row_count


def _longest(places: RowPattern) -> int:
    """The number of places in the longest row."""
    return int(np.diff(places.indptr).max(initial=0))


# ------------------------------------------------------------- columns, rows
def _greedy(columns: RowPattern, order: Sequence[int], rows: int) -> np.ndarray:
    """The colours of columns in an order: each gets the first colour that no column of one of its rows has.

    columns: for each column, its rows. The colours of each row's columns are the bits of a number.
    """
    used = [0] * rows
    colors = [0] * columns.shape[0]
    starts, of = columns.indptr.tolist(), columns.indices.tolist()
    for j in order:
        mine = of[starts[j] : starts[j + 1]]
        taken = 0
        for i in mine:
            taken |= used[i]
        bit = ~taken & (taken + 1)
        colors[j] = bit.bit_length() - 1
        for i in mine:
            used[i] |= bit
    return np.array(colors, np.int32)


def _orders(places: RowPattern, columns: RowPattern) -> list[Any]:
    """Orders of the columns: natural, and by the number of neighbours, most first."""
    lengths = np.diff(places.indptr).astype(np.int64)
    neighbours = np.bincount(columns.rows, lengths[columns.indices], columns.shape[0])
    return [range(columns.shape[0]), np.argsort(-neighbours, kind="stable").tolist()]


def distance_two(places: RowPattern) -> np.ndarray:
    """Colours of columns such that no two of one row are equal, the best of several found."""
    least = _longest(places)
    if least >= places.shape[1]:
        return np.arange(places.shape[1], dtype=np.int32)
    best = _periodic(places, least)
    if best is not None and (_count(best) == least or places.nnz > _LARGE):
        return best
    columns = places.transposition[0]
    for order in _orders(places, columns)[: 1 if places.nnz > _LARGE else 2]:
        found = _greedy(columns, order, places.shape[0])
        if best is None or _count(found) < _count(best):
            best = found
        if _count(best) <= least:
            break
    assert best is not None
    return best if places.nnz > _LARGE else _recolored(columns, best, places.shape[0], least)


def _recolored(columns: RowPattern, colors: np.ndarray, rows: int, least: int) -> np.ndarray:
    """The colours after some rounds of the greedy colouring in the order of the classes, which never needs more.

    Source: J. Culberson, Iterated greedy graph coloring and the difficulty landscape (1992).
    """
    for turn in range(_ROUNDS):
        count = _count(colors)
        if count <= least:
            break
        sizes = np.bincount(colors)
        rank = np.argsort(np.argsort(sizes, kind="stable")) if turn % 2 == 0 else np.arange(count)[::-1]
        colors = _greedy(columns, np.argsort(rank[colors], kind="stable").tolist(), rows)
    return colors


def _periodic(places: RowPattern, least: int) -> np.ndarray | None:
    """Column j has the colour j modulo a number, if a number near the least one fits: bands, and stencils on grids."""
    rows = places.rows.astype(np.int64)
    for period in range(max(least, 1), least + 3):
        keys = rows * period + places.indices % period
        if places.shape[0] * period > 8 * max(places.nnz, 1 << 16):
            return None
        if np.bincount(keys, minlength=1).max() <= 1:
            return (np.arange(places.shape[1]) % period).astype(np.int32)
    return None


def _count(colors: np.ndarray) -> int:
    return int(colors.max(initial=-1)) + 1


def _forward(places: RowPattern) -> Coloring:
    colors = distance_two(places)
    positions = colors[places.indices].astype(np.int64) * places.shape[0] + places.rows
    none = np.full(places.shape[0], -1, np.int32)
    return Coloring(colors, none, _small(positions), Facts("forward", _count(colors), 0, places))


def _reverse(places: RowPattern) -> Coloring:
    colors = distance_two(places.transposition[0])
    positions = colors[places.rows].astype(np.int64) * places.shape[1] + places.indices
    none = np.full(places.shape[1], -1, np.int32)
    return Coloring(none, colors, _small(positions), Facts("reverse", 0, _count(colors), places))


def _small(positions: np.ndarray) -> np.ndarray:
    fits = positions.max(initial=0) <= np.iinfo(np.int32).max
    return positions.astype(np.int32) if fits else positions


def _both(places: RowPattern) -> Coloring:
    """The longest rows by products with rows, the others by products with columns: the best of several limits."""
    lengths = np.diff(places.indptr)
    limits = np.unique(lengths)[::-1]
    limits = limits[: 1 + np.searchsorted(-limits, -int(limits[0]) / 16)] if len(limits) else limits
    chosen = [n for k, n in enumerate(limits[:-1]) if k & (k - 1) == 0]
    found = [_with_rows_longer(places, lengths, int(n)) for n in chosen] or [_forward(places)]
    return min(found, key=lambda c: c.colors)


def _with_rows_longer(places: RowPattern, lengths: np.ndarray, limit: int) -> Coloring:
    long = lengths >= limit
    mine = long[places.rows]
    rows = distance_two(_only(places, mine).transposition[0])
    columns = distance_two(_only(places, ~mine))
    rows = np.where(long, rows, -1).astype(np.int32)
    count = _count(columns)
    by_column = columns[places.indices].astype(np.int64) * places.shape[0] + places.rows
    by_row = count * places.shape[0] + rows[places.rows].astype(np.int64) * places.shape[1] + places.indices
    positions = np.where(mine, by_row, by_column)
    return Coloring(columns, rows, _small(positions), Facts("both", count, _count(rows), places))


def _only(places: RowPattern, chosen: np.ndarray) -> RowPattern:
    """The chosen places of a pattern."""
    ends = np.concatenate([[0], np.cumsum(chosen)])[places.indptr]
    return RowPattern.of_checked(places.indices[chosen], ends.astype(places.indptr.dtype), places.shape)


# ------------------------------------------------------------- symmetric matrices
def _star(places: RowPattern, order: Sequence[int]) -> np.ndarray:
    """A star colouring: neighbours differ, and each path over four vertices has three colours.

    Sets of colours are the bits of numbers: near[v] has the colours of v's neighbours, twice[v] the colours that
    several neighbours have, and closed[w] the colours of neighbours that have another neighbour of w's colour: a
    neighbour of w may not have them.
    """
    n = places.shape[0]
    starts, of = places.indptr.tolist(), places.indices.tolist()
    near, twice, closed, colors = [0] * n, [0] * n, [0] * n, [-1] * n
    for v in order:
        mine = [w for w in of[starts[v] : starts[v + 1]] if w != v]
        taken, several = near[v], twice[v]
        for w in mine:  # without a colour it may still get any: v differs from its neighbours
            taken |= near[w] if colors[w] < 0 or several >> colors[w] & 1 else closed[w]
        bit = ~taken & (taken + 1)
        color = colors[v] = bit.bit_length() - 1
        for w in mine:
            known, again = near[w] & bit, twice[w] & bit
            near[w] |= bit
            twice[w] |= known
            if colors[w] < 0:
                continue
            if several >> colors[w] & 1:
                closed[w] |= bit
            if known:
                own = 1 << colors[w]
                closed[v] |= own
                for x in () if again else of[starts[w] : starts[w + 1]]:
                    if colors[x] == color:
                        closed[x] |= own
    return np.array(colors, np.int32)


@lru_cache(maxsize=64)
def symmetric_coloring(places: RowPattern, mode: str = "symmetric") -> Coloring:
    """A star or acyclic colouring of a symmetric matrix. Raises ShapeError for another pattern."""
    if places.shape[0] != places.shape[1] or places.transposition[0] != places:
        raise ShapeError(f"A symmetric colouring got a pattern of shape {places.shape} that is not symmetric.")
    degrees = np.diff(places.indptr)
    orders = [np.argsort(-degrees, kind="stable").tolist(), range(len(degrees))][: 1 if places.nnz > _LARGE else 2]
    star = _determined_directly(places, min((_star(places, order) for order in orders), key=_count))
    if mode == "symmetric":
        return star
    found = min((_acyclic(places, order) for order in orders), key=lambda pair: _count(pair[0]))
    return star if _count(found[0]) >= star.colors else _determined_by_substitution(places, *found)


def _determined_directly(places: RowPattern, colors: np.ndarray) -> Coloring:
    """Each element in the product of its column, or of its row."""
    rows, count = places.shape[0], _count(colors)
    keys = places.rows.astype(np.int64) * count + colors[places.indices]
    _, inverse, times = np.unique(keys, return_inverse=True, return_counts=True)
    direct = colors[places.indices].astype(np.int64) * rows + places.rows
    mirrored = colors[places.rows].astype(np.int64) * rows + places.indices
    positions = np.where(times[inverse] == 1, direct, mirrored)
    none = np.full(rows, -1, np.int32)
    return Coloring(colors, none, _small(positions), Facts("symmetric", count, 0, places))


# ------------------------------------------------------------- acyclic colourings
class _Trees:
    """The trees of the edges between two colours. An edge has a number, a tree the number of one of its edges."""

    def __init__(self, count: int) -> None:
        self.parents, self.sizes = list(range(count)), [1] * count

    def of(self, edge: int) -> int:
        """The tree of an edge."""
        parents = self.parents
        while parents[edge] != edge:
            parents[edge] = edge = parents[parents[edge]]
        return edge

    def join(self, one: int, other: int) -> None:
        """Make the trees of two edges one."""
        one, other = self.of(one), self.of(other)
        if one != other:
            self.parents[one] = other
            self.sizes[other] += self.sizes[one]


def _acyclic(places: RowPattern, order: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Colours such that neighbours differ and no cycle has two colours, and for each place the tree of its edge.

    The trees have a limited size, so that elements are sums of few products.
    """
    n = places.shape[0]
    starts, of = places.indptr.tolist(), places.indices.tolist()
    edges = np.minimum(places.transposition[1], np.arange(places.nnz)).tolist()
    trees, colors = _Trees(places.nnz), [-1] * n
    for v in order:
        mine = [(edges[k], of[k]) for k in range(starts[v], starts[v + 1]) if colors[of[k]] >= 0]
        taken = 0
        reached: dict[int, int] = {}
        sizes: dict[tuple[int, int], int] = {}
        for _, w in mine:
            taken |= 1 << colors[w]
            for j in range(starts[w], starts[w + 1]):
                x, tree_number = of[j], trees.of(edges[j])
                if colors[x] < 0 or x == w:
                    continue
                if tree_number not in reached:
                    reached[tree_number] = w
                    pair = colors[x], colors[w]
                    sizes[pair] = sizes.get(pair, 0) + trees.sizes[tree_number]
                    taken |= (sizes[pair] >= _TREE) << colors[x]
                elif reached[tree_number] != w:  # v would close a cycle through w and another neighbour
                    taken |= 1 << colors[x]
        color = colors[v] = (~taken & (taken + 1)).bit_length() - 1
        first: dict[int, int] = {}
        for edge, w in mine:
            trees.join(edge, first.setdefault(colors[w], edge))
            for j in range(starts[w], starts[w + 1]):
                if colors[of[j]] == color and of[j] != v:
                    trees.join(edges[j], edge)
    return np.array(colors, np.int32), np.array(list(map(trees.of, edges)))


def _determined_by_substitution(places: RowPattern, colors: np.ndarray, trees: np.ndarray) -> Coloring:
    """Elements as sums and differences of products.

    An element at a leaf of a tree is in the leaf's row, without others of the tree. Leaves are removed one after
    another: an element is in a row, minus the elements of the row that were removed before.
    """
    n = places.shape[0]
    terms: list[list[int]] = [[] for _ in range(places.nnz)]  # positions from 1, negative ones are subtracted
    rows, cols, mirror = places.rows.tolist(), places.indices.tolist(), places.transposition[1].tolist()
    ends = {}  # of (tree, vertex): the places of the vertex's row in the tree
    for k, tree_number in enumerate(trees.tolist()):
        if rows[k] == cols[k]:
            terms[k] = [int(colors[rows[k]]) * n + rows[k] + 1]
        else:
            ends.setdefault((tree_number, rows[k]), []).append(k)
    degrees = {key: len(mine) for key, mine in ends.items()}
    leaves = deque(key for key, degree in degrees.items() if degree == 1)
    while leaves:
        number, v = key = leaves.popleft()
        left = [k for k in ends[key] if not terms[k]]
        if not left:  # the other end was removed first
            continue
        (k,) = left
        found = [int(colors[cols[k]]) * n + v + 1]
        found += [-t for other in ends[key] if other != k for t in terms[other]]
        terms[k] = terms[mirror[k]] = found
        degrees[number, cols[k]] -= 1
        if degrees[number, cols[k]] == 1:
            leaves.append((number, cols[k]))
    signed = np.array([t for each in terms for t in each], np.int64)
    indptr = np.cumsum([0, *map(len, terms)])
    recovery = RowPattern.of_checked(np.abs(signed) - 1, indptr, (places.nnz, _count(colors) * n))
    none, signs = np.full(n, -1, np.int32), np.sign(signed).astype(np.int8)
    return Coloring(colors, none, signs, Facts("acyclic", _count(colors), 0, places, recovery))
