"""Convolutions by patches: the windows themselves, and kernels that differ from position to position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.lax.convolution import Padding, conv_dimension_numbers, paddings, padtype_to_pads
from rlx.lax.operands import as_array, as_dtype, canonical_shape, operands
from rlx.lax.product import dot_general
from rlx.lax.shape import convert_element_type, reshape, transpose
from rlx.ops.window import windows_of
from rlx.ops.window_spec import WindowSpec, dilated

__all__ = ["conv_general_dilated_local", "conv_general_dilated_patches"]


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The windows of a convolution, their elements along the feature axis.

    Args:
      lhs: the input, its axes as in conv_general_dilated.
      filter_shape: sizes of the window along the spatial axes.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers: as in conv_general_dilated;
        the kernel's layout only determines the order of spatial axes.
      precision: accepted for JAX compatibility: elements are copied.
      preferred_element_type: the dtype of the result.

    Returns: an array whose feature axis has size features * window elements, features first.

    >>> from rlx import lax
    >>> x = lax.reshape(lax.iota("float32", 4), (1, 1, 4))
    >>> lax.conv_general_dilated_patches(x, (2,), (1,), "VALID")[0].tolist()
    [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]
    """
    x, sizes = as_array(lhs), canonical_shape(filter_shape)
    if len(sizes) != x.ndim - 2:
        raise ShapeError(
            f"lax.conv_general_dilated_patches got filter_shape={sizes} for an input of {x.ndim} axes.",
            "It must have a size for each spatial axis: all but batch and features.",
        )
    numbers = conv_dimension_numbers(x.shape, (1, 1, *sizes), dimension_numbers)
    ones = (1,) * len(sizes)
    strides = canonical_shape(window_strides)
    base = ones if lhs_dilation is None else canonical_shape(lhs_dilation)
    steps = ones if rhs_dilation is None else canonical_shape(rhs_dilation)
    x = transpose(x, numbers.lhs_spec)
    if isinstance(padding, str):
        spread = [dilated(n, d) for n, d in zip(x.shape[2:], base, strict=True)]
        reach = [dilated(n, d) for n, d in zip(sizes, steps, strict=True)]
        padding = padtype_to_pads(spread, reach, strides, padding)
    pads = ((0, 0), (0, 0), *paddings(padding))
    spec = WindowSpec((1, 1, *sizes), (1, 1, *strides), pads, (1, 1, *base), (1, 1, *steps))
    spec.check("conv_general_dilated_patches", x.shape)
    if preferred_element_type is not None:
        x = convert_element_type(x, as_dtype(preferred_element_type))
    found = windows_of(x, spec, 0)
    # axes (batch, features, positions, 1, 1, offsets) -> (batch, features, offsets, positions)
    count = len(sizes)
    positions, offsets = range(2, 2 + count), range(4 + count, 4 + 2 * count)
    order = (0, 1, 2 + count, 3 + count, *offsets, *positions)
    merged = (x.shape[0], x.shape[1] * int(np.prod(sizes, dtype=np.int64)), *(found.shape[i] for i in positions))
    return transpose(reshape(transpose(found, order), merged), tuple(np.argsort(numbers.out_spec).tolist()))


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Array:
    """A convolution whose kernel differs from position to position.

    Args:
      lhs: the input.
      rhs: a kernel for each position: by default axes (output features, input features * window elements,
        spatial axes of the result).
      filter_shape: sizes of the window along the spatial axes.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers: as in conv_general_dilated.
      precision: as for dot_general.

    >>> from rlx import lax
    >>> x, kernels = lax.full((1, 1, 4), 1.0), lax.full((1, 2, 3), 1.0)
    >>> lax.conv_general_dilated_local(x, kernels, (1,), "VALID", (2,))[0, 0].tolist()
    [2.0, 2.0, 2.0]
    """
    x, kernels = map(as_array, operands("conv_general_dilated_local", lhs, rhs))
    numbers = conv_dimension_numbers(x.shape, kernels.shape, dimension_numbers)
    patches = conv_general_dilated_patches(
        x, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, numbers
    )
    out, kernel = numbers.out_spec, numbers.rhs_spec
    axes = (((out[1],), (kernel[1],)), (out[2:], kernel[2:]))
    product = dot_general(patches, kernels, axes, precision)  # (positions, batch, output features)
    count = product.ndim - 2
    in_order = transpose(product, (count, count + 1, *range(count)))
    return transpose(in_order, tuple(np.argsort(out).tolist()))
