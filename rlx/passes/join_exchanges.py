"""Exchanges between processes are made once for a value, and of parts where each process uses its own part only.

Equal gathers and sums of a value become one. A sum over processes followed by taking one's own part becomes a
reduce-scatter, through operations that are linear in the sum. Sums that are added are exchanged together, and sums that
a loop adds up follow the loop. The result depends only on operations and types, which are the same in every process;
numbers may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rlx.ir.program import Atom, Equation, Literal, Origin, Program, Var, dead_code, encode_params
from rlx.passes.later_sums import sum_after_loops
from rlx.trace.lower import map_regions
from rlx.trace.primitive import registry

__all__ = ["join_exchanges"]

# operations that are merged where they are equal, and operations that commute with sums over processes
_MERGED = frozenset(("process_rows", "process_total", "process_copy", "process_same", "reshape", "transpose"))
_LINEAR = frozenset(("reshape", "transpose", "slice", "negative", "process_same"))
_SUMS = frozenset(("add", "subtract"))
_EXCHANGED_SUMS = frozenset(("process_total", "process_reduce_scatter"))
_SCALED = frozenset(("multiply", "divide"))


class _ProcessSum(NamedTuple):
    """A value that is the sum over the processes of a group. summand: makes this process's; sums: the results of the
    equations that summed."""

    summand: Callable[[], Atom]
    mode: str
    sums: frozenset[Var]


def join_exchanges(program: Program) -> Program:
    """The program, and each of its regions, with fewer exchanges; itself if there are none to join."""
    equations = [map_regions(e, join_exchanges) for e in program.equations]
    if any(a is not b for a, b in zip(equations, program.equations, strict=True)):
        program = program.replace(equations=equations)
    program = sum_after_loops(program)
    if not any(e.primitive.name in ("process_rows", "process_total") for e in program.equations):
        return program
    kept: frozenset[Var] = frozenset()
    while True:
        walk = _ExchangeWalk(kept)
        found = _sums_joined(dead_code(walk.program(program)))
        # a sum that other equations need as well is exchanged anyway: taking a part of it costs nothing
        needed = walk.scattered & {v for e in found.equations for v in e.outputs}
        if needed <= kept:
            return found
        kept |= needed


class _Summand(NamedTuple):
    """A term of an addition that exchanges a sum: the operations on the sum, last first, and this process's value."""

    steps: tuple[Equation, ...]
    value: Atom

    @property
    def key(self) -> Any:
        """Equal for terms that can be added up before the exchange."""
        told = [(e.primitive.name, {k: v for k, v in e.params.items() if k != "place"}) for e in self.steps]
        return self.value.type, [(name, encode_params(params)) for name, params in told]


def _sums_joined(program: Program) -> Program:
    """The program with one exchange for the sum of two exchanged sums that nothing else needs."""
    while True:
        makers = {v: e for e in program.equations for v in e.outputs}
        uses = Counter(a for e in program.equations for a in e.inputs if isinstance(a, Var))
        uses.update(a for a in program.outputs if isinstance(a, Var))

        def summand(atom: Atom, makers: Any = makers, uses: Any = uses) -> _Summand | None:
            steps: list[Equation] = []
            while isinstance(atom, Var) and uses[atom] == 1 and atom in makers:
                steps.append(makers[atom])
                name = steps[-1].primitive.name
                if name in _EXCHANGED_SUMS and steps[-1].params["op"] == "sum":
                    return _Summand(tuple(steps), steps[-1].inputs[0])
                if name not in ("reshape", "transpose"):
                    return None
                (atom,) = steps[-1].inputs
            return None

        equations: list[Equation] = []
        for number, e in enumerate(program.equations):
            terms = [summand(a) for a in e.inputs] if e.primitive.name == "add" else []
            first, second = terms if len(terms) == 2 else (None, None)
            if first is None or second is None or first.key != second.key:
                equations.append(e)
                continue
            out: Var = Var(first.value.type)
            equations.append(Equation(e.primitive, (first.value, second.value), e.params, (out,), e.origin))
            for step in reversed(first.steps):
                made = e.outputs[0] if step is first.steps[0] else Var(step.outputs[0].type)
                equations.append(Equation(step.primitive, (out,), step.params, (made,), step.origin))
                out = made
            program = dead_code(program.replace(equations=[*equations, *program.equations[number + 1 :]]))
            break
        else:
            return program


class _ExchangeWalk:
    """One walk through the equations of a program. kept: sums that stay sums."""

    def __init__(self, kept: frozenset[Var]) -> None:
        self._kept = kept
        self._replaced: dict[Var, Atom] = {}
        self._known: dict[Any, Var] = {}
        self._totals: dict[Atom, dict[str, _ProcessSum]] = {}  # by value and group
        self._equations: list[Equation] = []
        self.scattered: frozenset[Var] = frozenset()  # sums of which parts were exchanged

    def program(self, program: Program) -> Program:
        """The program with its equations replaced."""
        for equation in program.equations:
            inputs = tuple(map(self._read, equation.inputs))
            if len(equation.outputs) == 1:
                (out,) = equation.outputs
                found = self._applied(equation.primitive, inputs, equation.params, equation.origin, out)
                if found is not out:
                    self._replaced[out] = found
            else:
                self._add(equation.primitive, inputs, equation.params, equation.origin, equation.outputs)
        return program.replace(equations=self._equations, outputs=tuple(map(self._read, program.outputs)))

    def _read(self, atom: Atom) -> Atom:
        return self._replaced.get(atom, atom) if isinstance(atom, Var) else atom

    def _add(
        self, primitive: Any, inputs: tuple[Atom, ...], params: Any, origin: Any, outputs: tuple[Var, ...]
    ) -> None:
        self._equations.append(Equation(primitive, inputs, params, outputs, origin))

    def _applied(
        self,
        primitive: Any,
        inputs: tuple[Atom, ...],
        params: Mapping[str, Any],
        origin: Origin | None,
        out: Var | None = None,
    ) -> Var:
        """The variable of an operation's result: `out`, a new one, or one that is equal."""
        if primitive.name == "process_part" and (row := self._scattered_row(inputs[0], params, origin)) is not None:
            return row
        key = None
        if primitive.name in _MERGED:
            key = primitive.name, inputs, encode_params({k: v for k, v in params.items() if k != "place"})
            if key in self._known:
                return self._known[key]
        if out is None:
            out = Var(primitive.type(*(a.type for a in inputs), **params))
        self._add(primitive, inputs, params, origin, (out,))
        if key is not None:
            self._known[key] = out
        totals = self._totals_of(primitive, inputs, params, origin, out)
        if totals:
            self._totals[out] = totals
        return out

    def _totals_of(
        self, primitive: Any, inputs: tuple[Atom, ...], params: Mapping[str, Any], origin: Origin | None, out: Var
    ) -> dict[str, _ProcessSum]:
        """The groups over which a result is a sum."""

        def of(*operands: Callable[[], Atom]) -> Callable[[], Atom]:
            return lambda: self._applied(primitive, tuple(make() for make in operands), params, origin)

        known = [self._totals.get(a, {}) for a in inputs]
        name = primitive.name
        if name == "process_total" and params["op"] == "sum":
            mode = params["mode"]
            inner = {g: t._replace(summand=of(t.summand)) for g, t in known[0].items() if t.mode == mode}
            return inner | {params["group"]: _ProcessSum(lambda: inputs[0], mode, frozenset((out,)))}
        if name in _LINEAR:
            return {group: total._replace(summand=of(total.summand)) for group, total in known[0].items()}
        if name in _SCALED and isinstance(inputs[1], Literal):
            return {g: t._replace(summand=of(t.summand, lambda: inputs[1])) for g, t in known[0].items()}
        if name in _SUMS and inputs[0].type == inputs[1].type:
            pairs = {g: (t, known[1][g]) for g, t in known[0].items() if g in known[1] and known[1][g].mode == t.mode}
            return {g: _ProcessSum(of(a.summand, b.summand), a.mode, a.sums | b.sums) for g, (a, b) in pairs.items()}
        return {}

    def _scattered_row(self, whole: Atom, params: Mapping[str, Any], origin: Origin | None) -> Var | None:
        """This process's row of a sum, exchanged by parts; None if the value is not a sum."""
        total = self._totals.get(whole, {}).get(params["group"])
        if total is None or total.sums & self._kept:
            return None
        self.scattered |= total.sums
        sums = {"group": params["group"], "members": params["members"], "op": "sum", "mode": total.mode, "place": b""}
        return self._applied(registry["process_reduce_scatter"], (total.summand(),), sums, origin)
