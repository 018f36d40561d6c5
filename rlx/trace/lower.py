"""HIR -> MIR: calls are inlined, only primitives and regions remain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.ir.program import Atom, Equation, Origin, Program, Var

__all__ = ["copied_body", "inline_blocks", "inline_calls", "map_regions"]


def map_regions(equation: Equation, function: Callable[[Program], Program]) -> Equation:
    """The equation with `function` applied to the programs among its parameters."""
    changed: dict[str, Any] = {}
    for key, value in equation.params.items():
        if isinstance(value, Program):
            new: Any = function(value)
        elif isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
            new = tuple(function(v) if isinstance(v, Program) else v for v in value)
        else:
            continue
        if new is not value:
            changed[key] = new
    if not changed:
        return equation
    params = {**equation.params, **changed}
    return Equation(equation.primitive, equation.inputs, params, equation.outputs, equation.origin)


def inline_blocks(program: Program) -> Program:
    """Replace every block by the equations of its program; other calls stay."""
    return inline_calls(program, lambda equation: not equation.primitive.claimable)


def inline_calls(program: Program, stays: Callable[[Equation], bool] | None = None) -> Program:
    """Replace every call-like equation but those that stay by the equations of its program, in regions too."""
    memo: dict[int, tuple[Program, Program]] = {}  # with the region, so that no other one takes its id

    def lowered(region: Program) -> Program:
        found = memo.get(id(region))
        if found is None:
            found = memo[id(region)] = region, inline_calls(region, stays)
        return found[1]

    equations: list[Equation] = []
    constants = list(program.constants)
    replaced: dict[Var, Atom] = {}

    def read(a: Atom) -> Atom:
        return replaced.get(a, a) if isinstance(a, Var) else a

    changed = False
    for e in program.equations:
        inputs = tuple(map(read, e.inputs))
        if getattr(e.primitive, "inlined", False) and not (stays is not None and stays(e)):
            changed = True
            body = lowered(e.primitive.meaning(e))
            outputs, copied, kept = copied_body(body, inputs, e.origin)
            equations += copied
            constants += kept
            replaced.update(zip(e.outputs, outputs, strict=True))
            continue
        new = Equation(e.primitive, inputs, e.params, e.outputs, e.origin) if replaced else e
        new = map_regions(new, lowered)
        changed = changed or new is not e
        equations.append(new)
    if not changed:
        return program
    return program.replace(equations=equations, outputs=tuple(map(read, program.outputs)), constants=constants)


def copied_body(
    body: Program, inputs: tuple[Atom, ...], origin: Origin | None
) -> tuple[list[Atom], list[Equation], list[tuple[Var, Any]]]:
    """The body's equations on `inputs` with fresh variables; its constants too. `origin`: for those without."""
    env: dict[Var, Atom] = dict(zip(body.inputs, inputs, strict=True))
    constants = []
    for v, array in body.constants:
        fresh = Var(v.type)
        env[v] = fresh
        constants.append((fresh, array))
    equations = []
    for e in body.equations:
        outputs = tuple(Var(v.type) for v in e.outputs)
        args = tuple(env[a] if isinstance(a, Var) else a for a in e.inputs)
        equations.append(Equation(e.primitive, args, e.params, outputs, e.origin or origin))
        env.update(zip(e.outputs, outputs, strict=True))
    return [env[a] if isinstance(a, Var) else a for a in body.outputs], equations, constants
