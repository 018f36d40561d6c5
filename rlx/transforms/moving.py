"""Whether a traced value depends on values by which a derivative is taken, for code that takes numbers out of a trace.

jvp knows the answer: a value whose tangent is not zero moves. jvp is therefore applied once to each equation that a
value depends on, and the builder stores the answer (`Builder.facts`), on demand only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx.errors import ConcretizationTypeError
from rlx.ir.program import Equation, Program, Var
from rlx.ir.types import is_inexact
from rlx.trace.builder import Builder, is_traced
from rlx.trace.spanning import local_of
from rlx.transforms.programs import jvp_program
from rlx.transforms.varying import equations_behind, value_behind

__all__ = ["derivatives_of", "refuse_moving"]

# the functions, innermost first, with respect to whose arguments a value has a derivative
Derivatives = tuple[Builder, ...]


def refuse_moving(x: Any, what: str, error: type[ConcretizationTypeError]) -> None:
    """Raise `error` if `what` would take a number out of a trace, and its derivative would be lost."""
    derivatives = derivatives_of(x)
    if derivatives:
        raise error(
            f"{what} gives the number of a traced {x.type!r} without its derivative: it depends on an argument by which"
            f" {derivatives[0].name} is differentiated.",
            "Keep it an array: rlx.numpy has the functions of math and NumPy, for instance rlx.numpy.sin. If a number"
            " without a derivative is meant, write rlx.lax.stop_gradient(x) first.",
        )


def derivatives_of(x: Any) -> Derivatives:
    """The functions that are being traced, innermost first, with respect to whose arguments x has a derivative.

    >>> import rlx
    >>> from rlx.transforms.moving import derivatives_of
    >>> rlx.grad(lambda x: print(len(derivatives_of(x)), len(derivatives_of(rlx.numpy.floor(x)))) or x)(1.0).item()
    1 0
    1.0
    """
    x = local_of(x)
    return _of_variable(x.builder, x.atom) if is_traced(x) else ()


def _of_variable(builder: Builder, atom: Any) -> Derivatives:
    if not isinstance(atom, Var) or not is_inexact(atom.type.dtype):
        return ()
    known = builder.facts("moving")
    if atom not in known:
        found, sources = equations_behind(builder, atom, known)
        for var in sources:
            if var not in known:
                known[var] = _of_source(builder, var)
        known.update(_moving_in(found, {var: known[var] for var in sources}, builder.name))
    return known[atom]


def _of_source(builder: Builder, var: Var) -> Derivatives:
    """Of a variable that no equation makes."""
    held = next((cell for cell in (builder.cells or {}).values() if cell.var is var), None)
    outside = derivatives_of(value_behind(builder, var) if held is None else held.outer)
    if var in builder.differentiated and is_inexact(var.type.dtype):
        return (builder, *outside)
    return outside[builder.ruled :] if var in builder.inputs else outside


def _moving_in(equations: Sequence[Equation], entering: Mapping[Var, Derivatives], name: str) -> dict[Var, Derivatives]:
    """The derivatives of the variables that equations make, by applying jvp once for each function."""
    made = [var for equation in equations for var in equation.outputs]
    found: dict[Var, Derivatives] = dict.fromkeys(made, ())
    program = Program(list(entering), equations, made, (), name)
    for function in dict.fromkeys(f for derivatives in entering.values() for f in derivatives):
        _, moves = jvp_program(program, [function in derivatives for derivatives in entering.values()])
        for var, moved in zip(made, moves, strict=True):
            found[var] += (function,) if moved else ()
    return found
