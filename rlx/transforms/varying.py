"""The axes of a mesh over which a traced value differs between members, while a function is traced.

They follow from the axes of the operands by the rule of each operation (`Primitive.varies`), and the builder stores
the result (`Builder.facts`), on demand only. Loops, branches and calls are batched over each axis, because batching
decides what their programs compute once for all members: a value mapped over an axis varies over it. shard_map states
the axes over which its arguments vary; functions inside are traced on placeholders, and `Builder.given` has the values
of these.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from rlx.ir.program import Equation, Program, Var
from rlx.ops.variation import pvary
from rlx.trace.builder import Builder, is_traced
from rlx.trace.tracing import axis_size, tracked_axes
from rlx.transforms.programs import batch_program

__all__ = ["Axes", "equations_behind", "value_behind", "varying_axes", "varying_in", "varying_like"]

Axes = frozenset[Any]


def varying_axes(x: Any) -> Axes | None:
    """The tracked axes in scope over which x may differ between members; None if unknown, for instance for a cotangent.

    >>> import rlx
    >>> from rlx.transforms.varying import varying_axes
    >>> varying_axes(rlx.numpy.ones(2))
    frozenset()
    """
    if not is_traced(x) or not tracked_axes():
        return frozenset()
    return _of_variable(x.builder, x.atom)


def varying_like(x: Any, like: Any) -> Any:
    """x, noted as varying over the axes over which `like` does."""
    axes = tuple(sorted(varying_axes(like) or (), key=str))
    return pvary(x, axis_name=axes) if axes else x


def _of_variable(builder: Builder, atom: Any) -> Axes | None:
    if not isinstance(atom, Var):
        return frozenset()
    known = builder.facts("varying")
    if atom not in known:
        found, sources = equations_behind(builder, atom, known)
        for var in sources:
            known[var] = _of_source(builder, var)
        known.update(varying_in(found, {var: known[var] for var in sources}, builder.name))
    return known[atom]


def equations_behind(builder: Builder, atom: Var, known: Container[Var]) -> tuple[list[Equation], list[Var]]:
    """The unvisited equations that a variable depends on, and the variables that they start from."""
    producers = builder.producers()
    wanted: set[int] = set()
    sources: dict[Var, None] = {}
    stack = [atom]
    while stack:
        var = stack.pop()
        equation = None if var in known else producers.get(var)
        if equation is None:
            sources[var] = None
        elif id(equation) not in wanted:
            wanted.add(id(equation))
            stack += [a for a in equation.inputs if isinstance(a, Var)]
    return [e for e in builder.equations if id(e) in wanted], list(sources)


def value_behind(builder: Builder, var: Var) -> Any:
    """The value of a variable without an equation; None if unknown."""
    given = [value for inside, value in builder.captures.values() if inside is var]
    if not given and builder.given is not None:
        given = [value for inside, value in zip(builder.inputs, builder.given, strict=False) if inside is var]
    return given[0] if given else None


def _of_source(builder: Builder, var: Var) -> Axes | None:
    """The axes of a variable without an equation."""
    known = builder.facts("varying")
    if var in known:
        return known[var]
    given = value_behind(builder, var)
    if given is None:
        return None
    return _of_variable(given.builder, given.atom) if is_traced(given) else frozenset()


def varying_in(equations: Sequence[Equation], entering: Mapping[Var, Axes | None], name: str) -> dict[Var, Axes | None]:
    """The axes over which equations' results vary."""
    if any(axes is None for axes in entering.values()):
        return {var: None for equation in equations for var in equation.outputs}
    known, tracked = {var: axes or frozenset() for var, axes in entering.items()}, frozenset(tracked_axes())
    for e in equations:
        if e.primitive.region or e.primitive.inlined:
            known.update(_by_batching(e, known, name))
            continue
        operands = [known[a] if isinstance(a, Var) else frozenset() for a in e.inputs]
        found = e.primitive.varies(*operands, **e.params)
        every = found if isinstance(found, tuple) else [found] * len(e.outputs)
        known.update((var, axes & tracked) for var, axes in zip(e.outputs, every, strict=True))
    return {var: known[var] for equation in equations for var in equation.outputs}


def _by_batching(equation: Equation, known: Mapping[Var, Axes], name: str) -> dict[Var, Axes]:
    """The axes of the results of an equation with programs: batching over an axis maps what varies over it."""
    inputs = list(dict.fromkeys(a for a in equation.inputs if isinstance(a, Var)))
    program = Program(inputs, [equation], equation.outputs, (), name)
    varying: list[set[Any]] = [set() for _ in equation.outputs]
    for axis in tracked_axes():
        _, found = batch_program(program, axis_size(axis), [axis in known[var] for var in inputs], axis_name=axis)
        for axes, mapped in zip(varying, found, strict=True):
            axes.update([axis] if mapped else [])
    return dict(zip(equation.outputs, map(frozenset, varying), strict=True))
