"""Composite functions called again on arrays of the same types: their programs are replayed, without checks.

A function of several operations costs some microseconds for each: operands are promoted, checked and wrapped every
time. Its second call on arrays of the same types stages it. Later eager calls run the references of the program's
primitives one after another on NumPy arrays, with the same results to the last bit; later calls while tracing
append the program's equations to the program under construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from rlx.array import Array, ConcreteArray, KeyArray, array_of_type
from rlx.config import config
from rlx.errors import ConcretizationTypeError, NonConcreteBooleanIndexError
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.trace.builder import Builder, Tracer, state
from rlx.trace.primitive import Primitive
from rlx.trace.stage import close_over, stage
from rlx.trees import tree

__all__ = ["replayed", "replayed_in_traces"]

F = TypeVar("F", bound=Callable[..., Any])

_MOST = 1024  # programs kept of one function
_LONGEST = 256  # entries of a key: a long list of numbers is data
_ARRAYS = frozenset({ConcreteArray, KeyArray, Tracer})
_STATIC = frozenset({int, bool, str, type(None), type(Ellipsis)})


class Replay:
    """The program of a call: its steps read and write numbered places, and its equations can be inlined."""

    def __init__(self, program: Program, structure: Any) -> None:
        self.program = program
        self.structure = structure
        self.runs = not any(map(_does_more, program.equations))
        self.types = program.output_types
        self.places: list[Any] = [None] * len(program.inputs)
        numbers: dict[Var, int] = {var: n for n, var in enumerate(program.inputs)}

        def place(atom: Atom) -> int:
            if isinstance(atom, Literal):
                self.places.append(np.asarray(atom.value))
                return len(self.places) - 1
            return numbers[atom]

        def new(var: Var, value: Any = None) -> int:
            numbers[var] = len(self.places)
            self.places.append(value)
            return numbers[var]

        for var, value in program.constants:
            new(var, value.numpy())
        self.steps = []
        for e in program.equations:
            read = tuple(map(place, e.inputs))
            written = tuple(map(new, e.outputs))
            self.steps.append((e.primitive.reference, e.primitive.multiple, dict(e.params), read, written))
        self.outputs = tuple(map(place, program.outputs))

    def run(self, arrays: Sequence[ConcreteArray]) -> Any:
        """The function's result on concrete arrays."""
        values = [a.numpy() for a in arrays] + self.places[len(arrays) :]
        with np.errstate(all="ignore"):
            for reference, multiple, params, read, written in self.steps:
                result = reference(*[values[n] for n in read], **params)
                if multiple:
                    for n, part in zip(written, result):  # noqa: B905  a check of the lengths costs time
                        values[n] = part
                else:
                    values[written[0]] = result
        return self.result([array_of_type(values[n], t) for n, t in zip(self.outputs, self.types)])  # noqa: B905

    def inline(self, builder: Builder, arrays: Sequence[Array]) -> Any:
        """The function's result in the program under construction."""
        return self.result(builder.inline(self.program, arrays))

    def result(self, leaves: Sequence[Any]) -> Any:
        """What the function returns with these leaves."""
        return leaves[0] if self.structure is None else tree.unflatten(self.structure, leaves)


def replayed(function: F) -> F:
    """Replay calls of a function of arrays and static values that is a composition of primitives.

    The function must compute the same operations for all arrays of equal types: it may not look at values.
    """
    return _replayed(function, True)


def replayed_in_traces(function: F) -> F:
    """Replay calls while tracing only, of a function that has a shorter way for concrete arrays."""
    return _replayed(function, False)


def _replayed(function: F, eagerly: bool) -> F:
    programs: dict[Any, Replay | bool] = {}

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        builder = state.builder
        if builder is None and not eagerly:
            return function(*args, **kwargs)
        arrays: list[Any] = []
        key = _key(args, kwargs, arrays)
        if key is None or (builder is None and (config.watched or any(type(a) is Tracer for a in arrays))):
            return function(*args, **kwargs)
        found = programs.get(key)
        if found is None:  # the first call: most functions of most types are called once
            result = function(*args, **kwargs)
            if len(programs) >= _MOST:
                programs.clear()
            programs[key] = True
            return result
        if found is True:
            found = programs[key] = _staged(function, args, kwargs, arrays) or False
        if found is False:
            return function(*args, **kwargs)
        if builder is not None:
            return found.inline(builder, arrays)
        return found.run(arrays) if found.runs else function(*args, **kwargs)

    return cast(F, call)


def _key(args: tuple[Any, ...], kwargs: dict[str, Any], arrays: list[Any]) -> tuple[Any, ...] | None:
    """The types of arrays and the static values; None where an argument is something else. Fills `arrays`."""
    key: list[Any] = [config.token]
    for value in args:
        if not _describe(value, key, arrays):
            return None
    for name, value in kwargs.items():
        key.append(name)
        if not _describe(value, key, arrays):
            return None
    return tuple(key)


def _describe(value: Any, key: list[Any], arrays: list[Any]) -> bool:
    kind = type(value)
    if kind in _ARRAYS:
        key.append(value.type)
        arrays.append(value)
    elif kind in _STATIC:
        key += (kind, value)
    elif kind is float:
        key += (kind, value or str(value))  # 0.0 is not -0.0
    elif kind is tuple or kind is list:
        key += (kind, len(value))
        return len(key) + len(value) <= _LONGEST and all(_describe(part, key, arrays) for part in value)
    elif kind is slice:
        parts = (value.start, value.stop, value.step)
        key += (kind, *parts)
        return all(part is None or type(part) is int for part in parts)
    elif isinstance(value, (np.dtype, Primitive, Enum, type)):
        key.append(value)
    else:
        return False
    return True


def _staged(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], arrays: Sequence[Array]
) -> Replay | None:
    """The function's program for such arguments; None if what it computes depends on values."""
    structure: Any = None

    def flat(*tracers: Any) -> list[Any]:
        nonlocal structure
        rest = iter(tracers)
        moved = {name: _with_tracers(value, rest) for name, value in kwargs.items()}
        result = function(*moved.pop("", ()), **moved)
        leaves, structure = tree.flatten(result)
        if len(leaves) == 1 and leaves[0] is result:
            structure = None
        return leaves

    kwargs = {"": args, **kwargs}
    try:
        program, captured = stage(flat, [a.type for a in arrays], None, getattr(function, "__name__", "program"))
    except (ConcretizationTypeError, NonConcreteBooleanIndexError):
        return None
    program = close_over(program, captured)
    constant = all(isinstance(value, ConcreteArray) for _, value in program.constants)
    return Replay(program, structure) if constant else None


def _does_more(equation: Equation) -> bool:
    """Whether the operation is more than a function of its operands."""
    primitive = equation.primitive
    return primitive.region or primitive.opaque or primitive.effect(**equation.params)


def _with_tracers(value: Any, tracers: Iterator[Any]) -> Any:
    """The argument with tracers in place of its arrays."""
    if isinstance(value, Array):
        return next(tracers)
    if type(value) is tuple or type(value) is list:
        return type(value)(_with_tracers(part, tracers) for part in value)
    return value
