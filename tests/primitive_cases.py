"""Samples of every registered primitive, and how to run them, for the generic tests."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import rlx.ops
from rlx.backends.base import Backend
from rlx.ir.types import TensorType, is_float, is_integer
from rlx.passes.pipeline import lower_program
from rlx.trace.primitive import Primitive, Sample, registry
from rlx.trace.tracing import close_over, trace_program

for module in pkgutil.iter_modules(rlx.ops.__path__):
    importlib.import_module(f"rlx.ops.{module.name}")

# what is not smooth, though its derivative is defined: a zero by convention
STEPS = {"nextafter", "round", "stop_gradient"}


class Case(NamedTuple):
    """One sample of one primitive."""

    primitive: Primitive
    sample: Sample
    number: int

    def __repr__(self) -> str:
        types = ",".join(f"{a.dtype.name}{list(a.shape)}".replace(" ", "") for a in self.arrays)
        return f"{self.primitive.name}-{self.number}-{types}"

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The operands."""
        return tuple(np.asarray(a) for a in self.sample.args)

    @property
    def types(self) -> list[TensorType]:
        """Types of the operands."""
        return [TensorType(a.shape, a.dtype) for a in self.arrays]

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """Types of the results."""
        types = self.primitive.type(*self.types, **self.sample.params)
        return types if self.primitive.multiple else (types,)

    def bind(self, *args: Any) -> tuple[Any, ...]:
        """Bind the primitive to other operands."""
        out = self.primitive.bind(*args, **self.sample.params)
        return out if self.primitive.multiple else (out,)

    def reference(self, *args: np.ndarray) -> tuple[np.ndarray, ...]:
        """Results in NumPy."""
        with np.errstate(all="ignore"):
            out = self.primitive.reference(*args, **self.sample.params)
        return tuple(np.asarray(o) for o in (out if self.primitive.multiple else (out,)))

    @property
    def is_wide(self) -> bool:
        """Whether the operands have the widest dtype of their kind: one sample for all of them."""
        dtypes = [a.dtype for a in self.arrays]
        narrow_floats = any(is_float(d) and d.itemsize < 8 for d in dtypes)
        narrow_integers = any(is_integer(d) and d.itemsize == 1 for d in dtypes)
        return not (narrow_floats or narrow_integers or np.dtype("c8") in dtypes)


@cache
def cases() -> tuple[Case, ...]:
    """Every sample of every primitive."""
    return tuple(
        Case(p, sample, number)
        for p in registry.values()
        for number, sample in enumerate(p.samples())
    )


def cases_of(name: str) -> list[Case]:
    """The samples of one primitive."""
    return [c for c in cases() if c.primitive.name == name]


def names() -> list[str]:
    """Primitives that have samples."""
    return list(dict.fromkeys(c.primitive.name for c in cases()))


def run_lowered(
    backend: Backend, function: Callable[..., Sequence[Any]], args: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Stage, lower, compile and run a flat function."""
    types = [TensorType(a.shape, a.dtype) for a in args]
    program, captured = trace_program(function, types)
    plan = lower_program(close_over(program, captured))
    memory = backend.memory
    storages = backend.compile(plan).run([memory.put(np.ascontiguousarray(a).reshape(a.shape)) for a in args])
    return [
        memory.get(storage, t.shape, t.dtype)
        for storage, t in zip(storages, program.output_types, strict=True)
    ]
