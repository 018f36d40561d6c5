"""The cost of kernel code: counts of what it does, and the time that a table of a device's rates gives for them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import mul
from typing import NamedTuple

from rlx.code.tree import (
    LOOSE,
    Apply,
    Array,
    AsyncCopy,
    AtomicUpdate,
    Barrier,
    Block,
    Coordinate,
    Declare,
    Element,
    Expression,
    ForLoop,
    FragmentProduct,
    If,
    Linear,
    LoadMatrix,
    Number,
    PackedPair,
    Product,
    Quotient,
    Register,
    Remainder,
    Shuffle,
    Statement,
    VectorRead,
    VectorWrite,
    View,
    Write,
    blocks_of,
    children,
    expressions_of,
    index,
    postorder,
)
from rlx.ir.kernels import Loops
from rlx.ir.scalar import ALPHABET
from rlx.ir.size_functions import greatest
from rlx.ir.work import Work

__all__ = [
    "PROCESSOR", "Cost", "Counts", "Rates", "cost_of", "counts_of_code", "counts_of_nest", "counts_of_work",
    "loop_iterations",
]  # fmt: skip


_WARP = 32
# instructions of a work-item on a GPU: of operations, and of statements; others are one, and functions _FUNCTION_SLOTS.
# Indices are often computed ahead of loops, or are parts of an instruction.
_SLOTS = {"bitcast": 0, "neg": 0, "cast": 1, "div": 10, "sqrt": 10, "rsqrt": 20, "max": 3, "min": 3, "fma": 1}
_FUNCTION_SLOTS, _INDEX_SLOTS = 12.0, 0.5
_STATEMENT_SLOTS: dict[type[Statement], float] = {
    FragmentProduct: 1.0, LoadMatrix: 1.0, AsyncCopy: 4.5, VectorRead: 2.0, VectorWrite: 2.0, Barrier: 2.0,
    AtomicUpdate: 4.0,
}  # fmt: skip
_ACCESS_SLOTS = {"device": 3.0, "group": 1.5, "item": 0.0}  # an access and its address
_EMULATED, _EMULATED_SLOTS = ("e4m3", "e5m2"), 8.0  # units whose numbers are converted first
_OPERATIONS = {"cast": 0, "bitcast": 0, "select": 0, "fma": 2}  # others are one


@dataclass(frozen=True, slots=True)
class Rates:
    """Published or measured rates of a device, per second.

    bandwidth: bytes of its memory. flops: operations. units: operations of its matrix units, by operand type.
    function, special: the operations that a function such as exp, and a special function, count as. queued: seconds
    of a launch that waits for others. barrier: seconds in which all groups of a launch wait for one another. slots:
    instructions of warps that are issued. atomics: updates of the device's memory that do not interfere.
    """

    name: str
    bandwidth: float
    flops: float
    queued: float = 0.0
    barrier: float = 0.0
    function: float = 20.0
    special: float = 20.0
    units: Mapping[str, float] = field(default_factory=dict)
    slots: float = math.inf
    atomics: float = math.inf

    def product_rate(self, unit: str) -> float:
        """Operations of matrix products per second, on a matrix unit or without one."""
        return self.units.get(unit, self.flops)


# one thread of a processor, roughly: arrays of a nest are in its caches
PROCESSOR = Rates("processor", math.inf, 25e9, 5e-9, function=10.0, special=2500.0)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a launch does: operations of numbers, functions, special functions, operations of matrix units by their
    names, bytes of the device's memory, barriers of all groups, instructions of warps, and atomic updates."""

    operations: float = 0.0
    functions: float = 0.0
    specials: float = 0.0
    products: Mapping[str, float] = field(default_factory=dict)
    moved: float = 0.0
    barriers: float = 0.0
    slots: float = 0.0
    atomics: float = 0.0


class Cost(NamedTuple):
    """Seconds of a launch, and its parts: the time of memory and of arithmetic, which overlap, and of waiting."""

    seconds: float
    memory: float
    arithmetic: float
    waiting: float


def cost_of(counts: Counts, rates: Rates, filled: float = 1.0) -> Cost:
    """The time of a launch that is queued behind others. filled: the share of the device that is busy.

    >>> cost_of(Counts(operations=2e12, moved=1e9), Rates("device", 1e12, 1e12, queued=1e-3))
    Cost(seconds=2.001, memory=0.001, arithmetic=2.0, waiting=0.001)
    """
    operations = counts.operations + rates.function * counts.functions + rates.special * counts.specials
    products = sum(number / rates.product_rate(unit) for unit, number in counts.products.items())
    memory = (counts.moved / rates.bandwidth + counts.atomics / rates.atomics) / filled
    arithmetic = max(operations / rates.flops + products, counts.slots / rates.slots) / filled
    waiting = rates.queued + counts.barriers * rates.barrier
    return Cost(greatest(memory, arithmetic) + waiting, memory, arithmetic, waiting)


# ------------------------------------------------------------------ counts without a tree
def counts_of_nest(kernel: Loops) -> Counts:
    """The counts of a nest, from its instructions; loads and stores are operations, as those of caches are."""
    times, ops = math.prod(kernel.sizes), [i.op for i in kernel.instructions if i.op not in ("constant", "index")]
    specials = ops.count("special")
    functions = sum(op in ALPHABET and ALPHABET[op].cost > 1 for op in ops) - specials
    moved = sum(store.address is None and store.accumulate is None for store in kernel.stores)
    apart = sum(i.op == "load" and bool(i.args) for i in kernel.instructions) + len(kernel.stores) - moved
    operations = len(ops) - functions - specials + moved
    return Counts(operations * times, (functions + apart) * times, specials * times)


def counts_of_work(work: Work, unit: str = "") -> Counts:
    """The counts of a kernel that a library runs, on a matrix unit or without one."""
    return Counts(functions=work.transcendentals, products={unit: work.flops}, moved=work.bytes)


# ------------------------------------------------------------------ counts of a tree
def counts_of_code(code: Block, groups: int, items: int, sizes: Mapping[str, int]) -> Counts:
    """The counts of a launch. sizes: bytes of its arrays.

    A byte counts once, however often it is read. Loops of unknown length count once, and conditions hold, but not
    negated ones. Instructions of warps are estimated from the tree (`_SLOTS`).

    >>> import numpy as np
    >>> from rlx.code.tree import Array, Number, Register
    >>> from rlx.code.writing import CodeWriter
    >>> code, i, x = CodeWriter(), Register(np.dtype(np.int32), "i"), Array("x", np.dtype(np.float32))
    >>> with code.loop(i, 0, 10):
    ...     code.write(x[i], Apply(x.dtype, "add", (x[i], Number(x.dtype, 1.0))))
    >>> counts = counts_of_code(code.block, 1, 1, {"x": 40})
    >>> counts.operations, counts.moved, counts.slots
    (10.0, 80.0, 2.1875)
    """
    count = _Count(groups, items)
    count.block(code, 1.0)
    extents = {**count.views, **sizes}
    moved = sum(min(n * groups * items, extents.get(name, math.inf)) for (name, _), n in count.moved.items())
    arithmetic = (count.numbers[name] * groups * items for name in ("operations", "functions", "specials"))
    products = {unit: number * groups * items for unit, number in count.products.items()}
    slots, atomics = count.slots * groups * items / _WARP, count.numbers["atomics"] * groups * items
    return Counts(*arithmetic, products, moved, count.barriers, slots, atomics)


def loop_iterations(code: Block, groups: int) -> float:
    """The iterations of all loops that the first work-item of a group runs, and one more for the end of each loop.

    >>> import numpy as np
    >>> from rlx.code.tree import Register
    >>> from rlx.code.writing import CodeWriter
    >>> code, i = CodeWriter(), Register(np.dtype(np.int32), "i")
    >>> with code.loop(i, 0, 10):
    ...     pass
    >>> loop_iterations(code.block, 1)
    11.0
    """
    count = _Count(groups, 1)
    count.block(code, 1.0)
    return count.turns


class _Count:
    """Counts of one work-item, and estimates of registers: the mean over work-items, groups and iterations."""

    def __init__(self, groups: int, items: int) -> None:
        self.coordinates = {"item": (items - 1) / 2, "group": (groups - 1) / 2, "groups": float(groups)}
        self.items = items
        self.registers: dict[str, float | None] = {}
        self.numbers: defaultdict[str, float] = defaultdict(float)
        self.products: defaultdict[str, float] = defaultdict(float)
        self.moved: defaultdict[tuple[str, bool], float] = defaultdict(float)  # bytes by array, read or written
        self.barriers = self.turns = self.slots = 0.0
        self.views: dict[str, int] = {}

    def block(self, block: Block, times: float) -> None:
        for statement in block:
            self.statement(statement, times)

    def statement(self, statement: Statement, times: float) -> None:
        for expression in expressions_of(statement):
            self.expression(expression, times)
        self.slots += self.slots_of(statement) * times
        match statement:
            case Declare(register, value, changes):
                self.registers[register.name] = None if changes else self.mean(value)
            case ForLoop():
                self.turns += times
                times *= self.iterations(statement)
                self.turns += times
                short = isinstance(statement.start, Number) and isinstance(statement.stop, Number)
                self.slots += 0.0 if short or statement.unrolled else 2 * times
            case If(Apply(_, "not")):
                return
            case If(_, body) if statement.otherwise:
                self.block(body, times)
                return
            case If(condition) if self.is_of_one(condition):
                times /= self.items
            case Write(array) | AtomicUpdate(_, array):
                self.numbers["atomics"] += isinstance(statement, AtomicUpdate) * times
                self.move(array, array.dtype.itemsize * times, written=True)
            case View(array):
                self.views[array.name] = array.nbytes
            case VectorRead(target, array):
                self.move(array, target.nbytes * times, written=False)
            case AsyncCopy(_, _, array, _, size):
                self.move(array, size * array.dtype.itemsize * times, written=False)
            case VectorWrite(array, _, source):
                self.move(array, source.nbytes * times, written=True)
            case FragmentProduct(unit, dtype):
                self.products[unit.name] += 2 * 16 * unit.columns * (32 // dtype.itemsize) / unit.items * times
            case Barrier("launch"):
                self.barriers += times
        for block in blocks_of(statement):
            self.block(block, times)

    def expression(self, expression: Expression, times: float) -> None:
        for part in postorder(expression):
            if isinstance(part, Element):
                self.move(part.array, part.array.dtype.itemsize * times, written=False)
            elif isinstance(part, Apply) and part.dtype.kind == "f":
                facts = ALPHABET[part.op]
                kind = "specials" if part.op == "special" else "functions" if facts.transcendental else "operations"
                self.numbers[kind] += _OPERATIONS.get(part.op, 1) * times

    def slots_of(self, statement: Statement) -> float:
        """Instructions of a statement, without blocks inside it."""
        own = _STATEMENT_SLOTS.get(type(statement), 0.0)
        if isinstance(statement, Write):
            return self.slots_below(statement.value) + _ACCESS_SLOTS[statement.array.space]
        if isinstance(statement, FragmentProduct) and statement.unit.name in _EMULATED:
            return own + _EMULATED_SLOTS
        return own or sum(map(self.slots_below, expressions_of(statement)))

    def slots_below(self, expression: Expression) -> float:
        """Instructions of an expression; those of positions belong to the access."""
        if isinstance(expression, Element):
            return _ACCESS_SLOTS[expression.array.space]
        return self.own_slots(expression) + sum(map(self.slots_below, children(expression)))

    def own_slots(self, part: Expression) -> float:
        """Instructions of an expression, without those below it."""
        match part:
            case Apply(dtype, op, _, attribute):
                if attribute is LOOSE or dtype.kind == "b":
                    return 1.0
                if dtype.kind == "f" and ALPHABET[op].transcendental:
                    return _FUNCTION_SLOTS
                return float(_SLOTS.get(op, 1)) if dtype.kind == "f" else 0.5
            case PackedPair():
                return 1.0
            case Shuffle():
                return 2.0
            case Linear() | Product() | Quotient() | Remainder():
                return _INDEX_SLOTS
        return 0.0

    def move(self, array: Array, nbytes: float, written: bool) -> None:
        if array.space == "device":
            self.moved[array.name, written] += nbytes

    def iterations(self, loop: ForLoop) -> float:
        """The mean number of iterations."""
        start, stop, step = (self.mean(index(bound)) for bound in (loop.start, loop.stop, loop.step))
        self.registers[loop.index.name] = None
        if start is None or stop is None or step is None:
            return 1.0
        self.registers[loop.index.name] = (start + stop) / 2
        if loop.advance != "add":
            return max(1.0, math.log(max(start, stop, 1) / max(min(start, stop), 1), max(step, 2)))
        whole = isinstance(loop.start, Number)
        return max(0.0, math.ceil((stop - start) / step) if whole else (stop - start + (step - 1) / 2) / step)

    def is_of_one(self, condition: Expression) -> bool:
        """Whether one work-item of a group enters."""
        match condition:
            case Apply(_, "eq", (Coordinate(_, "item"), Number())):
                return True
        return False

    def mean(self, expression: Expression) -> float | None:
        """The mean of an index; None if it depends on data."""
        match expression:
            case Number(_, value):
                return float(value)
            case Register(_, name):
                return self.registers.get(name)
            case Coordinate(_, of):
                return self.coordinates[of]
            case Linear(_, terms, offset):
                factors = [factor for factor, _ in terms]
                return self.mean_of(lambda *means: offset + sum(map(mul, factors, means)), *(t for _, t in terms))
            case Product(_, left, right):
                return self.mean_of(mul, left, right)
            case Quotient(_, dividend, divisor):
                return self.mean_of(lambda x, y: x / max(y, 1), dividend, index(divisor))
            case Remainder(_, dividend, divisor):
                return self.mean_of(lambda x, y: min(x, (y - 1) / 2), dividend, index(divisor))
            case Apply(_, "select", (Apply(_, "lt", below), *cases)) if [*below] == cases:
                return self.mean_of(min, *cases)
            case Apply(_, "select", (Apply(_, "gt", (left, Number())), chosen, Number(_, 0))) if left == chosen or (
                isinstance(chosen, Linear) and chosen.terms == ((1, left),)
            ):
                return self.mean_of(lambda mean: max(mean, 0.0), chosen)
            case Apply(_, "cast", (value,)):
                return self.mean(value)
        return None

    def mean_of(self, function: Callable[..., float], *parts: Expression) -> float | None:
        """A function of means."""
        means = [self.mean(part) for part in parts]
        return None if None in means else function(*means)
