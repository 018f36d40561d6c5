"""custom_vmap_call: a call with its own batching rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlx.ir.program import Equation, Program
from rlx.ir.types import TensorType
from rlx.ops.call import CallLike, call
from rlx.ops.families import to_front
from rlx.ops.regions import is_zero, keep, tangent_inputs
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Zero, primitive, type_of
from rlx.trace.tracing import trace_program

__all__ = ["BatchingRule", "custom_vmap_call", "result_types"]

# (size, which operands are batched, operands) -> (results, which results are batched); batch axes in front
BatchingRule = Callable[[int, Sequence[bool], Sequence[Any]], tuple[Sequence[Any], Sequence[bool]]]


class PushedRule(NamedTuple):
    """The batching rule of a call and its tangents: the derivative of the rule."""

    rule: Any
    transforms: Any
    nonzero: tuple[bool, ...]
    kept: tuple[bool, ...]

    def __call__(self, size: int, batched: Sequence[bool], operands: Sequence[Any]) -> Any:
        count = len(self.nonzero)
        tangent_batched = iter(batched[count:])
        pairs = [(b, bool(next(tangent_batched)) if m else b) for b, m in zip(batched, self.nonzero, strict=False)]
        extra = any(b != c for b, c in pairs)
        if extra and any(b and c for b, c in pairs):  # the rule sees everything batched
            pairs = [(b or c, b or c) for b, c in pairs]
            extra = False
        marks = [b and c for b, c in pairs]
        wide = [*(b for b, _ in pairs), *(c for (_, c), m in zip(pairs, self.nonzero, strict=True) if m)]
        values = [
            to_front(x, None, size) if want and not have else x
            for x, want, have in zip(operands, wide, batched, strict=True)
        ]
        program, captured, found = self._staged(size, marks, values[:count], batched)
        ahead = [False] * len(captured)
        moved, kept = self.transforms.jvp(program, [*ahead, *self.nonzero], self.kept)
        if extra:  # tangents are batched, or values, and the rule sees neither
            moved, out_batched = self.transforms.batch(moved, size, [*ahead, *wide], False, None)
            return interpret(moved, [*captured, *values]), out_batched
        return interpret(moved, [*captured, *values]), [*found, *keep(found, kept)]

    def _staged(
        self, size: int, marks: Sequence[bool], primals: Sequence[Any], batched: Sequence[bool]
    ) -> tuple[Program, list[Any], list[bool]]:
        """The rule's program for batches of the marked values, and which results are batched."""
        found: list[bool] = []
        types = []
        for x, mark, is_wide in zip(primals, marks, batched, strict=False):
            t = type_of(x)
            types.append(t.update(shape=t.shape[1:]) if is_wide and not mark else t)

        def run(*values: Any) -> Sequence[Any]:
            outs, out_batched = self.rule(size, marks, values)
            found[:] = out_batched
            return outs

        program, captured = trace_program(run, types)
        return program, captured, found


@primitive
class custom_vmap_call(CallLike):
    """A call with a user's batching rule. params: program; rule: a BatchingRule."""

    def jvp(self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, rule: Any) -> Any:
        """A call of the program with tangents, batched by the derivative of the rule."""
        nonzero = tuple(not is_zero(x) for x in tangents)
        moved, kept = t.jvp(program, nonzero)
        pushed = PushedRule(rule, t, nonzero, tuple(kept))
        outs = self.bind(*primals, *tangent_inputs(tangents, nonzero), program=moved, rule=pushed)
        moving = iter(outs[len(kept) :])
        return outs[: len(kept)], [
            next(moving) if k else Zero(o) for o, k in zip(program.output_types, kept, strict=True)
        ]

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """Split as a plain call: the rule does not specify how its halves are batched."""
        params = {"program": equation.params["program"], "name": "custom_vmap"}
        return call.split(t, Equation(call, equation.inputs, params, equation.outputs, equation.origin), unknown)

    def transpose(self, t: Any, cotangents: Sequence[Any], *inputs: Any, program: Program, rule: Any) -> list[Any]:
        """Transpose the program itself."""
        return call.transpose(t, cotangents, *inputs, program=program, name="custom_vmap")

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        program: Program,
        rule: Any,
    ) -> Any:
        """The user's rule, with batch axes in front."""
        batched = [d is not None for d in dims]
        values = [x if d is None else to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        outs, out_batched = rule(size, batched, values)
        return list(outs), [0 if b else None for b in out_batched]


def result_types(program: Program, size: int, batched: Sequence[bool]) -> list[TensorType]:
    """The required result of a batching rule."""
    return [t.update(shape=(size, *t.shape)) if b else t for t, b in zip(program.output_types, batched, strict=True)]
