"""Where exported files are written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["without_ending", "write_all"]


def without_ending(path: str | Path | None, *endings: str) -> Path | None:
    """The path that the endings of the output files are added to: `net` for net, and for net.c among them."""
    if path is None:
        return None
    return Path(path).with_suffix("") if Path(path).suffix in endings else Path(path)


def write_all(stem: Path | None, contents: Mapping[str, str | bytes]) -> None:
    """Write a file for each ending: text as UTF-8. Without a stem, and for empty contents, nothing is written."""
    for ending, content in contents.items():
        if stem is not None and content:
            Path(f"{stem}{ending}").write_bytes(content if isinstance(content, bytes) else content.encode())
