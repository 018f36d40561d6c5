"""Elementwise regions: neighbouring elementwise operations grouped in one call, and split again.

The backends' own fusion (rlx.planning.fuse) works on loop nests and needs no marks. Regions mark groups in the
program, and backends that fuse by regions can claim them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlx.ir.program import Equation, Program, Var
from rlx.passes.rebuild import bound, rebuilt, walk
from rlx.trace.lower import map_regions
from rlx.trace.primitive import registry

__all__ = ["REGION", "MarkElementwiseRegions", "UnfuseElementwiseRegions", "is_region"]

REGION = "elementwise_region"


def is_region(equation: Equation) -> bool:
    """Whether an equation is a marked region."""
    return equation.primitive.name == "call" and equation.params["name"] == REGION


class MarkElementwiseRegions:
    """A pass: connected elementwise operations become calls named "elementwise_region".

    max_steps: the most operations of a region; larger regions are split.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> from rlx import fusion
    >>> g = rlx.Graph.trace(lambda x: jnp.sin(x) * 2.0, jnp.ones(2))
    >>> marked = opt.run_passes(g, [fusion.MarkElementwiseRegions()])
    >>> [equation.params["name"] for equation in marked.program.equations]
    ['elementwise_region']
    """

    name = "mark_elementwise_regions"

    def __init__(self, max_steps: int = 32) -> None:
        self.max_steps = max_steps

    def run(self, program: Program) -> Program:
        """The program with regions; single operations stay unchanged."""
        equations = [e if is_region(e) else map_regions(e, self.run) for e in program.equations]
        groups = [piece for group in _components(equations) for piece in _cut(group, self.max_steps)]
        regions = {e: k for k, group in enumerate(groups) if len(group) > 1 for e in group}
        if not regions:
            return program.replace(equations=equations)
        steps: list[list[Equation]] = []
        opened: dict[int, list[Equation]] = {}
        for equation in equations:
            number = regions.get(equation)
            if number is None:
                steps.append([equation])
            elif number in opened:
                opened[number].append(equation)
            else:
                opened[number] = [equation]
                steps.append(opened[number])
        used = _uses(equations, program)
        merged = [step[0] if len(step) == 1 else _region(step, used) for step in _sorted(steps)]
        return program.replace(equations=merged)


class UnfuseElementwiseRegions:
    """A pass: regions are split into their operations.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> from rlx import fusion
    >>> g = rlx.Graph.trace(lambda x: jnp.sin(x) * 2.0, jnp.ones(2))
    >>> passes = [fusion.MarkElementwiseRegions(), fusion.UnfuseElementwiseRegions()]
    >>> [equation.primitive.name for equation in opt.run_passes(g, passes).program.equations]
    ['sin', 'multiply']
    """

    name = "unfuse_elementwise_regions"

    def run(self, program: Program) -> Program:
        """The program without regions; other calls stay."""
        return rebuilt(program, self._replace)

    def _replace(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        if is_region(equation):
            return walk(equation.params["program"], operands, bound)
        return bound(map_regions(equation, self.run), operands)


def _variables(atoms: Iterable[object]) -> list[Var]:
    return list(dict.fromkeys(a for a in atoms if isinstance(a, Var)))


def _components(equations: Sequence[Equation]) -> list[list[Equation]]:
    """Groups of elementwise equations that read one another, with no way out of a group and back.

    The level of an equation counts the changes from other operations to elementwise ones on the
    longest way to it; a way that leaves a group can only come back on a higher level.
    """
    level: dict[Var, int] = {}
    group_of: dict[Var, list[Equation]] = {}
    groups: list[list[Equation]] = []
    for equation in equations:
        operands = [a for a in equation.inputs if isinstance(a, Var)]
        here = max((level.get(a, 0) for a in operands), default=0)
        if not hasattr(equation.primitive, "scalar"):
            level.update(dict.fromkeys(equation.outputs, here + 1))
            continue
        level.update(dict.fromkeys(equation.outputs, here))
        joined = [group_of[a] for a in operands if a in group_of and level[a] == here]
        distinct = list({id(group): group for group in joined}.values())
        group = distinct[0] if distinct else []
        if not distinct:
            groups.append(group)
        for other in distinct[1:]:
            group.extend(other)
            group_of.update({v: group for e in other for v in e.outputs})
            other.clear()
        group.append(equation)
        group_of.update(dict.fromkeys(equation.outputs, group))
    place = {e: number for number, e in enumerate(equations)}
    return [sorted(group, key=place.__getitem__) for group in groups if group]


def _cut(group: list[Equation], size: int) -> list[list[Equation]]:
    return [group[at : at + size] for at in range(0, len(group), size)]


def _uses(equations: Sequence[Equation], program: Program) -> dict[Var, list[Equation | None]]:
    """The readers of each variable; None stands for the program's outputs."""
    found: dict[Var, list[Equation | None]] = {}
    for equation in equations:
        for a in equation.inputs:
            if isinstance(a, Var):
                found.setdefault(a, []).append(equation)
    for a in program.outputs:
        if isinstance(a, Var):
            found.setdefault(a, []).append(None)
    return found


def _region(step: list[Equation], uses: dict[Var, list[Equation | None]]) -> Equation:
    members = set(step)
    made = {v for e in step for v in e.outputs}
    inputs = [v for v in _variables(a for e in step for a in e.inputs) if v not in made]
    outputs = [v for e in step for v in e.outputs if any(u not in members for u in uses.get(v, ()))]
    fresh = {v: Var(v.type) for v in (*inputs, *made)}

    def copied(equation: Equation) -> Equation:
        operands = tuple(fresh[a] if isinstance(a, Var) else a for a in equation.inputs)
        outs = tuple(fresh[v] for v in equation.outputs)
        return Equation(equation.primitive, operands, equation.params, outs, equation.origin)

    body = Program([fresh[v] for v in inputs], map(copied, step), [fresh[v] for v in outputs], (), REGION)
    params = {"program": body, "name": REGION}
    return Equation(registry["call"], tuple(inputs), params, tuple(outputs), step[-1].origin)


def _sorted(steps: list[list[Equation]]) -> list[list[Equation]]:
    """The steps in an order in which operands come first; effects keep theirs."""
    maker = {v: number for number, step in enumerate(steps) for e in step for v in e.outputs}
    before: list[set[int]] = []
    last_effect: int | None = None
    for number, step in enumerate(steps):
        needed = {maker[a] for e in step for a in e.inputs if isinstance(a, Var) and a in maker}
        if any(e.primitive.effect(**e.params) for e in step):
            needed |= set() if last_effect is None else {last_effect}
            last_effect = number
        before.append(needed - {number})
    done: set[int] = set()
    order: list[list[Equation]] = []
    pending = list(range(len(steps)))
    while pending:
        stack = [pending.pop(0)]
        while stack:
            number = stack[-1]
            missing = sorted(before[number] - done)
            if number in done or not missing:
                stack.pop()
                if number not in done:
                    done.add(number)
                    order.append(steps[number])
            else:
                stack.extend(missing)
    return order
