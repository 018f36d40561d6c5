"""Rematerialisation: values that wait long in memory are computed again where they are needed.

Given a budget for temporaries, planning finds the values that live through the plan's peak. The values with the
best ratio of memory to the work of computing them again get a second computation, after a barrier and
before their late users. This repeats until the plan fits.
After Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), with values chosen from
the plan instead of by layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from rlx.errors import MemoryLimitError, bytes_text
from rlx.ir.kernels import Buffer, Plan, RowTiles
from rlx.ir.program import Equation, Program, Var
from rlx.lowering.lowered import LoweredValue
from rlx.lowering.nodes import leaves
from rlx.planning.memory import blocks_of, temporary_bytes
from rlx.storage import ALIGNMENT
from rlx.trace.primitive import registry

__all__ = ["plan_within"]

_MOST_ROUNDS = 32
_LONGEST_CHAIN = 96
_SHORTEST_GAP = 12  # equations
_FRUITLESS_ROUNDS = 8


PlanProgram = Callable[[Program], tuple[Plan, Mapping[Var, LoweredValue]]]


def plan_within(program: Program, limit: int, plan_program: PlanProgram, alignment: int = ALIGNMENT) -> Plan:
    """The plan of a closed MIR program whose temporaries take at most `limit` bytes.

    plan_program returns the plan of a program, and the buffers of its variables; temporaries begin at multiples of
    `alignment` bytes.

    Raises:
      MemoryLimitError: the program cannot be brought to that.
    """
    best: Plan | None = None
    fruitless = 0
    for _ in range(_MOST_ROUNDS):
        plan, values = plan_program(program)
        found = temporary_bytes(plan)
        if found <= limit:
            return plan
        if best is None or found < temporary_bytes(best):
            best, fruitless = plan, 0
        else:
            fruitless += 1
        changed = _relieved(program, plan, _holdings(values), found - limit, alignment)
        if changed is None or fruitless == _FRUITLESS_ROUNDS:
            break
        program = changed
    assert best is not None
    raise MemoryLimitError(
        f"{program.name} needs {bytes_text(temporary_bytes(best))} of temporary memory, with all that can be "
        f"computed again; memory_limit is {bytes_text(limit)}.",
        "Raise the limit, or make the batch smaller.",
    )


def _holdings(values: Mapping[Var, LoweredValue]) -> dict[Var, set[Buffer]]:
    """The buffers that each variable is read from."""
    return {v: {n.attribute.buffer for n in leaves(value.nodes)} for v, value in values.items()}


def _relieved(
    program: Program, plan: Plan, holdings: dict[Var, set[Buffer]], excess: int, alignment: int
) -> Program | None:
    """The program with some values that live through the plan's peak computed again; None if there are none."""
    rewriting = _Rewriting(program)
    readers: dict[Buffer, list[Var]] = {b: [] for b in _waiting_at_peak(plan, alignment)}
    for variable in rewriting.defined:
        for buffer in holdings.get(variable, ()):
            if buffer in readers:
                readers[buffer].append(variable)
    chains = {b: chain for b, found in readers.items() if (chain := rewriting.chain(found)) is not None}
    freed = 0
    for buffer in sorted(chains, key=lambda b: chains[b].work / max(b.nbytes, 1)):
        if freed > excess:
            break
        if rewriting.compute_again(readers[buffer]):
            freed += buffer.nbytes
    return rewriting.program() if freed else None


def _waiting_at_peak(plan: Plan, alignment: int) -> set[Buffer]:
    """Temporaries that are neither made nor used by the kernel in which most bytes are live.

    Kernels in row tiles are many: there, those too that only some of them touch.
    """
    blocks = blocks_of(plan.kernels, alignment)
    live = [0] * (len(plan.kernels) + 1)
    for block in blocks:
        live[block.first] += block.size
        live[block.last + 1] -= block.size
    most, peak, total = -1, 0, 0
    for position, change in enumerate(live):
        total += change
        if total > most:
            most, peak = total, position
    kernel = plan.kernels[peak]
    live_there = {b for block in blocks if block.first <= peak <= block.last for b in block.buffers}
    return live_there if isinstance(kernel, RowTiles) else live_there - {*kernel.reads, *kernel.writes}


@dataclass(slots=True)
class _Recomputation:
    """Equations that compute values again, from values that are live anyway, before equation `position`."""

    position: int
    equations: list[Equation] = field(default_factory=list)
    sources: dict[Var, None] = field(default_factory=dict)
    work: float = 0.0


class _Rewriting:
    """A program as a list of equations that grows by second computations."""

    def __init__(self, program: Program) -> None:
        self.original = program
        self.equations = list(program.equations)
        self.fixed = {*program.inputs, *(v for v, _ in program.constants)}
        self._index()

    def _index(self) -> None:
        """Index definitions and uses of values; a barrier's results are the values of its operands."""
        self.defined: dict[Var, int] = {}
        self.uses: dict[Var, list[int]] = {}
        self.source: dict[Var, Var] = {}
        for number, equation in enumerate(self.equations):
            if equation.primitive.name == "optimization_barrier":
                pairs = zip(equation.outputs, equation.inputs, strict=True)
                self.source.update((out, self.root(a)) for out, a in pairs if isinstance(a, Var))
                continue
            self.defined.update((v, number) for v in equation.outputs)
            for atom in equation.inputs:
                if isinstance(atom, Var):
                    self.uses.setdefault(self.root(atom), []).append(number)
        for atom in self.original.outputs:
            if isinstance(atom, Var):
                self.uses.setdefault(self.root(atom), []).append(len(self.equations))

    def root(self, variable: Var) -> Var:
        """The variable whose value this is."""
        return self.source.get(variable, variable)

    def _waiting(self, variables: Sequence[Var]) -> tuple[int, list[Var]] | None:
        """The end of the longest stretch in which none of the variables is used, and the variables used after it."""
        events = sorted({n for v in variables for n in (self.defined[v], *self.uses.get(v, ()))})
        if len(events) < 2:
            return None
        begin, end = max(pairwise(events), key=lambda pair: pair[1] - pair[0])
        late = [v for v in variables if self.defined[v] <= begin and self.uses.get(v, (0,))[-1] >= end]
        if end - begin < _SHORTEST_GAP or not late or end == len(self.equations):
            return None
        return end, late

    def chain(self, variables: Sequence[Var]) -> _Recomputation | None:
        """How to compute values again after their gap; None if that is impossible or too expensive."""
        waiting = self._waiting(variables)
        if waiting is None:
            return None
        chain = _Recomputation(waiting[0])
        seen: set[Equation] = set()
        return chain if all(self._extend(chain, v, seen) for v in waiting[1]) else None

    def _extend(self, chain: _Recomputation, variable: Var, seen: set[Equation]) -> bool:
        """Add the equations that compute `variable`, unless it is live; False if that is impossible."""
        equation = self.equations[self.defined[variable]]
        if equation in seen:
            return True
        seen.add(equation)
        if not _repeatable(equation) or len(seen) > _LONGEST_CHAIN:
            return False
        for atom in equation.inputs:
            if not isinstance(atom, Var):
                continue
            root = self.root(atom)
            if root in self.fixed or self._is_there(root, chain.position):
                chain.sources[root] = None
            elif not self._extend(chain, root, seen):
                return False
        chain.equations.append(equation)
        chain.work += _work(equation)
        return True

    def _is_there(self, variable: Var, position: int) -> bool:
        """Whether a value is needed after a position anyway."""
        return self.uses[variable][-1] >= position

    def compute_again(self, variables: Sequence[Var]) -> bool:
        """Give the uses of variables behind their gap a second computation."""
        chain = self.chain(variables)
        if chain is None:
            return False
        behind = chain.position
        again: dict[Var, Var] = {source: Var(source.type) for source in chain.sources}
        barrier = registry["optimization_barrier"]
        copies = [Equation(barrier, tuple(chain.sources), {}, tuple(again.values()), chain.equations[0].origin)]
        for equation in chain.equations:
            inputs = tuple(again[self.root(a)] if isinstance(a, Var) else a for a in equation.inputs)
            outputs = tuple(Var(v.type) for v in equation.outputs)
            again.update(zip(equation.outputs, outputs, strict=True))
            copies.append(Equation(equation.primitive, inputs, equation.params, outputs, equation.origin))
        renewed = {v: again[v] for e in chain.equations for v in e.outputs}
        renewed |= {alias: renewed[root] for alias, root in self.source.items() if root in renewed}
        late = [_with_inputs(e, renewed) for e in self.equations[behind:]]
        self.equations[behind:] = [*copies, *late]
        self._index()
        return True

    def program(self) -> Program:
        """The current program."""
        return self.original.replace(equations=self.equations)


def _with_inputs(equation: Equation, renewed: dict[Var, Var]) -> Equation:
    inputs = tuple(renewed.get(a, a) if isinstance(a, Var) else a for a in equation.inputs)
    if inputs == equation.inputs:
        return equation
    return Equation(equation.primitive, inputs, equation.params, equation.outputs, equation.origin)


def _repeatable(equation: Equation) -> bool:
    return not (equation.primitive.effect(**equation.params) or any(_regions(equation)))


def _regions(equation: Equation) -> Iterator[bool]:
    for value in equation.params.values():
        values: Sequence[object] = value if isinstance(value, (tuple, list)) else (value,)
        yield any(isinstance(v, Program) for v in values)


def _work(equation: Equation) -> float:
    """Scalar operations, roughly."""
    size = sum(v.type.size for v in equation.outputs)
    if equation.primitive.name == "dot_general":
        ((contracted, _), _) = equation.params["dimension_numbers"]
        return 2.0 * size * prod(equation.inputs[0].type.shape[a] for a in contracted) / 8.0
    return float(max(size, *(a.type.size for a in equation.inputs), 1))
