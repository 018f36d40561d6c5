"""Convolutions and windows against JAX."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from against_jax import agree, draw, equal, loop_equals_vmap
from jax import lax

from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import TensorType
from rlx.ops import window as windows
from rlx.ops.arithmetic import add, multiply
from rlx.ops.convolution import ConvDimensionNumbers, conv_general_dilated
from rlx.ops.window_spec import WindowSpec
from rlx.trace.primitive import registry
from rlx.trace.tracing import trace_program
from rlx.transforms.reverse import vjp

NCHW = ((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
NHWC = ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
MIXED = ((1, 2, 0, 3), (2, 0, 3, 1), (3, 0, 2, 1))
LINE = ((0, 1, 2), (0, 1, 2), (0, 1, 2))
NONE = ((0, 1), (0, 1), (0, 1))
SAME = ((1, 1), (1, 1))

# specs, lhs and rhs in (batch, feature, *spatial) order, strides, padding, dilations, groups
CASES = {
    "plain": (NCHW, (2, 3, 5, 4), (4, 3, 3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1, 1),
    "channels last": (NHWC, (2, 3, 5, 4), (4, 3, 3, 2), (2, 1), SAME, (1, 1), (1, 1), 1, 1),
    "mixed axes": (MIXED, (2, 3, 5, 4), (4, 3, 3, 2), (1, 2), SAME, (1, 1), (1, 1), 1, 1),
    "dilated": (NCHW, (1, 2, 7, 6), (2, 2, 3, 2), (2, 1), ((2, 1), (0, 3)), (2, 1), (1, 3), 1, 1),
    "negative padding": (
        NHWC,
        (2, 2, 7, 8),
        (3, 2, 2, 3),
        (1, 2),
        ((-1, 2), (-2, -1)),
        (1, 1),
        (2, 1),
        1,
        1,
    ),
    "one by one": (
        NHWC,
        (2, 3, 4, 4),
        (5, 3, 1, 1),
        (1, 1),
        ((0, 0), (0, 0)),
        (1, 1),
        (1, 1),
        1,
        1,
    ),
    "groups": (NCHW, (2, 6, 5, 4), (4, 3, 2, 2), (1, 1), SAME, (1, 1), (1, 1), 2, 1),
    "depthwise": (NHWC, (2, 3, 5, 5), (3, 1, 3, 3), (1, 1), SAME, (1, 1), (1, 1), 3, 1),
    "depth multiplier": (NHWC, (2, 3, 5, 5), (6, 1, 3, 3), (2, 1), SAME, (1, 1), (1, 1), 3, 1),
    "batch groups": (NCHW, (4, 3, 5, 4), (6, 3, 2, 2), (1, 2), SAME, (2, 1), (1, 1), 1, 2),
    "one dimension": (LINE, (2, 3, 8), (4, 3, 3), (3,), ((2, 0),), (1,), (2,), 1, 1),
    "no dimension": (NONE, (3, 2), (4, 2), (), (), (), (), 1, 1),
    "leftover": (LINE, (1, 1, 8), (1, 1, 2), (3,), ((0, 0),), (1,), (1,), 1, 1),
    "kernel too large": (LINE, (2, 1, 2), (3, 1, 4), (1,), ((0, 0),), (1,), (1,), 1, 1),
    "no batch": (LINE, (0, 2, 4), (3, 2, 2), (1,), ((0, 0),), (1,), (1,), 1, 1),
    "no features": (LINE, (2, 0, 4), (3, 0, 2), (1,), ((0, 0),), (1,), (1,), 1, 1),
}


def placed(shape, spec):
    out = [0] * len(shape)
    for size, axis in zip(shape, spec, strict=True):
        out[axis] = size
    return out


def convolution(name):
    specs, lhs, rhs, strides, padding, base, step, features, batches = CASES[name]
    params = {
        "window_strides": strides,
        "padding": padding,
        "lhs_dilation": base,
        "rhs_dilation": step,
        "feature_group_count": features,
        "batch_group_count": batches,
    }
    ours = ConvDimensionNumbers(*specs)
    theirs = lax.ConvDimensionNumbers(*specs)
    return (
        lambda x, w: conv_general_dilated(x, w, dimension_numbers=ours, **params),
        lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=theirs, **params),
        placed(lhs, specs[0]),
        placed(rhs, specs[1]),
    )


@pytest.mark.parametrize("name", CASES)
def test_convolution(name):
    ours, theirs, lhs, rhs = convolution(name)
    agree(ours, theirs, draw(*lhs), draw(*rhs))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (-1, 1)])
def test_vmap_stays_one_convolution(name, axes):
    ours, _, lhs, rhs = convolution(name)
    axes = tuple(len(lhs) if d == -1 else d for d in axes)
    loop_equals_vmap(ours, [draw(*lhs), draw(*rhs)], axes)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64"])
def test_convolution_takes_every_dtype(dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    ours, theirs, lhs, rhs = convolution("plain")
    agree(
        ours,
        theirs,
        draw(*lhs, dtype=dtype),
        draw(*rhs, dtype=dtype),
        derivatives=dtype.kind == "c",
    )


def test_convolutions_that_do_not_fit_are_refused():
    def refuse(lhs, rhs, error, dtypes=("f4", "f4"), **changes):
        params = {
            "window_strides": (1,),
            "padding": ((0, 0),),
            "lhs_dilation": (1,),
            "rhs_dilation": (1,),
            "dimension_numbers": ConvDimensionNumbers(*LINE),
            "feature_group_count": 1,
            "batch_group_count": 1,
        }
        types = [TensorType(s, np.dtype(d)) for s, d in zip((lhs, rhs), dtypes, strict=True)]
        with pytest.raises(error):
            trace_program(lambda x, w: [conv_general_dilated(x, w, **{**params, **changes})], types)

    refuse((2, 3, 5), (4, 2, 3), ShapeError)
    refuse((2, 3, 5), (4, 3, 3, 1), ShapeError)
    refuse((2, 3, 5), (4, 3, 3), ShapeError, window_strides=(0,))
    refuse((2, 3, 5), (4, 3, 3), ShapeError, padding=((-4, -4),))
    refuse((2, 4, 5), (3, 2, 3), ShapeError, feature_group_count=2)
    refuse((3, 4, 5), (4, 4, 3), ShapeError, batch_group_count=2)
    refuse((2, 3, 5), (4, 3, 3), DtypeError, dtypes=("f4", "f8"))
    refuse((2, 3, 5), (4, 3, 3), DtypeError, dtypes=("?", "?"))


# ------------------------------------------------------------- windows
SPECS = {
    "side by side": WindowSpec((2, 3), (2, 3), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    "gaps": WindowSpec((2, 1), (3, 2), ((0, 1), (0, 0)), (1, 1), (1, 1)),
    "overlapping": WindowSpec((3, 2), (2, 1), ((1, 1), (0, 2)), (1, 1), (1, 1)),
    "whole": WindowSpec((5, 7), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    "dilated": WindowSpec((2, 3), (1, 1), ((0, 1), (1, 0)), (1, 1), (2, 3)),
    "base dilated": WindowSpec((2, 2), (1, 2), ((1, 0), (0, 1)), (2, 3), (1, 1)),
    "all padding": WindowSpec((1, 2), (1, 2), ((2, 0), (2, 1)), (1, 1), (1, 1)),
    "too large": WindowSpec((6, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
}
MONOIDS = {
    "add": (0.0, lax.add),
    "mul": (1.0, lax.mul),
    "max": (-np.inf, lax.max),
    "min": (np.inf, lax.min),
}


def reduction(op, spec):
    init, function = MONOIDS[op]
    fields = (spec.window, spec.strides, spec.padding, spec.base_dilation, spec.window_dilation)
    return (
        lambda x: windows.reduce_window(x, op=op, **spec.params()),
        lambda x: lax.reduce_window(x, np.asarray(init, x.dtype), function, *fields),
    )


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("op", MONOIDS)
def test_reduce_window(op, name):
    spec = SPECS[name]
    ours, theirs = reduction(op, spec)
    # JAX has no derivative of products, nor of extremes with dilations
    dilated = spec.base_dilation != (1, 1) or spec.window_dilation != (1, 1)
    known = op == "add" or (op in ("max", "min") and not dilated)
    agree(ours, theirs, draw(5, 7), derivatives=known and name != "all padding")


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("op", MONOIDS)
def test_vmap_of_reduce_window(op, name):
    ours, _ = reduction(op, SPECS[name])
    for axis in (0, 1, 2):
        loop_equals_vmap(ours, [draw(5, 7)], (axis,))


@pytest.mark.parametrize("name", ["dilated", "base dilated", "all padding"])
@pytest.mark.parametrize("op", ["max", "min", "mul"])
def test_derivatives_that_jax_lacks(op, name):
    ours, _ = reduction(op, SPECS[name])
    x, direction = draw(5, 7), draw(5, 7)
    out, pull = vjp(ours, x)
    ct = draw(*out.shape)
    step = 1e-6
    ends = [np.nan_to_num(ours(x + s * direction).numpy(), posinf=0, neginf=0) for s in (step, -step)]
    expected = np.sum((ends[0] - ends[1]) / (2 * step) * ct)
    np.testing.assert_allclose(np.sum(pull(ct)[0].numpy() * direction), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", MONOIDS)
@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "float16", "bfloat16", "float8_e5m2", "float32"])
def test_reduce_window_takes_every_dtype(op, dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    spec = SPECS["overlapping"]
    ours, theirs = reduction(op, spec)
    x = draw(5, 7, dtype=dtype)
    if dtype.kind in "iu":
        init = {"add": 0, "mul": 1, "max": np.iinfo(dtype).min, "min": np.iinfo(dtype).max}[op]
        fields = (spec.window, spec.strides, spec.padding)
        theirs = lambda x: lax.reduce_window(x, dtype.type(init), MONOIDS[op][1], *fields)  # noqa: E731
    if dtype.itemsize == 1 and dtype.kind not in "iu" and op in ("add", "mul"):
        wide = ours(x.astype(np.float32)).numpy()
        equal(ours(x), wide.astype(dtype))
        return
    agree(ours, theirs, x, derivatives=False)


def test_extremes_of_floats_without_infinities():
    dtype = np.dtype(ml_dtypes.float8_e4m3fn)
    x = draw(5, 7, dtype=dtype)
    for op, function in (("max", np.maximum), ("min", np.minimum)):
        ours, _ = reduction(op, SPECS["side by side"])
        blocks = x[:4, :6].astype(np.float32).reshape(2, 2, 2, 3)
        equal(ours(x), function.reduce(blocks, axis=(1, 3)).astype(dtype))
        assert np.isfinite(reduction(op, SPECS["all padding"])[0](x).numpy().astype(np.float32)).all()


@pytest.mark.parametrize("op", ["max", "min"])
def test_nan_wins_and_takes_the_derivative(op):
    x = np.array([1.0, np.nan, np.nan, 3, 2, 1])
    spec = WindowSpec((3,), (3,), ((0, 0),), (1,), (1,))
    out, pull = vjp(lambda x: windows.reduce_window(x, op=op, **spec.params()), x)
    assert np.isnan(out.numpy()[0])
    first = [0, 1, 0, 1, 0, 0] if op == "max" else [0, 1, 0, 0, 0, 1]
    equal(pull(np.ones(2))[0], np.array(first, float))


def test_padding_never_takes_the_derivative():
    x = np.full(3, -np.inf)
    spec = WindowSpec((3,), (1,), ((2, 2),), (1,), (1,))
    _, pull = vjp(lambda x: windows.reduce_window(x, op="max", **spec.params()), x)
    equal(pull(np.ones(5))[0], np.array([3.0, 1, 1]))


@pytest.mark.parametrize("name", ["side by side", "gaps", "overlapping", "whole"])
@pytest.mark.parametrize("select", [">=", "<="])
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_select_and_scatter_add(name, select, dtype):
    spec = SPECS[name]
    x = np.round(draw(5, 7) * 2).astype(dtype)  # with ties: the first one wins
    source = draw(*spec.positions(x.shape))
    op = "max" if select == ">=" else "min"

    def model(source, x):
        # XLA's operation, through the derivative of the pooling that it belongs to
        fields = (spec.window, spec.strides, spec.padding)
        init = np.asarray(MONOIDS[op][0], np.float64)
        pool = lambda y: lax.reduce_window(y, init, MONOIDS[op][1], *fields)  # noqa: E731
        return jax.vjp(pool, x.astype(np.float64))[1](source)[0]

    agree(
        lambda s, x: windows.select_and_scatter_add(s, x, select=select, **spec.params()),
        model,
        source,
        x,
        derivatives=False,
    )


@pytest.mark.parametrize("name", SPECS)
def test_windows_and_their_sum_are_adjoint(name):
    spec = SPECS[name]
    params = {"strides": spec.strides, "dilation": spec.window_dilation}
    x = draw(5, 7)
    view = windows.windows(x, window=spec.window, **params)
    y = draw(*view.shape)
    back = windows.overlap_add(y, shape=(5, 7), **params)
    np.testing.assert_allclose(np.sum(view.numpy() * y), np.sum(back.numpy() * x), atol=1e-10)


def test_windows_that_do_not_fit_are_refused():
    type = [TensorType((5, 7), np.dtype(np.float32))]
    for bad in (
        {"window": (2,)},
        {"strides": (0, 1)},
        {"padding": ((-6, 0), (0, 0))},
        {"window_dilation": (1, 0)},
    ):
        params = {**SPECS["side by side"].params(), **bad}
        with pytest.raises(ShapeError):
            trace_program(lambda x, p=params: [windows.reduce_window(x, op="add", **p)], type)
    with pytest.raises(DtypeError):
        complex_type = [TensorType((5, 7), np.dtype(np.complex64))]
        params = SPECS["side by side"].params()
        trace_program(lambda x: [windows.reduce_window(x, op="max", **params)], complex_type)


def test_general_computation():
    scalar = TensorType((), np.dtype(np.float64))
    # composition of affine maps: not commutative, associative
    program, _ = trace_program(lambda a, b, c, d: [multiply(a, c), add(multiply(b, c), d)], [scalar] * 4)
    spec = WindowSpec((3,), (2,), ((1, 1),), (1,), (1,))
    scales, shifts = draw(8), draw(8)
    starts = (np.ones(()), np.zeros(()))
    views = windows.general_windows((scales, shifts), starts, spec)
    out = registry["reduce"](*views, *starts, computation=program, axes=spec.offsets)
    padded = [np.concatenate([[e], v, [e]]) for v, e in ((scales, 1.0), (shifts, 0.0))]
    for position, n in enumerate(range(0, 8, 2)):
        a, b = 1.0, 0.0
        for i in range(n, n + 3):
            a, b = a * padded[0][i], b * padded[0][i] + padded[1][i]
        np.testing.assert_allclose([o.numpy()[position] for o in out], [a, b], atol=1e-12)
