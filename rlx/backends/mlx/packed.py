"""Products with matrices that stay packed: the block `dequantized_product` by mx.quantized_matmul.

MLX has a scale and an offset for each group of unsigned codes, in words of 32 bits with the first code in the lowest
bits. Codes of four bits have the same layout here; codes of eight bits are signed, so their highest bit is inverted.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.mlx.border import from_host
from rlx.backends.mlx.library import MxArray, at_work, mx
from rlx.ir.kernels import Buffer, Kernel, Library, Operand
from rlx.ir.types import TensorType

__all__ = ["PACKED_PRODUCT", "fits_packed", "packed_product", "with_packed_constants"]

PACKED_PRODUCT = "dequantized_product"
_GROUPS = frozenset((32, 64, 128))  # the group sizes of mx.quantized_matmul in mode "affine"
_GLOBAL = "global_scale"  # the optional operand after the weight's
_READY = "packed"  # the attribute of products whose weight has MLX's layout


class _PackedLayout(NamedTuple):
    """MLX's parameters for a scheme. middle: the unsigned code that represents zero."""

    mode: str
    bits: int
    group: int
    middle: int
    scales: str  # their dtype
    zeros: bool = False


def _layout(scheme: str) -> _PackedLayout | None:
    """The layout of a scheme; None if MLX has no equivalent."""
    kind, _, block = scheme.partition("/")
    group = int(block) if block.isdecimal() else 0
    if scheme in ("mxfp4/32", "nvfp4/16"):
        scales = "float8_e8m0fnu" if kind == "mxfp4" else "float8_e4m3fn"
        return _PackedLayout(kind, 4, group, 0, scales)
    if kind not in ("int4", "int8", "int8a") or group not in _GROUPS:
        return None
    bits = 4 if kind == "int4" else 8
    return _PackedLayout("affine", bits, group, 1 << (bits - 1), "float32", kind == "int8a")


def fits_packed(types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> bool:
    """Whether MLX has the scheme and supports the operands."""
    layout = _layout(attributes["scheme"])
    if layout is None:
        return False
    wanted = ("x", "elements", "scales", "zeros")[: 3 + layout.zeros]
    if attributes["operands"] not in (wanted, (*wanted, _GLOBAL)) or len(types) != len(attributes["operands"]):
        return False
    x, elements, scales = types[:3]
    rows, nbytes = elements.shape
    length = nbytes * 8 // layout.bits
    groups = (rows, length // layout.group)
    return (
        x.dtype == np.float32
        and elements.dtype.itemsize == 1
        and scales.dtype.name == layout.scales
        and x.shape[1] == length
        and length % layout.group == 0
        and all(t.shape == groups for t in types[2 : len(wanted)])
        and 0 not in (*x.shape, rows)
    )


def packed_product(operands: Sequence[MxArray], attributes: Mapping[str, Any]) -> MxArray:
    """x @ decoded.T."""
    layout = _layout(attributes["scheme"])
    assert layout is not None
    x, *weight = operands
    factor = weight.pop() if _GLOBAL in attributes["operands"] else None
    words, scales, *offsets = weight if attributes.get(_READY) else _packed(weight, layout)
    biases = offsets[0] if offsets else None
    found = mx.quantized_matmul(x, words, scales, biases, group_size=layout.group, bits=layout.bits, mode=layout.mode)
    return found if factor is None else found * factor


def _packed(weight: Sequence[MxArray], layout: _PackedLayout) -> list[MxArray]:
    """Words, scales and (of integers) offsets, of elements, scales and zeros."""
    elements, scales, *zeros = weight
    codes = mx.view(elements, mx.uint8)
    if layout.bits == 8:
        codes = mx.bitwise_xor(codes, mx.array(layout.middle, mx.uint8))
    words = mx.view(codes, mx.uint32)
    if layout.mode != "affine":
        return [words, scales]
    return [words, scales, -scales * (zeros[0] + float(layout.middle) if zeros else float(layout.middle))]


def with_packed_constants(kernel: Kernel, constants: MutableMapping[Buffer, MxArray]) -> Kernel:
    """A product with its constant weight in MLX's layout among the constants; other kernels are unchanged."""
    if not isinstance(kernel, Library) or kernel.routine != PACKED_PRODUCT:
        return kernel
    x, *weight = kernel.inputs
    factor = [weight.pop()] if _GLOBAL in kernel.attributes["operands"] else []
    if any(operand.buffer.role != "constant" for operand in weight):
        return kernel
    layout = _layout(kernel.attributes["scheme"])
    assert layout is not None
    with at_work():
        given = [mx.reshape(from_host(o.buffer.elements), o.shape) for o in weight]
        arrays = _packed(given, layout)
        mx.eval(*arrays)
    made = [_constant(array) for array in arrays]
    constants.update((operand.buffer, array) for operand, array in zip(made, arrays, strict=True))
    return replace(kernel, inputs=(x, *made, *factor), attributes={**kernel.attributes, _READY: True})


def _constant(array: MxArray) -> Operand:
    """An operand for a whole array of the backend."""
    dtype = np.asarray(array).dtype
    rows, columns = array.shape
    return Operand(Buffer(dtype, array.size, "constant"), array.shape, (columns, 1))
