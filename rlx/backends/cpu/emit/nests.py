"""One Loops kernel as an LLVM function: loops, sweeps over rows, loads and stores."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rlx.backends.cpu.emit.ir_text import ATTRIBUTES, Code, Module, Value
from rlx.backends.cpu.emit.layout import Layout
from rlx.backends.cpu.emit.scalar_code import (
    combine,
    constant,
    identity,
    load_scalar,
    register_kind,
    spell,
    storage_kind,
    store_scalar,
)
from rlx.backends.loops.row_schedule import RowSchedule, row_schedule
from rlx.ir.kernels import Store

__all__ = ["NestEmitter", "LoopPosition"]


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """Where the loops are: the index along each entered dimension, and each access group's
    element number as far as the entered dimensions determine it."""

    indices: dict[int, Value]
    positions: tuple[Value, ...]


@lru_cache(maxsize=256)
def alias_metadata(classes: int) -> tuple[str, tuple[str, ...]]:
    """Scopes that tell LLVM that buffers of different classes do not overlap: the module's
    metadata, and the annotations of each class's accesses."""
    if classes < 2:
        return "", ("",) * classes
    lines = ["!0 = distinct !{!0}"]
    lines += [f"!{n + 1} = distinct !{{!{n + 1}, !0}}" for n in range(classes)]
    own, others = 1 + classes, 1 + 2 * classes
    for n in range(classes):
        lines.append(f"!{own + n} = !{{!{n + 1}}}")
        rest = ", ".join(f"!{m + 1}" for m in range(classes) if m != n)
        lines.append(f"!{others + n} = !{{{rest}}}")
    tags = tuple(f", !alias.scope !{own + n}, !noalias !{others + n}" for n in range(classes))
    return "\n".join(lines), tags


class NestEmitter:
    """Emits one kernel."""

    def __init__(self, layout: Layout) -> None:
        self.kernel = kernel = layout.tiling.kernel
        self.layout = layout
        self.row_schedule: RowSchedule = row_schedule(layout.tiling.source)
        self.code = Code(Module())
        self.rank = len(kernel.sizes)
        self.begin, self.end, self.chunk = (
            Value(self.code, name, "i64") for name in ("%begin", "%end", "%chunk")
        )
        self.zero = self.code.constant("i64", 0)
        self.metadata, self.tags = alias_metadata(layout.classes)
        self.parallel = kernel.parallel if kernel.chunks == 1 else 0

    def module(self, symbol: str) -> str:
        """The whole module's text."""
        self._read_arguments()
        with ExitStack() as nest:
            place = self._enter_parallel(nest, self._origin())
            self._initialize_stores(place)
            for dimension in range(self.parallel, self.kernel.outer):
                place = nest.enter_context(self._dimension(place, dimension))
            self._row_kernel(place)
        self.code.line("ret void")
        head = f"define void @{symbol}(ptr %slots, ptr %row, i64 %begin, i64 %end, i64 %chunk)"
        function = f"{head} {ATTRIBUTES} {{\n{self.code.text()}\n}}"
        return "\n".join((self.code.module.text(), function, self.metadata, ""))

    def _argument(self, number: int) -> Value:
        return self.code.load("i64", self.code.element("i64", "%row", number))

    def _read_arguments(self) -> None:
        layout, code = self.layout, self.code
        self.pointers = []
        for number in range(len(self.kernel.operands)):
            slot = code.element("i64", "%slots", self._argument(number))
            address = code.load("i64", slot)
            self.pointers.append(address.convert("inttoptr", "ptr").name)
        self.sizes = [
            self._argument(at) if static is None else code.constant("i64", static)
            for at, static in zip(layout.size_slots, layout.static_sizes, strict=True)
        ]
        self.full_sizes = {
            dimension: self._argument(slot) for dimension, slot in layout.full_size_slots.items()
        }
        self.constants = {n: self._constant_argument(n, at) for n, at in layout.constant_slots.items()}
        self.strides = [
            [
                self._argument(at) if static is None else code.constant("i64", static)
                for at, static in zip(group.stride_slots, group.strides, strict=True)
            ]
            for group in layout.groups
        ]

    def _constant_argument(self, number: int, slot: int) -> Value:
        word, kind = self._argument(slot), self._register_kind(number)
        if self.kernel.instructions[number].dtype.itemsize < 8:
            word = word.convert("trunc", "i32")
        return word if word.kind == kind else word.convert("bitcast", kind)

    def _origin(self) -> LoopPosition:
        positions = []
        for group in self.layout.groups:
            position = self._argument(group.offset_slot)
            if group.chunk_slot is not None:
                position = position + self.chunk * self._argument(group.chunk_slot)
            positions.append(position)
        return LoopPosition({}, tuple(positions))

    def _bounds(self, place: LoopPosition, dimension: int) -> tuple[Value, Value]:
        if dimension in self.full_sizes:
            block, _ = self.layout.tiling.blocks[dimension]
            done = place.indices[block] * self.layout.tiling.tile
            rest = self.full_sizes[dimension] - done
            size = self.sizes[dimension]
            return self.zero, (rest < size).where(rest, size)
        if dimension == 0 and self.kernel.chunks > 1:
            return self.begin, self.end
        return self.zero, self.sizes[dimension]

    def _advance(self, place: LoopPosition, dimension: int, index: Value) -> LoopPosition:
        code, positions = self.code, []
        for group, strides, position in zip(
            self.layout.groups, self.strides, place.positions, strict=True
        ):
            static = group.strides[dimension]
            if static == 0:
                positions.append(position)
                continue
            step = index if static == 1 else code.binary("mul", index, strides[dimension], "nsw")
            positions.append(code.binary("add", position, step, "nsw"))
        return LoopPosition({**place.indices, dimension: index}, tuple(positions))

    @contextmanager
    def _dimension(self, place: LoopPosition, dimension: int) -> Generator[LoopPosition]:
        with self.code.loop(*self._bounds(place, dimension)) as index:
            yield self._advance(place, dimension, index)

    def _enter_parallel(self, nest: ExitStack, place: LoopPosition) -> LoopPosition:
        """Loops over [begin, end) of the flattened parallel dimensions, line by line."""
        count = self.parallel
        if count == 0:
            return place
        if count == 1:
            index = nest.enter_context(self.code.loop(self.begin, self.end))
            return self._advance(place, 0, index)
        return nest.enter_context(self._lines(place, count))

    @contextmanager
    def _lines(self, place: LoopPosition, count: int) -> Generator[LoopPosition]:
        code = self.code
        done = code.stack_slot("i64")
        counters = [code.stack_slot("i64") for _ in range(count)]
        with code.when(self.begin < self.end):
            rest = self.begin
            for dimension in reversed(range(1, count)):
                size = self.sizes[dimension]
                code.store(code.binary("urem", rest, size), counters[dimension])
                rest = code.binary("udiv", rest, size)
            code.store(rest, counters[0])
            code.store(self.begin, done)
            number = code.fresh("")
            code.start_block(f"line{number}")
            before = code.load("i64", done)
            for dimension in range(count - 1):
                place = self._advance(place, dimension, code.load("i64", counters[dimension]))
            first = code.load("i64", counters[count - 1])
            stop = first + (self.end - before)
            size = self.sizes[count - 1]
            last = (stop < size).where(stop, size)
            with code.loop(first, last) as index:
                yield self._advance(place, count - 1, index)
            after = before + (last - first)
            code.store(after, done)
            self._carry(counters)
            more = after < self.end
            code.line(f"br i1 {more.name}, label %line{number}, label %lines{number}")
            code.enter_block(f"lines{number}")

    def _carry(self, counters: list[str]) -> None:
        """Advance to the first element of the next line."""
        code = self.code
        code.store(self.zero, counters[-1])
        carry = code.constant("i64", 1)
        for dimension in reversed(range(len(counters) - 1)):
            advanced = code.load("i64", counters[dimension]) + carry
            full = advanced.equal(self.sizes[dimension])
            code.store(full.where(0, advanced), counters[dimension])
            carry = full.convert("zext", "i64")

    def _initialize_stores(self, place: LoopPosition) -> None:
        """Set the elements that accumulating stores reach from here to their identities."""
        for number, store in enumerate(self.kernel.stores):
            if store.accumulate is None or not store.initialize:
                continue
            strides = self.layout.groups[self.layout.store_forms[number].group].strides
            dtype = self._stored_dtype(store)
            with ExitStack() as nest:
                here = place
                for dimension in range(self.parallel, self.rank):
                    if strides[dimension] != 0:
                        here = nest.enter_context(self._dimension(here, dimension))
                start = identity(self.code, store.accumulate, dtype)
                self._write(store, start, self._store_pointer(number, here))

    def _stored_dtype(self, store: Store) -> np.dtype:
        return self.kernel.instructions[store.value].dtype

    def _pointer(
        self, operand: int, group: int, delta: int, place: LoopPosition, extra: Value | None
    ) -> str:
        kind = storage_kind(self.kernel.operands[operand].dtype)
        position = place.positions[group]
        if extra is not None:
            position = position + extra
        pointer = self.code.element(kind, self.pointers[operand], position)
        return self.code.element(kind, pointer, delta)

    def _row_kernel(self, place: LoopPosition) -> None:
        """For one outer index: each sweep over the row, with row-level code in between."""
        values: dict[int, Value] = {}
        plan = self.row_schedule
        for phase, sweep in enumerate(plan.passes):
            for number in plan.row_values[phase]:
                values[number] = self._instruction(number, values, place)
            if not sweep.empty:
                self._sweep(phase, dict(values), values, place)
            for number in plan.row_stores[phase]:
                self._store(number, values, place)

    def _sweep(
        self, phase: int, inner: dict[int, Value], outer: dict[int, Value], place: LoopPosition
    ) -> None:
        code, sweep = self.code, self.row_schedule.passes[phase]
        instructions = self.kernel.instructions
        kept, recalled = dict(sweep.keeps), dict(sweep.recalls)
        running = [
            n for n in sweep.values if instructions[n].op == "cumulate" and n not in recalled
        ]
        slots: dict[int, str] = {}
        for number in (*sweep.reduces, *running):
            dtype, reducer = instructions[number].dtype, instructions[number].attribute
            start = identity(code, reducer, dtype)
            slots[number] = code.stack_slot(start.kind)
            code.store(start, slots[number])
        with ExitStack() as nest:
            here = place
            for dimension in range(self.kernel.outer, self.rank):
                here = nest.enter_context(self._dimension(here, dimension))
            for number in sweep.values:
                if number in recalled:
                    inner[number] = self._recall(recalled[number], here)
                elif number in slots:
                    inner[number] = self._combine_into(slots[number], number, inner, True)
                else:
                    inner[number] = self._instruction(number, inner, here)
                if number in kept:
                    store = self.kernel.stores[kept[number]]
                    self._write(store, inner[number], self._store_pointer(kept[number], here))
            for number in sweep.reduces:
                self._combine_into(slots[number], number, inner, False)
            for number in sweep.stores:
                self._store(number, inner, here)
        for number in sweep.reduces:
            outer[number] = code.load(inner[instructions[number].args[0]].kind, slots[number])

    def _store_pointer(self, number: int, place: LoopPosition, extra: Value | None = None) -> str:
        form = self.layout.store_forms[number]
        operand = self.kernel.stores[number].access.operand
        return self._pointer(operand, form.group, form.delta, place, extra)

    def _recall(self, number: int, place: LoopPosition) -> Value:
        """A value that an earlier sweep left where store `number` will write."""
        operand = self.kernel.stores[number].access.operand
        tag = self.tags[self.layout.alias[operand]]
        dtype = self.kernel.operands[operand].dtype
        return load_scalar(self.code, dtype, self._store_pointer(number, place), tag)

    def _combine_into(
        self, slot: str, number: int, values: dict[int, Value], ordered: bool
    ) -> Value:
        instruction = self.kernel.instructions[number]
        element = values[instruction.args[0]]
        sofar = self.code.load(element.kind, slot)
        result = combine(instruction.attribute, instruction.dtype, sofar, element, ordered)
        self.code.store(result, slot)
        return result

    def _instruction(self, number: int, values: dict[int, Value], place: LoopPosition) -> Value:
        instruction = self.kernel.instructions[number]
        arguments = [values[a] for a in instruction.args]
        op = instruction.op
        if number in self.constants:
            return self.constants[number]
        if op == "constant":
            return constant(self.code, instruction.dtype, instruction.attribute)
        if op == "index":
            return self._index(instruction.attribute, place)
        if op in ("reduce", "cumulate"):
            return arguments[0]
        if op == "load":
            return self._load(number, arguments, place)
        dtypes = [self.kernel.instructions[a].dtype for a in instruction.args]
        summed = number in self.row_schedule.summed
        return spell(self.code, instruction, list(zip(arguments, dtypes, strict=True)), summed)

    def _register_kind(self, number: int) -> str:
        return register_kind(self.kernel.instructions[number].dtype)

    def _index(self, dimension: int, place: LoopPosition) -> Value:
        return place.indices[dimension]

    def _load(self, number: int, arguments: list[Value], place: LoopPosition) -> Value:
        operand = self.kernel.instructions[number].attribute.operand
        form = self.layout.load_forms[number]
        extra = arguments[0] if arguments else None
        pointer = self._pointer(operand, form.group, form.delta, place, extra)
        tag = self.tags[self.layout.alias[operand]]
        return load_scalar(self.code, self.kernel.operands[operand].dtype, pointer, tag)

    def _write(self, store: Store, value: Value, pointer: str) -> None:
        operand = store.access.operand
        tag = self.tags[self.layout.alias[operand]]
        store_scalar(self.code, self.kernel.operands[operand].dtype, value, pointer, tag)

    def _store(self, number: int, values: dict[int, Value], place: LoopPosition) -> None:
        store = self.kernel.stores[number]
        operand = store.access.operand
        with ExitStack() as nest:
            if store.guard is not None:
                nest.enter_context(self.code.when(values[store.guard]))
            extra = values[store.address] if store.address is not None else None
            pointer = self._store_pointer(number, place, extra)
            value = values[store.value]
            if store.accumulate is not None:
                dtype = self.kernel.operands[operand].dtype
                tag = self.tags[self.layout.alias[operand]]
                held = load_scalar(self.code, dtype, pointer, tag)
                value = combine(
                    store.accumulate, self._stored_dtype(store), held, value, ordered=False
                )
            self._write(store, value, pointer)
