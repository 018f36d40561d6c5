"""optimization_barrier."""

from __future__ import annotations

from typing import Any

from rlx import tree
from rlx.lax.operands import as_array
from rlx.ops.call import optimization_barrier as barrier_op

__all__ = ["optimization_barrier"]


def optimization_barrier(operand: Any) -> Any:
    """The operand (an array, or a tree of arrays); the compiler moves nothing across.

    >>> from rlx import lax
    >>> lax.optimization_barrier((1, 2))[1].item()
    2
    """
    leaves, treedef = tree.flatten(operand)
    if not leaves:
        return operand
    return tree.unflatten(treedef, barrier_op(*map(as_array, leaves)))
