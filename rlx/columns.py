"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

__all__ = ["aligned"]


def aligned(rows: Iterable[Sequence[str]], text_columns: Collection[int] | None = None) -> list[str]:
    """A line for each row, with columns as wide as their widest cell.

    text_columns: the indices of left-aligned columns; the others, with numbers, are right-aligned. None: all are
    left-aligned.

    >>> from rlx.columns import aligned
    >>> print(*aligned([("name", "size"), ("a", "10"), ("bcd", "2000")], [0]), sep="\\n")
    name  size
    a       10
    bcd   2000
    """
    cells = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        text = range(len(widths)) if text_columns is None else text_columns
        padded = (c.ljust(w) if n in text else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(padded).rstrip()

    return [line(row) for row in cells]
