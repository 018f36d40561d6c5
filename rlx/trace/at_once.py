"""A builder that computes what is known at once, while a function is being traced around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.program import Program
from rlx.trace.builder import Builder, Tracer, state
from rlx.trace.interpret import interpret

__all__ = ["AtOnce"]


class AtOnce(Builder):
    """Runs operations on known values, and hands those on traced ones to the builder around it."""

    def _elsewhere(self, values: Sequence[Any]) -> Builder | None:
        """The builder around this one where a value is traced, None where all are known."""
        return self.parent if any(isinstance(x, Tracer) for x in values) else None

    def emit(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """As Builder's for traced values; else what the operation computes."""
        state.builder = self._elsewhere(args)
        try:
            return primitive.bind(*args, **params)
        finally:
            state.builder = self

    def inline(self, program: Program, args: Sequence[Any]) -> list[Any]:
        """As Builder's for traced values; else what the program computes."""
        state.builder = around = self._elsewhere(args)
        try:
            return interpret(program, args) if around is None else around.inline(program, args)
        finally:
            state.builder = self
