"""Library routines that a device does not claim become other primitives: loops and products, which it has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlx.backends.claims import Claims
from rlx.ir.program import Equation, Program
from rlx.passes.rebuild import rebuilt
from rlx.trace.primitive import registry, type_of

__all__ = ["decompose_routines"]


def decompose_routines(program: Program, claims: Claims) -> Program:
    """The program with decompositions in place of routines; itself if there is nothing to decompose.

    Regions are not included. Routines in a decomposition are also decomposed.
    """
    while any(map(claims.decomposes, program.equations)):
        program = rebuilt(program, partial(_decomposed, claims))
    return program


def _decomposed(claims: Claims, equation: Equation, operands: Sequence[Any]) -> Sequence[Any] | None:
    """The results of an equation by other primitives; None to keep it."""
    if not claims.decomposes(equation):
        return None
    results = equation.primitive.decomposition(*operands, **equation.params)
    results = results if equation.primitive.multiple else (results,)
    return [_strong(x, v.type.weak) for x, v in zip(results, equation.outputs, strict=True)]


def _strong(x: Any, weak: bool) -> Any:
    """A result as the equation's type has it: weak operands make weak values, routines strong ones."""
    t = type_of(x)
    return x if t.weak == weak else registry["convert"](x, dtype=t.dtype, weak=weak)
