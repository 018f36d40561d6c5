"""Tracing a jitted function for the arguments of a call."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.array import Array
from rlx.call.arguments import Arguments
from rlx.call.cache import SignatureEntry
from rlx.config import scoped
from rlx.errors import NestingError
from rlx.ir.types import TensorType
from rlx.trace.flat import FlatFunction
from rlx.trace.references import Cell, Threaded, flow_back, received
from rlx.trace.tracing import place_known, places_known, trace_program

__all__ = ["nesting", "trace_entry"]


@contextmanager
def nesting(name: str) -> Generator[None]:
    """Raises NestingError where Python's limit of calls inside one another is reached."""
    try:
        yield
    except RecursionError as error:
        if isinstance(error, NestingError):
            raise
        raise NestingError(
            f"Tracing {name} went more than {sys.getrecursionlimit()} calls deep, Python's limit.",
            "Write a recursion that a traced value ends as a loop of rlx.lax, leave rlx.jit off functions that jitted"
            " ones call, or raise the limit: sys.setrecursionlimit(n).",
        ) from None


class _TracedFunction:
    """The user's function with its static arguments put back, and the cells that it gets for Refs among the others."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._cells: list[tuple[Cell, Array]] = []  # with their contents before the call
        self.written: tuple[int, ...] = ()  # the numbers of those that it wrote to

    def __call__(self, *dynamic: Any, **keywords: Any) -> Any:
        arguments = self._arguments
        if arguments.cells:
            (dynamic, keywords), own = received((dynamic, keywords))
            self._cells = [(cell, cell.read()) for cell in own]
        split = arguments.split
        fun = arguments.roles.fun  # errors about its arguments look for it in the variables of this frame
        return fun(*split.complete(dynamic), **keywords, **split.held_names)

    def left_in_cells(self) -> list[Array]:
        """After the call: the contents of the cells that it wrote to."""
        found = [cell.read() for cell, _ in self._cells]
        self.written = tuple(i for i, (_, before) in enumerate(self._cells) if found[i] is not before)
        return [found[i] for i in self.written]

    def flows(self) -> bool:
        """After the call: whether its derivative may write to the cells."""
        return flow_back(cell for cell, _ in self._cells)


def trace_entry(
    arguments: Arguments, places: tuple[Any, ...], device: str, types: Sequence[TensorType] | None = None
) -> SignatureEntry:
    """Trace the function for the types of arguments, whose shardings over Explicit axes are `places`.

    device: the default device while the function runs. types: others, with symbolic sizes.
    """
    name = arguments.roles.name
    function = _TracedFunction(arguments)
    flat = FlatFunction(function, arguments.in_tree, name=name)
    marks: dict[Any, Any] = {}

    def placed(*leaves: Any) -> list[Any]:
        for x, place in zip(leaves, places, strict=False):
            if place is not None:
                place_known(x, place)
        outs = flat(*leaves)
        marks.update(places_known())
        return [*outs, *function.left_in_cells()] if arguments.cells else outs

    threaded = Threaded(placed)
    types = types or [x.type for x in arguments.leaves]
    with scoped(device=device):
        program, captured = trace_program(threaded, types, None, name, arguments.leaves)
    threaded.forget()
    count = len(captured) - len(threaded.used)
    entry = SignatureEntry(program, captured[:count], flat.out_tree, marks, threaded if threaded.used else None)
    entry.given, entry.flows = function.written, function.flows()
    return entry
