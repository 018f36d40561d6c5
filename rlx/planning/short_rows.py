"""Rows of a few elements become straight-line code: vectors run along the dimension outside the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx.ir.options import RowLimits
from rlx.lowering.nest import Nest, Nests, NestStore, collapse, rows_from_accumulation, store_roots
from rlx.lowering.nodes import IndexMap, Node, NodeTable, postorder

__all__ = ["unroll_short_rows"]


def unroll_short_rows(nests: Nests, limits: RowLimits) -> Nests:
    """The nests without last dimensions that are short."""
    steps = [_unrolled(nests.table, step, limits) if isinstance(step, Nest) else step for step in nests.steps]
    return replace(nests, steps=tuple(steps))


def _unrolled(table: NodeTable, nest: Nest, limits: RowLimits) -> Nest:
    """The nest without its last dimension if that is short, else the nest itself.

    Coordinates, colours and quaternions make such nests: a loop over three elements keeps
    neither vectors nor pipelines busy.
    """
    if nest.ordered or nest.frozen or nest.chunks > 1 or nest.row > 1 or not nest.total:
        return nest
    sizes, row, stores = collapse(table, nest.sizes, nest.stores, nest.row)
    if not _fits(sizes, row, stores, limits):
        return nest
    unrolled = _Unrolled(table, sizes[-1])
    stores = [result for store in stores for result in unrolled.stores(store)]
    sizes = sizes[:-1]
    row = int(any(s.accumulate and not s.strides[-1] for s in stores))
    stores = rows_from_accumulation(table, sizes, row, stores)
    return replace(nest, sizes=sizes, stores=stores, row=row, preferred_row=0)


def _fits(sizes: Sequence[int], row: int, stores: Sequence[NestStore], limits: RowLimits) -> bool:
    if len(sizes) < 2 or row > 1 or not 1 < sizes[-1] <= limits.short or sizes[-2] < limits.short_line:
        return False
    if any(store.address is not None or store.guard is not None for store in stores):
        return False
    nodes = postorder(store_roots(stores))
    return len(nodes) * sizes[-1] <= limits.short_nodes and all(node.op != "cumulate" for node in nodes)


class _Unrolled:
    """Expressions at each position along the last dimension."""

    def __init__(self, table: NodeTable, length: int) -> None:
        self.table = table
        self.length = length
        self._at: dict[Node, tuple[Node, ...]] = {}

    def stores(self, store: NestStore) -> list[NestStore]:
        """One store over the last dimension, unrolled into stores without it."""
        values = self._values(store.value)
        step, strides = store.strides[-1], store.strides[:-1]
        if step:
            return [
                replace(store, value=value, strides=strides, offset=store.offset + n * step, once=False)
                for n, value in enumerate(values)
            ]
        value = values[-1]
        if store.accumulate and not store.once:
            value = self._combined(store.accumulate, values)
        return [replace(store, value=value, strides=strides, once=False)]

    def _combined(self, reducer: str, values: Sequence[Node]) -> Node:
        total = values[0]
        for value in values[1:]:
            total = self.table.make(reducer, (total, value), total.dtype)
        return total

    def _values(self, root: Node) -> tuple[Node, ...]:
        for node in postorder((root,), self._at):
            arguments = [self._at[a] for a in node.args]
            if node.op == "reduce":
                result = (self._combined(node.attribute, arguments[0]),) * self.length
            else:
                result = tuple(self._moved(node, n, [a[n] for a in arguments]) for n in range(self.length))
            self._at[node] = result
        return self._at[root]

    def _moved(self, node: Node, position: int, arguments: list[Node]) -> Node:
        if node.op == "load":
            buffer, strides, offset = node.attribute
            there = IndexMap(buffer, strides[:-1], offset + position * strides[-1])
            return self.table.load(there, *arguments)
        if node.op == "affine":
            strides, offset = node.attribute
            return self.table.affine(strides[:-1], offset + position * strides[-1])
        return self.table.make(node.op, tuple(arguments), node.dtype, node.attribute)
