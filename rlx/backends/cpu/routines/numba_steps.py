"""Steps of the table that call a user's Numba function in native code, without the GIL.

A step is a C function `int64 (int64* slots, int64* row)`. From its third word on, `row` has for each output and
then each input a number and an offset: `slots[number] + offset` is the address of its elements, in row-major order. The
function returns 0, or 1 with a Python error set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rlx.errors import CallbackError
from rlx.ir.types import TensorType
from rlx.ir.user_functions import ArrayCall, failure

__all__ = ["numba_step"]

FIRST_FIELD = 2  # of the row of a step
_ADVICE = "Call it on NumPy arrays, outside of jit, to see which."


@lru_cache(maxsize=1024)
def numba_step(call: ArrayCall) -> Any:
    """The compiled step of a call: a numba.cfunc, which must live while its `address` is used."""
    from numba import cfunc, types

    words = types.CPointer(types.int64)
    namespace = _namespace(call)
    exec(_source(call), namespace)
    return cfunc(types.int64(words, words))(namespace["step"])


def _namespace(call: ArrayCall) -> dict[str, Any]:
    from numba import carray

    support = _support()
    namespace = {"function": call.dispatcher, "carray": carray, "place": support.place}
    namespace["report"] = _reporter(f"{failure(call.__name__)}\n{_ADVICE}")
    namespace["guarded"] = support.read_only if call.protected else support.unchanged
    for number, t in enumerate((*call.outputs, *call.inputs)):
        namespace[f"shape{number}"] = t.shape
        namespace[f"dtype{number}"] = t.dtype.type
    return namespace


def _source(call: ArrayCall) -> str:
    """A step's text: loops over the batch around one call."""
    indent = "        "
    lines = ["def step(slots, row):", "    try:"]
    for depth, (size, _) in enumerate(call.levels):
        lines.append(f"{indent}for i{depth} in range({size}):")
        indent += "    "
    everywhere = tuple(range(len(call.levels)))
    arguments = [_argument(call, n, t, everywhere) for n, t in enumerate(call.outputs)]
    for number, t in enumerate(call.inputs):
        own = tuple(d for d, (_, has) in enumerate(call.levels) if has[number])
        arguments.append(f"guarded({_argument(call, len(call.outputs) + number, t, own)})")
    lines.append(f"{indent}function({', '.join(arguments)})")
    lines += ["    except Exception:", "        report()", "        return 1", "    return 0"]
    return "\n".join(lines) + "\n"


def _argument(call: ArrayCall, number: int, type: TensorType, depths: Sequence[int]) -> str:
    stride = math.prod(type.shape) * type.dtype.itemsize
    terms = ["0"]
    for depth in reversed(depths):
        terms.append(f"i{depth} * {stride}")
        stride *= call.levels[depth][0]
    field = FIRST_FIELD + 2 * number
    place = f"place(slots, row, {field}, {' + '.join(terms)})"
    return f"carray({place}, shape{number}, dtype{number})"


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
