"""Constant folding: equations whose operands are all literals are evaluated at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Atom, Equation, Literal, Program, Var, encode_params
from rlx.ir.sized_scalars import SizedScalar, array_of
from rlx.trace.builder import state

__all__ = ["fold_constants", "folded"]


def fold_constants(program: Program) -> Program:
    """f(2.0) -> its value, for scalar results of effect-free equations without regions."""
    replaced: dict[Var, Atom] = {}

    def read(a: Atom) -> Atom:
        return replaced.get(a, a) if isinstance(a, Var) else a

    equations = []
    for e in program.equations:
        if replaced:
            e = Equation(e.primitive, tuple(map(read, e.inputs)), e.params, e.outputs, e.origin)
        values = folded(e)
        if values is None:
            equations.append(e)
        else:
            replaced.update(zip(e.outputs, values, strict=True))
    if not replaced:
        return program
    return program.replace(equations=equations, outputs=tuple(map(read, program.outputs)))


def _folded_sized(equation: Equation) -> Sequence[Literal] | None:
    """As `folded`, where some literals depend on symbolic sizes: the result is computed again for each call's."""
    p, params = equation.primitive, equation.params
    if p.multiple:
        return None
    (output,) = equation.outputs
    dtype = output.type.dtype

    def run(*values: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(p.reference(*values, **params), dtype)

    literals = [a for a in equation.inputs if isinstance(a, Literal)]
    values = [a.value if isinstance(a.value, SizedScalar) else np.asarray(a.value) for a in literals]
    names = [v if isinstance(v, SizedScalar) else (v.dtype, v.tobytes()) for v in values]
    key = ("primitive", p.name, encode_params(params), *names)
    value: Any = array_of(key, run, values, dtype)
    return [Literal(value, output.type)]


def folded(equation: Equation) -> Sequence[Literal] | None:
    """The results of an equation as literals, if it can be evaluated now."""
    p, inputs = equation.primitive, equation.inputs
    for a in inputs:
        if not isinstance(a, Literal):
            return None
    foldable = inputs and not p.region and p.foldable and not p.opaque and not p.effect(**equation.params)
    if not foldable or any(v.type.shape for v in equation.outputs):
        return None
    if any(isinstance(a.value, SizedScalar) for a in inputs if isinstance(a, Literal)):
        return _folded_sized(equation)
    builder, state.builder = state.builder, None
    try:
        with np.errstate(all="ignore"):
            out = p.reference(*[a.value for a in inputs if isinstance(a, Literal)], **equation.params)
    finally:
        state.builder = builder
    outs = out if p.multiple else (out,)
    return [Literal(np.asarray(o, v.type.dtype), v.type) for o, v in zip(outs, equation.outputs, strict=True)]
