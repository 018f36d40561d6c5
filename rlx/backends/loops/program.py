"""A plan as generated functions: one for each distinct kernel, one for each plan.

A plan's function takes the plan's inputs, its outputs, its constants, and the arena of its temporaries. Kernels that a
dialect cannot write (a sort, a library routine, a callback) are host steps: `spelled` tells which kernels, loops and
branches are entirely source code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import NamedTuple

import numpy as np

from rlx.backends.loops.decompose import contract_as_loops
from rlx.backends.loops.dialect import Dialect, Parameter
from rlx.backends.loops.names import identifier, unused_name
from rlx.backends.loops.printing import enclosed, has_threads, printed
from rlx.backends.loops.sorting import sort_code, sort_parameters, sorted_elements
from rlx.backends.loops.splats import splat_loops, splat_scratch
from rlx.backends.loops.walk import function_code, kernel_parameters
from rlx.code.inlining import inlined
from rlx.code.tree import (
    Apply,
    Array,
    Block,
    Call,
    Copy,
    EndIfSet,
    Exchange,
    Expression,
    Leave,
    LibraryCall,
    Linear,
    Number,
    Part,
    Register,
    View,
    arrays_in,
)
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Callback,
    Collective,
    Contract,
    Kernel,
    Library,
    Loops,
    Operand,
    Plan,
    RowTiles,
    Scan,
    Sort,
    While,
    constants_of,
    nested_plans,
)
from rlx.ir.packed_sums import PACKED_SUM, sum_scratch
from rlx.ir.splats import SPLAT_BLOCKS
from rlx.ir.types import element_dtype, is_complex
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

_BYTE, _BOOL, _INT64 = np.dtype(np.uint8), np.dtype(bool), np.dtype(np.int64)
_COMMENT_WIDTH = 100
_ARENA = Array("arena", _BYTE)
_STOPPED = Array("stopped", _BOOL)  # the flag that ends loops
_BATCH = ("b0", "b1", "b2")  # indices of a batch of products
_LOCALS = {_ARENA.name, _STOPPED.name, *_BATCH}
# names of unnamed buffers
_PREFIXES = {"input": "x", "output": "out", "constant": "c", "temporary": "t"}


class LibraryLoops(NamedTuple):
    """How functions of plans compute a library routine.

    scratch: its memory besides its operands. loops: the arrays and the code of its function, given that memory; None:
    the language has a function.
    """

    scratch: Callable[[Library], tuple[Buffer, ...]]
    loops: Callable[[Library, Sequence[Buffer]], tuple[dict[Buffer, Parameter], Block]] | None = None


ROUTINES = {
    PACKED_SUM: LibraryLoops(sum_scratch),
    **dict.fromkeys(SPLAT_BLOCKS, LibraryLoops(splat_scratch, splat_loops)),
}


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
    if isinstance(kernel, Library):
        known = ROUTINES.get(kernel.routine)
        return dialect.has_routine(kernel) or (known is not None and known.loops is not None)
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
    writer.define(identifier(kernel.label, "kernel"), kernel_parameters(kernel), function_code(kernel))
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
        case Library() if kernel.routine in ROUTINES:
            return ROUTINES[kernel.routine].scratch(kernel)
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
    of: dict[Buffer, Array] = field(default_factory=dict)
    numbers: Counter[str] = field(default_factory=Counter)

    def new(self, base: str) -> str:
        """An unused name."""
        name = unused_name(base, self.taken, self.others)
        self.taken.add(name)
        self.known.add(name)
        return name

    def add(self, buffer: Buffer, prefix: str) -> Array:
        """A buffer as an array with a new name: the buffer's name, or the prefix with a number."""
        name = identifier(buffer.name, prefix) if buffer.name else f"{prefix}{self.numbers[prefix]}"
        self.numbers[prefix] += not buffer.name
        self.of[buffer] = Array(self.new(name), element_dtype(buffer.dtype), shape=(buffer.real_size,))
        return self.of[buffer]


class _UnitWriter:
    """Collects the functions of a plan and of its inner plans; equal functions are written once."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.functions: list[GeneratedFunction] = []
        self._names: dict[tuple[object, ...], str] = {}
        self._function_names: set[str] = set()
        self._array_names: set[str] = set()
        self._taken = _Names(_LOCALS | dialect.reserved, self._array_names, self._function_names)

    def define(self, label: str, parameters: Sequence[Parameter], body: Block, comments: Iterable[str] = ()) -> str:
        """The name of the function with this body."""
        dialect = self.dialect
        text = (*map(dialect.comment, comments), *printed(body, dialect))
        key = (tuple((p.name, p.dtype.name, p.written, p.apart) for p in parameters), text)
        if key not in self._names:
            name = self._names[key] = self._taken.new(label)
            used = {array.name for array, _ in arrays_in(body)}
            unused = [p.name for p in parameters if p.name not in used]
            head = dialect.function(name, parameters, has_threads(body))
            lines = enclosed(head, (*dialect.ignore(unused), *text), dialect)
            self.functions.append(GeneratedFunction(name, tuple(parameters), "\n".join(lines)))
        return self._names[key]

    def plan(self, plan: Plan, kernels: Sequence[Kernel], buffers: Sequence[Buffer], label: str) -> str:
        """The name of the function that runs kernels of a plan: it takes `buffers`, and an arena."""
        names = _Names(_LOCALS | self.dialect.reserved, self._function_names, self._array_names)
        written = {b for k in kernels for b in k.writes}
        parameters = [Parameter(names.add(b, _PREFIXES[b.role]).name, b.dtype, b in written) for b in buffers]
        shown = ", ".join(f"{p.name}: {b.dtype.name}[{b.size}]" for p, b in zip(parameters, buffers, strict=True))
        body = _FunctionBody(self, plan, names)
        for buffer in dict.fromkeys(b for k in kernels for b in (*k.reads, *k.writes)):
            if buffer not in names.of:
                body.temporary(buffer, plan.offsets[buffer])
        for kernel in kernels:
            body.kernel(kernel)
        parameters.append(Parameter(_ARENA.name, _BYTE, True))
        if self.dialect.stops and _has_steps(kernels):
            parameters.append(Parameter(_STOPPED.name, _BOOL, False))
        comments = [] if self.dialect.varies else wrap(shown, _COMMENT_WIDTH)
        return self.define(identifier(label, "plan"), parameters, body.code.block, comments)


def _loops_of(kernel: Kernel, scratch: Sequence[Buffer]) -> tuple[str, list[tuple[Buffer, Parameter]], Block]:
    """The function of a kernel that is loops: its label, the arrays that it takes and their parameters, its body."""
    match kernel:
        case Sort():
            buffers = (*kernel.inputs, *kernel.outputs, *scratch)
            code = inlined(sort_code(kernel))
            return identifier(kernel.label, "sort"), [*zip(buffers, sort_parameters(kernel), strict=True)], code
        case Library():
            loops = ROUTINES[kernel.routine].loops
            assert loops is not None, "a function of the language computes the routine"
            parameters, code = loops(kernel, scratch)
            return kernel.routine, [*parameters.items()], inlined(code)
        case Loops():
            pairs = zip(dict.fromkeys(kernel.operands), kernel_parameters(kernel), strict=True)
            return identifier(kernel.label, "kernel"), [*pairs], function_code(kernel)
    raise AssertionError(f"{type(kernel).__name__} is a step of the host")


class _FunctionBody:
    """The body of a plan's function under construction."""

    def __init__(self, writer: _UnitWriter, plan: Plan, names: _Names) -> None:
        self.writer, self.plan, self.names = writer, plan, names
        self.code, self.dialect = CodeWriter(), writer.dialect
        self.free = self.dialect.rounded(plan.arena)  # the first byte after the plan's temporaries

    def of(self, buffers: Sequence[Buffer]) -> list[Array]:
        """The arrays of buffers."""
        return [self.names.of[b] for b in buffers]

    def kernel(self, kernel: Kernel) -> None:
        """The statements that run a kernel."""
        match kernel:
            case Contract():
                self.contract(kernel)
            case RowTiles():
                self.beside(kernel)
                for inner in kernel.kernels:
                    self.kernel(inner)
            case Library() if ROUTINES[kernel.routine].loops is None:
                inputs, outputs = ([o.buffer for o in side] for side in (kernel.inputs, kernel.outputs))
                beside = self.beside(kernel).values()
                self.code.add(LibraryCall(kernel, (*self.of(inputs), *beside, *self.of(outputs))))
            case Scan():
                self.scan(kernel)
            case While():
                self.while_loop(kernel)
            case Branch():
                self.branch(kernel)
            case _:
                self.call(kernel)

    def call(self, kernel: Kernel) -> None:
        """A call of the kernel's function."""
        label, pairs, code = _loops_of(kernel, [*self.beside(kernel)])
        buffers = [buffer for buffer, _ in pairs]
        for buffer, parameter in pairs:
            parameter.apart = buffers.count(buffer) == 1 and self.apart(buffer, buffers)
        name = self.writer.define(label, [parameter for _, parameter in pairs], code)
        self.code.add(Call(name, tuple(self.of(buffers))))

    def apart(self, buffer: Buffer, others: Sequence[Buffer]) -> bool:
        """Whether a buffer overlaps no other buffer; temporaries may, if one is written over another."""
        places = self.plan.offsets
        if buffer not in places:
            return True
        start, stop = places[buffer], places[buffer] + buffer.nbytes
        taken = ((places[b], places[b] + b.nbytes) for b in others if b is not buffer and b in places)
        return all(stop <= first or last <= start for first, last in taken)

    def contract(self, kernel: Contract) -> None:
        """The language's matrix product, for each product of a batch; or loops."""
        if not self.dialect.multiplies(kernel):
            self.call(contract_as_loops(kernel))
            return
        with ExitStack() as nest:
            batch: list[Expression] = []
            for size, name in zip(kernel.out.shape[:-2], _BATCH, strict=False):
                index = Register(_INT64, name) if size != 1 else Number(_INT64, 0)
                batch.append(index)
                if isinstance(index, Register):
                    nest.enter_context(self.code.loop(index, 0, size))
            lhs, rhs, out = (self.matrix(operand, batch) for operand in (kernel.lhs, kernel.rhs, kernel.out))
            self.code.add(LibraryCall(kernel, (lhs, rhs, out)))

    def matrix(self, operand: Operand, batch: Sequence[Expression]) -> Part:
        """An operand of one product of a batch."""
        scale = 2 if is_complex(operand.buffer.dtype) else 1
        start: Expression = Number(_INT64, scale * operand.offset)
        for index, stride in zip(batch, operand.strides, strict=False):
            start = start + index * (scale * stride) if stride and isinstance(index, Register) else start
        last = sum((n - 1) * stride for n, stride in zip(operand.shape[-2:], operand.strides[-2:], strict=True))
        return Part(self.names.of[operand.buffer], start, scale * (last + 1))

    # ------------------------------------------------------------------ loops and branches
    def temporary(self, buffer: Buffer, offset: int) -> Array:
        """A buffer at a byte of the arena."""
        array = self.names.add(buffer, "t")
        self.code.add(View(array, _ARENA, Number(_INT64, offset)))
        return array

    def beside(self, kernel: Kernel) -> dict[Buffer, Array]:
        """The arrays, after the plan's temporaries, that a kernel needs while it runs."""
        at, made = self.free, {}
        for buffer in buffers_beside(kernel):
            made[buffer] = self.temporary(buffer, at)
            at += self.dialect.rounded(buffer.nbytes)
        return made

    def run(self, plan: Plan, kernel: Kernel, arrays: Iterable[Array | Part]) -> None:
        """A call of the function of a plan inside a kernel, on its inputs and outputs."""
        constants = constants_of(plan)
        for buffer in constants:
            assert buffer in self.names.of, "constants of inner plans are parameters"
        name = self.writer.plan(plan, plan.kernels, (*plan.inputs, *plan.outputs, *constants), plan.name)
        start = self.free + sum(self.dialect.rounded(b.nbytes) for b in buffers_beside(kernel))
        arena = Part(_ARENA, Number(_INT64, start), max(arena_bytes(plan), 1))
        flag = [_STOPPED] if self.dialect.stops and _has_steps(plan.kernels) else []
        self.code.add(Call(name, (*arrays, *self.of(constants), arena, *flag)))

    def end_if_stopped(self) -> None:
        """The first statement of a step."""
        if self.dialect.stops:
            self.code.add(EndIfSet(_STOPPED))

    def start_carries(self, kernel: Scan | While) -> tuple[list[Array], list[Array]]:
        """The carries, which start in the final buffers, and the next step's carries."""
        current: list[Array] = []
        following: list[Array] = []
        own = self.beside(kernel)
        for number, (initial, final) in enumerate(zip(kernel.initial, kernel.final, strict=True)):
            source, target = self.of((initial, final))
            if source != target:
                self.code.add(Copy(target, source))
            if number in kernel.in_place:
                current.append(target)
                following.append(target)
            else:
                current.append(replace(target, name=self.names.new(f"carry{number}")))
                self.code.add(View(current[-1], target, Number(_INT64, 0)))
                following.append(own[kernel.body.outputs[number]])
        return current, following

    def step_carries(self, current: Sequence[Array], following: Sequence[Array]) -> None:
        """The next step's carries become the current carries."""
        pairs = zip(current, following, strict=True)
        self.code.add(*(Exchange(now, after) for now, after in pairs if now != after))

    def end_carries(self, kernel: Scan | While, current: Sequence[Array]) -> None:
        """Copy the last carries to the final buffers, unless they are there."""
        for number, (final, now) in enumerate(zip(self.of(kernel.final), current, strict=True)):
            if number not in kernel.in_place:
                self.code.add(Copy(final, now))

    def slices(self, inside: Sequence[Buffer], outside: Sequence[Buffer], step: Register) -> Iterator[Part]:
        """A step's slices of the arrays that a scan reads or writes step by step."""
        for part, whole in zip(inside, self.of(outside), strict=True):
            yield Part(whole, Linear(_INT64, ((part.real_size, step),)), part.real_size)

    def scan(self, kernel: Scan) -> None:
        """A loop over slices."""
        body, carries, constants = kernel.body, len(kernel.initial), len(kernel.constants)
        current, following = self.start_carries(kernel)
        step = Register(_INT64, self.names.new("step"))
        with self.code.loop(step, 0, kernel.length, backward=kernel.reverse):
            self.end_if_stopped()
            xs = self.slices(body.inputs[constants + carries :], kernel.xs, step)
            ys = self.slices(body.outputs[carries:], kernel.ys, step)
            self.run(body, kernel, [*self.of(kernel.constants), *current, *xs, *following, *ys])
            self.step_carries(current, following)
        if kernel.length % 2 or self.dialect.varies:
            self.end_carries(kernel, current)

    def while_loop(self, kernel: While) -> None:
        """A loop that its condition ends."""
        current, following = self.start_carries(kernel)
        flag = self.names.of[kernel.condition.outputs[0]]
        with self.code.free_loop():
            self.end_if_stopped()
            self.run(kernel.condition, kernel, [*self.of(kernel.condition_constants), *current, flag])
            with self.code.when(Apply(_BOOL, "not", (flag[0],))):
                self.code.add(Leave())
            self.run(kernel.body, kernel, [*self.of(kernel.body_constants), *current, *following])
            self.step_carries(current, following)
        self.end_carries(kernel, current)

    def branch(self, kernel: Branch) -> None:
        """The branch with an index, which is clamped to the first and last branch."""
        arrays = self.of((*kernel.inputs, *kernel.outputs))
        number = self.code.declare(self.names.new("branch"), self.names.of[kernel.index][0])
        with ExitStack() as nest:
            for n, plan in enumerate(kernel.branches[:-1]):
                with self.code.when(number <= n):
                    self.run(plan, kernel, arrays)
                nest.enter_context(self.code.otherwise())
            self.run(kernel.branches[-1], kernel, arrays)
