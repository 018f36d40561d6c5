"""Tables of text for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

__all__ = ["aligned"]


def aligned(rows: Iterable[Sequence[str]], text_columns: Collection[int] | None = None) -> list[str]:
    """A line for each row, with columns as wide as their widest cell.

    text_columns: numbers of the columns that begin in one place; the others, which hold numbers, end in one. None: all
    begin in one place.

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
