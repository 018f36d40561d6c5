"""MLX functions in programs: a call, with MLX's derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.types import TensorType, is_inexact
from rlx.ops.batch_rules import batched_by_rule
from rlx.ops.families import instantiate, to_front
from rlx.ops.mlx_code import Marks, MlxFunction
from rlx.trace.primitive import Linear, Primitive, Zero, primitive, type_of

__all__ = ["mlx_array_callback"]


@primitive
class mlx_array_callback(Primitive):
    """A function of MLX's arrays. params: function; rule for vmap, or None; moving.

    moving: (), or which of the function's inputs have a tangent: those follow the inputs, and the results are the
    tangents of its outputs, in which the operation is linear.
    """

    multiple = True

    def type(self, *types: TensorType, function: MlxFunction, moving: Marks, **params: Any) -> Any:
        return _called(function, moving).outputs

    def reference(self, *arrays: np.ndarray, function: MlxFunction, moving: Marks, **params: Any) -> Any:
        return tuple(_called(function, moving)(*arrays))

    def lower(self, k: Any, *values: Any, function: MlxFunction, moving: Marks, **params: Any) -> Any:
        called = _called(function, moving)
        return k.callback(called, values, called.outputs)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, function: MlxFunction, moving: Marks, rule: Any
    ) -> Any:
        """MLX's derivative; for a derivative in which only linear operands move, the operation itself."""
        outs = self.bind(*primals, function=function, moving=moving, rule=rule)
        count = len(function.inputs)
        if moving and all(isinstance(t, Zero) for t in tangents[:count]):
            changes = map(instantiate, tangents[count:])
            return outs, self.bind(*primals[:count], *changes, function=function, moving=moving, rule=rule)
        called = _called(function, moving)
        marks = tuple(
            not isinstance(t, Zero) and is_inexact(i.dtype) for t, i in zip(tangents, called.inputs, strict=True)
        )
        if not any(marks):
            return outs, tuple(Zero(type_of(o)) for o in outs)
        changes = [t for t, m in zip(tangents, marks, strict=True) if m]
        found = iter(self.bind(*primals, *changes, function=called, moving=marks, rule=None))
        return outs, tuple(next(found) if m else Zero(type_of(o)) for o, m in zip(outs, called.moved, strict=True))

    def transpose(
        self, cotangents: Any, *inputs: Any, function: MlxFunction, moving: Marks, rule: Any
    ) -> tuple[Any, ...]:
        """MLX's reverse derivative."""
        count = len(function.inputs)
        pulled = function.pulled(moving)
        found = self.bind(*inputs[:count], *map(instantiate, cotangents), function=pulled, moving=(), rule=None)
        back = [f if isinstance(x, Linear) else None for f, x in zip(found, inputs[count:], strict=True)]
        return (*(None for _ in range(count)), *back)

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        function: MlxFunction,
        moving: Marks,
        rule: Callable[..., Any] | None,
    ) -> tuple[Any, Any]:
        """The given rule, or MLX's vmap."""
        has = tuple(d is not None for d in dims)
        count = len(function.inputs)
        if moving:
            # an input and its tangent are batched, or neither is
            tangents = iter(has[count:])
            whole = tuple((next(tangents) or h) if m else h for h, m in zip(has[:count], moving, strict=True))
            has = (*whole, *(h for h, m in zip(whole, moving, strict=True) if m))
        front = [to_front(x, d, size) if h else x for x, d, h in zip(inputs, dims, has, strict=True)]
        if rule is not None and not moving:
            outs = batched_by_rule(function.name, rule, size, has, front, function.outputs)
        else:
            batched = function.batched(size, has[:count])
            outs = self.bind(*front, function=batched, moving=moving, rule=None)
        return outs, (0,) * len(outs)


def _called(function: MlxFunction, moving: Marks) -> MlxFunction:
    return function.pushed(moving) if moving else function
