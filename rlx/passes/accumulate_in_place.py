"""Sums whose terms are mostly zeros: adjacent parts become concatenations (see pads), and a scatter
into zeros becomes an update of the other operand. Derivatives of slices and indexing produce such sums.
A selection between an array and its update becomes an update of selected elements (see chosen_writes).
"""

from __future__ import annotations

from typing import Any

from rlx.ir.program import Atom, Equation, Literal, Program
from rlx.ir.rewrite import Match, Rule, RuleSet, rewrite
from rlx.passes.chosen_writes import chosen_write_rules
from rlx.passes.pads import pad_rules
from rlx.passes.prune import prune
from rlx.trace.primitive import registry

__all__ = ["accumulate_in_place"]

_SPARSE = frozenset(("pad", "scatter", "scatter_add", "dynamic_update_slice"))


def accumulate_in_place(program: Program) -> Program:
    """The program without the zeros that sums add."""
    if not any(e.primitive.name in _SPARSE for e in program.equations):
        return program
    return prune(rewrite(program, _rules, registry))


def _into_zeros(m: Match, atom: Atom) -> Equation | None:
    """The equation that writes few values into zeros, if it made `atom`."""
    equation = m.producer(atom)
    if equation is None or equation.primitive.name not in ("scatter_add", "dynamic_update_slice"):
        return None
    values = equation.inputs[2 if equation.primitive.name == "scatter_add" else 1]
    target = m.producer(equation.inputs[0], "broadcast_in_dim")
    if target is None or atom.type.shape != m.type.shape or 2 * values.type.size > atom.type.size:
        return None
    (fill,) = target.inputs
    zero = isinstance(fill, Literal) and not fill.value.any() and fill.type.dtype.kind != "b"
    return equation if zero else None


def _add_in_place(m: Match) -> Any:
    for side in (1, 0):
        written, other = _into_zeros(m, m.inputs[side]), m.inputs[1 - side]
        if written is None or other.type.shape != m.type.shape:
            continue
        if written.primitive.name == "scatter_add":
            return m.emit("scatter_add", other, *written.inputs[1:], **written.params)
        update, starts = written.inputs[1], written.inputs[2:]
        before = m.emit("dynamic_slice", other, *starts, sizes=update.type.shape)
        return m.emit("dynamic_update_slice", other, m.emit("add", before, update), *starts)
    return None


_rules = pad_rules + chosen_write_rules + RuleSet((
    Rule("add -> an update of one operand by the values that the other wrote into zeros", _add_in_place),
))  # fmt: skip
