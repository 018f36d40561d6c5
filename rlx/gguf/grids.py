"""The codebooks of the IQ types: tables of the format, which the gguf package contains."""

from __future__ import annotations

import functools
import importlib

import numpy as np

from rlx.errors import UnsupportedError
from rlx.installation import install_command

__all__ = ["grid"]


@functools.cache
def grid(name: str) -> np.ndarray:
    """The points of a type's grid: float32[points, dimensions]. Raises UnsupportedError without the gguf package."""
    try:
        quants = importlib.import_module("gguf.quants")
    except ImportError:
        raise UnsupportedError(
            f"Blocks of {name} index a table in the gguf package, which is not installed.",
            f"Run {install_command('gguf')}",
        ) from None
    owner = getattr(quants, name)
    owner.init_grid()
    found = np.array(owner.grid, np.float32).reshape(owner.grid_shape)
    found.flags.writeable = False
    return found
