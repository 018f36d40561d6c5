"""The kernels of a plan as terms of a device's costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from rlx.backends.base import Backend
from rlx.code.cost import Counts
from rlx.ir.kernels import (
    Await,
    Branch,
    Contract,
    Instruction,
    Kernel,
    Library,
    Loops,
    Operand,
    Plan,
    RowTiles,
    Scan,
    Sort,
    While,
)
from rlx.ir.scalar import ALPHABET
from rlx.ir.work import kernel_work
from rlx.placement.rates import Term

__all__ = ["Terms", "terms_of"]

_SMALL = 8  # rows and columns below which products do not reach their rate
_FUNCTION = 10  # the cost of a function such as tanh in the alphabet of scalar operations
_SINES = frozenset(("sin", "cos", "tan"))  # their arguments are reduced first, in a table or with branches
_DIVISION = 2  # the cost of a division there
_LINE = 16  # elements of a cache line
_UNKNOWN = 10.0  # operations for each byte of a routine whose count is unknown


class Terms(NamedTuple):
    """The terms of a plan; whether they are exact; and why its kernels need the host although it is another device."""

    terms: tuple[Term, ...]
    exact: bool
    blockers: tuple[str, ...]


def terms_of(plan: Plan, backend: Backend, turns: float = 1.0) -> Terms:
    """What a device does for one call of a plan.

    A loop of unknown length counts as `turns` steps, and a branch as its most expensive alternative.

    >>> import rlx
    >>> from rlx.backends import backend_named
    >>> plan = rlx.inspect(lambda x: x @ x)(rlx.ShapeDtypeStruct((100, 100), "float32")).plan
    >>> terms_of(plan, backend_named("cpu")).terms[0].counts.products
    {'product': 2000000.0}
    """
    parts = list(_terms(plan, backend, 1.0, "launch", turns))
    exact = all(kernel_work(kernel).exact for kernel in plan.kernels)
    return Terms(_merged(parts), exact, tuple(dict.fromkeys(_blockers(plan, backend))))


def _terms(plan: Plan, backend: Backend, times: float, wait: str, turns: float) -> Iterator[Term]:
    for kernel in plan.kernels:
        match kernel:
            case Scan():
                yield from _terms(kernel.body, backend, times * kernel.length, _step(kernel, backend), turns)
            case While():
                for inner in (kernel.condition, kernel.body):
                    yield from _terms(inner, backend, times * turns, _step(kernel, backend), turns)
            case Branch():
                choices = [list(_terms(inner, backend, times, wait, turns)) for inner in kernel.branches]
                yield from max(choices, key=lambda terms: sum(t.counts.moved for t in terms), default=[])
            case Await():
                pass
            case _:
                on_host = backend.host_reason(kernel) is not None
                yield Term(_counts(kernel), times, "host" if on_host else wait)


def _step(kernel: Kernel, backend: Backend) -> str:
    """How kernels in a loop are started: a step of the device's own loop, or a launch of the host's."""
    return "step" if backend.host_reason(kernel) is None else "launch"


def _blockers(plan: Plan, backend: Backend) -> Iterator[str]:
    """Why kernels of a device with its own memory run on the host."""
    if backend.memory.host:
        return
    for kernel in plan.kernels:
        inner = (kernel.body,) if isinstance(kernel, Scan) else ()
        if isinstance(kernel, While):
            inner = (kernel.condition, kernel.body)
        if isinstance(kernel, Branch):
            inner = kernel.branches
        for part in inner:
            yield from _blockers(part, backend)
        reason = backend.host_reason(kernel)
        if reason is not None and not isinstance(kernel, (Scan, While, Branch)):
            yield reason


def _counts(kernel: Kernel) -> Counts:
    """The counts of one kernel, with products, sorts and routines as units."""
    match kernel:
        case Loops():
            return _nest(kernel)
        case Contract():
            return Counts(products=_product(kernel), moved=float(kernel_work(kernel).bytes))
        case RowTiles():
            return replace(_sum(map(_counts, kernel.kernels)), moved=float(kernel_work(kernel).bytes))
        case Library() if kernel.meaning is not None:
            return replace(_sum(map(_counts, kernel.meaning.kernels)), moved=float(kernel_work(kernel).bytes))
        case Library():
            work = kernel_work(kernel)
            operations = work.flops if work.exact else _UNKNOWN * work.bytes
            return Counts(products={f"routine.{kernel.routine}": operations}, moved=float(work.bytes))
        case Sort():
            number = len(kernel.outputs) * kernel.rows * kernel.length * math.log2(max(2, kernel.length))
            return Counts(products={"sort": number}, moved=float(kernel_work(kernel).bytes))
    return Counts(moved=float(kernel_work(kernel).bytes))


def _nest(kernel: Loops) -> Counts:
    """The counts of a nest; numbers of eight bytes take two operations, as half as many fit in a register.

    An instruction counts for the dimensions that its value depends on, and stores and loads are operations.
    """
    varies = _dimensions(kernel)
    width = max((i.dtype.itemsize for i in kernel.instructions if i.dtype.kind in "fiu"), default=4)
    operations = functions = 0.0
    units: dict[str, float] = {}
    for i, over in zip(kernel.instructions, varies, strict=True):
        times = float(_points(kernel, over))
        known = ALPHABET.get(i.op)
        if i.op in _SINES:
            units["sine"] = units.get("sine", 0.0) + times
        elif known is not None and (known.transcendental or known.cost > _DIVISION):
            functions += times * known.cost / _FUNCTION
        elif i.op not in ("constant", "index"):
            operations += times
        unit = _unit(i)
        if unit:
            inner = range(len(kernel.sizes))
            taken = _points(kernel, [d for d in inner if d in varies[i.args[0]]]) if unit == "gather" else times
            units[unit] = units.get(unit, 0.0) + taken
    scattered = sum(store.address is not None for store in kernel.stores) * math.prod(kernel.sizes)
    for name, number in (("scatter", scattered), ("strided", _strided(kernel))):
        if number:
            units[name] = float(number)
    operations += len(kernel.stores) * math.prod(kernel.sizes)
    factor = max(1.0, width / 4)
    return Counts(factor * operations, factor * functions, 0.0, units, float(kernel_work(kernel).bytes))


def _unit(i: Instruction) -> str:
    """The class of an instruction whose cost is not one of an operation or a function; "" for others."""
    match i.op:
        case "cumulate":
            return "serial"
        case "load" if i.args:
            return "gather"
        case "reduce":
            return "extremum" if i.attribute in ("min", "max") else "reduced"
        case "div" | "sqrt" | "rsqrt":
            return "division"
    return ""


def _points(kernel: Loops, dimensions: Iterable[int]) -> int:
    """The number of iterations of some dimensions of a nest."""
    return math.prod(kernel.sizes[d] for d in dimensions)


def _dimensions(kernel: Loops) -> list[set[int]]:
    """The dimensions that the value of each instruction depends on. A reduction counts for all that it takes."""
    found: list[set[int]] = []
    for i in kernel.instructions:
        own = {i.attribute} if i.op == "index" else set()
        if i.op == "load":
            own = {d for d, stride in enumerate(i.attribute.strides) if stride}
        above = (
            {d for d in found[a] if d < kernel.outer} if kernel.instructions[a].op == "reduce" else found[a]
            for a in i.args
        )  # fmt: skip
        found.append(own.union(*above))
    return found


def _strided(kernel: Loops) -> int:
    """The elements that a nest moves between rows and columns, as transpositions do; none if it combines elements."""
    if any(i.op in ("reduce", "cumulate") for i in kernel.instructions) or any(s.accumulate for s in kernel.stores):
        return 0
    long = [d for d, size in enumerate(kernel.sizes) if size >= _LINE]
    moving = [({d: abs(a.strides[d]) for d in long if a.strides[d]}) for a in kernel.accesses]
    fastest = {min(strides, key=strides.__getitem__) for strides in moving if len(strides) > 1}
    return math.prod(kernel.sizes) if len(fastest) > 1 else 0


def _product(kernel: Contract) -> dict[str, float]:
    """The operations of a product, by its type; few rows or columns cost as much as some more."""
    bits = kernel.lhs.buffer.dtype.itemsize // (2 if kernel.lhs.buffer.dtype.kind == "c" else 1)
    least = max(1, _least(kernel.out))
    unit = "product64" if bits == 8 else "product16" if bits < 4 else "thin" if least < _SMALL else "product"
    return {unit: kernel_work(kernel).flops * _SMALL / min(_SMALL, least)}


def _least(out: Operand) -> int:
    """The smaller one of a result's rows and columns."""
    return min((n for n in out.shape[-2:]), default=1)


def _sum(counts: Iterable[Counts]) -> Counts:
    operations = functions = moved = 0.0
    products: dict[str, float] = {}
    for c in counts:
        operations, functions, moved = operations + c.operations, functions + c.functions, moved + c.moved
        for unit, number in c.products.items():
            products[unit] = products.get(unit, 0.0) + number
    return Counts(operations, functions, 0.0, products, moved)


def _merged(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Equal kernels as one term."""
    found: dict[tuple[object, ...], Term] = {}
    for t in terms:
        c = t.counts
        key = (c.operations, c.functions, tuple(sorted(c.products.items())), c.moved, t.wait)
        found[key] = t._replace(times=t.times + (found[key].times if key in found else 0.0))
    return tuple(found.values())
