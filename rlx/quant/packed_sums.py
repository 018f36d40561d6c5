"""Convolutions and products of int8 codes with packed weights: the form that programs in C compute.

`pack` stores weights in the order in which a processor with instructions for pairs of 16-bit numbers reads them: rows
in groups of four, two and one, and for each 32-bit word of a row the words of the group's other rows beside it. Byte j
of a word contains, from the low bits, the codes j, 4 + j, 8 + j and 12 + j of 4 * 8 / bits neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeOverflowError
from rlx.ir.packed_sums import is_depthwise, padded_row
from rlx.quant.integer_arithmetic import requantize
from rlx.quant.integer_program import (
    IntegerConvolution,
    IntegerDense,
    IntegerOperation,
    IntegerProgram,
    IntegerValue,
    accumulator_bound,
)
from rlx.trace.replay import block

__all__ = ["PackedSum", "group_sizes", "pack", "packed_sum", "unpack", "with_packed_weights"]


def group_sizes(rows: int) -> list[int]:
    """How many rows are stored together: fours, then the rest.

    >>> group_sizes(11)
    [4, 4, 2, 1]
    """
    return [4] * (rows // 4) + [size for size in (2, 1) if rows & size]


def pack(weights: np.ndarray, bits: int, groups: int = 1) -> np.ndarray:
    """uint8 bytes of int8 weights [outputs, height, width, channels / groups].

    A depthwise convolution has a byte for each weight, in the order [height, width, outputs].

    >>> import numpy as np
    >>> pack(np.array([[1, -1, 0, 1, 1, 0, 0, -1]], np.int8).reshape(1, 1, 1, 8), 4).tolist()
    [17, 15, 0, 241]
    """
    outputs = len(weights)
    if is_depthwise(groups, groups * weights.shape[-1]):
        return np.moveaxis(weights, 0, -1).astype(np.int8).view(np.uint8).reshape(-1)
    rows = weights.reshape(outputs, -1)
    padded = padded_row(rows.shape[1], bits)
    rows = np.pad(rows, ((0, 0), (0, padded - rows.shape[1]))).reshape(outputs, -1, 8 // bits, 4)
    fields = (rows.astype(np.int64) & (2**bits - 1)) << (bits * np.arange(8 // bits))[:, None]
    words = fields.sum(axis=2).astype(np.uint8)  # [outputs, words, 4]
    parts, start = [], 0
    for _ in range(groups):
        for size in group_sizes(outputs // groups):
            parts.append(words[start : start + size].swapaxes(0, 1).reshape(-1))
            start += size
    return np.concatenate(parts)


def unpack(packed: Any, bits: int, shape: tuple[int, int, int, int], groups: int = 1) -> Array:
    """The int8 weights of `pack`, of shape [outputs, height, width, channels / groups]."""
    outputs, *rest = shape
    length = int(np.prod(rest))
    packed = jnp.asarray(packed)
    if is_depthwise(groups, groups * shape[-1]):
        return jnp.moveaxis(lax.bitcast_convert_type(packed, np.int8).reshape(*rest, outputs), -1, 0)
    words = padded_row(length, bits) * bits // 32
    own = group_sizes(outputs // groups)
    fours = own.count(4)
    whole = packed.reshape(groups, -1)
    rows = []
    if fours:
        first = whole[:, : fours * words * 16].reshape(groups, fours, words, 4, 4)
        rows.append(jnp.swapaxes(first, 2, 3).reshape(groups, fours * 4, words, 4))
    start = fours * words * 16
    for size in own[fours:]:
        part = whole[:, start : start + size * words * 4].reshape(groups, words, size, 4)
        rows.append(jnp.swapaxes(part, 1, 2))
        start += size * words * 4
    packed = jnp.concatenate(rows, axis=1)  # [groups, rows, words, 4]
    high = jnp.stack([packed << np.uint8(place) for place in range(8 - bits, -1, -bits)], axis=3)
    codes = (lax.bitcast_convert_type(high, np.int8) >> np.int8(8 - bits)).reshape(outputs, -1)
    return codes[:, :length].reshape(shape)


@block()
def packed_sum(
    x: Any, weights: Any, bias: Any, multiplier: Any, shift: Any, bits: int, kernel: tuple[int, int],
    strides: tuple[int, int], padding: tuple[tuple[int, int], ...], dilation: tuple[int, int], groups: int,
    operand_zero: int, zero_point: int, low: int, high: int,
) -> Array:  # fmt: skip
    """Codes of IntegerConvolution, with weights as `pack` returns them; bias, multiplier and shift: [outputs]."""
    shape = (bias.shape[0], *kernel, x.shape[-1] // groups)
    sums = lax.conv_general_dilated(
        x.astype(np.int32) - np.int32(operand_zero), unpack(weights, bits, shape, groups).astype(np.int32), strides,
        padding, rhs_dilation=dilation, dimension_numbers=("NHWC", "OHWI", "NHWC"), feature_group_count=groups,
    )  # fmt: skip
    return requantize(sums + bias, multiplier, shift, zero_point, low, high)


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedSum(IntegerOperation):
    """An IntegerConvolution or IntegerDense with packed weights."""

    whole: IntegerConvolution | IntegerDense

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """The codes of the operation."""
        whole, how = self.whole, self.whole.requantization
        x = codes[0]
        weights = whole.weights if isinstance(whole, IntegerConvolution) else whole.weights[:, None, None]
        dense = isinstance(whole, IntegerDense)
        image = x.reshape(1, 1, -1, x.shape[-1]) if dense else x
        outputs = len(weights)
        groups = 1 if dense else whole.groups
        each = (np.broadcast_to(x, outputs).copy() for x in (how.multiplier, how.shift))
        constants = (pack(weights, whole.bits, groups), whole.bias, *each)
        found = packed_sum(
            image, *map(jnp.asarray, constants), bits=whole.bits, kernel=weights.shape[1:3],
            strides=(1, 1) if dense else whole.strides, padding=((0, 0), (0, 0)) if dense else whole.padding,
            dilation=(1, 1) if dense else whole.dilation, groups=groups, operand_zero=values[0].zero_point,
            zero_point=how.zero_point, low=how.low, high=how.high,
        )  # fmt: skip
        return found.reshape(*x.shape[:-1], outputs) if dense else found


def with_packed_weights(program: IntegerProgram) -> IntegerProgram:
    """The program with PackedSum for its convolutions and products.

    Raises DtypeOverflowError where a sum of products, which the code in C may shift by 8 - bits, exceeds int32.
    """
    operations = []
    for operation in program.operations:
        if isinstance(operation, IntegerConvolution | IntegerDense):
            bound = accumulator_bound(operation, program.values[operation.inputs[0]]) << (8 - operation.bits)
            if bound >= 2**31:
                raise DtypeOverflowError(
                    f"A sum of {operation.weights[0].size} products with weights of {operation.bits} bits can reach "
                    f"{bound} in packed code, and int32 ends at {2**31 - 1}.",
                    "Use weights of 8 bits.",
                )
            told = {"inputs": operation.inputs, "output": operation.output, "origin": operation.origin}
            operation = PackedSum(**told, whole=operation)
        operations.append(operation)
    return replace(program, operations=tuple(operations))
