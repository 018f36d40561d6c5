"""Merging two nests: bring them to one index space, then let values take the place of loads."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod

from rlx.ir.kernels import Buffer
from rlx.ir.options import RowLimits
from rlx.lowering.nest import (
    Nest,
    NestStore,
    collapse,
    common_refinement,
    refine,
    replace_loads,
    rows_from_accumulation,
    store_roots,
)
from rlx.lowering.nodes import Node, NodeTable, postorder
from rlx.lowering.rounding import rounded_result

__all__ = ["Merged", "alone", "merge"]


@dataclass(slots=True)
class Merged:
    """A nest merged from two. rebuilt: the first one's expressions are new nodes as well."""

    sizes: tuple[int, ...]
    row: int
    stores: list[NestStore]
    rebuilt: bool
    depths: dict[Node, int] = field(default_factory=dict)


@dataclass(slots=True)
class _AlignedNests:
    sizes: tuple[int, ...]
    row: int
    first: list[NestStore]
    second: list[NestStore]


def alone(table: NodeTable, nest: Nest) -> Merged:
    """The form that a nest has alone: its accumulations over a row are reductions."""
    row = nest.row or nest.preferred_row
    stores = list(nest.stores)
    if not nest.row:
        stores = rows_from_accumulation(table, nest.sizes, row, stores)
    return Merged(nest.sizes, row, stores, True, _depths(stores))


def merge(
    table: NodeTable, base: Nest, nest: Nest, produced: Set[Buffer], related: bool, limits: RowLimits
) -> Merged | str:
    """`nest` after `base` in one nest, or the reason why not.

    produced: the buffers that base writes. related: nest reads some of them.
    """
    aligned = _align(table, base, nest, related, limits)
    if isinstance(aligned, str):
        return aligned
    second = _substitute(table, base, aligned, produced)
    if second is None and related:
        permuted = _align_permuted(table, base, nest)
        if isinstance(permuted, _AlignedNests):
            aligned = permuted
            second = _substitute(table, base, aligned, produced)
    if second is None:
        return "its operands are read through other index maps"
    stores = [*aligned.first, *second]
    if aligned.row != 1 and _cumulates(stores):
        return "running reductions need a row of one dimension"
    rebuilt = aligned.sizes != base.sizes or aligned.row != base.row
    return Merged(aligned.sizes, aligned.row, stores, rebuilt)


def _depths(stores: Sequence[NestStore]) -> dict[Node, int]:
    depths: dict[Node, int] = {}
    for node in postorder(store_roots(stores)):
        below = max((depths[a] for a in node.args), default=0)
        depths[node] = below + (node.op in ("reduce", "cumulate"))
    return depths


def _cumulates(stores: Sequence[NestStore]) -> bool:
    return any(node.op == "cumulate" for node in postorder(store_roots(stores)))


def _align(table: NodeTable, base: Nest, nest: Nest, related: bool, limits: RowLimits) -> _AlignedNests | str:
    if base.total == 0 or nest.total == 0:
        return "it has no iterations"
    if base.total == nest.total:
        return _align_equal(table, base, nest)
    if not related:
        return "nothing shares its loops"
    if base.total > nest.total:
        return _align_row_values(table, base, nest)
    return _align_rows_after(table, base, nest, limits)


def _row_size(nest: Nest) -> int:
    """Elements of a row, 0 if the nest has none."""
    row = nest.row or nest.preferred_row
    return prod(nest.sizes[len(nest.sizes) - row :]) if row else 0


def _trailing(sizes: Sequence[int], size: int) -> int | None:
    """The number of last dimensions with `size` elements in total."""
    count, product = 0, 1
    while product < size and count < len(sizes):
        count += 1
        product *= sizes[len(sizes) - count]
    return count if product == size else None


def _align_equal(table: NodeTable, base: Nest, nest: Nest) -> _AlignedNests | str:
    sizes = common_refinement(base.sizes, nest.sizes)
    if sizes is None:
        return "its loops have other sizes"
    wanted, offered = _row_size(nest), _row_size(base)
    if wanted and offered and wanted != offered and (nest.row or wanted < offered):
        return "its rows have another length"
    size = offered or wanted
    row = _trailing(sizes, size) if size else 0
    if row is None:
        return "its rows have another length"
    first = refine(table, base.sizes, base.stores, sizes)
    second = refine(table, nest.sizes, nest.stores, sizes)
    if not base.row:
        first = rows_from_accumulation(table, sizes, row, first)
    if not nest.row:
        second = rows_from_accumulation(table, sizes, row, second)
    return _AlignedNests(sizes, row, first, second)


def _align_permuted(table: NodeTable, base: Nest, nest: Nest) -> _AlignedNests | str | None:
    """Run nest's loops in the order in which it reads an array that base works on too."""
    if base.total != nest.total or nest.row or nest.preferred_row:
        return None
    shared = {n.attribute.buffer for n in base.nodes if n.op == "load"}
    shared |= {store.buffer for store in base.stores}
    for node in nest.nodes:
        if node.op != "load" or node.args or node.attribute.buffer not in shared:
            continue
        strides = node.attribute.strides
        order = sorted(range(len(strides)), key=lambda axis: -abs(strides[axis]))
        if all(strides) and order != list(range(len(strides))):
            sizes, row, stores = collapse(table, nest.sizes, nest.stores, 0, order)
            return _align_equal(table, base, replace(nest, sizes=sizes, row=row, stores=stores))
    return None


def _align_row_values(table: NodeTable, base: Nest, nest: Nest) -> _AlignedNests | str:
    """Align a nest that has one element for each row of base."""
    if not base.row or nest.row:
        return "its loops have other sizes"
    outer = base.sizes[: len(base.sizes) - base.row]
    if prod(outer) != nest.total:
        return "its loops have other sizes"
    fine = common_refinement(outer, nest.sizes)
    if fine is None:
        return "its loops have other sizes"
    sizes = (*fine, *base.sizes[len(outer) :])
    first = refine(table, base.sizes, base.stores, sizes)
    second = refine(table, nest.sizes, nest.stores, fine, base.row)
    return _AlignedNests(sizes, base.row, first, second)


def _align_rows_after(table: NodeTable, base: Nest, nest: Nest, limits: RowLimits) -> _AlignedNests | str:
    """Each element of base becomes a value of one of nest's rows."""
    if base.row:
        return "its loops have other sizes"
    row = nest.row or nest.preferred_row
    if not row:
        length = nest.total // base.total
        few = base.total < limits.outer and nest.total > limits.small and not limits.keeps(base.total, length)
        found = _trailing(nest.sizes, length)
        if found is None or few or base.total == 1:
            return "its loops have other sizes"
        row = found
    outer = nest.sizes[: len(nest.sizes) - row]
    fine = common_refinement(base.sizes, outer) if prod(outer) == base.total else None
    if fine is None:
        return "its loops have other sizes"
    sizes = (*fine, *nest.sizes[len(outer) :])
    first = refine(table, base.sizes, base.stores, fine, row)
    second = refine(table, nest.sizes, nest.stores, sizes)
    if not nest.row:
        second = rows_from_accumulation(table, sizes, row, second)
    return _AlignedNests(sizes, row, first, second)


def _substitute(table: NodeTable, base: Nest, aligned: _AlignedNests, produced: Set[Buffer]) -> list[NestStore] | None:
    """`second` with loads of the results of `first` replaced by their values; None if any cannot be replaced."""
    values = {(s.buffer, s.strides, s.offset): s.value for s in aligned.first if s.plain}
    second = aligned.second
    if base.ordered:  # a later iteration may overwrite the result of an earlier one
        values = {}
    blocked = False

    def use(leaf: Node, args: tuple[Node, ...]) -> Node:
        nonlocal blocked
        if leaf.op == "load" and leaf.attribute.buffer in produced:
            value = None if args else values.get(tuple(leaf.attribute))
            if value is None:
                blocked = True
                return leaf
            return rounded_result(table, value, leaf.attribute.buffer.dtype)
        return table.load(leaf.attribute, *args) if args else leaf

    replaced = replace_loads(table, second, use)
    return None if blocked else replaced
