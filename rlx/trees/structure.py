"""TreeDef: the structure of a tree, optree's with JAX's methods and looks."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import optree

from rlx.statics import static_key

__all__ = ["TreeDef", "odd_keys_in", "tree_key"]


class TreeDef:
    """The structure of a tree: which nodes it has, without its leaves.

    >>> import rlx
    >>> rlx.tree.structure({"a": 1, "b": (2, None)})
    PyTreeDef({'a': *, 'b': (*, None)})
    """

    __slots__ = ("spec",)
    sorts_dicts = False  # whether trees are made with the keys of dicts in order, as by JAX, and not as inserted

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    @property
    def num_leaves(self) -> int:
        """How many leaves such trees have."""
        return self.spec.num_leaves

    @property
    def num_nodes(self) -> int:
        """How many nodes such trees have, leaves included."""
        return self.spec.num_nodes

    def unflatten(self, leaves: Iterable[Any], /) -> Any:
        """The tree of this structure with the given leaves; raises ValueError if their number differs.

        >>> import rlx
        >>> rlx.tree.structure((0, [0])).unflatten([1, 2])
        (1, [2])
        """
        return self.maker().unflatten(leaves)

    def maker(self) -> Any:
        """The structure of optree's by which trees are made."""
        return _in_order(self.spec) if self.sorts_dicts else self.spec

    def flatten_up_to(self, tree: Any, /) -> list[Any]:
        """The subtrees at the positions of this structure's leaves; raises ValueError if the tree does not match.

        >>> import rlx
        >>> rlx.tree.structure((0, [0])).flatten_up_to((1, [(2, 3)]))
        [1, (2, 3)]
        """
        return self.spec.flatten_up_to(tree)

    def children(self) -> list[TreeDef]:
        """The structures of the children of the root.

        >>> import rlx
        >>> rlx.tree.structure((0, [0])).children()
        [PyTreeDef(*), PyTreeDef([*])]
        """
        return [TreeDef(child) for child in self.spec.children()]

    def compose(self, inner: TreeDef, /) -> TreeDef:
        """The structure with `inner` in the place of each leaf.

        >>> import rlx
        >>> rlx.tree.structure((0, 0)).compose(rlx.tree.structure([0]))
        PyTreeDef(([*], [*]))
        """
        return TreeDef(self.spec.compose(inner.spec))

    def node_data(self) -> tuple[type, Any] | None:
        """The type of the root and the data that it keeps in the structure; None for a leaf.

        >>> import rlx
        >>> rlx.tree.structure({"b": 0, "a": 0}).node_data()
        (<class 'dict'>, ['a', 'b'])
        """
        root = self.spec.one_level()
        if root is None:
            return None
        kind, data, _ = root.walk([None] * root.num_leaves, lambda *node: node)
        if kind is data:  # a named tuple
            return kind, None
        return kind, _data_of(kind, data)

    def walk(
        self,
        f_node: Callable[[tuple[Any, ...], Any], Any],
        f_leaf: Callable[[Any], Any] | None,
        leaves: Iterable[Any],
        /,
    ) -> Any:
        """Visit leaves and nodes, children before parents; the result for the root.

        Args:
          f_node: maps a node's child results and its data to a result.
          f_leaf: maps a leaf to a result; None: the leaf.
          leaves: the leaves.

        >>> import rlx
        >>> rlx.tree.structure((0, [0, 0])).walk(lambda found, _: sum(found), lambda x: 2 * x, [1, 2, 3])
        12
        """
        return self.spec.walk(leaves, lambda kind, data, found: f_node(tuple(found), _data_of(kind, data)), f_leaf)

    def __eq__(self, other: object) -> bool:
        return self.spec == other.spec if isinstance(other, TreeDef) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.spec)

    def __repr__(self) -> str:
        return f"PyTreeDef({_text(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeDef, (self.spec,)


def tree_key(treedef: TreeDef) -> tuple[Any, ...]:
    """A key for a structure: as trees compare, but with keys of dicts of one type only, and their signs.

    >>> import rlx
    >>> from rlx.trees.structure import tree_key
    >>> one, other = rlx.tree.structure({1: 0}), rlx.tree.structure({True: 0})
    >>> one == other, tree_key(one) == tree_key(other)
    (True, False)
    """
    return treedef, _odd_keys(treedef)


def _odd_keys(treedef: TreeDef) -> tuple[Any, ...]:
    """The keys of dicts that other keys of another type may equal; none for strings."""
    found: list[Any] = []

    def visit(kind: type, data: Any, _: Any) -> None:
        keys = data[1] if kind is defaultdict else data if kind in (dict, OrderedDict) else ()
        found.extend(static_key(key) for key in keys if not isinstance(key, str))

    treedef.spec.walk([None] * treedef.num_leaves, visit, None)
    return tuple(found)


_ordered: dict[Any, Any] = {}  # of structures of built-in nodes, equal for every order of keys; others hold user data
_MOST_ORDERED = 1024


def _in_order(spec: Any) -> Any:
    """The structure with sorted keys of dicts."""
    try:
        found = _ordered.get(spec)
    except TypeError:  # data without a hash
        found = None
    if found is not None:
        return found
    built_in = True

    def ordered(node: Any) -> Any:
        nonlocal built_in
        built_in = built_in and node.kind is not optree.PyTreeKind.CUSTOM
        if node.kind not in (optree.PyTreeKind.DICT, optree.PyTreeKind.DEFAULTDICT):
            return node
        options = {"none_is_leaf": node.none_is_leaf, "namespace": node.namespace}
        children = dict.fromkeys(node.entries(), optree.treespec_leaf(**options))
        if node.kind is optree.PyTreeKind.DICT:
            return optree.treespec_dict(children, **options)
        made = node.unflatten(range(node.num_leaves))
        return optree.treespec_defaultdict(made.default_factory, children, **options)

    found = optree.treespec_transform(spec, ordered)
    if built_in:
        if len(_ordered) >= _MOST_ORDERED:
            _ordered.clear()
        _ordered[spec] = found
    return found


def odd_keys_in(tree: Any) -> tuple[Any, ...]:
    """Those of the keys that `tree_key` tells apart that are in dicts, lists and tuples around everything else."""
    if isinstance(tree, dict):
        found = tuple(static_key(key) for key in tree if not isinstance(key, str))
        return found + sum(map(odd_keys_in, tree.values()), ())
    return sum(map(odd_keys_in, tree), ()) if isinstance(tree, (list, tuple)) else ()


def _data_of(kind: type, data: Any) -> Any:
    """A node's data in the form that it has in JAX: keys are a tuple, and a list for a plain dict."""
    if kind is OrderedDict:
        return tuple(data)
    if kind is defaultdict:
        return data[0], tuple(data[1])
    return data


def _text(treedef: TreeDef) -> str:
    """A structure as text: `*` for a leaf, Python's displays for built-in nodes."""
    root = treedef.node_data()
    if root is None:
        return "*"
    kind, data = root
    parts = [_text(child) for child in treedef.children()]
    inside = ", ".join(parts)
    if kind is type(None):
        return "None"
    if kind is tuple:
        return f"({inside},)" if len(parts) == 1 else f"({inside})"
    if kind is list:
        return f"[{inside}]"
    if kind is dict:
        return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(data, parts, strict=True)) + "}"
    if treedef.spec.kind == optree.PyTreeKind.NAMEDTUPLE:
        return f"CustomNode(namedtuple[{kind.__name__}], [{inside}])"
    return f"CustomNode({kind.__name__}[{data}], [{inside}])"
