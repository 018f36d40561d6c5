"""An operation with its values and their addresses, and the loops of windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.fpga.nests import Limit, LoopNest, nest_of
from rlx.fpga.stages import Operand, Stage, union
from rlx.fpga.tune import Tune
from rlx.quant.integer_program import IntegerOperation, IntegerValue

__all__ = ["Loops", "Site", "limited", "window_loops"]

Loops = list[tuple[int, bool, dict[str, int]]]


class Site:
    """An operation with its values, and their addresses in the arena."""

    def __init__(
        self, name: str, operation: IntegerOperation, values: Sequence[IntegerValue], at: Mapping[int, int], tune: Tune
    ) -> None:
        self.name, self.tune, self.kind = name, tune, type(operation).__name__
        self.x = [values[i] for i in operation.inputs]
        self.y = values[operation.output]
        self.x_at = [at[i] for i in operation.inputs]
        self.y_at = at[operation.output]

    def stage(self, combine: Any, nest: LoopNest, **fields: Any) -> Stage:
        """A stage; by default its results have the order of memory, its operand the bounds of the values."""
        low, high = union([(v.low, v.high) for v in self.x])
        given: dict[str, Any] = {
            "limits": (), "operand": Operand(low, high), "sums": (low, high),
            "writes": nest_of([(math.prod(self.y.shape), False, {"y": 1})], {"y": self.y_at}),
        }  # fmt: skip
        return Stage(self.name, self.kind, combine, nest, **{**given, **fields})


def window_loops(x: tuple, y: tuple, taps: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> list:
    """For rows and columns: the loop of results and the loop of a window's elements."""
    pitch = (x[1] * x[2], x[2])
    return [
        (
            (y[axis], False, {"x": strides[axis] * pitch[axis], walk: strides[axis]}),
            (taps[axis], True, {"x": dilation[axis] * pitch[axis], walk: dilation[axis]}),
        )
        for axis, walk in enumerate(("row", "column"))
    ]


def limited(
    loops: Loops, at: int, x: tuple, padding: Sequence[Sequence[int]], starts: dict[str, int]
) -> tuple[LoopNest, tuple[Limit, ...]]:
    """A nest over an image, with limits where a window leaves it."""
    before = {"row": padding[0][0], "column": padding[1][0]}
    first = at - (before["row"] * x[1] + before["column"]) * x[2]
    whole = nest_of(loops, {"x": first, **{walk: -pad for walk, pad in before.items()}, **starts})
    extents = {"row": x[0], "column": x[1]}
    limits = tuple(Limit(w, n) for w, n in extents.items() if whole.bounds(w)[0] < 0 or whole.bounds(w)[1] >= n)
    kept = {"x": first, **{limit.walk: -before[limit.walk] for limit in limits}, **starts}
    return nest_of(loops, kept), limits
