"""Numba functions compiled to C functions that backends call: steps over arrays, and scalar functions."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.errors import CallbackError, UnsupportedError
from rlx.ir.scalar import USER_FUNCTIONS, UserFunction
from rlx.ir.types import TensorType, compute_dtype, is_float, promote_dtypes

__all__ = ["ArrayFunction", "Levels", "ScalarFunction", "array_function", "checked", "scalar_function"]

# for each axis of batches, the outermost first: its size, and which inputs have it
Levels = tuple[tuple[int, tuple[bool, ...]], ...]

FIRST_FIELD = 2  # of the row of a step; see ir.kernels.Callback
_numbers = itertools.count()


def checked(function: Any, caller: str) -> Any:
    """`function`, which must be what numba.njit returns."""
    from numba.core.registry import CPUDispatcher

    name = getattr(function, "__name__", repr(function))
    if not isinstance(function, CPUDispatcher):
        raise UnsupportedError(
            f"{caller} got {name}, which is a {type(function).__name__} and no function compiled by Numba.",
            "Decorate it with @numba.njit.",
        )
    if function.targetoptions.get("forceobj"):
        raise UnsupportedError(
            f"{caller} got {name}, which Numba compiles in object mode: it would need the interpreter.",
            "Decorate it with @numba.njit, or call it by rlx.pure_callback.",
        )
    return function


def _return_type(dispatcher: Any, arguments: tuple[Any, ...], caller: str) -> Any:
    """What Numba finds that the function returns; compiles it for these arguments."""
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
            f"Numba cannot compile {name} in nopython mode for ({given}). It says:\n{error}",
            "Use what Numba's nopython mode supports, and do not write to inputs.",
        ) from error
    if found is None:
        raise UnsupportedError(
            f"{name} declares signatures of which none takes ({given}).",
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


def _failure(name: str) -> str:
    return f"The Numba function {name} raised an exception."


_ADVICE = "Call it on NumPy arrays, outside of jit, to see which."


def _defined(source: str, name: str, namespace: dict[str, Any]) -> Any:
    """The function `name` of a module's text."""
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
        # declared signatures seldom say that inputs are read-only
        self._protected = bool(dispatcher._can_compile)
        self._native: dict[Levels, Any] = {}
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
        """What tells this function from every other one in a fingerprint."""
        return f"numba function {self._number}"

    def batched_types(self, levels: Levels) -> tuple[TensorType, ...]:
        """The types of all results of a batch."""
        sizes = tuple(size for size, _ in levels)
        return tuple(t.update(shape=(*sizes, *t.shape)) for t in self.outputs)

    def host(self, levels: Levels) -> Callable[..., list[np.ndarray]]:
        """The function of NumPy arrays that calls it on every element of a batch, from Python."""

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            results = [np.empty(t.shape, t.dtype) for t in self.batched_types(levels)]
            given = [self._guarded(a) for a in arrays]
            try:
                for place in np.ndindex(*(size for size, _ in levels)):
                    self._dispatcher(
                        *(r[(*place, ...)] for r in results),
                        *(a[(*_own(place, levels, n), ...)] for n, a in enumerate(given)),
                    )
            except Exception as error:
                raise CallbackError(f"{_failure(self.__name__)[:-1]}: {error!r}") from error
            return results

        call.__name__ = self.__name__
        return call

    def _guarded(self, array: np.ndarray) -> np.ndarray:
        if not self._protected:
            return np.array(array, order="C")
        view = np.asarray(array, order="C").view()
        view.flags.writeable = False
        return view

    def native(self, levels: Levels) -> int:
        """The address of a step that does the same in native code; see ir.kernels.Callback."""
        if levels not in self._native:
            self._native[levels] = self._compiled(levels)
        address: int = self._native[levels].address
        return address

    def _compiled(self, levels: Levels) -> Any:
        from numba import cfunc, types

        words = types.CPointer(types.int64)
        step = _defined(self._source(levels), "step", self._namespace())
        return cfunc(types.int64(words, words))(step)

    def _namespace(self) -> dict[str, Any]:
        from numba import carray

        support = _support()
        namespace = {"function": self._dispatcher, "carray": carray, "place": support.place}
        namespace["report"] = _reporter(f"{_failure(self.__name__)}\n{_ADVICE}")
        namespace["guarded"] = support.read_only if self._protected else support.unchanged
        for number, t in enumerate((*self.outputs, *self.inputs)):
            namespace[f"shape{number}"] = t.shape
            namespace[f"dtype{number}"] = t.dtype.type
        return namespace

    def _source(self, levels: Levels) -> str:
        """A step's text: loops over the batch around one call."""
        indent = "        "
        lines = ["def step(slots, row):", "    try:"]
        for depth, (size, _) in enumerate(levels):
            lines.append(f"{indent}for i{depth} in range({size}):")
            indent += "    "
        everywhere = tuple(range(len(levels)))
        arguments = [self._argument(n, t, everywhere, levels) for n, t in enumerate(self.outputs)]
        for number, t in enumerate(self.inputs):
            own = tuple(d for d, (_, has) in enumerate(levels) if has[number])
            text = self._argument(len(self.outputs) + number, t, own, levels)
            arguments.append(f"guarded({text})")
        lines.append(f"{indent}function({', '.join(arguments)})")
        lines += ["    except Exception:", "        report()", "        return 1", "    return 0"]
        return "\n".join(lines) + "\n"

    @staticmethod
    def _argument(number: int, type: TensorType, depths: Sequence[int], levels: Levels) -> str:
        stride = math.prod(type.shape) * type.dtype.itemsize
        terms = ["0"]
        for depth in reversed(depths):
            terms.append(f"i{depth} * {stride}")
            stride *= levels[depth][0]
        field = FIRST_FIELD + 2 * number
        place = f"place(slots, row, {field}, {' + '.join(terms)})"
        return f"carray({place}, shape{number}, dtype{number})"


def _own(place: tuple[int, ...], levels: Levels, number: int) -> tuple[int, ...]:
    """The part of a place in the batch that an input knows."""
    return tuple(i for i, (_, has) in zip(place, levels, strict=True) if has[number])


@lru_cache(maxsize=1024)
def array_function(dispatcher: Any, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> ArrayFunction:
    """The one ArrayFunction of its kind, so that equal calls are equal equations."""
    return ArrayFunction(dispatcher, inputs, outputs)


class _Support:
    """Functions that the text of a step calls: pointers, and arrays that cannot be written."""

    def __init__(self) -> None:
        from numba import njit, types
        from numba.core import cgutils
        from numba.extending import intrinsic

        @intrinsic
        def place(typing: Any, slots: Any, row: Any, field: Any, offset: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                frame, fields, position, distance = arguments
                slot = builder.load(builder.gep(fields, [position]))
                following = builder.add(position, position.type(1))
                start = builder.load(builder.gep(fields, [following]))
                address = builder.load(builder.gep(frame, [slot]))
                address = builder.add(builder.add(address, start), distance)
                return builder.inttoptr(address, cgutils.voidptr_t)

            return types.voidptr(slots, row, types.int64, types.int64), generate

        @intrinsic
        def read_only(typing: Any, array: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                return arguments[0]

            return array.copy(readonly=True)(array), generate

        self.place = place
        self.read_only = read_only
        self.unchanged = njit(lambda array: array)


@lru_cache(maxsize=1)
def _support() -> _Support:
    return _Support()


def _reporter(message: str) -> Any:
    """A function for native code that sets CallbackError, with the GIL taken for that moment."""
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def report(typing: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            interpreter = context.get_python_api(builder)
            state = interpreter.gil_ensure()
            kind = context.get_constant(types.intp, id(CallbackError))
            interpreter.err_set_string(builder.inttoptr(kind, interpreter.pyobj), message)
            interpreter.gil_release(state)
            return context.get_dummy_value()

        return types.void(), generate

    return report


# ------------------------------------------------------------------ functions of scalars
class ScalarFunction:
    """A Numba function of scalars, for operands of given dtypes; backends know it as `name`.

    Narrow floats are float32 inside. A float result has the dtype that the float operands promote
    to, since Numba's literals are all float64; or the one asked for.
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
        """What tells this function from every other one in a fingerprint."""
        return self.name

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """The function of each element, from Python."""
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
            raise CallbackError(f"{_failure(self.__name__)[:-1]}: {error!r}") from error
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
