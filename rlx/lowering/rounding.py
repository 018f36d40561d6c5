"""Rounding of narrow floats: results computed in float32 are rounded to the narrow dtype after every operation.

A compiled program therefore has the same values as one that runs operation by operation. There is no rounding within
an operation, a reduction or a product. The switch excess_precision leaves results unrounded until they are stored or
converted: fewer instructions, different values.
"""

from __future__ import annotations

import numpy as np

from rlx.ir.formats import FLOAT_FORMATS
from rlx.lowering.nodes import Node, NodeTable, constant_value
from rlx.lowering.scalar_fold import fold

__all__ = ["is_exact", "rounded", "rounded_result"]

# of exact operands these give exact results
_EXACT = frozenset("neg abs min max copysign sign floor ceil trunc round_even select".split())


def rounded_result(table: NodeTable, node: Node, dtype: np.dtype) -> Node:
    """The result of an operation, rounded unless excess precision is wanted."""
    return node if table.excess_precision else rounded(table, node, dtype)


def rounded(table: NodeTable, node: Node, dtype: np.dtype) -> Node:
    """A float32 node rounded to a narrow float `dtype`, as float32 again; other dtypes need no rounding."""
    if dtype not in FLOAT_FORMATS or is_exact(table, node, dtype):
        return node
    narrow = fold(table, "cast", (node,), dtype)
    return fold(table, "cast", (narrow,), node.dtype)


def is_exact(table: NodeTable, node: Node, dtype: np.dtype) -> bool:
    """Whether the value of a float32 node is one of `dtype` for certain."""
    match node.op:
        case "load":
            return bool(node.attribute.buffer.dtype == dtype)
        case "cast":
            return node.args[0].dtype == dtype
        case "constant":
            value = constant_value(node)
            with np.errstate(all="ignore"):
                same = value == value.astype(dtype).astype(node.dtype)
            return bool(same or value != value)
        case op if op in _EXACT:
            known = table.exact.get((node, dtype))
            if known is None:
                values = node.args[1:] if op == "select" else node.args
                known = table.exact[node, dtype] = all(is_exact(table, a, dtype) for a in values)
            return known
    return False
