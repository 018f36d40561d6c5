"""The contents of a file of arrays, and the checks shared by all formats."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from reprlib import repr as brief
from typing import Any, NamedTuple

import numpy as np

__all__ = ["TEXTS", "Broken", "Contents", "array_of", "check_texts", "parsed", "parsed_object"]

TEXTS = "__metadata__"  # the name of the strings in both formats, which no array can have
MAX_RANK = 64  # of an array, in NumPy


class Contents(NamedTuple):
    """The contents of a file: arrays by name, and strings by name."""

    arrays: dict[str, np.ndarray]
    texts: dict[str, str]


class Broken(Exception):
    """Why a file is not of its format; `load` adds the file's name."""


def parsed(text: str | bytes, what: str) -> Any:
    """The value of JSON in UTF-8. Raises Broken for another text, and for an object with a name twice."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode(), object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        raise Broken(f"its {what} is not JSON") from None


def parsed_object(text: str | bytes, what: str) -> dict[str, Any]:
    """The same for JSON that is an object; raises Broken for others."""
    found = parsed(text, what)
    if not isinstance(found, dict):
        raise Broken(f"its {what} is not a JSON object")
    return found


def _distinct(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Broken(f"the name {name!r:.80} occurs twice")
        found[name] = value
    return found


def check_texts(texts: Any) -> dict[str, str]:
    """Strings by name. Raises Broken for anything else."""
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise Broken(f"its {TEXTS} are not strings")
    return texts


def array_of(name: str, body: memoryview, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The array with the bytes `body`, aligned and of native byte order; a view if they already are.

    Raises Broken for a shape that is invalid or does not match the bytes, and for bools that are neither 0 nor 1.
    """
    largest = math.prod(n or 1 for n in shape[:MAX_RANK]) * dtype.itemsize  # NumPy's bound ignores zeros
    size = 0 if 0 in shape else largest
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or largest > sys.maxsize or size != len(body):
        raise Broken(f"its array {name!r:.80} is not a {dtype}{brief(list(shape))} of {len(body)} bytes")
    if dtype == np.bool_ and np.frombuffer(body, np.uint8).max(initial=0) > 1:
        raise Broken(f"its array {name!r:.80} has bools that are neither 0 nor 1")
    found = np.ndarray(shape, dtype, body)
    return np.require(found, dtype.newbyteorder("="), "A")
