"""Quantised scales: eight bits each, with a scale per block and one mean.

Dettmers, Pagnoni, Holtzman, Zettlemoyer: QLoRA, section 3; the levels are the dynamic tree of Dettmers, Lewis,
Shleifer, Zettlemoyer: 8-bit Optimizers via Block-wise Quantization, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array
from rlx.trees.tree import register_dataclass

__all__ = ["LEAST_SCALE", "LEVELS", "QuantizedScales", "quantized_scales"]

LEAST_SCALE = float(np.finfo(np.float32).tiny)  # of all schemes with float32 scales: quotients stay normal numbers
_EXPONENTS = 7


def _tree_levels() -> np.ndarray:
    """Numbers from -0.993 to 1: for each power of ten as many as the bits that its exponent leaves."""
    positive = []
    for exponent in range(_EXPONENTS):
        ends = np.linspace(0.1, 1, 2**exponent + 1)
        positive.append(10.0 ** (exponent + 1 - _EXPONENTS) * (ends[:-1] + ends[1:]) / 2)
    found = np.concatenate(positive)
    return np.sort(np.concatenate([-found, [0.0, 1.0], found])).astype(np.float32)


LEVELS = _tree_levels()


@dataclass(frozen=True)
class QuantizedScales:
    """Scales of a QuantizedArray in eight bits: LEVELS[codes] * largest of a block + mean.

    Attributes:
      codes: uint8, of the scales' shape.
      largest: float32 [blocks], one per block of the flattened scales.
      mean: float32 number, of all scales.

    >>> import numpy as np
    >>> from rlx import quant
    >>> w = quant.double_quantize(quant.quantize(np.eye(512, dtype=np.float32), "nf4/64"))
    >>> w.scales.shape, w.scales.nbytes
    ((512, 8), 4164)
    """

    codes: Any
    largest: Any
    mean: Any
    block: int = field(default=256, metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the scales."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """The bytes of its leaves."""
        return self.codes.nbytes + self.largest.nbytes + self.mean.nbytes

    def decode(self) -> Array:
        """The scales, as float32."""
        count = self.codes.size
        largest = jnp.repeat(self.largest, self.block)[:count].reshape(self.codes.shape)
        return jnp.asarray(LEVELS)[self.codes.astype(np.int32)] * largest + self.mean


register_dataclass(QuantizedScales)


def quantized_scales(scales: Array, block: int) -> QuantizedScales:
    """Float32 scales in eight bits; `block` scales share one scale."""
    flat = scales.reshape(-1)
    mean = jnp.mean(flat)
    rest = jnp.pad(flat - mean, (0, -flat.size % block)).reshape(-1, block)
    largest = jnp.max(jnp.abs(rest), axis=1)
    scaled = rest / jnp.where(largest == 0, 1, largest)[:, None]
    middles = (LEVELS[1:] + LEVELS[:-1]) / 2
    codes = jnp.searchsorted(middles, scaled.reshape(-1)[: flat.size]).astype(np.uint8)
    return QuantizedScales(codes.reshape(scales.shape), largest, mean, block)
