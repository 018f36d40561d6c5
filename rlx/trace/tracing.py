"""Staging: run a function on tracers and keep the program."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.array import ConcreteArray
from rlx.config import config
from rlx.errors import AxisNameError, UnexpectedTracerError
from rlx.ir.program import Atom, Program
from rlx.ir.types import TensorType
from rlx.trace.builder import Builder, NamedAxis, Tracer, leaked, state

__all__ = [
    "axis_named",
    "axis_size",
    "close_over",
    "devices_in_scope",
    "explicit",
    "explicit_place",
    "finish",
    "known_value",
    "lying_so",
    "named_axis",
    "place_known",
    "place_of",
    "places_inside",
    "places_known",
    "trace_program",
    "tracked_axes",
    "vary",
]


def known_value(value: Any) -> ConcreteArray | None:
    """The value of an argument, where it can be known while a transform stages its function."""
    if isinstance(value, Tracer):
        return value.known()
    return value if isinstance(value, ConcreteArray) else None


def trace_program(
    function: Callable[..., Sequence[Any]],
    types: Sequence[TensorType],
    known: Sequence[Any] | None = None,
    name: str = "program",
    given: Sequence[Any] | None = None,
) -> tuple[Program, list[Any]]:
    """Trace a flat function (arrays in, sequence of arrays out).

    Returns the program, whose leading inputs are what the function captured, and those values.
    `known`: values (or None) with which tracers may answer bool(), int(), ... while tracing.
    `given`: the values, traced or not, that its arguments or the first of them stand for, or slices of which.
    """
    if config.check_tracer_leaks:
        return _trace_watched(function, types, known, name, given)
    with Builder(name) as builder:
        builder.answers, builder.given = known is not None, given
        values = known if known is not None else [None] * len(types)
        tracers = [builder.input(t, v) for t, v in zip(types, values, strict=True)]
        outputs = function(*tracers)
        return builder.close(outputs)


class _WatchedBuilder(Builder):
    """Remembers every tracer that it makes, as long as something else does."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.made: list[weakref.ref[Tracer]] = []

    def tracer(self, atom: Atom) -> Tracer:
        """As Builder's."""
        tracer = super().tracer(atom)
        self.made.append(weakref.ref(tracer))
        return tracer


def _trace_watched(
    function: Callable[..., Sequence[Any]],
    types: Sequence[TensorType],
    known: Sequence[Any] | None,
    name: str,
    given: Sequence[Any] | None,
) -> tuple[Program, list[Any]]:
    """As stage, for the switch check_tracer_leaks: UnexpectedTracerError where a tracer outlives the function."""
    builder = _WatchedBuilder(name)
    with builder:
        builder.answers, builder.given = known is not None, given
        values = known if known is not None else [None] * len(types)
        found = builder.close(function(*map(builder.input, types, values)))
    gc.collect()  # what only a cycle holds is not held by the user
    for made in builder.made:
        tracer = made()
        if tracer is not None:
            raise UnexpectedTracerError(
                f"Leaked: a traced {tracer.type!r} of {name} is still held after the function has ended.",
                "Return the value from the function instead of storing it in a global, an attribute or a list.",
            )
    return found


def close_over(program: Program, captured: Sequence[Any]) -> Program:
    """The program with its leading inputs bound to captured arrays, as constants."""
    n = len(captured)
    for value in captured:
        if isinstance(value, Tracer):
            raise leaked(value)
    constants = tuple(zip(program.inputs[:n], captured, strict=True)) + program.constants
    return program.replace(inputs=program.inputs[n:], constants=constants)


def finish(builder: Builder, outputs: Sequence[Any]) -> Program:
    """Close a builder whose captures are arrays that rules made: they become constants."""
    program, captured = builder.close(outputs)
    return close_over(program, captured)


def place_known(value: Any, sharding: Any) -> None:
    """A traced value is known to be divided over devices as a sharding says."""
    if value.builder.places is None:
        value.builder.places = {}
    value.builder.places[value.atom] = sharding


def vary(value: Any, axes: frozenset[Any] | None) -> None:
    """A traced value is known to vary over these axes in scope, and over no others; None: nobody knows."""
    value.builder.varying = {**(value.builder.varying or {}), value.atom: axes}


def place_of(value: Any) -> Any:
    """The sharding that a traced value is known to have, or None."""
    places = value.builder.places if isinstance(value, Tracer) else None
    return None if places is None else places.get(value.atom)


def places_known() -> dict[Any, Any]:
    """The shardings that values of the open program are known to have, by their variables."""
    return state.builder.places or {} if state.builder is not None else {}


def places_inside(marks: dict[Any, Any]) -> None:
    """Note the shardings of variables of a program that the open one calls."""
    builder = state.builder
    if marks and builder is not None:
        builder.places = {**(builder.places or {}), **marks}


def explicit(sharding: Any) -> Any:
    """A sharding over Explicit axes of a mesh of several devices; None for others."""
    mesh = getattr(sharding, "mesh", None)
    return sharding if mesh is not None and mesh.size > 1 and mesh.explicit_axes else None


def explicit_place(value: Any) -> Any:
    """How Explicit axes divide a value, as far as somebody said so; None for others."""
    return explicit(place_of(value) if isinstance(value, Tracer) else getattr(value, "_sharding", None))


def lying_so(value: Any, sharding: Any) -> Any:
    """An array, traced or not, known to lie as a sharding says, with an entry for each of its axes; None says nothing.

    In the body of a function that is mapped over devices nothing is said of its parts.
    """
    if sharding is None or devices_in_scope() > 1 or not isinstance(value, (Tracer, ConcreteArray)):
        return value
    spec = sharding.spec
    full = sharding.update(spec=spec.update([*spec.partitions, *[None] * (value.ndim - len(spec))]))
    if isinstance(value, ConcreteArray):
        return value if sharding._devices_or_none() is None else value.with_sharding(full)
    place_known(value, full)
    return value


@contextmanager
def named_axis(
    name: Any, size: int, alone: bool = False, devices: bool = False, tracked: bool = False
) -> Generator[None]:
    """Bring a mapped axis into scope while a function is traced.

    `alone`: an axis over one device. No batch axis stands for it, and operations along it are what they mean for
    one member at once. `devices`: an axis over several. `tracked`: one over which copies of one value are one value
    for reverse mode.
    """
    before = state.axes
    state.axes = (*before, NamedAxis(name, size, alone, devices, tracked)) if name is not None else before
    try:
        yield
    finally:
        state.axes = before


def axis_named(name: Any) -> NamedAxis:
    """The innermost axis of this name in scope. Raises AxisNameError if there is none."""
    for axis in reversed(state.axes):
        if axis.name == name:
            return axis
    raise AxisNameError(
        f"There is no mapped axis named {name!r} here.",
        f"Call the function under rlx.vmap(..., axis_name={name!r}), or in rlx.shard_map over a mesh that has it.",
    )


def devices_in_scope() -> int:
    """On how many devices the function that is traced runs: the product of the axes over several."""
    count = 1
    for axis in state.axes:
        count *= axis.size if axis.devices else 1
    return count


def tracked_axes(names: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """Those of the named axes, or of all in scope, over which what is equal on all members is one value."""
    if not state.axes:
        return ()
    found = dict.fromkeys(axis.name for axis in state.axes) if names is None else names
    return tuple(name for name in found if axis_named(name).tracked)


def axis_size(name: Any) -> int:
    """Size of a named axis in scope, or the product for a tuple of names."""
    if isinstance(name, (tuple, list)):
        n = 1
        for part in name:
            n *= axis_size(part)
        return n
    return axis_named(name).size
