"""Shared by routines: their signature, and factorisations of batches with failing matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

__all__ = ["Arrays", "Attributes", "Routine", "nan_where_it_fails", "vectorises_across_batch"]

Arrays = tuple[np.ndarray, ...]
Attributes = dict[str, Any]
Routine = Callable[[Sequence[np.ndarray], Attributes], Arrays]

_FEW = 8
_LARGE = 48


def vectorises_across_batch(batch: Sequence[int], order: int) -> bool:
    """Whether a loop over the columns of all matrices at once beats a loop over the matrices."""
    return prod(batch) >= max(_FEW, order) and order <= _LARGE


def nan_where_it_fails(factorise: Callable[[np.ndarray], Arrays], matrices: np.ndarray) -> Arrays:
    """Factorise a batch; a failing matrix gives NaN and does not affect the others."""
    try:
        return factorise(matrices)
    except (np.linalg.LinAlgError, ValueError):
        pass
    batch, shape = matrices.shape[:-2], matrices.shape[-2:]
    pattern = factorise(np.eye(*shape, dtype=matrices.dtype))
    results = tuple(np.full(batch + p.shape, np.nan, p.dtype) for p in pattern)
    for place in np.ndindex(batch):
        try:
            for result, part in zip(results, factorise(matrices[place]), strict=True):
                result[place] = part
        except (np.linalg.LinAlgError, ValueError):
            continue
    return results
