"""A program whose segments run on several devices, with copies between their memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends import backend_named
from rlx.backends.base import Backend, Executable
from rlx.device_memory import Memory
from rlx.errors import OutOfMemoryError, RlxError, UnsupportedError, source_line
from rlx.ir.program import Equation, Literal, Program, Var
from rlx.ir.types import TensorType, is_key, words_type
from rlx.passes.pipeline import executables
from rlx.placement.segments import Segment, Transfer, flat_program, segments_of, transfers_of
from rlx.storage import AllocationError, Storage

__all__ = ["PlacedExecutable", "copied_storage", "executable_with_regions"]


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
    """The segments of a program in order. `transfers` are the copies of one run, each value once for each memory.

    places: the devices of equations; the others are on the backend's device, which has the inputs and the results.
    """

    def __init__(self, program: Program, places: Mapping[Equation, str], backend: Backend) -> None:
        self.program = program
        self.home = backend
        self.segments = segments_of(program, places, backend.name)
        self.backends = [backend if s.device == backend.name else backend_named(s.device) for s in self.segments]
        pairs = zip(self.segments, self.backends, strict=True)
        self.parts = [executables.get(segment.program, there) for segment, there in pairs]
        self.rest = self._unmade()
        self.last_use = self._last_uses()
        self.transfers = self._transfers()

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

    def _last_uses(self) -> list[list[Var]]:
        """The variables that no segment reads after each one."""
        last: dict[Var, int] = {}
        for number, segment in enumerate(self.segments):
            last |= dict.fromkeys(_variables(segment.program), number)
        kept = set(self.program.outputs)
        return [[v for v, n in last.items() if n == number and v not in kept] for number in range(len(self.segments))]

    def _transfers(self) -> list[Transfer]:
        """By memories: devices that share one need no copies."""
        homes = [Segment(_memory_name(b), s.program) for s, b in zip(self.segments, self.backends, strict=True)]
        return transfers_of(self.program, homes, _memory_name(self.home))

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """The results, in the memory of the program's device."""
        held: dict[Var, dict[Memory, Storage]] = {
            v: {self.home.memory: s} for v, s in zip(self.program.inputs, inputs, strict=True)
        }
        for number, (segment, part, there) in enumerate(zip(self.segments, self.parts, self.backends, strict=True)):
            try:
                taken = [_in_memory(held[v], v.type, there.memory) for v in segment.program.inputs]
                results = part.run(taken)
            except Exception as error:
                raise _in_region(error, segment, number, len(self.segments), there) from None
            for v, storage in zip(segment.program.outputs, results, strict=True):
                if isinstance(v, Var):
                    held[v] = {there.memory: storage}
            for v in self.last_use[number]:
                held.pop(v, None)
        return [self._result(a, held) for a in self.program.outputs]

    def _result(self, a: Any, held: Mapping[Var, dict[Memory, Storage]]) -> Storage:
        part = self.rest.get(a)
        if part is None:
            return _in_memory(held[a], a.type, self.home.memory)
        constants = dict(self.program.constants)
        inputs = [] if isinstance(a, Literal) or a in constants else [_in_memory(held[a], a.type, self.home.memory)]
        return part.run(inputs)[0]

    def texts(self) -> dict[str, str]:
        """The texts of all segments, by number and device."""
        found = {}
        for number, (segment, part) in enumerate(zip(self.segments, self.parts, strict=True)):
            for name, text in part.texts().items():
                found[f"{number} {segment.device}: {name}"] = text
        return found


def _variables(program: Program) -> list[Var]:
    """The inputs and the results of a segment."""
    return [*program.inputs, *(a for a in program.outputs if isinstance(a, Var))]


def _memory_name(backend: Backend) -> str:
    return "host" if backend.memory.host else backend.memory.device.name


def _in_memory(copies: dict[Memory, Storage], type: TensorType, memory: Memory) -> Storage:
    """A value in a memory, which keeps the copy."""
    if memory not in copies:
        source, storage = next(iter(copies.items()))
        copies[memory] = copied_storage(storage, type, source, memory)
    return copies[memory]


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
