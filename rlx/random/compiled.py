"""Samplers compiled for large arrays, where one fused kernel is many times as fast as eager steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from types import FunctionType
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray
from rlx.config import config
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.ops.call import call
from rlx.trace.builder import state
from rlx.trace.replay import replayed
from rlx.trace.stage import close_over, stage

__all__ = ["compiled_when_large"]

_LARGE = 1 << 12
_KEY = TensorType((2,), np.dtype(np.uint32))


@lru_cache(maxsize=256)
def _program(function: FunctionType, arguments: tuple[Any, ...]) -> Program:
    program, captured = stage(lambda words: [function(words, *arguments)], [_KEY], None, function.__name__)
    return close_over(program, captured)


def compiled_when_large(function: FunctionType) -> Callable[..., Array]:
    """function(words, shape, *static), run eagerly as one kernel where the shape is large."""
    small = replayed(function)

    @wraps(function)
    def run(words: Array, shape: tuple[int, ...], *static: Any) -> Array:
        eager = state.builder is None and isinstance(words, ConcreteArray)
        if eager and math.prod(shape) >= _LARGE and not config.disable_jit:
            program = _program(function, (shape, *static))
            return call(words, program=program, name=function.__name__)[0]
        return small(words, shape, *static)

    return run
