"""Tracebacks that show the user's frames: those of rlx are left out where an exception is printed.

Exceptions keep all their frames; what prints them at the end of a program, of a thread or of a notebook's cell is
handed the shorter chain. Debuggers see everything, and so does RLX_TRACEBACK=full.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["install", "without_ours"]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """The frames of a traceback that are not rlx's, in a chain of their own; all of them where none is the user's.

    >>> import rlx, rlx.numpy as jnp
    >>> from rlx.tracebacks import without_ours
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
        if not walked.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            kept.append(walked)
        walked = walked.tb_next
    shown: TracebackType | None = None
    for found in reversed(kept):
        shown = TracebackType(shown, found.tb_frame, found.tb_lasti, found.tb_lineno)
    return shown if shown is not None else traceback


def _ours_hidden() -> bool:
    return os.environ.get("RLX_TRACEBACK") != "full"


def install() -> None:
    """Have the program's hooks, and a notebook's, print the shorter tracebacks; what was there before prints them."""
    if not getattr(sys.excepthook, "_of_rlx", False):
        sys.excepthook = _shorter(sys.excepthook)
        threading.excepthook = _shorter_in_threads(threading.excepthook)
    shell = _notebook()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_cell)


def _shorter(hook: Callable[..., Any]) -> Callable[..., Any]:
    def shown(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> Any:
        if not _ours_hidden():
            return hook(kind, error, traceback)
        with _Shortened(error):
            return hook(kind, error, without_ours(traceback))

    setattr(shown, "_of_rlx", True)  # noqa: B010
    return shown


def _shorter_in_threads(hook: Callable[..., Any]) -> Callable[..., Any]:
    def shown(arguments: Any) -> Any:
        if not _ours_hidden() or arguments.exc_value is None:
            return hook(arguments)
        parts = arguments.exc_type, arguments.exc_value, without_ours(arguments.exc_traceback), arguments.thread
        with _Shortened(arguments.exc_value):
            return hook(threading.ExceptHookArgs(parts))

    return shown


class _Shortened:
    """An exception and those it came from with short tracebacks, for as long as they are printed."""

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
    if not _ours_hidden():
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
        return
    with _Shortened(error):
        shell.showtraceback((kind, error, without_ours(traceback)), tb_offset=tb_offset)
