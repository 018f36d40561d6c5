"""Sequences and optionals: Python lists and None during tracing, so lengths and positions must be known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.errors import ShapeError
from rlx.onnx.nodes import ArraySequence, Node, known, operator

__all__: list[str] = []


def _place(node: Node, position: Any, length: int, most: int) -> int:
    """A position in a sequence, from the end if negative. Raises ShapeError if it is outside."""
    found = int(known(node, position, "position").reshape(()))
    if not -length <= found <= most:
        raise ShapeError(f"The node {node.name!r} ({node.kind}) has the position {found} in {length} elements.")
    return found + length if found < 0 else found


@operator("SequenceEmpty")
def _empty(node: Node) -> Any:
    return ArraySequence()


@operator("SequenceConstruct")
def _construct(node: Node, *elements: Any) -> Any:
    return ArraySequence(elements)


@operator("SequenceAt")
def _at(node: Node, sequence: Any, position: Any) -> Any:
    return sequence[_place(node, position, len(sequence), len(sequence) - 1)]


@operator("SequenceLength")
def _length(node: Node, sequence: Any) -> Any:
    return np.asarray(len(sequence), np.int64)


@operator("SequenceInsert")
def _insert(node: Node, sequence: Any, element: Any, position: Any = None) -> Any:
    length = len(sequence)
    at = length if position is None else _place(node, position, length, length)
    return ArraySequence((*sequence[:at], element, *sequence[at:]))


@operator("SequenceErase")
def _erase(node: Node, sequence: Any, position: Any = None) -> Any:
    length = len(sequence)
    at = _place(node, np.asarray(-1) if position is None else position, length, length - 1)
    return ArraySequence((*sequence[:at], *sequence[at + 1 :]))


@operator("SplitToSequence")
def _split(node: Node, x: Any, sizes: Any = None) -> Any:
    """Parts of given sizes, or of one size, the last one smaller; without sizes, elements."""
    axis = node.get("axis", 0) % x.ndim
    length = x.shape[axis]
    if sizes is None:
        parts: Sequence[int] = [1] * length
    else:
        given = known(node, sizes, "sizes of parts")
        step = int(given) if given.ndim == 0 else 0
        if given.ndim == 0 and step <= 0:
            raise ShapeError(f"The node {node.name!r} (SplitToSequence) has parts of size {step}.")
        parts = given.tolist() if given.ndim else [min(step, length - at) for at in range(0, length, step)]
        if sum(parts) != length or min(parts, default=0) < 0:
            raise ShapeError(f"The node {node.name!r} (SplitToSequence) splits {length} elements into {parts}.")
    found = jnp.split(x, np.cumsum(parts)[:-1].tolist(), axis) if parts else []
    kept = sizes is not None or node.get("keepdims", 1)
    return ArraySequence(found if kept else [jnp.squeeze(part, axis) for part in found])


@operator("ConcatFromSequence")
def _concatenate(node: Node, sequence: Any) -> Any:
    if not sequence:
        raise ShapeError(f"The node {node.name!r} (ConcatFromSequence) got an empty sequence.")
    join = jnp.stack if node.get("new_axis", 0) else jnp.concatenate
    return join([jnp.asarray(x) for x in sequence], axis=node["axis"])


@operator("SequenceMap")
def _map(node: Node, sequence: Any, *more: Any) -> Any:
    """The body for each element; other sequences are walked along, arrays are passed whole."""
    body, rows = node["body"], []
    for number, element in enumerate(sequence):
        others = [x[number] if isinstance(x, ArraySequence) else x for x in more]
        rows.append(node.run(body, (element, *others)))
    columns = zip(*rows, strict=True) if rows else [()] * len(body.output)
    return tuple(map(ArraySequence, columns))


# ------------------------------------------------------------------ optionals
@operator("Optional")
def _optional(node: Node, value: Any = None) -> Any:
    return (value,)


@operator("OptionalHasElement")
def _has_element(node: Node, value: Any = None) -> Any:
    return np.asarray(value is not None)


@operator("OptionalGetElement")
def _get_element(node: Node, value: Any) -> Any:
    if value is None:
        raise ShapeError(f"The node {node.name!r} (OptionalGetElement) got an optional without an element.")
    return (value,)
