"""A select between an array and its update becomes an update with selected values, so that the rest is not copied.

Loops over lanes that end at different times, and users' programs, often contain select(goes_on, x.at[i].set(v), x).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.program import Atom, Equation
from rlx.ir.rewrite import Match, Rule, RuleSet
from rlx.trace.tracing import close_over, trace_program

__all__ = ["chosen_write_rules"]


def _write_what_is_chosen(m: Match) -> Any:
    predicate, on_true, on_false = m.inputs
    for negated, new, old in ((False, on_true, on_false), (True, on_false, on_true)):
        base = _beyond_copies(m, old)
        writes = _writes_into(m, base, new)
        if not writes or base.type.shape != m.type.shape or 2 * _written(writes) > base.type.size:
            continue
        lanes = _lanes(m, predicate)
        if lanes is None:
            return None
        if negated:
            lanes = m.emit("bitwise_not", lanes)
        for e in writes:
            merged = _in_lanes(m, e, lanes, base)
            if merged is None:
                return None
            base = merged
        return base
    return None


def _beyond_copies(m: Match, atom: Atom) -> Atom:
    while (e := m.producer(atom, "copy")) is not None:
        (atom,) = e.inputs
    return atom


def _writes_into(m: Match, base: Atom, atom: Atom) -> list[Equation]:
    """The equations that write into `base`, one after the other, and produce `atom`; none if others do."""
    chain: list[Equation] = []
    while (atom := _beyond_copies(m, atom)) is not base:
        e = m.producer(atom)
        if e is None or not e.primitive.writes:
            return []
        chain.append(e)
        atom = e.inputs[0]
    return chain[::-1]


def _written(writes: Sequence[Equation]) -> int:
    """The number of written elements: the largest operand after the array, which holds the updates."""
    return sum(max(a.type.size for a in e.inputs[1:]) for e in writes)


def _lanes(m: Match, predicate: Atom) -> Atom | None:
    """The predicate as a bool, or as one for each element of axis 0; None if it differs along other axes."""
    e = m.producer(predicate, "broadcast_in_dim")
    if e is not None and (not e.inputs[0].type.shape or e.inputs[0].type.shape == m.type.shape[:1] != ()):
        if e.params["dims"] == tuple(range(e.inputs[0].type.ndim)) and predicate.type.ndim == m.type.ndim:
            return e.inputs[0]
    shape = predicate.type.shape
    if not shape:
        return predicate
    if shape != (*m.type.shape[:1], *(1 for _ in m.type.shape[1:])):
        return None
    return predicate if len(shape) == 1 else m.emit("reshape", predicate, shape=shape[:1])


def _in_lanes(m: Match, e: Equation, lanes: Atom, base: Atom) -> Atom | None:
    """The array with an equation's updates where `lanes` are true."""
    refused: list[bool] = []

    def write(lanes: Any, *operands: Any) -> list[Any]:
        written = e.primitive.write_in_lanes(lanes, *operands, **e.params)
        refused.append(written is None)
        return [operands[0] if written is None else written]

    operands = (lanes, base, *e.inputs[1:])
    program = close_over(*trace_program(write, [a.type for a in operands]))
    return None if refused[0] else m.inline(program, operands)[0]


chosen_write_rules = RuleSet((
    Rule("select -> an update with selected values", _write_what_is_chosen),
))  # fmt: skip
