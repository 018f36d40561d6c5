"""What was traced of a user's function, kept as long as the function lives: later calls find its program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from rlx.array import Array
from rlx.config import config
from rlx.errors import ConcretizationTypeError, NonConcreteBooleanIndexError
from rlx.ir.program import Program
from rlx.statics import static_key
from rlx.trace.builder import Tracer, state
from rlx.trace.flat import FlatFunction
from rlx.trace.references import Threaded
from rlx.trace.tracing import known_value, trace_program
from rlx.trees.structure import tree_key

__all__ = ["ByFunction", "TraceKey", "TracedProgram", "Traces", "forget_traces", "traces_of"]

T = TypeVar("T")
_MOST = 256  # programs kept of one function


class ByFunction(Generic[T]):
    """Something for each function and options, made when first asked for, as long as the function lives."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._kept: weakref.WeakKeyDictionary[Any, dict[Any, T]] = weakref.WeakKeyDictionary()

    def of(self, function: Callable[..., Any], options: Any = ()) -> T:
        """What is kept for this function with these options."""
        # callables that are equal to others need not do the same, and some cannot be held weakly
        if type(function).__eq__ is not object.__eq__ or not getattr(type(function), "__weakrefoffset__", 0):
            return self._make()
        kept = self._kept.setdefault(function, {})
        return kept[options] if options in kept else kept.setdefault(options, self._make())


class TracedProgram(NamedTuple):
    """The program of a function for arguments of some types, what it captured, its results' tree, and its cells."""

    program: Program
    captured: list[Any]
    out_tree: Any
    cells: Threaded


class TraceKey(NamedTuple):
    """The properties of a call that its program depends on."""

    in_tree: Any
    dict_keys: tuple[Any, ...]  # keys that equal keys of other types
    types: tuple[Any, ...]
    token: Any  # of the switches
    axes: Any  # mapped axes with their sizes
    static: tuple[Any, ...]


class Traces:
    """What was traced of a user's function for each signature."""

    __slots__ = ("__weakref__", "_entries")

    def __init__(self) -> None:
        self._entries: dict[TraceKey, TracedProgram | None] = {}
        _all_traces.add(self)

    def clear(self) -> None:
        """Forget every signature."""
        self._entries.clear()

    def find(self, flat: FlatFunction, leaves: Sequence[Array], static: Sequence[Any] = ()) -> TracedProgram:
        """The program of `flat`, which calls the user's function, for leaves of these types.

        `static`: what else the program depends on. Traced at every call are functions that close over tracers, that
        look at values (which are known in transforms that nothing compiles), and static values that have no hash.
        """
        types = tuple(x.type for x in leaves)
        key: Any = None
        hashed = True
        try:
            held = tuple(map(static_key, static))
            key = TraceKey(*tree_key(flat.in_tree), types, config.token, state.axes, held)
            hash(key)
        except TypeError:
            hashed = False
        found = self._entries.get(key) if hashed else None
        if found is not None:
            return found
        if hashed and key not in self._entries:
            try:
                return self._keep(key, _trace(flat, types, leaves, known=False))
            except (ConcretizationTypeError, NonConcreteBooleanIndexError):
                if all(known_value(x) is None for x in leaves):
                    raise
            self._entries[key] = None
        return _trace(flat, types, leaves, known=True)

    def _keep(self, key: Any, made: TracedProgram) -> TracedProgram:
        if not (made.cells.used or any(isinstance(value, Tracer) for value in made.captured)):
            if len(self._entries) >= _MOST:
                self._entries.clear()
            self._entries[key] = made
        return made


_all_traces: weakref.WeakSet[Traces] = weakref.WeakSet()
_traces_of = ByFunction(Traces)


def traces_of(function: Callable[..., Any]) -> Traces:
    """What was traced of a function so far: it is kept as long as the function, or who holds this."""
    return _traces_of.of(function)


def forget_traces() -> None:
    """Trace every function again when it is called next."""
    for traces in list(_all_traces):
        traces.clear()


def _trace(flat: FlatFunction, types: Sequence[Any], leaves: Sequence[Array], known: bool) -> TracedProgram:
    values = leaves if known else None
    cells = Threaded(flat)
    program, captured = trace_program(cells, types, values, flat.name, leaves)
    cells.forget()
    return TracedProgram(program, captured, flat.out_tree, cells)
