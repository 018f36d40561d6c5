"""Where operations run that are called outside of traced programs: in the memory that their operands lie in.

On the host's memory that is NumPy, at once. On another device it is a program of the one operation, compiled for that
device and kept. What rlx makes on its own way to an operation (a number, a mask, positions) follows the arrays that
the caller handed over, as NumPy arrays and Python numbers do; those have to lie together.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from rlx.array import ConcreteArray, DeviceArray, memory_of
from rlx.errors import DeviceError, user_frame
from rlx.ir.program import Equation, Program, Var, encode_params
from rlx.ir.types import TensorType
from rlx.storage import Device

if TYPE_CHECKING:
    from rlx.device_memory import Memory

__all__ = [
    "HOST",
    "Elsewhere",
    "common_memory",
    "execution",
    "forget_operations",
    "memory_for",
    "program_of",
    "run_elsewhere",
]

HOST = Device("cpu")
_MOST = 1024  # operations kept
Runner = Callable[[Sequence[Any]], Sequence[Any]]


class Elsewhere(Exception):
    """An operand lies in a memory that NumPy does not compute on."""


class _Execution:
    """How eager control flow, library routines and operations on devices are compiled; set by the api, so that neither
    primitives nor tracing need know the compiler. `prepared` gives a function that compiles its program only once;
    `default_memory` the default device's memory, None for the host's; `adopted` an array of another library that lies
    in a device's memory, as one of ours there, None for what is none.
    """

    compiled: Callable[[Program, Sequence[Any]], Sequence[Any]] | None = None
    prepared: Callable[[Program], Runner] | None = None
    default_memory: Callable[[], Memory | None] = staticmethod(lambda: None)
    adopted: Callable[[Any], ConcreteArray | None] = staticmethod(lambda value: None)


execution = _Execution()
_runners: OrderedDict[Any, tuple[Any, Runner]] = OrderedDict()


# ------------------------------------------------------------------ which memory
def common_memory(name: str, arrays: Iterable[Any]) -> Memory | None:
    """The memory that all arrays (other values aside) lie in; the default device's if there are none; None for the
    host's. Raises DeviceError if there are several."""
    found: dict[Memory | None, ConcreteArray] = {}
    for x in arrays:
        if isinstance(x, ConcreteArray):
            found.setdefault(memory_of(x), x)
    if len(found) > 1:
        raise _apart(name, found)
    return next(iter(found)) if found else execution.default_memory()


def memory_for(name: str, operands: Sequence[Any]) -> Memory | None:
    """The memory in which an operation on these runs; None for the host's. Raises DeviceError.

    Operands on devices, and the arrays that the user's code handed over in the call that led here, lie in it.
    """
    away = [x for x in operands if type(x) is DeviceArray]
    if not away and execution.default_memory() is None:
        return None
    if away and len(away) == len(operands):
        return common_memory(name, away)
    return common_memory(name, [*away, *_handed_over()])


def _apart(name: str, found: Mapping[Memory | None, ConcreteArray]) -> DeviceError:
    places = [HOST if memory is None else memory.device for memory in found]
    which = " and ".join(f"{x.type!r} on {place!r}" for x, place in zip(found.values(), places, strict=True))
    return DeviceError(
        f"{name} got arrays that lie on different devices: {which}.",
        "Bring one to the other first: rlx.device_put(x, y.device). NumPy arrays and Python numbers need none.",
    )


def _handed_over() -> Iterator[Any]:
    """The arrays among the arguments of the function of rlx that the user's code has called."""
    frame: FrameType | None = sys._getframe(1)
    users, entered = user_frame(2), None
    while frame is not None and frame is not users:
        entered, frame = frame, frame.f_back
    if entered is not None:
        values = entered.f_locals
        yield from _arrays_in([values[name] for name in _parameters(entered.f_code) if name in values])


@lru_cache(maxsize=1024)
def _parameters(code: CodeType) -> frozenset[str]:
    """The parameters of a function that hold what the caller gave all the time: it never stores into them.

    Others cannot be asked, so that public functions do not store into those that take arrays.
    """
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    stores = [i.argval for i in dis.get_instructions(code) if i.opname.startswith("STORE_")]
    stored = {name for names in stores for name in (names if isinstance(names, tuple) else (names,))}
    return frozenset(code.co_varnames[:count]) - stored


def _arrays_in(value: Any) -> Iterator[Any]:
    if isinstance(value, ConcreteArray):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _arrays_in(part)
    elif isinstance(value, dict):
        yield from _arrays_in(list(value.values()))
    elif "handed_over" in vars(type(value)):  # x.at[index]
        yield from _arrays_in(value.handed_over())


# ------------------------------------------------------------------ one operation
def program_of(primitive: Any, types: Sequence[TensorType], params: dict[str, Any]) -> Program:
    """The program of one operation on operands of these types."""
    inputs = [Var(t) for t in types]
    results = primitive.type(*types, **params)
    outputs = [Var(t) for t in (results if primitive.multiple else (results,))]
    return Program(inputs, [Equation(primitive, tuple(inputs), params, tuple(outputs))], outputs, (), primitive.name)


def run_elsewhere(primitive: Any, operands: Sequence[ConcreteArray], params: dict[str, Any]) -> Any:
    """Run an operation as a program, where its operands lie."""
    types = tuple([x.type for x in operands])
    key = primitive.name, types, encode_params(params)
    found = _runners.get(key)
    if found is None or found[0] is not primitive:
        assert execution.prepared is not None, "the api has set how programs are compiled"
        found = _runners[key] = primitive, execution.prepared(program_of(primitive, types, params))
        if len(_runners) > _MOST:
            _runners.popitem(last=False)
    results = found[1](operands)
    return tuple(results) if primitive.multiple else results[0]


def forget_operations() -> None:
    """Forget what was compiled for single operations."""
    _runners.clear()
