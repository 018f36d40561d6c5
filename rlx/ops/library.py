"""The family of primitives that a library routine computes, batched over leading axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.array import is_divided
from rlx.config import config
from rlx.errors import RlxError, UnsupportedError
from rlx.ir.types import TensorType
from rlx.ops.families import to_front
from rlx.ops.sample_dtypes import typed_samples
from rlx.routines import LIBRARY_ROUTINES
from rlx.trace.hooks import execution
from rlx.trace.places import Elsewhere, followed, program_of
from rlx.trace.primitive import Primitive, Zero, type_of, watching
from rlx.trace.spanning import known_by_parts

__all__ = ["LibraryPrimitive", "as_real", "samples_in", "zero_tangents"]


class LibraryPrimitive(Primitive):
    """Computed by the library routine of its name, with its params as attributes.

    A subclass defines `type` and `derivative(outs, primals, tangents, **params)`, the tangents of all
    results, where no tangent of an inexact operand is a Zero. Many define `decomposition(*values, **params)`, the
    results by other primitives, for devices that do not claim the routine; not called for results without elements.
    """

    multiple = True

    @property
    def routine(self) -> str:
        """The name in LIBRARY_ROUTINES."""
        return self.name

    def attributes(self, **params: Any) -> dict[str, Any]:
        """The attributes of the routine."""
        return params

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Compile the equation alone, so that its result is the same as in a program; for debugging run
        the reference, on operands of checked types: routines may treat other types differently. Raises Elsewhere for
        arrays of parts."""
        if known_by_parts(args):
            raise Elsewhere
        types = tuple(type_of(a) for a in args)
        if execution.prepared is None or config.disable_jit or watching():
            self.type(*types, **params)
            return super().evaluate(args, params)
        results = _prepared(self, types, tuple(params.items()))(args)
        if any(map(is_divided, args)):
            results = followed(self, args, types, params, results)
        return tuple(results) if self.multiple else results[0]

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """The routine on NumPy arrays."""
        results = LIBRARY_ROUTINES[self.routine](arrays, self.attributes(**params))
        return results if self.multiple else results[0]

    def axis_map(self, *types: TensorType, **params: Any) -> tuple[tuple[int | None, ...], ...]:
        """Leading axes, over which the routine is batched."""
        lead = _leading_axes(self, types, params)
        return tuple(tuple(a if a < lead else None for a in range(t.ndim)) for t in types)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        """`derivative`, unless all tangents are zero."""
        out = self.bind(*primals, **params)
        if all(isinstance(t, Zero) for t in tangents):
            return out, zero_tangents(out) if self.multiple else Zero(type_of(out))
        return out, self.derivative(out, primals, tangents, **params)

    def derivative(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """The tangents of the results."""
        raise UnsupportedError(
            f"{self.name} has no derivative.", "Wrap its operand in stop_gradient, or use a custom_jvp."
        )

    def transpose(self, cotangents: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        """Not linear."""
        raise AssertionError(f"{self.name} is not linear: a derivative rule is wrong")

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        """A leading batch axis for every operand."""
        fronted = [to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        out = self.bind(*fronted, **params)
        return out, ((0,) * len(out) if self.multiple else 0)

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        """A library kernel; none if there is nothing to compute."""
        types = self.type(*[v.type for v in values], **params)
        outs = types if self.multiple else (types,)
        if all(t.size == 0 for t in outs):
            results = tuple(k.full(t, 0) for t in outs)
        else:
            results = k.library(self.routine, values, outs, self.attributes(**params))
        return results if self.multiple else results[0]


@lru_cache(maxsize=1024)
def _prepared(
    operation: LibraryPrimitive, types: tuple[TensorType, ...], params: tuple[tuple[str, Any], ...]
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The function that runs one equation on arrays of these types."""
    if execution.prepared is None:
        raise AssertionError("the api has set how programs are compiled")
    return execution.prepared(program_of(operation, types, dict(params)))


def _leading_axes(operation: LibraryPrimitive, types: Sequence[TensorType], params: dict[str, Any]) -> int:
    """The number of axes over which the routine is batched: those without which it takes the operands."""
    count = 0
    while all(t.ndim > 0 for t in types):
        types = [t.update(shape=t.shape[1:]) for t in types]
        try:
            operation.type(*types, **params)
        except RlxError:
            break
        count += 1
    return count


def zero_tangents(outs: Sequence[Any]) -> tuple[Zero, ...]:
    """A Zero for every result."""
    return tuple(Zero(type_of(out)) for out in outs)


def samples_in(dtypes: str, *cases: Any) -> Any:
    """(args, params) pairs with float64 args, then the first in other dtypes; complex by rotation."""
    return typed_samples(tuple(map(np.dtype, dtypes.split())), *cases)


def as_real(*shape: int, seed: float = 1.3) -> np.ndarray:
    """Well-conditioned matrices without structure."""
    n = int(np.prod(shape))
    values = np.sin(np.arange(1, n + 1, dtype=np.float64) * seed + 0.4).reshape(shape)
    if len(shape) > 1:
        rows, columns = shape[-2:]
        values = values + 2 * np.eye(rows, columns)
    return values
