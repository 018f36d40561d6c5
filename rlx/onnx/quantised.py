"""Operators on quantised numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.errors import UnsupportedError
from rlx.onnx.elementwise import converted, dtype_of_number
from rlx.onnx.nodes import Node, operator
from rlx.onnx.windows import convolution
from rlx.quant.arrays import QuantizedArray
from rlx.quant.products import dequant_matmul
from rlx.quant.schemes import QuantScheme

__all__: list[str] = []


def _along(node: Node, values: Any, x: Any) -> Any:
    """Scales or zero points, one per tensor, per slice of an axis, or per block of an axis, as an array like x."""
    values = jnp.asarray(values)
    if values.ndim == 0 or values.size == 1 and not node.get("block_size", 0):
        return values.reshape(())
    axis = node.get("axis", 1) % x.ndim
    if values.ndim == 1 and not node.get("block_size", 0):
        return values.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    block = node.get("block_size", 0) or -(-x.shape[axis] // values.shape[axis])
    return jnp.repeat(values, block, axis=axis)[tuple(slice(0, n) for n in x.shape)]


def _rounded(x: Any, dtype: Any) -> Any:
    """Round and saturate to integers, or to floats of at most eight bits."""
    if jnp.issubdtype(dtype, jnp.floating):
        return converted(x, dtype)
    limits = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x), int(limits.min), int(limits.max)).astype(jnp.int32).astype(dtype)


@operator("QuantizeLinear")
def _quantised(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    if zero is not None:
        dtype = zero.dtype
    else:
        dtype = dtype_of_number(node["output_dtype"]) if node.get("output_dtype") else jnp.dtype(np.uint8)
    wide = jnp.asarray(x).astype(jnp.float32) / _along(node, scale, x).astype(jnp.float32)
    if jnp.issubdtype(dtype, jnp.floating):
        return _rounded(wide, dtype)
    point = 0 if zero is None else _along(node, jnp.asarray(zero).astype(jnp.int32), x)
    return _rounded(jnp.round(wide) + point, dtype)


@operator("DequantizeLinear")
def _dequantised(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    wide = jnp.asarray(x).astype(jnp.float32)
    if zero is not None:
        wide = wide - _along(node, jnp.asarray(zero).astype(jnp.float32), x)
    dtype = dtype_of_number(node["output_dtype"]) if node.get("output_dtype") else scale.dtype
    return (wide * _along(node, scale, x).astype(jnp.float32)).astype(dtype)


@operator("DynamicQuantizeLinear")
def _dynamically(node: Node, x: Any) -> Any:
    low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    scale = ((high - low) / 255).astype(jnp.float32)
    safe = jnp.where(scale == 0, jnp.ones((), jnp.float32), scale)
    zero = jnp.clip(jnp.round(-low / safe), 0, 255)
    return jnp.clip(jnp.round(x / safe) + zero, 0, 255).astype(jnp.uint8), scale, zero.astype(jnp.uint8)


def _centred(x: Any, zero: Any, axis: int) -> Any:
    """int32 numbers without their zero point, which may differ per slice of an axis."""
    wide = jnp.asarray(x).astype(jnp.int32)
    if zero is None:
        return wide
    point = jnp.asarray(zero).astype(jnp.int32)
    if point.ndim == 1 and point.size > 1:
        point = point.reshape([-1 if a == axis % wide.ndim else 1 for a in range(wide.ndim)])
    elif point.size == 1:
        point = point.reshape(())
    return wide - point


@operator("MatMulInteger")
def _integer_product(node: Node, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return jnp.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))


@operator("ConvInteger")
def _integer_convolution(node: Node, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    return _exact_convolution(node, _centred(x, x_zero, 1), _centred(w, w_zero, 0))


def _exact_convolution(node: Node, x: Any, w: Any) -> Any:
    """Exact in int32: computed in float64, which represents all sums of products of bytes."""
    return convolution(node, x.astype(jnp.float64), w.astype(jnp.float64)).astype(jnp.int32)


def _requantised(sums: Any, scale: Any, zero: Any) -> Any:
    return _rounded(jnp.round(sums.astype(jnp.float32) * scale) + jnp.asarray(zero).astype(jnp.int32), zero.dtype)


@operator("QLinearMatMul")
def _quantised_product(node: Node, a: Any, sa: Any, za: Any, b: Any, sb: Any, zb: Any, sy: Any, zy: Any) -> Any:
    sums = jnp.matmul(_centred(a, za, -2), _centred(b, zb, -1))
    scale = (
        jnp.asarray(sa).astype(jnp.float32) * jnp.asarray(sb).astype(jnp.float32) / jnp.asarray(sy).astype(jnp.float32)
    )
    return _requantised(sums, scale.reshape(()) if scale.size == 1 else scale, zy)


@operator("QLinearConv")
def _quantised_convolution(
    node: Node, x: Any, sx: Any, zx: Any, w: Any, sw: Any, zw: Any, sy: Any, zy: Any, bias: Any = None
) -> Any:
    sums = _exact_convolution(node, _centred(x, zx, 1), _centred(w, zw, 0))
    ones = [1] * (sums.ndim - 2)
    if bias is not None:
        sums = sums + jnp.reshape(bias, (1, -1, *ones))
    scale = jnp.asarray(sx) * jnp.asarray(sw) / jnp.asarray(sy)
    return _requantised(sums, scale.reshape(()) if scale.size == 1 else scale.reshape(1, -1, *ones), zy)


@operator("MatMulNBits", domain="com.microsoft")
def _packed_product(
    node: Node, x: Any, packed: Any, scales: Any, zeros: Any = None, group: Any = None, bias: Any = None
) -> Any:
    """onnxruntime's operator: the weight [n, blocks, bytes of a block] stays packed, its scales are [n, blocks]."""
    bits, block, n = node["bits"], node["block_size"], node["N"]
    blocks = -(-node["K"] // block)
    if bits not in (4, 8) or group is not None or node["K"] % block or jnp.issubdtype(jnp.asarray(x).dtype, np.integer):
        raise UnsupportedError(
            f"The node {node.name!r} has weights of {bits} bits, {node['K']} numbers in blocks of {block}"
            f"{', with an order of groups' if group is not None else ''}.",
            "Supported are 4 and 8 bits in whole, consecutive blocks.",
        )
    rows = jnp.asarray(packed).reshape(n, blocks * block * bits // 8)
    factors = jnp.asarray(scales).reshape(n, blocks).astype(jnp.float32)
    if bits == 4 and zeros is None:
        weight = QuantizedArray(rows, factors, None, None, QuantScheme(f"int4/{block}"))
    else:
        codes = rows if bits == 8 else _nibbles(rows, node["K"])
        points = (
            jnp.full((n, blocks), 1 << (bits - 1), jnp.float32) if zeros is None else _points(zeros, n, blocks, bits)
        )
        signed = (codes.astype(jnp.int32) - 128).astype(jnp.int8)
        weight = QuantizedArray(signed, factors, points - 128, None, QuantScheme(f"int8a/{block}"))
    found = dequant_matmul(x, weight)
    return found if bias is None else found + bias


def _nibbles(packed: Any, count: int) -> Any:
    """The first `count` codes of four bits of each row, the first in the low bits."""
    return jnp.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)[:, :count]


def _points(zeros: Any, n: int, blocks: int, bits: int) -> Any:
    """Zero points as float32 [n, blocks]: stored in the scales' dtype, or packed in bytes like codes."""
    given = jnp.asarray(zeros)
    if jnp.issubdtype(given.dtype, jnp.floating):
        return given.reshape(n, blocks).astype(jnp.float32)
    rows = given.reshape(n, -1)
    return (rows if bits == 8 else _nibbles(rows, blocks)).astype(jnp.float32)
