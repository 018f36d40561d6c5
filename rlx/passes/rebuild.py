"""Rebuild a program equation by equation, with a rule that may put other operations in place of some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.program import Equation, Program
from rlx.trace.builder import Builder
from rlx.trace.interpret import Environment, origins_of
from rlx.trace.tracing import finish

__all__ = ["Replacement", "bound", "rebuilt", "walk"]

# the replacement of an equation on these operands: its results, or None to keep it
Replacement = Callable[[Equation, Sequence[Any]], Sequence[Any] | None]


def bound(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of the equation itself, recorded anew."""
    out = equation.primitive.bind(*operands, **equation.params)
    results: Sequence[Any] = out if equation.primitive.multiple else (out,)
    return results


def walk(program: Program, inputs: Sequence[Any], replace: Replacement) -> list[Any]:
    """The program's outputs on `inputs`, recorded in the current builder; equations pass through `replace`."""
    env = Environment(program, inputs)
    with origins_of() as inherit:
        for equation in program.equations:
            inherit(equation)
            operands = [env.read(a) for a in equation.inputs]
            results = replace(equation, operands)
            if results is None:
                results = bound(equation, operands)
            env.update(zip(equation.outputs, results, strict=True))
    return [env.read(a) for a in program.outputs]


def rebuilt(program: Program, replace: Replacement, given: list[Any] | None = None) -> Program:
    """A new program of the same inputs and outputs, with equations replaced.

    `given` receives the values of the inputs before the first equation.
    """
    with Builder(program.name) as builder:
        inputs = [builder.input(t) for t in program.input_types]
        if given is not None:
            given.extend(inputs)
        return finish(builder, walk(program, inputs, replace))
