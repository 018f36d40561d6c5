"""The memory in which operations outside traced programs run: the memory of their operands.

In the host's memory, NumPy runs them at once. On another device, a program of the single operation is compiled for the
device and kept. Arrays on the host that were not put there explicitly follow arrays on devices, like NumPy arrays and
Python numbers (JAX calls them uncommitted). Arrays on devices, and arrays put on the host, must be on one device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.array import ConcreteArray, is_concrete, is_divided, memory_of
from rlx.errors import DeviceError
from rlx.ir.program import Equation, Program, Var, encode_params
from rlx.ir.types import TensorType
from rlx.storage import Device
from rlx.trace.hooks import execution

if TYPE_CHECKING:
    from rlx.device_memory import Memory

__all__ = [
    "HOST",
    "Elsewhere",
    "common_memory",
    "followed",
    "forget_operations",
    "program_of",
    "run_elsewhere",
]

HOST = Device("cpu")
_MOST = 1024  # operations kept
Runner = Callable[[Sequence[Any]], Sequence[Any]]


class Elsewhere(Exception):
    """An operand is in a memory that NumPy cannot compute on."""


_runners: OrderedDict[Any, tuple[Any, Runner]] = OrderedDict()
_places: OrderedDict[Any, tuple[Any, Sequence[Any]]] = OrderedDict()


# ------------------------------------------------------------------ which memory
def common_memory(name: str, arrays: Iterable[Any]) -> Memory | None:
    """The memory in which an operation on these values runs; None for the host's. Only arrays have a place.

    It is the memory of the arrays with a place, or else the default device's. Raises DeviceError if there are several.
    """
    found: dict[Memory | None, ConcreteArray] = {}
    arrays = tuple(arrays)
    for x in arrays:
        if is_concrete(x) and (memory_of(x) is not None or hasattr(x, "_sharding")):
            found.setdefault(memory_of(x), x)
    if len(found) > 1:
        raise _apart(name, found)
    return next(iter(found)) if found else execution.default_memory(arrays)


def _apart(name: str, found: Mapping[Memory | None, ConcreteArray]) -> DeviceError:
    places = [HOST if memory is None else memory.device for memory in found]
    which = " and ".join(f"{x.type!r} on {place!r}" for x, place in zip(found.values(), places, strict=True))
    return DeviceError(
        f"{name} got arrays on different devices: {which}.",
        "Bring one to the other first: rlx.device_put(x, y.device). NumPy arrays and Python numbers need none.",
    )


# ------------------------------------------------------------------ one operation
def program_of(primitive: Any, types: Sequence[TensorType], params: dict[str, Any]) -> Program:
    """The program of one operation on operands of these types."""
    inputs = [Var(t) for t in types]
    results = primitive.type(*types, **params)
    outputs = [Var(t) for t in (results if primitive.multiple else (results,))]
    return Program(inputs, [Equation(primitive, tuple(inputs), params, tuple(outputs))], outputs, (), primitive.name)


def run_elsewhere(primitive: Any, operands: Sequence[ConcreteArray], params: dict[str, Any]) -> Any:
    """Run an operation as a program, in the memory of its operands."""
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


def followed(
    primitive: Any, args: Sequence[Any], types: Sequence[TensorType], params: dict[str, Any], results: Sequence[Any]
) -> tuple[Any, ...]:
    """The results of an operation, divided according to its divided operands; types: the operands' types."""
    kinds = tuple([a._type if is_divided(a) else t for a, t in zip(args, types, strict=True)])
    key = primitive.name, kinds, encode_params(params)
    found = _places.get(key)
    if found is None or found[0] is not primitive:
        found = _places[key] = primitive, execution.places(program_of(primitive, types, params), args)
        if len(_places) > _MOST:
            _places.popitem(last=False)
    return tuple([x if s is None else x.with_sharding(s) for x, s in zip(results, found[1], strict=True)])


def forget_operations() -> None:
    """Clear the caches of single operations."""
    _runners.clear()
    _places.clear()
