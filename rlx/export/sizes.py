"""Sizes that a call decides: names and expressions of them in the shapes of an exported function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from rlx.call.stages import ShapeDtypeStruct
from rlx.errors import InconclusiveDimensionOperation, ShapeError
from rlx.trace.flat import shared_array
from rlx.trace.read import Unreadable, evaluate_size
from rlx.trees import tree

__all__ = ["Size", "bind_sizes", "evaluate_shape", "names_in", "symbolic_args_specs", "symbolic_shape"]

_NAME = re.compile(r"[A-Za-z_]\w*")
_RESERVED = re.compile(r"[xcv]\d+|array|complex|dtype|inf|nan|ndarray|ops|program|tensor|weak")
_PROBES = (2, 3, 5)  # a size is found by what an expression is at such values


class Size:
    """A size that is known when an exported function is called: a name, or an expression like `2*b + 1`.

    It has no value while the function is exported; sums and products of sizes and numbers are sizes.

    >>> import rlx
    >>> (b,) = rlx.export.symbolic_shape("b")
    >>> 2 * b + 1
    2 * b + 1
    """

    __slots__ = ("names", "text")

    def __init__(self, text: str) -> None:
        try:
            found = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            found = None
        names = {n.id for n in ast.walk(found) if isinstance(n, ast.Name)} if found is not None else set()
        if found is None or not all(map(_is_part, ast.walk(found))):
            instead = "Write a name, a number, or what +, -, *, // and % make of them."
            raise ShapeError(f"{text!r:.80} is no size.", instead)
        if taken := [name for name in sorted(names) if _RESERVED.fullmatch(name)]:
            raise ShapeError(f"A size is called {taken[0]!r}, as something in programs.", "Call it otherwise: 'batch'.")
        self.text = ast.unparse(found)
        self.names = frozenset(names)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The number, where the sizes of the names are known.

        >>> import rlx
        >>> rlx.export.symbolic_shape("2*b + 1")[0].evaluate({"b": 3})
        7
        """
        return evaluate_size(self.text, sizes)

    def _with(self, other: Any, operation: str, reverse: bool = False) -> Size:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        left, right = (other, self) if reverse else (self, other)
        return Size(f"({left}) {operation} ({right})")

    def __add__(self, other: Any) -> Size:
        return self._with(other, "+")

    def __radd__(self, other: Any) -> Size:
        return self._with(other, "+", True)

    def __sub__(self, other: Any) -> Size:
        return self._with(other, "-")

    def __rsub__(self, other: Any) -> Size:
        return self._with(other, "-", True)

    def __mul__(self, other: Any) -> Size:
        return self._with(other, "*")

    def __rmul__(self, other: Any) -> Size:
        return self._with(other, "*", True)

    def __floordiv__(self, other: Any) -> Size:
        return self._with(other, "//")

    def __mod__(self, other: Any) -> Size:
        return self._with(other, "%")

    def __index__(self) -> NoReturn:
        raise InconclusiveDimensionOperation(
            f"The size {self} has no value yet.", "Only an exported function takes it, as part of a ShapeDtypeStruct."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


def _is_part(node: ast.AST) -> bool:
    """Whether a node may stand in a size."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    parts = (ast.Name, ast.Load, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.UnaryOp, ast.USub)
    return isinstance(node, parts)


def symbolic_shape(shape_spec: str) -> tuple[int | Size, ...]:
    """The shape that a text describes: numbers, names of sizes that a call decides, and expressions of them.

    Raises ShapeError for another text.

    >>> import rlx
    >>> rlx.export.symbolic_shape("batch, 2*channels, 64")
    (batch, 2 * channels, 64)
    """
    parts = [part.strip() for part in shape_spec.strip().removeprefix("(").removesuffix(")").split(",")]
    if parts and parts[-1] == "":
        parts.pop()
    return tuple(_plain(Size(part)) for part in parts)


def _plain(size: Size) -> int | Size:
    return size if size.names else size.evaluate({})


def symbolic_args_specs(args: Any, shapes_specs: Any) -> Any:
    """Arguments as types whose shapes are written as texts.

    Args:
      args: a tree of arrays, or of what has .shape and .dtype.
      shapes_specs: a tree of texts, or a prefix of that tree: "b, 64", or "b, ..." where what follows is as in the
        array; None where all of the shape is.

    Returns: a tree of ShapeDtypeStruct. Raises ShapeError where a text does not fit its array.

    >>> import rlx, numpy as np
    >>> rlx.export.symbolic_args_specs((np.ones((4, 3)), np.ones(3)), ("b, ...", None))[0]
    ShapeDtypeStruct(shape=(b, 3), dtype=float64)
    """
    leaves, treedef = tree.flatten(args)
    specs = tree.broadcast(shapes_specs, args, is_leaf=lambda x: x is None or isinstance(x, str))
    texts = tree.leaves(specs, is_leaf=lambda x: x is None or isinstance(x, str))
    return tree.unflatten(treedef, list(map(_specified, leaves, texts)))


def _specified(leaf: Any, text: str | None) -> ShapeDtypeStruct:
    known = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else shared_array(leaf)
    shape = tuple(known.shape)
    if text is None:
        return ShapeDtypeStruct(shape, known.dtype)
    head, dots, rest = text.partition("...")
    if rest.strip():
        raise ShapeError(f"In the shape {text!r} something follows the dots.", "The dots come last: 'b, ...'.")
    given = symbolic_shape(head)
    if len(given) > len(shape) or (not dots and len(given) != len(shape)):
        raise ShapeError(f"The shape {text!r} does not fit an array of shape {shape}.", "Write a size for each axis.")
    sizes: Any = (*given, *shape[len(given) :])
    return ShapeDtypeStruct(sizes, known.dtype)


# ------------------------------------------------------------------ values
def names_in(types: Iterable[Any]) -> tuple[str, ...]:
    """The names in the shapes of types, in order."""
    found: dict[str, None] = {}
    for size in (size for t in types for size in t.shape if isinstance(size, Size)):
        found |= dict.fromkeys(sorted(size.names))
    return tuple(found)


def evaluate_shape(shape: Sequence[int | Size], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape with its sizes as numbers."""
    return tuple(size.evaluate(sizes) if isinstance(size, Size) else size for size in shape)


def bind_sizes(
    expected: Sequence[Sequence[int | Size]], given: Sequence[Sequence[int]], names: Sequence[str]
) -> dict[str, int] | None:
    """The sizes for which expected shapes are the given ones; None if there are none."""
    if any(len(e) != len(g) for e, g in zip(expected, given, strict=True)):
        return None
    pairs = [(e, g) for es, gs in zip(expected, given, strict=True) for e, g in zip(es, gs, strict=True)]
    sizes: dict[str, int] = {}
    open_pairs = [(e, g) for e, g in pairs if isinstance(e, Size)]
    while len(sizes) < len(names):
        found = next(_solved(open_pairs, sizes), None)
        if found is None:
            return None
        sizes |= found
    fits = all((e.evaluate(sizes) if isinstance(e, Size) else e) == g for e, g in pairs)
    return sizes if fits and min(sizes.values(), default=1) >= 0 else None


def _solved(pairs: Sequence[tuple[Size, int]], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes that follow from an expression with one unknown, where that is linear in it."""
    for size, value in pairs:
        unknown = size.names - sizes.keys()
        if len(unknown) != 1:
            continue
        (name,) = unknown
        try:
            a, b, c = (size.evaluate({**sizes, name: probe}) for probe in _PROBES)
        except (Unreadable, ZeroDivisionError):
            continue
        slope = b - a
        if slope and c - b == slope * (_PROBES[2] - _PROBES[1]) and (value - a) % slope == 0:
            yield {name: (value - a) // slope + _PROBES[0]}
