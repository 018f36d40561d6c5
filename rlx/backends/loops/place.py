"""What a function of source code takes and returns, for who calls it."""

from __future__ import annotations

from typing import NamedTuple

from rlx.ir.types import TensorType

__all__ = ["Place"]


class Place(NamedTuple):
    """An array that a function takes or returns: its name in the text, what it is of, its type."""

    name: str
    meaning: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type.dtype.name}{list(self.type.shape)}  {self.meaning}"
