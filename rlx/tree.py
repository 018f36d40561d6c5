"""Pytrees: optree's, with JAX's names and conventions (None holds no leaves)."""

from __future__ import annotations

import builtins
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import optree

__all__ = [
    "TreeDef",
    "all",
    "flatten",
    "flatten_with_path",
    "is_leaf_type",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "path_text",
    "reduce",
    "register_dataclass",
    "register_node",
    "structure",
    "transpose",
    "unflatten",
]

NAMESPACE = "rlx"
TreeDef = optree.PyTreeSpec
IsLeaf = Callable[[Any], bool] | None


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeDef]:
    """The leaves of a tree in order, and its structure.

    >>> import rlx
    >>> rlx.tree.flatten({"a": 1, "b": (2, None)})[0]
    [1, 2]
    """
    return optree.tree_flatten(tree, is_leaf, none_is_leaf=False, namespace=NAMESPACE)  # type: ignore[return-value]


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of the given structure with the given leaves.

    >>> import rlx
    >>> leaves, treedef = rlx.tree.flatten([1, (2, 3)])
    >>> rlx.tree.unflatten(treedef, [x * 10 for x in leaves])
    [10, (20, 30)]
    """
    return optree.tree_unflatten(treedef, leaves)


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree in order.

    >>> import rlx
    >>> rlx.tree.leaves({"b": 1, "a": [2, 3]})
    [2, 3, 1]
    """
    return optree.tree_leaves(tree, is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def structure(tree: Any, is_leaf: IsLeaf = None) -> TreeDef:
    """The structure of a tree.

    >>> import rlx
    >>> rlx.tree.structure((1, 2)) == rlx.tree.structure((3, 4))
    True
    """
    return optree.tree_structure(tree, is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def map(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `function` to each leaf, or to corresponding leaves of several trees.

    Raises ValueError where the trees' structures differ.

    >>> import rlx
    >>> rlx.tree.map(lambda x, y: x + y, {"a": 1}, {"a": 2})
    {'a': 3}
    """
    return optree.tree_map(function, tree, *rest, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def reduce(function: Callable[[Any, Any], Any], tree: Any, *initial: Any, is_leaf: IsLeaf = None) -> Any:
    """Fold `function` over the leaves, from the left.

    >>> import rlx
    >>> rlx.tree.reduce(lambda x, y: x + y, [1, (2, 3)], 0)
    6
    """
    return functools.reduce(function, leaves(tree, is_leaf), *initial)


def all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true.

    >>> import rlx
    >>> rlx.tree.all({"a": True, "b": [False]})
    False
    """
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer: TreeDef, inner: TreeDef | None, tree: Any) -> Any:
    """Swap two layers of a tree: from outer-of-inner to inner-of-outer.

    >>> import rlx
    >>> o, i = rlx.tree.structure([0, 0]), rlx.tree.structure({"x": 0})
    >>> rlx.tree.transpose(o, i, [{"x": 1}, {"x": 2}])
    {'x': [1, 2]}
    """
    if inner is None:
        inner = structure(outer.flatten_up_to(tree)[0])
    return optree.tree_transpose(outer, inner, tree)


def flatten_with_path(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[Any, Any]], TreeDef]:
    """The leaves with the path to each, and the structure.

    >>> import rlx
    >>> rlx.tree.flatten_with_path({"a": [5]})[0]
    [(('a', 0), 5)]
    """
    paths, values, treedef = optree.tree_flatten_with_path(tree, is_leaf, none_is_leaf=False, namespace=NAMESPACE)
    return list(zip(paths, values, strict=True)), treedef  # type: ignore[return-value]


def leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[Any, Any]]:
    """The leaves, each with its path.

    >>> import rlx
    >>> rlx.tree.leaves_with_path((1, {"k": 2}))
    [((0,), 1), ((1, 'k'), 2)]
    """
    return flatten_with_path(tree, is_leaf)[0]


def map_with_path(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `function(path, leaf, ...)` to each leaf.

    >>> import rlx
    >>> rlx.tree.map_with_path(lambda path, x: (path, x), {"a": 1})
    {'a': (('a',), 1)}
    """
    return optree.tree_map_with_path(function, tree, *rest, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def path_text(path: Iterable[Any]) -> str:
    """A path as the text that follows the tree's name: `['a'][0].weight`."""
    return "".join(f"[{k!r}]" if isinstance(k, (int, str)) else f".{k}" for k in path)


def register_node(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, Any], Any],
) -> type:
    """Make `cls` a node: `flatten(x) -> (children, data)`, `unflatten(data, children) -> x`.

    >>> import rlx
    >>> class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> _ = rlx.tree.register_node(Pair, lambda p: ((p.x, p.y), None), lambda _, xy: Pair(*xy))
    >>> rlx.tree.leaves(Pair(1, 2))
    [1, 2]
    """
    node_class: Any = cls
    optree.register_pytree_node(node_class, flatten, unflatten, namespace=NAMESPACE)
    return cls


def register_dataclass(cls: type, data_fields: Iterable[str] | None = None, meta_fields: Iterable[str] = ()) -> type:
    """Make a dataclass a node; usable as a decorator. Fields in `meta_fields`, and those declared
    with `metadata={"static": True}`, belong to the structure.

    >>> import dataclasses, rlx
    >>> @rlx.tree.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     bias: float
    >>> rlx.tree.map(lambda x: 2 * x, Layer(1.0, 2.0))
    Layer(weight=2.0, bias=4.0)
    """
    described: Any = cls
    meta = list(meta_fields)
    if data_fields is None:
        fields = [f for f in dataclasses.fields(described) if f.init]
        meta += [f.name for f in fields if f.metadata.get("static") and f.name not in meta]
        data_fields = [f.name for f in fields if f.name not in meta]
    data = list(data_fields)

    def take(x: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(x, n) for n in data], tuple(getattr(x, n) for n in meta)

    def make(aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        return cls(**dict(zip(data, children, strict=True)), **dict(zip(meta, aux, strict=True)))

    return register_node(cls, take, make)


def is_leaf_type(value: Any) -> bool:
    """Whether a value is a leaf rather than a node of the tree."""
    return optree.tree_is_leaf(value, none_is_leaf=False, namespace=NAMESPACE)
