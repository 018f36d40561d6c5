"""Exchanges between processes learn where in which program they stand, so that processes can compare it.

What is compared is the outline of the program as it was traced: operations, types and their order. Numbers may differ
from process to process (a rank, a closed-over array), and what passes make of them may, too.
"""

from __future__ import annotations

import hashlib
from itertools import count

from rlx.ir.program import Equation, Program
from rlx.trace.lower import map_regions

__all__ = ["explained_exchanges", "outline", "place_exchanges"]


def place_exchanges(program: Program) -> Program:
    """The program with the place of every exchange that has none."""
    if not _holds_exchanges(program, {}):
        return program
    start, numbers = outline(program), count()

    def placed(region: Program) -> Program:
        return region.replace(equations=[each(e) for e in region.equations])

    def each(equation: Equation) -> Equation:
        if not equation.primitive.exchanges:
            return map_regions(equation, placed)
        if equation.params["place"]:
            return equation
        params = {**equation.params, "place": start + next(numbers).to_bytes(4)}
        return Equation(equation.primitive, equation.inputs, params, equation.outputs, equation.origin)

    return placed(program)


def _holds_exchanges(program: Program, known: dict[int, bool]) -> bool:
    """Whether a program or a region of it has an exchange; known: of programs that were looked at."""
    found = known.get(id(program))
    if found is None:
        inside = any(_holds_exchanges(region, known) for region in program.regions())
        found = known[id(program)] = inside or any(e.primitive.exchanges for e in program.equations)
    return found


def outline(program: Program) -> bytes:
    """A hash of a program's operations and types in their order, without any value: the same in every process."""
    digest = hashlib.blake2b(digest_size=16)

    def put(region: Program) -> None:
        digest.update(f"({region.input_types}".encode())
        for equation in region.equations:
            types = [variable.type for variable in equation.outputs]
            digest.update(f"{equation.primitive.name}{types};".encode())
            for inner in Program((), (equation,), ()).regions():
                put(inner)
        digest.update(f"){region.output_types}".encode())

    put(program)
    return digest.digest()


def explained_exchanges(program: Program) -> str:
    """What processes send one another in a traced program, a line for each exchange; "" where nothing is sent."""
    lines = _lines_of(program)
    return "\n".join([f"rlx: the processes of {program.name} exchange", *lines]) if lines else ""


def _lines_of(program: Program) -> list[str]:
    lines: list[str] = []
    for equation in program.equations:
        if equation.primitive.exchanges and equation.params["members"] > 1:
            what = equation.primitive.exchange(**equation.params)
            (sent,), (got,) = equation.inputs, equation.outputs
            where = "" if equation.origin is None else f" at {equation.origin}"
            said = what.described(sent.type.shape, sent.type.dtype)
            lines.append(f"  {said} in the group {what.group!r}, {got.type.nbytes} bytes on each process{where}")
        for inner in Program((), (equation,), ()).regions():
            lines += _lines_of(inner)
    return lines
