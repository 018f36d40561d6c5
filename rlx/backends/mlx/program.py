"""A plan as a function of MLX's arrays: parts under mx.compile, loops stepped through, host steps."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.backends.mlx.border import from_host, to_host
from rlx.backends.mlx.kernels import run_call, run_contract, run_library, run_sort, why_not_call, why_not_contract
from rlx.backends.mlx.library import CompiledMlxFunction, MxArray, at_work, dtype_of_memory, is_on_gpu, mx
from rlx.backends.mlx.loops import Buffers, run_loops, why_not
from rlx.backends.mlx.metal import is_wanted, run_metal, why_not_metal
from rlx.backends.mlx.packed import with_packed_constants
from rlx.backends.mlx.routines import why_not_routine
from rlx.backends.mlx.views import flat, reshaped
from rlx.backends.reference.kernels import run_kernel
from rlx.backends.reference.run import run_plan
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Callback,
    Collective,
    Contract,
    Kernel,
    Library,
    Loops,
    Plan,
    Scan,
    Sort,
    While,
    constants_of,
    nested_plans,
)

__all__ = ["PlanFunction", "host_cause", "traced_parts", "why_not_compiled"]

# loops of at most this many steps are unrolled, if all steps together have at most this many instructions
_UNROLLED_STEPS, _UNROLLED_INSTRUCTIONS = 32, 4096
_STEPS_AT_ONCE = 8  # steps of a loop on the host between two requests to compute pending arrays


def why_not_compiled() -> str | None:
    """The reason that plans do not run under mx.compile; None if they do. On Linux's CPU it calls a C++ compiler."""
    if "MLX_DISABLE_COMPILE" in os.environ:
        return "MLX_DISABLE_COMPILE is set"
    if not is_on_gpu() and sys.platform != "darwin" and shutil.which("g++") is None:
        return "mx.compile needs g++, which is missing"
    return None


# ------------------------------------------------------------------ host or MLX
def host_cause(kernel: Kernel) -> str | None:
    """The reason that a kernel runs on the host in NumPy; None if MLX runs it, or at least its inner plans."""
    match kernel:
        case Loops():
            return why_not(kernel)
        case Contract():
            return why_not_contract(kernel)
        case Library():
            return why_not_routine(kernel)
        case Callback():
            return why_not_call(kernel)
        case Collective():
            return "collectives run on the host"
    return None


def _is_traced(kernel: Kernel) -> bool:
    """Whether a kernel is a fixed sequence of MLX operations, independent of values."""
    if isinstance(kernel, While | Branch) or host_cause(kernel) is not None:
        return False
    if not isinstance(kernel, Scan):
        return True
    steps, body = kernel.length, kernel.body
    short = steps <= _UNROLLED_STEPS and steps * _instructions(body) <= _UNROLLED_INSTRUCTIONS
    return short and all(_is_traced(k) for k in body.kernels)


def _instructions(plan: Plan) -> int:
    """The approximate number of MLX operations in a plan."""
    return sum(_instructions_of(kernel) for kernel in plan.kernels)


def _instructions_of(kernel: Kernel) -> int:
    match kernel:
        case Loops():
            return len(kernel.instructions) + len(kernel.stores)
        case Scan():
            return kernel.length * _instructions(kernel.body)
    return 1


# ------------------------------------------------------------------ traced kernels
def _trace(kernel: Kernel, buffers: Buffers) -> None:
    match kernel:
        case Loops() if is_wanted() and why_not_metal(kernel) is None:
            run_metal(kernel, buffers)
        case Loops():
            run_loops(kernel, buffers)
        case Contract():
            run_contract(kernel, buffers)
        case Sort():
            run_sort(kernel, buffers)
        case Library():
            run_library(kernel, buffers)
        case Callback():
            run_call(kernel, buffers)
        case Scan():
            _unrolled(kernel, buffers)
        case _:
            raise AssertionError(f"{type(kernel).__name__} is not traced")
    for buffer in kernel.writes:  # a kernel without iterations has written nothing
        buffers[buffer] = _found(buffer, buffers)


def _inner(plan: Plan, inputs: Sequence[MxArray], held: Sequence[MxArray], outer: Buffers) -> list[MxArray]:
    """The outputs of a plan whose kernels are traced; `held`: the carries; some are updated in place."""
    buffers = {b: outer[b] for b in constants_of(plan)}
    buffers.update(zip(plan.inputs, inputs, strict=True))
    buffers.update((plan.outputs[n], held[n]) for n in plan.held)
    for kernel in plan.kernels:
        _trace(kernel, buffers)
    return [_found(b, buffers) for b in plan.outputs]


def _found(buffer: Buffer, buffers: Buffers) -> MxArray:
    """A buffer's array; zeros if nothing was written, which happens for empty buffers."""
    array = buffers.get(buffer)
    return mx.zeros((buffer.real_size,), dtype_of_memory(buffer.dtype)) if array is None else array


def _unrolled(kernel: Scan, buffers: Buffers) -> None:
    constants = [buffers[b] for b in kernel.constants]
    xs = [_rows(buffers[b], kernel.length) for b in kernel.xs]

    def step(carries: list[MxArray], place: int) -> list[MxArray]:
        return _inner(kernel.body, [*constants, *carries, *(x[place] for x in xs)], carries, buffers)

    _store_steps(kernel, buffers, *_steps(kernel, [buffers[b] for b in kernel.initial], step))


def _rows(array: MxArray, length: int) -> MxArray:
    if not length or (array.ndim > 1 and array.shape[0] == length):
        return array
    return mx.reshape(array, (length, -1))


def _steps(
    kernel: Scan, carries: list[MxArray], step: Callable[[list[MxArray], int], list[MxArray]]
) -> tuple[list[MxArray], list[list[MxArray]]]:
    """All steps of a loop, functions of the carries and a position in xs: the last carries, and slices of ys."""
    slices: list[list[MxArray]] = []
    places = range(kernel.length)
    for place in reversed(places) if kernel.reverse else places:
        results = step(carries, place)
        carries = results[: len(carries)]
        slices.append(results[len(carries) :])
    return carries, slices[::-1] if kernel.reverse else slices


def _store_steps(kernel: Scan, buffers: Buffers, carries: list[MxArray], slices: list[list[MxArray]]) -> None:
    buffers.update(zip(kernel.final, carries, strict=True))
    for number, buffer in enumerate(kernel.ys):
        if slices:
            buffers[buffer] = mx.stack([flat(row[number]) for row in slices])
        else:
            buffers[buffer] = mx.zeros((0,), dtype_of_memory(buffer.dtype))


# ------------------------------------------------------------------ parts of a plan
class _TracedKernels:
    """Kernels that are one function of arrays, compiled at the first call."""

    def __init__(self, kernels: Sequence[Kernel], wanted: Sequence[Buffer], constants: Buffers) -> None:
        self.kernels = kernels
        written = dict.fromkeys(b for k in kernels for b in k.writes)
        touched = dict.fromkeys(b for k in kernels for b in (*k.reads, *k.writes))
        self.constants = constants
        # a buffer that is partly written keeps its other elements
        self.inputs = [b for b in touched if b not in constants]
        self.outputs = [b for b in wanted if b in written]
        self._compiled = CompiledMlxFunction(self.function) if why_not_compiled() is None else self.function
        self._given: tuple[Buffer, ...] = ()

    def function(self, *arrays: MxArray) -> list[MxArray]:
        """The compiled function."""
        return self.traced(dict(zip(self._given, arrays, strict=True)))

    def traced(self, given: Buffers) -> list[MxArray]:
        """The uncomputed outputs for these arrays."""
        buffers = {**self.constants, **given}
        for kernel in self.kernels:
            _trace(kernel, buffers)
        return [flat(_found(b, buffers)) for b in self.outputs]

    def run(self, buffers: Buffers) -> None:
        """Run on the existing buffers, which are the same at each call."""
        with at_work():
            self._given = tuple(b for b in self.inputs if b in buffers)
            results = self._compiled(*(buffers[b] for b in self._given))
        buffers.update(zip(self.outputs, results, strict=True))


class _HostStep:
    """A kernel that the host runs in NumPy."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def run(self, buffers: Buffers) -> None:
        """Copy out, run, copy in."""
        with at_work():
            touched = [b for b in dict.fromkeys((*self.kernel.reads, *self.kernel.writes)) if b in buffers]
            mx.eval(*(buffers[b] for b in touched))
        memory = {b: to_host(buffers[b], b.dtype) for b in touched}
        for buffer in self.kernel.writes:
            found = memory.get(buffer)
            memory[buffer] = np.zeros(buffer.size, buffer.dtype) if found is None else found.copy()
        with np.errstate(all="ignore"):
            run_kernel(self.kernel, memory, run_plan)
        with at_work():
            buffers.update((b, from_host(memory[b])) for b in self.kernel.writes)


class _HostLoop:
    """A scan whose steps the host starts one after the other."""

    def __init__(self, kernel: Scan, constants: Buffers) -> None:
        self.kernel = kernel
        self.body = PlanFunction(kernel.body, constants)

    def run(self, buffers: Buffers) -> None:
        """Run all steps; every few steps, pending arrays are computed while the next steps are prepared."""
        kernel = self.kernel
        constants = _flat(buffers, kernel.constants)
        with at_work():
            xs = [_rows(buffers[b], kernel.length) for b in kernel.xs]
        count = 0

        def step(carries: list[MxArray], place: int) -> list[MxArray]:
            nonlocal count
            with at_work():
                carries = [flat(c) for c in carries]
                slices = [flat(x[place]) for x in xs]
            results = self.body([*constants, *carries, *slices], carries)
            count += 1
            if count % _STEPS_AT_ONCE == 0:
                with at_work():
                    mx.async_eval(*results)
            return results

        found = _steps(kernel, [buffers[b] for b in kernel.initial], step)
        with at_work():
            _store_steps(kernel, buffers, *found)


def _flat(buffers: Buffers, wanted: Sequence[Buffer]) -> list[MxArray]:
    with at_work():
        return [flat(buffers[b]) for b in wanted]


class _Repetition:
    """A loop whose condition the host reads before each step."""

    def __init__(self, kernel: While, constants: Buffers) -> None:
        self.kernel = kernel
        self.condition = PlanFunction(kernel.condition, constants)
        self.body = PlanFunction(kernel.body, constants)

    def run(self, buffers: Buffers) -> None:
        """Run until the condition is false."""
        kernel = self.kernel
        before = _flat(buffers, kernel.condition_constants)
        inside = _flat(buffers, kernel.body_constants)
        carries = _flat(buffers, kernel.initial)
        while _read(self.condition([*before, *carries], ())[0]):
            carries = self.body([*inside, *carries], carries)
        buffers.update(zip(kernel.final, carries, strict=True))


class _Choice:
    """A branch whose index the host reads."""

    def __init__(self, kernel: Branch, constants: Buffers) -> None:
        self.kernel = kernel
        self.branches = [PlanFunction(plan, constants) for plan in kernel.branches]

    def run(self, buffers: Buffers) -> None:
        """Run the branch with this index."""
        number = min(max(int(_read(buffers[self.kernel.index])), 0), len(self.branches) - 1)
        results = self.branches[number](_flat(buffers, self.kernel.inputs), ())
        buffers.update(zip(self.kernel.outputs, results, strict=True))


def _read(array: MxArray) -> Any:
    """The one element of an array, once it is computed."""
    with at_work():
        return reshaped(array, ()).item()


_Part = _TracedKernels | _HostStep | _HostLoop | _Repetition | _Choice


def _kernels_of(part: _Part) -> Sequence[Kernel]:
    return part.kernels if isinstance(part, _TracedKernels) else (part.kernel,)


@dataclass
class PlanFunction:
    """A plan as a function from the arrays of its inputs to the arrays of its outputs.

    `constants`: the arrays of constants of this plan and of the plans inside it, created if there are none yet.
    """

    plan: Plan
    constants: Buffers = field(default_factory=dict)
    kernels: list[Kernel] = field(init=False)
    parts: list[_Part] = field(init=False)
    _over: list[list[Buffer]] = field(init=False)

    def __post_init__(self) -> None:
        self.kernels = [with_packed_constants(kernel, self.constants) for kernel in self.plan.kernels]
        inner = [plan for kernel in self.kernels for plan in nested_plans(kernel)]
        read = {b for kernel in self.kernels for b in kernel.reads} | {b for plan in inner for b in constants_of(plan)}
        replaced = {b for kernel in self.plan.kernels for b in kernel.reads} - read
        for buffer in constants_of(self.plan):
            if buffer not in self.constants and buffer not in replaced:
                assert buffer.value is not None
                with at_work():
                    self.constants[buffer] = from_host(np.ascontiguousarray(buffer.value))
        self.parts = list(self._divide())
        self._over = self._last_touched()

    def _divide(self) -> Iterator[_Part]:
        gathered: list[Kernel] = []
        for number, kernel in enumerate(self.kernels):
            if _is_traced(kernel):
                gathered.append(kernel)
                continue
            if gathered:
                yield self._traced(gathered, number)
                gathered = []
            yield self._part(kernel)
        if gathered:
            yield self._traced(gathered, len(self.kernels))

    def _part(self, kernel: Kernel) -> _Part:
        match kernel:
            case Scan():
                return _HostLoop(kernel, self.constants)
            case While():
                return _Repetition(kernel, self.constants)
            case Branch():
                return _Choice(kernel, self.constants)
        return _HostStep(kernel)

    def _traced(self, kernels: Sequence[Kernel], end: int) -> _TracedKernels:
        """Kernels as one part, whose outputs are the values that later kernels and the plan's results read."""
        later = [b for kernel in self.kernels[end:] for b in (*kernel.reads, *kernel.writes)]
        return _TracedKernels(kernels, list(dict.fromkeys((*later, *self.plan.outputs))), self.constants)

    def __call__(self, inputs: list[MxArray], held: Sequence[MxArray]) -> list[MxArray]:
        """The outputs; `held`: the initial values of outputs that have one, by the number of the output.

        The list of inputs is emptied: an array without other references is freed after the last part that uses it.
        """
        buffers: Buffers = dict(self.constants)
        buffers.update(zip(self.plan.inputs, inputs, strict=True))
        buffers.update((self.plan.outputs[n], held[n]) for n in self.plan.held)
        inputs.clear()
        for part, over in zip(self.parts, self._over, strict=True):
            part.run(buffers)
            for buffer in over:
                buffers.pop(buffer, None)
        with at_work():
            return [_found(b, buffers) for b in self.plan.outputs]

    def _last_touched(self) -> list[list[Buffer]]:
        """For each part, the buffers that no later part uses and that are not outputs."""
        seen, found = set(self.plan.outputs), []
        for part in reversed(self.parts):
            mine = {b for k in _kernels_of(part) for b in (*k.reads, *k.writes)}
            found.append([*(mine - seen)])
            seen |= mine
        return found[::-1]

    @property
    def traced(self) -> int:
        """The number of traced functions, including those inside loops and branches."""
        return len(traced_parts(self))

    @property
    def host_steps(self) -> list[tuple[Kernel, str]]:
        """The kernels that the host runs, with reasons, including kernels inside loops and branches."""
        steps = [part.kernel for part in _all_parts(self) if isinstance(part, _HostStep)]
        return [(kernel, host_cause(kernel) or "") for kernel in steps]

    @property
    def host_loops(self) -> list[Kernel]:
        """Loops and branches that the host steps through."""
        return [p.kernel for p in _all_parts(self) if isinstance(p, _HostLoop | _Repetition | _Choice)]


def traced_parts(function: PlanFunction) -> list[_TracedKernels]:
    """The traced parts of a plan, including those inside loops and branches."""
    return [part for part in _all_parts(function) if isinstance(part, _TracedKernels)]


def _all_parts(function: PlanFunction) -> Iterator[_Part]:
    for part in function.parts:
        yield part
        match part:
            case _HostLoop():
                inner = [part.body]
            case _Repetition():
                inner = [part.condition, part.body]
            case _Choice():
                inner = part.branches
            case _:
                inner = []
        for other in inner:
            yield from _all_parts(other)
