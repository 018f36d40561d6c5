"""CodeFault: the error of the checker and of the interpreter."""

from __future__ import annotations

__all__ = ["CodeFault"]


class CodeFault(Exception):
    """Code does what a device would not report: a race, an access out of bounds, a barrier that some work-items
    miss."""
