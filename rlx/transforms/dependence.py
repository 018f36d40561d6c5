"""The input elements that each element of a program's results depends on, for all values or at one point.

The sets are those of the derivative: an operand with a zero derivative contributes nothing. They contain every element
that may matter (x * 0 depends on x); with values, only those of the branches taken and the elements chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import RlxError, ShapeError
from rlx.ir.index_sets import (
    Along,
    Elements,
    IndexSet,
    Pairs,
    Reading,
    TooLargeError,
    identity_set,
    joined_by_axes,
    numbered,
    read,
    read_by_axes,
    same_set,
    stacked,
    stored,
    united,
)
from rlx.ir.loop_parts import ScanParts, ScanResults, WhileParts
from rlx.ir.program import Atom, Equation, Literal, Origin, Program, encode_params
from rlx.ir.types import TensorType, is_inexact
from rlx.trace.builder import Builder
from rlx.trace.primitive import Primitive, Region, Zero
from rlx.transforms.batch import batch_program

__all__ = ["Assumption", "Dependent", "dependence_of", "value_of"]

_UNROLLED = 1 << 14  # equations of a loop's iterations that are visited one by one
_COMPUTED = 1 << 24  # elements of a known value

Sets = Mapping[int, IndexSet]


class Assumption(NamedTuple):
    """Elements that an operation was assumed to read without knowing it: all along some axes."""

    operation: str
    reason: str
    origin: Origin | None

    def __str__(self) -> str:
        return f"{self.operation}: {self.reason}" + ("" if self.origin is None else f", at {self.origin}")


class Dependent(NamedTuple):
    """A value of a program: its sets by the number of the input, and its elements if they are known."""

    sets: Sets = {}
    value: np.ndarray | None = None


def dependence_of(
    program: Program, moving: Sequence[bool], values: Sequence[Any] | None = None, local: bool = False
) -> tuple[list[Sets], tuple[Assumption, ...]]:
    """The sets of each result over the `moving` inputs, and what was assumed.

    values: NumPy arrays of the inputs that are known, None for the others. local: the sets at these values, not those
    that hold for all values of the moving inputs.
    """
    given = [None] * len(program.inputs) if values is None else values
    shapes = {i: v.type.shape for i, (v, moves) in enumerate(zip(program.inputs, moving, strict=True)) if moves}
    walk = DependenceWalk({}, local, shapes)
    operands = [
        Dependent({number: identity_set(v.type.shape)} if moves else {}, value)
        for number, (v, moves, value) in enumerate(zip(program.inputs, moving, given, strict=True))
    ]
    return [x.sets for x in walk.program(program, operands)], tuple(walk.assumptions)


def value_of(program: Program, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """The one result of a program for known inputs; None if it cannot be computed when a function is traced."""
    return DependenceWalk({}, True, {}).program(program, [Dependent({}, x) for x in values])[0].value


def _unless_too_large(operation: Callable[..., IndexSet], *arguments: Any) -> IndexSet | None:
    """The result of an operation on sets; None if it is too large to be stored."""
    try:
        return operation(*arguments)
    except TooLargeError:
        return None


class DependenceWalk:
    """A walk through a program.

    assumptions: found on the way, in order. local: whether values of inputs are known. shapes: of the moving
    inputs; None in a program with inputs of its own.
    """

    def __init__(self, assumptions: dict[Assumption, None], local: bool, shapes: dict[int, Any] | None) -> None:
        self.assumptions = assumptions
        self.local = local
        self.shapes = shapes

    def program(self, program: Program, operands: Sequence[Dependent]) -> list[Dependent]:
        """The results of a program."""
        known: dict[Atom, Dependent] = dict(zip(program.inputs, operands, strict=True))
        for var, array in program.constants:
            known[var] = Dependent({}, _as_numpy(array))

        def of(atom: Atom) -> Dependent:
            return Dependent({}, atom.value) if isinstance(atom, Literal) else known[atom]

        for equation in program.equations:
            found = equation.primitive.dependence(self, equation, list(map(of, equation.inputs)))
            for var, x in zip(equation.outputs, found, strict=True):
                known[var] = x if is_inexact(var.type.dtype) else Dependent({}, x.value)
        return list(map(of, program.outputs))

    def assume(self, equation: Equation, reason: str) -> None:
        """Record that elements were assumed to be read."""
        self.assumptions[Assumption(equation.primitive.name, reason, equation.origin)] = None

    # ------------------------------------------------------------- operations
    def by_reading(self, equation: Equation, operands: Sequence[Dependent]) -> list[Dependent]:
        """The results of an operation, by what it reads of each operand."""
        values = self._values(equation, operands)
        if not any(x.sets for x in operands):
            return [Dependent({}, value) for value in values]
        types = tuple(a.type for a in equation.inputs)

        def known(number: int) -> np.ndarray | None:
            # a mask that is constant is no reason to drop an operand: its derivative is there, times zero
            choice = self.local or types[number].dtype.kind != "b"
            return operands[number].value if choice else None

        readings = equation.primitive.reads(known, *types, **equation.params)
        mask = _moving(_DependenceKey(equation.primitive, types, equation.params))
        results = []
        for number, (var, value) in enumerate(zip(equation.outputs, values, strict=True)):
            sets: dict[int, IndexSet] = {}
            for x, t, how, moves in zip(operands, types, readings, mask, strict=True):
                if x.sets and how is not None and moves[number]:
                    self._add(equation, sets, self._read(equation, x.sets, how, t, var.type), var.type)
            results.append(Dependent(sets, value))
        return results

    def _read(self, equation: Equation, sets: Sets, how: Reading, operand: TensorType, result: TensorType) -> Sets:
        self._report(equation, how, operand)
        found: dict[int, IndexSet] = {}
        for number, one in sets.items():
            exact = _unless_too_large(read, one, how, operand.shape, result.shape)
            if exact is None:
                self.assume(equation, "the exact set is too large to be stored")
            found[number] = read_by_axes(one, how, operand.shape, result.shape) if exact is None else exact
        return found

    def _report(self, equation: Equation, how: Reading, operand: TensorType) -> None:
        if not isinstance(how, Along):
            return
        whole = any(place is None and n > 1 for place, n in zip(how.axes, operand.shape, strict=True))
        if whole and how.reason:
            self.assume(equation, how.reason)
        elif whole and not equation.primitive.states_reading:
            self.assume(equation, "it has no rule for sparsity, every element of the operand was assumed to be read")

    def _add(self, equation: Equation, sets: dict[int, IndexSet], more: Sets, result: TensorType) -> None:
        """Unite sets with others of the same value, in place."""
        for number, one in more.items():
            have = sets.get(number)
            if have is None:
                sets[number] = one
                continue
            exact = _unless_too_large(united, have, one, result.shape)
            if exact is None:
                self.assume(equation, "the exact set is too large to be stored")
            sets[number] = joined_by_axes(have, one) if exact is None else exact

    def _values(self, equation: Equation, operands: Sequence[Dependent]) -> list[np.ndarray | None]:
        """The results of an operation on known operands; None for unknown ones."""
        unknown: list[np.ndarray | None] = [None] * len(equation.outputs)
        e = equation.primitive
        if any(x.value is None for x in operands) or e.opaque or e.collective or e.effect(**equation.params):
            return unknown
        if sum(v.type.size for v in equation.outputs) > _COMPUTED:
            return unknown
        with np.errstate(all="ignore"):
            found = e.reference(*[x.value for x in operands], **equation.params)
        return list(found) if e.multiple else [np.asarray(found)]

    def transposed(self, backward: Program, residuals: Sequence[Dependent]) -> list[list[Reading | None]]:
        """For each operand and each result of a derivative, the pairs: from (residuals, cotangents) -> cotangents."""
        first = len(residuals)
        shapes = [v.type.shape for v in backward.inputs[first:]]
        given = [Dependent({}, x.value) for x in residuals]
        given += [Dependent({i: identity_set(shape)}) for i, shape in enumerate(shapes)]
        found = DependenceWalk(self.assumptions, self.local, None).program(backward, given)
        outs = [a.type.shape for a in backward.outputs]
        return [[_reversed(x.sets.get(i), out) for i in range(len(shapes))] for x, out in zip(found, outs, strict=True)]

    def by_readings(
        self,
        equation: Equation,
        operands: Sequence[tuple[Dependent, TensorType]],
        readings: Any,
        results: Sequence[TensorType],
    ) -> list[Dependent]:
        """The results whose readings are known one by one: readings[operand][result], or None."""
        outs: list[Dependent] = []
        for number, result in enumerate(results):
            sets: dict[int, IndexSet] = {}
            for (x, t), row in zip(operands, readings, strict=True):
                if row[number] is not None:
                    self._add(equation, sets, self._read(equation, x.sets, row[number], t, result), result)
            outs.append(Dependent(sets))
        return outs

    def assumed(
        self, equation: Equation, x: Dependent, rows: np.ndarray, cols: np.ndarray, width: int
    ) -> list[Dependent]:
        """An operand with these sets in place of its own. Raises ShapeError for another number of input elements."""
        self.assume(equation, "its pattern was stated by assume_pattern")
        if self.shapes is None or not x.sets:
            return [x]
        total = sum(map(prod, self.shapes.values()))
        if total != width:
            raise ShapeError(
                f"assume_pattern got a pattern of {width} columns for arguments of {total} elements.",
                "It has a column for each element of the arguments that are differentiated.",
            )
        sets: dict[int, IndexSet] = {}
        start, result = 0, equation.inputs[0].type.shape
        for number, shape in self.shapes.items():
            mine = (cols >= start) & (cols < start + prod(shape))
            if mine.any():
                sets[number] = read(identity_set(shape), Pairs(rows[mine], cols[mine] - start), shape, result)
            start += prod(shape)
        return [Dependent(sets, x.value)]

    def dense(self, equation: Equation, operands: Sequence[Dependent], reason: str) -> list[Dependent]:
        """Results that depend on everything that an operand depends on."""
        if any(x.sets for x in operands):
            self.assume(equation, reason)
        readings = [[Along((None,) * a.type.ndim)] * len(equation.outputs) for a in equation.inputs]
        pairs = list(zip(operands, (a.type for a in equation.inputs), strict=True))
        return self.by_readings(equation, pairs, readings, [v.type for v in equation.outputs])

    # ------------------------------------------------------------- control flow
    def alternatives(self, equation: Equation, results: Sequence[Sequence[Dependent]]) -> list[Dependent]:
        """The results of an operation that runs one of several programs."""
        if len(results) == 1:
            return list(results[0])
        outs = []
        for var, found in zip(equation.outputs, zip(*results, strict=True), strict=True):
            sets: dict[int, IndexSet] = {}
            for x in found:
                self._add(equation, sets, x.sets, var.type)
            outs.append(Dependent(sets))
        return outs

    def _grown(
        self, equation: Equation, have: Sequence[Dependent], outs: Sequence[Dependent], types: Any
    ) -> list[Dependent]:
        """The union of carries before and after an iteration."""
        grown = []
        for a, b, t in zip(have, outs, types, strict=False):
            sets = dict(a.sets)
            self._add(equation, sets, b.sets, t)
            grown.append(Dependent(sets))
        return grown

    def fixpoint(self, equation: Equation, body: Program, parts: Sequence[Sequence[Dependent]]) -> list[Dependent]:
        """The carries of a loop before any of its iterations. parts: constants, initial carries, slices."""
        constants, initial, slices = parts
        carries = [Dependent(x.sets) for x in initial]
        types = body.input_types[len(constants) :]
        while True:
            outs = self.program(body, [*constants, *carries, *slices])
            grown = self._grown(equation, carries, outs, types)
            if all(_same(a, b) for a, b in zip(grown, carries, strict=True)):
                return carries
            carries = grown

    def scan(self, equation: Equation, body: Program, parts: ScanParts, length: int, reverse: bool) -> list[Dependent]:
        """The results of a scan: iteration by iteration if there are few, else by the fixed point of its carries."""
        if length * max(len(body.equations), 1) <= _UNROLLED:
            return self._iterations(equation, body, parts, range(length)[:: -1 if reverse else 1])
        constants = list(parts.constants)
        types = body.input_types[len(constants) + len(parts.carries) :]
        slices = [
            Dependent(self._read(equation, x.sets, Along((None, *range(t.ndim))), _stack(t, length), t))
            for x, t in zip(parts.xs, types, strict=True)
        ]
        carries = self.fixpoint(equation, body, (constants, parts.carries, slices))
        last = self.program(body, [*constants, *carries, *slices])[: len(carries)]
        mapped = [*[False] * (len(constants) + len(carries)), *[True] * len(slices)]
        wide, _ = batch_program(body, length, mapped, True)
        ys = self.program(wide, [*constants, *carries, *(Dependent(x.sets, x.value) for x in parts.xs)])[len(carries) :]
        return [*(last if length else parts.carries), *(Dependent(y.sets) for y in ys)]

    def _iterations(self, equation: Equation, body: Program, parts: ScanParts, steps: Sequence[int]) -> list[Dependent]:
        """The results of a scan, iteration by iteration."""
        carries: Sequence[Dependent] = parts.carries
        count = len(carries)
        types = body.input_types[len(parts.constants) + count :]
        ys: list[Sequence[Dependent]] = [()] * len(steps)
        still = not any(x.sets or x.value is not None for x in parts.xs)
        for place, t in enumerate(steps):
            slices = [self._slice(equation, x, of, t, len(steps)) for x, of in zip(parts.xs, types, strict=True)]
            found = self.program(body, [*parts.constants, *carries, *slices])
            before, (carries, ys[t]) = carries, ScanResults.of(found, count)
            if still and all(map(_same, before, carries)):
                for later in steps[place + 1 :]:
                    ys[later] = ys[t]
                break
        shapes = [t.shape for t in body.output_types[count:]]
        return [*carries, *(_stacked([y[i] for y in ys], shape) for i, shape in enumerate(shapes))]

    def _slice(self, equation: Equation, x: Dependent, t: TensorType, place: int, length: int) -> Dependent:
        numbers = Elements(lambda: numbered(t.shape, place * t.size)[..., None])
        sets = self._read(equation, x.sets, numbers, _stack(t, length), t)
        return Dependent(sets, None if x.value is None else x.value[place])

    def while_loop(self, equation: Equation, condition: Program, body: Program, parts: WhileParts) -> list[Dependent]:
        """The results of a while_loop: iterations whose condition is known, then the fixed point of the carries."""
        carries = list(parts.carries)
        room = _UNROLLED // max(len(body.equations) + len(condition.equations), 1)
        for _ in range(room):
            goes_on = self.program(condition, [*parts.condition_constants, *carries])[0].value
            if goes_on is None:
                break
            if not goes_on:
                return carries
            carries = self.program(body, [*parts.body_constants, *carries])
        return self.fixpoint(equation, body, (parts.body_constants, carries, ()))


def _stack(t: TensorType, length: int) -> TensorType:
    return t.update(shape=(length, *t.shape))


def _same(a: Dependent, b: Dependent) -> bool:
    if a.sets.keys() != b.sets.keys() or a.value is not b.value:
        return False
    return all(same_set(one, b.sets[number]) for number, one in a.sets.items())


def _stacked(found: Sequence[Dependent], shape: tuple[int, ...]) -> Dependent:
    """Values stacked along a new first axis."""
    numbers = {n for x in found for n in x.sets}
    sets = {n: stacked([x.sets.get(n) for x in found], shape) for n in numbers}
    values = [x.value for x in found if x.value is not None]
    return Dependent(sets, np.stack(values) if values and len(values) == len(found) else None)


def _reversed(found: IndexSet | None, operand: tuple[int, ...]) -> Reading | None:
    """The pairs of a derivative from those of its transpose."""
    if found is None:
        return None
    matrix = stored(found, operand).matrix.tocoo()
    return Pairs(matrix.coords[1], matrix.coords[0])


def _as_numpy(array: Any) -> np.ndarray | None:
    try:
        return np.asarray(array.numpy() if hasattr(array, "numpy") else array)
    except (RlxError, TypeError):
        return None


class _DependenceKey:
    """An operation on operands of some types, as a key: which operands' tangents reach which results."""

    def __init__(self, primitive: Primitive, types: tuple[TensorType, ...], params: Mapping[str, Any]) -> None:
        self.primitive, self.types, self.params = primitive, types, params
        self._key = (primitive.identity, types, encode_params(params))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DependenceKey) and self._key == other._key


@lru_cache(maxsize=4096)
def _moving(operation: _DependenceKey) -> tuple[tuple[bool, ...], ...]:
    """For each operand and result, whether the derivative is other than zero, by the jvp rule."""
    return tuple(_reached(operation, number) for number in range(len(operation.types)))


def _reached(operation: _DependenceKey, number: int) -> tuple[bool, ...]:
    e, types, params = operation.primitive, operation.types, operation.params
    count = len(e.type(*types, **params)) if e.multiple else 1
    if not is_inexact(types[number].dtype):
        return (False,) * count
    if isinstance(e, Region):
        return (True,) * count
    with Builder("derivative") as builder:
        primals = [builder.input(t) for t in types]
        tangents = [Zero(t) if i != number else builder.input(t) for i, t in enumerate(types)]
        try:
            _, found = e.jvp(primals, tangents, **params)
        except RlxError:  # no derivative: computing it raises the error
            return (True,) * count
    return tuple(not isinstance(x, Zero) for x in (found if e.multiple else (found,)))
