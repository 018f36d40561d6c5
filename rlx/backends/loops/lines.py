"""Lines: indented statements of a language, for kernels that are written as text."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rlx.backends.loops.dialect import Dialect

__all__ = ["Lines"]


@dataclass
class Lines:
    """Indented statements."""

    dialect: Dialect
    text: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, *lines: str) -> None:
        """Append statements."""
        self.text += [self.dialect.extent * self.depth + line for line in lines]

    @contextmanager
    def block(self, *head: str) -> Generator[None]:
        """Lines added inside are the body of a block."""
        self.add(*head)
        self.depth += 1
        before = len(self.text)
        yield
        if len(self.text) == before:
            self.add(self.dialect.comment("nothing") if self.dialect.block_end else "pass")
        self.depth -= 1
        if self.dialect.block_end:
            self.add(self.dialect.block_end)
