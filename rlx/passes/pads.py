"""Sums of arrays padded with zeros, as concatenations. Derivatives of slices produce such sums.

A part that leaves a gap stays padded. The value is the same except for the sign of a zero:
-0. + 0. is 0., and the part itself is -0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from rlx.ir.program import Atom, Literal
from rlx.ir.rewrite import Match, Rule, RuleSet

__all__ = ["pad_rules"]

_MOST_TERMS = 64


class _PaddedTerm(NamedTuple):
    """The operand of a pad (term `number` of a sum), which begins at `start` along `axis`."""

    number: int
    axis: int
    start: int
    length: int
    value: Atom


def _side_by_side(m: Match) -> Any:
    terms = _terms(m)
    parts = [part for part in map(_part_of(m), terms) if part is not None]
    result: list[Atom] = []
    taken: set[int] = set()
    for axis in dict.fromkeys(part.axis for part in parts):
        rest = [part for part in parts if part.axis == axis]
        while row := _row(rest, m.type.shape[axis]):
            rest = [part for part in rest if part not in row]
            taken.update(part.number for part in row)
            result.append(m.emit("concatenate", *_pieces(m, row, axis), axis=axis))
    if not result:
        return None
    result += [atom for number, atom in enumerate(terms) if number not in taken]
    total = result[0]
    for atom in result[1:]:
        total = m.emit("add", total, atom)
    return total


def _row(parts: list[_PaddedTerm], size: int) -> list[_PaddedTerm]:
    """Adjacent parts that cover the whole axis, if there are any."""
    found: list[_PaddedTerm] = []
    stop = 0
    while stop < size:
        following = [p for p in parts if p.start == stop and p.length and stop + p.length <= size]
        if not following:
            return []
        found.append(min(following, key=lambda part: part.length))
        stop += found[-1].length
    return found if len(found) > 1 else []


def _pieces(m: Match, parts: list[_PaddedTerm], axis: int) -> Iterator[Atom]:
    """The parts, those that are concatenations themselves in their pieces."""
    for part in parts:
        producer = m.producer(part.value, "concatenate")
        if producer is not None and producer.params["axis"] == axis:
            yield from producer.inputs
        else:
            yield part.value


def _terms(m: Match) -> list[Atom]:
    """The terms of the sum; those that are not of its shape are repeated."""
    pending = list(reversed(m.inputs))
    terms: list[Atom] = []
    while pending:
        atom = pending.pop()
        producer = m.producer(atom, "add")
        whole = atom.type.shape == m.type.shape
        if producer is not None and whole and len(terms) + len(pending) < _MOST_TERMS:
            pending.extend(reversed(producer.inputs))
        else:
            terms.append(atom)
    return terms


def _part_of(m: Match) -> Callable[[Atom], _PaddedTerm | None]:
    """A function from terms, in their order, to the parts that they pad with zeros along one axis."""
    numbers = count()

    def part(atom: Atom) -> _PaddedTerm | None:
        number = next(numbers)
        equation = m.producer(atom, "pad")
        if equation is None or atom.type.shape != m.type.shape:
            return None
        value, fill = equation.inputs
        config = equation.params["config"]
        padded = [axis for axis, amounts in enumerate(config) if any(amounts)]
        if not isinstance(fill, Literal) or fill.value.any() or len(padded) != 1:
            return None
        (axis,) = padded
        low, high, interior = config[axis]
        if low < 0 or high < 0 or interior:
            return None
        return _PaddedTerm(number, axis, low, value.type.shape[axis], value)

    return part


pad_rules = RuleSet((Rule("add -> a concatenation of the parts that its operands pad", _side_by_side),))
