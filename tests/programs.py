"""What programs consist of."""

from __future__ import annotations

from typing import Any

import rlx
from rlx.trace.lower import inline_calls

__all__ = ["primitives_of"]


def primitives_of(function: Any, *args: Any) -> list[str]:
    """Names of the equations of a traced function, calls inlined."""
    return [e.primitive.name for e in inline_calls(rlx.make_program(function)(*args)).equations]
