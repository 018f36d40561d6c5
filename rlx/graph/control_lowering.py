"""Control flow without regions, for backends that lack them: branches to selects, loops unrolled.

rlx's own backends run branches and loops natively; nothing here is part of their pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.loop_parts import WhileParts
from rlx.ir.program import Equation, Program
from rlx.ir.types import is_inexact
from rlx.passes.rebuild import bound, rebuilt, walk
from rlx.trace.lower import map_regions
from rlx.trace.primitive import registry, type_of

__all__ = ["CONTROL_KINDS", "LowerControlFlow", "lower_control_flow"]

CONTROL_KINDS = ("cond", "scan", "while_loop")


class LowerControlFlow:
    """A pass: `cond` to selects of all branches, `while_loop` and `scan` unrolled.

    Args:
      max_iterations: the most iterations of a while_loop's body; a loop that would continue
        leaves NaN in its floating carries. None: a while_loop raises UnsupportedError.
      max_length: longer scans raise UnsupportedError.
      kinds: which primitives are lowered; the others' regions are only searched.

    Raises: UnsupportedError also for regions with effects, which a select would run in any case.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: rlx.lax.cond(x > 0, jnp.sin, jnp.cos, x), 1.0)
    >>> "cond" in {e.primitive.name for e in opt.run_passes(g, [opt.LowerControlFlow()]).program.equations}
    False
    """

    name = "lower_control_flow"

    def __init__(
        self,
        max_iterations: int | None = None,
        max_length: int = 256,
        kinds: Sequence[str] = CONTROL_KINDS,
    ) -> None:
        self.max_iterations = max_iterations
        self.max_length = max_length
        self.kinds = frozenset(kinds)

    def run(self, program: Program) -> Program:
        """The program without the chosen control flow."""
        return rebuilt(program, self.replace)

    def replace(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The replacement of an equation; equations without regions stay."""
        inner = map_regions(equation, self.run)
        if equation.primitive.name not in self.kinds:
            return bound(inner, operands)
        return self.expand(inner, operands)

    def expand(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The replacement of one equation of control flow, with its regions unchanged."""
        if equation.primitive.effect(**equation.params):
            raise UnsupportedError(
                f"{equation.primitive.name} at {equation.origin} has a region with an effect.",
                "Without regions every branch runs: take the effect out of the control flow.",
            )
        return _LOWERINGS[equation.primitive.name](self, equation, operands)


def lower_control_flow(program: Program, max_iterations: int | None = None) -> Program:
    """The program without control flow; see LowerControlFlow."""
    return LowerControlFlow(max_iterations).run(program)


def _inlined(program: Program, operands: Sequence[Any]) -> list[Any]:
    return walk(program, operands, bound)


def _chosen(predicate: Any, values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    select = registry["select"]
    return [select(predicate, x, y) for x, y in zip(values, others, strict=True)]


def _lower_cond(lowering: LowerControlFlow, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    branches: tuple[Program, ...] = equation.params["branches"]
    index, *rest = operands
    results = [_inlined(branch, rest) for branch in branches]
    chosen = results[-1]
    for number in reversed(range(len(branches) - 1)):
        at_or_before = registry["less_equal"](index, number)  # indices are clamped
        chosen = _chosen(at_or_before, results[number], chosen)
    return chosen


def _lower_while(lowering: LowerControlFlow, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    if lowering.max_iterations is None:
        raise UnsupportedError(
            f"The while_loop at {equation.origin} has no known number of steps, so it cannot be unrolled.",
            "Give a bound: LowerControlFlow(max_iterations=...).",
        )
    p = equation.params
    first, second, carries = WhileParts.of(operands, p["condition_constants"], p["body_constants"])
    for _ in range(lowering.max_iterations):
        # carries of a loop that has ended do not change, so that its condition stays false
        (goes_on,) = _inlined(p["condition"], [*first, *carries])
        carries = _chosen(goes_on, _inlined(p["body"], [*second, *carries]), carries)
    (unfinished,) = _inlined(p["condition"], [*first, *carries])
    return [_poisoned(unfinished, x) for x in carries]


def _poisoned(unfinished: Any, carry: Any) -> Any:
    """NaN instead of a wrong number, if the dtype has one."""
    dtype = type_of(carry).dtype
    if not is_inexact(dtype):
        return carry
    return registry["select"](unfinished, np.asarray(np.nan, dtype), carry)


def _lower_scan(lowering: LowerControlFlow, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    p = equation.params
    length, count = p["length"], p["carries"]
    if length > lowering.max_length:
        raise UnsupportedError(
            f"The scan at {equation.origin} has {length} steps, more than max_length={lowering.max_length}.",
            "Give LowerControlFlow a larger max_length.",
        )
    lead = p["constants"] + count
    constants, carries, xs = (
        operands[: p["constants"]],
        list(operands[p["constants"] : lead]),
        operands[lead:],
    )
    rows: list[list[Any]] = []
    for step in reversed(range(length)) if p["reverse"] else range(length):
        outs = _inlined(p["body"], [*constants, *carries, *[_row(x, step) for x in xs]])
        carries = outs[:count]
        rows.append(outs[count:])
    rows = rows[::-1] if p["reverse"] else rows
    stacked = [_stacked([row[k] for row in rows], v.type) for k, v in enumerate(equation.outputs[count:])]
    return [*carries, *stacked]


def _row(x: Any, step: int) -> Any:
    shape = type_of(x).shape
    starts, limits = (step, *[0] * (len(shape) - 1)), (step + 1, *shape[1:])
    piece = registry["slice"](x, starts=starts, limits=limits, strides=(1,) * len(shape))
    return registry["reshape"](piece, shape=shape[1:])


def _stacked(rows: Sequence[Any], type: Any) -> Any:
    if not rows:
        return registry["broadcast_in_dim"](np.zeros((), type.dtype), shape=type.shape, dims=())
    wide = [registry["reshape"](row, shape=(1, *type.shape[1:])) for row in rows]
    return registry["concatenate"](*wide, axis=0)


_LOWERINGS: dict[str, Callable[[LowerControlFlow, Equation, Sequence[Any]], Sequence[Any]]] = {
    "cond": _lower_cond,
    "scan": _lower_scan,
    "while_loop": _lower_while,
}
