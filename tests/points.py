"""Points at which the transforms are compared with jax."""

from __future__ import annotations

import numpy as np

__all__ = ["complexes", "reals"]


def reals(*shape: int) -> np.ndarray:
    """Distinct float64 numbers from 0.1 to 1.3."""
    return np.linspace(0.1, 1.3, int(np.prod(shape))).reshape(shape)


def complexes(*shape: int) -> np.ndarray:
    """Distinct complex128 numbers."""
    return reals(*shape) + 0.5j * reals(*shape)[::-1]
