"""The block of a convolution of int8 codes with packed weights, for the dialects that claim it.

The meaning of the block is in rlx/quant/packed_sums.py. Its operands are codes [n, height, width, channels], packed
weights, the bias, multipliers and shifts. A row of weights is padded to a multiple of STEP numbers, or of 2 * STEP for
weights of two bits. Rows are stored in groups of four, two and one. A depthwise convolution has no packed rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.ir.kernels import Buffer, Library
from rlx.ir.types import TensorType

__all__ = ["PACKED_SUM", "is_depthwise", "padded_row", "row_length", "sum_scratch", "takes_packed_sum"]

PACKED_SUM = "packed_sum"
STEP = 8


def padded_row(length: int, bits: int) -> int:
    """The numbers of a packed row, of `length` weights."""
    step = STEP if bits > 2 else 2 * STEP
    return -(-length // step) * step


def is_depthwise(groups: int, channels: int) -> bool:
    """Whether each output reads one channel."""
    return groups == channels and groups > 1


def row_length(kernel: Library) -> int:
    """The weights of an output."""
    told = kernel.attributes
    height, width = told["kernel"]
    return height * width * (kernel.inputs[0].shape[-1] // told["groups"])


def takes_packed_sum(types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> bool:
    """Whether a call's operands are arrays with elements."""
    return all(t.size for t in types)


def sum_scratch(kernel: Library) -> tuple[Buffer, ...]:
    """Memory for the numbers under a kernel: as int16, and before that as codes."""
    told = kernel.attributes
    if is_depthwise(told["groups"], kernel.inputs[0].shape[-1]):
        return ()
    padded = padded_row(row_length(kernel), told["bits"])
    return (Buffer(np.dtype(np.int16), padded + padded // 2, name="column"),)
