"""Users' functions of arrays that a backend may call directly: compiled functions, and device libraries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.errors import CallbackError, DeviceError
from rlx.ir.types import TensorType

__all__ = ["ArrayCall", "DeviceCall", "KernelCall", "Levels", "failure"]

# for each axis of batches, the outermost first: its size, and which inputs have it
Levels = tuple[tuple[int, tuple[bool, ...]], ...]


def failure(name: str) -> str:
    """The message for an exception in a user's function."""
    return f"The Numba function {name} raised an exception."


def _of_batch(types: Sequence[TensorType], levels: Levels) -> tuple[TensorType, ...]:
    """The types of one call's results for all calls of a batch."""
    sizes = tuple(size for size, _ in levels)
    return tuple(t.update(shape=(*sizes, *t.shape)) for t in types)


class DeviceCall(ABC):
    """The function of a Callback in the terms of a device's own library: it takes and gives that library's arrays.

    `device`: which one; its backend calls `apply`. Elsewhere it is called on NumPy arrays, as other callbacks are.
    """

    device: str
    name: str
    outputs: tuple[TensorType, ...]

    @property
    def __name__(self) -> str:
        return self.name

    @abstractmethod
    def apply(self, *arrays: Any) -> Sequence[Any]:
        """The results for arrays of the library."""

    @abstractmethod
    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]: ...


@dataclass(frozen=True, slots=True)
class ArrayCall:
    """The function of a Callback that calls a numba.njit dispatcher, as dispatcher(*outputs, *inputs).

    inputs, outputs: types of the row-major arrays of one call. levels: batches around it, each a loop over calls.
    protected: inputs are arrays that cannot be written. From Python it is called on NumPy arrays and returns new
    ones; a backend that has native code calls the dispatcher itself, in its own loop.
    """

    dispatcher: Any
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    levels: Levels
    protected: bool

    @property
    def __name__(self) -> str:
        return str(self.dispatcher.__name__)

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of all results of the batch."""
        return _of_batch(self.outputs, self.levels)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        results = [np.empty(t.shape, t.dtype) for t in self.types]
        given = [self._guarded(a) for a in arrays]
        try:
            for place in np.ndindex(*(size for size, _ in self.levels)):
                self.dispatcher(
                    *(r[(*place, ...)] for r in results),
                    *(a[(*self._own(place, n), ...)] for n, a in enumerate(given)),
                )
        except Exception as error:
            raise CallbackError(f"{failure(self.__name__)[:-1]}: {error!r}") from error
        return results

    def _own(self, place: tuple[int, ...], number: int) -> tuple[int, ...]:
        """The part of a place in the batch that an input knows."""
        return tuple(i for i, (_, has) in zip(place, self.levels, strict=True) if has[number])

    def _guarded(self, array: np.ndarray) -> np.ndarray:
        if not self.protected:
            return np.array(array, order="C")
        view = np.asarray(array, order="C").view()
        view.flags.writeable = False
        return view


@dataclass(frozen=True, slots=True)
class KernelCall:
    """The function of a Callback that is a user's kernel: text for one kind of device, which that device launches.

    The kernel takes the addresses of its outputs, then of its inputs, of row-major arrays. grid: groups, block: items
    of each, along up to three dimensions. levels: batches around it, each a launch after another.
    """

    device: str
    source: str
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    levels: Levels = ()

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of all results of the batch."""
        return _of_batch(self.outputs, self.levels)

    def mapped(self, size: int, batched: Sequence[bool]) -> KernelCall:
        """One launch after another over the leading axis of the marked arrays."""
        return replace(self, levels=((size, tuple(batched)), *self.levels))

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        raise DeviceError(
            f"The kernel {self.name} is one of the device {self.device!r}, and its operands are on the host.",
            f"Call it in a function with jit(device={self.device!r}), or on arrays that rlx.device_put(x,"
            f" {self.device!r}) has put there.",
        )
