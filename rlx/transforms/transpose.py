"""Transpose: run the linear half of a program backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.program import Equation, Literal, Program, Var
from rlx.ops.families import add_values, instantiate
from rlx.trace.builder import Builder
from rlx.trace.interpret import Environment, origins_of
from rlx.trace.primitive import Linear, Zero
from rlx.trace.tracing import finish
from rlx.transforms import table

__all__ = ["backward_walk", "transpose_program"]


def backward_walk(program: Program, inputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of the inputs given as Linear (None for the others), in the current builder.

    Equations that depend on no Linear input are computed forwards first.
    """
    env = Environment(program, inputs)
    linear = {v for v, x in zip(program.inputs, inputs, strict=True) if isinstance(x, Linear)}
    with origins_of() as inherit:
        pending = _run_nonlinear(program, env, linear, inherit)
        found: dict[Var, Any] = {}
        for atom, ct in zip(program.outputs, cotangents, strict=True):
            _accumulate(found, linear, atom, ct)
        for e in reversed(pending):
            cts = [found.pop(v, Zero(v.type)) for v in e.outputs]
            if all(isinstance(ct, Zero) for ct in cts):
                continue
            inherit(e)
            args = [Linear(a.type) if isinstance(a, Var) and a in linear else env.read(a) for a in e.inputs]
            rule = (table.transforms,) if e.primitive.region else ()
            given = cts if e.primitive.multiple else cts[0]
            for atom, ct in zip(e.inputs, e.primitive.transpose(*rule, given, *args, **e.params), strict=True):
                if ct is not None:
                    _accumulate(found, linear, atom, ct)
    return [
        found.get(v, Zero(v.type)) if isinstance(x, Linear) else None
        for v, x in zip(program.inputs, inputs, strict=True)
    ]


def _run_nonlinear(program: Program, env: Environment, linear: set[Var], inherit: Any) -> list[Equation]:
    pending = []
    for e in program.equations:
        if any(isinstance(a, Var) and a in linear for a in e.inputs):
            pending.append(e)
            linear.update(e.outputs)
            continue
        inherit(e)
        out = e.primitive.bind(*map(env.read, e.inputs), **e.params)
        env.update(zip(e.outputs, out if e.primitive.multiple else (out,), strict=True))
    return pending


def _accumulate(found: dict[Var, Any], linear: set[Var], atom: Any, cotangent: Any) -> None:
    if isinstance(cotangent, Zero) or isinstance(atom, Literal) or atom not in linear:
        return
    found[atom] = add_values(found[atom], cotangent) if atom in found else cotangent


def transpose_program(program: Program, linear: Sequence[bool], nonzero: Sequence[bool] | None = None) -> Program:
    """(nonlinear inputs, cotangents of the marked outputs) -> cotangents of the linear inputs."""
    marked = [True] * len(program.outputs) if nonzero is None else list(nonzero)
    with Builder(program.name) as builder:
        inputs = [
            Linear(t) if is_linear else builder.input(t)
            for t, is_linear in zip(program.input_types, linear, strict=True)
        ]
        cotangents = [
            builder.input(t.strong()) if nz else Zero(t) for t, nz in zip(program.output_types, marked, strict=True)
        ]
        results = backward_walk(program, inputs, cotangents)
        return finish(builder, [instantiate(r) for r in results if r is not None])
