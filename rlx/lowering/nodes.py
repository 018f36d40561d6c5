"""Scalar expressions as hash-consed graph nodes: equal subexpressions are one node."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.dims import is_sized
from rlx.ir.kernels import Buffer
from rlx.ir.scalar import operation_cost
from rlx.ir.sized_scalars import SizedScalar
from rlx.ir.types import compute_dtype

__all__ = [
    "INT64",
    "ExpressionCost",
    "IndexMap",
    "Node",
    "NodeTable",
    "computes",
    "constant_value",
    "expression_cost",
    "leaves",
    "postorder",
    "rewrite",
]

INT64 = np.dtype(np.int64)
_WEIGHT_LIMIT = 1 << 20


class IndexMap(NamedTuple):
    """Where a load reads: `offset + sum(strides[d] * i[d])`, in real elements of the buffer."""

    buffer: Buffer
    strides: tuple[int, ...]
    offset: int


class Node:
    """One scalar operation. Made only by a NodeTable, compared by identity.

    Besides the scalar alphabet: "load" (attribute: IndexMap, an optional address argument),
    "affine" (attribute: (strides, offset), a linear form of the loop indices, int64), and inside
    loop nests "reduce" and "cumulate" (attribute: a reducer).
    `weight` is the size as a tree, an upper bound of the number of distinct nodes below.
    """

    __slots__ = ("args", "attribute", "dtype", "op", "weight")

    weight: int

    def __init__(self, op: str, args: tuple[Node, ...], dtype: np.dtype, attribute: Any) -> None:
        self.op = op
        self.args = args
        self.dtype = dtype
        self.attribute = attribute
        weight = 1
        for argument in args:
            weight += argument.weight
        self.weight = min(weight, _WEIGHT_LIMIT)

    def __repr__(self) -> str:
        return f"Node({self.op}, {self.dtype.name}, {len(self.args)} args, {self.attribute!r})"


class NodeTable:
    """The nodes of one plan, each distinct expression once.

    excess_precision: results of narrow floats stay in float32 (see rounding.py). exact: which nodes are known
    to have values of a narrow dtype. marks: the numbers of the equations whose results a node is.
    """

    __slots__ = ("_nodes", "exact", "excess_precision", "marks")

    def __init__(self, excess_precision: bool = False) -> None:
        self.excess_precision = excess_precision
        self._nodes: dict[tuple[Any, ...], Node] = {}
        self.exact: dict[tuple[Node, np.dtype], bool] = {}
        self.marks: dict[Node, tuple[int, ...]] = {}

    def make(self, op: str, args: tuple[Node, ...], dtype: np.dtype, attribute: Any = None) -> Node:
        """The node of this operation on these arguments."""
        key = (op, args, dtype, attribute)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(op, args, dtype, attribute)
        return node

    def mark(self, node: Node, equations: tuple[int, ...]) -> None:
        """Note that an operation computes the result of these equations."""
        if computes(node):
            known = self.marks.get(node)
            self.marks[node] = equations if known is None else tuple(dict.fromkeys(known + equations))

    def carry_marks(self, done: Mapping[Node, Node]) -> None:
        """Mark the nodes that were made from others as those are marked."""
        for old, new in done.items():
            if old is not new and old in self.marks:
                self.mark(new, self.marks[old])

    def constant(self, value: Any, dtype: np.dtype) -> Node:
        """A literal of a dtype that scalars are computed in."""
        if is_sized(value):
            return self.make("constant", (), dtype, SizedScalar.of(value, dtype))
        return self.make("constant", (), dtype, np.asarray(value).astype(dtype).tobytes())

    def load(self, index_map: IndexMap, address: Node | None = None) -> Node:
        """Read one element of a buffer; `address` elements further if given."""
        args = () if address is None else (address,)
        return self.make("load", args, compute_dtype(index_map.buffer.dtype), index_map)

    def affine(self, strides: tuple[int, ...], offset: int) -> Node:
        """A linear form of the loop indices."""
        if not any(strides):
            return self.constant(offset, INT64)
        return self.make("affine", (), INT64, (strides, offset))


def computes(node: Node) -> bool:
    """Whether a node is an operation, not just an element of a buffer, a constant or a position."""
    return bool(node.args) or node.op not in ("load", "constant", "affine")


def constant_value(node: Node) -> Any:
    """The NumPy scalar of a constant node; a number that depends on symbolic sizes as it is."""
    if isinstance(node.attribute, SizedScalar):
        return node.attribute.item()
    return np.frombuffer(node.attribute, node.dtype)[0]


def postorder(roots: Iterable[Node], known: Container[Node] = ()) -> list[Node]:
    """Every node reachable from `roots` and not in `known`, arguments before users."""
    seen: set[Node] = set()
    order: list[Node] = []
    for root in roots:
        if root in seen or root in known:
            continue
        stack = [(root, False)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
            elif node not in seen and node not in known:
                seen.add(node)
                if not node.args:
                    order.append(node)
                    continue
                stack.append((node, True))
                stack.extend([(argument, False) for argument in reversed(node.args)])
    return order


def rewrite(
    table: NodeTable,
    roots: Iterable[Node],
    replace: Callable[[Node, tuple[Node, ...]], Node],
) -> dict[Node, Node]:
    """Rebuild expressions bottom up; `replace(leaf, new_args)` rebuilds "load" and "affine"."""
    done: dict[Node, Node] = {}
    for node in postorder(roots):
        args = node.args
        if args:
            args = tuple([done[a] for a in args])
        if node.op == "load" or node.op == "affine":
            done[node] = replace(node, args)
        elif all(new is old for new, old in zip(args, node.args, strict=True)):
            done[node] = node
        else:
            done[node] = table.make(node.op, args, node.dtype, node.attribute)
    return done


def leaves(roots: Iterable[Node]) -> list[Node]:
    """The loads among the nodes below `roots`."""
    return [node for node in postorder(roots) if node.op == "load"]


class ExpressionCost(NamedTuple):
    """The cost of computing one element of an expression."""

    arithmetic: int  # in units of one vectorised operation
    operations: int
    buffers: int
    full_buffers: int  # buffers of which each element of the result reads a different element


def expression_cost(roots: Iterable[Node], shape: Sequence[int]) -> ExpressionCost:
    """The cost of the graph below `roots`, whose results have the given shape."""
    arithmetic = operations = 0
    buffers: set[Buffer] = set()
    full: set[Buffer] = set()
    for node in postorder(roots):
        if node.op == "load":
            buffer, strides, _ = node.attribute
            buffers.add(buffer)
            if node.args or all(s or n == 1 for s, n in zip(strides, shape, strict=True)):
                full.add(buffer)
            arithmetic += 4 * len(node.args)
        else:
            operations += node.op != "constant"
            arithmetic += operation_cost(node.op)
    return ExpressionCost(arithmetic, operations, len(buffers), len(full))
