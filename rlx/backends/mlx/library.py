"""The library: `mx` is mlx.core, present and new enough; MLX's dtypes for ours."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import DeviceError
from rlx.ir.types import memory_dtype

__all__ = [
    "ALIKE",
    "LEAST_VERSION",
    "UNITS",
    "MxArray",
    "Unit",
    "at_work",
    "begun",
    "computed",
    "computing_on",
    "dtype_of_memory",
    "is_on_gpu",
    "mx",
    "on_processor",
]

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


class Unit(NamedTuple):
    """What MLX computes on: its name, and the stream that its operations are put on."""

    name: str
    stream: Any


def _units() -> tuple[Unit, ...]:
    """The default one first."""
    on_gpu = mx.default_device().type == mx.DeviceType.gpu
    found = [("gpu", mx.gpu), ("cpu", mx.cpu)] if on_gpu else [("cpu", mx.cpu)]
    return tuple(Unit(name, mx.new_thread_unsafe_stream(device)) for name, device in found)


UNITS = _units()


class _Current(threading.local):
    """The unit that this thread's operations run on."""

    unit = UNITS[0]


_current = _Current()


@contextmanager
def computing_on(unit: Unit) -> Generator[None]:
    """Inside, this thread's operations run on a unit."""
    before, _current.unit = _current.unit, unit
    try:
        yield
    finally:
        _current.unit = before


@contextmanager
def at_work() -> Generator[None]:
    """Inside, this thread alone makes and computes arrays, in the order in which it makes them."""
    with _lock, mx.stream(_current.unit.stream):
        yield


def computed(arrays: Sequence[MxArray]) -> Exception | None:
    """Wait until arrays are computed; the error if that fails."""
    return _error_of(mx.eval, arrays)


def begun(arrays: Sequence[MxArray]) -> Exception | None:
    """Let MLX compute arrays; the error if that has failed already."""
    return _error_of(mx.async_eval, arrays)


def _error_of(function: Callable[..., None], arrays: Sequence[MxArray]) -> Exception | None:
    try:
        with at_work():
            function(*arrays)
    except Exception as error:
        return error
    return None


def is_on_gpu() -> bool:
    """Whether this thread's operations run on a GPU."""
    return _current.unit.name == "gpu"


def on_processor() -> Any:
    """The stream for what MLX has for processors only."""
    return UNITS[-1].stream


_NAMES = {
    "bool": "bool_",
    **{n: n for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")},
}
_DTYPES = {np.dtype(name): getattr(mx, called) for name, called in _NAMES.items()}

# dtypes of MLX whose numbers lie here as words, or as parts
ALIKE = {name: getattr(mx, name) for name in ("bfloat16", "complex64", "float16")}


def dtype_of_memory(dtype: np.dtype) -> Any:
    """MLX's dtype of numbers of `dtype`, or of the codes that stand for them."""
    return _DTYPES[memory_dtype(dtype)]
