"""Common subexpressions: an equation computed twice is computed once."""

from __future__ import annotations

from typing import Any

from rlx.ir.program import Atom, Equation, Literal, Origin, Program, Var, encode_params
from rlx.ir.sized_scalars import SizedScalar

__all__ = ["eliminate_common"]


def eliminate_common(program: Program) -> Program:
    """x = f(a); y = f(a) -> y is x, unless f has an effect or is opaque (barriers, callbacks)."""
    seen: dict[Any, tuple[tuple[Var, ...], int]] = {}  # the results, and the place of the equation
    replaced: dict[Var, Atom] = {}

    def read(a: Atom) -> Atom:
        return replaced.get(a, a) if isinstance(a, Var) else a

    equations: list[Equation] = []
    for e in program.equations:
        inputs = tuple(map(read, e.inputs))
        if e.primitive.opaque or e.primitive.effect(**e.params):
            equations.append(Equation(e.primitive, inputs, e.params, e.outputs, e.origin))
            continue
        key = (e.primitive.name, tuple(map(_key, inputs)), encode_params(e.params))
        found, place = seen.get(key, (None, 0))
        if found is not None and all(a.type == b.type for a, b in zip(found, e.outputs, strict=True)):
            replaced.update(zip(e.outputs, found, strict=True))
            equations[place] = _joined(equations[place], e.origin)
            continue
        seen[key] = e.outputs, len(equations)
        equations.append(Equation(e.primitive, inputs, e.params, e.outputs, e.origin))
    return program.replace(equations=equations, outputs=tuple(map(read, program.outputs)))


def _joined(kept: Equation, origin: Origin | None) -> Equation:
    """The equation that is kept, as that of both origins."""
    joined = None if kept.origin is None else kept.origin.joined(origin)
    return kept if joined is kept.origin else kept.replace(origin=joined)


def _key(a: Atom) -> Any:
    if isinstance(a, Literal):
        return (a.type, a.value if isinstance(a.value, SizedScalar) else a.value.tobytes())
    return a
