"""JAX's older names for the functions of rlx.tree, and its rarer ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial as _partial
from typing import Any

import optree

from rlx.offered_names import offer_names
from rlx.trees import tree as _tree
from rlx.trees.keys import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey, keystr
from rlx.trees.tree import TreeDef as PyTreeDef
from rlx.trees.tree import all as tree_all
from rlx.trees.tree import all_leaves, register_dataclass, register_static
from rlx.trees.tree import broadcast as tree_broadcast
from rlx.trees.tree import flatten as tree_flatten
from rlx.trees.tree import flatten_with_path as tree_flatten_with_path
from rlx.trees.tree import leaves as tree_leaves
from rlx.trees.tree import leaves_with_path as tree_leaves_with_path
from rlx.trees.tree import map as tree_map
from rlx.trees.tree import map_with_path as tree_map_with_path
from rlx.trees.tree import reduce as tree_reduce
from rlx.trees.tree import reduce_associative as tree_reduce_associative
from rlx.trees.tree import structure as tree_structure
from rlx.trees.tree import transpose as tree_transpose
from rlx.trees.tree import unflatten as tree_unflatten

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "default_registry",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]

offer_names(globals())

KeyEntry = Any


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
    return _tree.register_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None,
) -> type:
    """rlx.tree.register_node under JAX's name; with `flatten_with_keys_func`, the children have keys.

    >>> import rlx
    >>> class Box:
    ...     def __init__(self, x):
    ...         self.x = x
    >>> _ = rlx.tree_util.register_pytree_node(Box, lambda b: ((b.x,), None), lambda _, c: Box(*c))
    >>> rlx.tree.leaves(Box(3))
    [3]
    """
    if flatten_with_keys_func is not None:
        return _tree.register_node_with_keys(nodetype, flatten_with_keys_func, unflatten_func)
    return _tree.register_node(nodetype, flatten_func, unflatten_func)


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], Any] | None = None,
) -> type:
    """rlx.tree.register_node_with_keys under JAX's name; `flatten_func` is not needed.

    >>> import rlx
    >>> class Box:
    ...     def __init__(self, x):
    ...         self.x = x
    >>> key = rlx.tree_util.GetAttrKey("x")
    >>> _ = rlx.tree_util.register_pytree_with_keys(Box, lambda b: (((key, b.x),), None), lambda _, c: Box(*c))
    >>> rlx.tree.leaves_with_path(Box(3))
    [((GetAttrKey(name='x'),), 3)]
    """
    return _tree.register_node_with_keys(nodetype, flatten_with_keys, unflatten_func)


def register_pytree_with_keys_class(cls: Any) -> Any:
    """Class decorator: a node with methods tree_flatten_with_keys(self) and tree_unflatten(cls, data, children).

    >>> import rlx
    >>> @rlx.tree_util.register_pytree_with_keys_class
    ... class Box:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def tree_flatten_with_keys(self):
    ...         return ((rlx.tree_util.GetAttrKey("x"), self.x),), None
    ...     @classmethod
    ...     def tree_unflatten(cls, _, children):
    ...         return cls(*children)
    >>> rlx.tree.leaves_with_path(Box(3))
    [((GetAttrKey(name='x'),), 3)]
    """
    return _tree.register_node_with_keys(cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten)


def is_tree_node(typ: type) -> bool:
    """Whether instances of a class are nodes of trees rather than leaves.

    >>> import rlx
    >>> rlx.tree_util.is_tree_node(tuple), rlx.tree_util.is_tree_node(float)
    (True, False)
    """
    known: Any = optree.register_pytree_node.get(namespace=_tree.NAMESPACE)  # type: ignore[attr-defined]
    return typ in known or typ is type(None) or (issubclass(typ, tuple) and hasattr(typ, "_fields"))


def flatten_one_level_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """The children of a node, each with its key, and the node's own data. Raises ValueError for a leaf.

    >>> import rlx
    >>> rlx.tree_util.flatten_one_level_with_keys([5, (6,)])
    ([(SequenceKey(idx=0), 5), (SequenceKey(idx=1), (6,))], None)
    """
    children, data = flatten_one_level(tree)
    found, _ = _tree.flatten_with_path(tree, lambda x: x is not tree)
    return [(path[0], child) for (path, _), child in zip(found, children, strict=True)], data


def flatten_one_level(tree: Any) -> tuple[list[Any], Any]:
    """The children of a node, and the node's own data. Raises ValueError for a leaf.

    >>> import rlx
    >>> rlx.tree_util.flatten_one_level({"b": 1, "a": (2, 3)})
    ([(2, 3), 1], ('a', 'b'))
    """
    if _tree.is_leaf_type(tree):
        raise ValueError(f"a leaf has no children to flatten: {tree!r}")
    one = optree.tree_flatten_one_level(tree, none_is_leaf=False, namespace=_tree.NAMESPACE)
    return list(one.children), _keys_as_tuple(one.metadata) if isinstance(tree, dict) else one.metadata


def _keys_as_tuple(data: Any) -> Any:
    """A dictionary's keys, or its default and its keys."""
    return tuple(data) if isinstance(data, list) else (data[0], tuple(data[1]))


class PyTreeRegistry:
    """The registry of tree nodes and their flattening functions. There is one registry: `default_registry`.

    >>> import rlx
    >>> rlx.tree_util.default_registry.flatten_one_level((1, [2]))
    ([1, [2]], None)
    """

    def flatten(self, tree_: Any, leaf_predicate: Callable[[Any], bool] | None = None) -> tuple[list[Any], PyTreeDef]:
        """The leaves of a tree in order, and its structure.

        >>> import rlx
        >>> rlx.tree_util.default_registry.flatten([1, (2, None)])
        ([1, 2], PyTreeDef([*, (*, None)]))
        """
        return _tree.flatten(tree_, leaf_predicate)

    def flatten_one_level(self, tree_: Any) -> tuple[list[Any], Any] | None:
        """The children of a node and its data; None for a leaf.

        >>> import rlx
        >>> rlx.tree_util.default_registry.flatten_one_level(3) is None
        True
        """
        return None if _tree.is_leaf_type(tree_) else flatten_one_level(tree_)

    def register_node(
        self,
        nodetype: type,
        flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]],
        unflatten_func: Callable[[Any, Any], Any],
    ) -> type:
        """`register_pytree_node`.

        >>> import rlx
        >>> class Pair(list):
        ...     pass
        >>> _ = rlx.tree_util.default_registry.register_node(
        ...     Pair, lambda p: (tuple(p), None), lambda _, c: Pair(c))
        >>> rlx.tree.leaves(Pair([1, 2]))
        [1, 2]
        """
        return _tree.register_node(nodetype, flatten_func, unflatten_func)


default_registry = PyTreeRegistry()


def treedef_children(treedef: Any) -> list[Any]:
    """The structures of a structure's children.

    >>> import rlx
    >>> len(rlx.tree_util.treedef_children(rlx.tree.structure((1, [2]))))
    2
    """
    return treedef.children()


def treedef_is_leaf(treedef: Any) -> bool:
    """Whether a structure is a single node: a leaf, or one without children.

    >>> import rlx
    >>> rlx.tree_util.treedef_is_leaf(rlx.tree.structure(1))
    True
    """
    return treedef.num_nodes == 1


def treedef_tuple(treedefs: Iterable[Any]) -> Any:
    """The structure of a tuple of trees of the given structures.

    >>> import rlx
    >>> leaf = rlx.tree.structure(0)
    >>> rlx.tree_util.treedef_tuple([leaf, leaf]) == rlx.tree.structure((1, 2))
    True
    """
    specs = [treedef.spec for treedef in treedefs]
    return PyTreeDef(optree.treespec_tuple(specs, none_is_leaf=False, namespace=_tree.NAMESPACE))


class Partial(_partial):
    """functools.partial as a node of trees: its arguments are leaves, the function is structure.

    >>> import rlx
    >>> rlx.tree.leaves(rlx.tree_util.Partial(max, 3))
    [3]
    """

    def __new__(cls, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Partial:
        """A partial of a plain functools.partial keeps that one whole: its arguments stay structure."""
        plain = isinstance(function, _partial) and not isinstance(function, Partial)
        return super().__new__(cls, _HeldPartial(function) if plain else function, *args, **kwargs)


class _HeldPartial:
    """A functools.partial wrapped in a callable that functools.partial does not unwrap."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, _HeldPartial) else other)

    def __hash__(self) -> int:
        return hash(self.function)


def _take(p: Partial) -> tuple[tuple[Any, Any], Any]:
    return (p.args, p.keywords), p.func


def _make(func: Any, children: Any) -> Partial:
    args, keywords = children
    return Partial(func, *args, **keywords)


_tree.register_node(Partial, _take, _make)
