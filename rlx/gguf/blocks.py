"""Conversion between arrays of any shape and packed blocks, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import DtypeError, DtypeOverflowError, OptionError, ShapeError, UnsupportedError
from rlx.gguf.decode import decode_blocks
from rlx.gguf.encode import ENCODERS, NEEDS_IMPORTANCE, UNWEIGHTED, encode_foreign
from rlx.gguf.types import LAYOUTS, StorageType, bytes_shape, elements_shape, plain_dtype, storage_type

__all__ = ["dequantize", "encoded", "quantize", "swapped"]

_CHUNK = 1 << 16  # elements encoded at once, so that their temporaries stay in the cache
_decoded = jit(decode_blocks, static_argnums=1)

_T = StorageType
# (start, width, count) of the multi-byte numbers in a block
_WORDS: dict[StorageType, tuple[tuple[int, int, int], ...]] = {
    _T.BF16: ((0, 2, 1),),
    **{kind: ((0, dtype.itemsize, 1),) for kind in _T if (dtype := plain_dtype(kind)) is not None},
    **dict.fromkeys((_T.Q1_0, _T.Q4_0, _T.Q8_0, _T.IQ2_S, _T.IQ3_S, _T.IQ4_NL), ((0, 2, 1),)),
    **dict.fromkeys((_T.Q4_1, _T.Q8_1, _T.Q4_K, _T.Q5_K, _T.IQ4_XS), ((0, 2, 2),)),
    **dict.fromkeys((_T.MXFP4, _T.NVFP4), ()),
    _T.Q5_0: ((0, 2, 1), (2, 4, 1)),
    _T.Q5_1: ((0, 2, 2), (4, 4, 1)),
    _T.Q2_K: ((80, 2, 2),),
    _T.Q3_K: ((108, 2, 1),),
    _T.Q6_K: ((208, 2, 1),),
    _T.Q8_K: ((0, 4, 1), (260, 2, 16)),
    _T.TQ1_0: ((52, 2, 1),),
    _T.TQ2_0: ((64, 2, 1),),
    _T.IQ1_S: ((0, 2, 1), (34, 2, 8)),
    _T.IQ2_XS: ((0, 2, 33),),
}


def dequantize(packed: Any, kind: StorageType | str | int) -> Any:
    """Decode packed bytes.

    Args:
      packed: uint8 array of shape [..., bytes of a row], in one of GGUF's storage types, little endian; may be
        traced.
      kind: the storage type, its name or its number.

    Returns a float32 array of shape [..., elements of a row], bit for bit the result of the format's reference
    implementation. I64 and F64 are rounded to float32.

    Raises DtypeError for another dtype or an unknown storage type, ShapeError if the rows are not whole blocks,
    UnsupportedError for the IQ types with tables if the gguf package is not installed.

    >>> import numpy as np
    >>> from rlx import gguf
    >>> packed = gguf.quantize(np.linspace(-1, 1, 32), "Q8_0")
    >>> gguf.dequantize(packed, "Q8_0")[:2]
    Array([-0.99993896, -0.9369507 ], dtype=float32)
    """
    kind = storage_type(kind)
    packed = packed if hasattr(packed, "dtype") else np.asarray(packed)
    if packed.dtype != np.uint8:
        raise DtypeError(f"dequantize got {packed.dtype} instead of bytes.", "Give packed.view(numpy.uint8).")
    shape = elements_shape(packed.shape, kind)
    plain = plain_dtype(kind)
    if plain is not None and kind is not _T.F16:
        return jnp.asarray(np.ascontiguousarray(packed).view(plain)).astype(np.float32)
    if 0 in shape:
        return jnp.zeros(shape, np.float32)
    return _decoded(packed.reshape(-1, LAYOUTS[kind].nbytes), kind).reshape(shape)


def quantize(array: Any, kind: StorageType | str | int, importance: Any = None) -> np.ndarray:
    """Encode an array in one of GGUF's storage types.

    Args:
      array: numbers of shape [..., n]; n is a multiple of the type's elements per block.
      kind: the storage type, its name or its number.
      importance: the weight of each of the n columns, positive numbers of shape [n]; required for IQ2_XXS, IQ2_XS and
        IQ1_S. The libgguf package encodes all IQ types, and all types with an importance.

    Returns a uint8 array of shape [..., bytes of a row], equal to the output of the format's reference
    implementation.

    Raises ShapeError if the rows are not whole blocks, DtypeOverflowError for NaN, infinities and scales beyond
    float16 in block types, OptionError for an importance that is missing or not supported, UnsupportedError if
    libgguf is needed and not installed.

    >>> import numpy as np
    >>> from rlx import gguf
    >>> gguf.quantize(np.ones((4, 64), np.float32), "Q4_0").shape
    (4, 36)
    """
    kind = storage_type(kind)
    rows = np.asarray(array)
    if rows.dtype.kind not in "biuf" and rows.dtype != jnp.bfloat16:
        raise DtypeError(f"quantize got an array of {rows.dtype}.", "Give an array of real numbers.")
    return encoded(rows, kind, _checked_importance(importance, rows.shape, kind)).reshape(bytes_shape(rows.shape, kind))


def encoded(rows: np.ndarray, kind: StorageType, importance: np.ndarray | None = None) -> np.ndarray:
    """Encode rows of numbers as rows of packed bytes."""
    shape = bytes_shape(rows.shape, kind)
    plain = plain_dtype(kind)
    if plain is not None and kind is not _T.F16:
        return _plain(rows, plain).view(np.uint8).reshape(shape)
    found = np.empty(shape, np.uint8)
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(rows, np.float32)
    if kind not in (_T.F16, _T.BF16) and not np.isfinite(numbers).all():
        raise DtypeOverflowError(
            f"The array holds NaN or an infinity, which {kind.name} blocks cannot represent.",
            "Store it as F32, F16 or BF16, or replace these numbers with rlx.numpy.nan_to_num.",
        )
    if importance is not None or kind not in ENCODERS:
        if found.size:
            found[...] = encode_foreign(numbers, kind, importance)
        return found
    block = LAYOUTS[kind]
    source, target = numbers.reshape(-1, block.elements), found.reshape(-1, block.nbytes)
    step = max(1, _CHUNK // block.elements)
    with np.errstate(all="ignore"):  # encoders refuse scales that are not finite
        for start in range(0, len(source), step):
            target[start : start + step] = ENCODERS[kind](source[start : start + step]).reshape(-1, block.nbytes)
    return found


def _plain(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rows in a plain dtype. Raises DtypeError for numbers that an integer dtype cannot represent."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.ascontiguousarray(rows, dtype)
    if dtype.kind == "i" and not np.array_equal(found, rows):
        raise DtypeOverflowError(
            f"The array holds numbers that {dtype} cannot represent.", "Round or clip it, or store it as F32."
        )
    return found


def _checked_importance(importance: Any, shape: tuple[int, ...], kind: StorageType) -> np.ndarray | None:
    if importance is None:
        if kind in NEEDS_IMPORTANCE:
            raise OptionError(
                f"{kind.name} has too few bits to weight all columns equally.",
                "Give importance=, for example the mean square of the inputs of each column.",
            )
        return None
    if plain_dtype(kind) is not None or kind is _T.BF16:
        raise OptionError(f"{kind.name} is lossless and takes no importance.", "Leave importance out.")
    if kind in UNWEIGHTED:
        raise OptionError(f"{kind.name} cannot be encoded by importance.", "Leave importance out, or choose Q8_0.")
    found = np.ascontiguousarray(importance, np.float32)
    if found.shape != shape[-1:]:
        raise ShapeError(f"quantize got an importance of shape {list(found.shape)} for rows of shape {list(shape)}.")
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise OptionError("quantize got an importance that is negative or not finite.", "Give means of squares.")
    return found


def swapped(packed: np.ndarray, kind: StorageType) -> np.ndarray:
    """Packed bytes with the byte order of every number reversed."""
    if kind not in _WORDS:
        raise UnsupportedError(
            f"The format does not define the layout of {kind.name} blocks in a big-endian file.",
            "Write the file in little endian, or store the tensor as another type.",
        )
    blocks = packed.reshape(-1, LAYOUTS[kind].nbytes).copy()
    for start, width, count in _WORDS[kind]:
        words = blocks[:, start : start + width * count].reshape(len(blocks), count, width)
        blocks[:, start : start + width * count] = words[:, :, ::-1].reshape(len(blocks), width * count)
    return blocks.reshape(packed.shape)
