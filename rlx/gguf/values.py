"""Encoding of metadata values as bytes, and the format's kind of a Python value."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from reprlib import repr as brief
from typing import Any, NoReturn

import numpy as np

from rlx.errors import DtypeError
from rlx.gguf.cursor import KINDS, Order

__all__ = ["count_bytes", "kind_of", "kind_word", "text_bytes", "value_bytes"]

_NUMBERS = {kind.name: number for number, kind in enumerate(KINDS)}
_INTEGERS = ("uint32", "int32", "uint64", "int64")  # tried in this order


def kind_of(key: str, value: Any) -> str:
    """The default kind of a value: see GGUFWriter.add_metadata."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (list, tuple)):
        return f"array[{_kind_of_items(key, value)}]"
    if isinstance(value, int):
        return _integer_kind(key, value, value)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return "float32"
    dtype = getattr(value, "dtype", None)
    if dtype is None or dtype.name not in _NUMBERS:
        refuse(key, value, "cannot be stored in metadata")
    depth = getattr(value, "ndim", 0)
    return "array[" * depth + dtype.name + "]" * depth


def _integer_kind(key: str, low: int, high: int) -> str:
    for name in _INTEGERS:
        info = np.iinfo(name)
        if info.min <= low and high <= info.max:
            return name
    refuse(key, high, "has more than 64 bits")


def _kind_of_items(key: str, values: Sequence[Any]) -> str:
    kinds = {kind_of(key, value) for value in values}
    if len(kinds) <= 1:
        return kinds.pop() if kinds else "int32"
    if all(kind.startswith("array[") for kind in kinds):
        return "array"
    if kinds <= set(_INTEGERS):
        return _integer_kind(key, min(values), max(values))
    if kinds <= {*_INTEGERS, "float32"}:
        return "float32"
    refuse(key, values, "has elements of several kinds")


def refuse(key: str, value: Any, why: str) -> NoReturn:
    """Raise DtypeError for a value."""
    raise DtypeError(
        f"The metadata {key!r:.80} = {brief(value)} {why}.",
        "Values are numbers, bools, strings, arrays of numbers, and (nested) lists of a single kind.",
    )


# ---------------------------------------------------------------- bytes
def count_bytes(order: Order, version: int, count: int) -> bytes:
    """A count or a length."""
    return struct.pack(order + ("I" if version == 1 else "Q"), count)


def kind_word(order: Order, kind: str) -> bytes:
    """The number of a kind."""
    return struct.pack(order + "I", _NUMBERS["array" if kind.startswith("array") else kind])


def text_bytes(order: Order, version: int, text: str) -> bytes:
    """A string preceded by its length. Raises DtypeError if UTF-8 cannot encode it."""
    try:
        found = text.encode()
    except UnicodeEncodeError:
        raise DtypeError(f"The string {brief(text)} is not valid Unicode.", "Replace its lone surrogates.") from None
    return count_bytes(order, version, len(found)) + found


def value_bytes(order: Order, version: int, key: str, kind: str, value: Any) -> bytes:
    """A value of a kind, without the kind's number. Raises DtypeError if the kind cannot represent it."""
    if kind == "string":
        return text_bytes(order, version, value) if isinstance(value, str) else refuse(key, value, "is no text")
    if not kind.startswith("array"):
        return _numbers(order, key, kind, value, ()).tobytes()
    if not hasattr(value, "__len__") or isinstance(value, str):
        refuse(key, value, "is no array")
    items = kind[6:-1] or "array"
    head = kind_word(order, items) + count_bytes(order, version, len(value))
    if items == "string":
        return head + b"".join(value_bytes(order, version, key, items, text) for text in value)
    if items.startswith("array"):
        return head + b"".join(value_bytes(order, version, key, kind_of(key, item), item) for item in value)
    return head + _numbers(order, key, items, value, (len(value),)).tobytes()


def _numbers(order: Order, key: str, kind: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    dtype = KINDS[_NUMBERS[kind]].dtype if kind in _NUMBERS else None
    if dtype is None:
        refuse(key, value, f"cannot be of the kind {kind!r}")
    given = found = None
    try:
        given = np.asarray(value) if len(value if shape else (0,)) else np.zeros(0, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            found = given.astype(dtype)
    except (ValueError, TypeError, OverflowError):
        pass
    if given is None or found is None:
        refuse(key, value, f"is no {kind}")
    kept = (
        np.isfinite(found) | ~np.isfinite(given) if dtype.kind == "f" and given.dtype.kind in "biuf" else found == given
    )
    if given.shape != shape or not np.all(kept) or (dtype.kind == "b") != (given.dtype.kind == "b"):
        refuse(key, value, f"is no {kind}")
    return found.astype(dtype.newbyteorder(order))
