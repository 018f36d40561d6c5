"""A plan as generated functions: one for each distinct kernel, one for each plan.

A plan's function takes the plan's inputs, its outputs, its constants, and the arena of its temporaries. Kernels that a
dialect cannot write (a sort, a library routine, a callback) are host steps: `spelled` tells which kernels, loops and
branches are entirely source code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from textwrap import wrap

import numpy as np

from rlx.backends.loops.decompose import contract_as_loops
from rlx.backends.loops.dialect import Dialect, Parameter
from rlx.backends.loops.lines import Lines
from rlx.backends.loops.names import identifier, unused_name
from rlx.backends.loops.printing import printed
from rlx.backends.loops.sorting import sort_code, sort_parameters, sorted_elements
from rlx.backends.loops.splats import splat_loops, splat_scratch
from rlx.backends.loops.walk import kernel_lines, kernel_parameters, runs_parallel
from rlx.code.inlining import inlined
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Callback,
    Collective,
    Contract,
    Instruction,
    Kernel,
    Library,
    Loops,
    Plan,
    RowTiles,
    Scan,
    Sort,
    While,
    constants_of,
    nested_plans,
)
from rlx.ir.splats import SPLAT_BLOCKS
from rlx.ir.types import is_complex
from rlx.storage import aligned

__all__ = [
    "GeneratedFunction",
    "SourceUnit",
    "arena_bytes",
    "buffers_beside",
    "function_of",
    "host_reason",
    "parts_of",
    "spelled",
    "unit_of",
    "unit_of_plan",
    "unspelled",
]

_BYTE, _BOOL, _NUMBER = np.dtype(np.uint8), np.dtype(bool), np.dtype(np.int32)
_COMMENT_WIDTH = 100
_STOPPED = "stopped"  # the flag that ends loops
# names of unnamed buffers
_PREFIXES = {"input": "x", "output": "out", "constant": "c", "temporary": "t"}


@dataclass(frozen=True, slots=True)
class GeneratedFunction:
    """A function of arrays that returns nothing: its source, including head and end."""

    name: str
    parameters: tuple[Parameter, ...]
    text: str


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """Functions in order of definition; the last one runs the unit's kernels.

    It takes the arrays of `buffers`, then an arena of `arena` bytes, then, if it `stops`, the flag that ends its loops.
    helpers: names of the helpers in use.
    """

    functions: tuple[GeneratedFunction, ...]
    buffers: tuple[Buffer, ...]
    arena: int
    helpers: tuple[str, ...]
    stops: bool = False

    @property
    def entry(self) -> GeneratedFunction:
        """The function that runs the whole unit."""
        return self.functions[-1]


def spelled(kernel: Kernel, dialect: Dialect) -> bool:
    """Whether the dialect can write a kernel and everything inside it."""
    if isinstance(kernel, (Callback, Collective)):
        return False
    if isinstance(kernel, Loops):
        return dialect.spells(kernel)
    if isinstance(kernel, Sort):
        return dialect.sorts(kernel)
    if isinstance(kernel, Library) and kernel.routine in SPLAT_BLOCKS:
        return True
    if isinstance(kernel, Library):
        return dialect.routine(kernel, ["a"] * len(kernel.inputs), ["b"] * len(kernel.outputs)) is not None
    inner = kernel.kernels if isinstance(kernel, RowTiles) else ()
    inner += tuple(k for plan in nested_plans(kernel) for k in plan.kernels)
    return all(spelled(k, dialect) for k in inner)


def unspelled(kernels: Iterable[Kernel], dialect: Dialect) -> tuple[str, ...]:
    """The names of the parts of kernels, and of their inner plans, that the dialect cannot write."""
    return tuple(dict.fromkeys(name for kernel in kernels for name in _unspelled(kernel, dialect)))


def _unspelled(kernel: Kernel, dialect: Dialect) -> Iterator[str]:
    if spelled(kernel, dialect):
        return
    match kernel:
        case Library():
            yield kernel.routine
        case Callback():
            yield f"callback to {getattr(kernel.function, '__name__', 'Python')}"
        case Collective():
            yield kernel.exchange.kind
        case Loops():
            special = [i.attribute for i in kernel.instructions if i.op == "special"]
            yield from map(str, [name for name in special if not dialect.has_function(name)] or special)
        case Sort():
            yield "sort of complex numbers" if any(is_complex(b.dtype) for b in kernel.inputs) else "sort"
        case _:
            plans = (plan.kernels for plan in nested_plans(kernel))
            for inside in (*plans, kernel.kernels if isinstance(kernel, RowTiles) else ()):
                yield from unspelled(inside, dialect)


def host_reason(kernel: Kernel, dialect: Dialect) -> str | None:
    """Why the host runs a kernel, or drives its loop; None if it is entirely source code.

    >>> from rlx.backends.numba.dialect import PythonDialect
    >>> from rlx.ir.kernels import Library
    >>> host_reason(Library("svd", (), ()), PythonDialect())
    'Numba has no svd'
    """
    missing = ", ".join(unspelled((kernel,), dialect))
    return f"{dialect.language} has no {missing}" if missing else None


def parts_of(plan: Plan, dialect: Callable[[], Dialect]) -> Iterator[SourceUnit | Kernel]:
    """A plan's kernels in order: source code in units, as long as possible; host kernels on their own."""
    gathered: list[Kernel] = []

    def unit() -> Iterator[SourceUnit]:
        if gathered:
            yield unit_of(plan, tuple(gathered), dialect(), identifier(plan.name, "plan"))
            gathered.clear()

    for kernel in plan.kernels:
        if spelled(kernel, dialect()):
            gathered.append(kernel)
        else:
            yield from unit()
            yield kernel
    yield from unit()


def function_of(kernel: Loops, dialect: Dialect) -> GeneratedFunction:
    """The function of one loop nest."""
    writer = _UnitWriter(dialect)
    body = kernel_lines(kernel, dialect)
    writer.define(identifier(kernel.label, "kernel"), kernel_parameters(kernel), body, runs_parallel(kernel))
    return writer.functions[-1]


def unit_of(plan: Plan, kernels: Sequence[Kernel], dialect: Dialect, name: str) -> SourceUnit:
    """The source that runs some of a plan's kernels, in order: a function of the arrays outside the arena."""
    touched = dict.fromkeys(b for k in kernels for b in (*k.reads, *k.writes) if b.role != "temporary")
    inside = (b for k in kernels for inner in nested_plans(k) for b in constants_of(inner))
    return _unit(plan, kernels, tuple(dict.fromkeys((*touched, *inside))), dialect, name)


def unit_of_plan(plan: Plan, dialect: Dialect, name: str) -> SourceUnit:
    """The source that runs a whole plan: a function of its inputs, its outputs, its constants, and an arena."""
    return _unit(plan, plan.kernels, (*plan.inputs, *plan.outputs, *constants_of(plan)), dialect, name)


def _unit(
    plan: Plan, kernels: Sequence[Kernel], buffers: tuple[Buffer, ...], dialect: Dialect, name: str
) -> SourceUnit:
    writer = _UnitWriter(dialect)
    writer.plan(plan, kernels, buffers, name)
    stops = dialect.stops and _has_steps(kernels)
    return SourceUnit(tuple(writer.functions), buffers, arena_bytes(plan), tuple(dialect.helpers), stops)


def _has_steps(kernels: Iterable[Kernel]) -> bool:
    """Whether any of the kernels, or of their inner kernels, loops over steps of plans."""
    return any(isinstance(k, (Scan, While)) or any(_has_steps(p.kernels) for p in nested_plans(k)) for k in kernels)


# ------------------------------------------------------------------ memory
def arena_bytes(plan: Plan) -> int:
    """Bytes for a plan's temporaries, followed by the memory of its loops, branches and row tiles."""
    return aligned(plan.arena) + max(map(_inner_bytes, plan.kernels), default=0)


def _inner_bytes(kernel: Kernel) -> int:
    """Bytes that a kernel needs after its plan's temporaries: of `buffers_beside`, then of inner plans' arenas."""
    inner = max(map(arena_bytes, nested_plans(kernel)), default=0)
    return inner + sum(aligned(b.nbytes) for b in buffers_beside(kernel))


def buffers_beside(kernel: Kernel) -> tuple[Buffer, ...]:
    """Buffers after a plan's temporaries while a kernel runs: a tile's buffers, a sort's elements, next carries; and
    the light in pixels of splats."""
    match kernel:
        case RowTiles():
            return kernel.local
        case Sort():
            return (sorted_elements(kernel),)
        case Library() if kernel.routine in SPLAT_BLOCKS:
            return splat_scratch(kernel)
        case Scan() | While():
            following = kernel.body.outputs[: len(kernel.initial)]
            own = tuple(b for n, b in enumerate(following) if n not in kernel.in_place)
            return own + (kernel.condition.outputs if isinstance(kernel, While) else ())
    return ()


# ------------------------------------------------------------------ names
@dataclass
class _Names:
    """Unique names of a function's arrays and variables, or of functions.

    others: names with another meaning in the same scope; known: collects all new names.
    """

    taken: set[str]
    others: Set[str]
    known: set[str]
    of: dict[Buffer, str] = field(default_factory=dict)
    numbers: Counter[str] = field(default_factory=Counter)

    def new(self, base: str) -> str:
        """An unused name."""
        name = unused_name(base, self.taken, self.others)
        self.taken.add(name)
        self.known.add(name)
        return name

    def add(self, buffer: Buffer, prefix: str) -> str:
        """A new name for a buffer: the buffer's name, or the prefix with a number."""
        name = identifier(buffer.name, prefix) if buffer.name else f"{prefix}{self.numbers[prefix]}"
        self.numbers[prefix] += not buffer.name
        self.of[buffer] = self.new(name)
        return self.of[buffer]


class _UnitWriter:
    """Collects the functions of a plan and of its inner plans; equal functions are written once."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.functions: list[GeneratedFunction] = []
        self._names: dict[tuple[object, ...], str] = {}
        self._function_names: set[str] = set()
        self._array_names: set[str] = set()
        self._taken = _Names(set(dialect.reserved), self._array_names, self._function_names)

    def define(self, label: str, parameters: Sequence[Parameter], body: Sequence[str], parallel: bool = False) -> str:
        """The name of the function with this body."""
        key = (tuple((p.name, p.dtype.name, p.written, p.apart) for p in parameters), tuple(body), parallel)
        if key not in self._names:
            name = self._names[key] = self._taken.new(label)
            *before, head = self.dialect.function(name, parameters, parallel)
            lines = Lines(self.dialect)
            lines.add(*before)
            statements = [line for line in body if not line.lstrip().startswith(self.dialect.comment_mark)]
            unused = [p.name for p in parameters if not _mentions(p.name, statements)]
            with lines.block(head):
                lines.add(*self.dialect.ignore(unused), *body)
            self.functions.append(GeneratedFunction(name, tuple(parameters), "\n".join(lines.text)))
        return self._names[key]

    def plan(self, plan: Plan, kernels: Sequence[Kernel], buffers: Sequence[Buffer], label: str) -> str:
        """The name of the function that runs kernels of a plan: it takes `buffers`, and an arena."""
        lines = Lines(self.dialect)
        names = _Names({"arena", _STOPPED, *self.dialect.reserved}, self._function_names, self._array_names)
        written = {b for k in kernels for b in k.writes}
        parameters = [Parameter(names.add(b, _PREFIXES[b.role]), b.dtype, b in written) for b in buffers]
        shown = ", ".join(f"{p.name}: {b.dtype.name}[{b.size}]" for p, b in zip(parameters, buffers, strict=True))
        if shown and not self.dialect.varies:
            lines.add(*(self.dialect.comment(line) for line in wrap(shown, _COMMENT_WIDTH)))
        for buffer in dict.fromkeys(b for k in kernels for b in (*k.reads, *k.writes)):
            if buffer not in names.of:
                name = names.add(buffer, "t")
                lines.add(self.dialect.temporary(name, buffer.dtype, buffer.size, plan.offsets[buffer]))
        place = _FunctionBody(self, plan, names, lines)
        for kernel in kernels:
            place.kernel(kernel)
        parameters.append(Parameter("arena", _BYTE, True))
        if self.dialect.stops and _has_steps(kernels):
            parameters.append(Parameter(_STOPPED, _BOOL, False))
        return self.define(identifier(label, "plan"), parameters, lines.text)


def _mentions(name: str, body: Sequence[str]) -> bool:
    word = re.compile(rf"\b{name}\b")
    return any(map(word.search, body))


@dataclass
class _FunctionBody:
    """The body of a plan's function under construction."""

    writer: _UnitWriter
    plan: Plan
    names: _Names
    lines: Lines

    @property
    def free(self) -> int:
        """The first byte after the plan's temporaries."""
        return self.dialect.rounded(self.plan.arena)

    @property
    def dialect(self) -> Dialect:
        """The language."""
        return self.writer.dialect

    def of(self, buffers: Sequence[Buffer]) -> list[str]:
        """Names of buffers."""
        return [self.names.of[b] for b in buffers]

    def kernel(self, kernel: Kernel) -> None:
        """The statements that run a kernel."""
        match kernel:
            case Loops():
                self.loop_nest(kernel)
            case Contract():
                self.contract(kernel)
            case RowTiles():
                self.beside(kernel)
                for inner in kernel.kernels:
                    self.kernel(inner)
            case Sort():
                lines = printed(inlined(sort_code(kernel)), self.dialect)
                name = self.writer.define(identifier(kernel.label, "sort"), sort_parameters(kernel), lines)
                arrays = (*self.of(kernel.inputs), *self.of(kernel.outputs), *self.beside(kernel).values())
                self.lines.add(self.dialect.call(name, arrays))
            case Library() if kernel.routine in SPLAT_BLOCKS:
                self.splats(kernel)
            case Library():
                inputs, outputs = (self.of([o.buffer for o in side]) for side in (kernel.inputs, kernel.outputs))
                self.text(self.dialect.routine(kernel, inputs, outputs), kernel)
            case Scan():
                self.scan(kernel)
            case While():
                self.while_loop(kernel)
            case Branch():
                self.branch(kernel)
            case _:
                raise AssertionError(f"{type(kernel).__name__} is a step of the host")

    def text(self, lines: tuple[str, ...] | None, kernel: Kernel) -> None:
        """Add statements from the dialect."""
        assert lines is not None, f"{kernel} is a step of the host"
        self.lines.add(*lines)

    def loop_nest(self, kernel: Loops) -> None:
        """A call of the kernel's function."""
        parameters = kernel_parameters(kernel)
        for parameter, buffer in zip(parameters, dict.fromkeys(kernel.operands), strict=True):
            parameter.apart = self.apart(buffer, kernel.operands)
        body = kernel_lines(kernel, self.dialect)
        name = self.writer.define(identifier(kernel.label, "kernel"), parameters, body, runs_parallel(kernel))
        self.lines.add(self.dialect.call(name, self.of(list(dict.fromkeys(kernel.operands)))))

    def splats(self, kernel: Library) -> None:
        """A call of a function that draws splats, or of their gradient."""
        parameters, code = splat_loops(kernel, tuple(self.beside(kernel)))
        for buffer, parameter in parameters.items():
            parameter.apart = self.apart(buffer, [*parameters])
        self.dialect.threads = True
        body = printed(inlined(code), self.dialect)
        self.dialect.threads = False
        name = self.writer.define(kernel.routine, [*parameters.values()], body, parallel=True)
        self.lines.add(self.dialect.call(name, self.of([*parameters])))

    def apart(self, buffer: Buffer, others: Sequence[Buffer]) -> bool:
        """Whether a buffer overlaps no other buffer; temporaries may, if one is written over another."""
        places = self.plan.offsets
        if buffer not in places:
            return True
        start, stop = places[buffer], places[buffer] + buffer.nbytes
        taken = ((places[b], places[b] + b.nbytes) for b in others if b is not buffer and b in places)
        return all(stop <= first or last <= start for first, last in taken)

    def contract(self, kernel: Contract) -> None:
        """The dialect's matrix product, or loops."""
        operands = self.of([kernel.lhs.buffer, kernel.rhs.buffer, kernel.out.buffer])
        lines = self.dialect.contract(kernel, *operands)
        if lines is None:
            self.loop_nest(contract_as_loops(kernel))
        else:
            self.lines.add(*lines)

    # ------------------------------------------------------------------ loops and branches
    def beside(self, kernel: Kernel) -> dict[Buffer, str]:
        """The arrays, after the plan's temporaries, that a kernel needs while it runs."""
        at, made = self.free, {}
        for buffer in buffers_beside(kernel):
            made[buffer] = self.names.add(buffer, "t")
            self.lines.add(self.dialect.temporary(made[buffer], buffer.dtype, buffer.size, at))
            at += self.dialect.rounded(buffer.nbytes)
        return made

    def run(self, plan: Plan, kernel: Kernel, arrays: Sequence[str]) -> None:
        """A call of the function of a plan inside a kernel, on its inputs and outputs."""
        constants = constants_of(plan)
        for buffer in constants:
            assert buffer in self.names.of, "constants of inner plans are parameters"
        name = self.writer.plan(plan, plan.kernels, (*plan.inputs, *plan.outputs, *constants), plan.name)
        start = self.free + sum(self.dialect.rounded(b.nbytes) for b in buffers_beside(kernel))
        arena = self.dialect.part("arena", str(start), max(arena_bytes(plan), 1))
        flag = [_STOPPED] if self.dialect.stops and _has_steps(plan.kernels) else []
        self.lines.add(self.dialect.call(name, [*arrays, *self.of(constants), arena, *flag]))

    def end_if_stopped(self) -> None:
        """The first statements of a step."""
        if self.dialect.stops:
            self.lines.add(*self.dialect.end_if(_STOPPED))

    def start_carries(self, kernel: Scan | While) -> tuple[list[str], list[str]]:
        """Names of the carries, which start in the final buffers, and of the next step's carries."""
        current: list[str] = []
        following: list[str] = []
        own = self.beside(kernel)
        for number, (initial, final) in enumerate(zip(kernel.initial, kernel.final, strict=True)):
            source, target = self.of((initial, final))
            if source != target:
                self.lines.add(self.dialect.copy(final.dtype, target, source, final.size))
            if number in kernel.in_place:
                current.append(target)
                following.append(target)
            else:
                current.append(self.names.new(f"carry{number}"))
                self.lines.add(self.dialect.alias(current[-1], final.dtype, target))
                following.append(own[kernel.body.outputs[number]])
        return current, following

    def step_carries(self, kernel: Scan | While, current: Sequence[str], following: Sequence[str]) -> None:
        """The next step's carries become the current carries."""
        for buffer, now, after in zip(kernel.final, current, following, strict=True):
            if now != after:
                self.lines.add(*self.dialect.exchange(now, after, buffer.dtype))

    def end_carries(self, kernel: Scan | While, current: Sequence[str]) -> None:
        """Copy the last carries to the final buffers, unless they are there."""
        for number, (buffer, now) in enumerate(zip(kernel.final, current, strict=True)):
            if number not in kernel.in_place:
                self.lines.add(self.dialect.copy(buffer.dtype, self.names.of[buffer], now, buffer.size))

    def slices(self, inside: Sequence[Buffer], outside: Sequence[Buffer], step: str) -> Iterator[str]:
        """A step's slices of the arrays that a scan reads or writes step by step."""
        for part, whole in zip(inside, outside, strict=True):
            start = self.dialect.position([(part.real_size, step)], 0)
            yield self.dialect.part(self.names.of[whole], start, part.real_size)

    def scan(self, kernel: Scan) -> None:
        """A loop over slices."""
        body, carries, constants = kernel.body, len(kernel.initial), len(kernel.constants)
        current, following = self.start_carries(kernel)
        step, size = self.names.new("step"), str(kernel.length)
        loop = self.dialect.backward_loop(step, size) if kernel.reverse else self.dialect.loop(step, "0", size)
        with self.lines.block(loop):
            self.end_if_stopped()
            xs = self.slices(body.inputs[constants + carries :], kernel.xs, step)
            ys = self.slices(body.outputs[carries:], kernel.ys, step)
            self.run(body, kernel, [*self.of(kernel.constants), *current, *xs, *following, *ys])
            self.step_carries(kernel, current, following)
        if kernel.length % 2 or self.dialect.varies:
            self.end_carries(kernel, current)

    def while_loop(self, kernel: While) -> None:
        """A loop that its condition ends."""
        current, following = self.start_carries(kernel)
        flag = self.names.of[kernel.condition.outputs[0]]
        with self.lines.block(self.dialect.endless_loop()):
            self.end_if_stopped()
            self.run(kernel.condition, kernel, [*self.of(kernel.condition_constants), *current, flag])
            holds = self.dialect.load(_BOOL, flag, self.dialect.position([], 0))
            ends = self.dialect.operation(Instruction("not", (0,), _BOOL), [holds], [_BOOL])
            with self.lines.block(self.dialect.condition(ends)):
                self.lines.add(self.dialect.leave())
            self.run(kernel.body, kernel, [*self.of(kernel.body_constants), *current, *following])
            self.step_carries(kernel, current, following)
        self.end_carries(kernel, current)

    def branch(self, kernel: Branch) -> None:
        """The branch with an index, which is clamped to the first and last branch."""
        arrays = self.of((*kernel.inputs, *kernel.outputs))
        number = self.names.new("branch")
        index = self.dialect.load(_NUMBER, self.names.of[kernel.index], self.dialect.position([], 0))
        self.lines.add(self.dialect.declare(number, _NUMBER, index))
        with ExitStack() as nest:
            for n, plan in enumerate(kernel.branches[:-1]):
                limit = self.dialect.constant(_NUMBER, n)
                test = self.dialect.operation(Instruction("le", (0, 1), _BOOL), [number, limit], [_NUMBER, _NUMBER])
                with self.lines.block(self.dialect.condition(test)):
                    self.run(plan, kernel, arrays)
                nest.enter_context(self.lines.block(self.dialect.otherwise()))
            self.run(kernel.branches[-1], kernel, arrays)
