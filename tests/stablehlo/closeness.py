"""How the results of other compilers are compared with rlx's."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx

__all__ = ["close"]


def close(found: Any, expected: Any, error: float) -> None:
    """Leaves of one dtype and shape, close to one another relative to the largest."""
    pairs = list(zip(rlx.tree.leaves(found), rlx.tree.leaves(expected), strict=True))
    for a, b in pairs:
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        largest = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
        np.testing.assert_allclose(a, b, rtol=error, atol=error * largest)
