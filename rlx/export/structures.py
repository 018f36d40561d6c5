"""Tree structures as JSON."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import optree

from rlx.errors import TreeMismatchError
from rlx.trees import tree
from rlx.trees.structure import TreeDef

__all__ = [
    "described",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "structure_of",
]


class _NodeClass(NamedTuple):
    """A node class with a name in files: converts its auxiliary data to bytes, and data and children to a node."""

    kind: type
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    make: Callable[[Any, Sequence[Any]], Any]


_nodes: dict[str, _NodeClass] = {}
_names: dict[type, str] = {}
# public packages whose classes have the names under which users import them: "rlx.optim.ScaleByAdamState"
_PACKAGES = frozenset({"lm", "nn", "optim", "quant"})
_PUBLIC = re.compile(r"rlx\.([a-z]+)\.([A-Za-z]\w*)")


def register_namedtuple_serialization(nodetype: type, *, serialized_name: str) -> type:
    """Register a named tuple class for saving, under a name; -> the class.

    To load the file, register a class under the same name.

    >>> import rlx, typing
    >>> class Point(typing.NamedTuple):
    ...     x: typing.Any
    ...     y: typing.Any
    >>> _ = rlx.export.register_namedtuple_serialization(Point, serialized_name="docs.Point")
    >>> saved = rlx.export(lambda p: p.x + p.y)(Point(1.0, 2.0)).serialize()
    >>> float(rlx.export.deserialize(saved).call(Point(3.0, 4.0)))
    7.0
    """
    return _register(serialized_name, _named_tuple(nodetype))


def register_pytree_node_serialization(
    nodetype: type,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> type:
    """Register a custom node class for saving, under a name; -> the class.

    Args:
      nodetype: a class registered with rlx.tree.register_node.
      serialized_name: the name in files; to load them, register a class under the same name.
      serialize_auxdata, deserialize_auxdata: convert the node's auxiliary data to bytes, and back.
      from_children: creates a node from its data and its children; by default as the class was registered.

    Raises TreeMismatchError if another class has the name.

    >>> import rlx
    >>> class Pair:
    ...     def __init__(self, a, b, name):
    ...         self.a, self.b, self.name = a, b, name
    >>> make = lambda name, parts: Pair(*parts, name)
    >>> _ = rlx.tree.register_node(Pair, lambda p: ((p.a, p.b), p.name), make)
    >>> _ = rlx.export.register_pytree_node_serialization(
    ...     Pair, serialized_name="docs.Pair", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode)
    >>> saved = rlx.export(lambda p: p.a * p.b)(Pair(1.0, 2.0, "sides")).serialize()
    >>> float(rlx.export.deserialize(saved).call(Pair(3.0, 4.0, "sides")))
    12.0
    """

    node = _NodeClass(nodetype, serialize_auxdata, deserialize_auxdata, from_children or _maker(nodetype))
    return _register(serialized_name, node)


def _maker(kind: type) -> Callable[[Any, Sequence[Any]], Any]:
    """The function from data and children to a node of a registered class."""

    def make(data: Any, parts: Sequence[Any]) -> Any:
        own: Any = optree.register_pytree_node.get(kind, namespace=tree.NAMESPACE)
        return own.unflatten_func(data, parts)

    return make


def _named_tuple(kind: type) -> _NodeClass:
    return _NodeClass(kind, lambda _: b"", lambda _: None, lambda _, parts: kind(*parts))


# ------------------------------------------------------------------ the library's own classes
def _public_name(kind: type) -> str | None:
    """The name of a class of rlx's public packages; None for other classes."""
    name = ".".join([*kind.__module__.split(".")[:2], kind.__name__])
    return name if _public_class(name) is kind else None


def _public_class(name: str) -> type | None:
    """The class of a public name; None if there is none."""
    found = _PUBLIC.fullmatch(name)
    if found is None or found[1] not in _PACKAGES:
        return None
    kind = getattr(importlib.import_module(f"rlx.{found[1]}"), found[2], None)
    return kind if isinstance(kind, type) else None


def _node_named(name: str) -> _NodeClass | None:
    """The node class of a name: registered, or a named tuple or dataclass of rlx."""
    found = _nodes.get(name)
    kind = None if found is not None else _public_class(name)
    if kind is None:
        return found
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple(kind)
    if dataclasses.is_dataclass(kind) and optree.register_pytree_node.get(kind, namespace=tree.NAMESPACE) is not None:
        return _NodeClass(kind, _static_bytes, _static_of, _maker(kind))
    return None


def _static_bytes(data: Any) -> bytes:
    """The static fields of a dataclass as JSON: numbers, strings, and other dataclasses by their public names."""
    return json.dumps(data, default=_record).encode()


def _record(value: Any) -> dict[str, Any]:
    name = _public_name(type(value)) if dataclasses.is_dataclass(value) else None
    if name is None:
        raise TypeError(f"{type(value).__name__} has no name in files")
    return {"class": name, "fields": {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}}


def _static_of(data: bytes) -> tuple[Any, ...]:
    return tuple(json.loads(data, object_hook=_recorded))


def _recorded(entry: dict[str, Any]) -> Any:
    if entry.keys() != {"class", "fields"}:
        return entry
    kind = _public_class(str(entry["class"]))
    if kind is None or not dataclasses.is_dataclass(kind) or not isinstance(entry["fields"], dict):
        raise ValueError(f"there is no class of parameters {entry['class']!r:.80}")
    return kind(**entry["fields"])


def _register(name: str, node: _NodeClass) -> type:
    found = _nodes.get(name)
    if found is not None and found.kind is not node.kind and found.kind.__qualname__ != node.kind.__qualname__:
        raise TreeMismatchError(f"The name {name!r} is taken by: {found.kind.__name__}.", "Choose another name.")
    _nodes[name], _names[node.kind] = node, name
    return node.kind


# ------------------------------------------------------------------ to JSON
def described(treedef: TreeDef) -> Any:
    """A structure as JSON: null for a leaf. Raises TreeMismatchError for a node class without a name."""
    root = treedef.node_data()
    if root is None:
        return None
    kind, data = root
    parts = [described(child) for child in treedef.children()]
    if kind is type(None):
        return {"none": []}
    if kind in (tuple, list):
        return {kind.__name__: parts}
    if kind in (dict, OrderedDict) and all(type(key) in (str, int) for key in data):
        return {kind.__name__: [list(pair) for pair in zip(data, parts, strict=True)]}
    name = _names.get(kind) or _public_name(kind)
    node = None if name is None else _node_named(name)
    if node is not None:
        return {"node": [name, node.write(data).hex(), *parts]}
    raise TreeMismatchError(
        f"The arguments or the result have a node of type {kind.__name__}, which is not registered for files.",
        "Use dicts with strings as keys, lists and tuples, or register the class:"
        " rlx.export.register_pytree_node_serialization, register_namedtuple_serialization.",
    )


# ------------------------------------------------------------------ from JSON
def structure_of(description: Any) -> TreeDef:
    """The structure for a result of `described`. Raises ValueError for invalid descriptions."""
    return tree.structure(_example(description))


def _example(description: Any) -> Any:
    """A tree of the structure with zeros as leaves."""
    if description is None:
        return 0
    if not isinstance(description, dict) or len(description) != 1:
        raise ValueError("a description of a tree is invalid")
    ((kind, parts),) = description.items()
    if not isinstance(parts, list):
        raise ValueError("a description of a tree has no list of parts")
    if kind == "none" and not parts:
        return None
    if kind in ("tuple", "list"):
        found = [_example(part) for part in parts]
        return found if kind == "list" else tuple(found)
    if kind in ("dict", "OrderedDict") and all(isinstance(p, list) and len(p) == 2 for p in parts):
        pairs = [(key, _example(part)) for key, part in parts if type(key) in (str, int)]
        return dict(pairs) if kind == "dict" else OrderedDict(pairs)
    if kind == "node" and len(parts) >= 2 and all(isinstance(p, str) for p in parts[:2]):
        node = _node_named(parts[0])
        if node is None:
            raise ValueError(
                f"it has nodes called {parts[0]!r:.80}, whose class is not registered with"
                " rlx.export.register_pytree_node_serialization or register_namedtuple_serialization"
            )
        return node.make(node.read(bytes.fromhex(parts[1])), [_example(part) for part in parts[2:]])
    raise ValueError(f"a tree has a node of an unknown kind {kind!r:.80}")
