"""Directions of a colour, and linear programs applied to them.

A direction is one where an element has the colour, and zero elsewhere. Moved, it is the direction of the moved colours:
operations that only move elements are applied to the colours, once and not for each colour, when the program is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.program import Atom, Equation, Literal, Program
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import convert
from rlx.ops.comparison import equal
from rlx.ops.shape import Movement
from rlx.trace.flat import as_array
from rlx.trace.interpret import Environment, origins_of

__all__ = ["Seed", "pushed_seeds"]


class Seed(NamedTuple):
    """The directions of an array of this type whose elements have these colours; -1 is zero for every colour."""

    colors: Any
    type: TensorType

    def value(self, number: Any) -> Any:
        """The direction of one colour."""
        return convert(equal(as_array(self.colors), number), dtype=self.type.dtype, weak=False)


def pushed_seeds(linear: Program, residuals: Sequence[Any], seeds: Sequence[Seed], number: Any) -> list[Any]:
    """The results of a linear program (residuals, tangents) -> tangents for the directions of one colour."""
    env = Environment(linear, [*residuals, *seeds])
    values: dict[Atom, Any] = {}  # of seeds, each once

    def of(atom: Atom) -> Any:
        found = env.read(atom)
        if not isinstance(found, Seed):
            return found
        if atom not in values:
            values[atom] = found.value(number)
        return values[atom]

    with origins_of() as inherit:
        for e in linear.equations:
            inherit(e)
            moved = _moved(e, [_as_seed(a, env.read(a)) for a in e.inputs])
            out = e.primitive.bind(*map(of, e.inputs), **e.params) if moved is None else moved
            env.update(zip(e.outputs, out if e.primitive.multiple else (out,), strict=True))
    return list(map(of, linear.outputs))


def _as_seed(atom: Atom, value: Any) -> Any:
    """A seed, also for a zero; other values unchanged."""
    if isinstance(atom, Literal) and not atom.value.any():
        return Seed(np.full((), -1, np.int32), atom.type)
    return value


def _moved(e: Equation, operands: Sequence[Any]) -> Seed | None:
    """The seed that an operation moves, if it only moves elements with a known colour to known places."""
    if not isinstance(e.primitive, Movement) or not e.primitive.moves_only:
        return None
    count = len(operands) if e.primitive.all_linear else 1
    known = [x.colors if isinstance(x, Seed) else None for x in operands[:count]]
    if len(operands) > count or not all(isinstance(x, np.ndarray) for x in known):
        return None
    return Seed(np.asarray(e.primitive.reference(*known, **e.params), order="C"), e.outputs[0].type)
