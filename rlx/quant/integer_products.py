"""Products with quantised matrices in integers: x is rounded to int8, and blocks are summed exactly in int32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError
from rlx.quant.arrays import QuantizedArray, quantize, unpaired
from rlx.quant.schemes import QuantScheme

__all__ = ["check_integer", "integer_product"]

# Codes of a block as int8 [n, block], their scale [n, 1], and their offset or None.
Codes = tuple[Array, Array, Array | None]
LARGEST = np.iinfo(np.int32).max // (127 * 128)  # numbers of a block whose products int32 can always sum


def integer_product(x: Any, weight: QuantizedArray) -> Array:
    """x @ decoded.T of x float32 [m, k] in int8, in a scale for each block of the weight.

    Block after block, so the only temporaries are sums of m times n numbers.
    """
    scheme = weight.scheme
    block = scheme.block_size
    given = quantize(x, f"int8/{block}")
    read = _READERS[_reader(scheme)]
    nbytes = weight.elements.shape[1] // (weight.length // block)

    def cut(array: Any, number: Any, width: int) -> Any:
        return lax.dynamic_slice_in_dim(jnp.asarray(array), number * width, width, axis=1)

    def add(number: Any, found: Any) -> Any:
        rows = cut(given.elements, number, block)
        scales = None if weight.scales is None else cut(weight.plain_scales, number, 1)
        zeros = None if weight.zeros is None else cut(weight.zeros, number, 1)
        codes, factors, offsets = read(cut(weight.elements, number, nbytes), scales, zeros)
        sums = lax.dot_general(rows, codes, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)
        part = sums.astype(np.float32) * factors.T
        if offsets is not None:
            part = part + jnp.sum(rows, axis=1, keepdims=True, dtype=np.int32).astype(np.float32) * offsets.T
        return found + part * cut(given.scales, number, 1)

    none = jnp.zeros((x.shape[0], weight.elements.shape[0]), np.float32)
    found = lax.fori_loop(0, weight.length // block, add, none)
    return found if weight.global_scale is None else found * jnp.asarray(weight.global_scale, np.float32)


def check_integer(scheme: QuantScheme) -> None:
    """OptionError for a scheme without integer codes, and for blocks whose sums might overflow int32."""
    if _reader(scheme) not in _READERS:
        raise OptionError(
            f"The codes of {scheme} are not integers of up to eight bits with a shared scale.",
            f"Leave activations out, or quantise the weight as one of {', '.join(_READERS)}.",
        )
    if scheme.block_size > LARGEST:
        raise OptionError(
            f"Products of {scheme.block_size} codes of eight bits may be more than int32 holds.",
            f"Choose blocks of at most {LARGEST}.",
        )


def _reader(scheme: QuantScheme) -> str:
    return scheme.name if scheme.is_gguf else scheme.kind


# ---------------------------------------------------------------- codes of a block
def _int8(elements: Any, scales: Any, zeros: Any) -> Codes:
    return elements, scales, None


def _int8_with_zeros(elements: Any, scales: Any, zeros: Any) -> Codes:
    return elements, scales, -zeros * scales


def _int4(elements: Any, scales: Any, zeros: Any) -> Codes:
    return unpaired(elements).astype(np.int8) - 8, scales, None


def _half(elements: Any, start: int) -> Array:
    """The float16 at a byte of each row, as float32 [n, 1]."""
    return lax.bitcast_convert_type(elements[:, None, start : start + 2], jnp.float16).astype(np.float32)


def _halves(elements: Any) -> Array:
    """Codes of four bits: the first half of a block in low bits."""
    return jnp.concatenate([elements & 15, elements >> 4], axis=1).astype(np.int8)


def _q8_0(elements: Any, scales: Any, zeros: Any) -> Codes:
    return lax.bitcast_convert_type(elements[:, 2:], np.int8), _half(elements, 0), None


def _q4_0(elements: Any, scales: Any, zeros: Any) -> Codes:
    return _halves(elements[:, 2:]) - 8, _half(elements, 0), None


def _q4_1(elements: Any, scales: Any, zeros: Any) -> Codes:
    return _halves(elements[:, 4:]), _half(elements, 0), _half(elements, 2)


_READERS: dict[str, Callable[[Any, Any, Any], Codes]] = {
    "int8": _int8,
    "int8a": _int8_with_zeros,
    "int4": _int4,
    "gguf_q8_0": _q8_0,
    "gguf_q4_0": _q4_0,
    "gguf_q4_1": _q4_1,
}
