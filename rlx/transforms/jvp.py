"""Forward mode: push tangents through the equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.program import Literal, Program
from rlx.ops.families import instantiate
from rlx.trace.builder import Builder
from rlx.trace.interpret import Environment, origins_of
from rlx.trace.primitive import Zero
from rlx.trace.tracing import finish
from rlx.transforms import table

__all__ = ["jvp_program", "jvp_walk"]


def jvp_walk(program: Program, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Outputs and their tangents, for values in the current builder. A tangent may be a Zero."""
    env = Environment(program, primals)
    moving = {v: t for v, t in zip(program.inputs, tangents, strict=True) if not isinstance(t, Zero)}

    def tangent(atom: Any) -> Any:
        found = None if isinstance(atom, Literal) else moving.get(atom)
        return Zero(atom.type) if found is None else found

    with origins_of() as inherit:
        for e in program.equations:
            inherit(e)
            p, args = e.primitive, [env.read(a) for a in e.inputs]
            if not any(a in moving for a in e.inputs if not isinstance(a, Literal)):
                outs, out_tangents = p.bind(*args, **e.params), ()
            else:
                ts = [tangent(a) for a in e.inputs]
                rule = (table.transforms,) if p.region else ()
                outs, out_tangents = p.jvp(*rule, args, ts, **e.params)
            if not p.multiple:
                outs, out_tangents = (outs,), (out_tangents,) if out_tangents != () else ()
            env.update(zip(e.outputs, outs, strict=True))
            for v, t in zip(e.outputs, out_tangents, strict=False):
                if not isinstance(t, Zero):
                    moving[v] = t
    return [env.read(a) for a in program.outputs], [tangent(a) for a in program.outputs]


def jvp_program(
    program: Program, nonzero: Sequence[bool], force: Sequence[bool] | bool = False
) -> tuple[Program, tuple[bool, ...]]:
    """(inputs, tangents of the marked inputs) -> (outputs, tangents of the nonzero outputs).

    `force` marks outputs whose tangent is made explicit even if it is zero. Also returns which
    outputs have a tangent.
    """
    with Builder(program.name) as builder:
        primals = [builder.input(t) for t in program.input_types]
        tangents = [
            builder.input(t.strong()) if nz else Zero(t) for t, nz in zip(program.input_types, nonzero, strict=True)
        ]
        outs, out_tangents = jvp_walk(program, primals, tangents)
        forced = [force] * len(outs) if isinstance(force, bool) else list(force)
        kept = tuple(f or not isinstance(t, Zero) for f, t in zip(forced, out_tangents, strict=True))
        explicit = [instantiate(t) for t, k in zip(out_tangents, kept, strict=True) if k]
        return finish(builder, [*outs, *explicit]), kept
