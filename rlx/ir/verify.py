"""Verification of Programs: the invariants of every HIR and MIR program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import RlxError, VerificationError
from rlx.ir.dims import is_sized
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.ir.show import show_lines
from rlx.ir.types import TensorType, is_key, supported_dtypes

__all__ = ["STAGES", "AllowedPrimitives", "verify_program"]

_CONTEXT = 10  # equations shown before and after a fault


class AllowedPrimitives(NamedTuple):
    """The primitives that a stage allows: a predicate, and the message if it fails."""

    allows: Callable[[Any], bool]
    refusal: str


STAGES: Mapping[str, AllowedPrimitives] = {
    "hir": AllowedPrimitives(lambda primitive: True, ""),
    "mir": AllowedPrimitives(
        lambda primitive: not getattr(primitive, "inlined", False) or primitive.claimable,
        "is a call, and calls are inlined in MIR",
    ),
}


class _BrokenProgram(Exception):
    """A broken rule, before the program's text is put around it."""


def verify_program(program: Program, stage: str = "mir") -> None:
    """Raise errors.VerificationError if a program breaks a rule of its stage, "hir" or "mir".

    The rules: a variable is defined once and before its uses; literals are scalars of their type;
    an equation's outputs have the types that its primitive states (up to weakness); regions are
    closed and verified themselves; parameters hold no values of a trace.
    """
    rules = STAGES[stage]
    seen: set[int] = set()
    pending = [program]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        _verify_one(current, rules, stage)
        pending.extend(current.regions())


def _verify_one(program: Program, rules: AllowedPrimitives, stage: str) -> None:
    number: int | None = None
    defined: set[Var] = set()
    try:
        for variable in program.inputs:
            _define(variable, defined)
        for variable, array in program.constants:
            _define(variable, defined)
            _verify_constant(variable, array)
        for number, equation in enumerate(program.equations):  # noqa: B007
            _verify_equation(equation, defined, rules)
        number = None
        for position, atom in enumerate(program.outputs):
            _verify_use(atom, defined, "output", position)
    except _BrokenProgram as refusal:
        raise VerificationError(_message(program, stage, number, str(refusal)), line="") from None


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise _BrokenProgram(what)


def _define(variable: Any, defined: set[Var]) -> None:
    if not isinstance(variable, Var):
        raise _BrokenProgram(f"{variable!r} is defined but is not a variable")
    if variable in defined:
        raise _BrokenProgram(f"a {variable.type!r} variable is defined twice")
    _verify_type(variable.type)
    defined.add(variable)


def _verify_type(type: Any) -> None:
    if not isinstance(type, TensorType):
        raise _BrokenProgram(f"{type!r} is not a TensorType")
    if type.dtype not in supported_dtypes and not is_key(type.dtype):
        raise _BrokenProgram(f"dtype {type.dtype} is not supported")
    if not isinstance(type.shape, tuple) or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in type.shape):
        raise _BrokenProgram(f"{type.shape!r} is not a shape")


def _verify_constant(variable: Var, array: Any) -> None:
    found = (tuple(array.shape), array.dtype)
    expected = (variable.type.shape, variable.type.dtype)
    _require(found == expected, f"a constant of shape and dtype {found} for {variable.type!r}")


def _verify_use(atom: Atom, defined: set[Var], what: str, position: int, name: str = "") -> None:
    if isinstance(atom, Var):
        if atom not in defined:
            raise _BrokenProgram(f"{what} {position}{name} ({atom.type!r}) is used before it is defined")
        return
    where = f"{what} {position}{name}"
    if not isinstance(atom, Literal):
        raise _BrokenProgram(f"{where} is a {type(atom).__name__}, not a variable or literal")
    value = atom.value
    if not is_sized(value):
        _require(isinstance(value, np.ndarray), f"{where}: a literal's value is {value!r}")
    _require(value.shape == () == atom.type.shape, f"{where}: a literal of type {atom.type!r}")
    _require(value.dtype == atom.type.dtype, f"{where}: {value.dtype} literal for {atom.type!r}")


def _verify_equation(equation: Equation, defined: set[Var], rules: AllowedPrimitives) -> None:
    name = equation.primitive.name
    if not rules.allows(equation.primitive):
        raise _BrokenProgram(f"{name} {rules.refusal}")
    for position, atom in enumerate(equation.inputs):
        _verify_use(atom, defined, "operand", position, f" of {name}")
    for key, value in equation.params.items():
        for part in _parts(value):
            if _is_traced(part):
                raise _BrokenProgram(f"parameter {key} of {name} contains {_class_of(part)}")
    _verify_types(equation)
    for variable in equation.outputs:
        _define(variable, defined)


def _verify_types(equation: Equation) -> None:
    """The outputs match the primitive's type rule, up to weakness."""
    name = equation.primitive.name
    types = [atom.type for atom in equation.inputs]
    arity = _arity(equation.primitive)
    _require(arity in (None, len(types)), f"{name} takes {arity} operands, here are {len(types)}")
    try:
        result = equation.primitive.type(*types, **equation.params)
    except (RlxError, TypeError, ValueError) as error:
        what = getattr(error, "what", str(error))
        raise _BrokenProgram(f"{name}({', '.join(map(repr, types))}) has no type: {what}") from error
    stated = tuple(result) if equation.primitive.multiple else (result,)
    given = tuple(v.type for v in equation.outputs)
    if len(stated) != len(given) or not all(map(_same_type, stated, given)):
        raise _BrokenProgram(f"{name} results in {_types(stated)}, its outputs are {_types(given)}")


def _same_type(one: TensorType, other: TensorType) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


@cache
def _arity(primitive: Any) -> int | None:
    """The number of operands of a primitive, if it is fixed."""
    return getattr(primitive, "arity", None)


def _types(types: tuple[TensorType, ...]) -> str:
    return f"({', '.join(map(repr, types))})"


def _parts(value: Any) -> Iterator[Any]:
    """A parameter and everything inside of its tuples, mappings and dataclasses."""
    pending = [value]
    while pending:
        part = pending.pop()
        yield part
        if isinstance(part, Mapping):
            pending.extend(part.values())
        elif isinstance(part, (tuple, list)):
            pending.extend(part)
        elif is_dataclass(part) and not isinstance(part, type):
            pending.extend(getattr(part, field.name) for field in fields(part))


def _is_traced(value: Any) -> bool:
    """Whether a value belongs to a trace: a tracer has a builder, a variable belongs to programs."""
    return isinstance(value, (Var, Literal, Equation)) or (
        hasattr(type(value), "builder") and hasattr(type(value), "atom")
    )


def _class_of(value: Any) -> str:
    return f"a {type(value).__name__}, a value of a trace"


def _message(program: Program, stage: str, number: int | None, what: str) -> str:
    """The error message: the defect, the user's line, and the surrounding program."""
    parts = [f"{stage.upper()} program {program.name!r}: {what}"]
    mark = None
    if number is not None:
        equation = program.equations[number]
        parts[0] += f" (equation {number} of {len(program.equations)})"
        if equation.origin is not None:
            parts.append(f"  written at {equation.origin}")
        mark = number
    parts.extend(_excerpt(program, mark))
    return "\n".join(parts)


def _excerpt(program: Program, mark: int | None) -> Iterator[str]:
    lines = show_lines(program)
    last = len(lines) - 1
    centre = last if mark is None else mark
    first, stop = max(0, centre - _CONTEXT), min(last, centre + _CONTEXT) + 1
    if first:
        yield f"    ... {first} equations"
    for number in range(first, stop):
        yield f"{'>>' if number == mark else '  '}  {lines[number]}"
    if stop <= last:
        yield f"    ... {last + 1 - stop} lines"
