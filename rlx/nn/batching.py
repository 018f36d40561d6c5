"""How blocks take a batch axis themselves, so that they stay blocks under vmap: see rlx.trace.replay.block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["along_axes", "elementwise"]

Dims = Sequence[int | None]


def elementwise(function: Callable[..., Any], inputs: Sequence[Any], dims: Dims, attributes: Mapping[str, Any]) -> Any:
    """Of a function of one array, element by element: the batch axis stays where it is."""
    if len(inputs) != 1:
        return None
    return (function(inputs[0], **_static(attributes)),), dims


def along_axes(function: Callable[..., Any], inputs: Sequence[Any], dims: Dims, attributes: Mapping[str, Any]) -> Any:
    """Of a function of a first array along its `axis`: a batch axis in front is one more axis of that array.

    The others have none and broadcast to it.
    """
    axis = attributes.get("axis")
    if list(dims) != [0] + [None] * (len(dims) - 1) or not isinstance(axis, int):
        return None
    if len(inputs) != len(attributes["operands"]):
        return None  # the block has constants
    if any(x.ndim >= inputs[0].ndim for x in inputs[1:]):
        return None  # the first one would broadcast
    moved = {**_static(attributes), "axis": axis if axis < 0 else axis + 1}
    named = dict(zip(attributes["operands"], inputs, strict=True))
    found = function(**named, **moved)
    results = found if isinstance(found, tuple) else (found,)
    return results, (0,) * len(results)


def _static(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name != "operands"}
