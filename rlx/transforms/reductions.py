"""The axes of a mesh over which a value is parts of a sum, or copies whose cotangents are parts of a sum.

The value is unreduced over the first kind of axes, and reduced over the second. Batching maps it over both, as for
varying values. An operation accepts parts of a sum if it commutes with sums (`Primitive.linear_in`). The types of
traced values are computed on demand, as in varying.py, and stored in the builder (`Builder.facts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import ShardingError, UnsupportedError
from rlx.ir.program import Equation, Literal, Origin, Var
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.variation import recast
from rlx.trace.builder import Builder, is_traced
from rlx.trace.primitive import Primitive
from rlx.trace.tracing import tracked_axes
from rlx.transforms.varying import Axes, equations_behind, value_behind, varying_axes, varying_in

__all__ = ["NEITHER", "ReducedOperand", "Reductions", "reductions_of", "reductions_of_result"]


class Reductions(NamedTuple):
    """Names of mesh axes over which a value is parts of a sum, and over which it is copies."""

    unreduced: Axes = frozenset()
    reduced: Axes = frozenset()


NEITHER = Reductions()


class ReducedOperand(NamedTuple):
    """An operand as the rule sees it. varying: axes over which it differs otherwise. zero: whether it is a zero."""

    type: TensorType
    reductions: Reductions = NEITHER
    varying: Axes = frozenset()
    zero: bool = False


def reductions_of_result(
    primitive: Primitive, operands: Sequence[ReducedOperand], params: Mapping[str, Any], origin: Origin | None = None
) -> Reductions:
    """The reductions of an operation's results.

    Raises UnsupportedError if an operand is parts of a sum and the operation does not commute with sums; ShardingError
    if it would commute if other operands were also parts, or copies, along the same axes.
    """
    reduced = _reduced(operands)
    found = {x.reductions.unreduced for x in operands if x.reductions.unreduced}
    if not found:
        return Reductions(frozenset(), reduced)
    where = "" if origin is None else f" at {origin}"
    if len(found) > 1:
        raise ShardingError(
            f"{primitive.name} got operands that are unreduced over {' and over '.join(map(_listed, found))}{where}.",
            "Sum them over the axes over which they are not all unreduced.",
        )
    (axes,) = found
    summed = {i for i, x in enumerate(operands) if x.reductions.unreduced}
    groups = primitive.linear_in(*(x.type for x in operands), **params)
    if not groups:
        raise UnsupportedError(
            f"The unreduced rule for {primitive.name} is not implemented: it got an operand that is unreduced over"
            f" {_listed(axes)}{where}, and {primitive.name} of a sum is not the sum of {primitive.name} of its parts.",
            "Sum before: rlx.lax.psum(x, axis) in rlx.shard_map, rlx.reshard(x, rlx.P(...)) outside.",
        )
    group = next((g for g in groups if summed <= set(g)), None)
    if group is None:
        raise ShardingError(
            f"{primitive.name} got several operands that are unreduced over {_listed(axes)}{where}, and is linear in"
            " one at a time.",
            "Sum all but one before.",
        )
    for i, x in enumerate(operands):
        if i in group and i not in summed and not x.zero:
            raise ShardingError(
                f"{primitive.name} got an operand that is unreduced over {_listed(axes)}{where}, and another that is"
                " not.",
                "Sum the first before, or make the other unreduced over the same axes.",
            )
        as_copies = axes <= x.reductions.reduced or not (x.type.ndim and is_inexact(x.type.dtype))
        if i not in group and (axes & x.varying or not as_copies):
            raise ShardingError(
                f"{primitive.name} got an operand that is unreduced over {_listed(axes)}{where}, and operand {i}, which"
                " is not reduced over the same axes.",
                'Make it so: rlx.lax.pcast(x, axis, to="reduced") in rlx.shard_map, rlx.reshard outside.',
            )
    return Reductions(axes, reduced - axes)


def _reduced(operands: Sequence[ReducedOperand]) -> Axes:
    """The axes over which a result is copies: at least one operand is, and none differs."""
    found = {name for x in operands for name in x.reductions.reduced}
    return frozenset(n for n in found if not any(n in x.varying for x in operands))


def _listed(axes: Axes) -> str:
    return ", ".join(sorted(map(repr, axes)))


# ------------------------------------------------------------- of traced values
def reductions_of(x: Any) -> Reductions:
    """The reductions of a value in the body of a function that is mapped over a mesh.

    Raises like `reductions_of_result` for an operation that the value depends on.

    >>> import rlx
    >>> from rlx.transforms.reductions import reductions_of
    >>> reductions_of(rlx.numpy.ones(2))
    Reductions(unreduced=frozenset(), reduced=frozenset())
    """
    if not is_traced(x) or not tracked_axes():
        return NEITHER
    return _of_variable(x.builder, x.atom)


def _of_variable(builder: Builder, atom: Any) -> Reductions:
    if not isinstance(atom, Var):
        return NEITHER
    known = builder.facts("reductions")
    if atom not in known:
        found, sources = equations_behind(builder, atom, known)
        for var in sources:
            given = None if var in known else value_behind(builder, var)
            if is_traced(given):
                known[var] = _of_variable(given.builder, given.atom)
        _follow(found, known, lambda var: varying_axes(builder.tracer(var)))
    return known.get(atom, NEITHER)


def _follow(equations: Sequence[Equation], known: dict[Var, Reductions], varying: Any) -> None:
    """Record the reductions of equations' results; `varying(variable)` gives its varying axes, None if unknown."""
    for e in equations:
        outs = _results(e, known, varying)
        known.update(zip(e.outputs, outs, strict=True))


def _results(e: Equation, known: Mapping[Var, Reductions], varying: Any) -> Sequence[Reductions]:
    given = [known.get(a, NEITHER) if isinstance(a, Var) else NEITHER for a in e.inputs]
    if e.primitive.inlined:
        return _of_program(e, given, varying)
    if e.primitive is recast:
        return [_recast(given[0], frozenset(e.params["axis_name"]), e.params["to"])]
    if all(x == NEITHER for x in given):
        return [NEITHER] * len(e.outputs)
    if e.primitive.collective:
        names = e.params["axis_name"]
        gone = frozenset(names if isinstance(names, tuple) else (names,))
        return [Reductions(given[0].unreduced - gone, given[0].reduced - gone)] * len(e.outputs)
    if e.primitive.region and not any(x.unreduced for x in given):
        return _of_region(e, given, varying)
    operands = [_operand(a, x, varying) for a, x in zip(e.inputs, given, strict=True)]
    return [reductions_of_result(e.primitive, operands, e.params, e.origin)] * len(e.outputs)


def _recast(x: Reductions, names: Axes, to: str) -> Reductions:
    unreduced = x.unreduced | names if to == "unreduced" else x.unreduced - names
    return Reductions(unreduced, x.reduced | names if to == "reduced" else x.reduced - names)


def _operand(atom: Any, found: Reductions, varying: Any) -> ReducedOperand:
    if isinstance(atom, Literal):
        return ReducedOperand(atom.type, zero=not np.any(atom.value))
    axes = varying(atom)
    axes = frozenset(tracked_axes()) if axes is None else axes
    return ReducedOperand(atom.type, found, axes - found.unreduced - found.reduced)


def _of_region(e: Equation, given: Sequence[Reductions], varying: Any) -> Sequence[Reductions]:
    """For results of loops and branches: copies if they would be equal on all members for equal operands."""
    reduced = frozenset(name for x in given for name in x.reduced)
    operands = [_operand(a, x, varying) for a, x in zip(e.inputs, given, strict=True)]
    entering = {a: x.varying for a, x in zip(e.inputs, operands, strict=True) if isinstance(a, Var)}
    found = varying_in([e], entering, e.primitive.name)
    return [Reductions(frozenset(), reduced - (found[var] or frozenset())) for var in e.outputs]


def _of_program(e: Equation, given: Sequence[Reductions], varying: Any) -> Sequence[Reductions]:
    """For results of a call: from the equations of its program."""
    program = e.primitive.meaning(e)
    known = dict(zip(program.inputs, given, strict=True))
    entering: dict[Var, Axes | None] = {var: frozenset() for var, _ in program.constants}
    for var, atom in zip(program.inputs, e.inputs, strict=True):
        entering[var] = varying(atom) if isinstance(atom, Var) else frozenset()
    found: dict[Var, Axes | None] = {}

    def varies(var: Var) -> Axes | None:
        if var not in entering and not found:
            found.update(varying_in(program.equations, entering, program.name))
        return entering[var] if var in entering else found[var]

    _follow(program.equations, known, varies)
    return [known.get(a, NEITHER) if isinstance(a, Var) else NEITHER for a in program.outputs]
