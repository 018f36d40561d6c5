"""A plan as launches: nests run over grids, the host drives loops and branches, and runs the other kernels."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from rlx.backends.gpu.engine import View
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.graphs import GivenBuffers, KeptGraphs, Recording, Recordings, Stretch, Workspace, stretches
from rlx.backends.gpu.memory import Pool, rounded
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.gpu.steps import LaunchStep
from rlx.backends.gpu.timed import Clock
from rlx.backends.reference.kernels import run_kernel
from rlx.errors import DeviceError
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Callback,
    Collective,
    Kernel,
    Library,
    Operand,
    Plan,
    Scan,
    While,
    constants_of,
)
from rlx.ir.user_functions import KernelCall

__all__ = ["LaunchProgram"]

Memory = dict[Buffer, View]
_ScratchPlaces = tuple[int, list[tuple[Buffer, int, int]]]  # bytes in all; each array's start and size
_ADDRESS = 8  # bytes


def _view(operand: Operand, memory: Mapping[Buffer, View]) -> View:
    """The memory of a row-major operand."""
    itemsize = operand.buffer.dtype.itemsize
    return memory[operand.buffer].part(operand.offset * itemsize, prod(operand.shape) * itemsize)


class LaunchProgram:
    """A plan, and the plans inside it, with every kernel compiled. Runs on one device, from one thread at a time."""

    def __init__(self, plan: Plan, program: DeviceProgram, pool: Pool) -> None:
        self.pool = pool
        self.engine = pool.engine
        self._steps, self._parts, self._routines = program.steps, program.parts, program.routines
        self._compiled = self.engine.kernels(program.sources)
        self._prepared = {
            step: self._prepare(step) for steps in self._steps.values() for step in steps
        }
        self._user_kernels = {
            call: self.engine.compile_call(batched or call) for call, batched in program.calls.items()
        }
        self._batched = {
            call: self.engine.prepared(self._user_kernels[call], len(call.inputs) + len(call.outputs))
            for call, batched in program.calls.items()
            if batched is not None
        }
        self._batched_calls = program.calls
        tables = (b for steps in self._steps.values() for step in steps for b in step.arrays if b.role == "constant")
        self._constants = {b: self._constant(b) for b in dict.fromkeys((*constants_of(plan), *tables))}
        self._scratch: Pool | Workspace = pool  # the source of temporary memory
        self._places: dict[Kernel, _ScratchPlaces] = {}
        self._clock: Clock | None = None
        self._resident: dict[str, int] = {}  # the number of groups of a kernel that run at the same time, by its name
        self._stretches: dict[Plan, list[Stretch]] = {}
        self._given: dict[Plan, GivenBuffers] = {}
        self._recordings: defaultdict[Plan, Recordings] = defaultdict(Recordings)
        self._program = program
        self._copies: dict[int, tuple[tuple[Buffer, ...], list[LaunchStep]]] = {}  # by the bytes of an array
        pool.forgets.add(self)

    def __del__(self) -> None:
        for view in getattr(self, "_constants", {}).values():
            self.pool.give(view)
        for name in ("_prepared", "_batched", "_compiled", "_user_kernels"):
            self.pool.release(getattr(self, name, {}).clear)  # code is unloaded after the work that runs it

    def _constant(self, buffer: Buffer) -> View:
        view = self.pool.take(buffer.nbytes)
        if buffer.nbytes:
            with self.engine.lock:
                self.engine.write(view.part(0, buffer.nbytes), buffer.elements.view(np.uint8))
        return view

    @contextmanager
    def _taken(self, sizes: Iterable[int]) -> Generator[list[View]]:
        """Temporary memory until its user is queued: work that is queued later also runs later."""
        views: list[View] = []
        scratch = self._scratch
        try:
            views += map(scratch.take, sizes)
            yield views
        finally:
            for view in views:
                scratch.give(view)

    # ------------------------------------------------------------------ plans
    def run(self, plan: Plan, inputs: Sequence[View], outputs: Sequence[View]) -> None:
        """Queue a plan's kernels on its inputs and outputs: as graphs if a run was recorded."""
        if not self._is_recorded(plan):
            with self._memory(plan, inputs, outputs) as memory:
                self._queue(plan.kernels, memory)
            return
        recordings, given = self._recordings[plan], self._given[plan]
        views = dict(zip((*plan.inputs, *plan.outputs), (*inputs, *outputs), strict=True))
        addresses = tuple(self.engine.address(views[buffer]) for buffer in given.fixed)
        found = recordings.of(addresses)
        if found is not None:
            self._replay(plan, found, views)
        elif recordings.seen(addresses):
            self._record(plan, views, recordings, addresses)
        else:
            with self._memory(plan, inputs, outputs) as memory:
                self._queue(plan.kernels, memory)

    def run_stamped(self, plan: Plan, inputs: Sequence[View], outputs: Sequence[View], clock: Clock) -> None:
        """As `run`, with a time stamp before and after each kernel, and without graphs."""
        self._clock = clock
        try:
            self.run(plan, inputs, outputs)
        finally:
            self._clock = None

    @contextmanager
    def _memory(self, plan: Plan, inputs: Sequence[View], outputs: Sequence[View]) -> Generator[Memory]:
        """The memory of a plan's buffers in a run."""
        memory: Memory = dict(self._constants)
        with self._taken([plan.arena] if plan.arena else []) as arenas:
            for arena in arenas:
                memory |= {b: arena.part(at, b.nbytes) for b, at in plan.offsets.items()}
            memory |= dict(zip(plan.inputs, inputs, strict=True))
            memory |= dict(zip(plan.outputs, outputs, strict=True))
            yield memory

    def _queue(self, kernels: Sequence[Kernel], memory: Mapping[Buffer, View]) -> None:
        clock = self._clock
        for kernel in kernels:
            if clock is None:
                self._kernel(kernel, memory)
                continue
            with clock.timing(kernel):
                self._kernel(kernel, memory)

    # ------------------------------------------------------------------ graphs
    def _is_recorded(self, plan: Plan) -> bool:
        """Whether runs of a plan are worth recording, and no recording is in progress."""
        if not self.engine.records or self._scratch is not self.pool or self._clock is not None:
            return False
        if plan not in self._stretches:
            self._stretches[plan] = stretches(plan.kernels, self._launches)
            self._given[plan] = GivenBuffers.of(plan, (b for kernel in plan.kernels for b in self._addressed(kernel)))
        return any(s.launches is not None for s in self._stretches[plan]) and not self._recordings[plan].given_up

    def _launches(self, kernel: Kernel | LibraryProduct) -> int | None:
        """The number of a kernel's launches; None if the host takes part, or a library that cannot be recorded."""
        match kernel:
            case LibraryProduct():
                return 1
            case _ if kernel in self._steps:
                return len(self._steps[kernel])
            case Callback() if kernel.function in self._user_kernels:
                return prod(size for size, _ in kernel.function.levels)
            case _ if kernel in self._parts:
                return self._sum_of_launches(self._parts[kernel].members)
            case Scan():
                step = self._sum_of_launches(kernel.body.kernels)
                return None if step is None else kernel.length * step
        return None

    def _addressed(self, kernel: Kernel | LibraryProduct) -> Iterable[Buffer]:
        """The buffers whose addresses something other than rlx's kernels has."""
        match kernel:
            case LibraryProduct():
                return [operand.buffer for operand in kernel.operands]
            case _ if kernel in self._steps:
                return ()
            case _ if kernel in self._parts:
                return [b for member in self._parts[kernel].members for b in self._addressed(member)]
        return (*kernel.reads, *kernel.writes)

    def _sum_of_launches(self, kernels: Sequence[Kernel | LibraryProduct]) -> int | None:
        numbers = [self._launches(kernel) for kernel in kernels]
        return None if None in numbers else sum(n for n in numbers if n is not None)

    def _record(
        self, plan: Plan, views: Memory, recordings: Recordings, addresses: tuple[int, ...]
    ) -> None:  # fmt: skip
        """Run a plan in separate memory; then record its stretches into graphs, in the same memory."""
        workspace = recordings.workspace = recordings.workspace or Workspace(self.pool)
        workspace.restart()
        self._scratch, given = workspace, self._given[plan]
        refused: _NotRecordedError | None = None
        try:
            table = workspace.take(_ADDRESS * len(views))
            followed = {
                buffer: self.engine.followed(table.part(_ADDRESS * n, _ADDRESS), view.nbytes)
                for n, (buffer, view) in enumerate(views.items())
                if buffer not in given.fixed
            }
            copies = {buffer: workspace.take(buffer.nbytes) for buffer in given.copied}
            with self._memory(plan, [views[b] for b in plan.inputs], [views[b] for b in plan.outputs]) as memory:
                self._queue_recorded(plan, plan.kernels, memory, copies)
                workspace.full = True
                own = {b: view for b, view in memory.items() if b not in views} | copies
                inside = memory | followed
                kept = KeptGraphs(self.pool)
                parts = tuple((s, self._graph(plan, s, inside, copies, kept)) for s in self._stretches[plan])
            recordings.keep(addresses, Recording(own, table, parts, kept))
        except _NotRecordedError as error:
            refused = error
        finally:
            self._scratch = self.pool
        if refused is not None:
            recordings.given_up = True
            self.engine.mark()  # raises the error of a device that has failed
            warnings.warn(f"Launches could not be recorded, and are queued one by one: {refused}", stacklevel=2)

    def _queue_recorded(
        self, plan: Plan, kernels: Sequence[Kernel], memory: Memory, copies: Memory
    ) -> None:
        """Queue kernels as recordings do: on copies of inputs and outputs, which are made before and after."""
        if kernels[0] is plan.kernels[0]:
            for buffer in plan.inputs:
                if buffer in copies:
                    self._copy(memory[buffer], copies[buffer], buffer.nbytes)
        self._queue(kernels, memory | copies)
        if kernels[-1] is plan.kernels[-1]:
            for buffer in plan.outputs:
                if buffer in copies:
                    self._copy(copies[buffer], memory[buffer], buffer.nbytes)

    def _copy(self, source: View, target: View, nbytes: int) -> None:
        """Launch a copy by a kernel, which follows addresses."""
        if nbytes not in self._copies:
            width = next(width for width in (8, 4, 2, 1) if nbytes % width == 0)
            sides = tuple(Buffer(np.dtype(f"uint{8 * width}"), nbytes // width) for _ in range(2))
            self._copies[nbytes] = sides, self._program.copy_steps(*sides)
            for step in self._copies[nbytes][1]:
                self._compiled |= self.engine.kernels({step.label: self._program.sources[step.label]})
                self._prepared[step] = self._prepare(step)
        (given, made), steps = self._copies[nbytes]
        self._launch_all(steps, {given: source, made: target})

    def _graph(
        self, plan: Plan, stretch: Stretch, memory: Memory, copies: Memory, kept: KeptGraphs
    ) -> Any:
        if stretch.launches is None:
            return None
        try:
            self.engine.begin_graph()
            try:
                self._queue_recorded(plan, stretch.kernels, memory, copies)
            finally:
                graph = self.engine.end_graph()
            kept.keep(graph)
            return graph
        except DeviceError as error:
            raise _NotRecordedError(error) from None

    def _replay(self, plan: Plan, recording: Recording, views: Memory) -> None:
        addresses = np.array([*map(self.engine.address, views.values())], np.uint64)
        self.engine.stage(recording.table.part(0, addresses.nbytes), addresses.view(np.uint8))
        copies = {b: recording.memory[b] for b in self._given[plan].copied}
        for stretch, graph in recording.parts:
            if graph is None:
                self._queue_recorded(plan, stretch.kernels, recording.memory | views, copies)
            else:
                self.engine.launch_graph(graph)

    def forget(self) -> None:
        """Free the recordings and their memory."""
        for recordings in self._recordings.values():
            recordings.clear()

    def _kernel(self, kernel: Kernel | LibraryProduct, memory: Mapping[Buffer, View]) -> None:
        match kernel:
            case LibraryProduct():
                self.engine.multiply(kernel, memory)
            case _ if kernel in self._steps:
                self._launch(kernel, memory)
            case Callback() if kernel.function in self._user_kernels:
                self._call(kernel, kernel.function, memory)
            case Library() if kernel in self._routines:
                inputs, outputs = ([memory[o.buffer] for o in side] for side in (kernel.inputs, kernel.outputs))
                self.engine.compute(kernel, inputs, outputs)
            case Collective():
                if not self.engine.exchange(kernel, *(_part(o, memory) for o in (kernel.input, kernel.output))):
                    self._on_host(kernel, memory)
            case _ if kernel in self._parts:
                parts = self._parts[kernel]
                with self._taken(b.nbytes for b in parts.local) as views:
                    local = dict(zip(parts.local, views, strict=True))
                    for inner in parts.members:
                        self._kernel(inner, {**memory, **local})
            case Scan():
                self._scan(kernel, memory)
            case While():
                self._while(kernel, memory)
            case Branch():
                number = int(self._scalar(memory[kernel.index], np.dtype(np.int32)))
                chosen = kernel.branches[min(max(number, 0), len(kernel.branches) - 1)]
                self.run(chosen, [memory[b] for b in kernel.inputs], [memory[b] for b in kernel.outputs])
            case _:
                self._on_host(kernel, memory)

    def _prepare(self, step: LaunchStep) -> Any:
        return self.engine.prepared(self._compiled[step.label], len(step.arrays), step.passed)

    def _scratch_places(self, steps: Sequence[LaunchStep], memory: Mapping[Buffer, View]) -> _ScratchPlaces:
        """The arrays of launches that are not in a plan, in one block: devices bind few of them."""
        scratch = [*dict.fromkeys(b for step in steps for b in step.arrays if b not in memory)]
        *starts, total = [0, *accumulate(rounded(b.nbytes) for b in scratch)]
        return total, [(b, start, b.nbytes) for b, start in zip(scratch, starts, strict=True)]

    def _launch(self, kernel: Kernel, memory: Mapping[Buffer, View]) -> None:
        steps, known = self._steps[kernel], self._places.get(kernel)
        if known is None:
            known = self._places[kernel] = self._scratch_places(steps, memory)
        total, places = known
        if not total:
            self._launch_all(steps, memory)
            return
        scratch = self._scratch
        block = scratch.take(total)
        try:
            self._launch_all(steps, {**memory, **{b: block.part(start, size) for b, start, size in places}})
        finally:
            scratch.give(block)

    def _launch_all(self, steps: Sequence[LaunchStep], memory: Mapping[Buffer, View]) -> None:
        for step in steps:
            arrays = [memory[buffer] for buffer in step.arrays]
            if step.together:
                self.engine.launch_together(self._prepared[step], arrays, self._groups_together(step), step.items)
            else:
                self.engine.launch(self._prepared[step], arrays, (step.groups, 1, 1), (step.items, 1, 1))

    def _groups_together(self, step: LaunchStep) -> int:
        """The number of groups to launch: as many as are useful and run at the same time."""
        if step.label not in self._resident:
            self._resident[step.label] = self.engine.resident(self._compiled[step.label], step.items)
        groups = min(step.groups, self._resident[step.label])
        if groups < 1:
            raise DeviceError(
                f"The device cannot run a group of {step.items} work-items of the loop {step.label!r}.",
                "Please report it with the program; the CPU runs it: rlx.default_device('cpu').",
            )
        return groups

    def _call(self, kernel: Callback, call: KernelCall, memory: Mapping[Buffer, View]) -> None:
        """Launch a user's kernel for all elements of its batch at once, or for one after another."""
        batched = self._batched_calls[call]
        if batched is not None:
            views = [_view(operand, memory) for operand in (*kernel.outputs, *kernel.inputs)]
            self.engine.launch(self._batched[call], views, batched.grid, batched.block)
            return
        operands, types = (*kernel.outputs, *kernel.inputs), (*call.outputs, *call.inputs)
        every = [True] * len(kernel.outputs)
        levels = [(size, (*every, *moving)) for size, moving in call.levels]
        for place in np.ndindex(*(size for size, _ in levels)):
            views = []
            for number, (operand, each) in enumerate(zip(operands, types, strict=True)):
                index = 0
                for at, (size, moving) in zip(place, levels, strict=True):
                    index = index * size + at if moving[number] else index
                nbytes = each.size * each.dtype.itemsize
                start = operand.offset * each.dtype.itemsize + index * nbytes
                views.append(memory[operand.buffer].part(start, nbytes))
            self._launch_call(call, views, len(kernel.outputs))

    def _launch_call(self, call: KernelCall, views: Sequence[View], outputs: int) -> None:
        """Launch it once; arrays inside a block are copied if the kernel can only take addresses of whole blocks."""
        moved = [n for n, view in enumerate(views) if view.start and not self.engine.pointers]
        with self._taken(views[n].nbytes for n in moved) as blocks:
            given = list(views)
            for number, block in zip(moved, blocks, strict=True):
                given[number] = block
                if number >= outputs:
                    self.engine.copy(block, views[number])
            self.engine.call(self._user_kernels[call], given, call.grid, call.block)
            for number in moved:
                if number < outputs:
                    self.engine.copy(views[number], given[number].part(0, views[number].nbytes))

    def _scalar(self, view: View, dtype: np.dtype) -> Any:
        array = np.empty(1, dtype)
        self.engine.read(view.part(0, dtype.itemsize), array.view(np.uint8))
        return array[0]

    def _on_host(self, kernel: Kernel, memory: Mapping[Buffer, View]) -> None:
        """Copy a kernel's operands to the host, run it there, and copy its results back."""
        arrays: dict[Buffer, np.ndarray] = {}
        for buffer in dict.fromkeys((*kernel.reads, *kernel.writes)):
            arrays[buffer] = np.empty(buffer.size, buffer.dtype)
            if buffer.nbytes:
                self.engine.read(memory[buffer].part(0, buffer.nbytes), arrays[buffer].view(np.uint8))
        with np.errstate(all="ignore"):
            run_kernel(kernel, arrays, _no_plans)
        for buffer in kernel.writes:
            if buffer.nbytes:
                self.engine.write(memory[buffer].part(0, buffer.nbytes), arrays[buffer].view(np.uint8))

    # ------------------------------------------------------------------ loops
    @contextmanager
    def _carries(self, kernel: Scan | While, memory: Mapping[Buffer, View]) -> Generator[tuple[list[View], list[View]]]:
        """The buffers of the carries, which begin in the final buffers, and of the next carries."""
        moving = [n for n in range(len(kernel.final)) if n not in kernel.in_place]
        with self._taken(kernel.final[n].nbytes for n in moving) as views:
            for initial, final in zip(kernel.initial, kernel.final, strict=True):
                if initial is not final:
                    self.engine.copy(memory[final], memory[initial].part(0, initial.nbytes))
            current = [memory[b] for b in kernel.final]
            spare = iter(views)
            yield current, [next(spare) if n in moving else view for n, view in enumerate(current)]

    def _finish(self, kernel: Scan | While, current: Sequence[View], memory: Mapping[Buffer, View]) -> None:
        for buffer, view in zip(kernel.final, current, strict=True):
            if view is not memory[buffer]:
                self.engine.copy(memory[buffer], view.part(0, buffer.nbytes))

    def _scan(self, kernel: Scan, memory: Mapping[Buffer, View]) -> None:
        constants = [memory[b] for b in kernel.constants]
        carries = len(kernel.initial)
        parts = (kernel.body.inputs[len(constants) + carries :], kernel.body.outputs[carries:])
        with self._carries(kernel, memory) as (current, following):
            for step in reversed(range(kernel.length)) if kernel.reverse else range(kernel.length):
                xs, ys = (
                    [memory[whole].part(step * part.nbytes, part.nbytes) for part, whole in zip(*pair, strict=True)]
                    for pair in zip(parts, (kernel.xs, kernel.ys), strict=True)
                )
                self.run(kernel.body, [*constants, *current, *xs], [*following, *ys])
                current, following = following, current
            self._finish(kernel, current, memory)

    def _while(self, kernel: While, memory: Mapping[Buffer, View]) -> None:
        asked, stepped = ([memory[b] for b in side] for side in (kernel.condition_constants, kernel.body_constants))
        with self._carries(kernel, memory) as (current, following), self._taken([1]) as (flag,):
            while True:
                self.run(kernel.condition, [*asked, *current], [flag])
                if not self._scalar(flag, np.dtype(bool)):
                    break
                self.run(kernel.body, [*stepped, *current], following)
                current, following = following, current
            self._finish(kernel, current, memory)


class _NotRecordedError(Exception):
    """The device cannot record something into a graph."""


def _part(operand: Operand, memory: Mapping[Buffer, View]) -> View:
    """The memory of a contiguous operand."""
    size = operand.buffer.dtype.itemsize
    return memory[operand.buffer].part(operand.offset * size, prod(operand.shape) * size)


def _no_plans(*_: object) -> None:
    raise AssertionError("the device's own program drives loops and branches")
