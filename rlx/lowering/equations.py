"""Equations in order: each is lowered by its primitive, and its values are stored now or stay expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.lowering.lowered import LoweredValue
from rlx.lowering.nest_builder import NestBuilder
from rlx.lowering.nodes import expression_cost

__all__ = ["inline", "lower_equations", "value_of"]


def inline(builder: NestBuilder, program: Program, values: Sequence[LoweredValue]) -> tuple[LoweredValue, ...]:
    """The outputs of a nested program whose equations become part of this plan."""
    source = builder.source
    known = dict(zip(program.inputs, values, strict=True))
    lower_equations(program, builder, known, frozenset())
    builder.source = source
    return tuple(value_of(builder, known, atom) for atom in program.outputs)


def value_of(builder: NestBuilder, values: dict[Var, LoweredValue], atom: Atom) -> LoweredValue:
    """What an atom has been lowered to."""
    if isinstance(atom, Literal):
        return LoweredValue(atom.type, builder.literal(atom.value, atom.type.dtype))
    return values[atom]


def _use_counts(program: Program) -> dict[Var, int]:
    counts: dict[Var, int] = {}
    for equation in program.equations:
        for atom in equation.inputs:
            if isinstance(atom, Var):
                counts[atom] = counts.get(atom, 0) + 1
    for atom in program.outputs:
        if isinstance(atom, Var):
            counts[atom] = counts.get(atom, 0) + 1
    return counts


def lower_equations(
    program: Program, builder: NestBuilder, values: dict[Var, LoweredValue], wanted: frozenset[Var]
) -> None:
    """Lower equations in order; the values of `wanted` variables are stored row-major."""
    for variable, array in program.constants:
        known = array.numpy() if hasattr(array, "numpy") else array  # an rlx or a NumPy array
        values[variable] = builder.constant(known)
    uses = _use_counts(program)
    for equation in program.equations:
        builder.source = (equation,)
        operands = [value_of(builder, values, atom) for atom in equation.inputs]
        results = equation.primitive.lower(builder, *operands, **equation.params)
        for variable, value in zip(equation.outputs, _as_tuple(results), strict=True):
            _check(equation, variable, value)
            values[variable] = value
            _store_or_inline(builder, value, uses.get(variable, 0), variable in wanted)
    builder.source = ()


def _as_tuple(results: Any) -> Sequence[LoweredValue]:
    if isinstance(results, LoweredValue):
        return (results,)
    return tuple(results)


def _check(equation: Equation, variable: Var, value: LoweredValue) -> None:
    same = value.shape == variable.type.shape and value.dtype == variable.type.dtype
    if not same:
        raise TypeError(f"lowering {equation.primitive.name} gave {value.type!r} for {variable.type!r}")


def _store_or_inline(builder: NestBuilder, value: LoweredValue, uses: int, wanted: bool) -> None:
    """Decide whether a value is stored now or stays an expression of its users."""
    if value.type.size == 0:
        value.nodes = builder.literal(0, value.dtype)
        return
    if all(node.op in ("load", "constant", "affine") and not node.args for node in value.nodes):
        return
    if wanted:
        builder.materialise(value, range(len(value.shape)), "output")
        return
    options = builder.options
    if uses <= 1 and value.weight <= min(options.expression_operations, options.expression_buffers):
        return
    cost = expression_cost(value.nodes, value.shape)
    large = cost.operations > options.expression_operations
    large = large or cost.buffers > options.expression_buffers
    each = options.load_cost * (cost.full_buffers - 1)
    each += max(0, cost.arithmetic - options.free_cost)
    if large or (uses - 1) * each > options.recompute_cost:
        builder.realise(value)
