"""Products in the layout that their readers need: a GEMM transposes and interleaves for free.

The layouts of all products are chosen first, from the unchanged nests; then each nest that reads such products is
rewritten once. If the loads of one product move, a nest may get other loops, and facts about its loads of another
product may no longer hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlx.ir.dims import is_sized
from rlx.ir.kernels import Buffer, Contract, Operand
from rlx.ir.options import ProductLimits
from rlx.lowering.nest import Nest, Nests, Step, collapse, replace_loads
from rlx.lowering.nodes import IndexMap, Node, NodeTable

__all__ = ["choose_product_layouts"]


@dataclass(slots=True)
class _Product:
    """A temporary of shape (batch, rows, columns) that only products write and only nests read."""

    kernels: list[Contract] = field(default_factory=list)
    loads: list[tuple[Nest, IndexMap]] = field(default_factory=list)

    @property
    def batch(self) -> int:
        return sum(kernel.batches for kernel in self.kernels)

    @property
    def rows(self) -> int:
        return self.kernels[0].rows

    @property
    def columns(self) -> int:
        return self.kernels[0].columns


Moved = Callable[[IndexMap], IndexMap]


def choose_product_layouts(nests: Nests, limits: ProductLimits) -> Nests:
    """The nests with each product, and the loops that read it, in the layout that all its readers need."""
    replaced: dict[int, list[Step]] = {}
    moves: dict[Buffer, Moved] = {}
    for buffer, product in _products(nests.steps).items():
        if buffer.dtype.kind == "c":  # loads count real elements there
            continue
        maps = [_decoded(product, nest, index_map) for nest, index_map in product.loads]
        if all(m is not None and m.transposed for m in maps):
            moves[buffer] = _transposition(product)
            replaced |= {id(kernel): [_transposed(kernel)] for kernel in product.kernels}
        elif (minor := _interleaved(product, maps, limits.kernels)) is not None:
            moves[buffer] = _interleaving(product, minor)
            replaced |= _with_wide_strides(product, minor)
    if not moves:
        return nests
    chosen = [new for step in nests.steps for new in replaced.get(id(step), [step])]
    read = [_reading_moved(nests.table, step, moves) if isinstance(step, Nest) else step for step in chosen]
    return replace(nests, steps=tuple(read))


def _products(steps: Sequence[Step]) -> dict[Buffer, _Product]:
    found: dict[Buffer, _Product] = {}
    for step in steps:
        if isinstance(step, Contract) and step.out.buffer.role == "temporary":
            found.setdefault(step.out.buffer, _Product()).kernels.append(step)
    for step in steps:
        if isinstance(step, Nest):
            for store in step.stores:
                found.pop(store.buffer, None)
            for node in step.nodes:
                if node.op == "load" and node.attribute.buffer in found:
                    if node.args:
                        del found[node.attribute.buffer]
                    else:
                        found[node.attribute.buffer].loads.append((step, node.attribute))
            continue
        touched = step.reads if isinstance(step, Contract) else (*step.reads, *step.writes)
        for buffer in touched:
            found.pop(buffer, None)
    return {buffer: product for buffer, product in found.items() if product.loads}


@dataclass(slots=True)
class _Decoded:
    """Which part of a product each loop dimension walks: "b", "m", "n", or "" for none."""

    parts: list[str]
    sizes: tuple[int, ...]
    index_map: IndexMap

    @property
    def transposed(self) -> bool:
        moving = [part for part in self.parts if part]
        return bool(moving) and moving[-1] == "m" and "n" in moving


def _decoded(product: _Product, nest: Nest, index_map: IndexMap) -> _Decoded | None:
    rows, columns = product.rows, product.columns
    parts = []
    for size, stride in zip(nest.sizes, index_map.strides, strict=True):
        if stride < 0:
            return None
        if not stride:
            parts.append("")
        elif stride % (rows * columns) == 0:
            parts.append("b")
        elif stride % columns == 0 and (stride // columns) * size <= rows:
            parts.append("m")
        elif stride < columns and stride * size <= columns:
            parts.append("n")
        else:
            return None
    return _Decoded(parts, nest.sizes, index_map)


# ---------------------------------------------------------------- transposition
def _transposed(kernel: Contract) -> Contract:
    """(batch, columns, rows) instead: the product of the transposed operands, swapped."""
    *b, m, n = kernel.out.shape
    out = replace(kernel.out, shape=(*b, n, m), strides=(*kernel.out.strides[:-2], m, 1))
    return replace(kernel, lhs=_turned(kernel.rhs), rhs=_turned(kernel.lhs), out=out)


def _transposition(product: _Product) -> Moved:
    """The positions of the transposed product's elements."""
    rows, columns = product.rows, product.columns

    def moved(index_map: IndexMap) -> IndexMap:
        strides = []
        for stride in index_map.strides:
            if not stride or stride % (rows * columns) == 0:
                strides.append(stride)
            elif stride % columns == 0:
                strides.append(stride // columns)
            else:
                strides.append(stride * rows)
        batch, place = divmod(index_map.offset, rows * columns)
        row, column = divmod(place, columns)
        offset = batch * rows * columns + column * rows + row
        return IndexMap(index_map.buffer, tuple(strides), offset)

    return moved


def _turned(operand: Operand) -> Operand:
    (*b, r, c), (*stacks, down, across) = operand.shape, operand.strides
    return Operand(operand.buffer, (*b, c, r), (*stacks, across, down), operand.offset)


# ---------------------------------------------------------------- interleaving
def _interleaved(product: _Product, maps: Sequence[_Decoded | None], most: int) -> int | None:
    """The size of the inner batch dimension that every reader needs between rows and columns.

    None if there is none, or writing so takes more than `most` kernels.
    """
    sizes = set()
    for decoded in maps:
        if decoded is None or decoded.index_map.offset:
            return None
        walked = [
            (part, size, stride)
            for part, size, stride in zip(decoded.parts, decoded.sizes, decoded.index_map.strides, strict=True)
            if part
        ]
        rows, columns = product.rows, product.columns
        order = [part for part, _, _ in walked]
        if order not in (["b", "m", "b", "n"], ["m", "b", "n"]):
            return None
        minor = walked[-2][1]
        wanted = [("m", rows, columns), ("b", minor, rows * columns), ("n", columns, 1)]
        if len(walked) == 4:
            wanted.insert(0, ("b", product.batch // minor, minor * rows * columns))
        if walked != wanted or product.batch % minor:
            return None
        if len(walked) == 3 and minor != product.batch:
            return None
        sizes.add(minor)
    if len(sizes) != 1:
        return None
    (minor,) = sizes
    each = product.kernels[0].out.shape[-3]
    fits = each % minor == 0 or minor % each == 0
    return minor if fits and product.batch // min(minor, each) <= most else None


def _with_wide_strides(product: _Product, minor: int) -> dict[int, list[Step]]:
    """For each kernel, by its id, those that compute (outer batch, rows, inner batch, columns) instead."""
    replaced: dict[int, list[Step]] = {}
    first = 0
    for kernel in product.kernels:
        count = kernel.out.shape[-3]
        length = min(count, minor)
        if is_sized(kernel.batches // length):
            replaced[id(kernel)] = [_wide_stack(kernel, length, minor)]
            first += kernel.batches
            continue
        replaced[id(kernel)] = [
            _strided(kernel, start, length, first + start, minor) for start in range(0, count, length)
        ]
        first += count
    return replaced


def _wide_stack(kernel: Contract, length: int, minor: int) -> Contract:
    """The kernels of _with_wide_strides where a symbolic size counts them, as stack_products makes them one."""
    _, m, n = kernel.out.shape[-3:]
    number = kernel.batches // length
    if length != minor or number < 2 or (len(kernel.out.shape) > 3 and kernel.out.shape[-3] != length):
        operator.index(number)  # they are not evenly spaced, or one alone

    def stack(o: Operand) -> Operand:
        step = o.strides[0] if len(o.shape) > 3 else length * o.strides[0]
        return Operand(o.buffer, (number, length, *o.shape[-2:]), (step, *o.strides[-3:]), o.offset)

    strides = (m * minor * n, n if length > 1 else 0, minor * n, 1)
    out = Operand(kernel.out.buffer, (number, length, m, n), strides, 0)
    return replace(kernel, lhs=stack(kernel.lhs), rhs=stack(kernel.rhs), out=out)


def _interleaving(product: _Product, minor: int) -> Moved:
    """The positions of the interleaved product's elements."""
    rows, columns = product.rows, product.columns

    def moved(index_map: IndexMap) -> IndexMap:
        strides = []
        for stride in index_map.strides:
            if stride >= minor * rows * columns or stride == 1 or not stride:
                strides.append(stride)
            elif stride == columns:
                strides.append(minor * columns)
            else:
                strides.append(columns)
        return IndexMap(index_map.buffer, tuple(strides), 0)

    return moved


def _strided(kernel: Contract, start: int, length: int, batch: int, minor: int) -> Contract:
    """Batches start..start + length of a product, between rows of the other inner batches."""
    _, m, n = kernel.out.shape
    outer, inner = divmod(batch, minor)
    offset = outer * m * minor * n + inner * n
    out = Operand(kernel.out.buffer, (length, m, n), (n if length > 1 else 0, minor * n, 1), offset)
    parts = [
        replace(o, shape=(length, *o.shape[1:]), offset=o.offset + start * o.strides[0])
        for o in (kernel.lhs, kernel.rhs)
    ]
    return replace(kernel, lhs=parts[0], rhs=parts[1], out=out)


def _reading_moved(table: NodeTable, nest: Nest, moves: Mapping[Buffer, Moved]) -> Nest:
    """The nest with its loads of products moved to their new positions."""
    if nest.reads.isdisjoint(moves):
        return nest

    def use(leaf: Node, args: tuple[Node, ...]) -> Node:
        if leaf.op == "load" and leaf.attribute.buffer in moves:
            return table.load(moves[leaf.attribute.buffer](leaf.attribute), *args)
        return table.load(leaf.attribute, *args) if args else leaf

    stores = replace_loads(table, nest.stores, use)
    if nest.row:
        return replace(nest, stores=stores)
    sizes, row, stores = collapse(table, nest.sizes, stores, nest.preferred_row)
    return replace(nest, sizes=sizes, preferred_row=row, stores=stores)
