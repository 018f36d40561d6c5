"""linear_solve: the solution of a linear system by the user's own solver, with implicit derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.errors import UnsupportedError, not_linear
from rlx.ir.program import Equation, Program
from rlx.ops.arithmetic import subtract
from rlx.ops.call import CallLike
from rlx.ops.families import instantiate, to_front
from rlx.ops.regions import is_zero, keep
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Linear, Zero, primitive, type_of

__all__ = ["linear_solve"]


@primitive
class linear_solve(CallLike):
    """x with matvec(x) = b. Operands: constants of all programs, then b.

    params: program: (constants, b) -> x, then auxiliary results; matvec: (constants, x) -> b;
    transpose_program, vecmat: the same for the transposed system, or None; constants: their number.
    """

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """A solution depends on every element of the right-hand side and of the matrix."""
        return walk.dense(equation, operands, "a solution depends on every element of its system")

    def jvp(self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """A dx = db - dA x, solved by the same solver."""
        matvec: Program = params["matvec"]
        count = params["constants"]
        outs = self.bind(*primals, **params)
        size = len(primals) - count
        x, constants = list(outs[:size]), primals[:count]
        auxiliary = [Zero(type_of(o)) for o in outs[size:]]
        moving = [not is_zero(v) for v in tangents[:count]]
        right = list(tangents[count:])
        if any(moving):
            pushed, kept = t.jvp(matvec, [*moving, *[False] * size])
            found = interpret(pushed, [*constants, *x, *keep(tangents[:count], moving)])
            changes = iter(found[size:])
            right = [_minus(r, next(changes)) if k else r for r, k in zip(right, kept, strict=True)]
        if all(map(is_zero, right)):
            return outs, [Zero(type_of(o)) for o in outs]
        solved = self.bind(*constants, *map(instantiate, right), **params)
        return outs, [*solved[:size], *auxiliary]

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """A solution that depends on tangents is linear in them as a whole."""
        return [], [equation]

    def transpose(self, t: Any, cotangents: Sequence[Any], *inputs: Any, **params: Any) -> list[Any]:
        """The solution of the transposed system."""
        if params["transpose_program"] is None:
            raise UnsupportedError(
                "Reverse-mode differentiation met lax.custom_linear_solve without a transpose_solve.",
                "Pass transpose_solve, or symmetric=True if the system is symmetric.",
            )
        count = params["constants"]
        if any(isinstance(c, Linear) for c in inputs[:count]):
            raise not_linear("custom_linear_solve's matvec")
        size = len(inputs) - count
        swapped = {
            "program": params["transpose_program"],
            "matvec": params["vecmat"],
            "transpose_program": params["program"],
            "vecmat": params["matvec"],
            "constants": count,
        }
        solved = self.bind(*inputs[:count], *map(instantiate, cotangents[:size]), **swapped)
        return [*[None] * count, *solved[:size]]

    def batch(
        self, t: Any, size: int, inputs: Sequence[Any], dims: Sequence[int | None], axis_name: Any, **params: Any
    ) -> Any:
        """Every right-hand side batched in front, and the batched constants."""
        count = params["constants"]
        batched = [d is not None for d in dims[:count]] + [True] * (len(inputs) - count)
        names = ("program", "matvec", "transpose_program", "vecmat")
        moved = {name: params[name] and t.batch(params[name], size, batched, True, axis_name)[0] for name in names}
        values = [to_front(x, d, size) if b else x for x, d, b in zip(inputs, dims, batched, strict=True)]
        outs = self.bind(*values, **{**params, **moved})
        return outs, [0] * len(outs)


def _minus(right: Any, change: Any) -> Any:
    return subtract(instantiate(right), change)
