"""Trees as a file's contents: arrays by the paths of the leaves, and the structure as a string."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from reprlib import repr as brief
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array, keys_over
from rlx.errors import TreeMismatchError
from rlx.ir.extended import KEY_DTYPES
from rlx.ir.types import is_key
from rlx.serialization.contents import TEXTS, Broken, Contents, parsed, parsed_object
from rlx.trace.flat import shared_array
from rlx.trees import tree
from rlx.trees.keys import keystr

__all__ = ["arrays_of", "contents_of", "name_of", "only", "tree_of"]

STRUCTURE = "rlx.tree"  # the string with the tree's structure
KEYS = "rlx.keys"  # the string that says which arrays are the words of random keys, and of which generator
ROOT = "value"  # the name of a tree that is one leaf
_UNFIT = re.compile("[\0\ud800-\udfff]")  # characters that no name in an archive may have


# ------------------------------------------------------------- to a file
def contents_of(value: Any) -> Contents:
    """A tree as a file's contents. Raises TreeMismatchError if leaves cannot be named by their paths."""
    named = _named(value)
    keys = {name: array.dtype for name, array in named.items() if is_key(array.dtype)}
    arrays = {name: np.asarray(array) for name, array in named.items() if name not in keys}
    arrays |= {name: dtype.words_of(named[name].numpy()) for name, dtype in keys.items()}
    texts = {KEYS: json.dumps({name: dtype.generator for name, dtype in keys.items()})} if keys else {}
    try:
        texts[STRUCTURE] = json.dumps(_described(value))
    except ValueError:
        pass  # loading needs `like`
    return Contents({name: arrays[name] for name in named}, texts)


def name_of(path: Iterable[Any]) -> str:
    """The name of a leaf's array: the keys on its path, joined by dots."""
    return keystr(path, simple=True, separator=".") or ROOT


def _named(value: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for path, leaf in tree.leaves_with_path(value):
        name = name_of(path)
        if name in named:
            raise TreeMismatchError(f"Two leaves of the tree are called {name!r}.", "Rename one of the keys.")
        if name == TEXTS or _UNFIT.search(name):
            raise TreeMismatchError(f"No array in a file can be called {name!r}.", "Rename the key.")
        named[name] = shared_array(leaf, f"the leaf {name!r}")
    return named


def _described(value: Any, path: tuple[str, ...] = ()) -> Any:
    """A tree of dicts, lists, tuples and None as JSON, with names as leaves; ValueError for other nodes."""
    if value is None:
        return {"none": True}
    if isinstance(value, dict) and type(value) is dict and all(isinstance(k, str) for k in value):
        return {"dict": {k: _described(v, (*path, k)) for k, v in value.items()}}
    if type(value) in (list, tuple):
        parts = [_described(v, (*path, str(i))) for i, v in enumerate(value)]
        return {type(value).__name__: parts}
    if not tree.is_leaf_type(value):
        raise ValueError
    return ".".join(path) or ROOT


# ------------------------------------------------------------- from a file
def arrays_of(contents: Contents) -> dict[str, Array]:
    """The arrays of a file, keys among them. Raises Broken for words that the generator does not have."""
    generators = parsed_object(contents.texts.get(KEYS, "{}"), f"{KEYS} entry")
    if not generators.keys() <= contents.arrays.keys():
        raise Broken(f"its {KEYS} entry names arrays that it does not have")
    return {name: _array_or_keys(name, array, generators.get(name)) for name, array in contents.arrays.items()}


def only(contents: Contents) -> Contents:
    """Contents whose strings describe some of a file's arrays: those that are there."""
    generators = parsed_object(contents.texts.get(KEYS, "{}"), f"{KEYS} entry")
    kept = {name: generator for name, generator in generators.items() if name in contents.arrays}
    return Contents(contents.arrays, {KEYS: json.dumps(kept)})


def _array_or_keys(name: str, array: np.ndarray, generator: Any) -> Array:
    if generator is None:
        return jnp.asarray(array)
    dtype = KEY_DTYPES.get(generator) if isinstance(generator, str) else None
    if dtype is None or array.dtype != np.uint32 or array.shape[-1:] != (dtype.words,):
        raise Broken(f"its array {name!r:.80} does not contain keys of the generator {brief(generator)}")
    return keys_over(dtype.records_of(array))


def tree_of(contents: Contents, arrays: dict[str, Array]) -> Any:
    """The saved tree, or the arrays by name if the file has no structure. Raises Broken unless all arrays fit in."""
    if STRUCTURE not in contents.texts:
        return arrays
    description = parsed(contents.texts[STRUCTURE], f"{STRUCTURE} entry")
    left = dict(arrays)
    try:
        found = _rebuilt(description, left)
    except RecursionError:
        raise Broken(f"its {STRUCTURE} entry is nested too deeply") from None
    if left:
        raise Broken(f"its {STRUCTURE} entry has no leaf for the array {min(left)!r:.80}")
    return found


def _rebuilt(description: Any, left: dict[str, Array]) -> Any:
    """The tree of a description; its arrays are removed from `left`."""
    if isinstance(description, str) and description in left:
        return left.pop(description)
    if isinstance(description, dict) and len(description) == 1:
        ((kind, parts),) = description.items()
        if kind == "none":
            return None
        if kind == "dict" and isinstance(parts, dict):
            return {k: _rebuilt(v, left) for k, v in parts.items()}
        if kind in ("list", "tuple") and isinstance(parts, list):
            found = [_rebuilt(v, left) for v in parts]
            return found if kind == "list" else tuple(found)
    raise Broken(f"its {STRUCTURE} entry does not describe a tree of its arrays: {brief(description)}")
