"""Callbacks: Python functions that a program calls on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array import unshared
from rlx.config import config
from rlx.errors import CallbackError, CallbackTransformError, UnsupportedError
from rlx.ir.types import TensorType
from rlx.ops.families import to_front
from rlx.ops.shape import reshape
from rlx.trace.primitive import Linear, Primitive, Zero, primitive, type_of

__all__ = ["VMAP_METHODS", "HostFunction", "debug_callback", "io_callback", "pure_callback"]

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")
_SCALARS = (bool, int, float, complex)
_HALVES = {np.dtype(a): np.dtype(b) for a, b in (("f8", "f4"), ("i8", "i4"), ("u8", "u4"), ("c16", "c8"))}


class HostFunction:
    """A function of arrays that returns a sequence of arrays; the result is checked.

    on_failure: called if the program fails after a call of the function; only on the device `cpu`.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        types: Sequence[TensorType],
        name: str,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self.on_failure = on_failure
        self.function = function
        self.types = tuple(types)
        self.__name__ = name

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        results = self.function(*arrays)
        if len(results) != len(self.types):
            raise CallbackError(
                f"The callback {self.__name__} returned {len(results)} arrays instead of {len(self.types)}.",
                "Return the tree of arrays that the result types describe.",
            )
        return [self._checked(r, t) for r, t in zip(results, self.types, strict=True)]

    def _checked(self, result: Any, promised: TensorType) -> np.ndarray:
        array = np.asarray(result, promised.dtype if type(result) in _SCALARS else None)
        if config.default_float.itemsize == 4 and _HALVES.get(array.dtype) == promised.dtype:
            array = array.astype(promised.dtype)  # NumPy's functions widen 32-bit results
        if array.shape != promised.shape or array.dtype != promised.dtype:
            found = TensorType(array.shape, array.dtype)
            raise CallbackError(
                f"The callback {self.__name__} returned {found!r} instead of {promised!r}.",
                "Return an array of the promised shape and dtype, for instance with"
                f" .astype({promised.dtype.name!r}), or promise another result type.",
            )
        return array

    def batched(self, size: int) -> HostFunction:
        """The same function, trusted to return results with a batch axis in front."""
        types = [t.update(shape=(size, *t.shape)) for t in self.types]
        return HostFunction(self.function, types, self.__name__)

    def mapped(self, size: int, batched: Sequence[bool]) -> HostFunction:
        """One call after another over the leading axis of the marked arrays."""
        inner = HostFunction(self.function, self.types, self.__name__)

        def each(*arrays: np.ndarray) -> list[np.ndarray]:
            rows = [inner(*(a[i] if b else a for a, b in zip(arrays, batched, strict=True))) for i in range(size)]
            if not rows:
                return [np.empty((0, *t.shape), t.dtype) for t in inner.types]
            return [np.stack(column) for column in zip(*rows, strict=True)]

        types = [t.update(shape=(size, *t.shape)) for t in self.types]
        return HostFunction(each, types, self.__name__)


class HostCall(Primitive):
    """Calls a HostFunction: its results are the equation's."""

    multiple = True

    def type(self, *types: TensorType, function: HostFunction, **params: Any) -> Any:
        return function.types

    def reference(self, *arrays: np.ndarray, function: HostFunction, **params: Any) -> Any:
        return tuple(map(unshared, function(*arrays)))  # the function may keep and modify its results

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """Callbacks have no derivative: it is zero if no operand moves."""
        outs = self.bind(*primals, **params)
        if outs and not all(isinstance(t, Zero) for t in tangents):
            raise CallbackTransformError(
                f"{self.name} of {params['function'].__name__} has no derivative.",
                "Wrap the function that calls it in custom_jvp or custom_vjp, or its operands in stop_gradient.",
            )
        return outs, tuple(Zero(type_of(o)) for o in outs)

    def transpose(self, cotangents: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        """Never linear: only debug callbacks, and those without results, meet tangents, and return nothing."""
        if cotangents:
            raise CallbackTransformError(
                f"{self.name} of {params['function'].__name__} has no transpose.",
                "Give the function that calls it a rule with rlx.custom_derivatives.linear_call.",
            )
        return tuple(Zero(x.type) if isinstance(x, Linear) else None for x in inputs)

    def lower(self, k: Any, *values: Any, function: HostFunction, **params: Any) -> Any:
        return k.callback(function, values, function.types)

    def map_rows(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], params: dict[str, Any]
    ) -> tuple[Any, Any]:
        """One call for each element of the batch."""
        front = [x if d is None else to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        mapped = params["function"].mapped(size, [d is not None for d in dims])
        outs = self.bind(*front, **{**params, "function": mapped})
        return outs, (0,) * len(outs)


@primitive
class pure_callback(HostCall):
    """A function without side effects. params: function; vmap_method, or None."""

    foldable = False

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        function: HostFunction,
        vmap_method: str | None,
    ) -> tuple[Any, Any]:
        params = {"function": function, "vmap_method": vmap_method}
        if vmap_method is None:
            raise UnsupportedError(
                f"vmap met the callback {function.__name__}, which does not specify how it is batched.",
                f"Pass vmap_method to pure_callback: one of {VMAP_METHODS}.",
            )
        if vmap_method.startswith("sequential"):
            return self.map_rows(size, inputs, dims, params)

        def spread(x: Any) -> Any:
            """An unmapped operand in the form that the method needs."""
            if vmap_method == "legacy_vectorized":
                return x
            return reshape(x, shape=(1, *type_of(x).shape)) if vmap_method == "expand_dims" else to_front(x, None, size)

        front = [spread(x) if d is None else to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        outs = self.bind(*front, function=function.batched(size), vmap_method=vmap_method)
        return outs, (0,) * len(outs)


@primitive
class io_callback(HostCall):
    """A function with side effects, which always runs. params: function; ordered."""

    def effect(self, **params: Any) -> bool:
        """It always runs."""
        return True

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        function: HostFunction,
        ordered: bool,
    ) -> tuple[Any, Any]:
        if ordered:
            raise CallbackTransformError(
                f"vmap met the ordered callback {function.__name__}.",
                "The order of calls in a batch is undefined: pass ordered=False.",
            )
        return self.map_rows(size, inputs, dims, {"function": function, "ordered": ordered})


@primitive
class debug_callback(HostCall):
    """A function that looks at values and returns nothing. params: function; ordered."""

    def effect(self, **params: Any) -> bool:
        """It always runs."""
        return True

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        function: HostFunction,
        ordered: bool,
    ) -> tuple[Any, Any]:
        return self.map_rows(size, inputs, dims, {"function": function, "ordered": ordered})
