"""Pytrees: optree's, with JAX's names and conventions (None holds no leaves)."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import optree

from rlx.errors import InputTypeError, TreeMismatchError, describe
from rlx.offered_names import offer_names
from rlx.trees.keys import GetAttrKey, KeyPath, OwnEntry, key_of
from rlx.trees.structure import TreeDef

__all__ = [
    "TreeDef",
    "all",
    "all_leaves",
    "broadcast",
    "flatten",
    "flatten_with_path",
    "is_leaf_type",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "path_text",
    "reduce",
    "reduce_associative",
    "register_dataclass",
    "register_node",
    "register_node_with_keys",
    "register_static",
    "static",
    "structure",
    "transpose",
    "unflatten",
]

offer_names(globals())

Class = TypeVar("Class", bound=type)

NAMESPACE = "rlx"
IsLeaf = Callable[[Any], bool] | None
_NOTHING: Any = object()


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeDef]:
    """The leaves of a tree in order, and its structure.

    >>> import rlx
    >>> rlx.tree.flatten({"a": 1, "b": (2, None)})[0]
    [1, 2]
    """
    found, spec = optree.tree_flatten(tree, is_leaf, none_is_leaf=False, namespace=NAMESPACE)
    return found, TreeDef(spec)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of the given structure with the given leaves.

    >>> import rlx
    >>> leaves, treedef = rlx.tree.flatten([1, (2, 3)])
    >>> rlx.tree.unflatten(treedef, [x * 10 for x in leaves])
    [10, (20, 30)]
    """
    if not isinstance(treedef, TreeDef):
        raise InputTypeError(
            f"tree.unflatten takes a structure first, but got {kind_of(treedef)}.",
            "Write rlx.tree.unflatten(treedef, leaves); rlx.tree.structure(tree) is the structure of a tree.",
        )
    return treedef.unflatten(leaves)


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
    return TreeDef(optree.tree_structure(tree, is_leaf, none_is_leaf=False, namespace=NAMESPACE))


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `f` to each leaf, or to corresponding leaves of several trees.

    Raises TreeMismatchError where the trees' structures differ, naming the first place.

    >>> import rlx
    >>> rlx.tree.map(lambda x, y: x + y, {"a": 1}, {"a": 2})
    {'a': 3}
    """
    if not callable(f):
        raise InputTypeError(
            f"tree.map takes a function as its first argument, but got {kind_of(f)}.",
            "Write rlx.tree.map(function, tree).",
        )
    found, spec = optree.tree_flatten(tree, is_leaf, none_is_leaf=False, namespace=NAMESPACE)
    others = [_matching(spec, tree, other, i, is_leaf) for i, other in enumerate(rest)]
    return TreeDef(spec).unflatten(builtins.map(f, found, *others))


def _matching(spec: Any, first: Any, other: Any, number: int, is_leaf: IsLeaf = None) -> list[Any]:
    """The subtrees of tree `number` at the first tree's leaves; TreeMismatchError if it does not match."""
    try:
        return spec.flatten_up_to(other)
    except ValueError as error:
        reason = str(error)
    found = _difference(first, other, "", is_leaf)
    if found is None:  # a node of a user's class whose own data differ
        raise TreeMismatchError(f"tree.map got trees of different structures: {reason}", _SAME_TREES)
    path, one, two = found
    place = f" at {path}" if path else ""
    raise TreeMismatchError(
        f"tree.map got trees of different structures: the first tree{place} is {kind_of(one)},"
        f" tree {number + 2}{place} is {kind_of(two)}.",
        _SAME_TREES,
    )


_SAME_TREES = (
    "The trees have the structure of the first, or go deeper where that has leaves: rlx.tree.structure shows it."
)


def first_difference(prefix: Any, full: Any, is_leaf: IsLeaf = None) -> str:
    """Where a tree is not a prefix of another, in words; empty if both have the same nodes.

    >>> from rlx.trees import tree
    >>> tree.first_difference({"w": 0}, {"w": 1.0, "b": 2.0})
    ": a dict with the keys 'w' for a dict with the keys 'w', 'b'"
    """
    found = _difference(prefix, full, "", is_leaf)
    if found is None:
        return ""
    path, one, two = found
    return f"{f' at {path}' if path else ''}: {kind_of(one)} for {kind_of(two)}"


def _difference(one: Any, two: Any, path: str, is_leaf: IsLeaf) -> tuple[str, Any, Any] | None:
    """The first position where two trees differ: the path, and both parts."""
    if optree.tree_is_leaf(one, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE):
        return None
    if type(one) is not type(two) and not (isinstance(one, dict) and isinstance(two, dict)):
        return path, one, two
    children, others = _children(one), _children(two)
    if [*children] != [*others]:
        return path, one, two
    for key, child in children.items():
        found = _difference(child, others[key], f"{path}{key}", is_leaf)
        if found is not None:
            return found
    return None


def _children(node: Any) -> dict[str, Any]:
    """The children of a node, by the text of each path."""
    return {path_text(path): child for path, child in flatten_with_path(node, lambda x: x is not node)[0]}


def kind_of(part: Any) -> str:
    """A short description of a part of a tree, for messages.

    >>> from rlx.trees import tree
    >>> tree.kind_of((1, 2)), tree.kind_of({"w": 1})
    ('a tuple of 2', "a dict with the keys 'w'")
    """
    if isinstance(part, dict):
        return f"a dict with the keys {', '.join(builtins.map(repr, part))}" if part else "an empty dict"
    if type(part) in (list, tuple):
        return f"a {type(part).__name__} of {len(part)}"
    return "None" if part is None else describe(part)


def reduce(function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _NOTHING, is_leaf: IsLeaf = None) -> Any:
    """Fold `function` over the leaves, from the left, beginning with `initializer` if there is one.

    >>> import rlx
    >>> rlx.tree.reduce(lambda x, y: x + y, [1, (2, 3)], 0)
    6
    """
    start = () if initializer is _NOTHING else (initializer,)
    return functools.reduce(function, leaves(tree, is_leaf), *start)


def reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _NOTHING, is_leaf: IsLeaf = None
) -> Any:
    """Fold an associative operation over the leaves as a balanced tree, which is short and rounds less.

    Raises TypeError for a tree without leaves if there is no `identity`.

    >>> import rlx
    >>> rlx.tree.reduce_associative(lambda x, y: x + y, [1, (2, 3)])
    6
    """
    values = leaves(tree, is_leaf)
    if not values:
        if identity is _NOTHING:
            raise TypeError("reduce_associative needs identity=... for a tree without leaves")
        return identity
    while len(values) > 1:
        odd = values[-1:] if len(values) % 2 else []
        values = [operation(a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + odd
    return values[0]


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """The leaves of `prefix_tree`, each repeated over the matching part of `full_tree`.

    Raises ValueError if `prefix_tree` is not a prefix of `full_tree`.

    >>> import rlx
    >>> rlx.tree.broadcast([1, 2], [{"a": 5, "b": 6}, 7])
    [{'a': 1, 'b': 1}, 2]
    """
    found: list[Any] = []

    def spread(leaf: Any, part: Any) -> None:
        found.extend([leaf] * structure(part, is_leaf).num_leaves)

    map(spread, prefix_tree, full_tree, is_leaf=is_leaf)
    return unflatten(structure(full_tree, is_leaf), found)


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether each of the values is a leaf, none a node.

    >>> import rlx
    >>> rlx.tree_util.all_leaves([1, "a"]), rlx.tree_util.all_leaves([1, (2,)])
    (True, False)
    """
    return optree.all_leaves(iterable, is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true.

    >>> import rlx
    >>> rlx.tree.all({"a": True, "b": [False]})
    False
    """
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any) -> Any:
    """Swap two layers of a tree: from outer-of-inner to inner-of-outer.

    >>> import rlx
    >>> o, i = rlx.tree.structure([0, 0]), rlx.tree.structure({"x": 0})
    >>> rlx.tree.transpose(o, i, [{"x": 1}, {"x": 2}])
    {'x': [1, 2]}
    """
    if inner_treedef is None:
        inner_treedef = structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    return optree.tree_transpose(outer_treedef.spec, inner_treedef.spec, pytree_to_transpose)


def _decisions(tree: Any, is_leaf: Callable[[KeyPath, Any], bool]) -> list[bool]:
    """The results of `is_leaf(path, node)` for every node, in flattening order."""
    found: list[bool] = []

    def visit(node: Any, path: KeyPath) -> None:
        found.append(bool(is_leaf(path, node)))
        if found[-1] or is_leaf_type(node):
            return
        accessors, children, _ = optree.tree_flatten_with_accessor(
            node, lambda x: x is not node, none_is_leaf=False, namespace=NAMESPACE
        )
        for accessor, child in zip(accessors, children, strict=True):
            visit(child, (*path, key_of(accessor[0])))

    visit(tree, ())
    return found


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """The leaves with the path to each, and the structure.

    Args:
      tree: the tree.
      is_leaf: where to stop, besides at leaves: `is_leaf(node)`.
      is_leaf_takes_path: it is `is_leaf(path, node)`.

    >>> import rlx
    >>> rlx.tree.flatten_with_path({"a": [5]})[0]
    [((DictKey(key='a'), SequenceKey(idx=0)), 5)]
    """
    if is_leaf is not None and is_leaf_takes_path:
        answers = iter(_decisions(tree, is_leaf))
        is_leaf = lambda _: next(answers)  # noqa: E731
    accessors, values, spec = optree.tree_flatten_with_accessor(tree, is_leaf, none_is_leaf=False, namespace=NAMESPACE)
    paths = [tuple(key_of(entry) for entry in accessor) for accessor in accessors]
    return list(zip(paths, values, strict=True)), TreeDef(spec)


def leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The leaves, each with its path.

    >>> import rlx
    >>> rlx.tree.leaves_with_path((1, {"k": 2}))
    [((SequenceKey(idx=0),), 1), ((SequenceKey(idx=1), DictKey(key='k')), 2)]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Apply `f(path, leaf, ...)` to each leaf.

    >>> import rlx
    >>> rlx.tree.map_with_path(lambda path, x: rlx.tree_util.keystr(path), {"a": (1, 2)})
    {'a': ("['a'][0]", "['a'][1]")}
    """
    found, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    others = [_matching(treedef, tree, other, i) for i, other in enumerate(rest)]
    return unflatten(treedef, [f(*values) for values in _rows(found, others)])


def _rows(found: list[tuple[KeyPath, Any]], others: list[Any]) -> Iterable[tuple[Any, ...]]:
    for number, (path, leaf) in enumerate(found):
        yield path, leaf, *[other[number] for other in others]


def path_text(path: Iterable[Any]) -> str:
    """A path as the text that follows the tree's name: `['a'][0].weight`.

    >>> import rlx
    >>> from rlx import tree
    >>> [tree.path_text(path) for path, _ in tree.leaves_with_path({"a": [1, 2]})]
    ["['a'][0]", "['a'][1]"]
    """
    return "".join(builtins.map(str, path))


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
    return _registered(cls, flatten, unflatten)


def _registered(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any], **options: Any) -> type:
    node_class: Any = cls
    with warnings.catch_warnings():  # optree warns that a named tuple is already a node
        warnings.filterwarnings("ignore", "PyTree type .* is a subclass of", UserWarning)
        optree.register_pytree_node(node_class, flatten, unflatten, namespace=NAMESPACE, **options)
    return cls


def register_node_with_keys(
    cls: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]],
    unflatten: Callable[[Any, Any], Any],
) -> type:
    """Make `cls` a node whose children have keys: `flatten_with_keys(x) -> ([(key, child), ...], data)`.

    >>> import rlx
    >>> class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> keys = rlx.tree_util.GetAttrKey("x"), rlx.tree_util.GetAttrKey("y")
    >>> _ = rlx.tree.register_node_with_keys(
    ...     Pair, lambda p: (tuple(zip(keys, (p.x, p.y))), None), lambda _, xy: Pair(*xy))
    >>> rlx.tree_util.keystr(rlx.tree.leaves_with_path(Pair(1, 2))[1][0])
    '.y'
    """

    def take(x: Any) -> tuple[list[Any], Hashable, list[Any]]:
        pairs, data = flatten_with_keys(x)
        pairs = list(pairs)
        return [child for _, child in pairs], data, [key for key, _ in pairs]

    return _registered(cls, take, unflatten, path_entry_type=OwnEntry)


def _fields_checked(cls: Any, data: list[str], meta: list[str], dropped: list[str]) -> None:
    """Raises ValueError unless the names are the fields of the dataclass, each once."""
    expected = {f.name for f in dataclasses.fields(cls) if f.init}
    if twice := sorted(set(data) & set(meta)):
        raise ValueError(f"{cls.__name__}: both data and meta: {', '.join(twice)}")
    given = set(data) | set(meta) | set(dropped)
    if missing := sorted(expected - given):
        raise ValueError(f"{cls.__name__}: neither in data_fields nor in meta_fields: {', '.join(missing)}")
    if unknown := sorted((set(data) | set(meta)) - expected):
        raise ValueError(f"{cls.__name__} has no field that its constructor takes named: {', '.join(unknown)}")


def register_dataclass(
    nodetype: Class,
    data_fields: Iterable[str] | None = None,
    meta_fields: Iterable[str] | None = None,
    drop_fields: Iterable[str] = (),
) -> Class:
    """Make a dataclass a node; usable as a decorator. Fields in `meta_fields`, and those declared
    with `metadata={"static": True}`, belong to the structure.

    Raises ValueError if the names are not the dataclass's fields (`drop_fields` need not be named), and
    TypeError for a class that is not a dataclass if no fields are named.

    >>> import dataclasses, rlx
    >>> @rlx.tree.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     bias: float
    >>> rlx.tree.map(lambda x: 2 * x, Layer(1.0, 2.0))
    Layer(weight=2.0, bias=4.0)
    """
    described: Any = nodetype
    if data_fields is None and meta_fields is not None:
        raise TypeError(f"register_dataclass: {nodetype.__name__} has meta_fields, but no data_fields")
    if meta_fields is None and data_fields is not None and not dataclasses.is_dataclass(described):
        raise TypeError(f"register_dataclass: {nodetype.__name__} has data_fields, but no meta_fields")
    meta, dropped = list(meta_fields or ()), list(drop_fields)
    if data_fields is None:
        if not dataclasses.is_dataclass(described):
            name = nodetype.__name__
            raise TypeError(f"register_dataclass: {name} is not a dataclass: pass data_fields and meta_fields")
        fields = [f for f in dataclasses.fields(described) if f.name not in dropped]
        meta += [f.name for f in fields if f.metadata.get("static") and f.name not in meta]
        data_fields = [f.name for f in fields if f.name not in meta]
    data = list(data_fields)
    if dataclasses.is_dataclass(described):
        _fields_checked(described, data, meta, dropped)
    keys = [GetAttrKey(n) for n in data]

    def take(x: Any) -> tuple[list[Any], tuple[Any, ...], list[GetAttrKey]]:
        return [getattr(x, n) for n in data], tuple(getattr(x, n) for n in meta), keys

    def make(aux: Any, children: Iterable[Any]) -> Any:
        return nodetype(**dict(zip(data, children, strict=True)), **dict(zip(meta, aux, strict=True)))

    optree.register_pytree_node(described, take, make, path_entry_type=OwnEntry, namespace=NAMESPACE)
    return nodetype


def register_static(cls: Class) -> Class:
    """Class decorator: instances are nodes without leaves. They must be hashable and comparable: they are structure.

    >>> import rlx
    >>> @rlx.tree_util.register_static
    ... class Mode(str):
    ...     pass
    >>> rlx.tree.leaves([Mode("train"), 1.0])
    [1.0]
    """
    register_node(cls, lambda x: ((), x), lambda x, _: x)
    return cls


def static(*, metadata: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """dataclasses.field for a field that belongs to the structure: see `register_dataclass`.

    >>> import dataclasses, rlx
    >>> @rlx.tree.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     name: str = rlx.tree.static(default="dense")
    >>> rlx.tree.leaves(Layer(1.0))
    [1.0]
    """
    return dataclasses.field(metadata={"static": True, **(metadata or {})}, **options)


def is_leaf_type(value: Any) -> bool:
    """Whether a value is a leaf rather than a node of the tree.

    >>> import rlx
    >>> from rlx import tree
    >>> tree.is_leaf_type(1.0), tree.is_leaf_type([1.0]), tree.is_leaf_type(None)
    (True, False, False)
    """
    return optree.tree_is_leaf(value, none_is_leaf=False, namespace=NAMESPACE)
