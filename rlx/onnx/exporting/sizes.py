"""Models for any value of symbolic sizes: graphs for several values, generalised to one.

The graphs must be equal except for numbers in their tensors and shapes. Each number is an expression of the sizes,
which becomes nodes that compute it from the shapes of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.export.exported import Exported
from rlx.ir.program import Program

__all__ = ["graph_for_sizes"]


def graph_for_sizes(exported: Exported, write: Callable[[Program], Any]) -> Any:
    return write(exported.program())
