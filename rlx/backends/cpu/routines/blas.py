"""Contract kernels through BLAS: which library, and the row that native code reads.

OpenBLAS comes from the scipy-openblas32 wheel, as an instance of our own: one thread (our pool
splits the work) and the kernels that the processor deserves. On macOS it is Accelerate.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from math import isqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlx.backends.cpu.routines.gemm import (
    COMPLEX,
    DOUBLE,
    LEFT,
    NOT_TRANSPOSED,
    RIGHT,
    SINGLE,
    TRANSPOSED,
)
from rlx.backends.cpu.runtime.compile import processor
from rlx.backends.cpu.runtime.threads import STABLE_THREADS
from rlx.config import config
from rlx.errors import UnsupportedError, VerificationError
from rlx.forks import reopen_after_fork
from rlx.ir.kernels import Buffer, Contract, Operand
from rlx.ir.size_functions import computed

__all__ = ["gemm_fields", "load_blas"]

ACCELERATE = "/System/Library/Frameworks/Accelerate.framework/Accelerate"
LARGEST = 2**31 - 1
SHORT_SIDE = 128
SHORTEST_BLOCK = 64
UNCOPIED_PRODUCT = 1_000_000
LONGEST_PRODUCT = 1 << 32  # multiplications of a block: tenths of a second
LEAST_SIDE = 512
TYPES = {"f4": ("s", SINGLE), "f8": ("d", DOUBLE), "c8": ("c", COMPLEX), "c16": ("z", COMPLEX)}

_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])


class Blas(NamedTuple):
    """A loaded library: address of a routine by name, and whether it runs on one thread.

    fortran: the address of a routine of BLAS or LAPACK with Fortran's conventions, 0 if it is not there.
    """

    address: Callable[[str], int]
    fortran: Callable[[str], int]
    single_threaded: bool
    name: str


@contextmanager
def _environment(**values: str) -> Generator[None]:
    """Set environment variables for the time of a library's loading."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _core_type() -> dict[str, str]:
    """OpenBLAS chooses kernels by processor model, or by a variable meant for other instances. The
    processor's features are more reliable. RLX_OPENBLAS_CORETYPE overrides them."""
    chosen = os.environ.get("RLX_OPENBLAS_CORETYPE")
    if chosen:
        return {"OPENBLAS_CORETYPE": chosen}
    _, features = processor()
    needed = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
    if all(features.get(name, False) for name in needed):
        return {"OPENBLAS_CORETYPE": "SkylakeX"}
    return {}


def _symbol_address(library: ctypes.CDLL, symbol: str) -> int:
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0


def _address_if_there(library: ctypes.CDLL, symbol: str) -> int:
    return _symbol_address(library, symbol) if hasattr(library, symbol) else 0


@lru_cache(maxsize=1)
def load_blas() -> Blas:
    """Load the library, once."""
    with _lock:
        if sys.platform == "darwin":
            accelerate = ctypes.CDLL(ACCELERATE)
            return Blas(
                lambda name: _symbol_address(accelerate, f"cblas_{name}"),
                lambda name: _address_if_there(accelerate, f"{name}_"),
                False,
                "Accelerate",
            )
        return _load_openblas()


def _openblas_file() -> Path:
    """The library in the wheel; importing the wheel's package would load it with other settings."""
    wheel = importlib.util.find_spec("scipy_openblas32")
    if wheel is None or not wheel.submodule_search_locations:
        raise UnsupportedError(
            "matrix products need OpenBLAS, which is not installed",
            "pip install scipy-openblas32",
        )
    folder = Path(wheel.submodule_search_locations[0]) / "lib"
    suffix = "dll" if sys.platform == "win32" else "so"
    return next(iter(sorted(folder.glob(f"libscipy_openblas*.{suffix}"))))


def _load_openblas() -> Blas:
    with _environment(OPENBLAS_NUM_THREADS="1", **_core_type()):
        library = ctypes.CDLL(str(_openblas_file()))
        library.scipy_openblas_set_num_threads(1)
    library.scipy_openblas_get_corename.restype = ctypes.c_char_p
    core = library.scipy_openblas_get_corename().decode()
    return Blas(
        lambda name: _symbol_address(library, f"scipy_cblas_{name}"),
        lambda name: _address_if_there(library, f"scipy_{name}_"),
        True,
        f"OpenBLAS {core}",
    )


class _Side(NamedTuple):
    """How BLAS reads one factor: transposed or not, and its leading dimension."""

    transpose: int
    leading: int


def _row_major(rows: int, columns: int, strides: tuple[int, int]) -> int | None:
    """The leading dimension of rows of adjacent elements, if the strides are that."""
    if columns > 1 and strides[1] != 1:
        return None
    if rows <= 1:
        return max(columns, 1)
    return strides[0] if strides[0] >= max(columns, 1) else None


def _side(size: int, depth: int, size_stride: int, depth_stride: int) -> _Side:
    """For a factor with `size` rows (left) or columns (right)."""
    if size == 0 or depth == 0:
        return _Side(0, 1)
    leading = _row_major(size, depth, (size_stride, depth_stride))
    if leading is not None:
        return _Side(0, leading)
    leading = _row_major(depth, size, (depth_stride, size_stride))
    if leading is not None:
        return _Side(1, leading)
    raise VerificationError(f"no matrix product reads strides {(size_stride, depth_stride)}")


def _place(operand: Operand, slot_of: Callable[[Buffer], int], axis: int, side: tuple[int, int]) -> list[int]:
    """Slot, first byte, bytes from batch to batch and along `axis`; flag and leading dimension;
    bytes from stack to stack."""
    item = operand.buffer.dtype.itemsize
    batch = operand.strides[-3] if operand.shape[-3] > 1 else 0
    block = operand.strides[axis] if operand.shape[axis] > 1 else 0
    start = [slot_of(operand.buffer), operand.offset * item, batch * item, block * item]
    return [*start, *side, operand.strides[0] * item if len(operand.shape) > 3 else 0]


def _vector_form(kernel: Contract) -> tuple[int, int, int]:
    """Fields MATRIX, VECTOR_STEP and RESULT_STEP: how gemv computes it, zeros if it cannot."""
    if kernel.columns == 1:
        matrix, step = LEFT, kernel.rhs.strides[-2]
        result_step = kernel.out.strides[-2] if kernel.rows > 1 else 1
    elif kernel.rows == 1:
        matrix, step, result_step = RIGHT, kernel.lhs.strides[-1], 1
    else:
        return 0, 0, 0
    if kernel.depth <= 1:
        step = 1
    return (matrix, step, result_step) if 1 <= step <= LARGEST else (0, 0, 0)


def gemm_fields(kernel: Contract, slot_of: Callable[[Buffer], int], parts: int) -> list[int]:
    """The row of a Contract, from field FUNCTION on."""
    dtype = kernel.out.buffer.dtype
    letter, kind = TYPES[dtype.str[1:]]
    rows, columns, depth = kernel.rows, kernel.columns, kernel.depth
    left = _side(rows, depth, kernel.lhs.strides[-2], kernel.lhs.strides[-1])
    right = _side(columns, depth, kernel.rhs.strides[-1], kernel.rhs.strides[-2])
    out_leading = kernel.out.strides[-2] if rows > 1 else max(columns, 1)
    numbers = (rows, columns, depth, left.leading, right.leading, out_leading)
    if any(number > LARGEST for number in numbers):
        raise UnsupportedError(f"a matrix product of {numbers[:3]} is over BLAS's 32-bit sizes")
    if out_leading < columns:
        raise VerificationError(f"rows of a matrix product overlap: {kernel.out}")
    matrix, vector_step, result_step = _vector_form(kernel)
    one, zero = _constants(dtype.str)
    blas = load_blas()
    flags = (NOT_TRANSPOSED, TRANSPOSED)
    # a right factor with adjacent elements along the depth is one that BLAS calls transposed,
    # but gemv takes every matrix the way of a left one
    right_flag = right.transpose if matrix == RIGHT else 1 - right.transpose
    return [
        blas.address(letter + ("gemv" if matrix else "gemm")),
        kind,
        parts if blas.single_threaded else 1,
        *(kernel.batches, rows, columns, depth),
        *_place(kernel.lhs, slot_of, -2, (flags[left.transpose], left.leading)),
        *_place(kernel.rhs, slot_of, -1, (flags[right_flag], right.leading)),
        *_place(kernel.out, slot_of, -2, (0, out_leading)),
        int(kernel.accumulate),
        one.ctypes.data,
        (one if kernel.accumulate else zero).ctypes.data,
        dtype.itemsize,
        *(matrix, vector_step, result_step),
        *_block_limits(kernel),
        max(kernel.out.shape[-3], 1),
        STABLE_THREADS if config.deterministic else 0,
    ]


def _block_limits(kernel: Contract) -> Sequence[int]:
    """The most rows and columns of a block."""
    is_complex = kernel.out.buffer.dtype.kind == "c"
    return computed(partial(_limits, is_complex), (kernel.rows, kernel.columns, kernel.depth), 2)


def _limits(is_complex: bool, rows: int, columns: int, depth: int) -> tuple[int, int]:
    """The most rows and columns of a block of a product of this size.

    OpenBLAS copies both factors before it multiplies, which is most of the work when one side is
    short, except for products of up to a million multiplications: cut a long thin one into those.
    Ctrl-C waits for the end of a block: long products are cut into blocks as square as possible.
    """
    depth = max(depth, 1)
    short, long = sorted((max(rows, 1), max(columns, 1)))
    length = UNCOPIED_PRODUCT // (short * depth) // SHORTEST_BLOCK * SHORTEST_BLOCK
    if is_complex or not 1 < short <= SHORT_SIDE or length == 0:
        side = max(isqrt(LONGEST_PRODUCT // depth), LEAST_SIDE)
        short = min(short, side)
        length = min(long, max(LONGEST_PRODUCT // (short * depth), LEAST_SIDE))
    return (length, short) if rows > columns else (short, length)


@cache
def _constants(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """One and zero in memory, for the complex routines."""
    return np.ones(1, dtype), np.zeros(1, dtype)
