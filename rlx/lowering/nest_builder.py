"""NestBuilder: buffers, expressions and their realisation, nests and kernels in order.

The rest of lowering consists of functions over these, in the other modules of this package; see builder.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Self

import numpy as np

from rlx.ir.formats import FLOAT_FORMATS
from rlx.ir.kernels import Buffer, Operand, Order, Plan, Role
from rlx.ir.options import LoweringOptions
from rlx.ir.program import Equation, Program
from rlx.ir.size_functions import plain_size
from rlx.ir.types import TensorType, compute_dtype
from rlx.lowering.lowered import (
    BufferView,
    LoweredValue,
    StrideMap,
    dense_strides,
    is_dense,
    natural_order,
    remap,
    view_nodes,
    view_of,
)
from rlx.lowering.nest import Nest, NestStore, Step, collapse
from rlx.lowering.nodes import INT64, IndexMap, Node, NodeTable, constant_value, expression_cost, postorder, rewrite
from rlx.lowering.rounding import rounded_result
from rlx.lowering.scalar_builder import Scalar, ScalarBuilder

__all__ = ["ElementFunction", "NestBuilder", "PlanRegion"]

ElementFunction = Callable[..., Any]
_SOURCES_KEPT = 6


# the plan of a nested program; of a loop's body with the numbers of its constants and carries
PlanRegion = Callable[[Program, tuple[int, int] | None], Plan]


class NestBuilder:
    """Keeps the nests under construction."""

    def __init__(self, options: LoweringOptions, plan_region: PlanRegion) -> None:
        self.options = options
        self.plan_region = plan_region
        self.table = NodeTable(options.excess_precision)
        self.steps: list[Step] = []
        self.buffers: list[Buffer] = []
        self.source: tuple[Any, ...] = ()  # the equation being lowered
        self.number: int | None = None  # its number in the program; in an inlined program the call's
        self.equations: Sequence[Equation] = ()  # of the program
        self.unplaced: dict[int, str] = {}
        self._numbers: dict[Equation, int] = {}
        self._writers: dict[Buffer, set[int]] = {}  # the equations that write a buffer
        self.epoch = 0
        self._constants: dict[int, tuple[np.ndarray, LoweredValue]] = {}
        self._padded: dict[Any, Buffer] = {}  # operands -> the result of `pad`

    def begin(self, equation: Equation, number: int) -> None:
        """The equation that is lowered from now on."""
        self.source, self.number = (equation,), number
        self._numbers[equation] = number

    # ------------------------------------------------------------ buffers and constants
    def allocate(self, dtype: np.dtype, size: int, role: Role = "temporary", value: np.ndarray | None = None) -> Buffer:
        """A new buffer of the plan."""
        buffer = Buffer(dtype, size, role, value)
        self.buffers.append(buffer)
        return buffer

    def from_buffer(self, buffer: Buffer, type: TensorType) -> LoweredValue:
        """The value of a whole dense buffer."""
        view = BufferView(buffer, dense_strides(type.shape), 0)
        return self.from_view(view, type)

    def from_view(self, view: BufferView, type: TensorType) -> LoweredValue:
        """The value of a strided view of a buffer."""
        strides = tuple(s if size != 1 else 0 for s, size in zip(view.strides, type.shape, strict=True))
        nodes = view_nodes(self.table, view._replace(strides=strides))
        return LoweredValue(type, nodes, self.source)

    def constant(self, array: Any) -> LoweredValue:
        """A known array; scalars and uniform arrays become literals."""
        array = np.asarray(array)
        known = self._constants.get(id(array))
        if known is not None:
            return known[1]
        type = TensorType(array.shape, array.dtype)
        if array.size == 0 or _is_uniform(array):
            value = array.reshape(-1)[0] if array.size else array.dtype.type(0)
            result = LoweredValue(type, self.literal(value, array.dtype), self.source)
        else:
            buffer = self.allocate(array.dtype, array.size, "constant", np.ascontiguousarray(array))
            result = self.from_buffer(buffer, type)
        self._constants[id(array)] = (array, result)
        return result

    def literal(self, value: Any, dtype: np.dtype) -> tuple[Node, ...]:
        """The nodes of a scalar constant."""
        return ScalarBuilder(None, self.table, 0).constant(value, dtype).nodes

    def full(self, type: TensorType, value: Any) -> LoweredValue:
        """An array filled with one Python scalar."""
        return LoweredValue(type, self.literal(value, type.dtype), self.source)

    def iota(self, type: TensorType, axis: int) -> LoweredValue:
        """The position along `axis`, as an array of the given type."""
        builder = ScalarBuilder(self, self.table, type.ndim)
        return self.finish(type, builder.cast(builder.index(axis), type.dtype), ())

    # ------------------------------------------------------------ elementwise
    def elementwise(
        self,
        function: ElementFunction,
        values: Sequence[LoweredValue],
        types: TensorType | Sequence[TensorType],
    ) -> Any:
        """`function(s, *scalars)` on each element; operands broadcast like NumPy's.

        Returns one value for one TensorType, and a tuple for a sequence.
        """
        if isinstance(types, TensorType):
            return self.elementwise(function, values, (types,))[0]
        all_types = tuple(types)
        shape = all_types[0].shape
        builder = ScalarBuilder(self, self.table, len(shape))
        scalars = [Scalar(builder, value.dtype, *self._broadcast_nodes(value, shape)) for value in values]
        results = function(builder, *scalars)
        if not isinstance(results, tuple):
            results = (results,)
        if len(results) != len(all_types):
            raise TypeError(f"{len(results)} scalars for {len(all_types)} types")
        return tuple(
            self.finish(type, builder.lift(result, type.dtype), values)
            for type, result in zip(all_types, results, strict=True)
        )

    def finish(self, type: TensorType, scalar: Scalar, operands: Sequence[LoweredValue]) -> LoweredValue:
        """The tensor of a scalar expression over the axes of `type`, with values of its dtype."""
        if scalar.dtype != type.dtype:
            scalar = scalar.builder.cast(scalar, type.dtype)
        nodes = scalar.nodes
        if not any(nodes[0] in operand.nodes for operand in operands):  # it is not an operand itself
            self.mark(nodes)
        if type.dtype in FLOAT_FORMATS:
            nodes = tuple(rounded_result(self.table, node, type.dtype) for node in nodes)
            self.mark(nodes)
        return LoweredValue(type, nodes, self.sources_of(operands))

    def mark(self, nodes: Sequence[Node]) -> None:
        """Note that the nodes are the result of the equation being lowered."""
        if self.number is not None:
            for node in nodes:
                self.table.mark(node, (self.number,))

    def sources_of(self, operands: Sequence[LoweredValue]) -> tuple[Any, ...]:
        """The equations that a value of these operands comes from, most of them."""
        sources = dict.fromkeys(self.source)
        for operand in operands:
            if operand.nodes[0].op != "load":
                sources.update(dict.fromkeys(operand.sources))
        return tuple(sources)[:_SOURCES_KEPT]

    def _broadcast_nodes(self, value: LoweredValue, shape: tuple[int, ...]) -> tuple[Node, ...]:
        if value.shape == shape:
            return value.nodes
        self.before_repeating(value, prod(shape))
        lead = len(shape) - len(value.shape)
        stretched = [n != m for n, m in zip(value.shape, shape[lead:], strict=True)]

        def stride_map(strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
            kept = zip(strides, stretched, strict=True)
            return (0,) * lead + tuple(0 if wide else s for s, wide in kept), offset

        return self.moved(value, stride_map)

    def before_repeating(self, value: LoweredValue, size: int) -> None:
        """Store a value whose elements are about to be used several times, if that is cheaper."""
        if value.weight > self.options.repeat_nodes and size > value.type.size:
            cost = expression_cost(value.nodes, value.shape)
            if cost.arithmetic > self.options.repeat_cost:
                self.realise(value)

    def moved(self, value: LoweredValue, stride_map: StrideMap) -> tuple[Node, ...]:
        """The nodes of a value read through an index map that every leaf can follow."""
        nodes = remap(self.table, value.nodes, stride_map)
        assert nodes is not None
        return nodes

    # ------------------------------------------------------------ memory
    def view(self, value: LoweredValue) -> BufferView | None:
        """The buffer view that a value is, or None for an expression."""
        return view_of(value)

    def realise(self, value: LoweredValue, order: Sequence[int] | None = None) -> BufferView:
        """Give a value memory, if it has none, with its axes laid out in `order`."""
        view = view_of(value)
        if view is None:
            axes = natural_order(value) if order is None else order
            view = self.materialise(value, axes)
        return view

    def materialise(self, value: LoweredValue, order: Sequence[int], role: Role = "temporary") -> BufferView:
        """Compute a value into a fresh buffer; later users read that."""
        buffer = self.allocate(value.dtype, value.type.size, role)
        view = BufferView(buffer, dense_strides(value.shape, order), 0)
        self.write(value, view, own=False)
        value.nodes = self.from_view(view, value.type).nodes
        return view

    def dense(self, value: LoweredValue) -> BufferView:
        """A row-major view of a value (it may start inside a larger buffer)."""
        view = view_of(value)
        if view is None or not is_dense(value.shape, view.strides):
            view = self.materialise(value, range(len(value.shape)))
        return view

    def whole(self, value: LoweredValue) -> Buffer:
        """A buffer with exactly a value, row-major."""
        view = self.dense(value)
        if view.offset or view.buffer.size != value.type.size:
            view = self.materialise(value, range(len(value.shape)))
        return view.buffer

    def operand(self, value: LoweredValue) -> Operand:
        """A row-major operand of a library kernel."""
        view = self.dense(value)
        return Operand(view.buffer, value.shape, dense_strides(value.shape), view.offset)

    def write(
        self,
        value: LoweredValue,
        view: BufferView,
        *,
        ordered: bool = False,
        address: Node | None = None,
        accumulate: str | None = None,
        guard: Node | None = None,
        own: bool = True,
    ) -> None:
        """A kernel that computes a value and stores it through `view` (its axes are the value's); own: see `emit`."""
        stores = self.part_stores(value, view, address, accumulate, guard)
        order = sorted(range(len(value.shape)), key=lambda a: -abs(view.strides[a]))
        sizes, row, stores = collapse(self.table, value.shape, stores, 0, order)
        self.emit(Nest(sizes, stores, row, ordered=ordered), value, own)

    def part_stores(
        self,
        value: LoweredValue,
        view: BufferView,
        address: Node | None = None,
        accumulate: str | None = None,
        guard: Node | None = None,
        order: Order = "any",
    ) -> list[NestStore]:
        """The stores of a value's real nodes through a view; an address counts real elements."""
        factor = len(value.nodes) if view.buffer.dtype.kind == "c" else 1
        strides = tuple(factor * s if size != 1 else 0 for s, size in zip(view.strides, value.shape, strict=True))
        return [
            NestStore(
                node,
                view.buffer,
                strides,
                factor * view.offset + part,
                address,
                accumulate,
                False,
                guard,
                order=order,
                equation=self.number if accumulate else None,
            )
            for part, node in enumerate(value.nodes)
        ]

    def emit(self, nest: Nest, value: LoweredValue | None = None, own: bool = True) -> None:
        """Append a nest that computes a value, and the rest of the equation being lowered (own) or nothing else."""
        sources = value.sources if value is not None and value.sources else self.source
        marks = self.table.marks
        computed = dict.fromkeys(number for node in nest.nodes if node in marks for number in marks[node])
        first = [self._numbers[e] for e in sources if self._numbers.get(e) in computed]
        if own and self.number is not None:
            first.insert(0, self.number)
        elif not computed:
            first = self._copied(nest, sources)
        order = tuple(dict.fromkeys((*first, *computed)))
        origins = tuple([self.equations[number] for number in order[:_SOURCES_KEPT]])
        label = tuple([equation.primitive.name for equation in origins or sources])
        self.steps.append(nest.named(origins=origins, label=label, epoch=self.epoch, equations=order))
        for store in nest.stores:
            self._writers.setdefault(store.buffer, set()).update(order)

    def _copied(self, nest: Nest, sources: Sequence[Equation]) -> list[int]:
        """The equations of a nest that copies: those that only move elements, or the one that needs the copy."""
        made = {number for node in nest.nodes if node.op == "load" for number in self._written_by(node)}
        moving = [self._numbers[e] for e in sources if e in self._numbers and self._numbers[e] not in made]
        return moving or ([] if self.number is None else [self.number])

    def _written_by(self, load: Node) -> set[int]:
        return self._writers.get(load.attribute.buffer, set())

    def fence(self) -> None:
        """No nest that is emitted from now on fuses with an earlier one."""
        self.epoch += 1

    def emit_kernel(self, kernel: Any) -> None:
        """Append a kernel of another kind, naming the equation it comes from."""
        origins = tuple(e.origin for e in self.source if e.origin is not None)
        label = "+".join(equation.primitive.name for equation in self.source)
        equations = () if self.number is None else (self.number,)
        self.steps.append(replace(kernel, origins=origins, label=label, equations=equations))
        for buffer in kernel.writes:
            self._writers.setdefault(buffer, set()).update(equations)

    def load_element(self, builder: ScalarBuilder, source: LoweredValue, positions: Sequence[Any]) -> Scalar:
        """The element of `source` at computed positions: affine ones become strides."""
        if len(positions) != len(source.shape):
            raise TypeError(f"{len(positions)} positions for {len(source.shape)} axes")
        if self._follows_from_position(source):
            return self._computed_element(builder, source, positions)
        buffer, view_strides, offset = self.realise_for_compute(source)
        strides, shift, address = self.address(builder, positions, view_strides)
        factor = len(source.nodes)
        index_map = IndexMap(buffer, tuple(factor * s for s in strides), factor * (offset + shift))
        scaled = None if address is None else builder.mul(address, factor).node
        nodes = [self.table.load(index_map._replace(offset=index_map.offset + part), scaled) for part in range(factor)]
        return Scalar(builder, source.dtype, *nodes)

    def _follows_from_position(self, source: LoweredValue) -> bool:
        """Whether an element is cheap to compute from its position alone, as of an iota: it needs no memory."""
        nodes = postorder(source.nodes)
        return all(node.op not in ("load", "reduce", "cumulate") for node in nodes) and (
            expression_cost(source.nodes, source.shape).arithmetic <= self.options.repeat_cost
        )

    def _computed_element(self, builder: ScalarBuilder, source: LoweredValue, positions: Sequence[Any]) -> Scalar:
        """The element at computed positions of a value that needs no memory."""
        found = [builder.cast(builder.lift(p, INT64), INT64) for p in positions]

        def at_positions(leaf: Node, args: tuple[Node, ...]) -> Node:
            strides, offset = leaf.attribute
            total = builder.constant(offset, INT64)
            for position, stride in zip(found, strides, strict=True):
                total = builder.add(total, builder.mul(position, stride))
            return total.node

        done = rewrite(self.table, source.nodes, at_positions)
        self.table.carry_marks(done)
        return Scalar(builder, source.dtype, *(done[node] for node in source.nodes))

    def realise_for_compute(self, value: LoweredValue) -> BufferView:
        """A view to gather from: any buffer whose loads are the value's compute dtype."""
        node = value.nodes[0]
        if len(value.nodes) == 1 and node.op == "load" and not node.args:
            if compute_dtype(node.attribute.buffer.dtype) == node.dtype:
                return BufferView(*node.attribute)
        return self.realise(value)

    def address(
        self, builder: ScalarBuilder, positions: Sequence[Any], strides: Sequence[int]
    ) -> tuple[tuple[int, ...], int, Scalar | None]:
        """(strides over the builder's axes, constant offset, the rest) of a computed position."""
        linear = builder.constant(0, INT64)
        rest: Scalar | None = None
        for position, stride in zip(positions, strides, strict=True):
            whole = builder.cast(builder.lift(position, INT64), INT64)
            for summand in _summands(whole):
                term = builder.mul(summand, stride)
                if term.node.op in ("affine", "constant"):
                    linear = builder.add(linear, term)
                else:
                    rest = term if rest is None else builder.add(rest, term)
        if linear.node.op == "affine":
            affine, offset = linear.node.attribute
            return affine, offset, rest
        constant = plain_size(constant_value(linear.node))
        return (0,) * builder.rank, constant, rest

    # ------------------------------------------------------------ programs inside
    def lower_region(self, program: Program, loop: tuple[int, int] | None = None) -> Plan:
        """The plan of a nested program; every output is a separate buffer.

        loop: for a loop's body, the numbers of its leading constants and of the carries that follow.
        """
        return self.plan_region(program, loop)

    def scratch(self) -> Self:
        """A builder for an attempt whose results are discarded."""
        return type(self)(self.options, self.plan_region)


def _summands(scalar: Scalar) -> list[Scalar]:
    """The terms of a sum, so that its affine ones can become strides."""
    terms, pending = [], [scalar.node]
    while pending:
        node = pending.pop()
        if node.op == "add":
            pending.extend(node.args)
        else:
            terms.append(Scalar(scalar.builder, scalar.dtype, node))
    return terms


def _is_uniform(array: np.ndarray) -> bool:
    flat = np.ascontiguousarray(array).reshape(-1)
    first = flat[:1].tobytes()
    if flat[-1:].tobytes() != first:
        return False
    raw = flat.view(np.uint8).reshape(flat.size, -1)
    return bool((raw == raw[0]).all())
