"""cond: one of several branches, chosen by an integer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import CallbackTransformError
from rlx.ir.program import Equation, Program, Var
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.arithmetic import select
from rlx.ops.comparison import equal, greater_equal, less_equal
from rlx.ops.families import full_like, to_front
from rlx.ops.regions import (
    RegionPrimitive,
    batch_front,
    calls_host,
    check_operands,
    drop,
    is_zero,
    keep,
    run_region,
    tangent_inputs,
)
from rlx.ops.shape import broadcast_in_dim
from rlx.ops.stop_gradient import stop_gradient
from rlx.trace.builder import Builder
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Linear, Zero, primitive, type_of
from rlx.trace.tracing import finish

__all__ = ["cond"]


@primitive
class cond(RegionPrimitive):
    """Operands: an int32 scalar (clamped to the branches), then the operands of every branch.

    params: branches, a tuple of Programs of equal input and output types.
    """

    def type(self, index: TensorType, *types: TensorType, branches: tuple[Program, ...]) -> Any:
        for branch in branches:
            check_operands(self.name, branch, types)
        return tuple(t.strong() for t in branches[0].output_types)

    def effect(self, **params: Any) -> bool:
        """Whether a branch has effects."""
        return any(e.primitive.effect(**e.params) for b in params["branches"] for e in b.equations)

    def divided(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The combination of all branches."""
        return walk.alternatives(equation, [walk.program(b, operands[1:]) for b in equation.params["branches"]])

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The union of the branches; the one that is taken if it is known."""
        branches, index = equation.params["branches"], operands[0].value
        taken = branches if index is None else [branches[int(np.clip(index, 0, len(branches) - 1))]]
        return walk.alternatives(equation, [walk.program(b, operands[1:]) for b in taken])

    def reference(self, index: np.ndarray, *args: np.ndarray, branches: tuple[Program, ...]) -> Any:
        return tuple(run_region(branches[int(np.clip(index, 0, len(branches) - 1))], args))

    def jvp(self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], *, branches: tuple[Program, ...]) -> Any:
        """Branches with tangents; an output has one if it has one in any branch."""
        nonzero = [not is_zero(x) for x in tangents[1:]]
        force = [False] * len(branches[0].outputs)
        for b in branches:
            force = [f or k for f, k in zip(force, t.jvp(b, nonzero)[1], strict=True)]
        moved = tuple(t.jvp(b, nonzero, force)[0] for b in branches)
        outs = cond(*primals, *tangent_inputs(tangents[1:], nonzero), branches=moved)
        primal_outs, moving = outs[: len(force)], iter(outs[len(force) :])
        return primal_outs, [next(moving) if k else Zero(type_of(o)) for o, k in zip(primal_outs, force, strict=True)]

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """A known cond that also returns every branch's residuals (zeros for the branches not taken)."""
        branches: tuple[Program, ...] = equation.params["branches"]
        if unknown[0]:
            return [], [equation]
        mask = list(unknown[1:])
        force = [False] * len(branches[0].outputs)
        for b in branches:
            force = [f or u for f, u in zip(force, t.split(b, mask).unknown_out, strict=True)]
        halves = [t.split(b, mask, force) for b in branches]
        residuals = [r for h in halves for r in h.residuals]
        known = tuple(_with_residuals(h, i, halves) for i, h in enumerate(halves))
        index, operands = equation.inputs[0], equation.inputs[1:]
        known_in, unknown_in = drop(operands, mask), keep(operands, mask)
        slots = [Var(r) for r in residuals]
        first = Equation(
            cond,
            (index, *known_in),
            {"branches": known},
            (*drop(equation.outputs, force), *slots),
            equation.origin,
        )
        linear = tuple(_from_residuals(h, i, halves, [a.type for a in known_in]) for i, h in enumerate(halves))
        second = Equation(
            cond,
            (index, *slots, *known_in, *unknown_in),
            {"branches": linear},
            tuple(keep(equation.outputs, force)),
            equation.origin,
        )
        return [first], [second] if second.outputs else []

    def transpose(
        self, t: Any, cotangents: Sequence[Any], index: Any, *inputs: Any, branches: tuple[Program, ...]
    ) -> list[Any]:
        """The branches transposed."""
        linear = [isinstance(x, Linear) for x in inputs]
        used = [not is_zero(c) for c in cotangents]
        backward = tuple(t.transpose(b, linear, used) for b in branches)
        outs = iter(cond(index, *drop(inputs, linear), *keep(cotangents, used), branches=backward))
        return [None, *[next(outs) if m else None for m in linear]]

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        branches: tuple[Program, ...],
    ) -> Any:
        """Batched branches; with a batched index every branch runs and a select chooses."""
        index, operands = inputs[0], inputs[1:]
        batched = [d is not None for d in dims[1:]]
        if dims[0] is not None:
            batched = [b or is_inexact(ty.dtype) for b, ty in zip(batched, branches[0].input_types, strict=True)]
        force = [dims[0] is not None] * len(branches[0].outputs)
        for b in branches:
            force = [f or k for f, k in zip(force, t.batch(b, size, batched, force, axis_name)[1], strict=True)]
        moved = tuple(t.batch(b, size, batched, force, axis_name)[0] for b in branches)
        operands = batch_front(operands, dims[1:], batched, size)
        if dims[0] is None:
            outs = cond(index, *operands, branches=moved)
        else:
            if any(map(calls_host, branches)):
                raise CallbackTransformError(
                    "vmap met a cond with a mapped predicate whose branches call io_callback.",
                    "Each element would run every branch: call it outside, or loop with rlx.lax.map.",
                )
            chosen = _masks(to_front(index, dims[0], size), len(moved))
            outs = _select_branch(
                chosen, [interpret(b, _guard(m, operands)) for m, b in zip(chosen, moved, strict=True)]
            )
        # operands that every branch returns unchanged need no select
        passed = [_forwarded(branches, i) for i in range(len(force))]
        outs = [out if k is None else inputs[1 + k] for out, k in zip(outs, passed, strict=True)]
        return outs, [(0 if f else None) if k is None else dims[1 + k] for f, k in zip(force, passed, strict=True)]

    def lower(self, k: Any, index: Any, *values: Any, branches: tuple[Program, ...]) -> Any:
        return k.branch(index, branches, values)


def _forwarded(branches: Sequence[Program], output: int) -> int | None:
    """The operand that every branch returns as this output, if there is one."""
    found = {b.inputs.index(b.outputs[output]) if b.outputs[output] in b.inputs else None for b in branches}
    return found.pop() if len(found) == 1 else None


def _masks(index: Any, count: int) -> list[Any]:
    """For each branch the lanes that take it; the first and the last also take indices out of range."""
    if count == 1:
        return [less_equal(index, index)]
    inner = [equal(index, number) for number in range(1, count - 1)]
    return [less_equal(index, 0), *inner, greater_equal(index, count - 1)]


def _choose(mask: Any, value: Any, other: Any) -> Any:
    shape = type_of(value).shape
    wide = broadcast_in_dim(mask, shape=shape, dims=(0,)) if shape != type_of(mask).shape else mask
    return select(wide, value, other)


def _guard(mask: Any, operands: Sequence[Any]) -> list[Any]:
    """The operands, constant in the lanes that do not take the branch.

    Their derivative there is 0, even if the branch's derivative is infinite or NaN.
    """
    return [_choose(mask, x, stop_gradient(x)) if is_inexact(type_of(x).dtype) else x for x in operands]


def _select_branch(masks: Sequence[Any], results: list[list[Any]]) -> list[Any]:
    """Elementwise choice between the results of all branches."""
    chosen = results[-1]
    for mask, values in zip(reversed(masks[:-1]), reversed(results[:-1]), strict=True):
        chosen = [_choose(mask, value, other) for value, other in zip(values, chosen, strict=True)]
    return chosen


def _with_residuals(half: Any, number: int, halves: Sequence[Any]) -> Program:
    """The known branch with the residuals of all branches as outputs, zeros for the others'."""
    with Builder(half.known.name) as builder:
        values = interpret(half.known, [builder.input(x) for x in half.known.input_types])
        n = len(values) - len(half.residuals)
        own = values[n:]
        padded: list[Any] = []
        for i, other in enumerate(halves):
            padded += own if i == number else [full_like(r, 0) for r in other.residuals]
        return finish(builder, [*values[:n], *padded])


def _from_residuals(half: Any, number: int, halves: Sequence[Any], known_types: Sequence[TensorType]) -> Program:
    """The linear branch over (residuals of all branches, known operands, unknown operands)."""
    inputs: list[Var] = []
    for i, other in enumerate(halves):
        inputs += half.linear.inputs[: len(half.residuals)] if i == number else [Var(r) for r in other.residuals]
    forwarded = dict(zip(half.forwarded, half.linear.inputs[len(half.residuals) :], strict=False))
    inputs += [forwarded.get(i) or Var(t) for i, t in enumerate(known_types)]
    inputs += half.linear.inputs[len(half.residuals) + len(half.forwarded) :]
    return half.linear.replace(inputs=tuple(inputs))
