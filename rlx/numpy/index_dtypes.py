"""Dtypes of indices: wide enough for their axes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from rlx.config import config
from rlx.numpy.promotion import convert_to

__all__ = ["holding", "index_dtype", "position_dtype"]

_SHORT, _LONG = np.dtype("i4"), np.dtype("i8")


def _holds(dtype: np.dtype, size: int) -> bool:
    return size <= ml_dtypes.iinfo(dtype).max


def index_dtype(size: int) -> np.dtype:
    """The dtype to compute with positions among `size` elements, `size` itself included."""
    return _SHORT if _holds(_SHORT, size) else _LONG


def position_dtype(size: int) -> np.dtype:
    """The dtype of positions and counts that a function returns: the default integer if it holds `size`."""
    return config.default_int if _holds(config.default_int, size) else _LONG


def holding(index: Any, size: int) -> Any:
    """An index along an axis of `size` elements, wide enough to compare with the size or to add it."""
    return index if _holds(index.dtype, size) else convert_to(index, index_dtype(size))
