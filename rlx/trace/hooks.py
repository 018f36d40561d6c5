"""The hooks of tracing and eager operations, in a file of their own: they are filled before the rest is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx.array import ConcreteArray
    from rlx.device_memory import Memory
    from rlx.ir.program import Program

__all__ = ["execution", "operations"]


class _Execution:
    """How eager control flow, library routines and operations on devices are compiled; set by the api, so that neither
    primitives nor tracing need know the compiler. `prepared` returns a function that compiles its program only once;
    `default_memory` the default device's memory for values, None for the host's; `adopted` an array of another library
    in a device's memory as an rlx array there, None for other values; `borrowed` the same over its memory,
    which its owner may write to; `places` how the results of a program are divided for arguments that are.
    """

    compiled: Callable[[Program, Sequence[Any]], Sequence[Any]] | None = None
    prepared: Callable[[Program], Callable[[Sequence[Any]], Sequence[Any]]] | None = None
    default_memory: Callable[[Iterable[Any]], Memory | None] = staticmethod(lambda values: None)
    adopted: Callable[[Any], ConcreteArray | None] = staticmethod(lambda value: None)
    borrowed: Callable[[Any, bool], ConcreteArray | None] = staticmethod(lambda value, may_copy: None)
    places: Callable[[Program, Sequence[Any]], Sequence[Any]] = staticmethod(lambda program, args: program.outputs)


class _SpanningOperations:
    """Operations on arrays that are known by parts, set by rlx.sharding, so that tracing need not know meshes.

    `on_parts(primitive, args, params)` runs an operation; `divided_as(x, like)` divides a value like another one.
    """

    on_parts: Callable[[Any, Sequence[Any], dict[str, Any]], Any]
    divided_as: Callable[[Any, Any], Any]


execution = _Execution()
operations = _SpanningOperations()
