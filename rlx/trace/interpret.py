"""The one interpreter: run a program's equations where we stand, eagerly or into a builder."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.array import ConcreteArray
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.trace.builder import state

__all__ = ["Environment", "interpret", "origins_of"]


class Environment(dict[Var, Any]):
    """Values of variables; literals read as scalars."""

    def __init__(self, program: Program, args: Sequence[Any]) -> None:
        super().__init__(zip(program.inputs, args, strict=True))
        self.update(program.constants)

    def read(self, atom: Atom) -> Any:
        """The value of an operand."""
        if isinstance(atom, Literal):
            return ConcreteArray(atom.value, atom.type.weak)
        return self[atom]


@contextmanager
def origins_of() -> Generator[Callable[[Equation], None]]:
    """A function that makes new equations inherit an equation's origin, or that of the equation that holds it."""
    builder = state.builder
    if builder is None:
        yield lambda equation: None
        return
    before = builder._origin_override
    try:
        yield lambda equation: builder.at(equation.origin or before)
    finally:
        builder.at(before)


def interpret(program: Program, args: Sequence[Any]) -> list[Any]:
    """The program's outputs for the given inputs."""
    env = Environment(program, args)
    with origins_of() as inherit:
        for e in program.equations:
            inherit(e)
            out = e.primitive.bind(*map(env.read, e.inputs), **e.params)
            if e.primitive.multiple:
                env.update(zip(e.outputs, out, strict=True))
            else:
                env[e.outputs[0]] = out
    return [env.read(a) for a in program.outputs]
