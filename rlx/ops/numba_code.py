"""Numba functions that programs call: on arrays, and on scalars as C functions."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.errors import CallbackError, UnsupportedError
from rlx.ir.scalar import USER_FUNCTIONS, UserFunction
from rlx.ir.types import TensorType, compute_dtype, is_float, promote_dtypes
from rlx.ir.user_functions import ArrayCall, Levels, failure

__all__ = ["ArrayFunction", "ScalarFunction", "array_function", "checked", "scalar_function"]

_numbers = itertools.count()


def checked(function: Any, caller: str) -> Any:
    """`function`, which must be a result of numba.njit."""
    from numba.core.registry import CPUDispatcher

    name = getattr(function, "__name__", repr(function))
    if not isinstance(function, CPUDispatcher):
        raise UnsupportedError(
            f"{caller} got {name}, which is a {type(function).__name__} and not a function compiled by Numba.",
            "Decorate it with @numba.njit.",
        )
    if function.targetoptions.get("forceobj"):
        raise UnsupportedError(
            f"{caller} got {name}, which Numba compiles in object mode: it would need the interpreter.",
            "Decorate it with @numba.njit, or call it by rlx.pure_callback.",
        )
    return function


def _return_type(dispatcher: Any, arguments: tuple[Any, ...], caller: str) -> Any:
    """The return type that Numba infers; compiles the function for these arguments."""
    import numba
    from numba.core.errors import NumbaError

    name = dispatcher.__name__
    given = ", ".join(map(str, arguments))
    try:
        inspect.signature(dispatcher.py_func).bind(*arguments)
    except TypeError as error:
        raise UnsupportedError(
            f"{caller} cannot call {name} with {len(arguments)} arguments, ({given}): {error}.",
            "An array function is called as function(*outputs, *inputs), a scalar function as function(*inputs).",
        ) from None
    try:
        found = numba.typeof(dispatcher).get_call_type(dispatcher.targetdescr.typing_context, arguments, {})
    except NumbaError as error:
        raise UnsupportedError(
            f"Numba cannot compile {name} in nopython mode for ({given}). Numba's message:\n{error}",
            "Use only features of Numba's nopython mode, and do not write to inputs.",
        ) from error
    if found is None:
        raise UnsupportedError(
            f"{name} declares signatures, but none takes ({given}).",
            "Leave the signatures out of @numba.njit, or convert the arguments.",
        )
    return found.return_type


def _numba_dtype(dtype: np.dtype, name: str) -> Any:
    from numba.core.errors import NumbaError
    from numba.np.numpy_support import from_dtype

    try:
        return from_dtype(dtype)
    except NumbaError:
        raise UnsupportedError(
            f"Numba has no arrays of {dtype.name}, so {name} cannot be called on one.",
            "Convert the argument or the promised result to float32.",
        ) from None


def _defined(source: str, name: str, namespace: dict[str, Any]) -> Any:
    """The function `name` of a module's source."""
    exec(source, namespace)
    return namespace[name]


# ------------------------------------------------------------------ functions of arrays
class ArrayFunction:
    """A Numba function called as function(*outputs, *inputs) on arrays of given types."""

    def __init__(self, dispatcher: Any, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> None:
        from numba import types

        self.inputs = inputs
        self.outputs = outputs
        self.__name__ = str(dispatcher.__name__)
        self._dispatcher = dispatcher
        self._number = next(_numbers)
        # declared signatures seldom mark inputs as read-only
        self._protected = bool(dispatcher._can_compile)
        arguments = tuple(
            types.Array(_numba_dtype(t.dtype, self.__name__), t.ndim, "C", readonly=readonly)
            for group, readonly in ((outputs, False), (inputs, self._protected))
            for t in group
        )
        returned = _return_type(dispatcher, arguments, "numba_call")
        if returned != types.none:
            raise UnsupportedError(
                f"{self.__name__} returns {returned}: numba_call would drop it.",
                "Write the result into the outputs, which are the first parameters: out[...] = ...",
            )

    def encode_key(self) -> str:
        """A string that identifies the function in a fingerprint."""
        return f"numba function {self._number}"

    def call(self, levels: Levels) -> ArrayCall:
        """The function of NumPy arrays that calls it on every element of a batch."""
        return ArrayCall(self._dispatcher, self.inputs, self.outputs, levels, self._protected)


@lru_cache(maxsize=1024)
def array_function(dispatcher: Any, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> ArrayFunction:
    """The one ArrayFunction of its kind, so that equal calls are equal equations."""
    return ArrayFunction(dispatcher, inputs, outputs)


# ------------------------------------------------------------------ functions of scalars
class ScalarFunction:
    """A Numba function of scalars, for operands of given dtypes; backends know it as `name`.

    Narrow floats are float32 inside. A float result has the dtype that the float operands promote
    to, since Numba's literals are all float64; or the requested dtype.
    """

    def __init__(self, dispatcher: Any, dtypes: tuple[np.dtype, ...], result: np.dtype | None) -> None:
        self.__name__ = str(dispatcher.__name__)
        self.name = f"user_{next(_numbers)}"
        self._dispatcher = dispatcher
        self._operands = tuple(map(compute_dtype, dtypes))
        self._types = tuple(_numba_dtype(d, self.__name__) for d in self._operands)
        found = self._found(_return_type(dispatcher, self._types, "numba_scalar"))
        self.dtype = result or _result_dtype(found, dtypes)
        self._result = compute_dtype(self.dtype)
        self._loop: Any = None
        self._code: Any = None
        USER_FUNCTIONS[self.name] = UserFunction(self._operands, self._result, self._evaluate, self._address)

    def encode_key(self) -> str:
        """A string that identifies the function in a fingerprint."""
        return self.name

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """Apply the function to each element, from Python."""
        wide = [a.astype(d, copy=False) for a, d in zip(arrays, self._operands, strict=True)]
        return self._evaluate(*wide).astype(self.dtype, copy=False)

    def _found(self, returned: Any) -> np.dtype:
        from numba import types
        from numba.np.numpy_support import as_dtype

        returned = types.unliteral(returned)
        if not isinstance(returned, (types.Boolean, types.Integer, types.Float)):
            raise UnsupportedError(
                f"numba_scalar got {self.__name__}, which returns {returned} and not one real number.",
                "Return a bool, an integer or a float; numba_call takes functions of whole arrays.",
            )
        return np.dtype(as_dtype(returned))

    def _evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        operands = np.broadcast_arrays(*arrays)
        out = np.empty(operands[0].shape, self._result)
        if self._loop is None:
            self._loop = self._make_loop()
        try:
            self._loop(out.reshape(-1), *(np.ravel(a) for a in operands))
        except Exception as error:
            raise CallbackError(f"{failure(self.__name__)[:-1]}: {error!r}") from error
        return out

    def _namespace(self) -> dict[str, Any]:
        made = bool if self._result.kind == "b" else self._result.type
        return {"function": self._dispatcher, "made": made}

    def _make_loop(self) -> Any:
        from numba import njit

        names = [f"x{n}" for n in range(len(self._operands))]
        elements = ", ".join(f"{name}[i]" for name in names)
        source = f"def loop(out, {', '.join(names)}):\n    for i in range(out.size):\n"
        source += f"        out[i] = made(function({elements}))\n"
        return njit(_defined(source, "loop", self._namespace()))

    def _address(self) -> int:
        if self._code is None:
            self._code = self._compiled()
        address: int = self._code.address
        return address

    def _compiled(self) -> Any:
        from numba import cfunc

        names = ", ".join(f"x{n}" for n in range(len(self._operands)))
        source = f"def scalar({names}):\n    return made(function({names}))\n"
        result = _numba_dtype(self._result, self.__name__)
        return cfunc(result(*self._types))(_defined(source, "scalar", self._namespace()))


def _result_dtype(found: np.dtype, operands: Sequence[np.dtype]) -> np.dtype:
    floats = [(d, False) for d in operands if is_float(d)]
    if found.kind != "f" or not floats:
        return found
    return promote_dtypes(floats, np.dtype(np.float32), np.dtype(np.int32))[0]


@lru_cache(maxsize=1024)
def scalar_function(dispatcher: Any, dtypes: tuple[np.dtype, ...], result: np.dtype | None) -> ScalarFunction:
    """The one ScalarFunction of its kind, so that equal calls are equal equations."""
    return ScalarFunction(dispatcher, dtypes, result)
