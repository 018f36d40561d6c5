"""Lowering: from a MIR program to a LIR plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.kernels import Buffer, Plan
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.lowering.builder_core import is_dense
from rlx.lowering.lowered import BufferView, Lowered, dense_strides, view_of
from rlx.lowering.nest import Nest
from rlx.lowering.nodes import expression_cost, leaves
from rlx.lowering.options import FusionLimits, LoweringOptions
from rlx.lowering.regions import RegionLowering
from rlx.planning.choose_product_layouts import choose_product_layouts
from rlx.planning.fuse import fuse
from rlx.planning.memory import plan_memory
from rlx.planning.schedule import schedule, split_chunks
from rlx.planning.short_rows import unroll_short_rows
from rlx.planning.stack_products import stack_products

__all__ = ["FusionLimits", "KernelBuilder", "LoweringOptions", "lower_program"]


class KernelBuilder(RegionLowering):
    """What a primitive's `lower` may call; the families of methods are in lower_*.py."""

    def lower_region(self, program: Program) -> Plan:
        """The plan of a nested program."""
        return lower_program(program, self.options)

    def inline(self, program: Program, values: Sequence[Lowered]) -> tuple[Lowered, ...]:
        """The outputs of a nested program whose equations become part of this plan."""
        source = self.source
        known = dict(zip(program.inputs, values, strict=True))
        _lower_equations(program, self, known, frozenset())
        self.source = source
        return tuple(_read(self, known, atom) for atom in program.outputs)


def lower_program(program: Program, options: LoweringOptions | None = None) -> Plan:
    """Lower, fuse, schedule and place a closed MIR program."""
    return _lower(program, options)[0]


def lower_with_holdings(
    program: Program, options: LoweringOptions | None = None
) -> tuple[Plan, dict[Var, set[Buffer]]]:
    """The plan, and the buffers that each variable is read from."""
    plan, values = _lower(program, options)
    return plan, {v: {n.attribute.buffer for n in leaves(value.nodes)} for v, value in values.items()}


def _lower(program: Program, options: LoweringOptions | None) -> tuple[Plan, dict[Var, Lowered]]:
    builder = KernelBuilder(options or LoweringOptions())
    inputs = []
    values: dict[Var, Lowered] = {}
    for variable in program.inputs:
        buffer = builder.allocate(variable.type.dtype, variable.type.size, "input")
        inputs.append(buffer)
        values[variable] = builder.from_buffer(buffer, variable.type)
    wanted = frozenset(atom for atom in program.outputs if isinstance(atom, Var))
    _lower_equations(program, builder, values, wanted)
    outputs = _write_outputs(program, builder, values)
    chosen = choose_product_layouts(builder.table, builder.steps)
    steps, report = fuse(builder, stack_products(chosen), outputs)
    steps = [unroll_short_rows(builder.table, s) if isinstance(s, Nest) else s for s in steps]
    chunked = split_chunks(builder, steps)
    if len(chunked) > len(steps):
        steps, more = fuse(builder, chunked, outputs)
        report.extend(more)
    kernels = schedule(builder.table, steps)
    plan = Plan(tuple(inputs), outputs, tuple(builder.buffers), kernels, name=program.name, report=report)
    return _with_least_memory(plan, builder), values


def _with_least_memory(plan: Plan, builder: KernelBuilder) -> Plan:
    """The plan with places in memory; bands may move work that a barrier holds back, and take more then."""
    least = builder.options.least_bands
    apart = plan_memory(plan).arena if builder.epoch and least else None
    in_bands = plan_memory(plan, least)
    # planning gives buffers their places, so that the plan that is kept is made last
    return plan_memory(plan) if apart is not None and apart < in_bands.arena else in_bands


def _read(builder: KernelBuilder, values: dict[Var, Lowered], atom: Atom) -> Lowered:
    if isinstance(atom, Literal):
        return Lowered(atom.type, builder.literal(atom.value, atom.type.dtype))
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


def _lower_equations(
    program: Program, builder: KernelBuilder, values: dict[Var, Lowered], wanted: frozenset[Var]
) -> None:
    """Lower equations in order; the values of `wanted` variables are stored row-major."""
    for variable, array in program.constants:
        known = array.numpy() if hasattr(array, "numpy") else array  # an rlx or a NumPy array
        values[variable] = builder.constant(known)
    uses = _use_counts(program)
    for equation in program.equations:
        builder.source = (equation,)
        operands = [_read(builder, values, atom) for atom in equation.inputs]
        results = equation.primitive.lower(builder, *operands, **equation.params)
        for variable, value in zip(equation.outputs, _as_tuple(equation, results), strict=True):
            _check(equation, variable, value)
            values[variable] = value
            _settle(builder, value, uses.get(variable, 0), variable in wanted)
    builder.source = ()


def _as_tuple(equation: Equation, results: Any) -> Sequence[Lowered]:
    if isinstance(results, Lowered):
        return (results,)
    return tuple(results)


def _check(equation: Equation, variable: Var, value: Lowered) -> None:
    same = value.shape == variable.type.shape and value.dtype == variable.type.dtype
    if not same:
        raise TypeError(f"lowering {equation.primitive.name} gave {value.type!r} for {variable.type!r}")


def _settle(builder: KernelBuilder, value: Lowered, uses: int, wanted: bool) -> None:
    """Decide whether a value is stored now or stays an expression of its users."""
    if value.type.size == 0:
        value.nodes = builder.literal(0, value.dtype)
        return
    if all(node.op in ("load", "constant", "affine") and not node.args for node in value.nodes):
        return
    if wanted:
        builder.materialise(value, range(len(value.shape)))
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


def _write_outputs(program: Program, builder: KernelBuilder, values: dict[Var, Lowered]) -> tuple[Any, ...]:
    """Give every output a buffer of its own, the one its value was computed into if possible."""
    outputs = []
    for atom in program.outputs:
        value = _read(builder, values, atom)
        if isinstance(atom, Var) and value.sources:
            builder.source = value.sources
        view = view_of(value)
        owned = (
            view is not None
            and view.buffer.role == "temporary"
            and view.buffer.size == value.type.size
            and view.offset == 0
            and is_dense(value.shape, view.strides)
        )
        if view is not None and owned:
            buffer = view.buffer
            buffer.role = "output"
        else:
            buffer = builder.allocate(value.dtype, value.type.size, "output")
            builder.write(value, BufferView(buffer, dense_strides(value.shape), 0))
        outputs.append(buffer)
    builder.source = ()
    return tuple(outputs)
