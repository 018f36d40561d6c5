"""Types for annotations: what rlx functions take as arrays, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rlx.array import Array

__all__ = ["ArrayLike", "DTypeLike", "DimSize", "Shape", "SupportsDType"]

ArrayLike = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
"""What every operation takes in place of an array."""


@runtime_checkable
class SupportsDType(Protocol):
    """Has a dtype.

    >>> import rlx
    >>> isinstance(rlx.numpy.zeros(2), rlx.typing.SupportsDType)
    True
    """

    @property
    def dtype(self) -> np.dtype:
        """The element type."""


DTypeLike = str | type[Any] | np.dtype | SupportsDType
"""What names a dtype."""

DimSize = int
Shape = Sequence[int]
