"""Keys: a path through a tree is a sequence of keys, one per node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import optree
from optree import DataclassEntry, FlattenedEntry, GetAttrEntry, MappingEntry, NamedTupleEntry, SequenceEntry

__all__ = ["DictKey", "FlattenedIndexKey", "GetAttrKey", "KeyPath", "SequenceKey", "key_of", "keystr"]


@dataclass(frozen=True)
class SequenceKey:
    """A place in a list or tuple.

    >>> import rlx
    >>> str(rlx.tree_util.SequenceKey(2))
    '[2]'
    """

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True)
class DictKey:
    """A key of a dictionary.

    >>> import rlx
    >>> str(rlx.tree_util.DictKey("weight"))
    "['weight']"
    """

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """A field of an object.

    >>> import rlx
    >>> str(rlx.tree_util.GetAttrKey("weight"))
    '.weight'
    """

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True)
class FlattenedIndexKey:
    """The number of a child, in a node that names its children in no other way.

    >>> import rlx
    >>> str(rlx.tree_util.FlattenedIndexKey(0))
    '[<flat index 0>]'
    """

    key: int

    def __hash__(self) -> int:
        return hash(("flat", self.key))

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyPath = tuple[Any, ...]


class OwnEntry(FlattenedEntry):
    """Entry of a node whose flattening function returns the keys."""


def key_of(entry: optree.PyTreeEntry) -> Any:
    """The key for an entry of optree's."""
    if isinstance(entry, OwnEntry):
        return entry.entry
    if isinstance(entry, NamedTupleEntry):
        return GetAttrKey(entry.field)
    if isinstance(entry, DataclassEntry):
        return GetAttrKey(entry.name)
    if isinstance(entry, GetAttrEntry):
        return GetAttrKey(entry.entry)
    if isinstance(entry, MappingEntry):
        return DictKey(entry.entry)
    if isinstance(entry, SequenceEntry):
        return SequenceKey(entry.entry)
    return FlattenedIndexKey(entry.entry)


def _plain(key: Any) -> str:
    """A key as it is written without brackets."""
    for field in ("name", "key", "idx"):
        if isinstance(key, (SequenceKey, DictKey, GetAttrKey, FlattenedIndexKey)) and hasattr(key, field):
            return str(getattr(key, field))
    return str(key)


def keystr(keys: Iterable[Any], *, simple: bool = False, separator: str = "") -> str:
    """A path as text.

    Args:
      keys: the path.
      simple: write only names and numbers, without brackets and dots.
      separator: the text between two keys.

    >>> import rlx
    >>> path, _ = rlx.tree.leaves_with_path({"layers": [1.0]})[0]
    >>> rlx.tree_util.keystr(path), rlx.tree_util.keystr(path, simple=True, separator="/")
    ("['layers'][0]", 'layers/0')
    """
    return separator.join(map(_plain if simple else str, keys))
