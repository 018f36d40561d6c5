"""Loop nests before they are kernels: stores of scalar expressions over an index space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from rlx.forks import cached_property
from rlx.ir.kernels import Buffer, Kernel, Order
from rlx.ir.program import Equation, Var
from rlx.lowering.lowered import LoweredValue, StrideMap, remap
from rlx.lowering.nodes import Node, NodeTable, postorder, rewrite

__all__ = [
    "Nest",
    "NestStore",
    "Nests",
    "Step",
    "collapse",
    "common_refinement",
    "refine",
    "remap_stores",
    "renamed_nest",
    "replace_loads",
    "rows_from_accumulation",
    "split_map",
    "store_roots",
]


@dataclass(frozen=True, slots=True)
class NestStore:
    """Write `value` to a buffer through an index map over the nest's space (see kernels.Store).

    Strides and offset count real elements, as for loads. once: an accumulation that runs once per row.
    equation: the number of the equation that accumulates.
    """

    value: Node
    buffer: Buffer
    strides: tuple[int, ...]
    offset: int = 0
    address: Node | None = None
    accumulate: str | None = None
    initialize: bool = False
    guard: Node | None = None
    chunk_stride: int = 0
    once: bool = False
    order: Order = "any"
    equation: int | None = None

    @property
    def plain(self) -> bool:
        """Whether later expressions of the nest may use the value in place of a load."""
        return self.address is None and self.accumulate is None and self.guard is None


@dataclass(frozen=True, eq=False)
class Nest:
    """Stores over one index space; its last `row` dimensions are row dimensions.

    A reduction starts as accumulating stores with zero strides along the reduced dimensions (row 0);
    `preferred_row` is the number of trailing dimensions that become a row if the nest is not fused.
    ordered: the nest overwrites results of earlier kernels in the same buffers.
    epoch: nests of different epochs do not fuse (see KernelBuilder.fence).
    equations: as in ir.kernels.Kernel, possibly repeated; origins are the first of them, from the result backwards.
    """

    sizes: tuple[int, ...]
    stores: Sequence[NestStore]
    row: int = 0
    preferred_row: int = 0
    ordered: bool = False
    chunks: int = 1
    origins: tuple[Any, ...] = ()
    label: tuple[str, ...] = ()
    frozen: bool = field(default=False)
    epoch: int = 0
    equations: tuple[int, ...] = ()

    def named(self, **facts: Any) -> Nest:
        """The same loops with other facts about them."""
        made = replace(self, **facts)
        vars(made)["nodes"] = self.nodes  # they are the same, and known
        return made

    @cached_property
    def total(self) -> int:
        """Number of iterations."""
        return prod(self.sizes)

    @cached_property
    def nodes(self) -> list[Node]:
        """Every node of the expressions, arguments before users."""
        return postorder(store_roots(self.stores))

    @cached_property
    def operations(self) -> int:
        """The number of nodes with arguments."""
        return sum(bool(node.args) for node in self.nodes)

    @cached_property
    def reads(self) -> frozenset[Buffer]:
        """The buffers whose contents the nest needs."""
        loaded = {node.attribute.buffer for node in self.nodes if node.op == "load"}
        return frozenset(loaded.union(s.buffer for s in self.stores if s.accumulate and not s.initialize))

    @cached_property
    def writes(self) -> frozenset[Buffer]:
        """The buffers that the nest writes, wholly or in part."""
        return frozenset(store.buffer for store in self.stores)

    @cached_property
    def scatters(self) -> bool:
        """Whether a store has a computed address."""
        return any(store.address is not None for store in self.stores)

    @cached_property
    def sums(self) -> bool:
        """Whether several elements combine into one at a known address: in a row, or by accumulation."""
        return bool(self.row) or any(store.accumulate and store.address is None for store in self.stores)


Step = Nest | Kernel


@dataclass(frozen=True, slots=True, eq=False)
class Nests:
    """A lowered program: nests and kernels in order, over buffers. Planning makes a Plan of it.

    barriers: whether work is held back to save memory (see KernelBuilder.fence). report: the decisions of fusion.
    values: the lowered value of each variable. unplaced: as in ir.kernels.Plan. equations: of the program.
    """

    name: str
    table: NodeTable
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    barriers: bool = False
    report: tuple[Any, ...] = ()
    values: Mapping[Var, LoweredValue] = field(default_factory=dict)
    unplaced: Mapping[int, str] = field(default_factory=dict)
    equations: Sequence[Equation] = ()


def store_roots(stores: Sequence[NestStore]) -> list[Node]:
    """Every expression that the stores need."""
    roots: list[Node] = []
    for store in stores:
        roots.append(store.value)
        if store.address is not None:
            roots.append(store.address)
        if store.guard is not None:
            roots.append(store.guard)
    return roots


def remap_stores(table: NodeTable, stores: Sequence[NestStore], stride_map: StrideMap) -> list[NestStore] | None:
    """The stores over another index space, or None if a map cannot follow."""
    roots = store_roots(stores)
    moved = remap(table, roots, stride_map)
    if moved is None:
        return None
    table_of = dict(zip(roots, moved, strict=True))
    result = []
    for store in stores:
        mapped = stride_map(store.strides, store.offset)
        if mapped is None:
            return None
        strides, offset = mapped
        result.append(
            replace(
                store,
                value=table_of[store.value],
                strides=strides,
                offset=offset,
                address=None if store.address is None else table_of[store.address],
                guard=None if store.guard is None else table_of[store.guard],
            )
        )
    return result


def replace_loads(
    table: NodeTable,
    stores: Sequence[NestStore],
    use: Callable[[Node, tuple[Node, ...]], Node],
) -> list[NestStore]:
    """The stores with every load and affine node replaced by the result of `use`."""
    done = rewrite(table, store_roots(stores), use)
    return [
        replace(
            store,
            value=done[store.value],
            address=None if store.address is None else done[store.address],
            guard=None if store.guard is None else done[store.guard],
        )
        for store in stores
    ]


def renamed_nest(table: NodeTable, nest: Nest, renames: Mapping[Buffer, Buffer]) -> Nest:
    """The nest with some of its buffers replaced."""

    def use(leaf: Node, args: tuple[Node, ...]) -> Node:
        if leaf.op == "load":
            buffer = leaf.attribute.buffer
            return table.load(leaf.attribute._replace(buffer=renames.get(buffer, buffer)), *args)
        return leaf

    stores = replace_loads(table, nest.stores, use)
    return replace(nest, stores=[replace(s, buffer=renames.get(s.buffer, s.buffer)) for s in stores])


def _maps(stores: Sequence[NestStore]) -> list[tuple[int, ...]]:
    strides = {store.strides for store in stores}
    for node in postorder(store_roots(stores)):
        if node.op == "load":
            strides.add(node.attribute.strides)
        elif node.op == "affine":
            strides.add(node.attribute[0])
    return list(strides)


def _runs(sizes: Sequence[int], order: Sequence[int], row: int, maps: list[tuple[int, ...]]) -> list[list[int]]:
    """Axes grouped into runs that every index map walks as one dimension."""
    boundary = len(order) - row
    runs: list[list[int]] = []
    previous_position = -1
    for position, axis in enumerate(order):
        if sizes[axis] == 1:
            continue
        crosses = row and previous_position < boundary <= position
        if runs and not crosses:
            outer, size = runs[-1][-1], sizes[axis]
            if all(m[outer] == m[axis] * size for m in maps):
                runs[-1].append(axis)
                previous_position = position
                continue
        runs.append([axis])
        previous_position = position
    return runs


def collapse(
    table: NodeTable,
    sizes: Sequence[int],
    stores: Sequence[NestStore],
    row: int = 0,
    order: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], int, list[NestStore]]:
    """Reorder the axes, drop axes of size 1, and merge axes if all index maps allow it.

    Returns sizes, number of row dimensions, stores. The boundary of the row is kept.
    """
    order = range(len(sizes)) if order is None else order
    if prod(sizes) == 0:
        runs: list[list[int]] = []
        new_sizes: tuple[int, ...] = (0,)
    else:
        runs = _runs(sizes, order, row, _maps(stores))
        new_sizes = tuple(prod(sizes[a] for a in run) for run in runs)
    if len(new_sizes) == len(sizes) and list(order) == list(range(len(sizes))):
        if new_sizes == tuple(sizes):
            return tuple(sizes), row, list(stores)
    row_axes = set(list(order)[len(order) - row :]) if row else set()
    new_row = sum(run[-1] in row_axes for run in runs)

    def stride_map(strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
        if not runs:
            return (0,) * len(new_sizes), offset
        return tuple(strides[run[-1]] for run in runs), offset

    moved = remap_stores(table, stores, stride_map)
    assert moved is not None
    return new_sizes, new_row, moved


def common_refinement(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """The coarsest shape that splits dimensions of both shapes (of equal size), if there is one."""
    result: list[int] = []
    i, j = len(first) - 1, len(second) - 1
    left = first[i] if first else 1
    right = second[j] if second else 1
    while i >= 0 and j >= 0:
        if left == right:
            result.append(left)
            i, j = i - 1, j - 1
            left = first[i] if i >= 0 else 1
            right = second[j] if j >= 0 else 1
        elif right and left % right == 0:
            result.append(right)
            left //= right
            j -= 1
            right = second[j] if j >= 0 else 1
        elif left and right % left == 0:
            result.append(left)
            right //= left
            i -= 1
            left = first[i] if i >= 0 else 1
        else:
            return None
    return tuple(reversed(result)) if i < 0 and j < 0 else None


def split_map(coarse: Sequence[int], fine: Sequence[int], extra: int = 0) -> StrideMap:
    """The index map from a space to its refinement, with `extra` more trailing dimensions."""
    groups: list[list[int]] = []
    position = len(fine)
    for size in reversed(coarse):
        group: list[int] = []
        product = 1
        while product != size or (not group and size != 1):
            position -= 1
            group.append(fine[position])
            product *= fine[position]
        groups.append(group)
    groups.reverse()

    def stride_map(strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
        result: list[int] = []
        for stride, group in zip(strides, groups, strict=True):
            steps = []
            for size in group:  # innermost first
                steps.append(stride)
                stride *= size
            result.extend(reversed(steps))
        return (*result, *(0,) * extra), offset

    return stride_map


def refine(
    table: NodeTable,
    sizes: Sequence[int],
    stores: Sequence[NestStore],
    fine: Sequence[int],
    extra: int = 0,
) -> list[NestStore]:
    """The stores over a refinement of their space, plus a row of `extra` dimensions, for which they run once."""
    if tuple(sizes) == tuple(fine) and not extra:
        return list(stores)
    moved = remap_stores(table, stores, split_map(sizes, fine, extra))
    assert moved is not None
    return [replace(s, once=True) if extra and s.accumulate else s for s in moved]


def rows_from_accumulation(
    table: NodeTable, sizes: Sequence[int], row: int, stores: Sequence[NestStore]
) -> list[NestStore]:
    """Turn accumulation over whole rows into "reduce" nodes, stored once for each row.

    If accumulation over outer dimensions remains, it stays an accumulating store of the row's value.
    """
    if not row:
        return list(stores)
    boundary = len(sizes) - row
    result = []
    for store in stores:
        over_row = not any(store.strides[boundary:]) and not store.once
        if store.accumulate and store.initialize and over_row and store.address is None:
            value = table.make("reduce", (store.value,), store.value.dtype, store.accumulate)
            if all(store.strides[:boundary]):
                store = replace(store, value=value, accumulate=None, initialize=False)
            else:
                store = replace(store, value=value, once=True)
        result.append(store)
    return result
