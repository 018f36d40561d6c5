"""Programs of scalars: the computations with which general reductions combine elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.program import Equation, Literal, Program
from rlx.ops.families import Elementwise

__all__ = ["array_function", "check_elementwise", "scalar_function"]


def _inner(equation: Equation) -> Program | None:
    """The program that an equation calls with its own operands, if it is a plain call."""
    programs = [v for v in equation.params.values() if isinstance(v, Program)]
    if len(programs) == 1 and len(programs[0].inputs) == len(equation.inputs):
        return programs[0]
    return None


def check_elementwise(name: str, program: Program) -> None:
    """Raise UnsupportedError unless the program consists of elementwise operations on scalars."""
    for equation in program.equations:
        inner = _inner(equation)
        if inner is not None:
            check_elementwise(name, inner)
        elif not isinstance(equation.primitive, Elementwise):
            raise UnsupportedError(
                f"{name} got a computation that uses {equation.primitive.name}.",
                "Combine two scalars by elementwise operations only.",
            )


def _run(
    program: Program,
    args: Sequence[Any],
    constant: Callable[[np.ndarray], Any],
    apply: Callable[[Equation, Sequence[Any]], Any],
) -> tuple[Any, ...]:
    env = dict(zip(program.inputs, args, strict=True))
    env.update((v, constant(np.asarray(value))) for v, value in program.constants)

    def read(atom: Any) -> Any:
        return constant(atom.value) if isinstance(atom, Literal) else env[atom]

    for equation in program.equations:
        operands = [read(a) for a in equation.inputs]
        inner = _inner(equation)
        if inner is not None:
            results = _run(inner, operands, constant, apply)
        else:
            results = (apply(equation, operands),)
        env.update(zip(equation.outputs, results, strict=True))
    return tuple(read(a) for a in program.outputs)


def scalar_function(program: Program) -> Callable[..., tuple[Any, ...]]:
    """function(s, *scalars) that writes the program with a ScalarBuilder."""

    def function(s: Any, *scalars: Any) -> tuple[Any, ...]:
        def apply(equation: Equation, operands: Sequence[Any]) -> Any:
            return equation.primitive.scalar(s, *operands, **equation.params)

        return _run(program, scalars, lambda value: s.constant(value, value.dtype), apply)

    return function


def array_function(program: Program) -> Callable[..., tuple[np.ndarray, ...]]:
    """function(*arrays) that runs the program elementwise on NumPy arrays."""

    def apply(equation: Equation, operands: Sequence[Any]) -> Any:
        return equation.primitive.reference(*operands, **equation.params)

    return lambda *arrays: _run(program, arrays, lambda value: value, apply)
