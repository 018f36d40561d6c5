"""Cells whose contents change: reads and writes are threaded through programs.

A function that is traced on its own takes the contents of the outer cells that it uses as operands, and returns their
new contents as results. The caller of its program passes the former and stores the latter, in the enclosing function
if that is also being traced. Programs and their transformations know nothing of cells.

The effects of derivative rules on a cell happen in the opposite order, when cotangents are pulled back. They flow like
cotangents: a second cell is threaded through programs with each cell. Its content is unused, and its cotangent is the
content of the cell. Transposition gives a function from the old contents to the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from rlx.array import Array, wrap
from rlx.errors import ReferenceUseError, UnexpectedTracerError
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType, is_inexact
from rlx.trace.builder import Builder, HeldCell, state
from rlx.trace.flat import as_array, opaque_types
from rlx.trees import tree

__all__ = [
    "BackwardCell",
    "Cell",
    "GivenCell",
    "Threaded",
    "as_given",
    "cells_given",
    "cells_in",
    "flow_back",
    "received",
    "refuse_closed_over",
    "refuse_twice",
    "write_last",
]


class Cell:
    """A container of an array that functions may replace by another of the same type."""

    __slots__ = ("__weakref__", "_backward", "_content", "_home", "type")

    def __init__(self, value: Any) -> None:
        self._content = as_array(value, "the content of a Ref")
        self._home = state.builder
        self._backward: BackwardCell | None = None
        self.type: TensorType = self._content.type
        opaque_types.add(type(self))

    @property
    def backward(self) -> BackwardCell | None:
        """The cell along which the content flows back in reverse mode; None for integers too long for it."""
        type = _flowing_type(self.type)
        if self._backward is None and type is not None:
            self._backward = BackwardCell(self, wrap(np.zeros(type.shape, type.dtype)))
        return self._backward

    def read(self) -> Array:
        """The content, as the function sees it that is being traced."""
        return self._content if state.builder is self._home else self._held(state.builder).value

    def write(self, value: Array) -> None:
        """Replace the content by a value of the same type."""
        if state.builder is self._home:
            self._content = value
        else:
            held = self._held(state.builder)
            held.value, held.written = value, True

    def _held(self, builder: Builder | None) -> HeldCell:
        """The cell inside of a function, which got the content from the function around it."""
        if builder is None:
            raise UnexpectedTracerError(
                f"A Ref of {self.type!r} is used outside the traced function that made it.",
                "Return the Ref's content from the function, or make the Ref outside the function.",
            )
        held = builder.cells.get(self) if builder.cells else None
        if held is None:
            outer = self._content if builder.parent is self._home else self._held(builder.parent).value
            held = builder.hold(self, outer)
        return held


class BackwardCell(Cell):
    """The companion of a cell in differentiable programs: its cotangent is the content of the cell."""

    __slots__ = ("of",)

    def __init__(self, of: Cell, value: Array) -> None:
        super().__init__(value)
        self.of, self._home = of, of._home


def _flowing_type(type: TensorType) -> TensorType | None:
    """The type of cotangents that can represent every value of a type: integers become float64."""
    if is_inexact(type.dtype):
        return type.strong()
    whole = type.dtype.kind in "biu" and type.dtype.itemsize <= 4
    return TensorType(type.shape, np.dtype(np.float64)) if whole else None


class GivenCell:
    """A cell among arguments: a node over its content, and over the content of its backward cell."""

    __slots__ = ("kind", "values")

    def __init__(self, kind: type[Cell], values: Sequence[Any]) -> None:
        self.kind, self.values = kind, values


tree.register_node(GivenCell, lambda given: (tuple(given.values), given.kind), GivenCell)


def _is_given(x: Any) -> bool:
    return isinstance(x, GivenCell)


def cells_in(leaves: Iterable[Any]) -> list[Cell]:
    """The leaves that are cells."""
    return [x for x in leaves if isinstance(x, Cell)]


def cells_given(leaves: Iterable[Any], flowing: bool) -> list[Cell]:
    """The cells that a function gets for those among the leaves. `flowing`: each is followed by its backward cell."""
    found: list[Cell] = []
    for cell in cells_in(leaves):
        behind = cell.backward if flowing else None
        found += [cell] if behind is None else [cell, behind]
    return found


def as_given(values: Any, flowing: bool) -> Any:
    """A tree with nodes over their contents in place of cells; `flowing` as for `cells_given`."""

    def node(x: Any) -> Any:
        return GivenCell(type(x), [cell.read() for cell in cells_given([x], flowing)]) if isinstance(x, Cell) else x

    return tree.map(node, values)


def flow_back(cells: Iterable[Cell]) -> bool:
    """Whether a rule uses one of the cells that a traced function got: they are given flowing then."""
    return any(cell._backward is not None for cell in cells)


def received(values: Any) -> tuple[Any, list[Cell]]:
    """The arguments of a function that is being traced, with new cells in place of given ones; and these."""
    own: list[Cell] = []

    def make(given: Any) -> Any:
        if not _is_given(given):
            return given
        cell = given.kind(given.values[0])
        own.append(cell)
        for value in given.values[1:]:
            cell._backward = BackwardCell(cell, value)
            own.append(cell._backward)
        return cell

    return tree.map(make, values, is_leaf=_is_given), own


class Threaded:
    """A flat function whose use of outer cells is threaded.

    Its program takes the contents of `read` and then of `written` as its last captured values, and returns new
    contents of `written` after its results.
    """

    def __init__(self, function: Callable[..., Sequence[Any]]) -> None:
        self.function = function
        self.read: list[Cell] = []
        self.written: list[Cell] = []

    def __call__(self, *leaves: Any) -> Sequence[Any]:
        outs = self.function(*leaves)
        builder = state.builder
        assert builder is not None
        held = builder.cells or {}
        self.read = [cell for cell, content in held.items() if not content.written]
        self.written = [cell for cell, content in held.items() if content.written]
        if held:
            # captured values precede the contents
            outs = [builder.tracer(builder.lift(x)) for x in (*outs, *[held[cell].value for cell in self.written])]
            builder.release(self.used)
        return outs

    def forget(self) -> None:
        """Release the function after it was traced."""
        del self.function

    @property
    def used(self) -> list[Cell]:
        """The cells whose contents are captured, in their order."""
        return [*self.read, *self.written]

    @property
    def flowing(self) -> list[BackwardCell]:
        """Those that flow back, among the last that are captured and the last results."""
        return [cell for cell in self.written if isinstance(cell, BackwardCell)]

    def contents(self) -> list[Array]:
        """The current contents of the cells."""
        return [cell.read() for cell in self.used]

    def write(self, values: Sequence[Any]) -> Sequence[Any]:
        """Write new contents, which are the last of the values, to the cells; the other values."""
        return write_last(self.written, values)

    def write_first(self, values: Sequence[Any]) -> Sequence[Any]:
        """As `write`, where new contents are the first of the values."""
        n = len(self.written)
        return self.write([*values[n:], *values[:n]])

    def refuse_writes(self, who: str) -> None:
        """Raise ReferenceUseError if a cell was written to by a function that has no results but its own."""
        if self.written:
            raise ReferenceUseError(
                f"{who} writes to a Ref from outside.", "Return the value, and write it where the function was called."
            )

    def taking(self, program: Program, captured: Sequence[Any], cells: Sequence[Cell]) -> tuple[Program, list[Any]]:
        """The program with the contents of `cells`, including cells that it writes to, as inputs before its arguments,
        and new contents after its results; and its other captured values."""
        own, n = self.used, len(captured)
        if not (own or cells):
            return program, list(captured)
        lead, results = n - len(own), len(program.outputs) - len(self.written)
        inside = dict(zip(own, program.inputs[lead:n], strict=True))
        left = dict(zip(self.written, program.outputs[results:], strict=True))
        others = [i for i, cell in enumerate(own, lead) if cell not in cells]
        taken = [inside.get(cell) or Var(cell.type) for cell in cells]
        inputs = (*program.inputs[:lead], *[program.inputs[i] for i in others], *taken, *program.inputs[n:])
        new = [left.get(cell, var) for cell, var in zip(cells, taken, strict=True)]
        outputs = (*program.outputs[:results], *new)
        return program.replace(inputs=inputs, outputs=outputs), [*captured[:lead], *[captured[i] for i in others]]


def write_last(cells: Sequence[Cell], values: Sequence[Any]) -> Sequence[Any]:
    """Write the last of the values to the cells; the other values."""
    if not cells:
        return values
    results = len(values) - len(cells)
    for cell, value in zip(cells, values[results:], strict=True):
        cell.write(value)
    return values[:results]


def refuse_twice(name: str, leaves: Iterable[tuple[str, Any]]) -> None:
    """Raise ReferenceUseError if a cell occurs twice among the arguments, given with their names."""
    seen: dict[Cell, str] = {}
    for where, x in leaves:
        if isinstance(x, Cell) and seen.setdefault(x, where) is not where:
            raise ReferenceUseError(
                f"{name} got one Ref twice, as {seen[x]} and as {where}.",
                "Pass it once: only one argument may refer to a cell that a function writes to.",
            )


def refuse_closed_over(name: str, used: Collection[Cell], leaves: Iterable[tuple[str, Any]]) -> None:
    """Raise ReferenceUseError if a cell among the arguments is also a captured value of the function."""
    for where, x in leaves:
        if x in used:
            raise ReferenceUseError(
                f"{name} closes over a Ref that it also got as the argument {where}.",
                "Use the argument inside of the function, or leave it out.",
            )
