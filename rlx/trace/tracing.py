"""Staging: run a function on tracers and keep the program."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.advice.refused_calls import advise
from rlx.array import ConcreteArray, is_concrete
from rlx.config import config
from rlx.errors import AxisNameError, UnexpectedTracerError
from rlx.ir.program import Atom, Program
from rlx.ir.types import TensorType
from rlx.trace.builder import Builder, NamedAxis, Tracer, leaked, state

__all__ = [
    "EVERY",
    "axis_named",
    "axis_size",
    "close_over",
    "devices_in_scope",
    "explicit",
    "finish",
    "known_value",
    "lying_so",
    "named_axis",
    "place_known",
    "place_of",
    "places_inside",
    "places_known",
    "stand_ins",
    "trace_program",
    "tracked_axes",
    "vary",
]


def known_value(value: Any) -> ConcreteArray | None:
    """The value of an argument, if it can be known while a transform stages its function."""
    if isinstance(value, Tracer):
        return value.known()
    return value if is_concrete(value) else None


EVERY = sys.maxsize  # `ruled`, if a rule replaces the traced program for every derivative


def stand_ins(values: Sequence[Any]) -> list[Any]:
    """Values that are known, and None for others: other tracers of those that are traced, to be held for long."""
    others = [Tracer(x.builder, x.atom) if isinstance(x, Tracer) else x for x in values]
    return [None if known_value(x) is None else x for x in others]


def trace_program(
    function: Callable[..., Sequence[Any]],
    types: Sequence[TensorType],
    known: Sequence[Any] | None = None,
    name: str = "program",
    given: Sequence[Any] | None = None,
    own_only: bool = False,
    ruled: int = 0,
    differentiated: bool = False,
) -> tuple[Program, list[Any]]:
    """Trace a flat function (arrays in, sequence of arrays out).

    Returns the program, whose leading inputs are the captured values, and these values.
    `known`: values, traced or not, or None, with which tracers may answer bool(), int(), ... while tracing.
    `given`: the values, traced or not, that its arguments, or the first ones, represent, or slices of such values.
    `own_only`, `ruled`: as of a Builder. `differentiated`: the derivative by the arguments is taken.
    """
    builder = _WatchedBuilder(name) if config.check_tracer_leaks else Builder(name)
    builder.answers, builder.given = known is not None, given
    builder.own_only, builder.ruled = own_only, ruled
    with builder:
        values = map(known_value, known) if known is not None else [None] * len(types)
        tracers = [builder.input(t, v) for t, v in zip(types, values, strict=True)]
        builder.differentiated = builder.inputs if differentiated else ()
        try:
            traced = builder.close(function(*tracers))
        except TypeError as error:
            advise(error)
            raise
    del tracers
    if isinstance(builder, _WatchedBuilder):
        builder.check()
    return traced


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

    def check(self) -> None:
        """Raise UnexpectedTracerError if a tracer outlives the function, for the switch check_tracer_leaks."""
        gc.collect()  # the user does not hold tracers that only a cycle refers to
        for made in self.made:
            tracer = made()
            if tracer is not None:
                raise UnexpectedTracerError(
                    f"Leaked: a traced {tracer.type!r} of {self.name} is still held after the function has ended.",
                    "Return the value from the function instead of storing it in a global, an attribute or a list.",
                )


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
    """A traced value is known to be divided over devices by a sharding."""
    value.builder.facts("places")[value.atom] = sharding


def vary(value: Any, axes: frozenset[Any] | None) -> None:
    """A traced value is known to vary over these axes in scope, and over no others; None: unknown."""
    value.builder.facts("varying")[value.atom] = axes


def place_of(value: Any) -> Any:
    """The sharding that a value, traced or not, is known to have, or None."""
    if not isinstance(value, Tracer):
        return getattr(value, "_sharding", None)
    return value.builder.facts("places").get(value.atom)


def places_known() -> dict[Any, Any]:
    """The shardings that values of the open program are known to have, by their variables."""
    return {} if state.builder is None else state.builder.facts("places")


def places_inside(marks: dict[Any, Any]) -> None:
    """Note the shardings of variables of a program that the open one calls."""
    if state.builder is not None:
        state.builder.facts("places").update(marks)


def explicit(sharding: Any) -> Any:
    """A sharding over Explicit axes of a mesh of several devices; None for others."""
    mesh = getattr(sharding, "mesh", None)
    return sharding if mesh is not None and mesh.size > 1 and mesh.explicit_axes else None


def lying_so(value: Any, sharding: Any) -> Any:
    """An array, traced or not, with a known sharding, which has an entry for each axis; None for an unknown one.

    In the body of a function that is mapped over devices parts have no known sharding.
    """
    if sharding is None or devices_in_scope() > 1 or not isinstance(value, (Tracer, ConcreteArray)):
        return value
    spec = sharding.spec
    full = sharding.update(spec=spec.update([*spec.partitions, *[None] * (value.ndim - len(spec))]))
    if is_concrete(value):
        return value if sharding._devices_or_none() is None else value.with_sharding(full)
    place_known(value, full)
    return value


@contextmanager
def named_axis(
    name: Any, size: int, alone: bool = False, devices: bool = False, tracked: bool = False
) -> Generator[None]:
    """Bring a mapped axis into scope while a function is traced.

    `alone`: an axis over one device. It has no batch axis, and operations along it have their meaning for
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
    known = ", ".join(dict.fromkeys(repr(axis.name) for axis in state.axes))
    raise AxisNameError(
        f"There is no mapped axis named {name!r} here{f': the axes in scope are {known}' if known else ''}.",
        f"Write one of these names. To map another axis, call the function under rlx.vmap(..., axis_name={name!r})."
        if known
        else f"Call the function under rlx.vmap(..., axis_name={name!r}), or in rlx.shard_map over a mesh that has it.",
    )


def devices_in_scope() -> int:
    """The number of devices that the traced function runs on: the product of the axes over several devices."""
    count = 1
    for axis in state.axes:
        count *= axis.size if axis.devices else 1
    return count


def tracked_axes(names: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """The named axes (or all in scope) over which a value that is equal on all members is one value."""
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
