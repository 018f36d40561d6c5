"""jax.extend.source_info_util: source locations and name scopes of equations (flax, folx)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import FrameType, TracebackType
from typing import Any

from rlx.jaxnames.tracebacks import include_frame, register_exclusion

__all__ = [
    "NameStack",
    "SourceInfo",
    "current",
    "current_name_stack",
    "extend_name_stack",
    "new_name_stack",
    "new_source_info",
    "register_exclusion",
    "reset_name_stack",
    "set_name_stack",
    "summarize",
    "transform_name_stack",
    "user_context",
]


@dataclass(frozen=True)
class NameStack:
    """Names of scopes, outermost first; a transform encloses the names after it.

    >>> from rlx.jaxnames.source_info import NameStack
    >>> str(NameStack().extend("layer").transform("jvp").extend("norm"))
    'layer/jvp(norm)'
    """

    stack: tuple[tuple[str, bool], ...] = ()  # (name, whether it is a transform)

    def extend(self, name: str) -> NameStack:
        """The stack with one more scope."""
        return NameStack((*self.stack, (name, False)))

    def transform(self, transform_name: str) -> NameStack:
        """The stack with one more transform."""
        return NameStack((*self.stack, (transform_name, True)))

    def __getitem__(self, part: slice) -> NameStack:
        return NameStack(self.stack[part])

    def __len__(self) -> int:
        return len(self.stack)

    def __add__(self, other: NameStack) -> NameStack:
        return NameStack(self.stack + other.stack)

    def __str__(self) -> str:
        names: list[str] = []
        for name, transforms in reversed(self.stack):
            if transforms:
                names[-1:] = [f"{name}({names[-1] if names else ''})"]
            else:
                names.append(name)
        return "/".join(reversed(names))


@dataclass(frozen=True)
class SourceInfo:
    """The Python frames of an operation, and the scopes around it."""

    traceback: TracebackType | None = None
    name_stack: NameStack = field(default_factory=NameStack)

    def replace(self, **fields: Any) -> SourceInfo:
        """A copy with the given fields replaced, unless they are None."""
        return replace(self, **{name: value for name, value in fields.items() if value is not None})


_context: ContextVar[SourceInfo] = ContextVar("source_info", default=SourceInfo())  # noqa: B039  it is immutable


def new_name_stack(name: str = "") -> NameStack:
    """A stack with no scope, or with one."""
    return NameStack().extend(name) if name else NameStack()


def new_source_info() -> SourceInfo:
    """No frames and no scopes."""
    return SourceInfo()


def _python_traceback() -> TracebackType | None:
    """The frames of the caller as a traceback, outermost first."""
    frame: FrameType | None = sys._getframe(2)
    found: TracebackType | None = None
    while frame is not None:
        found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return found


def current() -> SourceInfo:
    """The frames of the caller, and the scopes around it.

    >>> from rlx.jaxnames.source_info import current
    >>> current().traceback is None
    False
    """
    found = _context.get()
    return found if found.traceback is not None else found.replace(traceback=_python_traceback())


def summarize(source_info: Any, num_frames: int = 1) -> str:
    """The innermost frames of the user's code, a line for each. An equation of rlx gives its own line.

    >>> from rlx.jaxnames.source_info import new_source_info, summarize
    >>> summarize(new_source_info())
    ''
    """
    lines: list[str] = []
    step = getattr(source_info, "traceback", None)
    while step is not None:
        frame = step.tb_frame
        if include_frame(frame):
            lines.append(f"{frame.f_code.co_filename}:{step.tb_lineno} ({frame.f_code.co_qualname})")
        step = step.tb_next
    return "\n".join(lines[-num_frames:])


@contextlib.contextmanager
def _within(info: SourceInfo) -> Generator[NameStack]:
    before = _context.set(info)
    try:
        yield info.name_stack
    finally:
        _context.reset(before)


def user_context(traceback: TracebackType | None, *, name_stack: NameStack | None = None) -> Any:
    """Set these frames as the source of operations inside of a `with` block."""
    return _within(_context.get().replace(traceback=traceback, name_stack=name_stack))


def current_name_stack() -> NameStack:
    """The scopes around the caller."""
    return _context.get().name_stack


def set_name_stack(name_stack: NameStack) -> Any:
    """Set these scopes for a `with` block, or for the calls of a decorated function.

    >>> from rlx.jaxnames.source_info import current_name_stack, new_name_stack, set_name_stack
    >>> with set_name_stack(new_name_stack("layer")):
    ...     str(current_name_stack())
    'layer'
    """
    return _within(_context.get().replace(name_stack=name_stack))


def extend_name_stack(name: str) -> Any:
    """Add a scope for a `with` block, or for the calls of a decorated function."""
    return set_name_stack(current_name_stack().extend(name))


def transform_name_stack(name: str) -> Any:
    """Add a transform for a `with` block, or for the calls of a decorated function."""
    return set_name_stack(current_name_stack().transform(name))


def reset_name_stack() -> Any:
    """Remove all scopes for a `with` block."""
    return set_name_stack(NameStack())
