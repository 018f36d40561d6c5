"""Samplers compiled for large arrays, where one fused kernel is many times as fast as eager steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from types import FunctionType
from typing import Any

from rlx.array import Array, is_concrete
from rlx.config import config
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.ops.call import call
from rlx.statics import static_key
from rlx.trace.builder import state
from rlx.trace.replay import replayed
from rlx.trace.tracing import close_over, trace_program

__all__ = ["compiled_when_large"]

_LARGE = 1 << 12


@lru_cache(maxsize=256)
def _program(function: FunctionType, key: TensorType, arguments: tuple[Any, ...], token: int, static: Any) -> Program:
    """The function's program for a key; `token` and `static` are what tells it from others for equal arguments."""
    program, captured = trace_program(lambda drawn: [function(drawn, *arguments)], [key], None, function.__name__)
    return close_over(program, captured)


def compiled_when_large(function: FunctionType) -> Callable[..., Array]:
    """function(key, shape, *static), run eagerly as one kernel where the shape is large."""
    small = replayed(function)

    @wraps(function)
    def run(key: Array, shape: tuple[int, ...], *static: Any) -> Array:
        builder = state.builder
        if builder is not None and (home := builder.home([key])) is not builder:
            return builder.hand_to(home, partial(run, key, shape, *static))
        eager = builder is None and is_concrete(key)
        if eager and math.prod(shape) >= _LARGE and not config.disable_jit:
            arguments = (shape, *static)
            program = _program(function, key.type, arguments, config.token, static_key(arguments))
            return call(key, program=program, name=function.__name__)[0]
        return small(key, shape, *static)

    return run
