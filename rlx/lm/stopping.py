"""Texts that end a text: pieces are held back for as long as they may be the start of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rlx.errors import InputTypeError

__all__ = ["StopTexts", "before_stops", "checked_stops"]


def checked_stops(stop: Sequence[str] | str) -> tuple[str, ...]:
    """The texts, one or several. Raises InputTypeError for others and for an empty one.

    >>> checked_stops("end"), checked_stops(["a", "b"])
    (('end',), ('a', 'b'))
    """
    texts = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in texts):
        raise InputTypeError(f"stop={stop!r} is not a list of texts.", 'Write stop=["\\n", "User:"].')
    return texts


class StopTexts:
    """A stream of text pieces that ends before the first of some texts.

    >>> from rlx.lm import StopTexts
    >>> pieces = StopTexts(["o w"])
    >>> pieces.add("Hello"), pieces.add(" world"), pieces.ended
    ('Hell', '', True)
    """

    def __init__(self, stop: Sequence[str] | str = ()) -> None:
        self.stop, self.ended, self._held = checked_stops(stop), False, ""

    def add(self, piece: str) -> str:
        """The text that is certain after a piece."""
        held = self._held + piece
        ends = [place for place in map(held.find, self.stop) if place >= 0]
        if self.ended or ends:
            found, self._held = "" if self.ended else held[: min(ends)], ""
            self.ended = True
            return found
        keep = max((_overlap(held, text) for text in self.stop), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def rest(self) -> str:
        """The text that was held back, at the end of all pieces."""
        found, self._held = self._held, ""
        return found


def before_stops(pieces: Iterable[str], stop: StopTexts) -> Iterator[str]:
    """The pieces before the first of the texts.

    >>> "".join(before_stops(["Hel", "lo wor", "ld"], StopTexts(["o w"])))
    'Hell'
    """
    for piece in pieces:
        ready = stop.add(piece)
        if ready:
            yield ready
        if stop.ended:
            return
    rest = stop.rest()
    if rest:
        yield rest


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text may begin a stop text."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
