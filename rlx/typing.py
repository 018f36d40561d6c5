"""Types for annotations: the arrays, dtypes and shapes that rlx functions accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rlx.array import Array
from rlx.offered_names import offer_names

__all__ = ["ArrayLike", "DTypeLike", "DimSize", "Shape", "SupportsDType"]

offer_names(globals())

ArrayLike = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
"""Values that operations accept as an array."""


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
"""Values that specify a dtype."""

DimSize = int
Shape = Sequence[int]
