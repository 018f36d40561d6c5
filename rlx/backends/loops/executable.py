"""A plan whose kernels are text: compiled where the dialect spells them, and steps of the host where it does not."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rlx.backends.base import Backend, Executable
from rlx.backends.loops.dialect import Dialect
from rlx.backends.loops.program import Unit, arena_bytes, host_reason, parts_of
from rlx.backends.reference.kernels import Memory, run_kernel
from rlx.ir.kernels import Kernel, Plan, constants_of
from rlx.ir.options import LoweringOptions
from rlx.ir.show_plan import describe_plan, show_host_steps, show_plan
from rlx.ir.types import memory_dtype
from rlx.storage import Storage, allocate

__all__ = ["CompiledUnit", "TextBackend", "TextExecutable", "elements"]

_BYTE = np.dtype(np.uint8)
CompiledUnit = Callable[..., None]  # of the arrays of a unit's buffers (see `elements`), then its arena


def elements(array: np.ndarray) -> np.ndarray:
    """A dense array of one dimension as text sees it, sharing memory."""
    return array.view(memory_dtype(array.dtype))


@dataclass(frozen=True, slots=True)
class _Compiled:
    """Kernels that are one function of text, and that function."""

    unit: Unit
    run: CompiledUnit


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A plan to be run: compiled units and kernels of the host in order, the bytes of its arena, its constants."""

    segments: tuple[_Compiled | Kernel, ...]
    arena: int
    constants: Memory

    def allocate_arena(self) -> np.ndarray:
        """Memory for the temporaries of one run."""
        return allocate(self.arena).view((self.arena,), _BYTE)


class _Whole:
    """A plan that is one function: what its arrays are, worked out once."""

    def __init__(self, plan: Plan, prepared: _Prepared, compiled: _Compiled) -> None:
        self._prepared = prepared
        self._run = compiled.run
        sources = {b: (0, n) for n, b in enumerate(plan.inputs)} | {b: (1, n) for n, b in enumerate(plan.outputs)}
        # for each array where it comes from, and how it is seen; or itself, if it is a constant
        self._arrays: list[tuple[int, int, tuple[int, ...], np.dtype] | np.ndarray] = []
        for buffer in compiled.unit.buffers:
            if buffer in sources:
                dtype = memory_dtype(buffer.dtype)
                shape = (buffer.nbytes // dtype.itemsize,)
                self._arrays.append((*sources[buffer], shape, dtype))
            else:
                self._arrays.append(elements(prepared.constants[buffer]))

    def __call__(self, inputs: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        places = (inputs, outputs)
        arrays = (a if isinstance(a, np.ndarray) else places[a[0]][a[1]].view(a[2], a[3]) for a in self._arrays)
        self._run(*arrays, self._prepared.allocate_arena())


class TextExecutable(Executable):
    """Runs a plan's segments in order, on host memory. What has steps of the host inside it runs in Python."""

    def __init__(
        self, plan: Plan, dialect: Callable[[], Dialect], compile_unit: Callable[[Unit], CompiledUnit]
    ) -> None:
        self.plan = plan
        self._dialect = dialect
        self._compile = compile_unit
        self._prepared: dict[Plan, _Prepared] = {}
        self._lock = threading.RLock()
        prepared = self._prepare(plan)
        match prepared.segments:
            case (_Compiled() as only,):
                self._whole: _Whole | None = _Whole(plan, prepared, only)
            case _:
                self._whole = None

    def _prepare(self, plan: Plan) -> _Prepared:
        """A plan and its functions, compiled when it is first asked for."""
        with self._lock:
            if plan not in self._prepared:
                parts = parts_of(plan, self._dialect)
                segments = tuple(_Compiled(p, self._compile(p)) if isinstance(p, Unit) else p for p in parts)
                constants = {b: b.elements for b in constants_of(plan)}
                self._prepared[plan] = _Prepared(segments, arena_bytes(plan), constants)
            return self._prepared[plan]

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs; fresh (pooled) storages come back."""
        storages = [allocate(buffer.nbytes) for buffer in self.plan.outputs]
        if self._whole is not None:
            self._whole(inputs, storages)
            return storages
        pairs = zip(inputs, self.plan.inputs, strict=True)
        arrays = [storage.view((buffer.size,), buffer.dtype) for storage, buffer in pairs]
        outputs = [s.view((b.size,), b.dtype) for s, b in zip(storages, self.plan.outputs, strict=True)]
        self._run(self.plan, arrays, outputs)
        return storages

    def _run(self, plan: Plan, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        prepared = self._prepare(plan)
        arena = prepared.allocate_arena()
        memory = dict(prepared.constants)  # and what is in the arena, but for temporaries that only row tiles use
        memory |= {b: arena[start : start + b.nbytes].view(b.dtype) for b, start in plan.offsets.items()}
        memory |= zip(plan.inputs, inputs, strict=True)
        memory |= zip(plan.outputs, outputs, strict=True)
        for segment in prepared.segments:
            if isinstance(segment, _Compiled):
                segment.run(*(elements(memory[b]) for b in segment.unit.buffers), arena)
            else:
                with np.errstate(all="ignore"):
                    run_kernel(segment, memory, self._run)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The text of the plan, and of the plans inside loops that the host runs, as far as those ran."""
        prepared = tuple(self._prepared.values())
        return tuple(s.unit for p in prepared for s in p.segments if isinstance(s, _Compiled))

    def texts(self) -> dict[str, str]:
        """The plan, its kernels, the text that is compiled, and which kernels the host runs."""
        dialect = self._dialect()
        return {
            "plan": show_plan(self.plan),
            "kernels": describe_plan(self.plan),
            "loops": "\n\n\n".join(function.text for unit in self.units for function in unit.functions),
            "host": show_host_steps(self.plan, lambda kernel: host_reason(kernel, dialect)),
        }


class TextBackend(Backend):
    """A backend whose kernels are functions of text, in host memory. What its dialect does not spell the host runs."""

    dialect: ClassVar[type[Dialect]]

    @property
    def lowering(self) -> LoweringOptions:
        """Kernels run one after the other, not tile by tile."""
        return LoweringOptions(least_row_tiles=0)

    def host_reason(self, kernel: Kernel) -> str | None:
        """What the dialect has no words for."""
        return host_reason(kernel, self.dialect())

    @abstractmethod
    def compile_unit(self, unit: Unit) -> CompiledUnit:
        """Compile functions of text; equal ones are compiled once per process and cached on disk."""

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan's functions."""
        return TextExecutable(plan, self.dialect, self.compile_unit)
