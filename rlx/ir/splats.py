"""The blocks that draw splats, for the devices that claim them: their operands, a splat's numbers, and its limits.

The meaning of the blocks is in rlx/splat/rasterise.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.kernels import Library
from rlx.ir.types import TensorType

__all__ = [
    "COLOUR", "LARGEST_ALPHA", "LEAST_ALPHA", "LEAST_TRANSMITTANCE", "MOMENTS", "PERSPECTIVE", "RASTERISE",
    "SPLAT_BLOCKS", "SplatLayout", "moments", "row_cotangents", "splat_layout", "takes_splats",
]  # fmt: skip

RASTERISE = "splat_rasterise"
SPLAT_BLOCKS = frozenset({RASTERISE, "splat_rasterise_gradient"})
COLOUR = 6  # the first channel in a splat's numbers
PERSPECTIVE = 5  # numbers
MOMENTS = 6  # 1, x, y, x^2, x y, y^2
LARGEST_ALPHA = 0.99
LEAST_ALPHA = 1 / 255
LEAST_TRANSMITTANCE = 1e-4


class SplatLayout(NamedTuple):
    """dtype: float32 or float64; tile: its side; channels: of colours; perspective: whether splats have it."""

    dtype: np.dtype
    tile: int
    channels: int
    perspective: bool

    @property
    def numbers(self) -> int:
        """Of a splat."""
        return COLOUR + self.channels + PERSPECTIVE * self.perspective

    @property
    def pixels(self) -> int:
        """Of a tile."""
        return self.tile * self.tile

    @property
    def sums(self) -> int:
        """Over the pixels of a tile, for the derivative of one splat."""
        return self.channels + MOMENTS * (1 + self.perspective)


def splat_layout(kernel: Library) -> SplatLayout:
    """The layout of a block's splats."""
    tile, channels = kernel.attributes["tile"], kernel.attributes["channels"]
    splats = kernel.inputs[0]
    return SplatLayout(splats.buffer.dtype, tile, channels, splats.shape[1] > COLOUR + channels)


def takes_splats(name: str, types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> bool:
    """Whether the operands of a call of a block are of the kinds that native code is for."""
    assert name in SPLAT_BLOCKS
    given = types[: len(attributes["operands"])]  # constants of the block's equations follow
    reals = {t.dtype for t in given if t.dtype.kind == "f"}
    integers = {t.dtype for t in given if t.dtype.kind != "f"}
    return (
        reals in ({np.dtype("f4")}, {np.dtype("f8")})
        and integers == {np.dtype("i4")}
        and not any(0 in t.shape for t in given)
    )


def moments(weight: Any, x: Any, y: Any) -> list[Any]:
    """A weight times 1, x, y, x^2, x y, y^2."""
    across, down = weight * x, weight * y
    return [weight, across, down, across * x, across * y, down * y]


def row_cotangents(layout: SplatLayout, numbers: Sequence[Any], totals: Sequence[Any]) -> list[Any]:
    """The cotangents of a splat's numbers, from the sums over pixels: values of any kind with operators.

    totals: of the weights of colours; of the moments of the opacity's cotangent, where the moments of exact rays have
    the divisor in the weight; and of the moments of that weight times the exponent.
    """
    channels = layout.channels
    a, b, c, opacity = numbers[2:COLOUR]
    one, x, y, xx, xy, yy = totals[channels : channels + MOMENTS]
    mean_x, mean_y = opacity * (a * x + b * y), opacity * (b * x + c * y)
    perspective: list[Any] = []
    if layout.perspective:
        e, f, g, h, k = numbers[COLOUR + channels :]
        bent = [total * opacity for total in totals[channels + MOMENTS :]]
        mean_x = mean_x - (e * bent[0] + g * bent[1] + h * bent[2]) * 2.0
        mean_y = mean_y - (f * bent[0] + h * bent[1] + k * bent[2]) * 2.0
        perspective = [bent[1] * 2.0, bent[2] * 2.0, bent[3], bent[4] * 2.0, bent[5]]
    conic = [opacity * xx * -0.5, -(opacity * xy), opacity * yy * -0.5]
    return [mean_x, mean_y, *conic, one, *totals[:channels], *perspective]
