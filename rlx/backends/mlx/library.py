"""The library: `mx` is mlx.core, checked for its version; MLX's dtypes for rlx's."""

from __future__ import annotations

import importlib
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.drivers import finish_at_exit, refuse_after_fork
from rlx.errors import DeviceError
from rlx.installation import install_command
from rlx.ir.types import memory_dtype

__all__ = [
    "ALIKE",
    "LEAST_VERSION",
    "UNITS",
    "CompiledMlxFunction",
    "MxArray",
    "MlxDevice",
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
            f"Upgrade it with: {install_command('mlx', upgrade=True)}",
            line="",
        )
    return core


mx: Any = _imported()

# streams belong to threads unless created for all; two threads must not use an uncomputed array at once
lock = threading.RLock()


class MlxDevice(NamedTuple):
    """A device of MLX: its name, and the stream of its operations."""

    name: str
    stream: Any


def _units() -> tuple[MlxDevice, ...]:
    """MLX's devices, the default one first."""
    on_gpu = mx.default_device().type == mx.DeviceType.gpu
    found = [("gpu", mx.gpu), ("cpu", mx.cpu)] if on_gpu else [("cpu", mx.cpu)]
    return tuple(MlxDevice(name, mx.new_thread_unsafe_stream(device)) for name, device in found)


UNITS = _units()


class CompiledMlxFunction:
    """A function under mx.compile, on the main thread; elsewhere, and at process exit, the function itself.

    MLX keeps compiled functions with their thread, and crashes if a thread ends after the interpreter.
    """

    def __init__(self, function: Callable[..., list[MxArray]]) -> None:
        self._function = function
        self._compiled = mx.compile(function)
        _compiled.add(self)

    def __call__(self, *arrays: MxArray) -> list[MxArray]:
        on_main = threading.current_thread() is threading.main_thread()
        return (self._compiled if on_main else self._function)(*arrays)

    def forget(self) -> None:
        """Call the function directly from now on."""
        self._compiled = self._function


_compiled: weakref.WeakSet[CompiledMlxFunction] = weakref.WeakSet()


def _finish(_: object) -> None:
    for unit in UNITS:
        mx.synchronize(unit.stream)
    for function in list(_compiled):
        function.forget()


refuse_after_fork(sys.modules[__name__], "mlx")
finish_at_exit(sys.modules[__name__], _finish)


class _Current(threading.local):
    """The unit that this thread's operations run on."""

    unit = UNITS[0]


_current = _Current()


@contextmanager
def computing_on(unit: MlxDevice) -> Generator[None]:
    """Inside, this thread's operations run on a unit."""
    before, _current.unit = _current.unit, unit
    try:
        yield
    finally:
        _current.unit = before


@contextmanager
def at_work() -> Generator[None]:
    """Inside, only this thread creates and computes arrays, in the order of creation."""
    with lock, mx.stream(_current.unit.stream):
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
    """The stream for functions that MLX has only on processors."""
    return UNITS[-1].stream


_NAMES = {
    "bool": "bool_",
    **{n: n for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")},
}
_DTYPES = {np.dtype(name): getattr(mx, called) for name, called in _NAMES.items()}

# MLX dtypes whose numbers are stored here as words, or as parts
ALIKE = {name: getattr(mx, name) for name in ("bfloat16", "complex64", "float16")}


def dtype_of_memory(dtype: np.dtype) -> Any:
    """MLX's dtype of numbers of `dtype`, or of the codes that stand for them."""
    return _DTYPES[memory_dtype(dtype)]
