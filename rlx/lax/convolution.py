"""Convolutions in any number of dimensions, and their layouts and paddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.lax.operands import as_array, as_dtype, canonical_shape, operands
from rlx.lax.shape import convert_element_type, rev, transpose
from rlx.ops import convolution
from rlx.ops.convolution import ConvDimensionNumbers
from rlx.ops.precision import tf32_param

__all__ = [
    "ConvDimensionNumbers",
    "ConvGeneralDilatedDimensionNumbers",
    "conv",
    "conv_dimension_numbers",
    "conv_general_dilated",
    "conv_transpose",
    "conv_with_general_padding",
    "padtype_to_pads",
]

Padding = str | Sequence[tuple[int, int]]
ConvGeneralDilatedDimensionNumbers = None | ConvDimensionNumbers | tuple[str, str, str]

_TRANSPOSE_LAYOUTS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


# ------------------------------------------------------------- layouts and paddings
def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Layouts given as strings (or None, or already as numbers) as ConvDimensionNumbers.

    >>> from rlx import lax
    >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC")).lhs_spec
    (0, 3, 1, 2)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    ndim = len(lhs_shape)
    if ndim != len(rhs_shape):
        raise ShapeError(
            f"A convolution got shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}.",
            "Input and kernel must have the same number of axes.",
        )
    if dimension_numbers is None:
        axes = tuple(range(ndim))
        return ConvDimensionNumbers(axes, axes, axes)
    layouts = tuple(dimension_numbers)
    if len(layouts) != 3 or not all(isinstance(s, str) and len(s) == ndim for s in layouts):
        raise ShapeError(
            f"A convolution got dimension_numbers={dimension_numbers!r} for {ndim} axes.",
            "Pass three layouts with one letter for each axis, for instance ('NHWC', 'HWIO', 'NHWC').",
        )
    lhs, rhs, out = layouts
    spatial = [c for c in rhs if c not in "OI"]
    return ConvDimensionNumbers(
        _positions(lhs, "NC", spatial),
        _positions(rhs, "OI", spatial),
        _positions(out, "NC", spatial),
    )


def _positions(layout: str, lead: str, spatial: Sequence[str]) -> tuple[int, ...]:
    wanted = [*lead, *spatial]
    if sorted(wanted) != sorted(layout) or len(set(layout)) != len(layout):
        raise ShapeError(
            f"The convolution layout {layout!r} does not have the axes {''.join(wanted)}.",
            "Input and output must have axes N and C, the kernel O and I, and all the same spatial letters.",
        )
    return tuple(layout.index(c) for c in wanted)


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str,
) -> list[tuple[int, int]]:
    """The (low, high) padding of each axis that "VALID", "SAME" or "SAME_LOWER" stands for.

    >>> from rlx import lax
    >>> lax.padtype_to_pads((5,), (2,), (1,), "SAME")
    [(0, 1)]
    """
    kind = padding.upper()
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise UnsupportedError(f"There is no padding {padding!r}.", "Use 'SAME', 'SAME_LOWER', 'VALID' or pairs.")
    pads = []
    for size, window, stride in zip(*(map(int, v) for v in (in_shape, window_shape, window_strides)), strict=True):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if kind == "SAME" else (more, less))
    return pads


def paddings(padding: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Explicit padding as pairs of ints."""
    pairs = list(padding)
    if not all(isinstance(pair, (tuple, list, np.ndarray)) and len(pair) == 2 for pair in pairs):
        raise ShapeError(
            f"A window got padding={padding!r}.",
            "Padding must be 'SAME', 'SAME_LOWER', 'VALID', or a pair (low, high) for each axis.",
        )
    return tuple((int(low), int(high)) for low, high in pairs)


def _reach(size: int, dilation: int) -> int:
    return (size - 1) * dilation + 1 if size else 0


# ------------------------------------------------------------- convolutions
def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Sliding products of lhs with the kernel rhs (which is not flipped).

    Args:
      lhs: the input; by default its axes are batch, feature and the spatial ones.
      rhs: the kernel; by default output feature, input feature, spatial axes.
      window_strides: step along each spatial axis.
      padding: "SAME", "SAME_LOWER", "VALID", or a pair (low, high) for each spatial axis.
      lhs_dilation, rhs_dilation: distance between elements of the input and of the kernel.
      dimension_numbers: layouts, for instance ("NHWC", "HWIO", "NHWC").
      feature_group_count, batch_group_count: how many separate convolutions the features, or the
        batch, are divided into.
      precision: as for dot_general.
      preferred_element_type: the dtype of the result.

    >>> from rlx import lax
    >>> image, kernel = lax.full((1, 1, 4, 4), 1.0), lax.full((1, 1, 3, 3), 1.0)
    >>> lax.conv_general_dilated(image, kernel, (1, 1), "SAME")[0, 0, 0].tolist()
    [4.0, 6.0, 6.0, 4.0]
    """
    x, kernel = map(as_array, operands("conv_general_dilated", lhs, rhs))
    numbers = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    ones = (1,) * (x.ndim - 2)
    lhs_steps = ones if lhs_dilation is None else canonical_shape(lhs_dilation)
    rhs_steps = ones if rhs_dilation is None else canonical_shape(rhs_dilation)
    strides = canonical_shape(window_strides)
    if isinstance(padding, str):
        if any(d != 1 for d in lhs_steps):
            raise UnsupportedError(
                f"lax.conv_general_dilated got padding={padding!r} with a dilated input.",
                "Pass the padding in pairs, or use conv_transpose.",
            )
        spatial = [x.shape[i] for i in numbers.lhs_spec[2:]]
        window = [kernel.shape[i] for i in numbers.rhs_spec[2:]]
        reach = [_reach(k, d) for k, d in zip(window, rhs_steps, strict=True)]
        padding = padtype_to_pads(spatial, reach, strides, padding)
    if preferred_element_type is not None:
        dtype = as_dtype(preferred_element_type)
        if dtype.itemsize < x.dtype.itemsize:
            raise DtypeError(
                f"A convolution of {x.dtype.name} cannot accumulate in {dtype.name}.",
                "preferred_element_type must be at least as wide as the operands.",
            )
        x, kernel = convert_element_type(x, dtype), convert_element_type(kernel, dtype)
    return convolution.conv_general_dilated(
        x,
        kernel,
        window_strides=strides,
        padding=paddings(padding),
        lhs_dilation=lhs_steps,
        rhs_dilation=rhs_steps,
        dimension_numbers=numbers,
        feature_group_count=int(feature_group_count),
        batch_group_count=int(batch_group_count),
        **tf32_param(precision, x.dtype),
    )


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """A convolution in the default layouts (NCHW, OIHW), without dilation.

    >>> from rlx import lax
    >>> lax.conv(lax.full((1, 1, 5), 1.0), lax.full((2, 1, 3), 1.0), (2,), "VALID").shape
    (1, 2, 2)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """A convolution in the default layouts (NCHW, OIHW).

    Args: lhs (batch, features, *spatial); rhs (out features, features, *window); the rest as in
    conv_general_dilated.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> image, window = jnp.ones((1, 1, 3, 3)), jnp.ones((1, 1, 2, 2))
    >>> lax.conv_with_general_padding(image, window, (1, 1), "VALID", None, None).tolist()
    [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Array:
    """A convolution that enlarges by `strides`: the transpose of a strided one.

    Args:
      padding: "SAME" or "VALID" of the convolution that this one is the transpose of; pairs are the
        padding of the transposed one, or with use_consistent_padding also of the original.
      dimension_numbers: layouts; channels last by default.
      transpose_kernel: flip the kernel and swap its features, which makes this the exact transpose.

    >>> from rlx import lax
    >>> lax.conv_transpose(lax.full((1, 4, 1), 1.0), lax.full((3, 1, 2), 1.0), (2,), "SAME").shape
    (1, 8, 2)
    """
    x, kernel = as_array(lhs), as_array(rhs)
    layouts = _TRANSPOSE_LAYOUTS.get(x.ndim) if dimension_numbers is None else dimension_numbers
    if layouts is None:
        raise UnsupportedError(
            f"lax.conv_transpose has no default layout for {x.ndim} axes.",
            "Pass dimension_numbers.",
        )
    numbers = conv_dimension_numbers(x.shape, kernel.shape, layouts)
    window = [kernel.shape[i] for i in numbers.rhs_spec[2:]]
    dilation = (1,) * len(window) if rhs_dilation is None else canonical_shape(rhs_dilation)
    if isinstance(padding, str) or use_consistent_padding:
        each = [padding] * len(window) if isinstance(padding, str) else list(padding)
        padding = [
            transposed_padding(_reach(k, d), s, p) for k, d, s, p in zip(window, dilation, strides, each, strict=True)
        ]
    if transpose_kernel:
        out_axis, in_axis, *spatial = numbers.rhs_spec
        order = list(range(kernel.ndim))
        order[out_axis], order[in_axis] = in_axis, out_axis
        kernel = transpose(rev(kernel, spatial), order)
    ones = (1,) * len(window)
    return conv_general_dilated(
        x,
        kernel,
        ones,
        padding,
        strides,
        dilation,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def transposed_padding(kernel: int, stride: int, padding: Any) -> tuple[int, int]:
    """The padding of the transpose of a convolution with the given padding along one axis."""
    if not isinstance(padding, str):
        low, high = padding
        return kernel - 1 - low, kernel - 1 - high
    if padding.upper() == "SAME":
        total = kernel + stride - 2
        low = kernel - 1 if stride > kernel - 1 else -(-total // 2)
        return low, total - low
    if padding.upper() == "VALID":
        total = kernel + stride - 2 + max(kernel - stride, 0)
        return kernel - 1, total - kernel + 1
    raise UnsupportedError(f"lax.conv_transpose got padding={padding!r}.", "Use 'SAME', 'VALID' or pairs.")
