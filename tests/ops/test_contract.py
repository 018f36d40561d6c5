"""dot_general against JAX."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from against_jax import agree, draw, equal, loop_equals_vmap
from jax import lax

from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import TensorType
from rlx.ops.contract import dot_general
from rlx.trace.tracing import trace_program

CASES = [
    ((2, 3), (3, 4), (((1,), (0,)), ((), ()))),
    ((3,), (3,), (((0,), (0,)), ((), ()))),
    ((), (2, 3), (((), ()), ((), ()))),
    ((4, 2, 3), (3, 5, 4), (((2,), (0,)), ((0,), (2,)))),
    ((2, 3, 4, 5), (5, 3, 2, 6), (((3, 1), (0, 1)), ((0,), (2,)))),
    ((2, 3, 4), (6, 4, 3, 2), (((2,), (1,)), ((1, 0), (2, 3)))),
    ((2, 0), (0, 3), (((1,), (0,)), ((), ()))),
    ((0, 2), (2, 3), (((1,), (0,)), ((), ()))),
    ((2, 3), (2, 3), (((), ()), ((0, 1), (0, 1)))),
]


def dot(numbers, preferred=None):
    return lambda x, y: dot_general(x, y, dimension_numbers=numbers, preferred_dtype=preferred)


def model(numbers, preferred=None):
    return lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=preferred)


@pytest.mark.parametrize(("lhs", "rhs", "numbers"), CASES)
def test_dot_general(lhs, rhs, numbers):
    agree(dot(numbers), model(numbers), draw(*lhs), draw(*rhs))


@pytest.mark.parametrize(("lhs", "rhs", "numbers"), CASES)
@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0), (-1, None), (-1, 0), (0, -1)])
def test_vmap_stays_one_dot(lhs, rhs, numbers, in_axes):
    sizes = (len(lhs), len(rhs))
    axes = [d if d is None else d % (n + 1) for d, n in zip(in_axes, sizes, strict=True)]
    loop_equals_vmap(dot(numbers), [draw(*lhs), draw(*rhs)], axes)


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ],
)
def test_every_dtype(dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    numbers = (((1,), (0,)), ((), ()))
    differentiable = dtype.name in ("float64", "complex128")
    agree(
        dot(numbers),
        model(numbers),
        draw(3, 40, dtype=dtype),
        draw(40, 2, dtype=dtype),
        derivatives=differentiable,
    )


def test_integers_wrap():
    x = np.full((1, 40), 100, np.int8)
    numbers = (((1,), (1,)), ((), ()))
    equal(dot(numbers)(x, x), np.full((1, 1), 40 * 10000).astype(np.int8))
    equal(dot(numbers, np.dtype(np.int32))(x, x), np.full((1, 1), 400000, np.int32))


@pytest.mark.parametrize(
    ("source", "result"),
    [("bfloat16", "float32"), ("float16", "float32"), ("int8", "int32"), ("float32", "float64")],
)
def test_preferred_dtype(source, result):
    source, result = np.dtype(getattr(ml_dtypes, source, source)), np.dtype(result)
    numbers = (((1,), (1,)), ((), ()))
    agree(
        dot(numbers, result),
        model(numbers, result),
        draw(3, 50, dtype=source),
        draw(2, 50, dtype=source),
        derivatives=source.kind != "i",
    )


def test_narrow_floats_round_once():
    x = np.full((1, 1000), 1, ml_dtypes.bfloat16)
    out = dot((((1,), (1,)), ((), ())))(x, x)
    assert float(out.numpy()[0, 0]) == 1000


@pytest.mark.parametrize(
    ("numbers", "preferred", "error"),
    [
        ((((1,), (1,)), ((), ())), None, ShapeError),
        ((((2,), (0,)), ((), ())), None, ShapeError),
        ((((0,), (0,)), ((0,), (0,))), None, ShapeError),
        ((((0,), (0,)), ((), ())), np.dtype(np.float16), DtypeError),
        ((((0,), (0,)), ((), ())), np.dtype(np.int32), DtypeError),
    ],
)
def test_what_does_not_fit_is_refused(numbers, preferred, error):
    types = [TensorType((2, 3), np.dtype(np.float32)), TensorType((2, 4), np.dtype(np.float32))]
    with pytest.raises(error):
        trace_program(lambda x, y: [dot(numbers, preferred)(x, y)], types)
