"""Whether two programs have the same results: they are run on random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Any

import numpy as np

from rlx.array import ConcreteArray, array_of_type
from rlx.call.compiled import prepare_program
from rlx.ir.program import Program
from rlx.ir.types import TensorType, dtype_kind, is_key

__all__ = ["same_results"]

MOST_ELEMENTS = 1 << 26  # of all values of a program
_SMALL = 0.25  # random floats are at most as large, so that products of many matrices do not overflow
_TOLERANCE = 1e-2  # relative to the largest number of a result


def same_results(one: Program, other: Program) -> bool | None:
    """Whether programs have the same results up to rounding; None if they are too large to be run."""
    if one.input_types != other.input_types or one.output_types != other.output_types:
        return False
    if max(map(_elements, (one, other))) > MOST_ELEMENTS:
        return None
    generator = np.random.default_rng(0)
    arrays = [_random(type, generator) for type in one.input_types]
    results = [prepare_program(program)(arrays) for program in (one, other)]
    return all(map(_close, *results))


def _elements(program: Program) -> int:
    values = (*program.inputs, *(v for v, _ in program.constants), *(v for e in program.equations for v in e.outputs))
    return sum(v.type.size for v in values) + sum(map(_elements, program.regions()))


def _random(type: TensorType, generator: np.random.Generator) -> ConcreteArray:
    dtype: Any = type.dtype
    if is_key(dtype):
        words = generator.integers(0, 2**32, (*type.shape, dtype.words), np.uint32)
        return array_of_type(dtype.records_of(words), type)
    if dtype_kind(dtype) in "biu":
        return array_of_type(np.asarray(generator.integers(0, 2, type.shape)).astype(dtype), type)
    numbers = np.asarray(generator.uniform(-_SMALL, _SMALL, type.shape))
    return array_of_type(numbers.astype(dtype), type)


def _close(one: ConcreteArray, other: ConcreteArray) -> bool:
    a, b = one.numpy(), other.numpy()
    if is_key(one.type.dtype) or dtype_kind(a.dtype) in "biu":
        return a.tobytes() == b.tobytes()
    wide: Sequence[np.ndarray] = [x.astype(np.complex128) for x in (a, b)]
    finite = [x[np.isfinite(x)] for x in wide]
    if finite[0].shape != finite[1].shape or not finite[0].size:
        return finite[0].shape == finite[1].shape
    largest = max(float(np.abs(x).max()) for x in finite)
    return isclose(float(np.abs(finite[0] - finite[1]).max()), 0.0, abs_tol=_TOLERANCE * largest)
