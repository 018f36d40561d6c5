"""Row kernels with strided rows: a panel of neighbouring rows runs side by side.

Each row-level value is an array over the panel, and the loop over the panel is the innermost one,
so that loads are dense although the rows are not.
"""

from __future__ import annotations

from contextlib import ExitStack

from rlx.backends.cpu.emit.layout import Layout
from rlx.backends.cpu.emit.nests import NestWalk
from rlx.backends.loops.row_schedule import RowPass
from rlx.code.tree import Array, Element, Expression
from rlx.ir.kernels import Instruction
from rlx.ir.types import compute_dtype

__all__ = ["PanelWalk"]


class PanelWalk(NestWalk):
    """The last dimension of the kernel numbers the rows of a panel."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.panel = len(self.loops.sizes) - 1

    def kernel(self) -> None:
        """The whole nest, after memory for the values of rows."""
        for phase, sweep in enumerate(self.plan.passes):
            for number in (*self.plan.row_values[phase], *sweep.reduces, *self.running(sweep)):
                self.code.allocate(self.held(number).array)
        super().kernel()

    def held(self, number: int) -> Element:
        """A value of one row of the panel."""
        dtype = compute_dtype(self.loops.instructions[number].dtype)
        return Array(f"h{number}", dtype, "item", (self.layout.tiling.tile,))[self.index(self.panel)]

    def row(self) -> None:
        """For one panel: each sweep over the rows, with the code of single values of rows in between."""
        known: dict[int, Expression] = {}
        for phase, sweep in enumerate(self.plan.passes):
            with ExitStack() as nest:
                self.open(self.panel, nest)
                values = dict(known)
                for number in self.plan.row_values[phase]:
                    self.value(number, values)
                    self.code.write(self.held(number), values[number])
                    known[number] = self.held(number)
                for number in (*sweep.reduces, *self.running(sweep)):
                    self.code.write(self.held(number), self.neutral(number))
            if not sweep.empty:
                self.sweep(sweep, known)
            if self.plan.row_stores[phase]:
                with ExitStack() as nest:
                    self.open(self.panel, nest)
                    for number in self.plan.row_stores[phase]:
                        self.store(number, known)

    def start(self, number: int, known: dict[int, Expression]) -> None:
        """Results have their first values already."""

    def open_row(self, sweep: RowPass, running: bool, nest: ExitStack) -> None:
        """Open the loops over the row and the panel."""
        for dimension in range(self.loops.outer, self.panel + 1):
            self.open(dimension, nest)

    def result(self, number: int) -> Element:
        """A result's place in its array."""
        return self.held(number)

    def combine(self, number: int, value: Expression) -> None:
        """Combine an element into a result."""
        self.code.write(self.held(number), self.combination(number, value))

    def expression(self, instruction: Instruction, arguments: list[Expression]) -> Expression:
        """An instruction's value; the panel is a part of one of the kernel's dimensions."""
        tiling = self.layout.tiling
        block, _ = tiling.blocks[self.panel]
        if instruction.op == "index" and instruction.attribute == block:
            return self.index(block) * tiling.tile + self.index(self.panel)
        return super().expression(instruction, arguments)
