"""The arguments and results of a generated function, for its callers."""

from __future__ import annotations

from typing import NamedTuple

from rlx.ir.types import TensorType

__all__ = ["FunctionParameter"]


class FunctionParameter(NamedTuple):
    """An argument or result of a function: its name in the source, its meaning, its type."""

    name: str
    meaning: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type.dtype.name}{list(self.type.shape)}  {self.meaning}"
