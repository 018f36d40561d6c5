"""One walk over a Loops kernel, which makes its code: loops, sweeps over the row, loads and stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.row_schedule import RowPass, row_schedule
from rlx.code.cost import PROCESSOR, cost_of, counts_of_nest
from rlx.code.inlining import inlined
from rlx.code.passed import PassedBytes
from rlx.code.tree import Apply, Array, Block, Element, Expression, Linear, Number, Quotient, Register, index
from rlx.code.writing import CodeWriter
from rlx.ir.formats import FLOAT_FORMATS
from rlx.ir.kernels import Access, Instruction, Loops, Store
from rlx.ir.scalar import neutral
from rlx.ir.types import compute_dtype, element_dtype

__all__ = [
    "Mapping", "Reductions", "SequentialMapping", "Walk", "combined", "function_code", "kernel_code",
    "kernel_parameters", "runs_parallel", "widened",
]  # fmt: skip

_INDICES = "ijklmnpq"
_ARRAYS = "abcdefgh"
_PARALLEL_SECONDS = 5e-6  # less work does not justify threads
_INT64 = np.dtype(np.int64)

# registers into which a loop only combines elements, with their reducers
Reductions = tuple[tuple[Register, str], ...]


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
    seconds = cost_of(counts_of_nest(kernel), PROCESSOR).seconds
    return (kernel.parallel > 0 or kernel.chunks > 1) and seconds >= _PARALLEL_SECONDS


def combined(reducer: str, dtype: np.dtype, left: Expression, right: Expression) -> Apply:
    """left (reducer) right, in the compute dtype."""
    return Apply(compute_dtype(dtype), reducer, (left, right))


def widened(value: Expression) -> Expression:
    """A value in its compute dtype."""
    narrow = value.dtype in FLOAT_FORMATS
    return Apply(compute_dtype(value.dtype), "cast", (value,)) if narrow else value


class Mapping(ABC):
    """The distribution of iterations over the executors of a function: one thread, or the work-items of a device."""

    @abstractmethod
    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Open the chunk and the independent outer dimensions; -> the open dimensions."""

    def element(self, walk: Walk, access: Access, extra: Expression | None = None) -> Element:
        """The element of an access."""
        return walk.arrays[access.operand][walk.place(access, extra)]

    def loaded(self, walk: Walk, access: Access, extra: Expression | None = None) -> Expression:
        """The value that an access loads."""
        return self.element(walk, access, extra)

    def row_loop(self, walk: Walk, dimension: int, reductions: Reductions, nest: ExitStack) -> None:
        """Open a loop over a row dimension; if there are `reductions`, its body computes nothing else."""
        nest.enter_context(
            walk.code.loop(walk.index(dimension), *walk.bounds(dimension), reductions=reductions)
        )

    def held(self, walk: Walk, number: int, value: Expression) -> Expression | None:
        """The row element that this sweep or an earlier one has loaded; None: only in memory."""
        del walk, number, value
        return None

    def park(self, walk: Walk, number: int, store: Store, value: Expression) -> None:
        """Keep a value for a later sweep, at the target of a store."""
        del number
        walk.code.write(walk.arrays[store.access.operand][walk.place(store.access)], value)

    def parked(self, walk: Walk, number: int, store: Store) -> Expression:
        """A parked value."""
        del number
        return walk.arrays[store.access.operand][walk.place(store.access)]

    def combine_rows(self, walk: Walk, number: int) -> None:
        """Combine a reduction's partial results, one per executor of the row, into a result that all of them know."""
        del walk, number

    def reduced(self, walk: Walk, number: int, value: Expression) -> None:
        """Combine one more element into a reduction."""
        walk.combine(number, value)

    def cumulated(self, walk: Walk, number: int, value: Expression) -> Expression:
        """Combine one more element into a cumulative result; -> its value there."""
        walk.combine(number, value)
        return walk.result(number)

    def overwrite(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Write a value."""
        del store
        walk.code.write(element, value)

    def accumulate(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Combine a value with the value in memory."""
        walk.accumulate(store, element, value)

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
            nest.enter_context(walk.code.loop(walk.chunk, 0, walk.loops.chunks, threads=self.threads))
            return ()
        for dimension in range(walk.loops.parallel):
            threads = self.threads and dimension == 0
            nest.enter_context(walk.code.loop(walk.index(dimension), *walk.bounds(dimension), threads=threads))
        return range(walk.loops.parallel)


def kernel_code(kernel: Loops, mapping: Mapping, position: np.dtype = _INT64) -> Block:
    """The code of a kernel; `position`: the dtype of its indices."""
    code = CodeWriter()
    Walk(kernel, code, mapping, position).kernel()
    return code.block


def function_code(kernel: Loops) -> Block:
    """The code of a function of `kernel_parameters` that one thread or several run."""
    return inlined(kernel_code(kernel, SequentialMapping(runs_parallel(kernel))))


class Walk:
    """Makes the code of one kernel: the mapping distributes the iterations.

    arrays: the array of each operand. position: the dtype of indices.
    """

    def __init__(self, kernel: Loops, code: CodeWriter, mapping: Mapping, position: np.dtype = _INT64) -> None:
        self.loops = kernel
        self.code = code
        self.mapping = mapping
        self.position = position
        self.plan = row_schedule(kernel)
        parameters = kernel_parameters(kernel)
        self.arrays = [
            Array(parameters[n].name, element_dtype(parameters[n].dtype)) for n in _array_numbers(kernel)
        ]

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
                    self.open(dimension, nest)
            self.row()

    def register(self, name: str) -> Register:
        """An index."""
        return Register(self.position, name)

    def index(self, dimension: int) -> Register:
        """A dimension's index."""
        return self.register(_INDICES[dimension] if dimension < len(_INDICES) else f"i{dimension}")

    @property
    def chunk(self) -> Register:
        """The number of the chunk."""
        return self.register("chunk")

    def result(self, number: int) -> Register:
        """The register of a reduction or a cumulative operation."""
        return Register(self.loops.instructions[number].dtype, f"r{number}")

    def bounds(self, dimension: int) -> tuple[Expression, Expression]:
        """The range of a dimension: the chunk's range for the first dimension of a chunked kernel."""
        size = self.loops.sizes[dimension]
        if dimension or self.loops.chunks == 1:
            return index(0, self.position), index(size, self.position)
        starts = (self.chunk, self.chunk + 1)
        first, last = (Quotient(self.position, size * start, self.loops.chunks) for start in starts)
        return first, last

    def open(self, dimension: int, nest: ExitStack, reductions: Reductions = ()) -> None:
        """Open a loop over a dimension; the mapping distributes row dimensions; it may only compute `reductions`."""
        if dimension < self.loops.outer:
            nest.enter_context(self.code.loop(self.index(dimension), *self.bounds(dimension)))
        else:
            self.mapping.row_loop(self, dimension, reductions, nest)

    def initialize(self, store: Store, opened: Collection[int]) -> None:
        """Set the elements that an accumulating store reaches from here to its reducer's neutral element."""
        assert store.accumulate is not None
        array = self.arrays[store.access.operand]
        dtype = compute_dtype(self.loops.instructions[store.value].dtype)
        with ExitStack() as nest:
            for dimension, stride in enumerate(store.access.strides):
                if stride and dimension not in opened:
                    self.open(dimension, nest)
            start = Number(dtype, neutral(store.accumulate, self.loops.operands[store.access.operand].dtype))
            self.code.write(array[self.place(store.access)], start)

    def place(self, access: Access, extra: Expression | None = None) -> Linear:
        """The position of an access, plus `extra` elements."""
        terms: list[tuple[int, Expression]] = [
            (stride, self.index(d)) for d, stride in enumerate(access.strides) if stride
        ]
        if access.chunk_stride and self.loops.chunks > 1:
            terms.append((access.chunk_stride, self.chunk))
        if extra is not None:
            terms.append((1, extra))
        return Linear(self.position, tuple(terms), access.offset)

    # ------------------------------------------------------------------ rows
    def row(self) -> None:
        """For one outer index: each sweep over the row, with the row-level code in between."""
        known: dict[int, Expression] = {}
        for phase, sweep in enumerate(self.plan.passes):
            for number in self.plan.row_values[phase]:
                self.value(number, known)
            if not sweep.empty:
                self.sweep(sweep, known)
            if self.plan.row_stores[phase]:
                with self.mapping.once(self):
                    for number in self.plan.row_stores[phase]:
                        self.store(number, known)

    def sweep(self, sweep: RowPass, known: dict[int, Expression]) -> None:
        """One pass over the row: the computations, combinations and stores for each element."""
        instructions, inner = self.loops.instructions, dict(known)
        kept, recalled, running = dict(sweep.keeps), dict(sweep.recalls), self.running(sweep)
        for number in (*sweep.reduces, *running):
            self.start(number, known)
        with ExitStack() as nest:
            self.open_row(sweep, bool(running), nest)
            for number in sweep.values:
                if number in recalled:
                    value = self.mapping.parked(self, number, self.loops.stores[recalled[number]])
                    inner[number] = self.named(number, value)
                elif number in running:
                    # later elements change the running value: keep its current value
                    result = self.mapping.cumulated(self, number, inner[instructions[number].args[0]])
                    inner[number] = self.named(number, result)
                else:
                    self.value(number, inner)
                if number in kept:
                    self.mapping.park(self, number, self.loops.stores[kept[number]], inner[number])
            for number in sweep.reduces:
                self.mapping.reduced(self, number, inner[instructions[number].args[0]])
            for number in sweep.stores:
                self.store(number, inner)
        for number in sweep.reduces:
            self.mapping.combine_rows(self, number)
        for number in (*sweep.reduces, *running):
            known[number] = self.result(number)

    def running(self, sweep: RowPass) -> list[int]:
        """The cumulative operations that a sweep computes."""
        recalled = dict(sweep.recalls)
        return [n for n in sweep.values if self.loops.instructions[n].op == "cumulate" and n not in recalled]

    def neutral(self, number: int) -> Number:
        """The first value of a reduction or a cumulative operation."""
        instruction = self.loops.instructions[number]
        return Number(instruction.dtype, neutral(instruction.attribute, instruction.dtype))

    def start(self, number: int, known: dict[int, Expression]) -> None:
        """Set the result of a reduction or a cumulative operation to its first value."""
        if number in known:
            self.code.assign(self.result(number), self.neutral(number))
        else:
            self.code.declare(self.result(number).name, self.neutral(number), changes=True)

    def open_row(self, sweep: RowPass, running: bool, nest: ExitStack) -> None:
        """Open the loops over the row."""
        last = len(self.loops.sizes) - 1
        only_reduces = not (running or sweep.stores or sweep.keeps)
        reducers = {n: self.loops.instructions[n].attribute for n in sweep.reduces if only_reduces}
        reductions = tuple((self.result(n), reducer) for n, reducer in reducers.items())
        for dimension in range(self.loops.outer, last + 1):
            self.open(dimension, nest, reductions if dimension == last else ())

    def combine(self, number: int, value: Expression) -> None:
        """Combine an element into the result of a reduction or cumulative operation."""
        self.code.assign(self.result(number), self.combination(number, value))

    def combination(self, number: int, value: Expression) -> Apply:
        """The result of a reduction or cumulative operation, combined with an element."""
        instruction = self.loops.instructions[number]
        order = "reduction" if instruction.op == "reduce" else "ordered"
        return Apply(compute_dtype(instruction.dtype), instruction.attribute, (self.result(number), value), order)

    # ------------------------------------------------------------------ values
    def named(self, number: int, value: Expression) -> Register:
        """A register for a value."""
        return self.code.declare(f"v{number}", value, self.loops.instructions[number].dtype)

    def value(self, number: int, values: dict[int, Expression]) -> None:
        """Compute a value."""
        instruction = self.loops.instructions[number]
        value = self.expression(instruction, [values[a] for a in instruction.args])
        if number in self.plan.summed:  # not necessarily rounded
            value = replace(value, attribute="summed")
        held = self.mapping.held(self, number, value) if instruction.op == "load" else None
        if held is not None:
            values[number] = held
        elif instruction.op in ("constant", "index", "reduce", "cumulate"):
            values[number] = value
        else:
            values[number] = self.named(number, value)

    def expression(self, instruction: Instruction, arguments: Sequence[Expression]) -> Expression:
        """An instruction's value."""
        op, attribute = instruction.op, instruction.attribute
        if op == "constant":
            number = np.frombuffer(attribute, instruction.dtype.newbyteorder("<"))[0]
            value = number.astype(compute_dtype(instruction.dtype)).item()
            return Number(instruction.dtype, attribute.number(value) if isinstance(attribute, PassedBytes) else value)
        if op == "index":
            return Apply(_INT64, "cast", (self.index(attribute),))
        if op in ("reduce", "cumulate"):  # in a kernel without row dimensions
            return arguments[0]
        if op == "load":
            return self.mapping.loaded(self, attribute, arguments[0] if arguments else None)
        return Apply(instruction.dtype, op, tuple(arguments), attribute)

    # ------------------------------------------------------------------ stores
    def store(self, number: int, values: dict[int, Expression]) -> None:
        """Write a value, or combine it with the value in memory, if the guard is true."""
        store = self.loops.stores[number]
        with ExitStack() as nest:
            if store.guard is not None:
                nest.enter_context(self.code.when(values[store.guard]))
            extra = None if store.address is None else values[store.address]
            element = self.mapping.element(self, store.access, extra)
            if store.accumulate is None:
                self.mapping.overwrite(self, store, element, values[store.value])
            else:
                self.mapping.accumulate(self, store, element, values[store.value])

    def accumulate(self, store: Store, element: Element, value: Expression) -> None:
        """Combine a value with the value in memory."""
        assert store.accumulate is not None
        self.code.write(element, combined(store.accumulate, value.dtype, element, widened(value)))
