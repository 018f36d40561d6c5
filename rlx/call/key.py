"""The keys of a call: one is made of the arguments at every call, the other of all that a traced program depends on."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import optree
from optree import _C as _optree

from rlx.array import ConcreteArray, parts_of
from rlx.errors import RlxError
from rlx.ir.types import TensorType
from rlx.trace.flat import shared_array
from rlx.trace.spanning import locals_of
from rlx.trees import tree
from rlx.trees.structure import odd_keys_in

__all__ = ["CallKey", "Key", "Signature", "call_key", "completed_key", "program_order"]

_flatten: Any = _optree.flatten
_type_of = operator.attrgetter("_type")
CallKey = tuple[Any, ...]


def call_key(token: Hashable, args: Sequence[Any]) -> tuple[Sequence[Any], CallKey, bool]:
    """The leaves of arguments, the key of a call with them (the token, the structure, the leaves' types), and whether
    leaves were not arrays of rlx: they are converted, over the caller's memory.

    The structure of arrays and flat dicts of arrays is told by keys of dicts, which is fast; of others by optree. The
    key of leaves that cannot be arrays is (); it finds nothing, and neither does a key with an unknown type.
    """
    key: list[Any] = [token]
    leaves: list[Any] = []
    try:
        for x in args:
            if type(x) is ConcreteArray:
                key.append(x._type)
                leaves.append(x)
            elif type(x) is dict:
                key.append(tuple(x))
                key += map(_type_of, x.values())
                leaves += x.values()
            else:
                break
        else:
            return leaves, tuple(key), False
    except AttributeError:  # not an array of rlx
        pass
    leaves, structure = _flatten(args, None, False, tree.NAMESPACE)
    try:
        return leaves, (token, structure, *map(_type_of, leaves)), False
    except AttributeError:
        pass
    try:
        leaves = list(map(shared_array, leaves))
        return leaves, (token, structure, *[x._type or x.type for x in leaves]), True
    except (AttributeError, RlxError):  # traced, or not an array: tracing the call reports it
        return leaves, (), True


def completed_key(args: Sequence[Any], leaves: Sequence[Any], key: CallKey, odd_keys: bool) -> CallKey:
    """The key with the types of arrays that did not know them. odd_keys: whether keys of dicts may equal keys of other
    types, which are then part of it."""
    unknown = [x for x in leaves if type(x) is ConcreteArray and x._type is None and not x.is_deleted()]
    if unknown:
        types = iter([x.type for x in unknown])
        key = tuple([next(types) if part is None else part for part in key])
    return (*key, odd_keys_in(args)) if odd_keys and key else key


def program_order(args: Sequence[Any], leaves: Sequence[Any], key: CallKey) -> Callable[[Any], Any] | None:
    """A function that puts the leaves of call_key in the order of a program's inputs; None if they are in it."""
    local = locals_of if any(parts_of(x) for x in leaves) else None
    if len(key) > 1 and isinstance(key[1], optree.PyTreeSpec):
        return local
    numbers = itertools.count()
    numbered = [{k: next(numbers) for k in a} if type(a) is dict else next(numbers) for a in args]
    order = tree.leaves(tuple(numbered))
    if order == sorted(order):
        return local
    ordered = operator.itemgetter(*order)
    return ordered if local is None else lambda given: locals_of(ordered(given))


class Signature(NamedTuple):
    """The properties of a call that its program depends on, apart from how devices divide the arguments."""

    in_tree: tree.TreeDef
    dict_keys: tuple[Any, ...]  # keys that equal keys of other types
    types: tuple[TensorType, ...]  # of the dynamic leaves
    places: tuple[Any, ...]  # their shardings over Explicit axes
    token: Any  # of the switches
    static: tuple[tuple[Any, Any, Any], ...]  # position or name, key, value
    axes: Any  # mapped axes with their sizes, and over which of them the arguments vary
    where: Any  # the memory of the arguments, HOST if a policy may not move them, or "around" in another program


class Key(NamedTuple):
    """The key of a traced signature. The divisions of the arguments determine the divisions of the results."""

    signature: Signature
    divisions: tuple[Any, ...]
