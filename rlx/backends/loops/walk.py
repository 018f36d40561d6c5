"""One walk over a Loops kernel, written by a dialect: loops, sweeps over the row, loads and stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

from rlx.backends.loops.dialect import Dialect, Parameter, Reduction
from rlx.backends.loops.row_schedule import RowPass, row_schedule
from rlx.ir.formats import FLOAT_FORMATS
from rlx.ir.kernels import Access, Instruction, Loops, Store
from rlx.ir.scalar import neutral
from rlx.ir.types import compute_dtype

__all__ = ["Lines", "Mapping", "SequentialMapping", "Walk", "kernel_lines", "kernel_parameters", "runs_parallel"]

_INDICES = "ijklmnpq"
_ARRAYS = "abcdefgh"
# a longer expression becomes a separate statement
_LONGEST_EXPRESSION = 70
# fewer operations do not justify threads
_PARALLEL_WORK = 1 << 17


@dataclass
class Lines:
    """Indented statements."""

    dialect: Dialect
    text: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, *lines: str) -> None:
        """Append statements."""
        self.text += [self.dialect.extent * self.depth + line for line in lines]

    @contextmanager
    def block(self, *head: str) -> Generator[None]:
        """Lines added inside are the body of a block."""
        self.add(*head)
        self.depth += 1
        before = len(self.text)
        yield
        if len(self.text) == before:
            self.add(self.dialect.comment("nothing") if self.dialect.block_end else "pass")
        self.depth -= 1
        if self.dialect.block_end:
            self.add(self.dialect.block_end)


def kernel_parameters(kernel: Loops) -> list[Parameter]:
    """The array parameters of a kernel's function: one for each distinct operand."""
    numbers = _array_numbers(kernel)
    written = {numbers[s.access.operand] for s in kernel.stores}
    names: dict[int, Parameter] = {}
    for operand, number in enumerate(numbers):
        if number not in names:
            name = _ARRAYS[number] if number < len(_ARRAYS) else f"{_ARRAYS[number % 8]}{number // 8}"
            names[number] = Parameter(name, kernel.operands[operand].dtype, number in written)
    return list(names.values())


def _array_numbers(kernel: Loops) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(id(buffer), len(numbers)) for buffer in kernel.operands]


def runs_parallel(kernel: Loops) -> bool:
    """Whether the outermost loop justifies threads."""
    work = len(kernel.instructions)
    for size in kernel.sizes:
        work *= size
    return (kernel.parallel > 0 or kernel.chunks > 1) and work >= _PARALLEL_WORK


class Mapping(ABC):
    """The distribution of iterations over the executors of a function: one thread, or the work-items of a device."""

    @abstractmethod
    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Open the chunk and the independent outer dimensions; -> the open dimensions."""

    def memory(self, walk: Walk, access: Access, extra: str | None = None) -> tuple[str, str]:
        """The array that contains an element, and its position there."""
        return walk.arrays[access.operand], walk.place(access, extra)

    def row_dimension(self, walk: Walk, dimension: int, reductions: Sequence[Reduction]) -> tuple[str, ...]:
        """The head of a loop over a row dimension; if there are `reductions`, its body computes nothing else."""
        index, (start, stop) = walk.index(dimension), walk.bounds(dimension)
        if reductions:
            return walk.dialect.row_loop(index, start, stop, reductions)
        return (walk.dialect.loop(index, start, stop),)

    def in_dimension(self, walk: Walk, dimension: int) -> None:
        """The first statements of a loop over a dimension."""
        del walk, dimension

    def held(self, walk: Walk, number: int, expression: str) -> str | None:
        """The location of a row element loaded by this sweep or an earlier one; None: only in memory."""
        del walk, number, expression
        return None

    def park(self, walk: Walk, number: int, store: Store, value: str) -> None:
        """Keep a value for a later sweep, at the target of a store."""
        del number
        walk.write(store, value, walk.place(store.access))

    def parked(self, walk: Walk, number: int, store: Store) -> str:
        """A parked value."""
        del number
        return walk.dialect.load(walk.stored_dtype(store), walk.array(store), walk.place(store.access))

    def combine_rows(self, walk: Walk, number: int) -> None:
        """Combine a reduction's partial results, one per executor of the row, into a result that all of them know."""
        del walk, number

    def reduced(self, walk: Walk, number: int, value: str) -> None:
        """Combine one more element into a reduction."""
        walk.combine(number, value)

    def cumulated(self, walk: Walk, number: int, value: str) -> str:
        """Combine one more element into a cumulative result; -> its value there."""
        walk.combine(number, value)
        return f"r{number}"

    def overwrite(self, walk: Walk, store: Store, array: str, place: str, value: str) -> None:
        """Write a value."""
        walk.write(store, value, place, array=array)

    def accumulate(self, walk: Walk, store: Store, place: str, value: str) -> None:
        """Combine a value with the value in memory."""
        walk.accumulate(store, place, value)

    def initialized(self, walk: Walk) -> None:
        """All executors have written the initial values of accumulating stores."""
        del walk

    @contextmanager
    def once(self, walk: Walk) -> Generator[None]:
        """Code inside runs once per row."""
        del walk
        yield


class SequentialMapping(Mapping):
    """One function runs all iterations; the outermost loop may run on the language's threads."""

    def __init__(self, threads: bool) -> None:
        self.threads = threads

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Loops over the chunks or over the parallel dimensions."""
        if walk.loops.chunks > 1:
            head = walk.dialect.loop("chunk", "0", str(walk.loops.chunks), self.threads)
            nest.enter_context(walk.lines.block(head))
            return ()
        for dimension in range(walk.loops.parallel):
            start, stop = walk.bounds(dimension)
            head = walk.dialect.loop(walk.index(dimension), start, stop, self.threads and dimension == 0)
            nest.enter_context(walk.lines.block(head))
        return range(walk.loops.parallel)


def kernel_lines(kernel: Loops, dialect: Dialect, mapping: Mapping | None = None) -> tuple[str, ...]:
    """The statements of the kernel's body, for a function of `kernel_parameters`."""
    lines = Lines(dialect)
    dialect.threads = runs_parallel(kernel)
    Walk(kernel, dialect, lines, mapping or SequentialMapping(dialect.threads)).kernel()
    dialect.threads = False
    return tuple(lines.text)


class Walk:
    """Writes one kernel: the dialect provides the syntax, the mapping distributes the iterations."""

    def __init__(self, kernel: Loops, dialect: Dialect, lines: Lines, mapping: Mapping) -> None:
        self.loops = kernel
        self.dialect = dialect
        self.lines = lines
        self.mapping = mapping
        self.plan = row_schedule(kernel)
        parameters = kernel_parameters(kernel)
        self.arrays = [parameters[n].name for n in _array_numbers(kernel)]
        self.uses: Counter[int] = Counter()  # how often each value is read in its scope
        # with a single store, no load can follow a store that it must precede
        self.loads_inside = len(kernel.stores) == 1 and not any(s.keeps for s in self.plan.passes)

    # ------------------------------------------------------------------ loops
    def kernel(self) -> None:
        """The whole nest."""
        with ExitStack() as nest:
            opened = self.mapping.enter(self, nest)
            for store in self.loops.stores:
                if store.initialize:
                    self.initialize(store, opened)
            if any(store.initialize for store in self.loops.stores):
                self.mapping.initialized(self)
            for dimension in range(self.loops.outer):
                if dimension not in opened:
                    nest.enter_context(self.dimension(dimension))
            self.row()

    def index(self, dimension: int) -> str:
        """The name of a dimension's index."""
        return _INDICES[dimension] if dimension < len(_INDICES) else f"i{dimension}"

    def bounds(self, dimension: int) -> tuple[str, str]:
        """The range of a dimension: the chunk's range for the first dimension of a chunked kernel."""
        if dimension or self.loops.chunks == 1:
            return "0", str(self.loops.sizes[dimension])
        return self.chunk_bound(0), self.chunk_bound(1)

    @contextmanager
    def dimension(self, dimension: int, reductions: Sequence[Reduction] = ()) -> Generator[None]:
        """A loop over a dimension; the mapping distributes row dimensions; it may only compute `reductions`."""
        if dimension < self.loops.outer:
            head = (self.dialect.loop(self.index(dimension), *self.bounds(dimension)),)
        else:
            head = self.mapping.row_dimension(self, dimension, reductions)
        with self.lines.block(*head):
            self.mapping.in_dimension(self, dimension)
            yield

    def chunk_bound(self, shift: int) -> str:
        """The start (shift 0) or end (1) of a chunk's range of dimension 0."""
        number = "(chunk + 1)" if shift else "chunk"
        return self.dialect.quotient(f"{self.loops.sizes[0]} * {number}", self.loops.chunks)

    def initialize(self, store: Store, opened: Collection[int]) -> None:
        """Set the elements that an accumulating store reaches from here to its reducer's neutral element."""
        assert store.accumulate is not None
        dtype = compute_dtype(self.loops.instructions[store.value].dtype)
        with ExitStack() as nest:
            for dimension, stride in enumerate(store.access.strides):
                if stride and dimension not in opened:
                    nest.enter_context(self.dimension(dimension))
            start = self.dialect.constant(dtype, neutral(store.accumulate, self.stored_dtype(store)))
            self.write(store, start, self.place(store.access), dtype)

    def place(self, access: Access, extra: str | None = None) -> str:
        """The position of an access, plus `extra` elements."""
        terms = [(stride, self.index(d)) for d, stride in enumerate(access.strides) if stride]
        if access.chunk_stride and self.loops.chunks > 1:
            terms.append((access.chunk_stride, "chunk"))
        if extra is not None:
            terms.append((1, extra))
        return self.dialect.position(terms, access.offset)

    # ------------------------------------------------------------------ rows
    def row(self) -> None:
        """For one outer index: each sweep over the row, with the row-level code in between."""
        known: dict[int, str] = {}
        for phase, sweep in enumerate(self.plan.passes):
            self.uses = self.row_uses(phase)
            for number in self.plan.row_values[phase]:
                self.value(number, known)
            if not sweep.empty:
                self.sweep(sweep, known)
            if self.plan.row_stores[phase]:
                with self.mapping.once(self):
                    for number in self.plan.row_stores[phase]:
                        self.store(number, known)

    def row_uses(self, phase: int) -> Counter[int]:
        """How often row-level values are read in a phase and by its stores; uses elsewhere count as several."""
        own = self.plan.row_values[phase]
        stores = [self.loops.stores[n] for n in self.plan.row_stores[phase]]
        empty = self.plan.passes[phase].empty
        uses = self.read_by(own, stores if empty else [])
        everywhere = self.read_by(range(len(self.loops.instructions)), self.loops.stores)
        return Counter({n: uses[n] if uses[n] == everywhere[n] else 2 for n in own})

    def sweep_uses(self, sweep: RowPass) -> Counter[int]:
        """How often values are read in a sweep."""
        recalled = dict(sweep.recalls)
        computed = [n for n in sweep.values if n not in recalled]
        uses = self.read_by((*computed, *sweep.reduces), [self.loops.stores[n] for n in sweep.stores])
        return uses + Counter(value for value, _ in sweep.keeps)

    def read_by(self, instructions: Iterable[int], stores: Iterable[Store]) -> Counter[int]:
        """How often some instructions and stores read each value."""
        uses = Counter(a for n in instructions for a in self.loops.instructions[n].args)
        for store in stores:
            uses.update(n for n in (store.value, store.address, store.guard) if n is not None)
            # a combined value is written once, but a guard and an address may be written twice
            uses.update(n for n in (store.address,) if n is not None and store.accumulate)
        return uses

    def sweep(self, sweep: RowPass, known: dict[int, str]) -> None:
        """One pass over the row: the computations, combinations and stores for each element."""
        instructions, inner = self.loops.instructions, dict(known)
        kept, recalled = dict(sweep.keeps), dict(sweep.recalls)
        self.uses = self.sweep_uses(sweep)
        running = [n for n in sweep.values if instructions[n].op == "cumulate" and n not in recalled]
        for number in (*sweep.reduces, *running):
            instruction = instructions[number]
            start = self.dialect.constant(instruction.dtype, neutral(instruction.attribute, instruction.dtype))
            begin = self.dialect.assign(f"r{number}", start)
            if number not in known:
                begin = self.dialect.variable(f"r{number}", instruction.dtype, start)
            self.lines.add(begin)
        last = len(self.loops.sizes) - 1
        reductions = () if running or sweep.stores or sweep.keeps else [self.reduction(n) for n in sweep.reduces]
        with ExitStack() as nest:
            for dimension in range(self.loops.outer, last + 1):
                nest.enter_context(self.dimension(dimension, reductions if dimension == last else ()))
            for number in sweep.values:
                if number in recalled:
                    text = self.mapping.parked(self, number, self.loops.stores[recalled[number]])
                    inner[number] = self.named(number, text)
                elif number in running:
                    # later elements change the running value: keep its current value
                    result = self.mapping.cumulated(self, number, inner[instructions[number].args[0]])
                    inner[number] = self.named(number, result)
                else:
                    self.value(number, inner)
                if number in kept:
                    inner[number] = self.named(number, inner[number])
                    self.mapping.park(self, number, self.loops.stores[kept[number]], inner[number])
            for number in sweep.reduces:
                self.mapping.reduced(self, number, inner[instructions[number].args[0]])
            for number in sweep.stores:
                self.store(number, inner)
        for number in sweep.reduces:
            self.mapping.combine_rows(self, number)
        for number in (*sweep.reduces, *running):
            known[number] = f"r{number}"

    def reduction(self, number: int) -> Reduction:
        """The variable of a reduction."""
        instruction = self.loops.instructions[number]
        return Reduction(f"r{number}", instruction.attribute, instruction.dtype)

    def combine(self, number: int, value: str) -> None:
        """Combine an element into the result of a reduction or cumulative operation."""
        instruction, name = self.loops.instructions[number], f"r{number}"
        step = self.dialect.reduce if instruction.op == "reduce" else self.dialect.combine
        text = step(instruction.attribute, instruction.dtype, name, value)
        self.lines.add(self.dialect.assign(name, text))

    # ------------------------------------------------------------------ values
    def named(self, number: int, expression: str) -> str:
        """A register for a value, unless the expression is one already."""
        name = f"v{number}"
        if expression != name:
            self.lines.add(self.dialect.declare(name, self.loops.instructions[number].dtype, expression))
        return name

    def value(self, number: int, values: dict[int, str]) -> None:
        """Write a value: as an expression if it is short and read once, in the same scope."""
        instruction = self.loops.instructions[number]
        expression = self.expression(instruction, [values[a] for a in instruction.args])
        held = self.mapping.held(self, number, expression) if instruction.op == "load" else None
        if held is not None:
            values[number] = held
            return
        free = instruction.op in ("constant", "index", "reduce", "cumulate")
        inside = self.uses[number] == 1 and (instruction.op != "load" or self.loads_inside)
        short = len(expression) <= _LONGEST_EXPRESSION
        values[number] = expression if free or (inside and short) else self.named(number, expression)

    def expression(self, instruction: Instruction, arguments: Sequence[str]) -> str:
        """An instruction's value."""
        op, attribute = instruction.op, instruction.attribute
        if op == "constant":
            number = np.frombuffer(attribute, instruction.dtype.newbyteorder("<"))[0]
            return self.dialect.constant(instruction.dtype, number.astype(compute_dtype(instruction.dtype)).item())
        if op == "index":
            return self.dialect.index(self.index(attribute))
        if op in ("reduce", "cumulate"):  # in a kernel without row dimensions
            return arguments[0]
        if op == "load":
            dtype = self.loops.operands[attribute.operand].dtype
            return self.dialect.load(dtype, *self.mapping.memory(self, attribute, arguments[0] if arguments else None))
        dtypes = [self.register_dtype(a) for a in instruction.args]
        return self.dialect.operation(instruction, arguments, dtypes)

    def register_dtype(self, number: int) -> np.dtype:
        """The dtype of a value in its register."""
        return self.loops.instructions[number].dtype

    # ------------------------------------------------------------------ stores
    def array(self, store: Store) -> str:
        """The array that a store writes to."""
        return self.arrays[store.access.operand]

    def stored_dtype(self, store: Store) -> np.dtype:
        """The dtype of the elements that a store writes to."""
        return self.loops.operands[store.access.operand].dtype

    def write(
        self, store: Store, value: str, place: str, dtype: np.dtype | None = None, array: str | None = None
    ) -> None:
        """Write a register of `dtype`, by default the value's dtype, to an array, by default the store's."""
        dtype = self.loops.instructions[store.value].dtype if dtype is None else dtype
        self.lines.add(self.dialect.store(self.stored_dtype(store), dtype, array or self.array(store), place, value))

    def store(self, number: int, values: dict[int, str]) -> None:
        """Write a value, or combine it with the value in memory, if the guard is true."""
        store = self.loops.stores[number]
        with ExitStack() as nest:
            if store.guard is not None:
                nest.enter_context(self.lines.block(self.dialect.condition(values[store.guard])))
            extra = None if store.address is None else values[store.address]
            array, place = self.mapping.memory(self, store.access, extra)
            if store.accumulate is None:
                self.mapping.overwrite(self, store, array, place, values[store.value])
            else:
                self.mapping.accumulate(self, store, place, values[store.value])

    def accumulate(self, store: Store, place: str, value: str) -> None:
        """Combine a value with the value in memory."""
        assert store.accumulate is not None
        held = self.dialect.load(self.stored_dtype(store), self.array(store), place)
        given = self.loops.instructions[store.value].dtype
        dtype = compute_dtype(given)
        combined = self.dialect.combine(store.accumulate, dtype, held, self.widened(given, value))
        self.write(store, combined, place, dtype)

    def widened(self, dtype: np.dtype, value: str) -> str:
        """Convert a value to its compute dtype."""
        return self.dialect.widened(dtype, value) if dtype in FLOAT_FORMATS else value
