"""A plan whose kernels are text: compiled where the dialect spells them, and steps of the host where it does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rlx.backends.base import Executable
from rlx.backends.loops.dialect import Dialect
from rlx.backends.loops.program import Unit, arena_bytes, constants_of, host_steps, parts_of
from rlx.backends.reference.kernels import Memory, run_kernel
from rlx.ir.kernels import Buffer, Kernel, Plan
from rlx.ir.show_plan import describe_plan, show_plan
from rlx.ir.types import is_complex, is_narrow
from rlx.storage import Storage, allocate

__all__ = ["CompiledUnit", "TextExecutable", "elements", "memory_dtype"]

_BYTE = np.dtype(np.uint8)
CompiledUnit = Callable[..., None]  # of the arrays of a unit's buffers (see `elements`), then its arena


def memory_dtype(dtype: np.dtype) -> np.dtype:
    """What text sees in an array of `dtype`: real parts of complex numbers, codes of narrow ones, in unsigned words."""
    if is_complex(dtype):
        return np.dtype(f"f{dtype.itemsize // 2}")
    return np.dtype(f"u{dtype.itemsize}") if is_narrow(dtype) else dtype


def elements(array: np.ndarray) -> np.ndarray:
    """A dense array of one dimension as text sees it, sharing memory."""
    return array.view(memory_dtype(array.dtype))


class _Segment:
    """Kernels that are one function of text, or one kernel that the host runs."""

    def __init__(self, unit: Unit | None, compiled: CompiledUnit | None, kernel: Kernel | None) -> None:
        self.unit = unit
        self.compiled = compiled
        self.kernel = kernel


class _Whole:
    """A plan that is one function: what its arrays are, worked out once."""

    def __init__(self, plan: Plan, segment: _Segment) -> None:
        assert segment.unit is not None and segment.compiled is not None
        self.run = segment.compiled
        self.arena = arena_bytes(plan)
        sources = {b: (0, n) for n, b in enumerate(plan.inputs)} | {b: (1, n) for n, b in enumerate(plan.outputs)}
        # for each array where it comes from, and how it is seen; or itself, if it is a constant
        self.arrays: list[tuple[int, int, tuple[int, ...], np.dtype] | np.ndarray] = []
        for buffer in segment.unit.buffers:
            if buffer in sources:
                dtype = memory_dtype(buffer.dtype)
                shape = (buffer.nbytes // dtype.itemsize,)
                self.arrays.append((*sources[buffer], shape, dtype))
            else:
                self.arrays.append(elements(_flat(buffer)))

    def __call__(self, inputs: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        places = (inputs, outputs)
        arena = allocate(self.arena).view((self.arena,), _BYTE)
        self.run(*(a if isinstance(a, np.ndarray) else places[a[0]][a[1]].view(a[2], a[3]) for a in self.arrays), arena)


class TextExecutable(Executable):
    """Runs a plan's segments in order, on host memory. What has steps of the host inside it runs in Python."""

    def __init__(
        self, plan: Plan, dialect: Callable[[], Dialect], compile_unit: Callable[[Unit], CompiledUnit]
    ) -> None:
        self.plan = plan
        self._dialect = dialect
        self._compile = compile_unit
        self._segments: dict[int, tuple[Plan, list[_Segment]]] = {}
        self._lock = threading.RLock()
        segments = self._prepare(plan)
        only = segments[0] if len(segments) == 1 else None
        self._whole = _Whole(plan, only) if only is not None and only.unit is not None else None

    def _prepare(self, plan: Plan) -> list[_Segment]:
        """The segments of a plan, compiled when it is first asked for."""
        with self._lock:
            found = self._segments.get(id(plan))
            if found is None:
                found = self._segments[id(plan)] = (plan, list(self._divide(plan)))
            return found[1]

    def _divide(self, plan: Plan) -> Iterator[_Segment]:
        for part in parts_of(plan, self._dialect):
            if isinstance(part, Unit):
                yield _Segment(part, self._compile(part), None)
            else:
                yield _Segment(None, None, part)

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
        arena = allocate(arena_bytes(plan)).view((arena_bytes(plan),), np.dtype(np.uint8))
        memory = _bound(plan, inputs, outputs, arena)
        for segment in self._prepare(plan):
            if segment.kernel is not None:
                with np.errstate(all="ignore"):
                    run_kernel(segment.kernel, memory, self._run)
            else:
                assert segment.unit is not None and segment.compiled is not None
                segment.compiled(*(elements(memory[b]) for b in segment.unit.buffers), arena)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The text of the plan, and of the plans inside loops that the host runs, as far as those ran."""
        return tuple(s.unit for _, segments in self._segments.values() for s in segments if s.unit is not None)

    @property
    def host_steps(self) -> tuple[Kernel, ...]:
        """The plan's kernels that the host runs."""
        return tuple(s.kernel for s in self._prepare(self.plan) if s.kernel is not None)

    def texts(self) -> dict[str, str]:
        """The plan, its kernels, and the text that is compiled."""
        source = "\n\n\n".join(function.text for unit in self.units for function in unit.functions)
        host = "\n".join(host_steps(self.plan, self._dialect()))
        return {"plan": show_plan(self.plan), "kernels": describe_plan(self.plan), "loops": source, "host": host}


def _bound(plan: Plan, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], arena: np.ndarray) -> Memory:
    """The arrays of a plan's buffers; those of temporaries that only bands use are not among them."""
    memory: Memory = {}
    for buffer in constants_of(plan):
        memory[buffer] = _flat(buffer)
    for buffer, start in plan.offsets.items():
        memory[buffer] = arena[start : start + buffer.nbytes].view(buffer.dtype)
    memory.update(zip(plan.inputs, inputs, strict=True))
    memory.update(zip(plan.outputs, outputs, strict=True))
    return memory


def _flat(constant: Buffer) -> np.ndarray:
    """A constant's elements in a row."""
    assert constant.value is not None
    return np.ascontiguousarray(constant.value).reshape(-1)
