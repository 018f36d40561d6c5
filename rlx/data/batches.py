"""Rows of a tree of arrays, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx.errors import InputTypeError, OptionError, ShapeError
from rlx.trees import tree

__all__ = ["batches"]


def batches(
    arrays: Any, size: int, *, seed: int | None = None, epoch: int = 0, drop_last: bool = True
) -> Iterator[Any]:
    """The rows of a tree of arrays in batches: one pass.

    Args:
      arrays: a tree of NumPy or rlx arrays that have equally many rows (elements along axis 0), of any dtype.
      size: rows in a batch.
      seed: the order is random, and the same for the same seed and epoch; None keeps the arrays' order.
      epoch: which pass this is: each one has an order of its own.
      drop_last: leave out the rows at the end that fill no batch, so that all batches have one shape; False yields
        them as a smaller one.

    Yields trees like `arrays`, of NumPy arrays: copies where the order is random, views where it is not. Raises
    OptionError for a size below 1, InputTypeError where a leaf has no rows, ShapeError where their numbers differ.

    >>> import numpy as np
    >>> from rlx.data import batches
    >>> rows = {"x": np.arange(5.0), "y": np.arange(5)}
    >>> [batch["y"].tolist() for batch in batches(rows, 2, drop_last=False)]
    [[0, 1], [2, 3], [4]]
    >>> one, again, other = ([b["y"].tolist() for b in batches(rows, 2, seed=0, epoch=e)] for e in (0, 0, 1))
    >>> one == again, one == other
    (True, False)
    """
    if size < 1:
        raise OptionError(f"A batch has at least one row, not {size}.")
    leaves, treedef = tree.flatten(arrays)
    rows = [np.asarray(leaf) for leaf in leaves]
    if not rows or any(leaf.ndim == 0 for leaf in rows):
        raise InputTypeError("Batches are made of arrays with at least one axis.", "Numbers go beside the batches.")
    count = len(rows[0])
    if any(len(leaf) != count for leaf in rows):
        counts = ", ".join(str(len(leaf)) for leaf in rows)
        raise ShapeError(f"The arrays have {counts} rows; they must have equally many.")
    order = None if seed is None else np.random.default_rng([seed, epoch]).permutation(count)
    return _cut(rows, treedef, order, range(0, count - size + 1 if drop_last else count, size), size)


def _cut(rows: list[Any], treedef: Any, order: Any, starts: range, size: int) -> Iterator[Any]:
    for start in starts:
        part = slice(start, start + size) if order is None else order[start : start + size]
        yield tree.unflatten(treedef, [leaf[part] for leaf in rows])
