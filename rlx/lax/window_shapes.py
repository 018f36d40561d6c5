"""The result shapes of convolutions and window reductions, from their operands' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.errors import ShapeError
from rlx.lax.convolution import Padding, conv_dimension_numbers, padtype_to_pads, transposed_padding
from rlx.ops.window_spec import dilated

__all__ = [
    "conv_general_permutations",
    "conv_general_shape_tuple",
    "conv_shape_tuple",
    "conv_transpose_shape_tuple",
    "reduce_window_shape_tuple",
]

Shape = tuple[int, ...]


def conv_general_permutations(dimension_numbers: Any) -> tuple[Shape, Shape, Shape]:
    """The orders of batch, features and spatial axes in layouts (of kernels: output, input features).

    >>> from rlx import lax
    >>> lax.conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    ndim = len(dimension_numbers[0])
    numbers = conv_dimension_numbers((1,) * ndim, (1,) * ndim, dimension_numbers)
    return numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: Padding,
    batch_group_count: int = 1,
) -> Shape:
    """The shape of a convolution's result, all shapes in the default layouts (NCHW, OIHW).

    >>> from rlx import lax
    >>> lax.conv_shape_tuple((1, 3, 8, 8), (16, 3, 3, 3), (2, 2), "SAME")
    (1, 16, 4, 4)
    """
    spatial = _positions(lhs_shape[2:], rhs_shape[2:], strides, pads)
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *spatial)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: Any,
) -> Shape:
    """The shape of a convolution's result in any layouts.

    >>> from rlx import lax
    >>> layouts = ("NHWC", "HWIO", "NHWC")
    >>> lax.conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 16), (1, 1), "VALID", layouts)
    (1, 6, 6, 16)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    found = conv_shape_tuple([lhs_shape[i] for i in lhs], [rhs_shape[i] for i in rhs], window_strides, padding)
    return _placed(found, out)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: Any,
) -> Shape:
    """The shape of conv_transpose's result in any layouts.

    >>> from rlx import lax
    >>> layouts = ("NHC", "HIO", "NHC")
    >>> lax.conv_transpose_shape_tuple((1, 4, 1), (3, 1, 2), (2,), "SAME", layouts)
    (1, 8, 2)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    sizes, window = [lhs_shape[i] for i in lhs], [rhs_shape[i] for i in rhs]
    if isinstance(padding, str):
        padding = [transposed_padding(k, s, padding) for k, s in zip(window[2:], window_strides, strict=True)]
    spread = [dilated(n, s) for n, s in zip(sizes[2:], window_strides, strict=True)]
    ones = (1,) * len(spread)
    return _placed((sizes[0], window[0], *_positions(spread, window[2:], ones, padding)), out)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Shape:
    """The shape of reduce_window's result.

    >>> from rlx import lax
    >>> lax.reduce_window_shape_tuple((6,), (2,), (2,), "VALID")
    (3,)
    """
    ones = (1,) * len(operand_shape)
    spread = [dilated(n, d) for n, d in zip(operand_shape, base_dilation or ones, strict=True)]
    reach = [dilated(n, d) for n, d in zip(window_dimensions, window_dilation or ones, strict=True)]
    return _positions(spread, reach, window_strides, padding)


def _positions(sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], padding: Padding) -> Shape:
    """The number of window positions along each axis."""
    pads = padtype_to_pads(sizes, window, strides, padding) if isinstance(padding, str) else list(padding)
    if not len(sizes) == len(window) == len(strides) == len(pads):
        raise ShapeError(
            f"{len(sizes)} axes got {len(window)} window sizes, {len(strides)} strides and {len(pads)} paddings.",
            "Pass one of each for every axis.",
        )
    padded = [n + low + high for n, (low, high) in zip(sizes, pads, strict=True)]
    if any(n < 0 for n in padded):
        raise ShapeError(
            f"Padding {pads} cuts off more than axes of sizes {tuple(sizes)} have.",
            "Negative padding may remove at most the whole axis.",
        )
    return tuple(max((n - k) // s + 1, 0) for n, k, s in zip(padded, window, strides, strict=True))


def _placed(canonical: Sequence[int], layout: Sequence[int]) -> Shape:
    """Sizes in a layout's order."""
    placed = dict(zip(layout, canonical, strict=True))
    return tuple(placed[i] for i in range(len(canonical)))
