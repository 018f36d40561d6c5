"""Texts that end a text: pieces are held back for as long as they may be the start of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rlx.errors import InputTypeError

__all__ = ["before_stops", "checked_stops"]


def checked_stops(stop: Sequence[str] | str) -> tuple[str, ...]:
    """The texts, one or several. Raises InputTypeError for others and for an empty one.

    >>> checked_stops("end"), checked_stops(["a", "b"])
    (('end',), ('a', 'b'))
    """
    texts = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in texts):
        raise InputTypeError(f"stop={stop!r} is not a list of texts.", 'Write stop=["\\n", "User:"].')
    return texts


def before_stops(pieces: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """The pieces before the first of the texts in `stop`.

    >>> "".join(before_stops(["Hel", "lo wor", "ld"], ["o w"]))
    'Hell'
    """
    held = ""
    for piece in pieces:
        held += piece
        ends = [place for place in map(held.find, stop) if place >= 0]
        if ends:
            held = held[: min(ends)]
            break
        keep = max((_overlap(held, text) for text in stop), default=0)
        ready = held[: len(held) - keep]
        if ready:
            yield ready
            held = held[len(ready) :]
    if held:
        yield held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text may begin a stop text."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
