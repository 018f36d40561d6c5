"""The devices that won measurements, in a file for later processes."""

from __future__ import annotations

import contextlib
import json
import sys
import threading

from rlx.backends import device_names
from rlx.forks import reopen_after_fork
from rlx.placement.stored_rates import private_folder

__all__ = ["forget_winners", "known_winner", "remember_winner"]

_NAME = "rates-" + "0" * 23 + "1.json"  # the names of files that `rlx cache` knows
_LARGEST = 1 << 20
_MOST = 4096
_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])
_winners: dict[str, str] | None = None


def known_winner(key: str) -> str | None:
    """The device that won the measurement of a program before; None if there was none."""
    with _lock:
        return _read().get(key)


def remember_winner(key: str, device: str) -> None:
    """Keep the winner for this process and later ones."""
    with _lock:
        winners = _read()
        winners.pop(key, None)
        winners[key] = device
        while len(winners) > _MOST:
            del winners[next(iter(winners))]
        folder = private_folder()
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.write(_NAME, json.dumps(winners).encode())


def forget_winners() -> None:
    """Read the file again."""
    global _winners
    with _lock:
        _winners = None


def _read() -> dict[str, str]:
    """The winners; none of an invalid file."""
    global _winners
    if _winners is None:
        folder = private_folder()
        content = None if folder is None else folder.read(_NAME)
        _winners = {} if content is None or len(content) > _LARGEST else _parsed(content)
    return _winners


def _parsed(content: bytes) -> dict[str, str]:
    try:
        found = json.loads(content)
        known = device_names()
        pairs = [(k, v) for k, v in found.items() if isinstance(v, str) and v.partition(":")[0] in known]
        return dict(pairs[-_MOST:])
    except (ValueError, AttributeError, RecursionError):
        return {}
