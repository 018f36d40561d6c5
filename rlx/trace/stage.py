"""Staging: run a function on tracers and keep the program."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.array import ConcreteArray
from rlx.errors import VmapAxisError
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.trace.builder import Builder, Tracer, leaked, state

__all__ = ["axis_size", "close_over", "finish", "known_value", "named_axis", "stage"]


def known_value(value: Any) -> ConcreteArray | None:
    """The value of an argument, where it can be known while a transform stages its function."""
    if isinstance(value, Tracer):
        return value.known()
    return value if isinstance(value, ConcreteArray) else None


def stage(
    function: Callable[..., Sequence[Any]],
    types: Sequence[TensorType],
    known: Sequence[Any] | None = None,
    name: str = "program",
) -> tuple[Program, list[Any]]:
    """Trace a flat function (arrays in, sequence of arrays out).

    Returns the program, whose leading inputs are what the function captured, and those values.
    `known`: values (or None) with which tracers may answer bool(), int(), ... while tracing.
    """
    with Builder(name) as builder:
        values = known if known is not None else [None] * len(types)
        tracers = [builder.input(t, v) for t, v in zip(types, values, strict=True)]
        outputs = function(*tracers)
        return builder.close(outputs)


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


@contextmanager
def named_axis(name: Any, size: int) -> Generator[None]:
    """Bring a mapped axis into scope while a function is traced."""
    before = state.axes
    state.axes = (*before, (name, size)) if name is not None else before
    try:
        yield
    finally:
        state.axes = before


def axis_size(name: Any) -> int:
    """Size of a named axis in scope, or the product for a tuple of names."""
    if isinstance(name, (tuple, list)):
        n = 1
        for part in name:
            n *= axis_size(part)
        return n
    for known, size in reversed(state.axes):
        if known == name:
            return size
    raise VmapAxisError(
        f"There is no mapped axis named {name!r} here.",
        f"Call the function under rlx.vmap(..., axis_name={name!r}).",
    )
