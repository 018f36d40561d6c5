"""Specialisation: known inputs become constants, and values that follow from constants are computed now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.errors import RlxError
from rlx.ir.program import Equation, Literal, Program, Var
from rlx.passes.rebuild import rebuilt
from rlx.trace.builder import state
from rlx.trace.flat import as_array

__all__ = ["fold_arrays", "specialize"]


def specialize(program: Program, values: Mapping[int, Any]) -> Program:
    """The program with the inputs at some positions replaced by arrays. Raises RlxError if one does not fit."""
    constants = list(program.constants)
    for position, value in values.items():
        variable = program.inputs[position]
        array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        if (array.shape, array.dtype) != (variable.type.shape, variable.type.dtype):
            raise RlxError(
                f"Input {position} of {program.name} is a {variable.type!r}; it cannot become a constant of"
                f" shape {array.shape} and dtype {array.dtype}."
            )
        constants.append((variable, as_array(array)))
    kept = [v for number, v in enumerate(program.inputs) if number not in values]
    return program.replace(inputs=kept, constants=constants)


def fold_arrays(program: Program, limit: int) -> Program:
    """The program with equations of known operands evaluated, as far as results have `limit` bytes at most.

    Equations with regions, effects, or no operands stay (an iota costs nothing in its uses).
    """
    known: dict[Var, np.ndarray] = {
        v: array.numpy() if hasattr(array, "numpy") else np.asarray(array) for v, array in program.constants
    }
    folded: dict[Equation, tuple[np.ndarray, ...]] = {}
    for equation in program.equations:
        results = _evaluated(equation, known, limit)
        if results is not None:
            folded[equation] = results
            known.update(zip(equation.outputs, results, strict=True))
    if not folded:
        return program

    def replace(equation: Equation, operands: Any) -> Any:
        return folded.get(equation)

    return _without_unused_constants(rebuilt(program, replace))


def _evaluated(
    equation: Equation, known: Mapping[Var, np.ndarray], limit: int
) -> tuple[np.ndarray, ...] | None:
    primitive, inputs = equation.primitive, equation.inputs
    if not inputs or primitive.region or primitive.opaque or not primitive.foldable:
        return None
    if primitive.effect(**equation.params):
        return None
    if sum(v.type.nbytes for v in equation.outputs) > limit:
        return None
    values = [a.value if isinstance(a, Literal) else known.get(a) for a in inputs]
    if any(value is None for value in values):
        return None
    builder, state.builder = state.builder, None
    try:
        with np.errstate(all="ignore"):
            out = primitive.reference(*values, **equation.params)
    finally:
        state.builder = builder
    return tuple(map(np.asarray, out if primitive.multiple else (out,)))


def _without_unused_constants(program: Program) -> Program:
    used = {a for e in program.equations for a in e.inputs} | set(program.outputs)
    return program.replace(constants=[(v, c) for v, c in program.constants if v in used])
