"""Matrix products by CLBlast, if it is installed, called with ctypes on the kernels' queue and buffers."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.backends.gpu.blas import Matrix, is_plain_product, matrix_of, result_of
from rlx.errors import DeviceError
from rlx.ir.kernels import Contract

__all__ = ["Clblast", "chosen", "installed", "is_clblast_product"]

_INSTALL = "Install it (Debian: apt install libclblast1), or unset RLX_CLBLAST: rlx then uses its own kernels."
_LEAVE = "Set RLX_CLBLAST=0 to use rlx's own kernels."
_MOST = 1 << 31  # elements: CLBlast's kernels use 32-bit indices
# CLBlast's constants: row-major layout; transposed (True) or not
_ROW_MAJOR = 101
_TRANSPOSE = {False: 111, True: 112}


# without float16: CLBlast sums it in float16, where the sum of 8192 ones is 2048
_LETTERS = {"float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}
_FACTORS = {"float32": ctypes.c_float, "float64": ctypes.c_double}  # passed by value


@lru_cache(maxsize=1)
def _library() -> Any:
    """The library, loaded by its name; None if it is not installed."""
    name = ctypes.util.find_library("clblast")
    if name is None:
        return None
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    size, number, memory = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    before, after = [number, number, number, size, size, size], [ctypes.POINTER(memory), memory]
    for name, letter in _LETTERS.items():
        batched, sizes = [memory, memory, size], [memory, size, size]
        function = getattr(library, f"CLBlast{letter}gemmBatched")
        function.argtypes = [*before, memory, *batched, *batched, memory, *batched, size, *after]
        function.restype = number
        if name in _FACTORS:
            factor, function = _FACTORS[name], getattr(library, f"CLBlast{letter}gemm")
            function.argtypes = [*before, factor, *sizes, *sizes, factor, *sizes, *after]
            function.restype = number
    return library


def installed() -> bool:
    """Whether the library is installed."""
    return _library() is not None


def chosen(is_gpu: bool) -> bool:
    """Whether CLBlast computes a device's products: as RLX_CLBLAST specifies, else on GPUs if it is installed.

    Raises: DeviceError if it is requested and not installed.
    """
    asked = os.environ.get("RLX_CLBLAST", "").lower()
    if asked in ("0", "false", "off", "no") or not (asked or is_gpu):
        return False
    if asked and not installed():
        raise DeviceError("RLX_CLBLAST requests CLBlast, which is not installed.", _INSTALL)
    return installed()


def is_clblast_product(kernel: Contract) -> bool:
    """Whether CLBlast takes a product: it uses 32-bit indices. The result must be dense, since it is cleared first."""
    if not is_plain_product(kernel, _LETTERS):
        return False
    result = result_of(kernel)
    dense = result.apart == kernel.columns and (kernel.batches == 1 or result.batch == kernel.rows * kernel.columns)
    return dense and max(o.buffer.size for o in (kernel.lhs, kernel.rhs, kernel.out)) < _MOST


class Clblast:
    """The library for one device.

    clear: fills the given number of bytes of a buffer with zeros, starting at an offset.
    """

    def __init__(self, clear: Callable[[Any, int, int], None]) -> None:
        self._clear = clear

    def multiply(self, queue: int, kernel: Contract, lhs: Any, rhs: Any, out: Any) -> None:
        """Queue a product of views of buffers, on the queue of a handle."""
        dtype = kernel.out.buffer.dtype
        matrices = [matrix_of(kernel.lhs), matrix_of(kernel.rhs), result_of(kernel)]
        starts = [_start(view, m, dtype) for view, m in zip((lhs, rhs, out), matrices, strict=True)]
        if not kernel.accumulate:
            # CLBlast multiplies the old contents by zero, and they may be NaN
            size = kernel.batches * kernel.rows * kernel.columns
            self._clear(out.memory, starts[2] * dtype.itemsize, size * dtype.itemsize)
        handles = [view.memory.int_ptr for view in (lhs, rhs, out)]
        multiply = _one if kernel.batches == 1 and dtype.name in _FACTORS else _several
        status = multiply(kernel, handles, starts, matrices, ctypes.byref(ctypes.c_void_p(queue)))
        if status:
            raise DeviceError(f"CLBlast failed with its error {status}.", _LEAVE)


def _start(view: Any, matrix: Matrix, dtype: np.dtype) -> int:
    """The beginning of an operand in its memory, in elements."""
    start, rest = divmod(view.start, dtype.itemsize)
    if rest or start + matrix.start >= _MOST:
        raise DeviceError(f"CLBlast counts elements in 32 bits; an operand is at byte {view.start}.", _LEAVE)
    return start + matrix.start


def _head(kernel: Contract, matrices: Sequence[Matrix]) -> tuple[int, ...]:
    turned = (_TRANSPOSE[matrix.transposed] for matrix in matrices[:2])
    return (_ROW_MAJOR, *turned, kernel.rows, kernel.columns, kernel.depth)


def _one(
    kernel: Contract, handles: Sequence[int], starts: Sequence[int], matrices: Sequence[Matrix], queue: Any
) -> int:
    """Queue one product of real numbers; returns CLBlast's status."""
    name = kernel.out.buffer.dtype.name
    left, right, out = ((h, start, m.apart) for h, start, m in zip(handles, starts, matrices, strict=True))
    return getattr(_library(), f"CLBlast{_LETTERS[name]}gemm")(
        *_head(kernel, matrices), 1.0, *left, *right, float(kernel.accumulate), *out, queue, None
    )


def _several(
    kernel: Contract, handles: Sequence[int], starts: Sequence[int], matrices: Sequence[Matrix], queue: Any
) -> int:
    """Queue products, each with its own beginning: the strided call ignores where the first matrices begin.

    Seen in version 1.5.3, float32, 640 x 640. Factors and positions are read before the call returns.
    """
    dtype, count = kernel.out.buffer.dtype, kernel.batches
    factors = np.ones(count, dtype), np.full(count, kernel.accumulate, dtype)
    places = [
        np.arange(count, dtype=np.uintp) * matrix.batch + start
        for start, matrix in zip(starts, matrices, strict=True)
    ]
    left, right, out = (
        (handle, place.ctypes.data, matrix.apart)
        for handle, place, matrix in zip(handles, places, matrices, strict=True)
    )
    one, before = (factor.ctypes.data for factor in factors)
    return getattr(_library(), f"CLBlast{_LETTERS[dtype.name]}gemmBatched")(
        *_head(kernel, matrices), one, *left, *right, before, *out, count, queue, None
    )
