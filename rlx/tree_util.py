"""JAX's older names for the functions of rlx.tree."""

from __future__ import annotations

from functools import partial as _partial
from typing import Any

from rlx import tree
from rlx.tree import TreeDef as PyTreeDef
from rlx.tree import all as tree_all
from rlx.tree import flatten as tree_flatten
from rlx.tree import flatten_with_path as tree_flatten_with_path
from rlx.tree import leaves as tree_leaves
from rlx.tree import leaves_with_path as tree_leaves_with_path
from rlx.tree import map as tree_map
from rlx.tree import map_with_path as tree_map_with_path
from rlx.tree import path_text as keystr
from rlx.tree import reduce as tree_reduce
from rlx.tree import register_dataclass
from rlx.tree import register_node as register_pytree_node
from rlx.tree import structure as tree_structure
from rlx.tree import transpose as tree_transpose
from rlx.tree import unflatten as tree_unflatten

__all__ = [
    "Partial",
    "PyTreeDef",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "tree_all",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
]


def register_pytree_node_class(cls: Any) -> Any:
    """Class decorator: a node with methods tree_flatten(self) and tree_unflatten(cls, data, children).

    >>> import rlx
    >>> @rlx.tree_util.register_pytree_node_class
    ... class Scaled:
    ...     def __init__(self, x, factor):
    ...         self.x, self.factor = x, factor
    ...     def tree_flatten(self):
    ...         return (self.x,), self.factor
    ...     @classmethod
    ...     def tree_unflatten(cls, factor, children):
    ...         return cls(*children, factor)
    >>> rlx.tree.leaves(Scaled(1.0, 2))
    [1.0]
    """
    return tree.register_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)


class Partial(_partial):
    """functools.partial as a node of trees: its arguments are leaves, the function is structure.

    >>> import rlx
    >>> rlx.tree.leaves(rlx.tree_util.Partial(max, 3))
    [3]
    """


def _take(p: Partial) -> tuple[tuple[Any, Any], Any]:
    return (p.args, p.keywords), p.func


def _make(func: Any, children: Any) -> Partial:
    args, keywords = children
    return Partial(func, *args, **keywords)


tree.register_node(Partial, _take, _make)
