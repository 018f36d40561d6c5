"""Sums of arrays padded with zeros, as one concatenation: what derivatives of slices make.

The value is the same but for the sign of a zero: -0. + 0. is 0., and the part itself is -0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rlx.ir.program import Atom, Equation, Literal, Program
from rlx.ir.rewrite import Match, Rule, RuleSet, rewrite
from rlx.passes.prune import prune
from rlx.trace.primitive import registry

__all__ = ["join_pads"]

_MOST_TERMS = 64


def join_pads(program: Program) -> Program:
    """The program with sums of padded parts, side by side, as concatenations."""
    pads = sum(e.primitive.name == "pad" for e in program.equations)
    return prune(rewrite(program, _rules, registry)) if pads > 1 else program


class _Part(NamedTuple):
    """What a pad puts at `start` along `axis`."""

    start: int
    axis: int
    value: Atom


def _side_by_side(m: Match) -> Any:
    terms = list(_terms(m, m.equation))
    parts = [part for part in map(_part, terms) if part is not None]
    if len(parts) < max(2, len(terms)) or len({part.axis for part in parts}) > 1:
        return None
    axis = parts[0].axis
    parts.sort(key=lambda part: part.start)
    stop = parts[0].start
    for part in parts:
        if part.start != stop:
            return None
        stop += part.value.type.shape[axis]
    joined = m.emit("concatenate", *_pieces(m, parts, axis), axis=axis)
    before, after = parts[0].start, m.type.shape[axis] - stop
    if not before and not after:
        return joined
    config = [(0, 0, 0)] * m.type.ndim
    config[axis] = (before, after, 0)
    zero = terms[0].inputs[1]
    return m.emit("pad", joined, zero, config=tuple(config))


def _pieces(m: Match, parts: list[_Part], axis: int) -> Iterator[Atom]:
    """The parts, those that are concatenations themselves in their pieces."""
    for part in parts:
        producer = m.producer(part.value, "concatenate")
        if producer is not None and producer.params["axis"] == axis:
            yield from producer.inputs
        else:
            yield part.value


def _terms(m: Match, equation: Equation) -> Iterator[Equation]:
    """The terms of a sum, up to one that is no pad."""
    pending, found = list(equation.inputs), 0
    while pending and found <= _MOST_TERMS:
        producer = m.producer(pending.pop())
        if producer is not None and producer.primitive.name == "add":
            pending.extend(producer.inputs)
            found += 1
            continue
        if producer is None or producer.primitive.name != "pad":
            yield equation
            return
        found += 1
        yield producer


def _part(equation: Equation) -> _Part | None:
    """The part that a pad with zeros along one axis is."""
    if equation.primitive.name != "pad":
        return None
    value, fill = equation.inputs
    config = equation.params["config"]
    if not isinstance(fill, Literal) or fill.value.item() != 0 or value.type.dtype.kind == "b":
        return None
    padded = [axis for axis, amounts in enumerate(config) if any(amounts)]
    if len(padded) != 1:
        return None
    low, high, interior = config[padded[0]]
    if low < 0 or high < 0 or interior:
        return None
    return _Part(low, padded[0], value)


_rules = RuleSet((Rule("add -> a concatenation of the parts that its operands pad", _side_by_side),))
