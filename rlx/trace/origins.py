"""The user's current line, for equations and errors."""

from __future__ import annotations

import os
import sys
import weakref
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any

from rlx.ir.program import Origin

__all__ = ["current_origin"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class _Source:
    """Facts about one code object: whether it is rlx's own, its table of lines, and the origins found so far."""

    __slots__ = ("alive", "inside", "lines", "origins", "starts")

    def __init__(self, code: CodeType) -> None:
        self.inside = code.co_filename.startswith(_PACKAGE)
        self.origins: dict[int, Origin] = {}
        known = [] if self.inside else [(start, line) for start, _, line in code.co_lines() if line is not None]
        self.starts = [start for start, _ in known]
        self.lines = [line for _, line in known]
        # the entry is removed before another code object can have the same id
        self.alive = weakref.ref(code, partial(_forget, id(code)))

    def origin(self, code: CodeType, instruction: int) -> Origin:
        """The origin of an instruction. frame.f_lineno would walk a long function's table each time."""
        found = self.origins.get(instruction)
        if found is None:
            at = max(bisect_right(self.starts, instruction) - 1, 0)
            line = self.lines[at] if self.lines else code.co_firstlineno
            found = self.origins[instruction] = Origin(code.co_filename, line, code.co_name)
        return found


# by identity: hashing a code object hashes all its instructions from Python 3.12 on
_sources: dict[int, _Source] = {}


def _forget(key: int, _: object, forget: Callable[..., Any] = _sources.pop) -> None:
    forget(key, None)


def current_origin() -> Origin | None:
    """The user's current line."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        source = _sources.get(id(code))
        if source is None:
            source = _sources[id(code)] = _Source(code)
        if not source.inside:
            return source.origin(code, frame.f_lasti)
        frame = frame.f_back
    return None
