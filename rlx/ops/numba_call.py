"""Numba functions in programs: a call on arrays, and an elementwise operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.types import TensorType, is_inexact
from rlx.ir.user_functions import Levels
from rlx.ops.batch_rules import batched_by_rule
from rlx.ops.families import Elementwise, broadcast_shapes, to_front
from rlx.ops.numba_code import ArrayFunction, ScalarFunction
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive, type_of

__all__ = ["numba_array_callback", "numba_scalar_callback"]


def _refuse_derivative(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"The Numba function {name} has no derivative.",
        "Wrap the function that calls it in rlx.custom_jvp or rlx.custom_vjp, with a rule that gives the"
        " derivative, or its operands in rlx.lax.stop_gradient.",
    )


@primitive
class numba_array_callback(Primitive):
    """A Numba function of whole arrays. params: function; levels, the batch; rule for vmap, or None."""

    multiple = True

    def type(self, *types: TensorType, function: ArrayFunction, levels: Levels, **params: Any) -> Any:
        return function.call(levels).types

    def reference(self, *arrays: np.ndarray, function: ArrayFunction, levels: Levels, **params: Any) -> Any:
        return tuple(function.call(levels)(*arrays))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """No derivative is known: it is zero if no operand moves."""
        outs = self.bind(*primals, **params)
        if not all(isinstance(t, Zero) for t in tangents):
            raise _refuse_derivative(params["function"].__name__)
        return outs, tuple(Zero(type_of(o)) for o in outs)

    def transpose(self, cotangents: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        """Never linear."""
        return tuple(Zero(x.type) if isinstance(x, Linear) else None for x in inputs)

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        function: ArrayFunction,
        levels: Levels,
        rule: Callable[..., Any] | None,
    ) -> tuple[Any, Any]:
        """The given rule, or one more loop around the call."""
        has = tuple(d is not None for d in dims)
        front = [x if d is None else to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        if rule is not None:
            outs = batched_by_rule(function.__name__, rule, size, has, front, function.outputs)
        else:
            outs = self.bind(*front, function=function, levels=((size, has), *levels), rule=None)
        return outs, (0,) * len(outs)

    def lower(self, k: Any, *values: Any, function: ArrayFunction, levels: Levels, **params: Any) -> Any:
        call = function.call(levels)
        return k.callback(call, values, call.types)


@primitive
class numba_scalar_callback(Elementwise):
    """A Numba function of scalars, of every element; fused. params: function."""

    kinds = "biuf"
    arity = None  # the function's own

    def type(self, *types: TensorType, function: ScalarFunction) -> TensorType:
        return TensorType(broadcast_shapes(function.__name__, types), function.dtype)

    def samples(self) -> Iterator[Sample]:
        """No samples: each needs a function."""
        return iter(())

    def reference(self, *arrays: np.ndarray, function: ScalarFunction) -> Any:
        return function(*arrays)

    def scalar(self, s: Any, *xs: Any, function: ScalarFunction) -> Any:
        return s.user_function(function.name, function.dtype, *xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """No derivative is known: it is zero if no operand moves or the result cannot."""
        out = self.bind(*primals, **params)
        moves = is_inexact(type_of(out).dtype)
        if moves and not all(isinstance(t, Zero) for t in tangents):
            raise _refuse_derivative(params["function"].__name__)
        return out, Zero(type_of(out))
