"""Control flow and host calls: programs inside kernels are lowered to plans of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.kernels import Branch, Buffer, Callback, Library, Operand, Plan, Scan, Sort, While
from rlx.ir.types import TensorType
from rlx.lowering.contract import ContractionLowering
from rlx.lowering.indexing import inline_program
from rlx.lowering.lowered import Lowered, dense_strides

if TYPE_CHECKING:
    from rlx.ir.program import Program

__all__ = ["RegionLowering"]


class RegionLowering(ContractionLowering):
    """scan, while_loop, branch, callback, library, sort: kernels over whole buffers."""

    def lower_region(self, program: Program, loop: tuple[int, int] | None = None) -> Plan:
        """The plan of a nested program; every output is a buffer of its own.

        loop: of a loop's body, how many constants its inputs begin with, and how many carries follow.
        """
        raise NotImplementedError

    def scratch(self) -> RegionLowering:
        """A builder for an attempt, of which nothing is kept."""
        raise NotImplementedError

    def _fresh(self, types: Sequence[TensorType]) -> list[Buffer]:
        return [self.allocate(type.dtype, type.size) for type in types]

    def _held(self, buffers: Sequence[Buffer], types: Sequence[TensorType]) -> tuple[Lowered, ...]:
        return tuple(self.from_buffer(b, t) for b, t in zip(buffers, types, strict=True))

    def scan(
        self,
        body: Program,
        constants: Sequence[Lowered],
        initial: Sequence[Lowered],
        xs: Sequence[Lowered],
        length: int,
        reverse: bool = False,
    ) -> tuple[tuple[Lowered, ...], tuple[Lowered, ...]]:
        """Run `body(*constants, *carries, *slices)` `length` times; -> (last carries, ys)."""
        carries = len(initial)
        final_types = [v.type for v in initial]
        ys_types = [t.update(shape=(length, *t.shape)) for t in body.output_types[carries:]]
        final, ys = self._fresh(final_types), self._fresh(ys_types)
        plan = self.lower_region(body, (len(constants), carries))
        kernel = Scan(
            length,
            reverse,
            plan,
            tuple(self.whole(v) for v in constants),
            tuple(self.whole(v) for v in initial),
            tuple(self.whole(v) for v in xs),
            tuple(final),
            tuple(ys),
        )
        self.emit_kernel(kernel)
        return self._held(final, final_types), self._held(ys, ys_types)

    def in_blocks(
        self,
        function: Callable[..., Lowered],
        constants: Sequence[Lowered],
        values: Sequence[Lowered],
        count: int,
    ) -> Lowered:
        """`function(k, *constants, *values)` on `count` blocks of the values' leading axis, one
        after the other; its results joined along their leading axis."""
        ys = self._blocks(function, constants, values, count)
        return self.reshape(ys, (ys.shape[0] * ys.shape[1], *ys.shape[2:]))

    def sum_of_blocks(self, function: Callable[..., Lowered], values: Sequence[Lowered], count: int) -> Lowered:
        """`function(k, *values)` on `count` blocks of the values' leading axis, its results added."""
        return self.reduce("add", self._blocks(function, (), values, count), (0,))

    def _blocks(
        self,
        function: Callable[..., Lowered],
        constants: Sequence[Lowered],
        values: Sequence[Lowered],
        count: int,
    ) -> Lowered:
        blocks = [self.reshape(v, (count, v.shape[0] // count, *v.shape[1:])) for v in values]
        types = [v.type for v in constants]
        types += [v.type.update(shape=v.shape[1:]) for v in blocks]
        name = self.source[0].primitive.name if self.source else "blocks"
        body = inline_program(name, function, types, self._result_type(function, types))
        _, (ys,) = self.scan(body, constants, (), blocks, count)
        return ys

    def _result_type(self, function: Callable[..., Lowered], types: Sequence[TensorType]) -> TensorType:
        """The type of what a function of lowered values gives."""
        scratch = self.scratch()
        values = [scratch.from_buffer(scratch.allocate(t.dtype, t.size, "input"), t) for t in types]
        return function(scratch, *values).type

    def while_loop(
        self,
        condition: Program,
        body: Program,
        condition_constants: Sequence[Lowered],
        body_constants: Sequence[Lowered],
        initial: Sequence[Lowered],
    ) -> tuple[Lowered, ...]:
        """Run `body(*body_constants, *carries)` while `condition(*its constants, *carries)`."""
        types = [v.type for v in initial]
        final = self._fresh(types)
        plan = self.lower_region(body, (len(body_constants), len(initial)))
        kernel = While(
            self.lower_region(condition),
            plan,
            tuple(self.whole(v) for v in condition_constants),
            tuple(self.whole(v) for v in body_constants),
            tuple(self.whole(v) for v in initial),
            tuple(final),
        )
        self.emit_kernel(kernel)
        return self._held(final, types)

    def branch(self, index: Lowered, branches: Sequence[Program], operands: Sequence[Lowered]) -> tuple[Lowered, ...]:
        """The outputs of the branch that the int32 scalar `index` (clamped) selects."""
        types = branches[0].output_types
        outputs = self._fresh(types)
        chosen = self.elementwise(lambda s, x: s.cast(x, np.int32), (index,), index.type.update(dtype=np.int32))
        kernel = Branch(
            self.whole(chosen),
            tuple(self.lower_region(branch) for branch in branches),
            tuple(self.whole(v) for v in operands),
            tuple(outputs),
        )
        self.emit_kernel(kernel)
        return self._held(outputs, types)

    def callback(
        self,
        function: Callable[..., Any],
        values: Sequence[Lowered],
        out_types: Sequence[TensorType],
        native: Callable[[], int] | None = None,
    ) -> tuple[Lowered, ...]:
        """Call a host function on arrays; callbacks keep their order. native: see Callback."""
        outputs = self._fresh(out_types)
        inputs = tuple(self.operand(v) for v in values)
        results = self._operands(outputs, out_types)
        self.emit_kernel(Callback(function, inputs, results, native=native))
        return self._held(outputs, out_types)

    def library(
        self,
        routine: str,
        values: Sequence[Lowered],
        out_types: Sequence[TensorType],
        attributes: dict[str, Any] | None = None,
    ) -> tuple[Lowered, ...]:
        """Run a named routine of the backend's library on row-major operands."""
        outputs = self._fresh(out_types)
        inputs = tuple(self.operand(v) for v in values)
        results = self._operands(outputs, out_types)
        self.emit_kernel(Library(routine, inputs, results, dict(attributes or {})))
        return self._held(outputs, out_types)

    @staticmethod
    def _operands(buffers: Sequence[Buffer], types: Sequence[TensorType]) -> tuple[Operand, ...]:
        return tuple(
            Operand(buffer, type.shape, dense_strides(type.shape)) for buffer, type in zip(buffers, types, strict=True)
        )

    def sort(self, values: Sequence[Lowered], axis: int, keys: int = 1) -> tuple[Lowered, ...]:
        """Sort the values together along an axis by the first `keys`: ascending, stable.

        A last value that is the position along the axis comes out as the permutation, without
        being sorted itself.
        """
        shape = values[0].shape
        if shape[axis] <= 1 or values[0].type.size == 0:
            return tuple(values)
        index = len(values) > keys and self._counts(values[-1], axis)
        moved = [a for a in range(len(shape)) if a != axis] + [axis]
        rows = [self.transpose(v, moved) for v in values]
        sources = rows[:-1] if index else rows
        inputs = tuple(self.whole(row) for row in sources)
        types = [row.type for row in rows]
        outputs = self._fresh(types)
        length = shape[axis]
        count = values[0].type.size // length
        self.emit_kernel(Sort(count, length, inputs, tuple(outputs), keys, index))
        back = [moved.index(a) for a in range(len(shape))]
        return tuple(self.transpose(v, back) for v in self._held(outputs, types))

    @staticmethod
    def _counts(value: Lowered, axis: int) -> bool:
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
