"""Operands of the special functions."""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.errors import DtypeError
from rlx.ir.types import is_complex
from rlx.numpy.promotion import promote_inexact

__all__ = ["real_operands"]


def real_operands(name: str, *values: Any) -> list[Array]:
    """Operands promoted to one floating dtype; DtypeError where that is a complex one."""
    arrays = promote_inexact(name, *values)
    if is_complex(arrays[0].dtype):
        raise DtypeError(f"{name} does not take complex numbers.", "It is here a function of real numbers only.")
    return arrays
