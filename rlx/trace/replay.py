"""Composite functions called again on arrays of the same types: their programs are replayed, without checks.

A function of several operations costs some microseconds for each: operands are promoted, checked and wrapped every
time. Its second call on arrays of the same types stages it. Later eager calls run the references of the program's
primitives one after another on NumPy arrays, with the same results bit for bit; later calls while tracing
append the program's equations to the program under construction.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from rlx.advice.refused_calls import advise
from rlx.array import Array, ConcreteArray, array_of_type, is_concrete, is_here
from rlx.config import config
from rlx.errors import ConcretizationTypeError, NonConcreteBooleanIndexError
from rlx.forks import cached_property
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.trace.builder import Builder, Tracer, state
from rlx.trace.primitive import Primitive, registry
from rlx.trace.tracing import close_over, trace_program
from rlx.trees import tree

__all__ = ["BlockFunction", "BlockDerivative", "block", "blocks", "replayed", "replayed_in_traces"]

F = TypeVar("F", bound=Callable[..., Any])

_MOST = 1024  # programs kept of one function
_LONGEST = 256  # entries of a key: a long list of numbers is data
_STATIC = frozenset({int, bool, str, type(None), type(Ellipsis)})


class Replay:
    """The program of a call: its steps read and write numbered places, and its equations can be inlined."""

    def __init__(self, program: Program, structure: Any, attributes: dict[str, Any]) -> None:
        self.program = program
        self.attributes = attributes
        self.structure = structure
        self.runs = not any(map(_does_more, program.equations))
        self.types = program.output_types

    @cached_property
    def code(self) -> tuple[list[Any], list[Any], tuple[int, ...]]:
        """Places, the steps that read and write them, and the places of results: for eager calls."""
        program = self.program
        places: list[Any] = [None] * len(program.inputs)
        numbers: dict[Var, int] = {var: n for n, var in enumerate(program.inputs)}

        def place(atom: Atom) -> int:
            if isinstance(atom, Literal):
                places.append(np.asarray(atom.value))
                return len(places) - 1
            return numbers[atom]

        def new(var: Var, value: Any = None) -> int:
            numbers[var] = len(places)
            places.append(value)
            return numbers[var]

        for var, value in program.constants:
            new(var, value.numpy())
        steps = []
        for e in program.equations:
            read = tuple(map(place, e.inputs))
            written = tuple(map(new, e.outputs))
            steps.append((e.primitive.reference, e.primitive.multiple, dict(e.params), read, written))
        return places, steps, tuple(map(place, program.outputs))

    def run(self, arrays: Sequence[ConcreteArray]) -> Any:
        """The function's result on concrete arrays."""
        places, steps, outputs = self.code
        values = [a.numpy() for a in arrays] + places[len(arrays) :]
        with np.errstate(all="ignore"):
            for reference, multiple, params, read, written in steps:
                result = reference(*[values[n] for n in read], **params)
                if multiple:
                    for n, part in zip(written, result):  # noqa: B905  a check of the lengths costs time
                        values[n] = part
                else:
                    values[written[0]] = result
        return self.result([array_of_type(values[n], t) for n, t in zip(outputs, self.types)])  # noqa: B905

    def inline(self, builder: Builder, arrays: Sequence[Array]) -> Any:
        """The function's result in the program under construction."""
        return self.result(builder.inline(self.program, arrays))

    def as_block(self, builder: Builder, arrays: Sequence[Array], name: str) -> Any:
        """The function's result as one equation of the program under construction."""
        operands = [*arrays, *(value for _, value in self.program.constants)]
        params = {"program": self.alone, "name": name, "attributes": self.attributes}
        return self.result(builder.emit(registry["block"], operands, params))

    @cached_property
    def alone(self) -> Program:
        """The program without source lines, with its constants among its inputs."""
        inputs = (*self.program.inputs, *(v for v, _ in self.program.constants))
        equations = [Equation(e.primitive, e.inputs, e.params, e.outputs) for e in self.program.equations]
        return Program(inputs, equations, self.program.outputs, (), self.program.name)

    def result(self, leaves: Sequence[Any]) -> Any:
        """The function's result with these leaves."""
        return leaves[0] if self.structure is None else tree.unflatten(self.structure, leaves)


def replayed(function: F) -> F:
    """Replay calls of a function of arrays and static values that is a composition of primitives.

    The function must compute the same operations for all arrays of equal types: it may not depend on values.
    """
    return _replayed(function, True)


def replayed_in_traces(function: F) -> F:
    """Replay calls while tracing only, of a function that has a shorter way for concrete arrays."""
    return _replayed(function, False)


BatchRule = Callable[[Callable[..., Any], Sequence[Any], Sequence[int | None], Mapping[str, Any]], Any]


# names of a block's operands, the operands, whether each has a leading batch axis, and the size of the axis
Fold = Callable[[Sequence[str], Sequence[Any], Sequence[bool], int], "Sequence[Any] | None"]


class BlockDerivative(NamedTuple):
    """How the derivative of a block begins.

    ahead: a block of the same operands that returns the same result first, and then additional values that a kernel
    of the gradient reads; these are not differentiated. results: names of all its results, for such a kernel.
    """

    ahead: Callable[..., Any]
    results: tuple[str, ...]


class BlockFunction(NamedTuple):
    """A function whose calls keep their name. batch, fold: its own batching rule."""

    function: Callable[..., Any]
    batch: BatchRule | None
    derivative: BlockDerivative | None
    fold: Fold | None


blocks: dict[str, BlockFunction] = {}


def block(
    batch: BatchRule | None = None, derivative: BlockDerivative | None = None, fold: Fold | None = None
) -> Callable[[F], F]:
    """Decorator: a replayed function whose calls are one equation of a traced program, by the function's name.

    A backend may claim the name for its own kernel; otherwise, and before derivatives are taken, the equations
    of the function replace it. batch: `(function, inputs, dims, attributes) -> (results, dims)`, the function
    of operands, some of which have a batch axis (dims), or None if it has no rule; then its equations are batched.
    derivative: for a function with one result whose derivative is also blocks: the block that begins it, and for the
    gradient NAME_gradient, whose operands are the function's operands, the results of the other block, and the
    cotangent of the first one. Its attributes name under "wanted" the operands whose cotangents are its results.
    fold: instead of `batch`, the operands of one call that computes all calls of a batch, or None if there is no such
    call; its results are the batch's, reshaped. It also receives operands of the derivative's blocks.
    """

    def decorate(function: F) -> F:
        name = getattr(function, "__name__", "block")
        called = _replayed(function, True, name)
        blocks[name] = BlockFunction(called, batch, derivative, fold)
        return called

    return decorate


def _replayed(function: F, eagerly: bool, name: str = "") -> F:
    """Replay the function; while tracing, a named function is a block."""
    programs: dict[Any, Replay | bool] = {}
    parameters = {p.name: p.default for p in inspect.signature(function).parameters.values()} if name else None

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            builder = state.builder
            if builder is None and not eagerly:
                return function(*args, **kwargs)
            arrays: list[Any] = []
            key = _key(args, kwargs, arrays)
            if builder is not None and key is not None and (home := builder.home(arrays)) is not builder:
                return builder.hand_to(home, partial(call, *args, **kwargs))
            if key is None or (builder is None and (config.watched or not all(map(is_here, arrays)))):
                return function(*args, **kwargs)
            found = programs.get(key)
            if found is None and not (name and builder is not None):  # most functions of most types are called once
                result = function(*args, **kwargs)
                if len(programs) >= _MOST:
                    programs.clear()
                programs[key] = True
                return result
            if found is True or found is None:
                found = programs[key] = _staged(function, args, kwargs, arrays, parameters) or False
            if found is False:
                return function(*args, **kwargs)
            if builder is not None:
                if name and found.program.equations:
                    return found.as_block(builder, arrays, name)
                return found.inline(builder, arrays)
            return found.run(arrays) if found.runs else function(*args, **kwargs)
        except TypeError as error:
            advise(error)
            raise

    return cast(F, call)


def _key(args: tuple[Any, ...], kwargs: dict[str, Any], arrays: list[Any]) -> tuple[Any, ...] | None:
    """The types of arrays and the static values; None if an argument is something else. Fills `arrays`."""
    key: list[Any] = [config.token, state.axes]
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
    if kind is Tracer or is_concrete(value):
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
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arrays: Sequence[Array],
    parameters: Mapping[str, Any] | None,
) -> Replay | None:
    """The function's program for such arguments; None if the computation depends on values.

    parameters: of a block, with their defaults.
    """
    structure: Any = None
    attributes = {} if parameters is None else _attributes(parameters, args, kwargs)

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
        name = getattr(function, "__name__", "program")
        program, captured = trace_program(flat, [a.type for a in arrays], None, name)
    except (ConcretizationTypeError, NonConcreteBooleanIndexError):
        return None
    program = close_over(program, captured)
    constant = all(is_concrete(value) for _, value in program.constants)
    return Replay(program, structure, attributes) if constant else None


def _attributes(parameters: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The static arguments by name, and under "operands" the names of arguments with arrays, in the given order."""
    said = {**dict(zip(parameters, args, strict=False)), **kwargs}
    given = {**said, **{name: value for name, value in parameters.items() if name not in said}}
    operands: list[str] = []
    attributes: dict[str, Any] = {}
    for name, value in given.items():
        held = _arrays_in(value)
        operands += [name] * held
        if not held:
            attributes[name] = value
    return {"operands": tuple(operands), **attributes}


def _arrays_in(value: Any) -> int:
    if type(value) is tuple or type(value) is list:
        return sum(map(_arrays_in, value))
    return int(isinstance(value, Array))


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
