"""Output of the commands: tables, sizes and times with units, JSON; in colours if rich is installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["as_json", "duration", "rate", "short_path", "show_source", "status_word"]

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def as_json(value: Any) -> str:
    """A value as JSON that every reader takes: NaN and infinities are null, tuples lists, other things their text."""
    return json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or type(value) in (bool, int, str) else str(value)


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them.

    >>> duration(2.5), duration(0.00125), duration(3.2e-6)
    ('2.50 s', '1.25 ms', '3.20 us')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 0.9995:
            return f"{seconds * scale:#.3g}".rstrip(".") + f" {unit}"
    return f"{seconds * 1e6:#.3g}".rstrip(".") + " us"


def rate(amount: float | None) -> str:
    """Billions in a second; "-" where that is not known."""
    return "-" if amount is None else f"{amount:#.3g}".rstrip(".") if amount < 1000 else f"{amount:.0f}"


def short_path(path: str | Path) -> str:
    """A path without the name of the user's home, which a report need not tell."""
    text, home = str(path), os.path.expanduser("~")
    return "~" + text[len(home) :] if home not in ("/", "~") and (text + os.sep).startswith(home + os.sep) else text


# ------------------------------------------------------------------ colours
@lru_cache(maxsize=1)
def _rich_there() -> bool:
    return importlib.util.find_spec("rich") is not None


def _coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and _rich_there()


def status_word(status: str) -> str:
    """ok, warning or failed, eight characters wide."""
    word = status.ljust(8)
    if not _coloured():
        return word
    console = importlib.import_module("rich.console").Console()
    with console.capture() as captured:
        console.print(word, style=_STYLES[status], end="")
    return captured.get()


def show_source(text: str, language: str) -> None:
    """Print source code, in colours if that can be."""
    if not _coloured():
        print(text)
        return
    # a theme of the terminal's own colours, which can be read on light and on dark
    syntax = importlib.import_module("rich.syntax").Syntax(text, language, theme="ansi_dark")
    importlib.import_module("rich.console").Console(soft_wrap=True).print(syntax)
