"""Constant folding: equations whose operands are all literals are evaluated at compile time."""

from __future__ import annotations

import numpy as np

from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.trace.builder import state

__all__ = ["fold_constants"]


def fold_constants(program: Program) -> Program:
    """f(2.0) -> its value, for scalar results of effect-free equations without regions."""
    replaced: dict[Var, Atom] = {}

    def read(a: Atom) -> Atom:
        return replaced.get(a, a) if isinstance(a, Var) else a

    equations = []
    for e in program.equations:
        inputs = tuple(map(read, e.inputs))
        p = e.primitive
        if (
            inputs
            and not p.region
            and not p.opaque
            and all(isinstance(a, Literal) for a in inputs)
            and all(v.type.shape == () for v in e.outputs)
            and not p.effect(**e.params)
        ):
            for v, value in zip(e.outputs, _evaluate(e, inputs), strict=True):
                replaced[v] = Literal(value, v.type)
            continue
        equations.append(Equation(p, inputs, e.params, e.outputs, e.origin))
    return program.replace(equations=equations, outputs=tuple(map(read, program.outputs)))


def _evaluate(equation: Equation, inputs: tuple[Atom, ...]) -> list[np.ndarray]:
    arrays = [a.value for a in inputs if isinstance(a, Literal)]
    builder, state.builder = state.builder, None
    try:
        with np.errstate(all="ignore"):
            out = equation.primitive.reference(*arrays, **equation.params)
    finally:
        state.builder = builder
    outs = out if equation.primitive.multiple else (out,)
    return [np.asarray(o, v.type.dtype) for o, v in zip(outs, equation.outputs, strict=True)]
