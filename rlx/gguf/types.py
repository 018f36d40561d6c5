"""The storage types of a GGUF file: their numbers and their block sizes in elements and bytes."""

from __future__ import annotations

import enum
from reprlib import repr as brief
from typing import NamedTuple

import numpy as np

from rlx.errors import DtypeError, ShapeError

__all__ = ["Layout", "StorageType", "bytes_shape", "elements_shape", "layout", "plain_dtype", "storage_type"]


class Layout(NamedTuple):
    """A block of a storage type: `elements` numbers in `nbytes` bytes.

    >>> from rlx.gguf import Layout
    >>> Layout(32, 18).nbytes
    18
    """

    elements: int
    nbytes: int


class StorageType(enum.IntEnum):
    """The storage format of a tensor's numbers: plain, or packed in blocks with scales.

    Members have the format's names and numbers. Functions of `rlx.gguf` take a member, its name or its number.

    >>> from rlx.gguf import StorageType
    >>> StorageType.Q4_0, int(StorageType.Q4_0), StorageType.Q4_0.bits
    (StorageType.Q4_0, 2, 4.5)
    """

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41

    __repr__ = enum.Enum.__str__

    @property
    def bits(self) -> float:
        """Bits per element, scales included."""
        block = LAYOUTS[self]
        return 8 * block.nbytes / block.elements


_T = StorageType
PLAIN: dict[StorageType, np.dtype] = {
    _T.F32: np.dtype("f4"),
    _T.F16: np.dtype("f2"),
    _T.I8: np.dtype("i1"),
    _T.I16: np.dtype("i2"),
    _T.I32: np.dtype("i4"),
    _T.I64: np.dtype("i8"),
    _T.F64: np.dtype("f8"),
}
LAYOUTS: dict[StorageType, Layout] = {
    **{kind: Layout(1, dtype.itemsize) for kind, dtype in PLAIN.items()},
    _T.BF16: Layout(1, 2),
    _T.Q1_0: Layout(128, 18),
    _T.Q4_0: Layout(32, 18),
    _T.Q4_1: Layout(32, 20),
    _T.Q5_0: Layout(32, 22),
    _T.Q5_1: Layout(32, 24),
    _T.Q8_0: Layout(32, 34),
    _T.Q8_1: Layout(32, 36),
    _T.Q2_K: Layout(256, 84),
    _T.Q3_K: Layout(256, 110),
    _T.Q4_K: Layout(256, 144),
    _T.Q5_K: Layout(256, 176),
    _T.Q6_K: Layout(256, 210),
    _T.Q8_K: Layout(256, 292),
    _T.IQ1_S: Layout(256, 50),
    _T.IQ1_M: Layout(256, 56),
    _T.IQ2_XXS: Layout(256, 66),
    _T.IQ2_XS: Layout(256, 74),
    _T.IQ2_S: Layout(256, 82),
    _T.IQ3_XXS: Layout(256, 98),
    _T.IQ3_S: Layout(256, 110),
    _T.IQ4_NL: Layout(32, 18),
    _T.IQ4_XS: Layout(256, 136),
    _T.TQ1_0: Layout(256, 54),
    _T.TQ2_0: Layout(256, 66),
    _T.MXFP4: Layout(32, 17),
    _T.NVFP4: Layout(64, 36),
}
# numbers of types that were removed from the format
REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


def storage_type(value: StorageType | str | int) -> StorageType:
    """The storage type with a name or a number. Raises DtypeError if there is none."""
    if isinstance(value, str) and value.upper() in StorageType.__members__:
        return StorageType[value.upper()]
    if isinstance(value, int) and value in LAYOUTS:
        return StorageType(value)
    raise DtypeError(f"GGUF has no storage type {brief(value)}.", f"There are: {', '.join(StorageType.__members__)}.")


def layout(kind: StorageType | str | int) -> Layout:
    """The number of elements and bytes in a block of a storage type.

    >>> from rlx.gguf import layout
    >>> layout("Q4_K")
    Layout(elements=256, nbytes=144)
    """
    return LAYOUTS[storage_type(kind)]


def plain_dtype(kind: StorageType) -> np.dtype | None:
    """The NumPy dtype with the byte format of a storage type; None for bfloat16 and blocks."""
    return PLAIN.get(kind)


def bytes_shape(shape: tuple[int, ...], kind: StorageType) -> tuple[int, ...]:
    """The shape of the bytes of an array. Raises ShapeError if rows are not whole blocks."""
    block = LAYOUTS[kind]
    if not shape or shape[-1] % block.elements:
        raise ShapeError(
            f"Rows of {list(shape)} are not whole {kind.name} blocks of {block.elements} elements.",
            "Pad the last axis, or store it as F16.",
        )
    return (*shape[:-1], shape[-1] // block.elements * block.nbytes)


def elements_shape(shape: tuple[int, ...], kind: StorageType) -> tuple[int, ...]:
    """The shape of the array encoded in bytes of a shape. Raises ShapeError if rows are not whole blocks."""
    block = LAYOUTS[kind]
    if not shape or shape[-1] % block.nbytes:
        raise ShapeError(
            f"Rows of {shape[-1] if shape else 0} bytes are not whole {kind.name} blocks of {block.nbytes}.",
            "Give the bytes of whole rows, one row of the tensor along the last axis.",
        )
    return (*shape[:-1], shape[-1] // block.nbytes * block.elements)
