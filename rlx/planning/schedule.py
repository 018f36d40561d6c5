"""Scheduling: nests become kernels, with chunks for parallel accumulation and few long loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Plan, Store, merged_numbers
from rlx.ir.options import ChunkLimits, LoweringOptions
from rlx.ir.size_functions import decided, root
from rlx.ir.types import is_narrow
from rlx.lowering.nest import Nest, Nests, NestStore, Step, collapse, store_roots
from rlx.lowering.nodes import INT64, IndexMap, Node, NodeTable, constant_value, postorder

__all__ = ["schedule", "split_chunks"]

_LABEL_NAMES = 4


def schedule(nests: Nests) -> Plan:
    """The plan of the nests, in order; its temporaries have no places yet."""
    kernels = tuple(_loops(nests, step) if isinstance(step, Nest) else step for step in nests.steps)
    return Plan(
        nests.inputs,
        nests.outputs,
        nests.buffers,
        kernels,
        barriers=nests.barriers,
        name=nests.name,
        report=nests.report,
        unplaced=nests.unplaced,
    )


# ---------------------------------------------------------------- chunks
def split_chunks(nests: Nests, options: LoweringOptions) -> Nests:
    """Cut nests that accumulate over their outermost dimension into chunks for parallel work.

    Each chunk accumulates into a part of a partial buffer, which a small nest combines. The
    number of chunks depends on sizes only, so that results do not depend on the machine. Long
    sums are cut in more chunks than threads need, because partial sums are more accurate.
    """
    steps: list[Step] = []
    buffers = list(nests.buffers)
    for step in nests.steps:
        step = _cut_first(nests.table, step, options) if isinstance(step, Nest) else step
        chunks = _chunk_count(options, step) if isinstance(step, Nest) else 1
        if chunks <= options.chunks.unrolled:
            chunks = decided(chunks)
        if chunks == 1 or not isinstance(step, Nest):
            steps.append(step)
            continue
        parts, partials = _chunked(nests.table, step, chunks, options.chunks)
        steps.extend(parts)
        buffers.extend(partials)
    return replace(nests, steps=tuple(steps), buffers=tuple(buffers))


def _cut_first(table: NodeTable, nest: Nest, options: LoweringOptions) -> Nest:
    """The nest with the outer dimension first that is cut in most chunks, unless row tiles need another order."""
    outer, rank = len(nest.sizes) - nest.row, len(nest.sizes)
    summed = [d for d in range(1, outer) if any(s.accumulate and not s.strides[d] for s in nest.stores)]
    if options.least_row_tiles or nest.chunks > 1 or nest.ordered or not summed:
        return nest
    forms = [nest]
    for dimension in summed:
        order = [dimension, *(d for d in range(rank) if d != dimension)]
        sizes, row, stores = collapse(table, nest.sizes, nest.stores, nest.row, order)
        forms.append(replace(nest, sizes=sizes, row=row, stores=stores))
    return max(forms, key=lambda form: _chunk_count(options, form))


def _accumulates_over_outermost(store: NestStore) -> bool:
    return bool(store.accumulate and store.initialize and not store.strides[0])


def _chunk_count(options: LoweringOptions, nest: Nest) -> int:
    if nest.total < options.chunk_elements or nest.chunks > 1 or len(nest.sizes) == nest.row:
        return 1
    if not options.chunks.counts:
        return 1
    kept = 0
    for store in nest.stores:
        if _accumulates_over_outermost(store):
            kept = max(kept, store.buffer.size)
        elif not store.strides[0] or store.address is not None or store.chunk_stride:
            return 1
    if not kept:
        return 1
    rows = nest.sizes[0]
    limits = options.chunks
    exact = min(rows // limits.exact_rows, root(rows)) if _adds(nest) else 1
    most = min(rows // limits.rows, nest.total // kept)
    if min(exact, most) > max(limits.counts):
        return max(1, min(exact, most) // limits.group * limits.group)
    return max((count for count in limits.counts if count <= most), default=1)


def _adds(nest: Nest) -> bool:
    """Whether the nest adds up floats, whose error grows with the number of terms added one after another."""
    return any(s.accumulate == "add" and s.value.dtype.kind == "f" for s in nest.stores)


def _chunked(table: NodeTable, nest: Nest, chunks: int, limits: ChunkLimits) -> tuple[list[Step], list[Buffer]]:
    """The nest in chunks, the nests that combine them, and the buffers of partial results."""
    partials: dict[Buffer, Buffer] = {}
    combined: list[NestStore] = []
    stores = list(nest.stores)
    for position, store in enumerate(stores):
        if not _accumulates_over_outermost(store):
            continue
        buffer = store.buffer
        if buffer not in partials:
            partials[buffer] = Buffer(buffer.dtype, chunks * buffer.size)
        step = buffer.real_size
        stores[position] = replace(store, buffer=partials[buffer], chunk_stride=step)
        if _part(store) not in [_part(s) for s in combined]:
            combined.append(store)
    cut = replace(nest, stores=stores, chunks=chunks, frozen=True)
    return [cut, *_combinations(table, nest, combined, partials, chunks, limits)], list(partials.values())


def _combinations(
    table: NodeTable,
    nest: Nest,
    combined: Sequence[NestStore],
    partials: dict[Buffer, Buffer],
    chunks: int,
    limits: ChunkLimits,
) -> list[Nest]:
    """Nests that combine the chunks of accumulations, in their order; one for each size."""
    few = chunks <= limits.unrolled
    groups: dict[int, list[NestStore]] = {}
    for store in combined:
        combine, terms = (_combination, chunks) if few else (_reduction, limits.group)
        result = combine(table, store, partials[store.buffer], terms)
        groups.setdefault(store.buffer.size, []).append(result)
    label = ("combine", *nest.label)
    nests = []
    for size, group in groups.items():
        sizes = (size, chunks // limits.group) if not few else (size,) if size > 1 else ()
        sizes, row, group = collapse(table, sizes, group, 0 if few else 1)
        equations = tuple(sorted({s.equation for s in combined if s.equation is not None and s.buffer.size == size}))
        made = Nest(sizes, group, preferred_row=row, origins=nest.origins, label=label, epoch=nest.epoch)
        nests.append(replace(made, equations=equations))
    return nests


def _reduction(table: NodeTable, store: NestStore, partial: Buffer, group: int) -> NestStore:
    """Over (elements, groups of chunks): the groups' sums as a row for each element."""
    factor = 2 if store.buffer.dtype.kind == "c" else 1
    part = store.offset % factor
    step = store.buffer.real_size
    strides = (factor, group * step)
    loads = [table.load(IndexMap(partial, strides, n * step + part)) for n in range(group)]
    total = _pairwise(table, store.accumulate, loads)
    return NestStore(total, store.buffer, (factor, 0), part, None, store.accumulate, True)


def _pairwise(table: NodeTable, reducer: str | None, terms: Sequence[Node]) -> Node:
    """The terms combined as a balanced tree."""
    assert reducer is not None
    level = list(terms)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        rest = level[len(level) & ~1 :]
        level = [table.make(reducer, pair, pair[0].dtype) for pair in pairs] + rest
    return level[0]


def _combination(table: NodeTable, store: NestStore, partial: Buffer, chunks: int) -> NestStore:
    assert store.accumulate is not None
    buffer = store.buffer
    factor = 2 if buffer.dtype.kind == "c" else 1
    part = store.offset % factor
    step = buffer.real_size
    strides = (factor,) if buffer.size > 1 else ()
    loads = [table.load(IndexMap(partial, strides, n * step + part)) for n in range(chunks)]
    total = _pairwise(table, store.accumulate, loads)
    return NestStore(total, buffer, strides, part)


def _part(store: NestStore) -> tuple[Buffer, int]:
    """The target of a combination: a buffer, or one part of complex elements."""
    return store.buffer, store.offset % 2 if store.buffer.dtype.kind == "c" else 0


# ---------------------------------------------------------------- kernels
def _loops(nests: Nests, nest: Nest) -> Loops:
    table = nests.table
    if nest.chunks == 1:
        sizes, row, stores = collapse(table, nest.sizes, nest.stores, nest.row)
    else:  # dimension 0 is cut: it is not changed
        sizes, row, stores = nest.sizes, nest.row, nest.stores
    emitter = _InstructionNumbering(table)
    lir_stores = tuple(emitter.store(store) for store in stores)
    names = nest.label[:_LABEL_NAMES]
    more = "+..." if len(nest.label) > _LABEL_NAMES else ""
    equations = merged_numbers(nest.equations)
    wrote = (*nest.origins, *(nests.equations[number] for number in equations))
    origins = tuple(dict.fromkeys(e.origin for e in wrote if e.origin is not None))
    return Loops(
        sizes,
        len(sizes) - row,
        tuple(emitter.operands),
        tuple(emitter.instructions),
        lir_stores,
        _parallel(sizes, row, stores),
        nest.chunks,
        origins,
        "+".join(names) + more,
        equations=equations,
    )


def _parallel(sizes: Sequence[int], row: int, stores: Sequence[NestStore]) -> int:
    """The number of independent leading outer dimensions: every store moves along them."""
    if prod(sizes) == 0:
        return 0
    for store in stores:
        if store.address is not None and _varies(store.address):
            return 0
    count = 0
    while count < len(sizes) - row and all(store.strides[count] for store in stores):
        count += 1
    return count


def _varies(node: Node) -> bool:
    return any(n.op == "affine" or (n.op == "load" and any(n.attribute.strides)) for n in postorder((node,)))


def _without_widening(store: NestStore) -> NestStore:
    """A store of a value that has been rounded to the buffer's dtype and widened again, of the rounded value."""
    value = store.value
    wide = value.op == "cast" and value.args[0].dtype == store.buffer.dtype and is_narrow(store.buffer.dtype)
    return replace(store, value=value.args[0]) if wide and not store.accumulate else store


class _InstructionNumbering:
    """Numbers the nodes of a nest as instructions."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.instructions: list[Instruction] = []
        self.operands: list[Buffer] = []
        self._operand_numbers: dict[Buffer, int] = {}
        self._numbers: dict[Node, int] = {}
        self._indices: dict[int, int] = {}

    def store(self, store: NestStore) -> Store:
        """The LIR store, after the instructions that it needs."""
        store = _without_widening(store)
        for node in postorder(store_roots((store,)), self._numbers):
            self._numbers[node] = self._instruction(node)
        access = Access(self._operand(store.buffer), store.strides, store.offset, store.chunk_stride)
        return Store(
            self._numbers[store.value],
            access,
            None if store.address is None else self._numbers[store.address],
            store.accumulate,
            store.initialize,
            None if store.guard is None else self._numbers[store.guard],
            store.once,
            store.order,
        )

    def _append(self, op: str, args: tuple[int, ...], dtype: np.dtype, attribute: object = None) -> int:
        self.instructions.append(Instruction(op, args, dtype, attribute))
        return len(self.instructions) - 1

    def _operand(self, buffer: Buffer) -> int:
        number = self._operand_numbers.get(buffer)
        if number is None:
            number = self._operand_numbers[buffer] = len(self.operands)
            self.operands.append(buffer)
        return number

    def _instruction(self, node: Node) -> int:
        if node.op == "affine":
            return self._affine(*node.attribute)
        attribute = node.attribute
        if node.op == "load":
            buffer, strides, offset = attribute
            attribute = Access(self._operand(buffer), strides, offset)
        args = tuple([self._numbers[a] for a in node.args])
        return self._append(node.op, args, node.dtype, attribute)

    def _constant(self, value: int) -> int:
        node = self.table.constant(value, INT64)
        number = self._numbers.get(node)
        if number is None:
            assert constant_value(node) == value
            number = self._append("constant", (), INT64, node.attribute)
            self._numbers[node] = number
        return number

    def _affine(self, strides: tuple[int, ...], offset: int) -> int:
        total: int | None = None
        for dimension, stride in enumerate(strides):
            if not stride:
                continue
            term = self._indices.get(dimension)
            if term is None:
                term = self._append("index", (), INT64, dimension)
                self._indices[dimension] = term
            if stride != 1:
                term = self._append("mul", (term, self._constant(stride)), INT64)
            total = term if total is None else self._append("add", (total, term), INT64)
        assert total is not None
        return self._append("add", (total, self._constant(offset)), INT64) if offset else total
