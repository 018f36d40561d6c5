"""Tracebacks that show the user's frames: rlx's frames are left out when an exception is printed.

Exceptions keep all their frames. The shorter chain is printed by the hooks at the end of a program, of a thread and of
a notebook's cell, by Python's module traceback (so by logging and unittest), and by pytest. Debuggers see everything,
and so does RLX_TRACEBACK=full.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import traceback as tracebacks
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rlx.advice.refused_calls import advise
from rlx.errors import RlxError, is_ours, source_line

__all__ = ["install", "without_ours"]


def without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """The frames of a traceback that are not rlx's, in a separate chain; all frames if none is the user's.

    >>> import rlx, rlx.numpy as jnp
    >>> from rlx.advice.tracebacks import without_ours
    >>> try:
    ...     jnp.ones(2) + jnp.ones(3)
    ... except ValueError as error:
    ...     shown = without_ours(error.__traceback__)
    >>> shown.tb_next is None
    True
    """
    kept = []
    walked = traceback
    while walked is not None:
        if not is_ours(walked.tb_frame.f_code.co_filename):
            kept.append(walked)
        walked = walked.tb_next
    shown: TracebackType | None = None
    for found in reversed(kept):
        shown = TracebackType(shown, found.tb_frame, found.tb_lasti, found.tb_lineno)
    return shown if shown is not None else traceback


def _ours_hidden() -> bool:
    return os.environ.get("RLX_TRACEBACK") != "full"


def install() -> None:
    """Make everything that prints exceptions print the shorter tracebacks; hooks through the previous hooks."""
    if not getattr(sys.excepthook, "_of_rlx", False):
        sys.excepthook = _shorter(sys.excepthook)
        threading.excepthook = _shorter_in_threads(threading.excepthook)
        _shorten_formatted()
        _hide_from_pytest()
    shell = _notebook()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_cell)


def _shorter(hook: Callable[..., Any]) -> Callable[..., Any]:
    def shown(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> Any:
        advise(error)
        if not _ours_hidden():
            return hook(kind, error, traceback)
        with _Shortened(error):
            return hook(kind, error, without_ours(traceback))

    setattr(shown, "_of_rlx", True)  # noqa: B010
    return shown


def _shorter_in_threads(hook: Callable[..., Any]) -> Callable[..., Any]:
    def shown(arguments: Any) -> Any:
        if arguments.exc_value is not None:
            advise(arguments.exc_value)
        if not _ours_hidden() or arguments.exc_value is None:
            return hook(arguments)
        parts = arguments.exc_type, arguments.exc_value, without_ours(arguments.exc_traceback), arguments.thread
        with _Shortened(arguments.exc_value):
            return hook(threading.ExceptHookArgs(parts))

    return shown


def _shorten_formatted() -> None:
    """What the module traceback formats: print_exc, format_exc, logging.exception; causes are formatted likewise."""
    whole = tracebacks.TracebackException.__init__

    @functools.wraps(whole)
    def shorter(self: Any, kind: Any, error: Any, traceback: Any, **options: Any) -> None:
        if isinstance(error, BaseException):
            advise(error)
        whole(self, kind, error, without_ours(traceback) if _ours_hidden() else traceback, **options)

    setattr(tracebacks.TracebackException, "__init__", shorter)  # noqa: B010


def _hide_from_pytest() -> None:
    """In a test: pytest hides functions with a variable __tracebackhide__, and rlx's functions like those."""
    code = sys.modules.get("_pytest._code.code")
    if code is None:
        return
    hidden = code.TracebackEntry.ishidden

    @functools.wraps(hidden)
    def hidden_or_ours(self: Any, excinfo: Any) -> bool:
        return hidden(self, excinfo) or (_ours_hidden() and is_ours(str(self.path)))

    code.TracebackEntry.ishidden = hidden_or_ours


class _Shortened:
    """An exception and its causes with short tracebacks, while they are printed."""

    def __init__(self, error: BaseException) -> None:
        self.kept: list[tuple[BaseException, TracebackType | None]] = []
        found: BaseException | None = error
        while found is not None and all(found is not known for known, _ in self.kept):
            self.kept.append((found, found.__traceback__))
            found = found.__cause__ or found.__context__

    def __enter__(self) -> None:
        for error, traceback in self.kept:
            error.__traceback__ = without_ours(traceback)

    def __exit__(self, *_: Any) -> None:
        for error, traceback in self.kept:
            error.__traceback__ = traceback


def _notebook() -> Any:
    """IPython's shell, if this is one."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _show_in_cell(
    shell: Any, kind: type[BaseException], error: BaseException, traceback: TracebackType | None, tb_offset: Any = None
) -> None:
    advise(error)
    if not _ours_hidden():
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
        return
    shown = without_ours(traceback)
    with _Shortened(error), _SaidOnce(error, shown):
        shell.showtraceback((kind, error, shown), tb_offset=tb_offset)


class _SaidOnce:
    """An error of rlx without its line, while it is printed after a traceback that ends with this line."""

    def __init__(self, error: BaseException, traceback: TracebackType | None) -> None:
        last = traceback
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        self.error = error if isinstance(error, RlxError) and last is not None else None
        self.line = "" if self.error is None else self.error.line
        if last is not None and self.line != _line_of(last):
            self.error = None

    def __enter__(self) -> None:
        if self.error is not None:
            self.error.relocate("")

    def __exit__(self, *_: Any) -> None:
        if self.error is not None:
            self.error.relocate(self.line)


def _line_of(entry: TracebackType) -> str:
    code = entry.tb_frame.f_code
    return source_line(code.co_filename, entry.tb_lineno, code.co_name)
