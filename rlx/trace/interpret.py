"""The one interpreter: run a program's equations, eagerly or into the current builder."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.array import ConcreteArray
from rlx.errors import NanError, is_ours, source_line
from rlx.ir.program import Atom, Equation, Literal, Origin, Program, Var
from rlx.trace.builder import state

__all__ = ["Environment", "interpret", "locate", "origins_of"]


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
    """A function that is called with each equation before it runs.

    New equations inherit its origin, or the origin of the enclosing equation; a NanError names its line.
    """
    builder = state.builder
    before = None if builder is None else builder._origin_override
    running: Origin | None = None

    def inherit(equation: Equation) -> None:
        nonlocal running
        running = equation.origin
        if builder is not None:
            builder.at(running or before)

    try:
        yield inherit
    except NanError as error:
        if running is not None:
            locate(error, running)
        raise
    finally:
        if builder is not None:
            builder.at(before)


def locate(error: NanError, origin: Origin) -> None:
    """Name the line of an equation that was running, unless it called the user's code, whose line is known."""
    frames = error.__traceback__
    while frames is not None and is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    error.locate("" if frames is not None else source_line(*origin))


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
