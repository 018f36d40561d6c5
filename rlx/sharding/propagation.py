"""How the values of a program are divided, by how its arguments are: forward, equation by equation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from rlx.ir.program import Atom, Equation, Origin, Program, Var
from rlx.ir.types import TensorType
from rlx.sharding.divisions import Division, Names, chosen_places, division_of, shared_names, spec_of
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding

__all__ = ["Exchange", "explained", "propagated"]

class Exchange(NamedTuple):
    """What devices send one another for an operation: a value that all need whole, or the parts of a result.

    axes: of the mesh, along which it is exchanged. nbytes: what each device has of the value afterwards.
    """

    kind: str
    operation: str
    axes: Names
    nbytes: int
    origin: Origin | None


def propagated(
    program: Program, given: Sequence[Any], marks: Mapping[Any, Any]
) -> tuple[list[NamedSharding | None], list[Exchange]]:
    """The shardings of a program's results, where they are known, and what devices exchange on the way.

    given: shardings of its inputs, or None; marks: of variables, where the function said them. Nothing but the
    marks is known where they are over several meshes, or over axes of which values are parts of a sum.
    """
    shardings = [s for s in (*given, *marks.values()) if isinstance(s, NamedSharding)]
    meshes = [s.mesh for s in shardings]
    summed = any(s.spec.unreduced or s.spec.reduced for s in shardings)
    if not meshes or summed or any(mesh != meshes[0] for mesh in meshes) or not isinstance(meshes[0], Mesh):
        return [marks.get(a) for a in program.outputs], []
    walk = _Walk(meshes[0], marks)
    divisions = walk.program(program, [division_of(s, v.type.ndim) for s, v in zip(given, program.inputs, strict=True)])
    said = {v: s for v, s in zip(program.inputs, given, strict=True) if s is not None} | dict(marks)
    return [
        said[a] if a in said else None if division is None else NamedSharding(meshes[0], spec_of(division))
        for a, division in zip(program.outputs, divisions, strict=True)
    ], walk.exchanges


def explained(name: str, exchanges: Sequence[Exchange]) -> str:
    """The exchanges of a function's devices, a line for each."""
    lines = [f"rlx: the devices of {name} exchange"]
    for e in exchanges:
        where = "" if e.origin is None else f" at {e.origin}"
        axes = ", ".join(map(repr, e.axes))
        lines.append(f"  {e.kind} over {axes}, {e.nbytes} bytes on each device: {e.operation}{where}")
    return "\n".join(lines)


class _Walk:
    """One walk through a program over a mesh, and what is exchanged on the way."""

    def __init__(self, mesh: Mesh, marks: Mapping[Any, Any]) -> None:
        self.sizes: Mapping[Any, int] = mesh.shape
        self.marks = marks
        self.exchanges: list[Exchange] = []

    def program(self, program: Program, given: Sequence[Division | None]) -> list[Division | None]:
        """How the results are divided; None for those that depend on nothing of which it is known."""
        known: dict[Atom, Division] = {}
        for var, division in zip(program.inputs, given, strict=True):
            self._settle(known, var, division, None)
        for equation in program.equations:
            operands = [known.get(a) for a in equation.inputs]
            found: Sequence[Division | None] = [None] * len(equation.outputs)
            if equation.primitive.inlined:
                found = self.program(equation.primitive.meaning(equation), operands)
            elif any(division is not None for division in operands):
                found = self._equation(equation, operands)
            for var, division in zip(equation.outputs, found, strict=True):
                self._settle(known, var, division, equation.origin)
        return [known.get(a) for a in program.outputs]

    def _settle(self, known: dict[Atom, Division], var: Var, division: Division | None, origin: Origin | None) -> None:
        """Note how a value is divided: as the function says, where it does."""
        wanted = division_of(self.marks.get(var), var.type.ndim)
        if division is not None and wanted is not None:
            self._gather("with_sharding_constraint", var.type, division, wanted, origin)
        division = division if wanted is None else wanted
        if division is not None:
            known[var] = division

    def _equation(self, equation: Equation, operands: Sequence[Division | None]) -> list[Division]:
        """How the results of an operation are divided; operands that it needs otherwise are gathered."""
        types = [a.type for a in equation.inputs]
        axis_map = equation.primitive.axis_map(*types, **equation.params)
        result = equation.outputs[0].type if equation.outputs else TensorType((), bool)
        chosen = chosen_places(self.sizes, axis_map, operands, result)
        for type, division, places in zip(types, operands, axis_map, strict=True):
            if division is not None:
                wanted = tuple(() if place is None else chosen.get(place, ()) for place in places)
                self._gather(equation.primitive.name, type, division, wanted, equation.origin)
        divisions = [tuple(chosen.get(axis, ()) for axis in range(v.type.ndim)) for v in equation.outputs]
        summed = tuple(name for place, names in chosen.items() if place < 0 for name in names)
        if summed:
            nbytes = sum(self._bytes(v.type, d) for v, d in zip(equation.outputs, divisions, strict=True))
            exchange = Exchange("all-reduce", equation.primitive.name, summed, nbytes, equation.origin)
            self.exchanges.append(exchange)
        return divisions

    def _gather(
        self, operation: str, type: TensorType, division: Division, wanted: Division, origin: Origin | None
    ) -> None:
        """Note that parts of a value are gathered, unless each device has what is wanted of it."""
        kept = tuple(shared_names(have, want) for have, want in zip(division, wanted, strict=True))
        axes = tuple(name for have, keep in zip(division, kept, strict=True) for name in have[len(keep) :])
        if axes:
            self.exchanges.append(Exchange("all-gather", operation, axes, self._bytes(type, kept), origin))

    def _parts(self, names: Names) -> int:
        return prod(self.sizes[name] for name in names)

    def _bytes(self, type: TensorType, division: Division) -> int:
        """What each device has of a value."""
        return type.nbytes // prod(map(self._parts, division))
