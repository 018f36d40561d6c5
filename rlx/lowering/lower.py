"""Lowering: from a MIR program to loop nests and other kernels, in order."""

from __future__ import annotations

from rlx.ir.kernels import Buffer
from rlx.ir.options import LoweringOptions
from rlx.ir.program import Program, Var
from rlx.ir.rename import renamed
from rlx.lowering.builder import KernelBuilder, PlanRegion
from rlx.lowering.equations import lower_equations, value_of
from rlx.lowering.lowered import BufferView, LoweredValue, dense_strides, is_dense, view_of
from rlx.lowering.nest import Nest, Nests, Step, renamed_nest
from rlx.lowering.nodes import NodeTable

__all__ = ["lower_to_nests"]


def lower_to_nests(program: Program, options: LoweringOptions, plan_region: PlanRegion) -> Nests:
    """Lower the equations of a closed MIR program, one after the other."""
    builder = KernelBuilder(options, plan_region)
    builder.equations = program.equations
    inputs = []
    values: dict[Var, LoweredValue] = {}
    for variable in program.inputs:
        buffer = builder.allocate(variable.type.dtype, variable.type.size, "input")
        inputs.append(buffer)
        values[variable] = builder.from_buffer(buffer, variable.type)
    wanted = frozenset(atom for atom in program.outputs if isinstance(atom, Var))
    lower_equations(program, builder, values, wanted)
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
        unplaced=builder.unplaced,
        equations=program.equations,
    )


def _over_outputs(table: NodeTable, step: Step, renames: dict[Buffer, Buffer]) -> Step:
    """A step over the outputs that temporaries have become."""
    if not renames or (isinstance(step, Nest) and renames.keys().isdisjoint(step.reads | step.writes)):
        return step
    return renamed_nest(table, step, renames) if isinstance(step, Nest) else renamed(step, renames)


def _write_outputs(
    program: Program, builder: KernelBuilder, values: dict[Var, LoweredValue]
) -> tuple[tuple[Buffer, ...], dict[Buffer, Buffer]]:
    """A separate buffer for every output: the buffer that its value was computed into, if possible.

    Also returns which temporaries become outputs.
    """
    outputs: list[Buffer] = []
    handed_over: dict[Buffer, Buffer] = {}
    for atom in program.outputs:
        value = value_of(builder, values, atom)
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


def _own_buffer(value: LoweredValue) -> Buffer | None:
    """The buffer with exactly a value, row-major, if there is one."""
    view = view_of(value)
    if view is None or view.buffer.size != value.type.size or view.offset:
        return None
    return view.buffer if is_dense(value.shape, view.strides) else None
