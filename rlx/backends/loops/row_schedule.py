"""The split of a Loops kernel into passes over the row, with row-level code between them."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from rlx.ir.kernels import Instruction, Loops, Store
from rlx.ir.scalar import ALPHABET, EXPENSIVE

__all__ = ["RowPass", "RowSchedule", "row_schedule"]


@dataclass(frozen=True, slots=True)
class RowPass:
    """One sweep over the row: the values computed per element, reductions, and stores.

    keeps: values that are parked at the target of a later store, (value, store); recalls: values of `values` that are
    read from there instead of being recomputed.
    """

    values: tuple[int, ...]
    reduces: tuple[int, ...]
    stores: tuple[int, ...]
    keeps: tuple[tuple[int, int], ...] = ()
    recalls: tuple[tuple[int, int], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the sweep has no effect."""
        return not self.reduces and not self.stores


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """`row_values[s]`, then `passes[s]`, then `row_stores[s]`, for each phase s in order.

    summed: products that only sums read, see _summed_products.
    """

    element_level: tuple[bool, ...]
    summed: frozenset[int]
    row_values: tuple[tuple[int, ...], ...]
    passes: tuple[RowPass, ...]
    row_stores: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Dependence:
    """Level and phase of each instruction, and the element-level instructions that it needs."""

    instructions: tuple[Instruction, ...]
    alias: tuple[int, ...]
    element: tuple[bool, ...]
    phase: tuple[int, ...]

    def sweep_values(self, roots: list[int], recalled: Container[int] = ()) -> list[int]:
        """The element-level instructions that a sweep needs to have `roots`, in order."""
        needed: set[int] = set()
        pending = [n for n in roots if self.element[n]]
        while pending:
            number = pending.pop()
            if number in needed:
                continue
            needed.add(number)
            if number not in recalled:
                pending += [a for a in self.instructions[number].args if self.element[a]]
        return sorted(needed)


def _dependence(
    instructions: tuple[Instruction, ...], alias: tuple[int, ...], outer: int, rank: int
) -> _Dependence:
    element: list[bool] = []
    phase: list[int] = []
    rows = range(outer, rank)
    for instruction in instructions:
        op, args, attribute = instruction.op, instruction.args, instruction.attribute
        inherited = any(element[a] for a in args)
        if op == "load":
            inherited = inherited or any(attribute.strides[d] for d in rows)
        elif op == "index":
            inherited = attribute >= outer
        elif op == "cumulate":
            inherited = bool(rows)
        elif op == "reduce":
            inherited = False
        element.append(inherited)
        after = max((phase[a] for a in args), default=0)
        phase.append(after + 1 if op == "reduce" and rows else after)
    return _Dependence(instructions, alias, tuple(element), tuple(phase))


def _store_roots(store: Store) -> list[int]:
    extra = [n for n in (store.address, store.guard) if n is not None]
    return [store.value, *extra]


def _runs_per_element(dependence: _Dependence, store: Store, outer: int) -> bool:
    repeats = store.accumulate is not None and not store.once
    moving = any(store.access.strides[outer:])
    return repeats or moving or any(dependence.element[n] for n in _store_roots(store))


def _store_phases(
    dependence: _Dependence, stores: tuple[Store, ...], reduces: list[int], elements: list[bool]
) -> list[int]:
    """The sweep of each store: after its values are known, and not before the last sweep that
    loads the elements that it overwrites."""
    alias, instructions = dependence.alias, dependence.instructions
    phases = [max(dependence.phase[n] for n in _store_roots(s)) for s in stores]
    roots = [
        (dependence.phase[instructions[n].args[0]], [instructions[n].args[0]]) for n in reduces
    ]
    changed = True
    while changed:
        changed = False
        last_load: dict[int, int] = {}
        sweeps = roots + [(phases[n], _store_roots(s)) for n, s in enumerate(stores) if elements[n]]
        for phase, needed in sweeps:
            for number in dependence.sweep_values(needed):
                if instructions[number].op == "load":
                    target = alias[instructions[number].attribute.operand]
                    last_load[target] = max(last_load.get(target, 0), phase)
        previous: dict[int, int] = {}
        for n, store in enumerate(stores):
            target = alias[store.access.operand]
            earliest = max(phases[n], last_load.get(target, 0), previous.get(target, 0))
            changed |= earliest > phases[n]
            phases[n] = previous[target] = earliest
    return phases


# recomputing values without any of these is cheaper than memory
_EXPENSIVE = frozenset(("cumulate", *(op for op, facts in ALPHABET.items() if facts.cost >= EXPENSIVE)))


def _is_expensive(dependence: _Dependence, number: int) -> bool:
    computed = dependence.sweep_values([number])
    return any(dependence.instructions[n].op in _EXPENSIVE for n in computed)


def _parking_places(
    dependence: _Dependence,
    stores: tuple[Store, ...],
    dtypes: Sequence[np.dtype],
) -> list[int]:
    """Stores whose rows can hold another value until they run: plain stores to every element of a buffer that nothing
    else accesses."""
    alias = dependence.alias
    loaded = {alias[i.attribute.operand] for i in dependence.instructions if i.op == "load"}
    targets = [alias[s.access.operand] for s in stores]
    return [
        n
        for n, store in enumerate(stores)
        if store.accumulate is None
        and store.address is None
        and store.guard is None
        and store.access.strides[-1]
        and targets[n] not in loaded
        and targets.count(targets[n]) == 1
        and dtypes[store.access.operand].name in ("float32", "float64")
    ]


def _park(
    dependence: _Dependence,
    stores: tuple[Store, ...],
    dtypes: Sequence[np.dtype],
    phases: list[int],
    passes: list[RowPass],
) -> list[RowPass]:
    """Keep one expensive value per parking place from its first sweep to later sweeps."""
    parked: set[int] = set()
    for place in _parking_places(dependence, stores, dtypes):
        target = dtypes[stores[place].access.operand]
        for first, sweep in enumerate(passes[: phases[place]]):
            later = [n for n in range(first + 1, len(passes)) if not passes[n].empty]
            wanted = [
                n
                for n in sweep.values
                if dependence.instructions[n].dtype == target
                and n not in parked
                and n not in dict(sweep.recalls)
                and any(n in passes[q].values for q in later)
                and all(q <= phases[place] for q in later if n in passes[q].values)
                and _is_expensive(dependence, n)
            ]
            if wanted:
                parked.add(wanted[-1])
                _recall(dependence, stores, passes, first, wanted[-1], place)
                break
    return passes


def _recall(
    dependence: _Dependence,
    stores: tuple[Store, ...],
    passes: list[RowPass],
    first: int,
    value: int,
    place: int,
) -> None:
    passes[first] = replace(passes[first], keeps=(*passes[first].keeps, (value, place)))
    for number in range(first + 1, len(passes)):
        sweep = passes[number]
        if value not in sweep.values:
            continue
        recalls = (*sweep.recalls, (value, place))
        values = dependence.sweep_values(_roots(dependence, stores, sweep), dict(recalls))
        recalls = tuple(pair for pair in recalls if pair[0] in values)
        passes[number] = replace(sweep, values=tuple(values), recalls=recalls)


def _roots(dependence: _Dependence, stores: tuple[Store, ...], sweep: RowPass) -> list[int]:
    """The values that a sweep must compute."""
    roots = [dependence.instructions[n].args[0] for n in sweep.reduces]
    roots += [root for n in sweep.stores for root in _store_roots(stores[n])]
    return roots + [value for value, _ in sweep.keeps]


@lru_cache(maxsize=1024)
def _staging(
    instructions: tuple[Instruction, ...],
    stores: tuple[Store, ...],
    alias: tuple[int, ...],
    dtypes: tuple[np.dtype, ...],
    outer: int,
    rank: int,
) -> RowSchedule:
    dependence = _dependence(instructions, alias, outer, rank)
    reduces = [n for n, i in enumerate(instructions) if i.op == "reduce"] if outer < rank else []
    elements = [_runs_per_element(dependence, s, outer) for s in stores]
    phases = _store_phases(dependence, stores, reduces, elements)
    count = 1 + max([*phases, *(dependence.phase)], default=0)
    passes = []
    for phase in range(count):
        swept = [n for n in reduces if dependence.phase[instructions[n].args[0]] == phase]
        written = [n for n in range(len(stores)) if phases[n] == phase and elements[n]]
        sweep = RowPass((), tuple(swept), tuple(written))
        values = dependence.sweep_values(_roots(dependence, stores, sweep))
        passes.append(replace(sweep, values=tuple(values)))
    if rank - outer == 1:
        passes = _park(dependence, stores, dtypes, phases, passes)
    return RowSchedule(
        element_level=dependence.element,
        summed=_summed_products(instructions, stores),
        row_values=tuple(
            tuple(
                n
                for n in range(len(instructions))
                if not dependence.element[n] and dependence.phase[n] == phase and n not in reduces
            )
            for phase in range(count)
        ),
        passes=tuple(passes),
        row_stores=tuple(
            tuple(n for n in range(len(stores)) if phases[n] == phase and not elements[n])
            for phase in range(count)
        ),
    )


def _summed_products(instructions: tuple[Instruction, ...], stores: tuple[Store, ...]) -> frozenset[int]:
    """Products that only sums read, which need not be rounded before the addition.

    Any other product is rounded, as the same product may be recomputed in another kernel, and a
    difference of the two must be zero.
    """
    products = {n for n, i in enumerate(instructions) if i.op == "mul" and i.dtype.kind == "f"}
    for instruction in instructions:
        if (instruction.op, instruction.attribute) != ("reduce", "add"):
            products.difference_update(instruction.args)
    for store in stores:
        added = store.value if store.accumulate == "add" else None
        products.difference_update(n for n in _store_roots(store) if n != added)
    read = {a for i in instructions for a in i.args} | {s.value for s in stores}
    return frozenset(products & read)


def row_schedule(kernel: Loops) -> RowSchedule:
    """The passes of a kernel; equal kernels share the analysis."""
    numbers: dict[int, int] = {}
    alias = tuple(numbers.setdefault(id(b), len(numbers)) for b in kernel.operands)
    dtypes = tuple(b.dtype for b in kernel.operands)
    return _staging(
        kernel.instructions, kernel.stores, alias, dtypes, kernel.outer, len(kernel.sizes)
    )
