"""Blocks that MLX has a function for: attention, norms, softmax, rotary positions, products with packed weights.

Derivatives use the blocks' equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends.mlx.library import MxArray, mx
from rlx.backends.mlx.packed import PACKED_PRODUCT, fits_packed, packed_product
from rlx.ir.types import TensorType

__all__ = ["BLOCKS", "fits"]

Attributes = Mapping[str, Any]
Types = tuple[TensorType, ...]


def fits(name: str, types: Types, attributes: Attributes) -> bool:
    """Whether MLX's function computes a call of a block, within the last places of its dtype."""
    first = types[0]
    if name in _WITH_RULES:
        return _WITH_RULES[name](types, attributes)
    if first.size == 0 or any(t.dtype != first.dtype for t in types) or first.dtype.name not in _DTYPES:
        return False
    return _FITS[name](types, attributes)


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    return tuple(sorted(a % rank for a in (axis if isinstance(axis, (tuple, list)) else (axis,))))


# ------------------------------------------------------------------ attention
def _attention_fits(types: Types, attributes: Attributes) -> bool:
    query, key = types[0], types[1]
    if attributes["operands"] not in (("query", "key", "value"), ("query", "key", "value", "bias")):
        return False
    if attributes["return_residual"] or attributes["local_window_size"] is not None or query.ndim != 4:
        return False
    if attributes.get("softcap") is not None:
        return False
    if len(types) == 4 and types[3].ndim != 4:
        return False
    # with fewer queries than keys, MLX's causal mask aligns them at the end
    return not attributes["is_causal"] or (query.shape[1] == key.shape[1] and len(types) == 3)


def _attention(operands: Sequence[MxArray], attributes: Attributes) -> MxArray:
    query, key, value = (mx.swapaxes(x, 1, 2) for x in operands[:3])
    scale = attributes["scale"]
    mask = operands[3] if len(operands) == 4 else "causal" if attributes["is_causal"] else None
    mixed = mx.fast.scaled_dot_product_attention(
        query, key, value, scale=1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale), mask=mask
    )
    return mx.swapaxes(mixed, 1, 2)


# ------------------------------------------------------------------ normalisations
def _norm_fits(types: Types, attributes: Attributes) -> bool:
    x, *vectors = types
    last = x.ndim > 0 and _axes(attributes["axis"], x.ndim) == (x.ndim - 1,)
    return last and attributes["operands"][0] == "x" and all(v.shape == x.shape[-1:] for v in vectors)


def _layer_norm(operands: Sequence[MxArray], attributes: Attributes) -> MxArray:
    given = dict(zip(attributes["operands"], operands, strict=True))
    return mx.fast.layer_norm(given["x"], given.get("weight"), given.get("bias"), float(attributes["epsilon"]))


def _rms_norm(operands: Sequence[MxArray], attributes: Attributes) -> MxArray:
    given = dict(zip(attributes["operands"], operands, strict=True))
    return mx.fast.rms_norm(given["x"], given.get("weight"), float(attributes["epsilon"]))


# ------------------------------------------------------------------ softmax
def _softmax_fits(types: Types, attributes: Attributes) -> bool:
    return attributes["operands"] == ("x",) and types[0].ndim > 0


def _softmax(operands: Sequence[MxArray], attributes: Attributes) -> MxArray:
    (x,) = operands
    return mx.softmax(x, axis=_axes(attributes["axis"], x.ndim), precise=True)


def _logsumexp_fits(types: Types, attributes: Attributes) -> bool:
    return attributes["operands"] == ("a",) and not attributes["return_sign"] and types[0].ndim > 0


def _logsumexp(operands: Sequence[MxArray], attributes: Attributes) -> MxArray:
    (a,) = operands
    return mx.logsumexp(a, axis=_axes(attributes["axis"], a.ndim), keepdims=attributes["keepdims"])


# ------------------------------------------------------------------ rotary positions
def _rotary_fits(types: Types, attributes: Attributes) -> bool:
    """Rotary positions, if they are consecutive: MLX computes the angles from the first one and the frequencies."""
    if attributes["operands"] != ("x", "cosines", "sines", "starts", "frequencies"):
        return False
    x, cosines, _, starts, frequencies = types
    return (
        x.dtype == cosines.dtype == frequencies.dtype == np.float32
        and starts.dtype.kind == "i"
        and x.ndim == 4
        and x.size > 0
        and starts.shape == x.shape[:1]
        and cosines.shape == (x.shape[0], x.shape[2], *frequencies.shape)
        and 0 < 2 * frequencies.size <= x.shape[-1]
    )


def _rotary(operands: Sequence[MxArray], attributes: Attributes) -> MxArray:
    x, _, _, starts, frequencies = operands
    dims, factor = 2 * frequencies.size, attributes["factor"]
    if factor != 1.0:
        x = mx.concatenate([x[..., :dims] * factor, x[..., dims:]], axis=-1)
    return mx.fast.rope(
        x,
        dims,
        traditional=attributes["interleaved"],
        base=None,
        scale=1.0,
        offset=starts,
        freqs=mx.reciprocal(frequencies),  # MLX divides by these numbers
    )


# ------------------------------------------------------------------ convolutions
def _convolution_fits(types: Types, attributes: Attributes) -> bool:
    lhs, rhs = types
    return (
        lhs.dtype == np.float32
        and 3 <= lhs.ndim <= (5 if attributes["feature_group_count"] == 1 else 4)
        and attributes["batch_group_count"] == 1
        and all(min(pair) >= 0 for pair in attributes["padding"])
        and 0 not in (*lhs.shape, *rhs.shape)
    )


def _convolution(operands: Sequence[MxArray], attributes: Attributes) -> MxArray:
    """A convolution by MLX, which needs features last; views reorder the axes."""
    lhs, rhs = (
        mx.transpose(x, (spec[0], *spec[2:], spec[1]))
        for x, spec in zip(operands, (attributes["lhs_spec"], attributes["rhs_spec"]), strict=True)
    )
    low, high = zip(*attributes["padding"], strict=True)
    found = mx.conv_general(
        lhs,
        rhs,
        stride=attributes["window_strides"],
        padding=(low, high),
        kernel_dilation=attributes["rhs_dilation"],
        input_dilation=attributes["lhs_dilation"],
        groups=attributes["feature_group_count"],
    )
    batch, feature, *spatial = attributes["out_spec"]
    return mx.transpose(found, np.argsort((batch, *spatial, feature)).tolist())


_DTYPES = frozenset(("float32", "float16", "bfloat16"))  # in float64 all of them have float32's precision
_FITS: dict[str, Callable[[Types, Attributes], bool]] = {
    "dot_product_attention": _attention_fits,
    "layer_norm": _norm_fits,
    "rms_norm": _norm_fits,
    "softmax": _softmax_fits,
    "logsumexp": _logsumexp_fits,
}
_WITH_RULES: dict[str, Callable[[Types, Attributes], bool]] = {
    "convolution": _convolution_fits,
    PACKED_PRODUCT: fits_packed,
    "rotate_pairs": _rotary_fits,
}
BLOCKS: dict[str, Callable[[Sequence[MxArray], Attributes], MxArray]] = {
    "dot_product_attention": _attention,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "convolution": _convolution,
    PACKED_PRODUCT: packed_product,
    "rotate_pairs": _rotary,
}
