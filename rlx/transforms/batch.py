"""Batching: push a batch axis through the equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.program import Literal, Program, named_axes
from rlx.ops.families import to_front
from rlx.ops.spanning_axis import SpanningAxis
from rlx.trace.builder import Builder
from rlx.trace.interpret import Environment, origins_of
from rlx.trace.tracing import finish
from rlx.transforms import table

__all__ = ["batch_program", "batch_walk"]


def batch_walk(
    program: Program, size: int, inputs: Sequence[Any], dims: Sequence[int | None], axis_name: Any = None
) -> tuple[list[Any], list[int | None]]:
    """Outputs and their batch axes (None: not batched), for values in the current builder."""
    name = axis_name.name if isinstance(axis_name, SpanningAxis) else axis_name
    env = Environment(program, inputs)
    where: dict[Any, int] = {v: d for v, d in zip(program.inputs, dims, strict=True) if d is not None}
    with origins_of() as inherit:
        for e in program.equations:
            inherit(e)
            p, args = e.primitive, [env.read(a) for a in e.inputs]
            at = [None if isinstance(a, Literal) else where.get(a) for a in e.inputs]
            named = name is not None and name in named_axes(e.params)
            if all(d is None for d in at) and not named:
                outs, out_dims = p.bind(*args, **e.params), None
            elif p.region:
                outs, out_dims = p.batch(table.transforms, size, args, at, axis_name, **e.params)
            elif p.collective and named and isinstance(axis_name, SpanningAxis):
                outs, out_dims = p.batch_spanning(axis_name, args, at, **e.params)
            elif p.collective and named:
                outs, out_dims = p.batch_named(size, axis_name, args, at, **e.params)
            else:
                outs, out_dims = p.batch(size, args, at, **e.params)
            if not p.multiple:
                outs, out_dims = (outs,), (out_dims,)
            env.update(zip(e.outputs, outs, strict=True))
            for v, d in zip(e.outputs, out_dims or (), strict=False):
                if d is not None:
                    where[v] = d
    out_dims = [None if isinstance(a, Literal) else where.get(a) for a in program.outputs]
    return [env.read(a) for a in program.outputs], out_dims


def batch_program(
    program: Program,
    size: int,
    batched: Sequence[bool],
    force: Sequence[bool] | bool = False,
    axis_name: Any = None,
) -> tuple[Program, tuple[bool, ...]]:
    """The program with a leading batch axis on the marked inputs.

    Batched outputs have it in front too; `force` marks outputs that get one in any case. Also
    returns which outputs are batched.
    """
    with Builder(program.name) as builder:
        inputs = [
            builder.input(t.update(shape=(size, *t.shape)) if b else t)
            for t, b in zip(program.input_types, batched, strict=True)
        ]
        outs, dims = batch_walk(program, size, inputs, [0 if b else None for b in batched], axis_name)
        forced = [force] * len(outs) if isinstance(force, bool) else list(force)
        out_batched = tuple(f or d is not None for f, d in zip(forced, dims, strict=True))
        values = [to_front(x, d, size) if b else x for x, d, b in zip(outs, dims, out_batched, strict=True)]
        return finish(builder, values), out_batched
