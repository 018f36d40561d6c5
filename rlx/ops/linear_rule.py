"""Functions with a derivative body for each mode: a linear call that knows its transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.errors import CustomRuleError
from rlx.ir.program import Equation, Program, Var
from rlx.ir.types import TensorType
from rlx.ops.call import CallLike, call
from rlx.ops.families import instantiate, to_front
from rlx.ops.regions import is_zero
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Linear, Zero, primitive, type_of
from rlx.trace.tracing import trace_program

__all__ = ["linear_call", "pushed_by"]


@primitive
class linear_call(CallLike):
    """A call that is linear in its last operands, with its transpose given as a program.

    Operands: `residuals` values, then tangents. params: program, (residuals, tangents) -> results;
    backward, (residuals, cotangents of the results) -> cotangents of the tangents; residuals: their number.
    """

    def jvp(
        self,
        t: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        backward: Program,
        residuals: int,
    ) -> Any:
        """The same call on the tangents; of a plain call if residuals also have tangents."""
        if all(map(is_zero, tangents[:residuals])):
            params = {"program": program, "backward": backward, "residuals": residuals}
            outs = self.bind(*primals, **params)
            if all(map(is_zero, tangents)):
                return outs, [Zero(type_of(o)) for o in outs]
            moving = map(instantiate, tangents[residuals:])
            return outs, list(self.bind(*primals[:residuals], *moving, **params))
        return call.jvp(t, primals, tangents, program=program, name="linear_call")

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """Linear as a whole if the residuals are known; a plain call otherwise.

        Known tangents are zeros: the tangents of arguments that are not differentiated.
        """
        if not any(unknown[: equation.params["residuals"]]):
            return [], [equation]
        params = {"program": equation.params["program"], "name": "linear_call"}
        return call.split(t, Equation(call, equation.inputs, params, equation.outputs, equation.origin), unknown)

    def transpose(
        self,
        t: Any,
        cotangents: Sequence[Any],
        *inputs: Any,
        program: Program,
        backward: Program,
        residuals: int,
    ) -> list[Any]:
        """The given transpose."""
        if any(isinstance(x, Linear) for x in inputs[:residuals]):
            return call.transpose(t, cotangents, *inputs, program=program, name="linear_call")
        found = interpret(backward, [*inputs[:residuals], *map(instantiate, cotangents)])
        moving = inputs[residuals:]
        return [None] * residuals + [c if isinstance(x, Linear) else None for c, x in zip(found, moving, strict=True)]

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        program: Program,
        backward: Program,
        residuals: int,
    ) -> Any:
        """Both programs batched, every operand in front."""
        ahead, _ = t.batch(program, size, [True] * len(inputs), True, axis_name)
        behind, _ = t.batch(backward, size, [True] * len(backward.inputs), True, axis_name)
        values = [to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        outs = linear_call(*values, program=ahead, backward=behind, residuals=residuals)
        return outs, [0] * len(outs)


def pushed_by(
    primals: Sequence[Any],
    output: Any,
    tangents: Sequence[Any],
    vjp: Callable[..., Sequence[Any]],
    jvp: Callable[..., Any],
) -> Any:
    """jvp(*primals, *tangents), transposed by vjp(*primals, output, cotangent)."""
    kept = [type_of(x).strong() for x in (*primals, output)]
    moving = [type_of(t).strong() for t in tangents]
    count = len(primals)

    def ahead(*values: Any) -> Sequence[Any]:
        return (jvp(*values[:count], *values[count + 1 :]),)

    def behind(*values: Any) -> Sequence[Any]:
        return tuple(vjp(*values))

    forward, forward_held = trace_program(ahead, [*kept, *moving], None, "jvp_body")
    backward, backward_held = trace_program(behind, [*kept, kept[-1]], None, "vjp_body")
    _check("jvp", forward.output_types, [kept[-1]])
    _check("vjp", backward.output_types, moving)
    first, second = len(forward_held), len(backward_held)
    extra = [Var(v.type) for v in backward.inputs[:second]]
    forward = forward.replace(inputs=(*forward.inputs[:first], *extra, *forward.inputs[first:]))
    more = [Var(v.type) for v in forward.inputs[:first]]
    backward = backward.replace(inputs=(*more, *backward.inputs))
    values = [*forward_held, *backward_held, *primals, output]
    (result,) = linear_call(*values, *tangents, program=forward, backward=backward, residuals=len(values))
    return result


def _check(body: str, found: Sequence[TensorType], expected: Sequence[TensorType]) -> None:
    if [(t.shape, t.dtype) for t in found] != [(t.shape, t.dtype) for t in expected]:
        raise CustomRuleError(
            f"The {body} body of a custom function returned {list(found)}, expected {list(expected)}.",
            "A gradient has the shape and dtype of its primal, a tangent those of its result.",
        )
