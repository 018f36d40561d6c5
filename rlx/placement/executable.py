"""A program whose segments run on several devices, with copies between their memories."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends import backend_named
from rlx.backends.base import Backend, Executable
from rlx.device_memory import Memory
from rlx.errors import OutOfMemoryError, RlxError, UnsupportedError, source_line
from rlx.ir.program import Equation, Literal, Program, Var
from rlx.ir.types import TensorType, is_key, words_type
from rlx.passes.pipeline import executables
from rlx.placement.estimate import estimate_program
from rlx.placement.lanes import HeldValues, run_in_order, run_together
from rlx.placement.schedule import LaneStep, makespan, readers_of, steps_of
from rlx.placement.segments import Segment, flat_program, pieces_of, segments_of
from rlx.placement.stored_rates import rates_of
from rlx.storage import AllocationError, Storage

__all__ = ["PlacedExecutable", "copied_storage", "executable_with_regions", "memory_name"]

_PIECES = (8, 4, 2)  # of a segment
_WORTHWHILE = 5e-4  # seconds below which threads cost more than they save
_SAVED = 0.1  # of the time in order


def executable_with_regions(program: Program, backend: Backend, memory_limit: int | None) -> Executable:
    """The executable of a program with the user's regions; its inputs and results are in the backend's memory.

    Raises: UnsupportedError for a memory limit.
    """
    if memory_limit is not None:
        raise UnsupportedError(
            "A program with regions on devices of their own takes no memory_limit.",
            "Leave memory_limit out, or rlx.place.",
        )
    flat, places = flat_program(program)
    return PlacedExecutable(flat, places, backend)


def copied_storage(storage: Storage, type: TensorType, source: Memory, target: Memory) -> Storage:
    """A value in another memory; the storage itself if both are one. Raises AllocationError."""
    if source is target or (source.host and target.host):
        return storage
    words = words_type(type) if is_key(type.dtype) else type
    direct = target.take_from(source, storage, words.nbytes)
    if direct is not None:
        return direct
    return target.put(np.ascontiguousarray(source.get(storage, words.shape, words.dtype)))


class PlacedExecutable(Executable):
    """The segments of a program, in order, or at the same time if estimates say that this saves time.

    places: the devices of equations; the others are on the backend's device, which has the inputs and the results.
    steps: the segments and the copies of one run. together: whether each device's segments, and the copies, have a
    thread.
    """

    def __init__(self, program: Program, places: Mapping[Equation, str], backend: Backend) -> None:
        self.program = program
        self.home = backend
        self.segments, self.steps, self.together = _scheduled(program, places, backend)
        self.backends = [self._backend(s.device) for s in self.segments]
        pairs = zip(self.segments, self.backends, strict=True)
        self.parts = [executables.get(segment.program, there) for segment, there in pairs]
        self.rest = self._unmade()
        self.memories = {memory_name(b): b.memory for b in (backend, *self.backends)}

    def _backend(self, device: str) -> Backend:
        return self.home if device == self.home.name else backend_named(device)

    @property
    def transfers(self) -> list[LaneStep]:
        """The copies of one run."""
        return [step for step in self.steps if step.segment is None]

    def _unmade(self) -> dict[Any, Executable]:
        """The results that no equation computes, as programs of their own: inputs, constants and literals."""
        made = {v for segment in self.segments for v in segment.program.outputs}
        constants = dict(self.program.constants)
        found = {}
        for a in self.program.outputs:
            if a in made or a in found:
                continue
            held = [(a, constants[a])] if a in constants else []
            inputs = [a] if isinstance(a, Var) and not held else []
            found[a] = executables.get(Program(inputs, (), (a,), held, self.program.name), self.home)
        return found

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """The results, in the memory of the program's device."""
        home = memory_name(self.home)
        made = {v for segment in self.segments for v in segment.program.outputs}
        kept = [
            (a, home) for a in self.program.outputs if isinstance(a, Var) and (a in made or a in self.program.inputs)
        ]
        held = HeldValues(readers_of(self.steps, kept))
        for v, storage in zip(self.program.inputs, inputs, strict=True):
            held.put((v, home), storage)
        (run_together if self.together else run_in_order)(self.steps, held, self._step)
        return [self._result(a, held) for a in self.program.outputs]

    def _step(self, step: LaneStep, taken: Sequence[Storage]) -> Sequence[Storage]:
        """The values that a step makes. Raises its error, with the segment that runs or that a copy is for."""
        number = self._reader(step) if step.segment is None else step.segment
        try:
            if step.segment is None:
                ((value, source),), ((_, target),) = step.reads, step.writes
                return [copied_storage(taken[0], value.type, self.memories[source], self.memories[target])]
            results = self.parts[step.segment].run(taken)
        except Exception as error:
            if number is None:
                raise
            raise _in_region(error, self.segments[number], number, len(self.segments), self.backends[number]) from None
        outputs = self.segments[step.segment].program.outputs
        return [s for v, s in zip(outputs, results, strict=True) if isinstance(v, Var)]

    def _reader(self, copy: LaneStep) -> int | None:
        """The first segment that reads a copy; None for a copy of a result."""
        return next((s.segment for s in self.steps if copy.writes[0] in s.reads and s.segment is not None), None)

    def _result(self, a: Any, held: HeldValues) -> Storage:
        part = self.rest.get(a)
        home = memory_name(self.home)
        if part is None:
            return held.get((a, home))
        constants = dict(self.program.constants)
        inputs = [] if isinstance(a, Literal) or a in constants else [held.get((a, home))]
        return part.run(inputs)[0]

    def texts(self) -> dict[str, str]:
        """The texts of all segments, by number and device."""
        found = {}
        for number, (segment, part) in enumerate(zip(self.segments, self.parts, strict=True)):
            for name, text in part.texts().items():
                found[f"{number} {segment.device}: {name}"] = text
        return found


def memory_name(backend: Backend) -> str:
    """The name of a backend's memory: devices with one name need no copies."""
    return "host" if backend.memory.host else backend.memory.device.name


def _scheduled(
    program: Program, places: Mapping[Equation, str], home: Backend
) -> tuple[list[Segment], list[LaneStep], bool]:
    """The segments and their steps: in pieces that run at the same time if this saves enough time by estimate."""
    segments = segments_of(program, places, home.name)
    named: dict[str, Backend] = {s.device: backend_named(s.device) for s in segments} | {home.name: home}
    memory = lambda device: memory_name(named[device])  # noqa: E731
    known: dict[tuple[bytes, str], float] = {}

    def steps(segments: Sequence[Segment], timed: bool) -> list[LaneStep]:
        seconds = [_seconds(s, known) if timed else 0.0 for s in segments]
        memories = [memory(s.device) for s in segments]
        return steps_of(program, segments, memories, memory(home.name), seconds, _copy_seconds(named.values()))

    effects = any(e.primitive.effect(**e.params) for e in program.equations)
    if effects or len({memory(d) for d in named}) < 2 or not segments:
        return segments, steps(segments, False), False
    usual = steps(segments, True)
    alone = sum(step.seconds for step in usual)
    best, fastest, shortest = segments, usual, makespan(usual)
    for most in _PIECES if _WORTHWHILE < alone < math.inf else ():
        pieces = pieces_of(program, segments, home.name, memory, most)
        tried = steps(pieces, True)
        if makespan(tried) < shortest:
            best, fastest, shortest = pieces, tried, makespan(tried)
    if alone - shortest > max(_WORTHWHILE, _SAVED * alone) and math.isfinite(alone):
        return best, fastest, True
    return segments, usual, False


def _seconds(segment: Segment, known: dict[tuple[bytes, str], float]) -> float:
    """The estimate for a segment."""
    key = segment.program.fingerprint, segment.device
    if key not in known:
        known[key] = estimate_program(segment.program, segment.device).seconds
    return known[key]


def _copy_seconds(backends: Iterable[Backend]) -> Callable[[str, str, int], float]:
    """The estimate for a copy of some bytes between two memories."""
    rates = {memory_name(b): rates_of(b.name) for b in backends if not b.memory.host}
    return lambda source, target, nbytes: sum(
        rates[name].copy_seconds(nbytes) for name in (source, target) if name in rates
    )


def _in_region(error: Exception, segment: Segment, number: int, count: int, backend: Backend) -> Exception:
    """The error of a segment, with its device and the first of its lines that is known."""
    origin = next((e.origin for e in segment.program.equations if e.origin is not None), None)
    line = "" if origin is None else source_line(*origin)
    where = f"part {number + 1} of {count} of {segment.program.name}, on the device {backend.name!r}"
    if isinstance(error, AllocationError):
        return OutOfMemoryError(f"There is no memory for {where}: {error}.", "Compute less at once.", line)
    if isinstance(error, RlxError):
        error.relocate(line)
    error.add_note(f"In {where}.{line and chr(10) + line}")
    return error
