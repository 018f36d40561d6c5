"""Control flow and host calls: programs inside kernels are lowered to separate plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.collectives import Exchange
from rlx.ir.kernels import Branch, Buffer, Callback, Collective, Library, Operand, Scan, Sort, While
from rlx.ir.program import Equation, Program, Var
from rlx.ir.types import TensorType
from rlx.lowering import reduction, views
from rlx.lowering.lowered import LoweredValue, dense_strides
from rlx.lowering.nest_builder import NestBuilder

__all__ = ["branch", "callback", "exchange", "in_blocks", "inline_program", "library", "scan", "sort", "sum_of_blocks"]
__all__ += ["while_loop"]


class _Inline:
    """A primitive made on the spot, for a region that lowering itself writes."""

    def __init__(self, name: str, lower: Callable[..., Any]) -> None:
        self.name = name
        self.lower = lower

    def effect(self) -> bool:
        """Never: regions that lowering writes only compute."""
        return False


def inline_program(name: str, lower: Callable[..., Any], inputs: Sequence[TensorType], output: TensorType) -> Program:
    """A program of one equation with the given lowering."""
    variables = tuple(Var(type) for type in inputs)
    result = Var(output)
    equation = Equation(_Inline(name, lower), variables, {}, (result,))
    return Program(variables, (equation,), (result,), (), name)


def _fresh(kernels: NestBuilder, types: Sequence[TensorType]) -> list[Buffer]:
    return [kernels.allocate(type.dtype, type.size) for type in types]


def _held(kernels: NestBuilder, buffers: Sequence[Buffer], types: Sequence[TensorType]) -> tuple[LoweredValue, ...]:
    return tuple(kernels.from_buffer(b, t) for b, t in zip(buffers, types, strict=True))


def scan(
    kernels: NestBuilder,
    body: Program,
    constants: Sequence[LoweredValue],
    initial: Sequence[LoweredValue],
    xs: Sequence[LoweredValue],
    length: int,
    reverse: bool = False,
) -> tuple[tuple[LoweredValue, ...], tuple[LoweredValue, ...]]:
    """Run `body(*constants, *carries, *slices)` `length` times; -> (last carries, ys)."""
    carries = len(initial)
    final_types = [v.type for v in initial]
    ys_types = [t.update(shape=(length, *t.shape)) for t in body.output_types[carries:]]
    final, ys = _fresh(kernels, final_types), _fresh(kernels, ys_types)
    plan = kernels.lower_region(body, (len(constants), carries))
    kernel = Scan(
        length,
        reverse,
        plan,
        tuple(kernels.whole(v) for v in constants),
        tuple(kernels.whole(v) for v in initial),
        tuple(kernels.whole(v) for v in xs),
        tuple(final),
        tuple(ys),
    )
    kernels.emit_kernel(kernel)
    return _held(kernels, final, final_types), _held(kernels, ys, ys_types)


def in_blocks(
    kernels: NestBuilder,
    function: Callable[..., LoweredValue],
    constants: Sequence[LoweredValue],
    values: Sequence[LoweredValue],
    count: int,
) -> LoweredValue:
    """`function(k, *constants, *values)` on `count` blocks of the values' leading axis, one
    after the other; its results joined along their leading axis."""
    ys = _blocks(kernels, function, constants, values, count)
    return views.reshape(kernels, ys, (ys.shape[0] * ys.shape[1], *ys.shape[2:]))


def sum_of_blocks(
    kernels: NestBuilder, function: Callable[..., LoweredValue], values: Sequence[LoweredValue], count: int
) -> LoweredValue:
    """`function(k, *values)` on `count` blocks of the values' leading axis, its results added."""
    return reduction.reduce(kernels, "add", _blocks(kernels, function, (), values, count), (0,))


def _blocks(
    kernels: NestBuilder,
    function: Callable[..., LoweredValue],
    constants: Sequence[LoweredValue],
    values: Sequence[LoweredValue],
    count: int,
) -> LoweredValue:
    blocks = [views.reshape(kernels, v, (count, v.shape[0] // count, *v.shape[1:])) for v in values]
    types = [v.type for v in constants]
    types += [v.type.update(shape=v.shape[1:]) for v in blocks]
    name = kernels.source[0].primitive.name if kernels.source else "blocks"
    body = inline_program(name, function, types, _result_type(kernels, function, types))
    _, (ys,) = scan(kernels, body, constants, (), blocks, count)
    return ys


def _result_type(
    kernels: NestBuilder, function: Callable[..., LoweredValue], types: Sequence[TensorType]
) -> TensorType:
    """The result type of a function of lowered values."""
    scratch = kernels.scratch()
    values = [scratch.from_buffer(scratch.allocate(t.dtype, t.size, "input"), t) for t in types]
    return function(scratch, *values).type


def while_loop(
    kernels: NestBuilder,
    condition: Program,
    body: Program,
    condition_constants: Sequence[LoweredValue],
    body_constants: Sequence[LoweredValue],
    initial: Sequence[LoweredValue],
) -> tuple[LoweredValue, ...]:
    """Run `body(*body_constants, *carries)` while `condition(*its constants, *carries)`."""
    types = [v.type for v in initial]
    final = _fresh(kernels, types)
    plan = kernels.lower_region(body, (len(body_constants), len(initial)))
    kernel = While(
        kernels.lower_region(condition),
        plan,
        tuple(kernels.whole(v) for v in condition_constants),
        tuple(kernels.whole(v) for v in body_constants),
        tuple(kernels.whole(v) for v in initial),
        tuple(final),
    )
    kernels.emit_kernel(kernel)
    return _held(kernels, final, types)


def branch(
    kernels: NestBuilder, index: LoweredValue, branches: Sequence[Program], operands: Sequence[LoweredValue]
) -> tuple[LoweredValue, ...]:
    """The outputs of the branch that the int32 scalar `index` (clamped) selects."""
    types = branches[0].output_types
    outputs = _fresh(kernels, types)
    chosen = kernels.elementwise(lambda s, x: s.cast(x, np.int32), (index,), index.type.update(dtype=np.int32))
    kernel = Branch(
        kernels.whole(chosen),
        tuple(kernels.lower_region(branch) for branch in branches),
        tuple(kernels.whole(v) for v in operands),
        tuple(outputs),
    )
    kernels.emit_kernel(kernel)
    return _held(kernels, outputs, types)


def callback(
    kernels: NestBuilder,
    function: Callable[..., Any],
    values: Sequence[LoweredValue],
    out_types: Sequence[TensorType],
) -> tuple[LoweredValue, ...]:
    """Call a host function on arrays; callbacks keep their order."""
    outputs = _fresh(kernels, out_types)
    inputs = tuple(kernels.operand(v) for v in values)
    results = _operands(outputs, out_types)
    kernels.emit_kernel(Callback(function, inputs, results))
    return _held(kernels, outputs, out_types)


def exchange(
    kernels: NestBuilder, what: Exchange, value: LoweredValue, out_type: TensorType, place: bytes
) -> LoweredValue:
    """Exchange an array between the members of a group; exchanges keep their order. place: see Exchange.mark."""
    outputs = _fresh(kernels, (out_type,))
    (result,) = _operands(outputs, (out_type,))
    mark = what.mark(value.shape, value.dtype, place)
    kernels.emit_kernel(Collective(what, kernels.operand(value), result, mark))
    return _held(kernels, outputs, (out_type,))[0]


def library(
    kernels: NestBuilder,
    routine: str,
    values: Sequence[LoweredValue],
    out_types: Sequence[TensorType],
    attributes: dict[str, Any] | None = None,
    meaning: Program | None = None,
) -> tuple[LoweredValue, ...]:
    """Run a named routine of the backend's library on row-major operands; of a block, `meaning` is its program."""
    outputs = _fresh(kernels, out_types)
    inputs = tuple(kernels.operand(v) for v in values)
    results = _operands(outputs, out_types)
    plan = None if meaning is None else kernels.lower_region(meaning)
    kernels.emit_kernel(Library(routine, inputs, results, dict(attributes or {}), plan))
    return _held(kernels, outputs, out_types)


def _operands(buffers: Sequence[Buffer], types: Sequence[TensorType]) -> tuple[Operand, ...]:
    return tuple(
        Operand(buffer, type.shape, dense_strides(type.shape)) for buffer, type in zip(buffers, types, strict=True)
    )


def sort(kernels: NestBuilder, values: Sequence[LoweredValue], axis: int, keys: int = 1) -> tuple[LoweredValue, ...]:
    """Sort the values together along an axis by the first `keys`: ascending, stable.

    A last value that is the position along the axis is not sorted: its result is the permutation.
    """
    shape = values[0].shape
    if shape[axis] <= 1 or values[0].type.size == 0:
        return tuple(values)
    index = len(values) > keys and _counts(values[-1], axis)
    moved = [a for a in range(len(shape)) if a != axis] + [axis]
    rows = [views.transpose(kernels, v, moved) for v in values]
    sources = rows[:-1] if index else rows
    inputs = tuple(kernels.whole(row) for row in sources)
    types = [row.type for row in rows]
    outputs = _fresh(kernels, types)
    length = shape[axis]
    count = values[0].type.size // length
    kernels.emit_kernel(Sort(count, length, inputs, tuple(outputs), keys, index))
    back = [moved.index(a) for a in range(len(shape))]
    return tuple(views.transpose(kernels, v, back) for v in _held(kernels, outputs, types))


def _counts(value: LoweredValue, axis: int) -> bool:
    """Whether a value is the int32 or int64 position along an axis."""
    if value.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        return False
    node = value.nodes[0]
    if node.op == "cast":
        node = node.args[0]
    if node.op != "affine":
        return False
    unit = tuple(int(a == axis) for a in range(len(value.shape)))
    return bool(node.attribute == (unit, 0))
