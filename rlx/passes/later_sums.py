"""Sums over processes that a loop adds up are made once, after the loop: each process adds up its own values first.

Gradients of microbatches, which a scan accumulates, are exchanged once in place of once for each microbatch. Which sums
are moved depends only on operations and types, which are the same in every process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rlx.ir.program import Equation, Literal, Program, Var, dead_code
from rlx.ir.types import TensorType
from rlx.trace.primitive import registry

__all__ = ["sum_after_loops"]


class _AddedUp(NamedTuple):
    """A carry of a scan to which each round adds a sum over processes: its number, the addition, and the sum."""

    number: int
    addition: Equation
    total: Equation


def sum_after_loops(program: Program) -> Program:
    """The program with sums over processes after scans that add them up; itself if there are none."""
    if not any(e.primitive.name == "scan" for e in program.equations):
        return program
    equations: list[Equation] = []
    for e in program.equations:
        found = [*_added_up(e)] if e.primitive.name == "scan" else []
        equations += _moved(e, found) if found else [e]
    return program if len(equations) == len(program.equations) else program.replace(equations=equations)


def _added_up(scan: Equation) -> Iterator[_AddedUp]:
    body, constants, carries = scan.params["body"], scan.params["constants"], scan.params["carries"]
    makers = {v: e for e in body.equations for v in e.outputs}
    uses = Counter(a for e in body.equations for a in e.inputs if isinstance(a, Var))
    uses.update(a for a in body.outputs if isinstance(a, Var))
    for number in range(carries):
        carried, out = body.inputs[constants + number], body.outputs[number]
        addition = makers.get(out) if isinstance(out, Var) else None
        if addition is None or addition.primitive.name != "add" or uses[out] != 1 or uses[carried] != 1:
            continue
        other = [a for a in addition.inputs if a is not carried]
        total = makers.get(other[0]) if len(other) == 1 and isinstance(other[0], Var) else None
        if total is None or total.primitive.name != "process_total" or total.params["op"] != "sum":
            continue
        if total.outputs[0].type == carried.type == out.type and uses[total.outputs[0]] == 1:
            yield _AddedUp(number, addition, total)


def _moved(scan: Equation, found: list[_AddedUp]) -> list[Equation]:
    """The equations of a scan that adds up each process's values, and of the sums of its results."""
    body, first = scan.params["body"], scan.params["constants"]
    additions = {id(of.addition): of for of in found}
    equations = []
    for e in body.equations:
        of = additions.get(id(e))
        if of is not None:
            inputs = tuple(of.total.inputs[0] if a is of.total.outputs[0] else a for a in e.inputs)
            e = Equation(e.primitive, inputs, e.params, e.outputs, e.origin)
        equations.append(e)
    inputs, outputs, before, after = list(scan.inputs), list(scan.outputs), [], []
    for of in found:
        start, out = inputs[first + of.number], outputs[of.number]
        own, summed = Var(out.type), Var(out.type)
        zero = Literal(np.zeros((), start.type.dtype), TensorType((), start.type.dtype))
        inputs[first + of.number], outputs[of.number] = zero, own
        if start.type.ndim:
            inputs[first + of.number] = zeros = Var(start.type.strong())
            fill = registry["broadcast_in_dim"]
            before.append(Equation(fill, (zero,), {"shape": start.type.shape, "dims": ()}, (zeros,), scan.origin))
        after.append(Equation(of.total.primitive, (own,), of.total.params, (summed,), of.total.origin))
        after.append(Equation(of.addition.primitive, (start, summed), of.addition.params, (out,), of.addition.origin))
    params = {**scan.params, "body": dead_code(body.replace(equations=equations))}
    return [*before, Equation(scan.primitive, tuple(inputs), params, tuple(outputs), scan.origin), *after]
