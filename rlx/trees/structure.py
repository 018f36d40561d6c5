"""TreeDef: the structure of a tree, optree's with JAX's methods and looks."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import optree

__all__ = ["TreeDef"]


class TreeDef:
    """The structure of a tree: which nodes it has, without its leaves.

    >>> import rlx
    >>> rlx.tree.structure({"a": 1, "b": (2, None)})
    PyTreeDef({'a': *, 'b': (*, None)})
    """

    __slots__ = ("spec",)

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
        """The tree of this structure with the given leaves; raises ValueError unless they are as many.

        >>> import rlx
        >>> rlx.tree.structure((0, [0])).unflatten([1, 2])
        (1, [2])
        """
        return self.spec.unflatten(leaves)

    def flatten_up_to(self, tree: Any, /) -> list[Any]:
        """The parts of a tree that stand where this structure has leaves; raises ValueError where it does not fit.

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
          f_node: what a node becomes, of its children's results and its data.
          f_leaf: what a leaf becomes; None: the leaf itself.
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
