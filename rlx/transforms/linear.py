"""linear_call: a linear function with a custom transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.errors import CustomRuleError
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType
from rlx.ops.linear_rule import linear_call as linear_call_op
from rlx.trace.flat import FlatFunction, flatten_call
from rlx.trace.tracing import trace_program
from rlx.trees import tree

__all__ = ["linear_call"]


def linear_call(
    fun: Callable[[Any, Any], Any], fun_transpose: Callable[[Any, Any], Any], residual_args: Any, linear_args: Any
) -> Any:
    """fun(residual_args, linear_args), which is linear in linear_args and transposed by fun_transpose.

    Args:
      fun: takes both trees, returns a tree of arrays.
      fun_transpose: fun_transpose(residual_args, cotangent) returns a tree like linear_args.

    Raises: CustomRuleError if the transpose returns something else.

    >>> import rlx
    >>> halved = lambda x: rlx.custom_derivatives.linear_call(lambda r, x: x / r, lambda r, t: t / r, 2.0, x)
    >>> float(rlx.grad(halved)(3.0))
    0.5
    """
    residuals, residual_tree = flatten_call((residual_args,), {}, "a residual argument of linear_call")
    moving, moving_tree = flatten_call((linear_args,), {}, "a linear argument of linear_call")
    types = [x.type.strong() for x in residuals]
    linear_types = [x.type.strong() for x in moving]
    ahead, forward, held = _stage(fun, residual_args, types, linear_args, linear_types)
    example = ahead.unflatten(list(range(ahead.results)))
    behind, backward, more = _stage(fun_transpose, residual_args, types, example, list(forward.output_types))
    found = backward.output_types
    same = [(t.shape, t.dtype) for t in found] == [(t.shape, t.dtype) for t in linear_types]
    if behind.out_tree != tree.structure(linear_args) or not same:
        raise CustomRuleError(
            f"The transpose of linear_call returned {list(found)} of structure {behind.out_tree}, expected"
            f" {linear_types} of structure {tree.structure(linear_args)}.",
            "It returns a tree like linear_args.",
        )
    first, second = _common(forward, held, backward, more)
    values = [*held, *more, *residuals]
    outs = linear_call_op(*values, *moving, program=first, backward=second, residuals=len(values))
    return ahead.unflatten(outs)


def _stage(
    fun: Callable[[Any, Any], Any], kept: Any, types: Sequence[TensorType], moving: Any, others: Sequence[TensorType]
) -> tuple[FlatFunction, Program, list[Any]]:
    flat = FlatFunction(fun, tree.structure(((kept, moving), {})))
    program, captured = trace_program(flat, [*types, *(t.strong() for t in others)], None, flat.name)
    return flat, program, captured


def _common(forward: Program, held: Sequence[Any], backward: Program, more: Sequence[Any]) -> tuple[Program, Program]:
    """Both programs with the captured values of both in front."""
    first, second = len(held), len(more)
    extra = [Var(v.type) for v in backward.inputs[:second]]
    lead = [Var(v.type) for v in forward.inputs[:first]]
    return (
        forward.replace(inputs=(*forward.inputs[:first], *extra, *forward.inputs[first:])),
        backward.replace(inputs=(*lead, *backward.inputs)),
    )
