"""MLX functions that programs call: their derivatives and batches by MLX, and calls on NumPy arrays."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from rlx.errors import CallbackError, DeviceError, DtypeError
from rlx.forks import cached_property
from rlx.installation import install_command
from rlx.ir.types import TensorType, is_inexact
from rlx.ir.user_functions import DeviceCall
from rlx.trees import tree

__all__ = ["Marks", "MlxFunction", "mlx_function"]

MxArray = Any
Types = tuple[TensorType, ...]
Marks = tuple[bool, ...]


def _library() -> Any:
    """mlx.core."""
    if importlib.util.find_spec("mlx") is None:
        raise DeviceError(
            "mlx_call needs the package mlx, which is not installed.", f"Install it with: {install_command('mlx')}"
        )
    return importlib.import_module("mlx.core")


def _dtype_of(dtype: np.dtype) -> Any:
    """MLX's dtype."""
    found = getattr(_library(), "bool_" if dtype.kind == "b" else dtype.name, None)
    if found is None:
        raise DtypeError(
            f"MLX has no {dtype.name}, which an array of mlx_call has.", "Use .astype(...) before and after the call."
        )
    return found


def _from_numpy(array: np.ndarray) -> MxArray:
    mx = _library()
    if array.dtype == ml_dtypes.bfloat16:
        return mx.view(mx.array(array.view(np.uint16), mx.uint16), mx.bfloat16)
    return mx.array(array, _dtype_of(array.dtype))


def _to_numpy(array: MxArray, dtype: np.dtype) -> np.ndarray:
    if dtype == ml_dtypes.bfloat16:
        return np.array(_library().view(array, _library().uint16)).view(dtype)
    return np.array(array)


@lru_cache(maxsize=1024)
def mlx_function(function: Callable[..., Any], inputs: Types, outputs: Types, structure: Any) -> MlxFunction:
    """The function of MLX's arrays that an equation calls: one object for each function and types.

    structure: the tree of the results that the function returns.
    """
    name = getattr(function, "__name__", type(function).__name__)

    def flat(*arrays: MxArray) -> Sequence[MxArray]:
        leaves, found = tree.flatten(function(*arrays))
        if found != structure:
            raise CallbackError(
                f"The MLX function {name} returned a result of structure {found} instead of {structure}.",
                "Return the tree of arrays that the result types describe.",
            )
        return leaves

    return MlxFunction(name, flat, inputs, outputs)


class MlxFunction(DeviceCall):
    """A function of MLX arrays of known types that returns a sequence of MLX arrays."""

    device = "mlx"

    def __init__(self, name: str, function: Callable[..., Sequence[MxArray]], inputs: Types, outputs: Types) -> None:
        self.name = name
        self.function = function
        self.inputs = inputs
        self.outputs = outputs
        self._pushed: dict[Marks, MlxFunction] = {}
        self._pulled: dict[Marks, MlxFunction] = {}
        self._batched: dict[tuple[int, Marks], MlxFunction] = {}
        for type in (*inputs, *outputs):
            _dtype_of(type.dtype)

    def apply(self, *arrays: MxArray) -> Sequence[MxArray]:
        """The results for arrays of MLX; raises CallbackError if one has another type than promised."""
        results = self.function(*arrays)
        for result, promised in zip(results, self.outputs, strict=True):
            wanted = _dtype_of(promised.dtype)
            if (tuple(result.shape), result.dtype) != (promised.shape, wanted):
                found = f"{str(result.dtype).rpartition('.')[2]}{list(result.shape)}"
                raise CallbackError(
                    f"The MLX function {self.name} returned {found} instead of {promised!r}.",
                    "Return an array of the promised shape and dtype, or promise another result type.",
                )
        return results

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        results = self.apply(*map(_from_numpy, arrays))
        return [_to_numpy(r, t.dtype) for r, t in zip(results, self.outputs, strict=True)]

    # -------------------------------------------------------------- derivatives
    @cached_property
    def moved(self) -> Marks:
        """The mask of outputs that have derivatives."""
        return tuple(is_inexact(t.dtype) for t in self.outputs)

    def _of_moving(self, arrays: Sequence[MxArray], moving: Marks) -> Callable[..., list[MxArray]]:
        """The outputs that have derivatives, of the inputs that move."""

        def function(*changed: MxArray) -> list[MxArray]:
            rest = iter(changed)
            given = [next(rest) if m else a for a, m in zip(arrays, moving, strict=True)]
            return _kept(self.function(*given), self.moved)

        return function

    def pushed(self, moving: Marks) -> MlxFunction:
        """(inputs, tangents of those that move) -> tangents of the outputs."""

        def tangents(*arrays: MxArray) -> Sequence[MxArray]:
            primals, given = arrays[: len(self.inputs)], arrays[len(self.inputs) :]
            return _library().jvp(self._of_moving(primals, moving), _kept(primals, moving), list(given))[1]

        if moving not in self._pushed:
            inputs = (*self.inputs, *_kept(self.inputs, moving))
            outputs = tuple(_kept(self.outputs, self.moved))
            self._pushed[moving] = MlxFunction(f"jvp of {self.name}", tangents, inputs, outputs)
        return self._pushed[moving]

    def pulled(self, moving: Marks) -> MlxFunction:
        """(inputs, cotangents of the outputs) -> cotangents of the inputs that move."""

        def cotangents(*arrays: MxArray) -> Sequence[MxArray]:
            primals, given = arrays[: len(self.inputs)], arrays[len(self.inputs) :]
            return _library().vjp(self._of_moving(primals, moving), _kept(primals, moving), list(given))[1]

        if moving not in self._pulled:
            inputs = (*self.inputs, *_kept(self.outputs, self.moved))
            outputs = tuple(_kept(self.inputs, moving))
            self._pulled[moving] = MlxFunction(f"vjp of {self.name}", cotangents, inputs, outputs)
        return self._pulled[moving]

    # -------------------------------------------------------------- batches
    def batched(self, size: int, has: Marks) -> MlxFunction:
        """The function of a batch, along the first axis of the marked inputs and of every output."""

        def function(*arrays: MxArray) -> Sequence[MxArray]:
            axes = tuple(0 if h else None for h in has)
            return _library().vmap(lambda *a: list(self.function(*a)), in_axes=axes, out_axes=0)(*arrays)

        if (size, has) not in self._batched:
            marked = zip(self.inputs, has, strict=True)
            inputs = tuple(t.update(shape=(size, *t.shape)) if h else t for t, h in marked)
            outputs = tuple(t.update(shape=(size, *t.shape)) for t in self.outputs)
            self._batched[size, has] = MlxFunction(self.name, function, inputs, outputs)
        return self._batched[size, has]


def _kept(values: Sequence[Any], marks: Marks) -> list[Any]:
    return [v for v, m in zip(values, marks, strict=True) if m]
