"""The stages of each operation of an integer program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.errors import UnsupportedError
from rlx.fpga.copy_layers import clamp, concatenate, pad, part, reshape, table, transpose
from rlx.fpga.element_layers import add, argmax, max_pool, multiply, sum_pool
from rlx.fpga.sites import Site
from rlx.fpga.stages import Stage
from rlx.fpga.tune import Tune
from rlx.fpga.weight_layers import convolution, dense
from rlx.quant.integer_program import (
    IntegerAdd,
    IntegerArgmax,
    IntegerClamp,
    IntegerConcatenate,
    IntegerConvolution,
    IntegerDense,
    IntegerMaxPool,
    IntegerMultiply,
    IntegerOperation,
    IntegerPad,
    IntegerReshape,
    IntegerSlice,
    IntegerSumPool,
    IntegerTable,
    IntegerTranspose,
    IntegerValue,
)

__all__ = ["stages_of"]


def stages_of(
    name: str, operation: IntegerOperation, values: Sequence[IntegerValue], at: Mapping[int, int], tune: Tune
) -> list[Stage]:
    """The stages of an operation; `at`: the address of each value. Raises UnsupportedError."""
    found = _LAYERS.get(type(operation))
    if found is None:
        raise UnsupportedError(
            f"{type(operation).__name__} has no circuit.",
            "Leave it out of the program and compute it on the host; for a class, end with argmax.",
            operation.origin,
        )
    return found(Site(name, operation, values, at, tune), operation)


_LAYERS: dict[type[IntegerOperation], Callable[[Site, Any], list[Stage]]] = {
    IntegerAdd: add,
    IntegerArgmax: argmax,
    IntegerClamp: clamp,
    IntegerConcatenate: concatenate,
    IntegerConvolution: convolution,
    IntegerDense: dense,
    IntegerMaxPool: max_pool,
    IntegerMultiply: multiply,
    IntegerPad: pad,
    IntegerReshape: reshape,
    IntegerSlice: part,
    IntegerSumPool: sum_pool,
    IntegerTable: table,
    IntegerTranspose: transpose,
}
