"""Quantised arrays: codes, scales and zero points of a weight, and how they are made and read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, OptionError, ShapeError, warn
from rlx.gguf.blocks import dequantize as decode_gguf
from rlx.gguf.blocks import quantize as encode_gguf
from rlx.gguf.types import StorageType
from rlx.nn.scaled_products import BlockScaleConfig, cast_blocks, scaled_blocks
from rlx.quant.scales import LEAST_SCALE, QuantizedScales, quantized_scales
from rlx.quant.schemes import QuantScheme, scheme_of
from rlx.trace.builder import is_traced
from rlx.trace.flat import as_array
from rlx.trees.tree import register_dataclass

__all__ = ["NF4_LEVELS", "QuantizedArray", "decode", "dequantize", "double_quantize", "quantize", "unpaired"]

NF4_LEVELS = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
], np.float32)  # fmt: skip
_LARGEST_MXFP4 = 3 * 2.0**126
_FLOATS = {"fp8e4m3": jnp.float8_e4m3fn, "fp8e5m2": jnp.float8_e5m2}
_MIXED = {
    "mxfp4": BlockScaleConfig("mxfp4", 32, jnp.float4_e2m1fn, jnp.float8_e8m0fnu),
    "nvfp4": BlockScaleConfig("nvfp4", 16, jnp.float4_e2m1fn, jnp.float8_e4m3fn),
}


@dataclass(frozen=True)
class QuantizedArray:
    """A quantised matrix or stack of matrices: the result of `quantize` and an operand of `dequant_matmul`.

    It is a node of pytrees whose leaves are arrays, so that it can be an argument of compiled functions.

    Attributes:
      elements: codes of shape [..., bytes of a row]: the blocked axis is last.
      scales, zeros: [..., blocks of a row], or None; scales may be QuantizedScales.
      global_scale: of "nvfp4", a float32 number that everything is multiplied with, or None.
      scheme: its QuantScheme.
      axis: which axis of the array that it stands for is cut into blocks: -1 or -2.

    >>> import numpy as np
    >>> from rlx import quant
    >>> w = quant.quantize(np.ones((64, 3), np.float32), "int4/32", axis=0)
    >>> w.shape, w.elements.shape, w.scales.shape
    ((64, 3), (3, 32), (3, 2))
    """

    elements: Any
    scales: Any
    zeros: Any
    global_scale: Any
    scheme: QuantScheme = field(metadata={"static": True})
    axis: int = field(default=-1, metadata={"static": True})

    @property
    def length(self) -> int:
        """Elements along the blocked axis."""
        last = self.elements.shape[-1]
        block = self.scheme.block_size
        return last * block // self.scheme.row_bytes(block) if block > 1 else last * 8 // self.scheme.code_bits

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array that it stands for."""
        *rest, last = (*self.elements.shape[:-1], self.length)
        return (*rest, last) if self.axis == -1 else (*rest[:-1], last, rest[-1])

    @property
    def ndim(self) -> int:
        """Its number of axes."""
        return len(self.elements.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its leaves."""
        leaves = (self.elements, self.scales, self.zeros, self.global_scale)
        return sum(leaf.nbytes for leaf in leaves if leaf is not None)

    @property
    def plain_scales(self) -> Any:
        """The scales as an array, or None."""
        return self.scales.decode() if isinstance(self.scales, QuantizedScales) else self.scales

    def __repr__(self) -> str:
        return f"QuantizedArray({self.scheme}, {list(self.shape)})"


register_dataclass(QuantizedArray)


def quantize(array: Any, scheme: QuantScheme | StorageType | str, axis: int = -1) -> QuantizedArray:
    """An array in the codes of a scheme.

    Args:
      array: floating numbers of shape [..., k] or, with axis -2, [..., k, n]; it may be traced, for
        GGUF's types Q8_0 and Q4_0, and all that are not GGUF's.
      scheme: a QuantScheme or its name.
      axis: the axis of the blocks, which is the contracted axis of products. For a matrix, 0 means -2.

    Returns a QuantizedArray. Scales are max|x| / q_max of a block, at least the smallest normal float32, and codes are
    rounded to the nearest, ties to even. A block with a NaN or an infinity stands for NaNs; in "fp8e4m3" and
    "fp8e5m2" only these elements do. The two have no scales: larger numbers than theirs become the largest, with a
    RuntimeWarning if the array is not traced.

    Raises OptionError for an unknown scheme, ShapeError if the axis is not a multiple of the block, DtypeError for an
    array that is not floating, DtypeOverflowError for a NaN, an infinity or too large numbers in GGUF's types.

    >>> import numpy as np
    >>> from rlx import quant
    >>> w = quant.quantize(np.array([[127.0, -64.0]], np.float32), "int8/2")
    >>> np.asarray(w.elements).tolist(), np.asarray(w.scales).tolist()
    ([[127, -64]], [[1.0]])
    """
    scheme = scheme_of(scheme)
    value = as_array(array, "what is quantised") if not isinstance(array, np.ndarray) else array
    axis = _blocked_axis(value.ndim, axis)
    if value.dtype.kind != "f" and value.dtype != jnp.bfloat16:
        raise DtypeError(f"quantize got an array of {value.dtype}.", "Give an array of floating numbers.")
    block = scheme.block_size
    if value.shape[axis] % block:
        raise ShapeError(
            f"Axis {axis} of {list(value.shape)} is not a multiple of {block}, the block of {scheme}.",
            "Pad the axis with zeros, or choose another block.",
        )
    if scheme.storage in _TRACED and is_traced(value):
        rows = value.astype(np.float32)
        rows = rows if axis == -1 else jnp.swapaxes(rows, -1, -2)
        blocks = _TRACED[scheme.storage](rows.reshape(*rows.shape[:-1], rows.shape[-1] // block, block))
        packed = blocks.reshape(*rows.shape[:-1], scheme.row_bytes(rows.shape[-1]))
        return QuantizedArray(packed, None, None, None, scheme, axis)
    if scheme.storage is not None:
        rows = np.asarray(value)
        packed = encode_gguf(rows if axis == -1 else np.swapaxes(rows, -1, -2), scheme.storage)
        return QuantizedArray(jnp.asarray(packed), None, None, None, scheme, axis)
    rows = jnp.asarray(value).astype(np.float32)
    rows = rows if axis == -1 else jnp.swapaxes(rows, -1, -2)
    return QuantizedArray(*_encode(rows, scheme), scheme, axis)


def dequantize(array: QuantizedArray) -> Array:
    """The float32 array that a quantised array represents.

    >>> import numpy as np
    >>> from rlx import quant
    >>> quant.dequantize(quant.quantize(np.eye(32, dtype=np.float32), "int8/32"))[0, :2]
    Array([1., 0.], dtype=float32)
    """
    found = decode(array.elements, array.plain_scales, array.zeros, array.scheme)
    if array.global_scale is not None:
        found = found * array.global_scale
    return found if array.axis == -1 else jnp.swapaxes(found, -1, -2)


def double_quantize(array: QuantizedArray, block: int = 256) -> QuantizedArray:
    """A quantised array with 8-bit scales, as in QLoRA for "nf4/64": 4.127 bits per number instead of 4.5.

    Products decode the scales first, and take the codes as they are.

    Args:
      array: with float32 scales: "int8", "int4", "nf4".
      block: how many scales share one of theirs.

    Raises OptionError for an array without such scales, and for a block below 1.

    >>> import numpy as np
    >>> from rlx import quant
    >>> w = quant.quantize(np.ones((4, 64), np.float32), "nf4/64")
    >>> quant.dequantize(quant.double_quantize(w))[0, :2]
    Array([1., 1.], dtype=float32)
    """
    scales = array.scales
    if isinstance(scales, QuantizedScales) or scales is None or scales.dtype != np.float32:
        kind = "none" if scales is None else "some of eight bits"
        raise OptionError(
            f"double_quantize got an array of {array.scheme}, with scales: {kind}.", "Give one of int8, int4 or nf4."
        )
    if block < 1:
        raise OptionError(f"double_quantize got blocks of {block} scales.", "Choose 1 or more; QLoRA has 256.")
    return replace(array, scales=quantized_scales(jnp.asarray(scales), block))


def _blocked_axis(rank: int, axis: int) -> int:
    """The axis as -1 or -2."""
    found = axis - rank if axis >= 0 else axis
    if rank < 1 or found not in (-1, -2) or found < -rank:
        raise ShapeError(
            f"Blocks along axis {axis} of an array of {rank} axes: products sum over one of the last two.",
            "Choose axis=-1 or axis=-2.",
        )
    return found


# ---------------------------------------------------------------- rows of numbers to rows of codes, and back
def _encode(rows: Array, scheme: QuantScheme) -> tuple[Any, Any, Any, Any]:
    """Elements, scales, zeros and global scale of rows [..., k]."""
    kind = scheme.kind
    rows = jnp.where(jnp.isinf(rows), np.float32(np.nan), rows)
    if kind in _FLOATS:
        largest = float(jnp.finfo(_FLOATS[kind]).max)
        _report_saturation(rows, largest, scheme)
        return jnp.clip(rows, -largest, largest).astype(_FLOATS[kind]), None, None, None
    if kind in _MIXED:
        over = None
        if kind == "nvfp4":  # so that the largest block's scale is the largest that a scale can be
            known = jnp.where(jnp.isnan(rows), 0, jnp.abs(rows))
            over = jnp.maximum(jnp.max(known, initial=0) / np.float32(6 * 448), np.float32(LEAST_SCALE))
            rows = rows / over
        else:  # the next number, 4 * 2**126, is not a float32
            rows = jnp.clip(rows, -_LARGEST_MXFP4, _LARGEST_MXFP4)
        elements, scales = cast_blocks(rows, _MIXED[kind])
        codes = lax.bitcast_convert_type(elements, jnp.uint4).astype(np.uint8)
        return _pairs(codes), scales, None, over
    blocks = rows.reshape((*rows.shape[:-1], rows.shape[-1] // scheme.block_size, scheme.block_size))
    if kind == "int8a":
        low, high = (jnp.minimum(jnp.min(blocks, -1), 0), jnp.maximum(jnp.max(blocks, -1), 0))
        scales = jnp.maximum((high - low) / np.float32(255), np.float32(LEAST_SCALE))
        zeros = jnp.clip(jnp.rint(-128 - low / scales), -128, 127)
        codes = jnp.clip(jnp.rint(blocks / scales[..., None]) + zeros[..., None], -128, 127)
        return codes.astype(np.int8).reshape(rows.shape), scales, zeros, None
    largest = {"int8": 127, "int4": 7, "nf4": 1}[kind]
    scales = jnp.maximum(jnp.max(jnp.abs(blocks), axis=-1) / np.float32(largest), np.float32(LEAST_SCALE))
    scaled = blocks / scales[..., None]
    if kind == "nf4":
        middles = (NF4_LEVELS[1:] + NF4_LEVELS[:-1]) / 2
        codes = jnp.sum(scaled[..., None] > middles, axis=-1).astype(np.uint8)
        return _pairs(codes.reshape(rows.shape), high_first=True), scales, None, None
    codes = jnp.clip(jnp.rint(scaled), -largest, largest).astype(np.int8).reshape(rows.shape)
    return (codes if kind == "int8" else _pairs((codes + 8).astype(np.uint8))), scales, None, None


def _report_saturation(rows: Array, largest: float, scheme: QuantScheme) -> None:
    """Warn of numbers beyond the largest one; traced numbers are not known."""
    if is_traced(rows):
        return
    beyond = int(jnp.sum(jnp.abs(rows) > largest))
    if beyond:
        warn(
            f"{beyond} numbers are larger than {largest:g}, the largest of {scheme}, and become this number.",
            RuntimeWarning,
        )


def _half_bytes(scales: Array) -> Array:
    return lax.bitcast_convert_type(scales.astype(np.float16), np.uint8).reshape(*scales.shape[:-1], 2)


def _q8_0(blocks: Array) -> Array:
    """Blocks [..., 32] as bytes [..., 34]; rlx.gguf.quantize computes the same bytes for concrete arrays."""
    scale = jnp.max(jnp.abs(blocks), axis=-1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scale)
    whole = jnp.trunc(scaled)
    away = whole + jnp.where(jnp.abs(scaled - whole) >= 0.5, jnp.sign(scaled), 0)
    codes = lax.bitcast_convert_type(away.astype(np.int8), np.uint8)
    return jnp.concatenate([_half_bytes(scale), codes], axis=-1)


def _q4_0(blocks: Array) -> Array:
    """Blocks [..., 32] as bytes [..., 18]."""
    largest = jnp.argmax(jnp.abs(blocks), axis=-1, keepdims=True)
    scale = jnp.take_along_axis(blocks, largest, axis=-1) / np.float32(-8)
    codes = jnp.clip(jnp.trunc(blocks * _inverse(scale) + np.float32(8.5)), 0, 15).astype(np.uint8)
    return jnp.concatenate([_half_bytes(scale), codes[..., :16] | (codes[..., 16:] << 4)], axis=-1)


def _inverse(scale: Array) -> Array:
    """1 / scale, and 0 for 0."""
    return jnp.where(scale == 0, 0, 1 / jnp.where(scale == 0, 1, scale)).astype(np.float32)


_TRACED = {StorageType.Q8_0: _q8_0, StorageType.Q4_0: _q4_0}


def decode(elements: Any, scales: Any, zeros: Any, scheme: QuantScheme) -> Array:
    """Rows of float32 numbers, of rows of codes; a global scale is left to the caller."""
    kind = scheme.kind
    if scheme.storage is not None:
        return decode_gguf(elements, scheme.storage)
    if kind in _FLOATS:
        return elements.astype(np.float32)
    if kind in _MIXED:
        numbers = lax.bitcast_convert_type(unpaired(elements).astype(jnp.uint4), jnp.float4_e2m1fn)
    elif kind == "nf4":
        numbers = jnp.asarray(NF4_LEVELS)[unpaired(elements, high_first=True).astype(np.int32)]
    elif kind == "int4":
        numbers = unpaired(elements).astype(np.float32) - 8
    else:
        numbers = elements.astype(np.float32)
        if zeros is not None:
            numbers = numbers - jnp.repeat(zeros, scheme.block_size, axis=-1)
    return scaled_blocks(numbers, scales)


def _pairs(codes: Array, high_first: bool = False) -> Array:
    """Codes of four bits [..., k] as bytes [..., k / 2]."""
    first, second = codes[..., 0::2], codes[..., 1::2]
    return (first << 4) | second if high_first else first | (second << 4)


def unpaired(packed: Array, high_first: bool = False) -> Array:
    """Bytes as codes of four bits [..., k], one for each byte of the result."""
    parts = (packed >> 4, packed & 15) if high_first else (packed & 15, packed >> 4)
    return jnp.stack(parts, axis=-1).reshape((*packed.shape[:-1], 2 * packed.shape[-1]))
