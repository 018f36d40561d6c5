"""sort and top_k against JAX and NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from against_jax import agree, draw, equal, loop_equals_vmap, lowered
from jax import lax

from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import TensorType, bits_of, supported_dtypes
from rlx.ops.sorting import sort, top_k
from rlx.trace.tracing import trace_program

# XLA ends the process on many operations of numbers of less than a byte; tests/numpy/test_narrow_dtypes.py has those
DTYPES = sorted((d for d in supported_dtypes if bits_of(d) >= 8), key=str)
nan, inf = np.nan, np.inf


def sorting(axis, keys):
    return (
        lambda *xs: sort(*xs, axis=axis, keys=keys),
        lambda *xs: lax.sort(xs, dimension=axis, num_keys=keys),
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sort(axis):
    agree(*sorting(axis, 1), draw(3, 4, 2))


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_several_operands(keys):
    ties = draw(3, 8, dtype=np.int32) // 3
    agree(*sorting(1, keys), ties, np.round(draw(3, 8)), draw(3, 8))


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (0, 3), (1, 1)])
def test_few_elements(shape):
    agree(*sorting(len(shape) - 1, 1), draw(*shape), draw(*shape))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype):
    agree(*sorting(0, 1), draw(20, dtype=dtype), draw(20), derivatives=False)


def test_special_values():
    x = np.array([nan, 1, -inf, 0.0, inf, -0.0, nan, -1, 0.0])
    ours, theirs = sorting(0, 1)
    agree(ours, theirs, x, np.arange(9), derivatives=False)
    # equal zeros keep their order
    for out in (ours(x, np.arange(9))[1].numpy(), lowered(ours, [x, np.arange(9)])[1]):
        np.testing.assert_array_equal(out, [2, 7, 3, 5, 8, 1, 4, 0, 6])


def test_complex_numbers_are_ordered_by_parts():
    parts = [nan, -1, 0.0, 1]
    x = np.array([complex(a, b) for a, b in itertools.product(parts, parts)])
    x = np.random.default_rng(3).permutation(x)
    agree(*sorting(0, 1), x, np.arange(16), derivatives=False)


@pytest.mark.parametrize("axes", [(0, None), (None, 1), (2, 0)])
def test_vmap_of_sort(axes):
    loop_equals_vmap(sorting(1, 1)[0], [draw(3, 4, dtype=np.int32), draw(3, 4)], axes)


# ------------------------------------------------------------- top_k
def test_top_k_values_positions_and_derivatives():
    for k in (0, 1, 3, 5):
        agree(lambda x, k=k: top_k(x, k=k, axis=1), lambda x, k=k: lax.top_k(x, k), draw(3, 5))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind not in "cb"], ids=str)
def test_top_k_takes_every_dtype(dtype):
    x = draw(20, dtype=dtype)
    agree(lambda x: top_k(x, k=7, axis=0), lambda x: lax.top_k(x, 7), x, derivatives=False)


def test_top_k_of_ties_and_nan():
    x = np.array([1.0, 3, nan, 3, 1, nan, inf])
    agree(lambda x: top_k(x, k=6, axis=0), lambda x: lax.top_k(x, 6), x, derivatives=False)


def test_top_k_along_another_axis():
    x = draw(5, 3)
    values, positions = top_k(x, k=2, axis=0)
    order = np.argsort(-x, axis=0, kind="stable")[:2]
    equal(positions, order.astype(np.int32))
    equal(values, np.take_along_axis(x, order, 0))
    for axis in (0, 1, 2):
        loop_equals_vmap(lambda x: top_k(x, k=2, axis=0), [x], (axis,))


def test_what_does_not_fit_is_refused():
    def refuse(error, function, *parts):
        with pytest.raises(error):
            trace_program(lambda *xs: list(function(*xs)), [TensorType(s, np.dtype(d)) for s, d in parts])

    refuse(ShapeError, sorting(1, 1)[0], ((3,), "f4"))
    refuse(ShapeError, sorting(0, 2)[0], ((3,), "f4"))
    refuse(ShapeError, sorting(0, 1)[0], ((3,), "f4"), ((4,), "f4"))
    refuse(ShapeError, lambda x: top_k(x, k=4, axis=0), ((3,), "f4"))
    refuse(DtypeError, lambda x: top_k(x, k=2, axis=0), ((3,), "c8"))
