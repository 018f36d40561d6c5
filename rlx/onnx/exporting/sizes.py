"""Models for any value of symbolic sizes: graphs for several values, generalised to one.

The graphs must be equal except for numbers in their tensors and shapes. Each such number is an expression of the sizes,
which becomes nodes that compute it from the shapes of the inputs.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from onnx import helper, numpy_helper

from rlx.errors import RlxError, ShapeError
from rlx.export.exported import Exported
from rlx.export.functions import has_keys, refuse_host
from rlx.export.program_text import evaluate_number
from rlx.export.sizes import Size, Unknowns, unknowns_in
from rlx.export.templates import expression_of, points_of
from rlx.ir.program import Program
from rlx.onnx.exporting.writer import flat, named
from rlx.passes.pipeline import passes, walk

__all__ = ["graph_for_sizes"]

# unlike the sizes that occur in programs, and with all remainders of small numbers
_UNUSUAL = (101, 110, 123, 136, 147, 158, 165, 174, 189, 205, 214, 227, 238, 249, 262)
_SMALL = (1, 2, 7)
_MOST_ELEMENTS = 64  # of a tensor whose elements may depend on sizes
Sizes = Mapping[str, int]


class _Draft(NamedTuple):
    """A graph for one value of the sizes: the numbers that may depend on it, and all else."""

    graph: Any
    numbers: Sequence[str]
    rest: Sequence[bytes]


def graph_for_sizes(exported: Exported, write: Callable[[Program], Any]) -> Any:
    """The graph of an exported function for all values of its symbolic sizes; `write` makes one of a program.

    Raises ShapeError if there is none.
    """
    unknowns, name = exported.unknowns, exported.fun_name
    if not unknowns.names:
        return write(exported.program())
    limits = set(unknowns.constraints) - set(unknowns_in(exported.in_avals).constraints)
    if limits:
        listed = ", ".join(sorted(map(str, limits)))
        raise ShapeError(
            f"{name} has one program only for sizes with {listed}, which an ONNX model cannot say.",
            f"State it if this is meant: rlx.export.symbolic_shape(..., constraints=[{min(map(str, limits))!r}]).",
        )

    def draft(sizes: Sizes) -> _Draft:
        return _draft(write(_simplified(exported.program(**sizes))))

    points = _points(unknowns, name)
    drafts = [draft(point) for point in points]
    for point, other in zip(points[1:], drafts[1:], strict=True):
        if other.rest != drafts[0].rest:
            where = _difference(drafts[0], other)
            raise ShapeError(
                f"{name} has no single model for all sizes: with {points[0]} and {point} it differs in {where}.",
                "Export one model for each size, or write the function without what depends on the size there.",
            )
    expressions = _expressions(drafts, points, name)
    for point in _small_points(points[0], unknowns):
        small = None
        with suppress(RlxError):  # the function's, for such a size
            small = draft(point)
        if small is not None:
            _check_point(small, drafts[0], expressions, point, name)
    found = _generalised(drafts[0].graph, expressions, exported)
    if unknowns.constraints:
        found.doc_string = f"For sizes with {', '.join(map(str, unknowns.constraints))}."
    return found


def _simplified(program: Program) -> Program:
    """The program after the passes that do not weigh sizes against each other."""
    steps = [step for step in passes if step.name not in ("accumulate_in_place", "hoist_loop_products")]
    refuse_host(program)
    return program if has_keys(program) else walk(program, steps)[-1].program


def _points(unknowns: Unknowns, name: str) -> list[dict[str, int]]:
    count = 3 + (len(unknowns.names) + 1) * (len(unknowns.names) + 2) // 2
    found = [
        {n: _UNUSUAL[((turn << at) + 2 * at) % len(_UNUSUAL)] for at, n in enumerate(unknowns.names)}
        for turn in range(max(count, 8))
    ]
    allowed = not any(unknowns.broken(point, strictly=True) for point in found)
    return found if allowed else points_of(unknowns, name, thorough=True)


def _small_points(base: Sizes, unknowns: Unknowns) -> Iterator[dict[str, int]]:
    for name, size in itertools.product(unknowns.names, _SMALL):
        point = {**base, name: size}
        if not unknowns.broken(point):
            yield point


# ------------------------------------------------------------------ numbers of graphs
def _subgraphs(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
                yield from _subgraphs(attribute.g)


def _dims(graph: Any, inner: bool = True) -> Iterator[Any]:
    """The sizes in the types of the inputs and outputs of a graph, and of those of its nodes."""
    for part in (graph, *(_subgraphs(graph) if inner else ())):
        for value in (*part.input, *part.output):
            yield from value.type.tensor_type.shape.dim


def _may_depend(array: np.ndarray) -> bool:
    return array.size <= _MOST_ELEMENTS and array.dtype != np.bool_


def _draft(graph: Any) -> _Draft:
    numbers = [str(dim.dim_value) for dim in _dims(graph)]
    rest = []
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        rest.append(f"{tensor.name} {array.dtype} {array.shape}".encode())
        if _may_depend(array):
            numbers += [str(x) for x in array.reshape(-1).tolist()]
        else:
            rest.append(hashlib.sha256(array.tobytes()).digest())
    for part in (graph, *_subgraphs(graph)):
        for node in part.node:
            rest.append(_without_dims(node).SerializeToString(deterministic=True))
    return _Draft(graph, numbers, rest)


def _without_dims(node: Any) -> Any:
    if not any(a.HasField("g") for a in node.attribute):
        return node
    copy = type(node)()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.HasField("g"):
            for dim in _dims(attribute.g):
                dim.Clear()
    return copy


def _difference(one: _Draft, other: _Draft) -> str:
    """The first node that differs."""
    nodes = [[n for part in (d.graph, *_subgraphs(d.graph)) for n in part.node] for d in (one, other)]
    for a, b in zip(*nodes, strict=False):
        if _without_dims(a) != _without_dims(b):
            kinds = dict.fromkeys((a.op_type, b.op_type))
            return f"a node ({' and '.join(kinds)})"
    return "the number of nodes or tensors"


def _expressions(drafts: Sequence[_Draft], points: Sequence[Sizes], name: str) -> list[str]:
    known: dict[tuple[str, ...], str] = {}
    found = []
    for column in zip(*(draft.numbers for draft in drafts), strict=True):
        if column not in known:
            text = column[0] if len(set(column)) == 1 else expression_of(column, points, thorough=True)
            if text is None:
                listed = ", ".join(column[:4])
                raise ShapeError(
                    f"{name} has no single model for all sizes: a number is {listed}, ..., which follow no rule.",
                    "Export one model for each size.",
                )
            known[column] = text
        found.append(known[column])
    return found


def _check_point(draft: _Draft, base: _Draft, expressions: Sequence[str], point: Sizes, name: str) -> None:
    """Raise ShapeError if the expressions do not give the numbers of a graph of the same structure."""
    if draft.rest != base.rest:  # a shortcut for this size
        return
    for number, expression in zip(draft.numbers, expressions, strict=True):
        if number != expression and not np.isclose(float(number), float(evaluate_number(expression, point)), 1e-2):
            raise ShapeError(
                f"{name} has no single model for all sizes: for {point} a number is {number} instead of {expression}.",
                "Export one model for each size.",
            )


# ------------------------------------------------------------------ the graph for all sizes
def _generalised(graph: Any, expressions: Sequence[str], exported: Exported) -> Any:
    left = iter(expressions)
    outer = len(list(_dims(graph, inner=False)))
    for number, dim in enumerate(_dims(graph)):
        text = next(left)
        if not _is_number(text):
            dim.Clear()
            if number < outer:  # the types of inner graphs follow from the outer graph
                dim.dim_param = text
    computed = _Computed(exported)
    kept = []
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        texts = [next(left) for _ in range(array.size)] if _may_depend(array) else []
        if all(map(_is_number, texts)):
            kept.append(tensor)
        else:
            computed.tensor(tensor.name, array, texts)
    nodes = [*computed.nodes, *graph.node]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend([*kept, *computed.tensors])
    graph.node.extend(nodes)
    return graph


def _is_number(text: str) -> bool:
    names = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
    return names <= {"inf", "nan"}


class _Computed:
    """Nodes that compute expressions of sizes, as int64 or float64 arrays of one element, and the sizes themselves."""

    def __init__(self, exported: Exported) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self.known: dict[str, str] = {}  # names of expressions and numbers
        self.floats: set[str] = set()
        self.bound: dict[str, str] = {}  # names of sizes
        types = exported.in_avals
        dims = [
            (dim, flat([name])[0], axis)
            for name, t in zip(named("x", types), types, strict=True)
            for axis, dim in enumerate(t.shape)
            if isinstance(dim, Size)
        ]
        while len(self.bound) < len(exported.unknowns.names):
            before = len(self.bound)
            for dim, source, axis in sorted(dims, key=lambda d: str(d[0]) not in d[0].names):
                self._bind(dim, source, axis)
            if len(self.bound) == before:
                missing = set(exported.unknowns.names) - self.bound.keys()
                raise ShapeError(f"The size {min(missing)} does not follow from the shapes of the arguments.")

    def _bind(self, dim: Size, source: str, axis: int) -> None:
        """Solve the equation of a dimension and its expression, if that is linear in one unknown size."""
        unknown = dim.names - self.bound.keys()
        if len(unknown) != 1:
            return
        (name,) = unknown
        others = dict.fromkeys(dim.names, 3)
        zero, one, two = (dim.evaluate({**others, name: n}) for n in (0, 1, 2))
        if one == zero or two - one != one - zero:
            return
        size = self.node("Shape", [source], start=axis, end=axis + 1)
        if str(dim) != name:
            low, high = (f"({ast.unparse(_Replaced(name, n).visit(ast.parse(str(dim), mode='eval')))})" for n in (0, 1))
            size = self.node("Sub", [size, self.expression(low)])
            size = self.node("Div", [size, self.expression(f"{high} - {low}")])
        self.bound[name] = size

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        result = f"s{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [result], **attributes))
        return result

    def array(self, values: np.ndarray) -> str:
        name = f"n{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(values, name))
        return name

    def tensor(self, name: str, array: np.ndarray, texts: Sequence[str]) -> None:
        """Nodes that compute a tensor with these elements."""
        key = f"{array.dtype}{array.shape}{texts}"
        if key in self.known:
            self.nodes.append(helper.make_node("Identity", [self.known[key]], [name]))
            return
        self.known[key] = name
        parts = []
        for number, group in itertools.groupby(texts, _is_number):
            if number:
                parts.append(self.array(np.asarray([float(t) for t in group], array.dtype)))
            else:
                parts += [self._as(self.expression(text), array.dtype) for text in group]
        whole = parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)
        shape = self.array(np.asarray(array.shape, np.int64))
        self.nodes.append(helper.make_node("Reshape", [whole, shape], [name]))

    def _as(self, name: str, dtype: Any) -> str:
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return name if name not in self.floats and dtype == np.int64 else self.node("Cast", [name], to=number)

    def expression(self, text: str) -> str:
        """The name of the value of an expression."""
        return self._value(ast.parse(text, mode="eval").body)

    def _value(self, tree: ast.expr) -> str:
        key = ast.unparse(tree)
        if key not in self.known:
            self.known[key] = self._computed(tree)
        return self.known[key]

    def _computed(self, tree: ast.expr) -> str:
        match tree:
            case ast.Name(id=name):
                return self.bound[name]
            case ast.Constant(value=int() as number):
                return self.array(np.asarray([number], np.int64))
            case ast.Constant(value=float() as number):
                name = self.array(np.asarray([number], np.float64))
                self.floats.add(name)
                return name
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._arithmetic("Neg", [self._value(operand)])
            case ast.BinOp(left=left, op=op, right=right):
                operands = [self._value(left), self._value(right)]
                if not isinstance(op, ast.FloorDiv):
                    return self._arithmetic(_OPERATORS[type(op)], operands)
                rest = self._arithmetic("Mod", operands)  # of the divisor's sign
                return self._arithmetic("Div", [self._arithmetic("Sub", [operands[0], rest]), operands[1]])
        raise ShapeError(f"{ast.unparse(tree)} is not an expression of sizes.")

    def _arithmetic(self, kind: str, operands: Sequence[str]) -> str:
        inexact = not self.floats.isdisjoint(operands)
        given = [n if not inexact or n in self.floats else self._as(n, np.float64) for n in operands]
        result = self.node(kind, given)
        if inexact:
            self.floats.add(result)
        return result


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Mod: "Mod",
}  # fmt: skip


class _Replaced(ast.NodeTransformer):
    """A number in place of a name."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.number) if node.id == self.name else node
