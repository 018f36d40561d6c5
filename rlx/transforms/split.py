"""Split a program into a known half and the half that depends on unknown inputs (tangents)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlx.ir.program import Atom, Equation, Program, Var, dead_code
from rlx.ir.types import TensorType
from rlx.transforms import table

__all__ = ["Split", "separate_program", "split_program"]


class Split(NamedTuple):
    """The two halves.

    known: known inputs -> known outputs, then residuals that it computed.
    linear: those residuals, then known inputs at `forwarded`, then unknown inputs -> unknown outputs.
    unknown_out: which of the outputs are unknown.
    """

    known: Program
    linear: Program
    unknown_out: tuple[bool, ...]
    residuals: tuple[TensorType, ...]
    forwarded: tuple[int, ...]


def split_program(program: Program, unknown: Sequence[bool], force: Sequence[bool] | bool = False) -> Split:
    """Cut `program` at the marked unknown inputs.

    `force` marks outputs that are put in the unknown half even if they are known.
    """
    hidden, known, linear = _divide(program, unknown)
    return _assemble(program, unknown, force, hidden, known, linear)


def separate_program(program: Program, unknown: Sequence[bool]) -> Program:
    """The same program with every equation either independent of the unknown inputs or linear in them."""
    _, known, linear = _divide(program, unknown)
    return program.replace(equations=[*known, *linear])


def _divide(program: Program, unknown: Sequence[bool]) -> tuple[set[Var], list[Equation], list[Equation]]:
    """The variables that depend on unknown inputs, and the equations of the two halves."""
    hidden = {v for v, u in zip(program.inputs, unknown, strict=True) if u}
    known: list[Equation] = []
    linear: list[Equation] = []
    for e in program.equations:
        mask = tuple(isinstance(a, Var) and a in hidden for a in e.inputs)
        if not any(mask):
            known.append(e)
            continue
        first, second = e.primitive.split(table.transforms, e, mask) if e.primitive.region else ([], [e])
        known += first
        linear += second
        for part in second:
            hidden.update(part.outputs)
    return hidden, known, linear


def _assemble(
    program: Program,
    unknown: Sequence[bool],
    force: Sequence[bool] | bool,
    hidden: set[Var],
    known: list[Equation],
    linear: list[Equation],
) -> Split:
    forced = [force] * len(program.outputs) if isinstance(force, bool) else list(force)
    unknown_out = tuple(f or (isinstance(a, Var) and a in hidden) for a, f in zip(program.outputs, forced, strict=True))
    constants = dict(program.constants)
    known_inputs = [v for v, u in zip(program.inputs, unknown, strict=True) if not u]
    unknown_inputs = [v for v, u in zip(program.inputs, unknown, strict=True) if u]
    outputs: list[Atom] = [a for a, u in zip(program.outputs, unknown_out, strict=True) if u]
    half = dead_code(Program((), linear, outputs))
    needed: dict[Var, None] = {}
    for e in half.equations:
        needed.update((a, None) for a in e.inputs if isinstance(a, Var) and a not in hidden)
    needed.update((a, None) for a in outputs if isinstance(a, Var) and a not in hidden)
    position = {v: i for i, v in enumerate(known_inputs)}
    forwarded = [v for v in needed if v in position]
    computed = [v for v in needed if v not in position and v not in constants]
    linear_program = Program(
        [*computed, *forwarded, *unknown_inputs],
        half.equations,
        outputs,
        [(v, constants[v]) for v in needed if v in constants],
        program.name,
    )
    known_outputs = [a for a, u in zip(program.outputs, unknown_out, strict=True) if not u]
    known_program = dead_code(
        Program(known_inputs, known, [*known_outputs, *computed], program.constants, program.name)
    )
    return Split(
        known_program,
        linear_program,
        unknown_out,
        tuple(v.type for v in computed),
        tuple(position[v] for v in forwarded),
    )
