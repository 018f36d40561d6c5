"""A plan as launches: nests run over grids, loops and branches are driven by the host, the rest are its own steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.engine import Engine, View
from rlx.backends.gpu.mapping import Grid, grid_of, kernel_text
from rlx.backends.loops.decompose import contract_as_loops
from rlx.backends.loops.names import identifier, unused_name
from rlx.backends.reference.kernels import run_kernel
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Contract,
    Kernel,
    Loops,
    Plan,
    RowTiles,
    Scan,
    While,
    constants_of,
    nested_plans,
)

__all__ = ["LaunchProgram"]

Memory = dict[Buffer, View]


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel that is queued: its compiled form, its grid, its arrays in order."""

    kernel: Any
    grid: Grid
    arrays: tuple[Buffer, ...]


class LaunchProgram:
    """A plan, and the plans inside it, with every kernel compiled. Runs on one device, from one thread at a time."""

    def __init__(self, plan: Plan, engine: Engine, dialect: Callable[[], DeviceDialect]) -> None:
        self.plan = plan
        self.engine = engine
        self._products: dict[Contract, Loops] = {}
        spelled = dialect()
        nests = [nest for nest in _nests(plan, self._products) if spelled.spells(nest)]
        grids = {nest: _grids(nest, engine.group, spelled) for nest in nests}
        texts: dict[str, str] = {}
        names: dict[Loops, str] = {}
        for grid in (grid for found in grids.values() for grid in found):
            label = identifier(grid.kernel.label, "nest")
            names[grid.kernel] = _define(kernel_text(grid, spelled), label, texts, spelled.reserved)
        self.source = spelled.program(texts)
        compiled = engine.compile(self.source, list(texts)) if texts else {}

        def launch(grid: Grid) -> _Launch:
            return _Launch(compiled[names[grid.kernel]], grid, tuple(dict.fromkeys(grid.kernel.operands)))

        self._launches = {nest: [launch(grid) for grid in found if grid.points] for nest, found in grids.items()}
        self._constants = {b: engine.borrow(b.elements) for b in constants_of(plan)}

    # ------------------------------------------------------------------ plans
    def run(self, plan: Plan, inputs: Sequence[View], outputs: Sequence[View]) -> None:
        """Queue a plan's kernels on its inputs and outputs."""
        memory: Memory = dict(self._constants)
        if plan.arena:
            arena = self.engine.allocate(plan.arena)
            memory |= {b: arena.part(at, b.nbytes) for b, at in plan.offsets.items()}
        memory |= dict(zip(plan.inputs, inputs, strict=True))
        memory |= dict(zip(plan.outputs, outputs, strict=True))
        for kernel in plan.kernels:
            self._kernel(kernel, memory)

    def _kernel(self, kernel: Kernel, memory: Mapping[Buffer, View]) -> None:
        match kernel:
            case Loops() if kernel in self._launches:
                self._launch(kernel, memory)
            case Contract():
                self._launch(self._products[kernel], memory)
            case RowTiles():
                local = {b: self.engine.allocate(b.nbytes) for b in kernel.local}
                for inner in kernel.kernels:
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

    def _launch(self, kernel: Loops, memory: Mapping[Buffer, View]) -> None:
        for launch in self._launches[kernel]:
            views = [memory[b] for b in launch.arrays]
            self.engine.launch(launch.kernel, views, launch.grid.points, launch.grid.items)

    def _scalar(self, view: View, dtype: np.dtype) -> Any:
        array = np.empty(1, dtype)
        self.engine.read(view.part(0, dtype.itemsize), array.view(np.uint8))
        return array[0]

    def _on_host(self, kernel: Kernel, memory: Mapping[Buffer, View]) -> None:
        """Bring what a kernel touches to the host, run it there, and bring what it wrote back."""
        arrays: dict[Buffer, np.ndarray] = {}
        for buffer in dict.fromkeys((*kernel.reads, *kernel.writes)):
            arrays[buffer] = np.empty(buffer.size, buffer.dtype)
            if buffer.nbytes:
                self.engine.read(memory[buffer], arrays[buffer].view(np.uint8))
        with np.errstate(all="ignore"):
            run_kernel(kernel, arrays, _no_plans)
        for buffer in kernel.writes:
            if buffer.nbytes:
                self.engine.write(memory[buffer], arrays[buffer].view(np.uint8))

    # ------------------------------------------------------------------ loops
    def _carries(self, kernel: Scan | While, memory: Mapping[Buffer, View]) -> tuple[list[View], list[View]]:
        """The carries, which begin in the final buffers, and where the next ones go."""
        current = [memory[b] for b in kernel.final]
        following = []
        for number, (initial, final) in enumerate(zip(kernel.initial, kernel.final, strict=True)):
            if initial is not final:
                self.engine.copy(memory[final], memory[initial])
            held = number in kernel.in_place
            following.append(current[number] if held else self.engine.allocate(final.nbytes))
        return current, following

    def _finish(self, kernel: Scan | While, current: Sequence[View], memory: Mapping[Buffer, View]) -> None:
        for buffer, view in zip(kernel.final, current, strict=True):
            if view is not memory[buffer]:
                self.engine.copy(memory[buffer], view)

    def _scan(self, kernel: Scan, memory: Mapping[Buffer, View]) -> None:
        current, following = self._carries(kernel, memory)
        constants = [memory[b] for b in kernel.constants]
        parts = (kernel.body.inputs[len(constants) + len(current) :], kernel.body.outputs[len(current) :])
        for step in reversed(range(kernel.length)) if kernel.reverse else range(kernel.length):
            xs, ys = (
                [memory[whole].part(step * part.nbytes, part.nbytes) for part, whole in zip(*pair, strict=True)]
                for pair in zip(parts, (kernel.xs, kernel.ys), strict=True)
            )
            self.run(kernel.body, [*constants, *current, *xs], [*following, *ys])
            current, following = following, current
        self._finish(kernel, current, memory)

    def _while(self, kernel: While, memory: Mapping[Buffer, View]) -> None:
        current, following = self._carries(kernel, memory)
        flag = self.engine.allocate(1)
        asked, stepped = ([memory[b] for b in side] for side in (kernel.condition_constants, kernel.body_constants))
        while True:
            self.run(kernel.condition, [*asked, *current], [flag])
            if not self._scalar(flag, np.dtype(bool)):
                break
            self.run(kernel.body, [*stepped, *current], following)
            current, following = following, current
        self._finish(kernel, current, memory)


def _no_plans(*_: object) -> None:
    raise AssertionError("loops and branches are driven by the device's own program")


def _grids(kernel: Loops, group: int, dialect: DeviceDialect) -> list[Grid]:
    """The grids that run a kernel, in order."""
    grid = grid_of(kernel, group, dialect)
    return [*(grid_of(before, group, dialect) for before in grid.before), grid]


def _nests(plan: Plan, products: dict[Contract, Loops]) -> list[Loops]:
    """Every nest of a plan and of the plans inside it; `products` gets the loops that stand for matrix products."""
    found: list[Loops] = []

    def visit(kernel: Kernel) -> None:
        if isinstance(kernel, Loops):
            found.append(kernel)
        elif isinstance(kernel, Contract):
            products[kernel] = contract_as_loops(kernel)
            found.append(products[kernel])
        for inner in kernel.kernels if isinstance(kernel, RowTiles) else ():
            visit(inner)
        for inner in nested_plans(kernel):
            found.extend(_nests(inner, products))

    for kernel in plan.kernels:
        visit(kernel)
    return found


def _define(text: Callable[[str], str], label: str, texts: dict[str, str], reserved: Collection[str]) -> str:
    """The name of a kernel with this text, which is defined now unless an equal one is there."""
    for name, known in texts.items():
        if text(name) == known:
            return name
    name = unused_name(label, texts, reserved)
    texts[name] = text(name)
    return name
