"""Row kernels with strided rows: a panel of neighbouring rows runs side by side.

Each row-level value is an array over the panel, and the loop over the panel is the innermost one,
so that loads are dense although the rows are not.
"""

from __future__ import annotations

from contextlib import ExitStack

from rlx.backends.cpu.emit.ir_text import Value
from rlx.backends.cpu.emit.nests import LoopPosition, NestEmitter
from rlx.backends.cpu.emit.scalar_code import combine, identity

__all__ = ["PanelEmitter"]


class PanelEmitter(NestEmitter):
    """The last dimension of the kernel numbers the rows of a panel."""

    def _row_kernel(self, place: LoopPosition) -> None:
        self.panel = self.rank - 1
        self.arrays: dict[int, str] = {}
        plan = self.row_schedule
        for phase, sweep in enumerate(plan.passes):
            self._row_values(phase, place)
            if not sweep.empty:
                self._panel_sweep(phase, place)
            if plan.row_stores[phase]:
                with self._dimension(place, self.panel) as here:
                    values = _Held(self, here)
                    for number in plan.row_stores[phase]:
                        self._store(number, values, here)

    def _index(self, dimension: int, place: LoopPosition) -> Value:
        block, _ = self.layout.tiling.blocks[self.panel]
        index = place.indices[dimension]
        if dimension != block:
            return index
        return index * self.layout.tiling.tile + place.indices[self.panel]

    def _row_values(self, phase: int, place: LoopPosition) -> None:
        """Row-level values and the starts of the phase's accumulators, for every row."""
        sweep, instructions = self.row_schedule.passes[phase], self.kernel.instructions
        recalled = dict(sweep.recalls)
        running = [
            n for n in sweep.values if instructions[n].op == "cumulate" and n not in recalled
        ]
        with self._dimension(place, self.panel) as here:
            values = _Held(self, here)
            for number in self.row_schedule.row_values[phase]:
                values[number] = self._instruction(number, values, here)
                self._hold(number, values[number], here)
            for number in (*sweep.reduces, *running):
                instruction = instructions[number]
                start = identity(self.code, instruction.attribute, instruction.dtype)
                self._hold(number, start, here)

    def _panel_sweep(self, phase: int, place: LoopPosition) -> None:
        sweep, instructions = self.row_schedule.passes[phase], self.kernel.instructions
        kept, recalled = dict(sweep.keeps), dict(sweep.recalls)
        with ExitStack() as nest:
            here = place
            for dimension in range(self.kernel.outer, self.rank):
                here = nest.enter_context(self._dimension(here, dimension))
            values = _Held(self, here)
            for number in sweep.values:
                if number in recalled:
                    values[number] = self._recall(recalled[number], here)
                elif instructions[number].op == "cumulate":
                    values[number] = self._accumulate(number, values, here, ordered=True)
                else:
                    values[number] = self._instruction(number, values, here)
                if number in kept:
                    store = self.kernel.stores[kept[number]]
                    self._write(store, values[number], self._store_pointer(kept[number], here))
            for number in sweep.reduces:
                self._accumulate(number, values, here, ordered=False)
            for number in sweep.stores:
                self._store(number, values, here)

    def _accumulate(
        self, number: int, values: dict[int, Value], place: LoopPosition, ordered: bool
    ) -> Value:
        instruction = self.kernel.instructions[number]
        element = values[instruction.args[0]]
        sofar = self.held(number, place)
        result = combine(instruction.attribute, instruction.dtype, sofar, element, ordered)
        self._hold(number, result, place)
        return result

    def _hold(self, number: int, value: Value, place: LoopPosition) -> None:
        """Set a row-level value of one row of the panel; bools are held as bytes."""
        if number not in self.arrays:
            kind = "i8" if value.kind == "i1" else value.kind
            self.arrays[number] = self.code.stack_slot(f"[{self.layout.tiling.tile} x {kind}]")
        stored = value.convert("zext", "i8") if value.kind == "i1" else value
        self.code.store(stored, self._held_place(number, stored.kind, place))

    def _held_place(self, number: int, kind: str, place: LoopPosition) -> str:
        return self.code.element(kind, self.arrays[number], place.indices[self.panel])

    def held(self, number: int, place: LoopPosition) -> Value:
        """A row-level value of one row of the panel."""
        kind = self._register_kind(number)
        stored_kind = "i8" if kind == "i1" else kind
        stored = self.code.load(stored_kind, self._held_place(number, stored_kind, place))
        return stored.not_equal(0) if kind == "i1" else stored


class _Held(dict[int, Value]):
    """Values at one place: values of the row are loaded from their arrays at first use."""

    def __init__(self, emitter: PanelEmitter, place: LoopPosition) -> None:
        super().__init__()
        self.emitter = emitter
        self.place = place

    def __missing__(self, number: int) -> Value:
        value = self[number] = self.emitter.held(number, self.place)
        return value
