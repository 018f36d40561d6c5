"""Rows of a tree of arrays, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx.errors import InputTypeError, OptionError, ShapeError, warn
from rlx.trees import tree

__all__ = ["batches"]


def batches(
    arrays: Any, size: int, *, seed: int | None = None, epoch: int = 0, drop_last: bool = True
) -> Iterator[Any]:
    """The rows of a tree of arrays in batches: one pass.

    Args:
      arrays: a tree of NumPy or rlx arrays with the same number of rows (elements along axis 0), of any dtype.
      size: rows in a batch.
      seed: the order is random, and the same for the same seed and epoch; None keeps the arrays' order.
      epoch: the number of the pass; each pass has a different order.
      drop_last: drop the incomplete batch at the end, so that all batches have one shape; False yields
        it as a smaller batch.

    Yields trees like `arrays`, of NumPy arrays: copies if the order is random, otherwise views. Raises OptionError for
    a size below 1, InputTypeError if a leaf has no rows, ShapeError if the numbers of rows differ.

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
        raise OptionError(f"A batch needs at least one row, got {size}.", "Pass a size of at least 1.")
    leaves, treedef = tree.flatten(arrays)
    rows = [np.asarray(leaf) for leaf in leaves]
    if not rows or any(leaf.ndim == 0 for leaf in rows):
        raise InputTypeError("Batches need arrays with at least one axis.", "Keep numbers out of the tree.")
    count = len(rows[0])
    if any(len(leaf) != count for leaf in rows):
        paths = [tree.path_text(path) for path, _ in tree.flatten_with_path(arrays)[0]]
        counts = ", ".join(f"{path} has {len(leaf)}" for path, leaf in zip(paths, rows, strict=True))
        raise ShapeError(
            f"batches got arrays with different numbers of rows: {counts}.",
            f"Give every array the same rows: cut them to the first {min(map(len, rows))}, or find the missing ones.",
        )
    if drop_last and 0 < count < size:
        warn(f"batches has no batch: {count} rows for batches of {size}. Pass a smaller size, or drop_last=False.")
    order = None if seed is None else np.random.default_rng([seed, epoch]).permutation(count)
    return _cut(rows, treedef, order, range(0, count - size + 1 if drop_last else count, size), size)


def _cut(rows: list[Any], treedef: Any, order: Any, starts: range, size: int) -> Iterator[Any]:
    for start in starts:
        part = slice(start, start + size) if order is None else order[start : start + size]
        yield tree.unflatten(treedef, [leaf[part] for leaf in rows])
