"""A program cut into segments, each for one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rlx.errors import DeviceError, source_line
from rlx.ir.program import Atom, Equation, Program, Var, dead_code
from rlx.trace.lower import copied_body, inline_calls, map_regions

__all__ = ["Segment", "flat_program", "pieces_of", "segments_of"]


class Segment(NamedTuple):
    """A part of a program that one device runs."""

    device: str
    program: Program


def flat_program(program: Program) -> tuple[Program, dict[Equation, str]]:
    """The program with calls inlined, and the devices of the equations that the user's regions put on one.

    Calls of blocks stay. Raises DeviceError for a region inside a loop or a branch that is not on the same device.
    """
    found: dict[Equation, str] = {}
    flat = dead_code(_flat(program, None, found))
    return flat, {e: found[e] for e in flat.equations if e in found}


def _flat(program: Program, device: str | None, found: dict[Equation, str]) -> Program:
    program = inline_calls(program, lambda e: e.primitive.name == "placed_call" or e.primitive.claimable)
    equations: list[Equation] = []
    constants = list(program.constants)
    replaced: dict[Var, Atom] = {}
    for e in program.equations:
        inputs = tuple([replaced.get(a, a) if isinstance(a, Var) else a for a in e.inputs])
        if e.primitive.name == "placed_call":
            body = _flat(e.params["program"], e.params["device"], found)
            outputs, copied, kept = copied_body(body, inputs, e.origin)
            for old, new in zip(body.equations, copied, strict=True):
                if old in found:
                    found[new] = found.pop(old)
            equations += copied
            constants += kept
            replaced.update(zip(e.outputs, outputs, strict=True))
            continue
        for region in Program((), (e,), ()).regions():
            _refuse_other_devices(region, device)
        new = map_regions(Equation(e.primitive, inputs, e.params, e.outputs, e.origin), inline_calls)
        if device is not None:
            found[new] = device
        equations.append(new)
    outputs = [replaced.get(a, a) if isinstance(a, Var) else a for a in program.outputs]
    return program.replace(equations=equations, outputs=outputs, constants=constants)


def _refuse_other_devices(region: Program, device: str | None) -> None:
    """Raise DeviceError for a region on another device than the loop, branch or block around it."""
    for e in region.equations:
        if e.primitive.name == "placed_call" and e.params["device"] != device:
            raise DeviceError(
                f"A region on the device {e.params['device']!r} is inside a loop, a branch or a block that runs on"
                f" {'the device ' + repr(device) if device else 'another device'}.",
                f"Put the whole of it there: write `with rlx.place({e.params['device']!r}):` around it.",
                "" if e.origin is None else source_line(*e.origin),
            )
    for inner in region.regions():
        _refuse_other_devices(inner, device)


def segments_of(program: Program, places: Mapping[Equation, str], home: str) -> list[Segment]:
    """The segments of a program in order; equations without a place are on `home`.

    Each segment takes all equations of its device whose operands are known, so that there are few. The last one
    returns results that no equation computes: inputs, constants and literals.
    """
    return _as_segments(program, _groups(program, places, home))


def pieces_of(
    program: Program, segments: Sequence[Segment], home: str, memory: Callable[[str], str], most: int
) -> list[Segment]:
    """The segments in pieces, so that copies between memories need not wait for the whole of a segment.

    A piece ends where a value is known that another memory needs, and begins where one arrives; a segment is cut at
    about `most` of each. home: the device of arguments and results. memory: the name of a device's memory.
    """
    makers = dict.fromkeys(program.inputs, memory(home))
    makers |= {v: memory(s.device) for s in segments for v in s.program.outputs if isinstance(v, Var)}
    readers: dict[Var, set[str]] = {a: {memory(home)} for a in program.outputs if isinstance(a, Var)}
    for segment in segments:
        for v in segment.program.inputs:
            readers.setdefault(v, set()).add(memory(segment.device))
    groups: list[tuple[str, list[Equation]]] = []
    for device, part in segments:
        here = memory(device)
        arriving = [v for v in part.inputs if makers.get(v) != here]
        leaving = [v for v in made_in_order(part.equations) if readers.get(v, set()) - {here}]
        groups += [(device, piece) for piece in _pieces(part.equations, arriving, leaving, most)]
    return _as_segments(program, groups)


def _pieces(
    equations: Sequence[Equation], arriving: Sequence[Var], leaving: Sequence[Var], most: int
) -> list[list[Equation]]:
    """Equations by the last of the arriving values that they need, and by the first of the leaving ones that needs
    them: neither decreases from an equation to its readers."""
    last = {v: n * most // len(arriving) for n, v in enumerate(arriving)}
    after = {v: n * most // len(leaving) for n, v in enumerate(leaving)}
    for e in equations:
        known = max((last.get(a, -1) for a in e.inputs if isinstance(a, Var)), default=-1)
        last |= dict.fromkeys(e.outputs, known)
    for e in reversed(equations):
        wanted = min((after.get(v, most) for v in e.outputs), default=most)
        for a in (a for a in e.inputs if isinstance(a, Var)):
            after[a] = min(after.get(a, most), wanted)
    found: dict[tuple[int, int], list[Equation]] = {}
    for e in equations:
        key = max((last[v] for v in e.outputs), default=-1), min((after.get(v, most) for v in e.outputs), default=most)
        found.setdefault(key, []).append(e)
    return [found[key] for key in sorted(found)]


def _as_segments(program: Program, groups: Sequence[tuple[str, list[Equation]]]) -> list[Segment]:
    """Groups of equations as programs, in order."""
    read_after = _readers(groups, program)
    constants = dict(program.constants)
    found = []
    for number, (device, equations) in enumerate(groups):
        made = {v for e in equations for v in e.outputs}
        taken = dict.fromkeys(a for e in equations for a in e.inputs if isinstance(a, Var) and a not in made)
        outputs = [v for v in made_in_order(equations) if read_after.get(v, -1) > number]
        own = [(v, constants[v]) for v in taken if v in constants]
        inputs = [v for v in taken if v not in constants]
        found.append(Segment(device, Program(inputs, equations, outputs, own, program.name)))
    return found


def made_in_order(equations: Iterable[Equation]) -> list[Var]:
    """The results of equations."""
    return [v for e in equations for v in e.outputs]


def _groups(program: Program, places: Mapping[Equation, str], home: str) -> list[tuple[str, list[Equation]]]:
    """The equations, grouped by device, in an order that their operands and effects allow."""
    waiting = _dependences(program)
    readers: dict[Equation, list[Equation]] = {e: [] for e in program.equations}
    for e, needed in waiting.items():
        for other in needed:
            readers[other].append(e)
    order = {e: n for n, e in enumerate(program.equations)}
    ready: dict[str, list[Equation]] = {}
    left = {e: len(needed) for e, needed in waiting.items()}
    for e in program.equations:
        if not left[e]:
            ready.setdefault(places.get(e, home), []).append(e)
    groups: list[tuple[str, list[Equation]]] = []
    device = places.get(program.equations[0], home) if program.equations else home
    while any(ready.values()):
        if not ready.get(device):
            device = max((d for d in ready if ready[d]), key=lambda d: (len(ready[d]), d == home, d))
        taken, queue = [], ready.pop(device)
        while queue:
            e = queue.pop()
            taken.append(e)
            for reader in readers[e]:
                left[reader] -= 1
                if not left[reader]:
                    where = places.get(reader, home)
                    (queue if where == device else ready.setdefault(where, [])).append(reader)
        groups.append((device, sorted(taken, key=order.__getitem__)))
    return groups


def _dependences(program: Program) -> dict[Equation, set[Equation]]:
    """For each equation those that must run before it; equations with effects keep their order."""
    maker = {v: e for e in program.equations for v in e.outputs}
    found: dict[Equation, set[Equation]] = {}
    last: Equation | None = None
    for e in program.equations:
        found[e] = {maker[a] for a in e.inputs if isinstance(a, Var) and a in maker}
        if e.primitive.effect(**e.params):
            if last is not None:
                found[e].add(last)
            last = e
    return found


def _readers(groups: Sequence[tuple[str, list[Equation]]], program: Program) -> dict[Var, int]:
    """The number of the last group that reads each variable; results are read after all groups."""
    found = {a: n for n, (_, es) in enumerate(groups) for e in es for a in e.inputs if isinstance(a, Var)}
    found |= {a: len(groups) for a in program.outputs if isinstance(a, Var)}
    return found
