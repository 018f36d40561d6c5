"""Errors that end a command without a traceback."""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import rlx
from rlx.errors import RlxError, source_line

__all__ = ["FAILED", "FINE", "MISTAKEN", "Mistake", "told"]

FINE, FAILED, MISTAKEN = 0, 1, 2
_PACKAGE = str(Path(rlx.__file__).parent) + os.sep
_EVERYTHING = "RLX_TRACEBACK=full shows the whole traceback."


class Mistake(Exception):
    """`what` happened, and what to write `instead`; `code` is the exit code."""

    def __init__(self, what: str, instead: str = "", code: int = MISTAKEN) -> None:
        super().__init__("\n".join(filter(None, (what, instead))))
        self.what, self.instead, self.code = what, instead, code


@contextmanager
def told(where: str) -> Generator[None]:
    """Turn an exception of the user's code in the block into a Mistake that shows the user's line.

    An error of rlx is a lesson already. One that comes from inside of rlx without being such a lesson is not the
    user's mistake: the exit code says so.
    """
    try:
        yield
    except (Mistake, BrokenPipeError):  # a reader that has read enough is not a mistake
        raise
    except (Exception, SystemExit) as error:
        if os.environ.get("RLX_TRACEBACK") == "full":
            raise
        frames = traceback.extract_tb(error.__traceback__)
        ours = bool(frames) and frames[-1].filename.startswith(_PACKAGE) and not isinstance(error, SystemExit)
        theirs = [f for f in frames if not f.filename.startswith((_PACKAGE, "<frozen"))]
        if isinstance(error, RlxError):
            # a line that is not of the function's code is of who started the command
            text = str(error)
            raise Mistake(text if theirs or not error.line else text.replace(f"\n{error.line}", "", 1)) from None
        line = "\n" + source_line(theirs[-1].filename, theirs[-1].lineno or 0, theirs[-1].name) if theirs else ""
        raise Mistake(
            f"{where} raised {type(error).__name__}: {error}{line}", _EVERYTHING, FAILED if ours else MISTAKEN
        ) from None
