"""The points that the IQ types choose from: tables of the format, kept in the gguf package."""

from __future__ import annotations

import functools
import importlib

import numpy as np

from rlx.errors import UnsupportedError

__all__ = ["grid"]


@functools.cache
def grid(name: str) -> np.ndarray:
    """The points of a type's grid: float32[points, dimensions]. Raises UnsupportedError without the gguf package."""
    try:
        quants = importlib.import_module("gguf.quants")
    except ImportError:
        raise UnsupportedError(
            f"Blocks of {name} point into a table that the gguf package holds, and it is not installed.",
            'Run pip install "rlx[gguf]".',
        ) from None
    owner = getattr(quants, name)
    owner.init_grid()
    found = np.array(owner.grid, np.float32).reshape(owner.grid_shape)
    found.flags.writeable = False
    return found
