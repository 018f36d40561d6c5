"""How far the results of two libraries are from one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlx.testing import tolerance

__all__ = ["Parity", "parity"]

# the tolerance of a whole program, as a multiple of the tolerance of a few operations, and its upper limit
PROGRAM_ERRORS, LARGEST_ERROR = 100, 0.05


class Parity(NamedTuple):
    """The distance of results from rlx's relative to their norm, the tolerance, and other differences.

    >>> from rlx.bench import Parity
    >>> Parity(error=0.1, allowed=0.01, difference="").holds
    False
    """

    error: float
    allowed: float
    difference: str

    @property
    def holds(self) -> bool:
        """Whether the results are the same."""
        return not self.difference and self.error <= self.allowed


def parity(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> Parity:
    """The distance between the arrays of two results. If dtypes differ, the tolerance is the narrower one's.

    >>> parity([np.ones(3, np.float32)], [np.ones(3)]).holds, parity([np.ones(3)], [np.zeros(3)]).holds
    (True, False)
    """
    if len(ours) != len(theirs):
        return Parity(math.inf, 0.0, f"{len(theirs)} arrays instead of {len(ours)}")
    return max(map(_array_parity, ours, theirs), key=_badness, default=Parity(0.0, 0.0, ""))


def _badness(found: Parity) -> float:
    """The error divided by the tolerance."""
    if found.difference:
        return math.inf
    return found.error / found.allowed if found.allowed else math.inf * found.error if found.error else 0.0


def _array_parity(x: np.ndarray, y: np.ndarray) -> Parity:
    if x.shape != y.shape:
        return Parity(math.inf, 0.0, f"shape {y.shape} instead of {x.shape}")
    allowed = min(PROGRAM_ERRORS * max(tolerance(x.dtype), tolerance(y.dtype)), LARGEST_ERROR)
    wide = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    a, b = np.atleast_1d(x.astype(wide)), np.atleast_1d(y.astype(wide))
    finite = np.isfinite(a)
    if not (finite == np.isfinite(b)).all() or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return Parity(math.inf, allowed, "NaN or infinity in other places")
    norm = float(np.linalg.norm(a[finite]))
    distance = float(np.linalg.norm(a[finite] - b[finite]))
    return Parity(distance / norm if norm else distance, allowed, "")
