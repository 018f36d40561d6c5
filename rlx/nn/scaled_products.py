"""Products of arrays of few bits with a scale for each block of elements: MXFP8 and NVFP4.

The elements are multiplied with their scales in float32. MXFP8 is the OCP Microscaling Formats (MX) specification 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.trace.flat import as_array
from rlx.transforms.custom_reverse import custom_vjp

__all__ = [
    "BlockScaleConfig",
    "cast_blocks",
    "get_scaled_dot_general_config",
    "powers_above",
    "scaled_blocks",
    "scaled_dot_general",
    "scaled_matmul",
]

_LEAST_EXPONENT, _GREATEST_EXPONENT = -127, 127  # of a scale of eight exponent bits


@dataclass(frozen=True, eq=False)
class BlockScaleConfig:
    """How an operand is cast to few bits; see `get_scaled_dot_general_config`.

    Args: mode: its name; block_size: how many neighbours share a scale; data_type, scale_type: dtypes of elements and
    scales; global_scale: a float32 number that all are divided by before; infer_only: accepted for JAX compatibility.

    >>> import rlx
    >>> rlx.nn.get_scaled_dot_general_config("mxfp8").block_size
    32
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any = None
    infer_only: bool = False


def get_scaled_dot_general_config(mode: Literal["nvfp4", "mxfp8"], global_scale: Any = None) -> BlockScaleConfig:
    """The description of a cast for `scaled_dot_general`.

    Args:
      mode: "mxfp8": float8_e4m3fn in blocks of 32 with powers of two as scales; "nvfp4": float4_e2m1fn in blocks
        of 16 with scales of float8_e4m3fn.
      global_scale: for "nvfp4", float32 (1,): all elements are divided by it first; 1 by default.

    Raises: ValueError for another mode.

    >>> import rlx
    >>> rlx.nn.get_scaled_dot_general_config("nvfp4").mode
    'nvfp4'
    """
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, jnp.float8_e4m3fn, jnp.float8_e8m0fnu)
    if mode == "nvfp4":
        scale = jnp.ones((1,), np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, jnp.float4_e2m1fn, jnp.float8_e4m3fn, scale)
    raise ValueError(f'scaled_dot_general has no mode {mode!r}: use "mxfp8" or "nvfp4".')


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32
) -> Array:
    """The product of matrices whose elements have scales, one for each block of neighbours.

    Args:
      lhs: (B, M, K).
      rhs: (B, N, K).
      lhs_scales: (B, M, S) where S divides K: each scale belongs to K / S neighbours.
      rhs_scales: (B, N, S).
      preferred_element_type: dtype of the result; sums are in float32.

    Returns: (B, M, N). Raises ShapeError for other shapes.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> a, scale = jnp.array([[[1.0, 2.0, 3.0]]]), jnp.array([[[0.5]]])
    >>> rlx.nn.scaled_matmul(a, a, scale, scale)
    Array([[[3.5]]], dtype=float32)
    """
    a, b, a_scales, b_scales = (as_array(x) for x in (lhs, rhs, lhs_scales, rhs_scales))
    fits = (
        all(x.ndim == 3 for x in (a, b, a_scales, b_scales))
        and (a.shape[0], a.shape[2]) == (b.shape[0], b.shape[2])
        and a_scales.shape[:2] == a.shape[:2]
        and b_scales.shape[:2] == b.shape[:2]
        and a_scales.shape[2] == b_scales.shape[2]
        and (a_scales.shape[2] and a.shape[2] % a_scales.shape[2] == 0)
    )
    if not fits:
        raise ShapeError(
            f"nn.scaled_matmul got {a.shape} and {b.shape} with scales {a_scales.shape} and {b_scales.shape}.",
            "Shapes are (B, M, K), (B, N, K), (B, M, S) and (B, N, S), where S divides K.",
        )
    return _matmul(scaled_blocks(a, a_scales), scaled_blocks(b, b_scales)).astype(preferred_element_type)


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Array:
    """lax.dot_general of operands that are cast to few bits, with a scale per block of the contracted axis.

    Args:
      lhs, rhs: floating arrays.
      dimension_numbers: ((contracted of lhs, of rhs), (batch of lhs, of rhs)), as lax.dot_general's.
      preferred_element_type: dtype of the result; sums are in float32.
      configs: casts of lhs, of rhs and of the result's cotangent; None: lax.dot_general.
      implementation: accepted for JAX compatibility.

    Returns: an array of batch axes, then lhs's others, then rhs's. Derivatives (reverse mode only) treat casts as the
      identity; with "mxfp8" they cast the factors of the backward products, with "nvfp4" they do not.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> configs = [rlx.nn.get_scaled_dot_general_config("mxfp8")] * 3
    >>> x = jnp.ones((2, 64))
    >>> rlx.nn.scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=configs).tolist()
    [[64.0, 64.0], [64.0, 64.0]]
    """
    a, b = as_array(lhs), as_array(rhs)
    if configs is None:
        return lax.dot_general(a, b, dimension_numbers, preferred_element_type=preferred_element_type)
    (a_contracted, b_contracted), (a_batch, b_batch) = dimension_numbers
    batch = tuple(a.shape[i] for i in a_batch)
    left, left_shape = _as_matrices(a, tuple(a_contracted), tuple(a_batch))
    right, right_shape = _as_matrices(b, tuple(b_contracted), tuple(b_batch))
    product = _quantized_product(tuple(configs))(left, right)
    return lax.reshape(product, (*batch, *left_shape, *right_shape)).astype(preferred_element_type)


def _as_matrices(x: Array, contracted: tuple[int, ...], batch: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """The array as (batch, others, contracted), and the shape of the others."""
    contracted, batch = (tuple(i % x.ndim for i in axes) for axes in (contracted, batch))
    others = tuple(i for i in range(x.ndim) if i not in (*contracted, *batch))
    shape = tuple(math.prod(x.shape[i] for i in axes) for axes in (batch, others, contracted))
    moved = lax.transpose(x, (*batch, *others, *contracted))
    return lax.reshape(moved, shape), tuple(x.shape[i] for i in others)


def _quantized_product(configs: tuple[BlockScaleConfig, ...]) -> Any:
    """The product of (B, M, K) and (B, N, K) by casts, differentiable in reverse."""
    of_lhs, of_rhs = configs[:2]
    of_cotangent = configs[2] if len(configs) > 2 else of_lhs

    @custom_vjp
    def product(a: Any, b: Any) -> Any:
        return _matmul(_rounded(a, of_lhs), _rounded(b, of_rhs))

    def forward(a: Any, b: Any) -> Any:
        return product(a, b), (a, b)

    def backward(kept: Any, g: Any) -> Any:
        a, b = kept
        both = ((g, b.mT, of_rhs, a.dtype), (g.mT, a.mT, of_lhs, b.dtype))
        if of_cotangent.mode == "nvfp4":
            return tuple(_matmul(x, y).astype(dtype) for x, y, _, dtype in both)
        return tuple(_matmul(_rounded(x, of_cotangent), _rounded(y, c)).astype(dtype) for x, y, c, dtype in both)

    product.defvjp(forward, backward)
    return product


def _matmul(a: Any, b: Any) -> Array:
    """(B, M, K) and (B, N, K) to (B, M, N), in float32."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    return lax.dot_general(a, b, (((2,), (2,)), ((0,), (0,))))


def scaled_blocks(elements: Array, scales: Array) -> Array:
    """The float32 array that elements (..., K) and scales (..., S) stand for, where S divides K."""
    size = elements.shape[-1] // max(scales.shape[-1], 1)  # rows without elements have no blocks
    return elements.astype(np.float32) * jnp.repeat(scales.astype(np.float32), size, axis=-1)


def _rounded(x: Array, config: BlockScaleConfig) -> Array:
    """An array (..., K) after a cast and the cast back; the last block may be shorter."""
    length, size = x.shape[-1], config.block_size
    value = jnp.pad(x.astype(np.float32), [(0, 0)] * (x.ndim - 1) + [(0, -length % size)])
    shift = 1.0 if config.global_scale is None else as_array(config.global_scale).reshape(())
    elements, scales = cast_blocks(value / shift, config)
    return (scaled_blocks(elements, scales) * shift)[..., :length]


def cast_blocks(value: Array, config: BlockScaleConfig) -> tuple[Array, Array]:
    """Elements (..., K) and scales (..., K / block_size) of a float32 array (..., K); the block divides K."""
    size = config.block_size
    blocks = value.reshape((*value.shape[:-1], value.shape[-1] // size, size))
    largest = float(ml_dtypes.finfo(np.dtype(config.data_type)).max)
    scales = _scales(jnp.max(jnp.abs(blocks), axis=-1) / largest, config)
    divisor = jnp.where(scales.astype(np.float32) == 0, 1, scales.astype(np.float32))[..., None]
    elements = jnp.clip(blocks / divisor, -largest, largest).astype(config.data_type)
    return elements.reshape(value.shape), scales


def _scales(wanted: Array, config: BlockScaleConfig) -> Array:
    """Scales of the dtype in question that are not below those wanted; for floats of eight bits, the nearest ones."""
    if np.dtype(config.scale_type) != np.dtype(jnp.float8_e8m0fnu):
        return jnp.minimum(wanted, float(ml_dtypes.finfo(np.dtype(config.scale_type)).max)).astype(config.scale_type)
    return powers_above(wanted).astype(config.scale_type)


def powers_above(wanted: Array) -> Array:
    """The least powers of two that float8_e8m0fnu has and that are not below the magnitudes; NaN for NaN."""
    fraction, exponent = jnp.frexp(jnp.abs(wanted))
    exponent = jnp.where(fraction == 0.5, exponent - 1, exponent)
    exponent = jnp.clip(jnp.where(wanted == 0, _LEAST_EXPONENT, exponent), _LEAST_EXPONENT, _GREATEST_EXPONENT)
    powers = jnp.ldexp(jnp.ones_like(wanted), exponent)
    return jnp.where(jnp.isnan(wanted), wanted, powers)
