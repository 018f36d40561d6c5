"""Programs as StableHLO text."""

from __future__ import annotations

from rlx.stablehlo.writing.program import write_program

__all__ = ["write_program"]
