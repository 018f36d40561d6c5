"""The common part of primitives with regions: eager running, batching to the front, splitting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import array_of_type, is_concrete, is_divided
from rlx.config import config
from rlx.errors import ControlFlowTypeError, NanError
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.ops.families import instantiate, to_front
from rlx.trace.hooks import execution
from rlx.trace.interpret import interpret
from rlx.trace.places import Elsewhere, followed, program_of
from rlx.trace.primitive import Region, Zero, type_of, watching
from rlx.trace.spanning import known_by_parts

__all__ = [
    "RegionPrimitive",
    "calls_host",
    "check_operands",
    "is_zero",
    "iteration",
    "run_region",
    "same_types",
    "tangent_inputs",
]


def calls_host(program: Program) -> bool:
    """Whether a program calls functions with side effects on the host, also in a region; observers do not count."""

    def inner(value: Any) -> bool:
        if isinstance(value, tuple):
            return any(map(inner, value))
        return isinstance(value, Program) and calls_host(value)

    return any(e.primitive.name == "io_callback" or any(map(inner, e.params.values())) for e in program.equations)


def run_region(program: Program, args: Sequence[Any]) -> list[np.ndarray]:
    """Run a region on NumPy arrays, op by op."""
    return [to_array(x) for x in interpret(program, list(map(array_of_type, args, program.input_types)))]


class iteration:
    """Run one iteration of a loop op by op: a NanError in it names the iteration."""

    def __init__(self, number: int, loop: str) -> None:
        self.number, self.loop = number, loop

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, NanError):
            error.within(self.number, self.loop)


def to_array(x: Any) -> np.ndarray:
    """A concrete result as NumPy."""
    return x.numpy() if is_concrete(x) else np.asarray(x)


class RegionPrimitive(Region):
    """Runs eagerly as one compiled program, unless jit is disabled."""

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Compile and run the equation alone, or op by op for debugging. Raises Elsewhere for arrays of parts."""
        if known_by_parts(args):
            raise Elsewhere
        if execution.compiled is None or config.disable_jit or watching():
            return super().evaluate(args, params)
        types = [type_of(a) for a in args]
        outs = tuple(execution.compiled(program_of(self, types, params), args))
        return followed(self, args, types, params, outs) if any(map(is_divided, args)) else outs


def is_zero(x: Any) -> bool:
    """Whether a tangent or cotangent is a symbolic zero."""
    return isinstance(x, Zero)


def tangent_inputs(tangents: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The tangents at the marked positions, with explicit zeros."""
    return [instantiate(t) for t, m in zip(tangents, mask, strict=True) if m]


def batch_front(values: Sequence[Any], dims: Sequence[int | None], mask: Sequence[bool], size: int) -> list[Any]:
    """Values with the batch axis first where marked, broadcast if they have none."""
    return [to_front(x, d, size) if m else x for x, d, m in zip(values, dims, mask, strict=True)]


def same_types(a: Sequence[TensorType], b: Sequence[TensorType]) -> bool:
    """Equal shapes and dtypes, weakness aside."""
    return len(a) == len(b) and all(
        x is y or (x.shape == y.shape and x.dtype == y.dtype) for x, y in zip(a, b, strict=True)
    )


def check_operands(name: str, program: Program, types: Sequence[TensorType]) -> None:
    """Raise ControlFlowTypeError unless a region takes operands of the given types, weakness aside."""
    wanted = program.input_types
    if same_types(wanted, types):
        return
    takes, gets = (", ".join(repr(t.strong()) for t in side) or "nothing" for side in (wanted, types))
    raise ControlFlowTypeError(
        f"{name} passes ({gets}) to its region {program.name}, which takes ({takes}).",
        "Bind it to operands of the shapes and dtypes that the region was traced with.",
    )


def keep(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The values at marked positions."""
    return [v for v, m in zip(values, mask, strict=True) if m]


def drop(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The values at unmarked positions."""
    return [v for v, m in zip(values, mask, strict=True) if not m]
