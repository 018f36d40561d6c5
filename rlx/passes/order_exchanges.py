"""Exchanges between processes are ordered by when their operands are ready, each as early as possible.

A gradient's exchanges are recorded after the backward pass, first layers first, although the last layers' operands are
ready first. The order depends only on the traced program, which is the same in every process.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

from rlx.ir.program import Equation, Program, Var
from rlx.trace.lower import map_regions

__all__ = ["order_exchanges"]


def order_exchanges(program: Program) -> Program:
    """The program, and each of its regions, with exchanges in that order; itself if the order is right."""
    equations = [map_regions(e, order_exchanges) for e in program.equations]
    if sum(e.primitive.exchanges for e in equations) > 1:
        equations = _ordered(equations, program)
    same = all(a is b for a, b in zip(equations, program.equations, strict=True))
    return program if same else program.replace(equations=equations)


def _ordered(equations: Sequence[Equation], program: Program) -> list[Equation]:
    makers = {v: number for number, e in enumerate(equations) for v in e.outputs}
    needs = [{makers[a] for a in e.inputs if isinstance(a, Var) and a in makers} for e in equations]
    users: list[set[int]] = [set() for _ in equations]
    for number, own in enumerate(needs):
        for other in own:
            users[other].add(number)
    kept = {makers[a] for a in program.outputs if isinstance(a, Var) and a in makers}

    steps: list[int] = []  # the longest path to an equation: an exchange with fewer steps is ready earlier
    chain: list[int] = []  # equations with effects, in order
    waiting: list[tuple[int, int]] = []  # exchanges that may change places: their steps and numbers
    for number, equation in enumerate(equations):
        steps.append(1 + max((steps[other] for other in needs[number]), default=0))
        if equation.primitive.exchanges:
            waiting.append((steps[number], number))
        elif equation.effects:
            chain += [n for _, n in sorted(waiting)] + [number]
            waiting = []
    chain += [n for _, n in sorted(waiting)]
    turns = [len(chain)] * len(equations)
    for turn, number in enumerate(chain):
        if equations[number].primitive.exchanges:
            for own in _only_for(number, equations, users, kept):
                turns[own] = turn
    for before, after in pairwise(chain):
        needs[after].add(before)
        users[before].add(after)
    return [equations[number] for number in _topological(needs, users, turns)]


def _only_for(number: int, equations: Sequence[Equation], users: Sequence[set[int]], kept: set[int]) -> set[int]:
    """An exchange, and the equations without effects that only produce its operand."""
    found = {number}
    for other in reversed(range(number)):
        alone = users[other] and users[other] <= found and other not in kept
        if alone and not equations[other].effects and not equations[other].primitive.exchanges:
            found.add(other)
    return found


def _topological(needs: Sequence[set[int]], users: Sequence[set[int]], turns: Sequence[int]) -> list[int]:
    """Numbers in topological order: by their turns, then by their original order."""
    left = [len(own) for own in needs]
    free = [(turns[number], number) for number, count in enumerate(left) if not count]
    heapq.heapify(free)
    order = []
    while free:
        _, number = heapq.heappop(free)
        order.append(number)
        for user in users[number]:
            left[user] -= 1
            if not left[user]:
                heapq.heappush(free, (turns[user], user))
    return order
