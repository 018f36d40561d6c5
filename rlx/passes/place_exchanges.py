"""Exchanges between processes get their place in the program, so that processes can compare it.

Processes compare the outline of the traced program (operations, types and their order) and the line of the
exchange. Numbers may differ between processes (a rank, a closed-over array), and therefore also the results of passes.
"""

from __future__ import annotations

import hashlib
from itertools import count

from rlx.ir.collectives import found_place, how_often, line_of
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
        line = b"" if equation.origin is None else line_of(equation.origin.file, equation.origin.line).encode()
        place = found_place(equation.params["place"], start + next(numbers).to_bytes(4) + line)
        params = {**equation.params, "place": place}
        return Equation(equation.primitive, equation.inputs, params, equation.outputs, equation.origin)

    return placed(program)


def _holds_exchanges(program: Program, known: dict[int, bool]) -> bool:
    """Whether a program or one of its regions has an exchange; known: the results of visited programs."""
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
    """The exchanges between processes in a traced program, one line each; "" if there are none."""
    lines = _lines_of(program, 1)
    return "\n".join([f"rlx: the processes of {program.name} exchange", *lines]) if lines else ""


def _lines_of(program: Program, times: int | None) -> list[str]:
    """A line for each exchange of a program with its number of runs; None if unknown."""
    lines: list[str] = []
    for equation in program.equations:
        if equation.primitive.exchanges and equation.params["members"] > 1:
            what = equation.primitive.exchange(**equation.params)
            (sent,), (got,) = equation.inputs, equation.outputs
            where = "" if equation.origin is None else f" at {equation.origin}"
            said = what.described(sent.type.shape, sent.type.dtype)
            size = f"{got.type.nbytes} bytes on each process{how_often(times)}"
            lines.append(f"  {said} in the group {what.group!r}, {size}{where}")
        rounds = equation.primitive.rounds(**equation.params)
        for inner in Program((), (equation,), ()).regions():
            lines += _lines_of(inner, None if times is None or rounds is None else times * rounds)
    return lines
