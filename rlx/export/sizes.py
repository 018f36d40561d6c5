"""Symbolic sizes, set by a call: names and expressions in the shapes of an exported function."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from rlx.call.stages import ShapeDtypeStruct
from rlx.errors import InconclusiveDimensionOperation, ShapeError
from rlx.export.program_text import Unreadable, evaluate_size
from rlx.trace.flat import shared_array
from rlx.trees import tree

__all__ = [
    "Constraint",
    "Size",
    "SymbolicScope",
    "Unknowns",
    "bind_sizes",
    "evaluate_shape",
    "is_symbolic_dim",
    "symbolic_args_specs",
    "symbolic_shape",
    "unknowns_in",
]

_NAME = re.compile(r"[A-Za-z_]\w*")
_RESERVED = re.compile(r"[xcv]\d+|array|complex|dtype|inf|nan|ndarray|ops|program|tensor|weak")
_PROBES = (2, 3, 5)  # a size is solved from the values of an expression at these sizes
_RELATIONS: dict[str, Callable[[int, int], bool]] = {">=": operator.ge, "<=": operator.le, "==": operator.eq}
_STRICTLY = {">=": operator.gt, "<=": operator.lt, "==": operator.eq}
# JAX writes these operators as functions
_FUNCTIONS: dict[str, type[ast.operator]] = {"mod": ast.Mod, "floordiv": ast.FloorDiv}


class Size:
    """A size that is known only when an exported function is called: a name, or an expression like `2*b + 1`.

    It has no value during export; sums and products of sizes and numbers are sizes.

    >>> import rlx
    >>> (b,) = rlx.export.symbolic_shape("b")
    >>> 2 * b + 1
    2 * b + 1
    """

    __slots__ = ("names", "scope", "text")

    def __init__(self, text: str, scope: SymbolicScope | None = None) -> None:
        self.scope = scope or SymbolicScope()
        try:
            found = _Functions().visit(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            found = None
        names = {n.id for n in ast.walk(found) if isinstance(n, ast.Name)} if found is not None else set()
        if found is None or not all(map(_is_part, ast.walk(found))):
            instead = "Write a name, a number, or what +, -, *, // and % make of them."
            raise ShapeError(f"{text!r:.80} is not a size.", instead)
        if taken := [name for name in sorted(names) if _RESERVED.fullmatch(name)]:
            raise ShapeError(f"The name {taken[0]!r} is reserved in programs.", "Name the size otherwise: 'batch'.")
        self.text = ast.unparse(found)
        self.names = frozenset(names)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The number, if the sizes of the names are known.

        >>> import rlx
        >>> rlx.export.symbolic_shape("2*b + 1")[0].evaluate({"b": 3})
        7
        """
        return evaluate_size(self.text, sizes)

    def _with(self, other: Any, operation: str, reverse: bool = False) -> Size:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        left, right = (other, self) if reverse else (self, other)
        scope = self.scope if isinstance(other, int) else self.scope._and(other.scope)
        return Size(f"({left}) {operation} ({right})", scope)

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
            f"The size {self} has no value yet.", "Use it only in a ShapeDtypeStruct for an exported function."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


class _Functions(ast.NodeTransformer):
    """mod(a, b) and floordiv(a, b), which JAX writes, as a % b and a // b."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call."""
        self.generic_visit(node)
        kind = _FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if kind is None or len(node.args) != 2 or node.keywords:
            return node
        return ast.BinOp(node.args[0], kind(), node.args[1])


class Constraint(NamedTuple):
    """A condition on sizes: an inequality or an equation of expressions."""

    left: Size
    relation: str
    right: Size

    @classmethod
    def of(cls, text: str) -> Constraint:
        """Parse a constraint: "a >= b", "2*a == b + 1". Raises ShapeError for other strings."""
        for relation in _RELATIONS:
            left, found, right = text.partition(relation)
            if found:
                return cls(Size(left), relation, Size(right))
        raise ShapeError(f"{text!r:.80} is not a constraint.", "Write expressions and >=, <= or == between them.")

    def holds(self, sizes: Mapping[str, int], strictly: bool = False) -> bool:
        """Whether sizes satisfy it; `strictly`: an inequality must not hold with equality."""
        relations = _STRICTLY if strictly else _RELATIONS
        return relations[self.relation](self.left.evaluate(sizes), self.right.evaluate(sizes))

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


class SymbolicScope:
    """The constraints shared by some sizes.

    >>> import rlx
    >>> scope = rlx.export.SymbolicScope(["a >= b"])
    >>> a, b = rlx.export.symbolic_shape("a, b", scope=scope)
    >>> x = rlx.ShapeDtypeStruct((a, b), "float32")
    >>> rlx.export.export(lambda x: x[: x.shape[1]])(x).out_avals
    (ShapeDtypeStruct(shape=(b, b), dtype=float32),)
    """

    __slots__ = ("constraints",)

    def __init__(self, constraints_str: Sequence[str] = ()) -> None:
        given = (constraints_str,) if isinstance(constraints_str, str) else constraints_str
        self.constraints = tuple(map(Constraint.of, given))

    def _and(self, other: SymbolicScope) -> SymbolicScope:
        """The scope of an expression of two sizes."""
        if other is self or not other.constraints:
            return self
        found = SymbolicScope()
        found.constraints = tuple(dict.fromkeys((*self.constraints, *other.constraints)))
        return found

    def __repr__(self) -> str:
        return f"SymbolicScope({list(map(str, self.constraints))})"


def _is_part(node: ast.AST) -> bool:
    """Whether a node is allowed in a size."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    parts = (ast.Name, ast.Load, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.UnaryOp, ast.USub)
    return isinstance(node, parts)


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[int | Size, ...]:
    """Parse a shape: numbers, names of sizes that a call sets, and expressions of these names.

    Args:
      shape_spec: the string. With `like`, `_` means the corresponding size of `like`, and `...` at the end its
        remaining sizes; None means its whole shape.
      constraints: conditions on the sizes: strings with >=, <= or == between two expressions. Functions are traced only
        for sizes that satisfy them, and calls with other sizes raise an error.
      scope: the constraints of other sizes instead: `size.scope`, or a SymbolicScope.
      like: a shape.

    Raises ShapeError for an invalid string, and if it does not fit `like`.

    >>> import rlx
    >>> rlx.export.symbolic_shape("batch, 2*channels, 64", constraints=["batch >= 2"])
    (batch, 2 * channels, 64)
    >>> rlx.export.symbolic_shape("batch, ...", like=(7, 5, 3))
    (batch, 5, 3)
    """
    scope = _one_scope(constraints, scope)
    text = "..." if shape_spec is None else shape_spec.strip().removeprefix("(").removesuffix(")")
    head, dots, rest = text.partition("...")
    if rest.strip():
        raise ShapeError(f"In the shape {text!r} something follows the dots.", "The dots must be last: 'b, ...'.")
    parts = [part.strip() for part in head.split(",")]
    if parts and parts[-1] == "":
        parts.pop()
    known = tuple(like or ())
    if like is not None and (len(parts) > len(known) or (not dots and len(parts) != len(known))):
        raise ShapeError(f"The shape {text!r} does not fit an array of shape {known}.", "Write a size for each axis.")
    if like is None and (dots or "_" in parts):
        raise ShapeError(f"The shape {text!r} leaves sizes out.", "Give the shape that has them: like=x.shape.")
    sizes = [known[at] if part == "_" else _plain(Size(part, scope)) for at, part in enumerate(parts)]
    sizes += known[len(parts) :] if dots else ()
    if None in sizes:
        raise ShapeError(f"The shape {text!r} refers to a size of {known} that is None.", "Name it.")
    return tuple(size for size in sizes if size is not None)


def _one_scope(constraints: Sequence[str], scope: SymbolicScope | None) -> SymbolicScope:
    if constraints and scope is not None:
        raise ShapeError("Sizes got both constraints and a scope.", "A scope has its own: SymbolicScope(texts).")
    return scope or SymbolicScope(constraints)


def is_symbolic_dim(p: Any) -> bool:
    """Whether `p` is a symbolic size.

    >>> import rlx
    >>> list(map(rlx.export.is_symbolic_dim, rlx.export.symbolic_shape("b, 3")))
    [True, False]
    """
    return isinstance(p, Size)


def _plain(size: Size) -> int | Size:
    return size if size.names else size.evaluate({})


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """Arguments as types with symbolic shapes.

    Args:
      args: a tree of arrays, or of objects with .shape and .dtype.
      shapes_specs: a tree of strings, or a prefix of that tree: "b, 64"; "b, ..." if the rest is as in the array; `_`
        for one size of the array; None for the whole shape of the array.
      constraints, scope: see symbolic_shape.

    Returns: a tree of ShapeDtypeStruct. Raises ShapeError if a string does not fit its array.

    >>> import rlx, numpy as np
    >>> rlx.export.symbolic_args_specs((np.ones((4, 3)), np.ones(3)), ("b, ...", None))[0]
    ShapeDtypeStruct(shape=(b, 3), dtype=float64)
    """
    leaves, treedef = tree.flatten(args)
    specs = tree.broadcast(shapes_specs, args, is_leaf=lambda x: x is None or isinstance(x, str))
    texts = tree.leaves(specs, is_leaf=lambda x: x is None or isinstance(x, str))
    scope = _one_scope(constraints, scope)
    return tree.unflatten(treedef, [_specified(x, text, scope) for x, text in zip(leaves, texts, strict=True)])


def _specified(leaf: Any, text: str | None, scope: SymbolicScope) -> ShapeDtypeStruct:
    known = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else shared_array(leaf)
    sizes: Any = symbolic_shape(text, scope=scope, like=tuple(known.shape))
    return ShapeDtypeStruct(sizes, known.dtype)


# ------------------------------------------------------------------ values
class Unknowns(NamedTuple):
    """The names of a function's symbolic sizes, and their constraints."""

    names: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    def broken(self, sizes: Mapping[str, int], strictly: bool = False) -> tuple[Constraint, ...]:
        """The constraints that sizes do not satisfy."""
        return tuple(c for c in self.constraints if not c.holds(sizes, strictly))

    def and_also(self, constraints: Sequence[Constraint]) -> Unknowns:
        """The same names with more constraints."""
        return Unknowns(self.names, tuple(dict.fromkeys((*self.constraints, *constraints))))


def unknowns_in(types: Iterable[Any]) -> Unknowns:
    """The unknown sizes in the shapes of types, in order, and the constraints that involve only these."""
    sizes = [size for t in types for size in t.shape if isinstance(size, Size)]
    names = tuple(dict.fromkeys(name for size in sizes for name in sorted(size.names)))
    constraints = tuple(dict.fromkeys(c for size in sizes for c in size.scope.constraints))
    mine = tuple(c for c in constraints if c.left.names | c.right.names <= set(names))
    return Unknowns(names, mine)


def evaluate_shape(shape: Sequence[int | Size], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape with its sizes as numbers."""
    return tuple(size.evaluate(sizes) if isinstance(size, Size) else size for size in shape)


def bind_sizes(
    expected: Sequence[Sequence[int | Size]], given: Sequence[Sequence[int]], names: Sequence[str]
) -> dict[str, int] | None:
    """The sizes for which the expected shapes equal the given shapes; None if there are none."""
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
    """Sizes that follow from expressions that are linear in a single unknown."""
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
