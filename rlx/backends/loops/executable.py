"""A plan with kernels as source code; kernels that the dialect cannot write are host steps."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from rlx.backends.base import Backend, Executable, PlannedExecutable
from rlx.backends.claims import Claims
from rlx.backends.cpu.runtime.cost import is_long
from rlx.backends.loops.dialect import Dialect
from rlx.backends.loops.program import SourceUnit, arena_bytes, host_reason, parts_of
from rlx.backends.reference.kernels import Memory, run_kernel
from rlx.forks import reopen_after_fork
from rlx.interrupts import abandonable, is_main_thread
from rlx.ir.kernels import Kernel, Plan, constants_of
from rlx.ir.options import LoweringOptions
from rlx.ir.show_plan import describe_plan, show_host_steps, show_plan
from rlx.ir.splats import SPLAT_BLOCKS, takes_splats
from rlx.ir.types import memory_dtype
from rlx.storage import Storage, allocate

__all__ = ["CompiledUnit", "TextBackend", "TextExecutable", "elements"]

_BYTE = np.dtype(np.uint8)
# takes the arrays of a unit's buffers (see `elements`), its arena, and the flag that ends its loops if it takes one
CompiledUnit = Callable[..., None]
_NEVER_STOPPED = np.zeros(1, np.bool_)


def elements(array: np.ndarray) -> np.ndarray:
    """A view of a dense one-dimensional array as generated code expects it."""
    return array.view(memory_dtype(array.dtype))


@dataclass(frozen=True, slots=True)
class _CompiledUnit:
    """Kernels in one generated function, and that function."""

    unit: SourceUnit
    run: CompiledUnit


@dataclass(frozen=True, slots=True)
class _RunnablePlan:
    """A runnable plan: compiled units and host kernels in order, the bytes of its arena, its constants."""

    segments: tuple[_CompiledUnit | Kernel, ...]
    arena: int
    constants: Memory

    def allocate_arena(self) -> np.ndarray:
        """Allocate the temporaries of one run."""
        return allocate(self.arena).view((self.arena,), _BYTE)


class _Whole:
    """A plan that is one function, with its array bindings computed once."""

    def __init__(self, plan: Plan, prepared: _RunnablePlan, compiled: _CompiledUnit) -> None:
        self._prepared = prepared
        self._run = compiled.run
        sources = {b: (0, n) for n, b in enumerate(plan.inputs)} | {b: (1, n) for n, b in enumerate(plan.outputs)}
        # for each array its source and its view; or the array itself, if it is a constant
        self._arrays: list[tuple[int, int, tuple[int, ...], np.dtype] | np.ndarray] = []
        for buffer in compiled.unit.buffers:
            if buffer in sources:
                dtype = memory_dtype(buffer.dtype)
                shape = (buffer.nbytes // dtype.itemsize,)
                self._arrays.append((*sources[buffer], shape, dtype))
            else:
                self._arrays.append(elements(prepared.constants[buffer]))

        self._stops = compiled.unit.stops

    def __call__(self, inputs: Sequence[Storage], outputs: Sequence[Storage], stopped: np.ndarray) -> None:
        places = (inputs, outputs)
        arrays = (a if isinstance(a, np.ndarray) else places[a[0]][a[1]].view(a[2], a[3]) for a in self._arrays)
        self._run(*arrays, self._prepared.allocate_arena(), *((stopped,) if self._stops else ()))


class TextExecutable(PlannedExecutable):
    """Runs a plan's segments in order, on host memory. Kernels that contain host steps run in Python.

    Compiled code does not check for Ctrl-C. A long plan runs in another thread: an interrupt ends the wait of the main
    thread, and sets a flag that ends the plan's loops. The end of the process does the same for other threads.
    """

    def __init__(
        self, plan: Plan, dialect: Callable[[], Dialect], compile_unit: Callable[[SourceUnit], CompiledUnit]
    ) -> None:
        self.plan = plan
        self._dialect = dialect
        self._compile = compile_unit
        self._prepared: dict[Plan, _RunnablePlan] = {}
        self._lock = threading.RLock()
        self._is_long = is_long(plan)
        reopen_after_fork(self)
        prepared = self._prepare(plan)
        match prepared.segments:
            case (_CompiledUnit() as only,):
                self._whole: _Whole | None = _Whole(plan, prepared, only)
            case _:
                self._whole = None

    def _prepare(self, plan: Plan) -> _RunnablePlan:
        """A plan and its functions, compiled on first use."""
        with self._lock:
            if plan not in self._prepared:
                parts = parts_of(plan, self._dialect)
                segments = tuple(_CompiledUnit(p, self._compile(p)) if isinstance(p, SourceUnit) else p for p in parts)
                constants = {b: b.elements for b in constants_of(plan)}
                self._prepared[plan] = _RunnablePlan(segments, arena_bytes(plan), constants)
            return self._prepared[plan]

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs; returns fresh (pooled) storages."""
        if not self._is_long and is_main_thread():
            return self._results(inputs, _NEVER_STOPPED)
        stopped = np.zeros(1, np.bool_)
        return abandonable(lambda: self._results(inputs, stopped), lambda: stopped.fill(True))

    def _results(self, inputs: Sequence[Storage], stopped: np.ndarray) -> list[Storage]:
        storages = [allocate(buffer.nbytes) for buffer in self.plan.outputs]
        if self._whole is not None:
            self._whole(inputs, storages, stopped)
            return storages
        pairs = zip(inputs, self.plan.inputs, strict=True)
        arrays = [storage.view((buffer.size,), buffer.dtype) for storage, buffer in pairs]
        outputs = [s.view((b.size,), b.dtype) for s, b in zip(storages, self.plan.outputs, strict=True)]
        self._run(self.plan, arrays, outputs, stopped)
        return storages

    def _run(
        self, plan: Plan, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], stopped: np.ndarray
    ) -> None:
        if stopped[0]:
            raise KeyboardInterrupt  # in the thread of abandoned work, which no thread waits for
        prepared = self._prepare(plan)
        arena = prepared.allocate_arena()
        memory = dict(prepared.constants)  # and the arena, except for temporaries that only row tiles use
        memory |= {b: arena[start : start + b.nbytes].view(b.dtype) for b, start in plan.offsets.items()}
        memory |= zip(plan.inputs, inputs, strict=True)
        memory |= zip(plan.outputs, outputs, strict=True)
        for segment in prepared.segments:
            if isinstance(segment, _CompiledUnit):
                flag = (stopped,) if segment.unit.stops else ()
                segment.run(*(elements(memory[b]) for b in segment.unit.buffers), arena, *flag)
            else:
                with np.errstate(all="ignore"):
                    run_kernel(segment, memory, partial(self._run, stopped=stopped))

    @property
    def units(self) -> tuple[SourceUnit, ...]:
        """The source code of the plan, and of the executed plans inside host loops."""
        prepared = tuple(self._prepared.values())
        return tuple(s.unit for p in prepared for s in p.segments if isinstance(s, _CompiledUnit))

    def texts(self) -> dict[str, str]:
        """The plan, its kernels, the generated source, and the kernels that the host runs."""
        dialect = self._dialect()
        return {
            "plan": show_plan(self.plan),
            "kernels": describe_plan(self.plan),
            "loops": "\n\n\n".join(function.text for unit in self.units for function in unit.functions),
            "host": show_host_steps(self.plan, lambda kernel: host_reason(kernel, dialect)),
        }


class TextBackend(Backend):
    """A backend with generated source code, in host memory. The host runs kernels that the dialect cannot write."""

    dialect: ClassVar[Callable[[], Dialect]]

    @property
    def claims(self) -> Claims:
        """Splats are drawn by loops."""
        return Claims(blocks=SPLAT_BLOCKS, fits=takes_splats)

    @property
    def lowering(self) -> LoweringOptions:
        """Kernels run in order, not tile by tile."""
        return LoweringOptions(least_row_tiles=0)

    def host_reason(self, kernel: Kernel) -> str | None:
        """The parts of a kernel that the dialect cannot write."""
        return host_reason(kernel, self.dialect())

    @abstractmethod
    def compile_unit(self, unit: SourceUnit) -> CompiledUnit:
        """Compile source code; equal functions are compiled once per process and cached on disk."""

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan's functions."""
        return TextExecutable(plan, self.dialect, self.compile_unit)
