"""The library: `mx` is mlx.core, present and new enough; MLX's dtypes for ours."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.errors import DeviceError

__all__ = ["LEAST_VERSION", "MxArray", "at_work", "dtype_of_memory", "is_on_gpu", "memory_dtype", "mx", "on_processor"]

LEAST_VERSION = (0, 32)
MxArray = Any  # mlx.core.array: MLX need not be installed where types are checked


def _imported() -> Any:
    core = importlib.import_module("mlx.core")
    found = tuple(int(n) for n in core.__version__.split(".")[:2])
    if found < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise DeviceError(
            f"The device 'mlx' needs mlx {least} or newer; {core.__version__} is installed.",
            "Bring it up to date with: pip install --upgrade 'rlx[mlx]'.",
            line="",
        )
    return core


mx: Any = _imported()

# streams belong to threads unless made for all; arrays that are not computed yet are not for two threads at once
_lock = threading.RLock()
_stream: Any = mx.new_thread_unsafe_stream(mx.default_device())


_processor: Any = _stream if _stream.device.type == mx.DeviceType.cpu else mx.new_thread_unsafe_stream(mx.cpu)


def on_processor() -> Any:
    """The stream for what MLX has for processors only."""
    return _processor


@contextmanager
def at_work() -> Generator[None]:
    """Inside, this thread alone makes and computes arrays, in the order in which it makes them."""
    with _lock, mx.stream(_stream):
        yield


_NAMES = {
    "bool": "bool_",
    **{n: n for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")},
}
_DTYPES = {np.dtype(name): getattr(mx, called) for name, called in _NAMES.items()}


def memory_dtype(dtype: np.dtype) -> np.dtype:
    """What a buffer of `dtype` holds here: real parts of complex numbers, codes of narrow ones in unsigned words."""
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    return dtype if dtype in _DTYPES else np.dtype(f"u{dtype.itemsize}")


def dtype_of_memory(dtype: np.dtype) -> Any:
    """MLX's dtype of numbers of `dtype`, or of the codes that stand for them."""
    return _DTYPES[memory_dtype(dtype)]


def is_on_gpu() -> bool:
    """Whether MLX computes on a GPU."""
    return mx.default_device().type == mx.DeviceType.gpu
