"""Casts to eight bits with a scale for each block of elements.

A dtype of eight bits has little range, so a block of neighbours shares a scale. With powers of two this
is the OCP Microscaling Formats (MX) specification 1.0, section 6.3: blocks of 32, scales of eight
exponent bits (E8M0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import RlxError
from rlx.trace.flat import as_array
from rlx.transforms.custom import custom_jvp

__all__ = ["BlockScaled", "CastConfig"]

_DTYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")
_LEAST_EXPONENT, _GREATEST_EXPONENT = -127, 127  # of an E8M0 scale


class BlockScaled(NamedTuple):
    """Elements of eight bits in the original shape, and one float32 scale per block.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> cast = rlx.precision.CastConfig("float8_e4m3fn", block=2).quantize(jnp.ones((2, 32)))
    >>> cast.elements.shape, cast.scales.shape
    ((2, 32), (2, 16))
    """

    elements: Array
    scales: Array


@dataclass(frozen=True)
class CastConfig:
    """A cast from float32 to eight bits: the dtype, the block size, and the kind of scale.

    Args:
      dtype: name of a float of eight bits.
      block: the number of neighbours along an axis that share a scale; the last block may be shorter.
      power_of_two: scales are powers of two (MX), and elements out of range saturate; otherwise the
        largest element of a block becomes the largest number of the dtype.

    Raises: RlxError for another dtype or a block below 1.

    >>> import rlx.numpy as jnp
    >>> config = CastConfig("float8_e4m3fn", block=2)
    >>> found = config.quantize(jnp.array([1.0, 1000.0, 1e-6, 2e-6]))
    >>> found.elements.dtype.name, found.scales
    ('float8_e4m3fn', Array([2.000000e+00, 7.450581e-09], dtype=float32))
    >>> config.dequantize(found)
    Array([1.0000000e+00, 8.9600000e+02, 9.5367432e-07, 1.9073486e-06], dtype=float32)
    """

    dtype: str = "float8_e4m3fn"
    block: int = 32
    power_of_two: bool = True

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES or not isinstance(self.block, int) or self.block < 1:
            raise RlxError(f"{self} is not a cast.", f"dtype is one of {', '.join(_DTYPES)}; block is at least 1.")

    @property
    def largest(self) -> float:
        """The largest element of the dtype."""
        return float(ml_dtypes.finfo(self.dtype).max)

    def quantize(self, x: Any, axis: int = -1) -> BlockScaled:
        """Elements and scales of a float32 array; blocks run along `axis`. A block with NaN or inf has scale NaN."""
        value = as_array(x, "what is cast").astype(jnp.float32)
        moved = jnp.moveaxis(value, axis, -1)
        blocks = self._blocks(moved)
        scales = self._scales(jnp.max(jnp.abs(blocks), axis=-1, initial=0.0))
        scaled = jnp.clip(blocks / scales[..., None], -self.largest, self.largest).astype(self.dtype)
        elements = scaled.reshape((*moved.shape[:-1], -1))[..., : moved.shape[-1]]
        return BlockScaled(jnp.moveaxis(elements, -1, axis), jnp.moveaxis(scales, -1, axis))

    def dequantize(self, cast: BlockScaled, axis: int = -1) -> Array:
        """The float32 array that elements and scales represent."""
        moved = jnp.moveaxis(cast.elements, axis, -1).astype(jnp.float32)
        scales = jnp.repeat(jnp.moveaxis(cast.scales, axis, -1), self.block, axis=-1)[..., : moved.shape[-1]]
        return jnp.moveaxis(moved * scales, -1, axis)

    def rounded(self, x: Any, axis: int = -1) -> Array:
        """The float32 array after a cast and back. Its derivative is the identity's (straight-through)."""

        @custom_jvp
        def through(value: Any) -> Any:
            return self.dequantize(self.quantize(value, axis), axis)

        through.defjvp(lambda primals, tangents: (through(*primals), tangents[0]))
        return through(x)

    def _blocks(self, value: Array) -> Array:
        """The last axis split into blocks; a short one is padded with zeros."""
        missing = -value.shape[-1] % self.block
        padded = jnp.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, missing)]) if missing else value
        return padded.reshape((*value.shape[:-1], padded.shape[-1] // self.block, self.block))

    def _scales(self, largest: Array) -> Array:
        """Scales of blocks by their largest elements; 1 for a block of zeros."""
        if self.power_of_two:
            exponents = jnp.frexp(largest)[1] - int(np.frexp(self.largest)[1])
            exponents = jnp.clip(exponents, _LEAST_EXPONENT, _GREATEST_EXPONENT)
            scales = jnp.ldexp(jnp.ones_like(largest), exponents)
        else:
            scales = largest / self.largest
        scales = jnp.where(scales > 0, scales, 1.0)  # for zeros, and for elements too small to scale
        return jnp.where(jnp.isfinite(largest), scales, jnp.nan)
