"""Operations that move elements, against NumPy and JAX."""

from __future__ import annotations

import numpy as np
import pytest
from against_jax import agree, draw, equal
from jax import lax

from rlx.array import wrap
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import TensorType, bits_of, supported_dtypes
from rlx.ops import shape as ops
from rlx.trace.tracing import trace_program
from rlx.transforms.reverse import vjp

# XLA ends the process on many operations of numbers of less than a byte; tests/numpy/test_narrow_dtypes.py has those
DTYPES = sorted((d for d in supported_dtypes if bits_of(d) >= 8), key=str)


@pytest.mark.parametrize(
    ("source", "shape", "dims"),
    [
        ((3,), (2, 3), (1,)),
        ((), (2, 2), ()),
        ((1, 4), (3, 4), (0, 1)),
        ((0,), (2, 0), (1,)),
        ((1,), (0,), (0,)),
    ],
)
def test_broadcast_in_dim(source, shape, dims):
    agree(
        lambda x: ops.broadcast_in_dim(x, shape=shape, dims=dims),
        lambda x: lax.broadcast_in_dim(x, shape, dims),
        draw(*source),
    )


@pytest.mark.parametrize(
    "config",
    [
        ((1, 2, 0), (0, 0, 0)),
        ((-1, 2, 3), (2, -2, 1)),
        ((-3, 5, 0), (0, 0, 2)),
        ((5, -3, 1), (-4, 1, 0)),
    ],
)
@pytest.mark.parametrize("shape", [(4, 5), (1, 4), (4, 4)])
def test_pad(config, shape):
    agree(
        lambda x, v: ops.pad(x, v, config=config),
        lambda x, v: lax.pad(x, v, config),
        draw(*shape),
        draw(),
    )


def test_pad_of_nothing():
    config = ((2, 1, 3), (0, 0, 1))
    agree(
        lambda x, v: ops.pad(x, v, config=config),
        lambda x, v: lax.pad(x, v, config),
        draw(0, 2),
        draw(),
    )


def test_padding_value_has_a_derivative_beside_infinities():
    x = np.array([np.inf, np.nan])
    _, (value,) = _vjp(lambda v: ops.pad(x, v, config=((1, 2, 0),)), np.zeros(()))
    assert value.numpy() == 3


def _vjp(function, *args):
    out, pull = vjp(function, *args)
    return out, pull(np.ones(out.shape))


@pytest.mark.parametrize(
    ("starts", "limits", "strides"),
    [
        ((0, 0), (4, 5), (1, 1)),
        ((1, 2), (4, 5), (2, 3)),
        ((4, 5), (4, 5), (1, 1)),
        ((0, 4), (3, 5), (3, 9)),
    ],
)
def test_slice(starts, limits, strides):
    agree(
        lambda x: ops.slice(x, starts=starts, limits=limits, strides=strides),
        lambda x: lax.slice(x, starts, limits, strides),
        draw(4, 5),
    )


def test_transpose_reverse_reshape():
    agree(
        lambda x: ops.reshape(ops.reverse(ops.transpose(x, permutation=(2, 0, 1)), axes=(0, 2)), shape=(6, 4)),
        lambda x: lax.reshape(lax.rev(lax.transpose(x, (2, 0, 1)), (0, 2)), (6, 4)),
        draw(2, 3, 4),
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_concatenate(axis):
    agree(
        lambda *xs: ops.concatenate(*xs, axis=axis),
        lambda *xs: lax.concatenate(xs, axis),
        draw(2, 2),
        draw(2, 0) if axis else draw(0, 2),
        draw(2, 3) if axis else draw(3, 2),
    )


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "b"], ids=str)
def test_iota(dtype):
    type = TensorType((3, 2), dtype)
    for axis in (0, 1):
        expected = np.indices((3, 2))[axis].astype(dtype)
        equal(ops.iota(type=type, axis=axis), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_moves(dtype):
    x = draw(3, 4).astype(dtype) if dtype.kind != "b" else draw(3, 4, dtype=bool)
    agree(
        lambda x: ops.concatenate(
            ops.reverse(x, axes=(0,)),
            ops.pad(x, np.ones((), x.dtype), config=((0, 0, 0), (0, 0, 0))),
            axis=1,
        ),
        lambda x: lax.concatenate([lax.rev(x, (0,)), x], 1),
        x,
        derivatives=False,
    )


def test_helpers():
    x = draw(1, 3, 1)
    assert ops.squeeze(x, (0, 2)).shape == (3,)
    assert ops.expand_dims(x, (0, 4)).shape == (1, 1, 3, 1, 1)
    first, empty, rest = ops.split(x, (1, 0, 2), 1)
    assert (first.shape, empty.shape, rest.shape) == ((1, 1, 1), (1, 0, 1), (1, 2, 1))
    equal(rest, x[:, 1:])


def test_memory_is_shared_by_views():
    x = draw(4, 5)
    held = wrap(x)
    assert np.shares_memory(ops.transpose(held, permutation=(1, 0)).numpy(), x)
    assert np.shares_memory(ops.slice_along(held, 1, 3, 0).numpy(), x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.reshape(x, shape=(7,)),
        lambda x: ops.broadcast_in_dim(x, shape=(4, 3), dims=(0, 1)),
        lambda x: ops.broadcast_in_dim(x, shape=(3, 2), dims=(1, 0)),
        lambda x: ops.transpose(x, permutation=(0, 0)),
        lambda x: ops.slice(x, starts=(0, 0), limits=(3, 3), strides=(1, 1)),
        lambda x: ops.pad(x, 0.0, config=((-3, 0, 0), (0, 0, 0))),
        lambda x: ops.pad(x, x, config=((0, 0, 0), (0, 0, 0))),
        lambda x: ops.concatenate(x, ops.reverse(x, axes=(2,)), axis=0),
        lambda x: ops.concatenate(x, draw(2, 4, dtype=np.float32), axis=0),
        lambda x: ops.squeeze(x, (0,)),
        lambda x: ops.split(x, (1, 1), 1),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call):
    with pytest.raises(ShapeError):
        trace_program(lambda x: [call(x)], [TensorType((2, 3), np.dtype(np.float32))])


def test_dtypes_that_do_not_fit_are_refused():
    with pytest.raises(DtypeError):
        trace_program(
            lambda x, y: [ops.concatenate(x, y, axis=0)],
            [TensorType((2,), np.dtype(t)) for t in ("f4", "i4")],
        )
