"""Mistakes of users as functions, and what rlx says of each: class, message, the line, and what to write instead."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlx import errors

__all__ = ["Mistake", "Mistakes", "assert_alone", "chain", "line_of"]


class Mistake(NamedTuple):
    """A function that makes a mistake, and the error that it raises."""

    function: Callable[[], Any]
    error: type[errors.RlxError]
    what: str
    instead: str
    inside: str


class Mistakes(dict[str, Mistake]):
    """The mistakes of a test file, by name."""

    def case(self, error: type[errors.RlxError], what: str, instead: str, inside: str = "") -> Callable[[Any], Any]:
        """Register a mistake: its class, what the message says before and after the line marked `# here`.

        `inside` is the function that holds the line, where that is not the mistake itself.
        """

        def register(function: Callable[[], Any]) -> Callable[[], Any]:
            assert function.__name__ not in self, function.__name__
            self[function.__name__] = Mistake(function, error, what, instead, inside)
            return function

        return register

    def check(self, name: str, **places: str) -> None:
        """The mistake raises what it should: class, whole text, nothing else before it. `places` fill the message."""
        mistake = self[name]
        file = mistake.function.__code__.co_filename
        number, text = line_of(mistake.function)
        with pytest.raises(errors.RlxError) as caught:
            mistake.function()
        what = mistake.what
        for mark, place in places.items():
            what = what.replace(mark, place)
        shown = f"  at {Path(file).name}:{number}, in {mistake.inside or name}\n    {text}"
        assert type(caught.value) is mistake.error
        public = next(base for base in mistake.error.__mro__ if base.__name__ in errors.__all__)
        assert str(caught.value) == f"{what}\n{shown}\n{mistake.instead}\nMore: rlx explain {public.__name__}"
        assert_alone(caught.value)


def line_of(function: Callable[[], Any], mark: str = "# here") -> tuple[int, str]:
    """Number and text of the marked line of a function."""
    lines = linecache.getlines(function.__code__.co_filename)
    for number in range(function.__code__.co_firstlineno, len(lines) + 1):
        if lines[number - 1].rstrip().endswith(mark):
            return number, lines[number - 1].strip()
    raise AssertionError(f"{function.__name__} marks no line")


def chain(error: BaseException) -> Iterator[BaseException]:
    """What Python prints before an error: its causes, and what was being handled when it was raised."""
    found = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while found is not None:
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def assert_alone(error: BaseException) -> None:
    """Nothing is printed before an error."""
    before = [repr(e) for e in chain(error)]
    assert not before, f"{error!r} comes with {before}"
