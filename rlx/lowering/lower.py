"""Lowering: from a MIR program to loop nests and other kernels, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.kernels import Buffer, Plan
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.ir.rename import renamed
from rlx.lowering.builder_core import is_dense
from rlx.lowering.lowered import BufferView, Lowered, dense_strides, view_of
from rlx.lowering.nest import Nest, Nests, Step, renamed_nest
from rlx.lowering.nodes import NodeTable, expression_cost
from rlx.lowering.options import LoweringOptions
from rlx.lowering.regions import RegionLowering

__all__ = ["KernelBuilder", "lower_to_nests"]

# the plan of a nested program; of a loop's body with the numbers of its constants and carries
PlanRegion = Callable[[Program, tuple[int, int] | None], Plan]


class KernelBuilder(RegionLowering):
    """What a primitive's `lower` may call; the families of methods are in the modules beside this one."""

    def __init__(self, options: LoweringOptions, plan_region: PlanRegion) -> None:
        super().__init__(options)
        self.plan_region = plan_region

    def lower_region(self, program: Program, loop: tuple[int, int] | None = None) -> Plan:
        """The plan of a nested program."""
        return self.plan_region(program, loop)

    def scratch(self) -> KernelBuilder:
        """A builder for an attempt, of which nothing is kept."""
        return KernelBuilder(self.options, self.plan_region)

    def inline(self, program: Program, values: Sequence[Lowered]) -> tuple[Lowered, ...]:
        """The outputs of a nested program whose equations become part of this plan."""
        source = self.source
        known = dict(zip(program.inputs, values, strict=True))
        _lower_equations(program, self, known, frozenset())
        self.source = source
        return tuple(_read(self, known, atom) for atom in program.outputs)


def lower_to_nests(program: Program, options: LoweringOptions, plan_region: PlanRegion) -> Nests:
    """Lower the equations of a closed MIR program, one after the other."""
    builder = KernelBuilder(options, plan_region)
    inputs = []
    values: dict[Var, Lowered] = {}
    for variable in program.inputs:
        buffer = builder.allocate(variable.type.dtype, variable.type.size, "input")
        inputs.append(buffer)
        values[variable] = builder.from_buffer(buffer, variable.type)
    wanted = frozenset(atom for atom in program.outputs if isinstance(atom, Var))
    _lower_equations(program, builder, values, wanted)
    outputs, handed_over = _write_outputs(program, builder, values)
    steps = [_over_outputs(builder.table, step, handed_over) for step in builder.steps]
    buffers = [handed_over.get(buffer, buffer) for buffer in builder.buffers]
    return Nests(
        program.name,
        builder.table,
        tuple(inputs),
        outputs,
        tuple(buffers),
        tuple(steps),
        barriers=builder.epoch > 0,
        values=values,
    )


def _over_outputs(table: NodeTable, step: Step, renames: dict[Buffer, Buffer]) -> Step:
    """A step over the outputs that temporaries have become."""
    if not renames:
        return step
    return renamed_nest(table, step, renames) if isinstance(step, Nest) else renamed(step, renames)


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
            _store_or_inline(builder, value, uses.get(variable, 0), variable in wanted)
    builder.source = ()


def _as_tuple(equation: Equation, results: Any) -> Sequence[Lowered]:
    if isinstance(results, Lowered):
        return (results,)
    return tuple(results)


def _check(equation: Equation, variable: Var, value: Lowered) -> None:
    same = value.shape == variable.type.shape and value.dtype == variable.type.dtype
    if not same:
        raise TypeError(f"lowering {equation.primitive.name} gave {value.type!r} for {variable.type!r}")


def _store_or_inline(builder: KernelBuilder, value: Lowered, uses: int, wanted: bool) -> None:
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


def _write_outputs(
    program: Program, builder: KernelBuilder, values: dict[Var, Lowered]
) -> tuple[tuple[Buffer, ...], dict[Buffer, Buffer]]:
    """A buffer of its own for every output: the one its value was computed into, if possible.

    Also returns which temporaries become outputs.
    """
    outputs: list[Buffer] = []
    handed_over: dict[Buffer, Buffer] = {}
    for atom in program.outputs:
        value = _read(builder, values, atom)
        if isinstance(atom, Var) and value.sources:
            builder.source = value.sources
        buffer = _own_buffer(value)
        if buffer is not None and buffer.role == "output" and buffer not in outputs:
            outputs.append(buffer)
        elif buffer is not None and buffer.role == "temporary" and buffer not in handed_over:
            outputs.append(Buffer(buffer.dtype, buffer.size, "output"))
            handed_over[buffer] = outputs[-1]
        else:
            outputs.append(builder.allocate(value.dtype, value.type.size, "output"))
            builder.write(value, BufferView(outputs[-1], dense_strides(value.shape), 0))
    builder.source = ()
    return tuple(outputs), handed_over


def _own_buffer(value: Lowered) -> Buffer | None:
    """The buffer that holds nothing but a value, row-major, if there is one."""
    view = view_of(value)
    if view is None or view.buffer.size != value.type.size or view.offset:
        return None
    return view.buffer if is_dense(value.shape, view.strides) else None
