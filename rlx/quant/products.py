"""Products with quantised matrices, which backends may compute without decoding them as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, InputTypeError, OptionError, ShapeError
from rlx.quant.arrays import QuantizedArray, decode
from rlx.quant.integer_products import check_integer, integer_product
from rlx.quant.schemes import QuantScheme
from rlx.trace.flat import as_array
from rlx.trace.replay import block
from rlx.transforms.custom import custom_jvp

__all__ = ["dequant_matmul", "dequantized_product"]


def _batched_rows(
    function: Callable[..., Any], inputs: Sequence[Any], dims: Sequence[int | None], attributes: Mapping[str, Any]
) -> Any:
    """The batching rule: a batch of x is more rows."""
    if dims[0] is None or any(dim is not None for dim in dims[1:]):
        return None
    x = jnp.moveaxis(inputs[0], dims[0], 0)
    # behind its operands a block has the constants of its equations
    given = dict(zip(attributes["operands"], (x.reshape(-1, x.shape[-1]), *inputs[1:]), strict=False))
    found = function(**given, scheme=attributes["scheme"])
    return (found.reshape(*x.shape[:-1], found.shape[-1]),), (0,)


@block(_batched_rows)
def dequantized_product(
    x: Any, elements: Any, scales: Any = None, zeros: Any = None, global_scale: Any = None, *, scheme: str
) -> Array:
    """x @ decoded.T: a backend that claims it decodes rows piece by piece.

    Args: x: float32 [m, k]; elements, scales, zeros: of a QuantizedArray with n rows; global_scale: float32 [],
    a factor of the results; scheme: its name.

    Returns float32 [m, n].
    """
    rows = decode(elements, scales, zeros, QuantScheme(scheme))
    found = lax.dot_general(x, rows, (((1,), (1,)), ((), ())))
    return found if global_scale is None else found * global_scale


@custom_jvp
def rounded_product(x: Any, weight: QuantizedArray) -> Array:
    """x @ decoded.T of x float32 [m, k] rounded to int8, with the derivative of the product without rounding."""
    return integer_product(x, weight)


@rounded_product.defjvp
def _rounded_product_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Array, Array]:
    return rounded_product(*primals), _exact_product(tangents[0], primals[1])


def _exact_product(rows: Any, weight: QuantizedArray) -> Array:
    parts = {"elements": weight.elements, "scales": weight.plain_scales, "zeros": weight.zeros}
    given = {name: jnp.asarray(part) for name, part in parts.items() if part is not None}
    if weight.global_scale is not None:
        given["global_scale"] = jnp.asarray(weight.global_scale, np.float32).reshape(())
    return dequantized_product(rows, **given, scheme=weight.scheme.name)


def dequant_matmul(x: Any, weight: QuantizedArray, activations: str | None = None) -> Array:
    """The product of an array with a quantised matrix, over the axis that is cut into blocks.

    Args:
      x: floating numbers of shape [..., k].
      weight: a QuantizedArray of shape [k, n] with axis -2, or [n, k] with axis -1.
      activations: None, or "int8" to also round x to int8, with a scale max|x| / 127 per block of the weight, and to
        sum the products of a block exactly in int32: for weights of int8, int8a, int4, gguf_q8_0, gguf_q4_0 and
        gguf_q4_1. The derivative passes through the rounding.

    Returns an array of shape [..., n] and of x's dtype; sums are in float32. It is differentiable in x, and the
    processor's backend computes it from the packed bytes, decoded tile by tile.

    Raises InputTypeError if the weight is not quantised, DtypeError if x is not floating, ShapeError if the
    lengths differ, and OptionError for other activations or if the weight's codes are not integers.

    >>> import numpy as np
    >>> from rlx import quant
    >>> w = quant.quantize(np.eye(32, dtype=np.float32), "gguf_q8_0")
    >>> quant.dequant_matmul(np.ones((1, 32), np.float32), w).round(2)[0, :3]
    Array([1., 1., 1.], dtype=float32)
    """
    if not isinstance(weight, QuantizedArray):
        raise InputTypeError(
            f"dequant_matmul got {type(weight).__name__} for a weight.", "Quantise it first, with rlx.quant.quantize."
        )
    value = as_array(x, "dequant_matmul's x")
    if value.dtype.kind != "f" and value.dtype != jnp.bfloat16:
        raise DtypeError(f"dequant_matmul got x of {value.dtype}.", "Convert it: x.astype(numpy.float32).")
    _check_parts(weight)
    if weight.ndim != 2 or not value.ndim or value.shape[-1] != weight.length:
        raise ShapeError(
            f"dequant_matmul got x of {list(value.shape)} and a weight of {list(weight.shape)}.",
            f"It sums over x's last axis and over the weight's axis {weight.axis}, which is cut into blocks.",
        )
    if activations is not None:
        if activations != "int8":
            raise OptionError(f"dequant_matmul got activations={activations!r}.", 'There are None and "int8".')
        check_integer(weight.scheme)
    rows = value.astype(np.float32).reshape(math.prod(value.shape[:-1]), value.shape[-1])
    found = _exact_product(rows, weight) if activations is None else rounded_product(rows, weight)
    return found.reshape(*value.shape[:-1], found.shape[-1]).astype(value.dtype)


def _check_parts(weight: QuantizedArray) -> None:
    """ShapeError if rows are not whole blocks, or if the number of scales or zero points differs from the blocks."""
    scheme = weight.scheme
    last = weight.elements.shape[-1]
    if scheme.row_bytes(weight.length) != last * np.dtype(weight.elements.dtype).itemsize:
        raise ShapeError(
            f"A QuantizedArray of {scheme} has rows of {last} bytes, which is not a multiple of"
            f" {scheme.row_bytes(scheme.block_size)}.",
            "Make it with rlx.quant.quantize, or give all bytes of each row.",
        )
    wanted = (*weight.elements.shape[:-1], weight.length // scheme.block_size)
    for name, there in (("scales", scheme.has_scale), ("zeros", scheme.has_zero_point)):
        part = getattr(weight, name)
        if (part is not None) != there or (part is not None and part.shape != wanted):
            shown = "none" if part is None else f"{name} of {list(part.shape)}"
            raise ShapeError(
                f"A QuantizedArray of {scheme} has {shown}; it needs {list(wanted) if there else 'none'}.",
                "Make it with rlx.quant.quantize, or give one for each block of each row.",
            )
    if np.size(weight.global_scale) != 1:
        raise ShapeError(
            f"A QuantizedArray has a global scale of {list(np.shape(weight.global_scale))}.",
            "It is one number; scales of rows or columns are multiplied with the product.",
        )
