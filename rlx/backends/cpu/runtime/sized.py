"""A plan with symbolic sizes as a table whose words are filled in for the sizes of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.backends.base import SizedExecutable
from rlx.backends.cpu.routines.host_steps import HostStep, host_function
from rlx.backends.cpu.runtime.cost import STRETCH_NANOSECONDS, longest_stretch, plan_cost
from rlx.backends.cpu.runtime.entry import load_runtime
from rlx.backends.cpu.runtime.executable import RELEASE_NANOSECONDS, AbandonableExecutable, NativeExecutable
from rlx.backends.cpu.runtime.table import HostKernel, StepTable, table_words
from rlx.config import config
from rlx.ir.dims import hint_of, is_sized
from rlx.ir.kernels import Plan
from rlx.ir.sized_data import filled_kernel, filled_plan, sizes_in
from rlx.ir.sizes import SizeScope
from rlx.ir.verify_plan import verify_plan

__all__ = ["SizedPlan"]


class _SizedWords:
    """Words of a table, some of which are symbolic: their positions, and for each the number of its value."""

    def __init__(self, words: Sequence[Any], numbers: dict[Any, int]) -> None:
        self._words = np.array([0 if isinstance(word, HostKernel) else hint_of(word) for word in words], np.int64)
        sized = [(at, word) for at, word in enumerate(words) if is_sized(word)]
        self._places = np.array([at for at, _ in sized], np.intp)
        self._values = np.array([numbers.setdefault(word, len(numbers)) for _, word in sized], np.intp)

    def filled(self, values: np.ndarray) -> np.ndarray:
        """The words of a call."""
        words = self._words.copy()
        words[self._places] = values[self._values]
        return words


class SizedPlan(SizedExecutable):
    """A plan with symbolic sizes, and its table."""

    def __init__(self, plan: Plan, scope: SizeScope) -> None:
        self.plan, self.scope = plan, scope
        words = table_words(plan, load_runtime().addresses)
        self._numbers: dict[Any, int] = {}
        self._rows, self._slots = _SizedWords(words.rows, self._numbers), _SizedWords(words.slots, self._numbers)
        self._table = words
        self._relative = np.array(words.relative, np.int64)
        self._host = [(at, word) for at, word in enumerate(words.rows) if isinstance(word, HostKernel)]
        for _, word in self._host:
            for size in sizes_in(word.kernel):
                self._numbers.setdefault(size, len(self._numbers))
        others = (words.arena, *(buffer.nbytes for buffer in plan.outputs))
        costs = (plan_cost(plan), longest_stretch(plan))
        self._run = scope.compiled([*costs, *others, *self._numbers])
        self._others = 2 + len(others)

    def at(self, sizes: tuple[int, ...]) -> NativeExecutable | None:
        """The executable for these sizes."""
        found = self._run(sizes)
        if found is None:
            return None
        if config.check:
            verify_plan(self.plan_at(sizes), placed=True)
        cost, stretch, arena, *output_bytes = found[: self._others]
        values = np.array(found[self._others :], np.int64)
        known = self._table
        rows, slots = self._rows.filled(values), self._slots.filled(values)
        kept = (*known.kept, *self._host_functions(rows, found[self._others :]))
        python = known.calls_python or bool(self._host)
        table = StepTable(rows, slots, self._relative, arena, kept, known.underway, python)
        kind = _SizedAbandonable if stretch >= STRETCH_NANOSECONDS else _SizedNative
        return kind(self, sizes, table, output_bytes, cost >= RELEASE_NANOSECONDS)

    def _host_functions(self, rows: np.ndarray, values: Sequence[Any]) -> list[HostStep]:
        """The functions of kernels that run in Python; their addresses are put into the rows."""
        made: list[HostStep] = []
        if self._host:
            numbers = dict(zip(self._numbers, values, strict=True))
            for at, (kernel, slots) in self._host:
                filled, sources = filled_kernel(kernel, numbers)
                made.append(host_function(filled, lambda b, s=sources, t=slots: t[s[b]], self._table.underway))
                rows[at] = id(made[-1])
        return made

    def plan_at(self, sizes: tuple[int, ...]) -> Plan:
        """The plan with these sizes, as a compiler for them would make it."""
        numbers = list(dict.fromkeys(sizes_in((self.plan, tuple(self.plan.offsets.values())))))
        found = self.scope.compiled(numbers)(sizes)
        assert found is not None, "the sizes do not satisfy the plan's conditions"
        return filled_plan(self.plan, dict(zip(numbers, found, strict=True)))


class _SizedNative(NativeExecutable):
    """The table of a plan for some sizes. Its plan is made when it is asked for."""

    def __init__(
        self, made_by: SizedPlan, sizes: tuple[int, ...], table: StepTable, output_bytes: Sequence[int], releases: bool
    ) -> None:
        self._made_by, self._sizes = made_by, sizes
        self._filled: Plan | None = None
        self._prepare(table, len(made_by.plan.inputs), output_bytes, releases)

    @property
    def plan(self) -> Plan:  # ty: ignore[incompatible-property-override]  it is never set
        """The plan for these sizes."""
        if self._filled is None:
            self._filled = self._made_by.plan_at(self._sizes)
        return self._filled


class _SizedAbandonable(_SizedNative, AbandonableExecutable):
    """One with a long step."""
