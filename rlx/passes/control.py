"""Rewrite rules for control flow: known values are moved out of branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.loop_parts import ScanParts, ScanResults, WhileParts
from rlx.ir.program import Atom, Equation, Literal, Program, Var, substitute
from rlx.ir.rewrite import Match, Rule, RuleSet
from rlx.ir.types import TensorType

__all__ = ["control_rules"]

Simplify = Callable[[Program], Program]


def control_rules(simplify: Simplify) -> RuleSet:
    """The rules; `simplify` is applied to regions that they change."""

    def rule(text: str, function: Callable[[Match, Simplify], Any]) -> Rule:
        return Rule(text, lambda m: function(m, simplify))

    return RuleSet((
        rule("cond -> the branch that a known index chooses, or that all branches are", _choose_branch),
        rule("cond -> without results that are the same in all branches", _common_results),
        rule("cond -> without operands that are numbers, unused, or there twice", _cond_operands),
        rule("scan -> its initial carries, if it has no steps", _no_steps),
        rule("scan -> with carries that never change as constants", _scan_invariants),
        rule("scan -> without operands that are numbers, unused, or there twice", _scan_operands),
        rule("scan -> with slices that are equal in every step as constants", _scan_equal_slices),
        rule("scan -> without ys that are known outside", _scan_known_ys),
        rule("while_loop -> its initial carries, if it does not begin", _never_begins),
        rule("while_loop -> with carries that never change as constants", _while_invariants),
        rule("while_loop -> without operands that are numbers, unused, or there twice", _while_operands),
    ))  # fmt: skip


# ------------------------------------------------------------------ operands of regions
def _used(program: Program) -> set[Atom]:
    used: set[Atom] = {a for e in program.equations for a in e.inputs}
    used.update(program.outputs)
    return used


_Regions = Sequence[tuple[Program, Sequence[Var]]]  # each with the inputs that stand for the operands


class _Operands:
    """Which operands regions need, and the regions on those.

    Regions see the same operands: `inputs[k]` of each is `operands[k]`. Operands that are numbers
    are put into the regions; operands that no region uses are dropped; a repeated operand is passed
    once.
    """

    def __init__(self, operands: Sequence[Atom], regions: _Regions) -> None:
        self.kept: list[int] = []
        self.mappings: list[dict[Var, Atom]] = [{} for _ in regions]
        used = [_used(program) for program, _ in regions]
        first: dict[Atom, int] = {}
        for k, operand in enumerate(operands):
            if isinstance(operand, Literal):
                self._replace(regions, k, operand)
            elif operand in first:
                self._replace(regions, k, first[operand])
            elif any(inputs[k] in u for u, (_, inputs) in zip(used, regions, strict=True)):
                first[operand] = k
                self.kept.append(k)
        self.changed = len(self.kept) < len(operands)

    def _replace(self, regions: _Regions, k: int, by: int | Literal) -> None:
        """Let a number, or the input at another position, stand for input k."""
        for mapping, (_, inputs) in zip(self.mappings, regions, strict=True):
            mapping[inputs[k]] = inputs[by] if isinstance(by, int) else by

    def take(self, values: Sequence[Any]) -> list[Any]:
        """The kept values, from values in the operands' order."""
        return [values[k] for k in self.kept]


# ------------------------------------------------------------------ cond
def _choose_branch(m: Match, simplify: Simplify) -> Any:
    branches: tuple[Program, ...] = m.params["branches"]
    index = m.inputs[0]
    if isinstance(index, Literal):
        chosen = branches[min(max(int(index.value), 0), len(branches) - 1)]
    elif all(b.fingerprint == branches[0].fingerprint for b in branches[1:]):
        chosen = branches[0]
    else:
        return None
    return m.inline(chosen, m.inputs[1:])


def _outside(branch: Program, atom: Atom, operands: Sequence[Atom]) -> Atom | None:
    """The value outside that a branch's result equals: an operand or a number."""
    if isinstance(atom, Literal):
        return atom
    return operands[branch.inputs.index(atom)] if atom in branch.inputs else None


def _same(one: Atom | None, other: Atom | None) -> bool:
    if isinstance(one, Literal) and isinstance(other, Literal):
        return one.type == other.type and one.value.tobytes() == other.value.tobytes()
    return one is not None and one is other


def _common_results(m: Match, simplify: Simplify) -> Any:
    branches: tuple[Program, ...] = m.params["branches"]
    operands = m.inputs[1:]
    common: dict[int, Atom] = {}
    for k, atoms in enumerate(zip(*[b.outputs for b in branches], strict=True)):
        found = [_outside(b, a, operands) for b, a in zip(branches, atoms, strict=True)]
        if found[0] is not None and all(_same(found[0], other) for other in found[1:]):
            common[k] = found[0]
    if not common:
        return None
    rest = [k for k in range(len(branches[0].outputs)) if k not in common]
    shorter = tuple(b.replace(outputs=[b.outputs[k] for k in rest]) for b in branches)
    results = dict(zip(rest, m.emit("cond", *m.inputs, branches=shorter), strict=True))
    return [common.get(k, results.get(k)) for k in range(len(branches[0].outputs))]


def _cond_operands(m: Match, simplify: Simplify) -> Any:
    branches: tuple[Program, ...] = m.params["branches"]
    operands = _Operands(m.inputs[1:], [(b, b.inputs) for b in branches])
    if not operands.changed:
        return None
    shorter = tuple(
        simplify(substitute(b.replace(inputs=operands.take(b.inputs)), mapping))
        for b, mapping in zip(branches, operands.mappings, strict=True)
    )
    return m.emit("cond", m.inputs[0], *operands.take(m.inputs[1:]), branches=shorter)


# ------------------------------------------------------------------ scan
class _ScanRegions:
    """A scan's operands and its body's inputs by kind."""

    def __init__(self, m: Match) -> None:
        p = m.params
        n, c = p["constants"], p["carries"]
        self.body: Program = p["body"]
        self.length: int = p["length"]
        self.carries: int = c
        self.constants, self.initial, self.xs = ScanParts.of(m.inputs, n, c)
        self.constant_inputs, self.carry_inputs, self.slices = ScanParts.of(self.body.inputs, n, c)
        self.next, self.ys = ScanResults.of(self.body.outputs, c)

    def emit(
        self, m: Match, body: Program, constants: Sequence[Atom], initial: Sequence[Atom], xs: Sequence[Atom]
    ) -> Any:
        """The scan of another body over other operands."""
        counts = {"constants": len(constants), "carries": len(initial)}
        return m.emit("scan", *constants, *initial, *xs, **{**m.params, "body": body, **counts})


def _no_steps(m: Match, simplify: Simplify) -> Any:
    scan = _ScanRegions(m)
    if scan.length:
        return None
    ys = []
    for variable in m.equation.outputs[scan.carries :]:
        type = variable.type
        zero = Literal(np.zeros((), type.dtype), TensorType((), type.dtype))
        ys.append(m.emit("broadcast_in_dim", zero, shape=type.shape, dims=()))
    return [*scan.initial, *ys]


def _invariant(initial: Sequence[Atom], inputs: Sequence[Var], after: Sequence[Atom]) -> list[int]:
    """Carries that a step passes on unchanged, or that begin as the number that each step assigns."""
    carries = enumerate(zip(initial, inputs, after, strict=True))
    return [k for k, (start, now, then) in carries if then is now or _same(start, then)]


def _scan_invariants(m: Match, simplify: Simplify) -> Any:
    scan = _ScanRegions(m)
    still = _invariant(scan.initial, scan.carry_inputs, scan.next)
    if not still:
        return None
    moving = [k for k in range(scan.carries) if k not in still]
    body = scan.body.replace(
        inputs=[
            *scan.constant_inputs,
            *[scan.carry_inputs[k] for k in still],
            *[scan.carry_inputs[k] for k in moving],
            *scan.slices,
        ],
        outputs=[*[scan.next[k] for k in moving], *scan.ys],
    )
    constants = [*scan.constants, *[scan.initial[k] for k in still]]
    results = scan.emit(m, body, constants, [scan.initial[k] for k in moving], scan.xs)
    final = dict(zip(moving, results, strict=False))
    final.update((k, scan.initial[k]) for k in still)
    return [*[final[k] for k in range(scan.carries)], *results[len(moving) :]]


def _scan_operands(m: Match, simplify: Simplify) -> Any:
    scan = _ScanRegions(m)
    constants = _Operands(scan.constants, [(scan.body, scan.constant_inputs)])
    used = _used(scan.body)
    xs = [k for k, v in enumerate(scan.slices) if v in used]
    if not constants.changed and len(xs) == len(scan.xs):
        return None
    body = scan.body.replace(
        inputs=[*constants.take(scan.constant_inputs), *scan.carry_inputs, *[scan.slices[k] for k in xs]]
    )
    body = simplify(substitute(body, constants.mappings[0]))
    return scan.emit(m, body, constants.take(scan.constants), scan.initial, [scan.xs[k] for k in xs])


def _scan_equal_slices(m: Match, simplify: Simplify) -> Any:
    """xs that are broadcast along the steps: the source becomes a constant, broadcast in the body."""
    scan = _ScanRegions(m)
    sources = [m.producer(x, "broadcast_in_dim") for x in scan.xs]
    equal = [k for k, e in enumerate(sources) if e is not None and 0 not in e.params["dims"]]
    if not equal:
        return None
    constants, inputs, equations = list(scan.constants), list(scan.constant_inputs), []
    for k in equal:
        source = sources[k]
        assert source is not None
        (x,) = source.inputs
        constants.append(x)
        inputs.append(Var(x.type))
        params = {"shape": source.params["shape"][1:], "dims": tuple(d - 1 for d in source.params["dims"])}
        equations.append(Equation(source.primitive, (inputs[-1],), params, (scan.slices[k],), source.origin))
    rest = [k for k in range(len(scan.xs)) if k not in equal]
    body = scan.body.replace(
        inputs=[*inputs, *scan.carry_inputs, *[scan.slices[k] for k in rest]],
        equations=[*equations, *scan.body.equations],
    )
    return scan.emit(m, simplify(body), constants, scan.initial, [scan.xs[k] for k in rest])


def _scan_known_ys(m: Match, simplify: Simplify) -> Any:
    """ys that are an x, a constant or a number: they are known without the loop."""
    scan = _ScanRegions(m)
    known: dict[int, Atom] = {}
    for k, (atom, variable) in enumerate(zip(scan.ys, m.equation.outputs[scan.carries :], strict=True)):
        if atom in scan.slices:
            known[k] = scan.xs[scan.slices.index(atom)]
        elif isinstance(atom, Literal) or atom in scan.constant_inputs:
            source = atom if isinstance(atom, Literal) else scan.constants[scan.constant_inputs.index(atom)]
            shape = variable.type.shape
            known[k] = m.emit("broadcast_in_dim", source, shape=shape, dims=tuple(range(1, len(shape))))
    if not known:
        return None
    rest = [k for k in range(len(scan.ys)) if k not in known]
    body = scan.body.replace(outputs=[*scan.next, *[scan.ys[k] for k in rest]])
    results = scan.emit(m, body, scan.constants, scan.initial, scan.xs)
    stacked = {**known, **dict(zip(rest, results[scan.carries :], strict=True))}
    return [*results[: scan.carries], *[stacked[k] for k in range(len(scan.ys))]]


# ------------------------------------------------------------------ while_loop
class _WhileRegions:
    """A while_loop's operands and its regions' inputs by kind."""

    def __init__(self, m: Match) -> None:
        p: Mapping[str, Any] = m.params
        n, b = p["condition_constants"], p["body_constants"]
        self.condition: Program = p["condition"]
        self.body: Program = p["body"]
        self.condition_constants, self.body_constants, self.initial = WhileParts.of(m.inputs, n, b)
        self.condition_inputs, self.tested = self.condition.inputs[:n], self.condition.inputs[n:]
        self.body_inputs, self.carried = self.body.inputs[:b], self.body.inputs[b:]

    @staticmethod
    def emit(
        m: Match,
        condition: Program,
        body: Program,
        tests: Sequence[Atom],
        constants: Sequence[Atom],
        initial: Sequence[Atom],
    ) -> Any:
        """The loop of other regions over other operands."""
        return m.emit(
            "while_loop", *tests, *constants, *initial, condition=condition, body=body,
            condition_constants=len(tests), body_constants=len(constants),
        )  # fmt: skip


def _never_begins(m: Match, simplify: Simplify) -> Any:
    loop = _WhileRegions(m)
    test = loop.condition.outputs[0]
    return loop.initial if isinstance(test, Literal) and not test.value else None


def _while_invariants(m: Match, simplify: Simplify) -> Any:
    loop = _WhileRegions(m)
    still = _invariant(loop.initial, loop.carried, loop.body.outputs)
    if not still:
        return None
    moving = [k for k in range(len(loop.initial)) if k not in still]

    def pick(values: Sequence[Any], which: Sequence[int]) -> list[Any]:
        return [values[k] for k in which]

    condition = loop.condition.replace(
        inputs=[*loop.condition_inputs, *pick(loop.tested, still), *pick(loop.tested, moving)]
    )
    body = loop.body.replace(
        inputs=[*loop.body_inputs, *pick(loop.carried, still), *pick(loop.carried, moving)],
        outputs=pick(loop.body.outputs, moving),
    )
    fixed = pick(loop.initial, still)
    tests, constants = [*loop.condition_constants, *fixed], [*loop.body_constants, *fixed]
    results = loop.emit(m, condition, body, tests, constants, pick(loop.initial, moving))
    final = {**dict(zip(moving, results, strict=True)), **dict(zip(still, fixed, strict=True))}
    return [final[k] for k in range(len(loop.initial))]


def _while_operands(m: Match, simplify: Simplify) -> Any:
    loop = _WhileRegions(m)
    tests = _Operands(loop.condition_constants, [(loop.condition, loop.condition_inputs)])
    constants = _Operands(loop.body_constants, [(loop.body, loop.body_inputs)])
    if not tests.changed and not constants.changed:
        return None
    condition = loop.condition.replace(inputs=[*tests.take(loop.condition_inputs), *loop.tested])
    body = loop.body.replace(inputs=[*constants.take(loop.body_inputs), *loop.carried])
    return loop.emit(
        m,
        simplify(substitute(condition, tests.mappings[0])),
        simplify(substitute(body, constants.mappings[0])),
        tests.take(loop.condition_constants),
        constants.take(loop.body_constants),
        loop.initial,
    )
