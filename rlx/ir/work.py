"""The work of kernels: floating-point operations, and bytes that have to be read and written.

Everything here is counted from the kernel alone, for any backend. Bytes are compulsory traffic:
an element counts once, regardless of how often a kernel loads it. With a machine's peaks this gives
the roofline (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from rlx.ir.kernels import (
    Access,
    Await,
    Branch,
    Buffer,
    Callback,
    Collective,
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
    Store,
    While,
)
from rlx.ir.routine_work import routine_flops
from rlx.ir.scalar import ALPHABET

__all__ = ["Work", "certain_work", "kernel_work", "plan_work"]

_COMPLEX_FACTOR = 4  # a complex multiply-add is eight real operations instead of two


@dataclass(frozen=True, slots=True)
class Work:
    """The operations and memory traffic of a kernel.

    flops: additions, products and the like on floats; a fused multiply-add is two. transcendentals:
    calls of exp, sin, ... and of special functions, not among the flops. reads, writes: bytes.
    exact: False if the number of iterations, the branch, or the host's work is unknown. A loop of
    unknown length counts for one iteration, a branch for its most expensive alternative, the host for nothing.
    """

    flops: float = 0.0
    transcendentals: float = 0.0
    reads: int = 0
    writes: int = 0
    exact: bool = True

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.reads + self.writes

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte; 0 if nothing is computed."""
        operations = self.flops + self.transcendentals
        if not operations:
            return 0.0
        return operations / self.bytes if self.bytes else math.inf

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.reads + other.reads,
            self.writes + other.writes,
            self.exact and other.exact,
        )

    def repeated(self, times: int) -> Work:
        """The same work, done `times` times."""
        return Work(
            self.flops * times, self.transcendentals * times, self.reads * times, self.writes * times, self.exact
        )


def kernel_work(kernel: Kernel) -> Work:
    """The work of one run of a kernel, including its nested kernels.

    Bytes of loops and row tiles are those that come from outside and go there; the rest may stay in cache.

    >>> import rlx
    >>> plan = rlx.inspect(lambda x: x * 2.0 + 1.0)(rlx.ShapeDtypeStruct((1000,), "float32")).plan
    >>> kernel_work(plan.kernels[0])
    Work(flops=2000.0, transcendentals=0.0, reads=4000, writes=4000, exact=True)
    """
    match kernel:
        case Loops():
            return _loops_work(kernel)
        case Contract():
            return _contract_work(kernel)
        case Library() if kernel.meaning is not None:
            return _outside(kernel, plan_work(kernel.meaning))
        case Library():
            flops = routine_flops(kernel)
            return Work(flops or 0.0, 0.0, _read(kernel), _written(kernel), flops is not None)
        case RowTiles():
            return _outside(kernel, sum(map(kernel_work, kernel.kernels), Work()))
        case Scan():
            return _outside(kernel, plan_work(kernel.body).repeated(kernel.length))
        case While():
            turn = plan_work(kernel.condition) + plan_work(kernel.body)
            return _outside(kernel, turn, exact=False)
        case Branch():
            dearest = max(map(plan_work, kernel.branches), key=lambda work: (work.flops, work.bytes), default=Work())
            return _outside(kernel, dearest, exact=len(kernel.branches) == 1)
        case Await():
            return Work()
        case Sort() | Callback() | Collective():
            return Work(0.0, 0.0, _read(kernel), _written(kernel), isinstance(kernel, Sort))
    raise TypeError(f"no work is known of kernels of kind {type(kernel).__name__}")


def plan_work(plan: Plan) -> Work:
    """The work of all kernels of a plan, one after the other.

    >>> import rlx
    >>> plan = rlx.inspect(lambda x: x @ x)(rlx.ShapeDtypeStruct((10, 10), "float32")).plan
    >>> plan_work(plan).flops
    2000.0
    """
    return sum(map(kernel_work, plan.kernels), Work())


def _outside(kernel: Kernel, inside: Work, exact: bool = True) -> Work:
    """The operations of a kernel's nested kernels, with the bytes of the kernel itself."""
    exact = exact and inside.exact
    return Work(inside.flops, inside.transcendentals, _read(kernel), _written(kernel), exact)


def certain_work(kernel: Kernel) -> Work:
    """The part of a kernel's work that every run of it has to do, regardless of values.

    `kernel_work` is an upper bound: gathers may read one element many times, a loop may read only part of a
    buffer, and several operations may be one instruction. Only certain work proves how fast a machine
    is: operations of matrix products, and elements that are accessed one by one.

    >>> import rlx
    >>> x, i = rlx.ShapeDtypeStruct((1000,), "float32"), rlx.ShapeDtypeStruct((500,), "int32")
    >>> certain_work(rlx.inspect(lambda x, i: x[i] * 2.0)(x, i).plan.kernels[0])
    Work(flops=0.0, transcendentals=0.0, reads=2000, writes=2000, exact=True)
    """
    match kernel:
        case Contract():
            written = _certainly_viewed(kernel.out)
            reads = _certainly_viewed(kernel.lhs)
            if kernel.rhs.buffer is not kernel.lhs.buffer:
                reads += _certainly_viewed(kernel.rhs)
            return Work(_contract_work(kernel).flops, 0.0, reads, written)
        case RowTiles():
            return Work(sum(_contract_work(k).flops for k in kernel.kernels if isinstance(k, Contract)))
        case Loops():
            loads = [i.attribute for i in kernel.instructions if i.op == "load" and not i.args]
            stores = [s.access for s in kernel.stores if s.address is None and s.guard is None]
            return Work(0.0, 0.0, _certainly_moved(kernel, loads), _certainly_moved(kernel, stores))
    return Work()


# ------------------------------------------------------------------ bytes
def _distinct(strides: Sequence[int], sizes: Sequence[int]) -> int:
    """The least number of elements that an index map reaches."""
    if 0 in sizes:
        return 0
    count, reach = 1, 0
    for stride, size in sorted((abs(stride), size) for stride, size in zip(strides, sizes, strict=True)):
        if stride > reach:
            count *= size
            reach += stride * (size - 1)
    return count


def _certainly_viewed(operand: Operand) -> int:
    return _distinct(operand.strides, operand.shape) * operand.buffer.dtype.itemsize


def _certainly_moved(kernel: Loops, accesses: Iterable[Access]) -> int:
    """Bytes that accesses reach at least: of those to one buffer, the one that reaches most."""
    found: dict[Buffer, int] = {}
    for access in accesses:
        buffer = kernel.operands[access.operand]
        elements = _distinct(access.strides, kernel.sizes)
        found[buffer] = max(found.get(buffer, 0), elements * buffer.nbytes // max(1, buffer.real_size))
    return sum(found.values())


def _viewed(operand: Operand) -> int:
    """Bytes that a strided view reaches."""
    places = math.prod(n for n, stride in zip(operand.shape, operand.strides, strict=True) if stride)
    elements = 0 if 0 in operand.shape else min(places, operand.buffer.size)
    return elements * operand.buffer.dtype.itemsize


def _moved(buffers: Iterable[Buffer]) -> int:
    return sum(buffer.nbytes for buffer in dict.fromkeys(buffers))


def _read(kernel: Kernel) -> int:
    if isinstance(kernel, (Library, Callback)):
        return sum(map(_viewed, dict.fromkeys(kernel.inputs)))
    return _moved(kernel.reads)


def _written(kernel: Kernel) -> int:
    if isinstance(kernel, (Library, Callback)):
        return sum(map(_viewed, dict.fromkeys(kernel.outputs)))
    return _moved(kernel.writes)


def _contract_work(kernel: Contract) -> Work:
    factor = _COMPLEX_FACTOR if kernel.out.buffer.dtype.kind == "c" else 1
    flops = 2.0 * factor * math.prod(kernel.out.shape) * kernel.depth
    written = _viewed(kernel.out)
    reads = sum(map(_viewed, dict.fromkeys((kernel.lhs, kernel.rhs)))) + (written if kernel.accumulate else 0)
    return Work(flops, 0.0, reads, written)


# ------------------------------------------------------------------ loops
class _AccessReach(NamedTuple):
    """Elements of an operand that an access reaches: their greatest number, and their bounds."""

    count: int
    first: int
    last: int


def _loops_work(kernel: Loops) -> Work:
    varying = _varying(kernel)
    flops = transcendentals = 0.0
    for instruction, dimensions in zip(kernel.instructions, varying, strict=True):
        if instruction.dtype.kind != "f":
            continue
        operation = ALPHABET.get(instruction.op)
        if instruction.op in ("reduce", "cumulate"):
            row = range(kernel.outer, len(kernel.sizes))
            flops += _trips(kernel, varying[instruction.args[0]] | set(row))
        elif operation is not None and operation.transcendental:
            transcendentals += _trips(kernel, dimensions)
        elif operation is not None:
            flops += float(operation.flops) * _trips(kernel, dimensions)
    for store in kernel.stores:
        if store.accumulate is not None and kernel.instructions[store.value].dtype.kind == "f":
            flops += _trips(kernel, _stored_over(kernel, store, varying))
    reads, writes = _loops_traffic(kernel, varying)
    return Work(flops, transcendentals, reads, writes)


def _trips(kernel: Loops, dimensions: Iterable[int]) -> int:
    return math.prod(kernel.sizes[d] for d in dimensions)


def _moving(access: Access) -> set[int]:
    return {d for d, stride in enumerate(access.strides) if stride}


def _varying(kernel: Loops) -> list[set[int]]:
    """For each instruction, the loop dimensions that its value depends on."""
    row = set(range(kernel.outer, len(kernel.sizes)))
    found: list[set[int]] = []
    for instruction in kernel.instructions:
        dimensions = set().union(*(found[a] for a in instruction.args))
        match instruction.op:
            case "index":
                dimensions.add(instruction.attribute)
            case "load":
                dimensions |= _moving(instruction.attribute)
            case "reduce":
                dimensions -= row
            case "cumulate":
                dimensions |= row
        found.append(dimensions)
    return found


def _stored_over(kernel: Loops, store: Store, varying: Sequence[set[int]]) -> set[int]:
    """The dimensions over which a store runs: whole rows, unless it is a value of the row."""
    used = [n for n in (store.value, store.address, store.guard) if n is not None]
    own = _moving(store.access).union(*(varying[n] for n in used))
    outer = set(range(kernel.outer))
    row = set(range(kernel.outer, len(kernel.sizes)))
    return outer | row if own & row else outer


def _loops_traffic(kernel: Loops, varying: Sequence[set[int]]) -> tuple[int, int]:
    """Bytes loaded and bytes stored."""
    loaded: dict[int, list[_AccessReach]] = {}
    stored: dict[int, list[_AccessReach]] = {}
    loads = {(i.attribute, i.args): n for n, i in enumerate(kernel.instructions) if i.op == "load"}
    for (access, _), number in loads.items():
        instruction: Instruction = kernel.instructions[number]
        touched = _scattered(kernel, access, varying[number]) if instruction.args else _dense(kernel, access)
        loaded.setdefault(access.operand, []).append(touched)
    for store in dict.fromkeys(kernel.stores):
        addressed = store.address is not None
        dimensions = _stored_over(kernel, store, varying)
        touched = _scattered(kernel, store.access, dimensions) if addressed else _dense(kernel, store.access)
        stored.setdefault(store.access.operand, []).append(touched)
        if store.accumulate is not None and not store.initialize:
            loaded.setdefault(store.access.operand, []).append(touched)
    reads = sum(_joined(kernel.operands[number], parts) for number, parts in loaded.items())
    writes = sum(_joined(kernel.operands[number], parts) for number, parts in stored.items())
    return reads, writes


def _dense(kernel: Loops, access: Access) -> _AccessReach:
    """The elements that an index map without an address reaches."""
    if 0 in kernel.sizes:
        return _AccessReach(0, 0, -1)
    reach = [(n - 1) * stride for n, stride in zip(kernel.sizes, access.strides, strict=True)]
    count = _trips(kernel, _moving(access))
    if access.chunk_stride:
        reach.append((kernel.chunks - 1) * access.chunk_stride)
        count *= kernel.chunks
    first = access.offset + sum(min(0, r) for r in reach)
    last = access.offset + sum(max(0, r) for r in reach)
    return _AccessReach(min(count, last - first + 1), first, last)


def _scattered(kernel: Loops, access: Access, dimensions: set[int]) -> _AccessReach:
    """The elements that a gather or scatter may reach: any in the operand, one per iteration."""
    size = kernel.operands[access.operand].real_size
    return _AccessReach(min(_trips(kernel, dimensions), size), 0, size - 1)


def _joined(buffer: Buffer, parts: Sequence[_AccessReach]) -> int:
    """Bytes that several accesses to one buffer reach together, overlaps counted once as far as known."""
    real = [part for part in parts if part.count]
    if not real:
        return 0
    span = max(part.last for part in real) - min(part.first for part in real) + 1
    size = buffer.real_size
    elements = min(reduce(lambda total, part: total + part.count, real, 0), span, size)
    return elements * buffer.nbytes // size
