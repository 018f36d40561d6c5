"""Equations in order: each is lowered by its primitive, and its values are stored now or stay expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.lowering.lowered import LoweredValue
from rlx.lowering.nest_builder import NestBuilder
from rlx.lowering.nodes import computes, expression_cost

__all__ = ["inline", "lower_equations", "value_of"]


def inline(builder: NestBuilder, program: Program, values: Sequence[LoweredValue]) -> tuple[LoweredValue, ...]:
    """The outputs of a nested program whose equations become part of this plan."""
    source, number = builder.source, builder.number
    known = dict(zip(program.inputs, values, strict=True))
    lower_equations(program, builder, known, frozenset(), number)
    builder.source, builder.number = source, number
    return tuple(value_of(builder, known, atom) for atom in program.outputs)


def value_of(builder: NestBuilder, values: dict[Var, LoweredValue], atom: Atom) -> LoweredValue:
    """The lowered value of an atom."""
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
    program: Program,
    builder: NestBuilder,
    values: dict[Var, LoweredValue],
    wanted: frozenset[Var],
    inside: int | None = None,
) -> None:
    """Lower equations in order; the values of `wanted` variables are stored row-major.

    inside: the number of the equation whose program this is.
    """
    for variable, array in program.constants:
        known = array.numpy() if hasattr(array, "numpy") else array  # an rlx or a NumPy array
        values[variable] = builder.constant(known)
    uses = _use_counts(program)
    for number, equation in enumerate(program.equations):
        builder.begin(equation, number if inside is None else inside)
        operands = [value_of(builder, values, atom) for atom in equation.inputs]
        results = equation.primitive.lower(builder, *operands, **equation.params)
        if inside is None and (reason := _without_kernel(builder, operands, _as_tuple(results))):
            builder.unplaced[number] = reason
        for variable, value in zip(equation.outputs, _as_tuple(results), strict=True):
            _check(equation, variable, value)
            values[variable] = value
            _store_or_inline(builder, value, uses.get(variable, 0), variable in wanted)
    builder.source, builder.number = (), None


def _without_kernel(
    builder: NestBuilder, operands: Sequence[LoweredValue], results: Sequence[LoweredValue]
) -> str:
    """Why the results of the equation being lowered need no kernel; "" if they may need one."""
    marks = builder.table.marks
    if results and builder.number in marks.get(results[0].nodes[0], ()):  # most equations
        return ""
    nodes = [node for value in results for node in value.nodes if value.type.size]
    if any(builder.number in marks.get(node, ()) for node in nodes):
        return ""
    if not any(node.op == "load" or computes(node) for node in nodes):
        return "constant"
    known = {operand.nodes for operand in operands}
    return "alias" if all(value.nodes in known for value in results) else "view"


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
