"""A builder that computes known values at once, while an outer function is being traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.trace.builder import Builder, Tracer

__all__ = ["AtOnce"]


class AtOnce(Builder):
    """Runs operations on known values, and passes operations on traced values to the enclosing builder."""

    def home(self, values: Sequence[Any]) -> Builder | None:
        """The enclosing builder if a value is traced, None if all are known."""
        return self.parent if any(isinstance(x, Tracer) for x in values) else None

    def _hands_on(self, primitive: Any, params: dict[str, Any]) -> bool:
        return True
