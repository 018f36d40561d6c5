"""Equations that a backend has a kernel for become blocks of that one equation."""

from __future__ import annotations

from rlx.backends.claims import Claims
from rlx.ir.program import Equation, Program
from rlx.trace.places import program_of
from rlx.trace.primitive import registry

__all__ = ["claim_primitives"]


def claim_primitives(program: Program, claims: Claims) -> Program:
    """The program with blocks in place of equations that the backend claims; itself if there are none."""
    equations = [_claimed(equation, claims) for equation in program.equations]
    changed = any(a is not b for a, b in zip(equations, program.equations, strict=True))
    return program.replace(equations=equations) if changed else program


def _claimed(equation: Equation, claims: Claims) -> Equation:
    primitive = equation.primitive
    if primitive.claimed_as not in claims.blocks:
        return equation
    types = [a.type for a in equation.inputs]
    params = {
        "program": program_of(primitive, types, dict(equation.params)),
        "name": primitive.claimed_as,
        "attributes": primitive.claim(**equation.params),
    }
    made = Equation(registry["block"], equation.inputs, params, equation.outputs, equation.origin)
    return made if claims.takes(made) else equation
