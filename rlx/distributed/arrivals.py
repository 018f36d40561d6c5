"""Ranks that have called `initialize`: the states that they report to `rlx launch`, and a time limit for the start."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlx.distributed.members import called

__all__ = ["VARIABLE", "absence", "say_left", "watched"]

VARIABLE = "RLX_LAUNCH_FOLDER"  # set by rlx/cli/one_rank.py, which uses the same words
_WAITS, _JOINED, _LEFT, _ENDED = "waits", "joined", "left", "ended"
_GRACE = 1.0  # seconds in which other ranks also report whom they waited for
_told: list[Path] = []  # the file of this rank; empty in forked children


def _say(word: str) -> None:
    with suppress(OSError):  # without the folder, errors name fewer ranks
        for file in _told:
            file.write_text(word)


def say_left() -> None:
    """This process has left the group in an orderly way."""
    _say(_LEFT)


def absence(rank: int, size: int, seconds: float, folder: Path | None) -> str:
    """The error text of a rank that waited for others to call `initialize`. folder: of the ranks on this machine."""
    words: dict[int, str] = {}
    with suppress(OSError, ValueError):
        files = [] if folder is None else [*folder.glob("rank-*")]
        words = {int(file.name.removeprefix("rank-")): file.read_text() for file in files}
    missing = [other for other, word in sorted(words.items()) if word not in (_WAITS, _JOINED)]
    elsewhere = [other for other in range(size) if other not in words and other != rank]
    ended = [other for other, word in sorted(words.items()) if word == _ENDED]
    who = called(missing or elsewhere) if words else "the others"
    return (
        f"Rank {rank} of {size} waited {seconds:g} s in rlx.distributed.initialize() for {who}."
        f"{f' The program of {called(ended)} has ended without calling it.' if ended else ''}\n"
        f"Check what happened to {who} before it. If the start only takes longer, set RLX_COLLECTIVE_TIMEOUT."
    )


@contextmanager
def watched(rank: int, size: int, seconds: float) -> Generator[None]:
    """A time limit for a start that waits for other processes. After it the process reports them and exits."""
    found = os.environ.pop(VARIABLE, None)  # child processes of this one are not ranks
    folder = None if found is None else Path(found)
    _told[:] = [] if folder is None else [folder / f"rank-{rank}"]
    _say(_WAITS)
    come = threading.Event()

    def watch() -> None:
        if come.wait(seconds):
            return
        said = absence(rank, size, seconds, folder)
        print(f"rlx.errors.CollectiveError: {said}", file=sys.stderr, flush=True)
        time.sleep(_GRACE)
        if not come.is_set():
            _say(_LEFT)
            os._exit(1)

    threading.Thread(target=watch, name="rlx.distributed.initialize", daemon=True).start()
    try:
        yield
        _say(_JOINED)
    finally:
        come.set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_told.clear)
