"""gather, scatter and dynamic slices against JAX."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from against_jax import agree, draw, equal, loop_equals_vmap
from jax import lax

import rlx
import rlx.numpy
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import TensorType, bits_of, supported_dtypes
from rlx.ops import indexing as ops
from rlx.ops.shape import reshape
from rlx.trace.tracing import trace_program
from rlx.transforms.reverse import vjp

# (operand, indices, GatherDimensionNumbers' fields, slice sizes)
WINDOWS = {
    "rows": ((4, 5), [[2], [0], [7], [-1], [2]], ((1,), (0,), (0,)), (1, 5)),
    "columns": ((4, 5), [[2], [4], [5]], ((0,), (1,), (1,)), (4, 1)),
    "boxes": ((4, 5), [[1, 2], [3, 3], [0, 1]], ((0, 2), (), (1, 0)), (2, 3)),
    "points": ((4, 5), [[[1, 2], [3, 4]], [[0, 0], [4, 4]]], ((), (0, 1), (0, 1)), (1, 1)),
    "paired": ((4, 5), [[1], [3], [0], [4]], ((1,), (), (1,), (0,), (0,)), (1, 2)),
    "along": (
        (3, 4),
        [[[1], [0], [2], [2]], [[0], [0], [1], [9]]],
        ((), (0,), (0,), (1,), (1,)),
        (1, 1),
    ),
    "scalar": ((5,), [3], ((), (0,), (0,)), (1,)),
    "window": ((5,), [4], ((0,), (), (0,)), (3,)),
    "whole": ((2, 3), np.zeros((2, 0), int).tolist(), ((1, 2), (), ()), (2, 3)),
    "nothing": ((4, 5), np.zeros((0, 1), int).tolist(), ((1,), (0,), (0,)), (1, 5)),
    "empty": ((4, 0), [[1], [2]], ((1,), (0,), (0,)), (1, 0)),
}
# XLA ends the process on many operations of numbers of less than a byte; tests/numpy/test_narrow_dtypes.py has those
DTYPES = sorted((d for d in supported_dtypes if bits_of(d) >= 8), key=str)


def gather_of(name, mode, fill=None):
    _, _, fields, sizes = WINDOWS[name]
    numbers = ops.GatherDimensionNumbers(*fields)
    model_numbers = lax.GatherDimensionNumbers(*fields)
    return (
        lambda x, i: ops.gather(x, i, dimension_numbers=numbers, slice_sizes=sizes, mode=mode, fill_value=fill),
        lambda x, i: lax.gather(x, i, model_numbers, sizes, mode=mode, fill_value=fill),
    )


def indices_of(name, dtype=np.int32):
    indices = np.array(WINDOWS[name][1])
    shape = np.shape(WINDOWS[name][1])
    if name in ("whole", "nothing"):
        shape = (2, 0) if name == "whole" else (0, 1)
    return indices.reshape(shape).astype(dtype)


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("name", WINDOWS)
def test_gather(name, mode):
    ours, theirs = gather_of(name, mode, fill=0.5 if name == "points" else None)
    agree(ours, theirs, draw(*WINDOWS[name][0]), indices_of(name))


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("name", WINDOWS)
def test_vmap_of_gather(name, mode):
    ours, _ = gather_of(name, mode)
    x, indices = draw(*WINDOWS[name][0]), indices_of(name)
    for axes in [(0, None), (None, 0), (0, 0), (x.ndim, 0), (0, 1)]:
        loop_equals_vmap(ours, [x, indices], axes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_gather_takes_every_dtype(dtype, mode):
    ours, theirs = gather_of("rows", mode)
    agree(ours, theirs, draw(4, 5, dtype=dtype), indices_of("rows"), derivatives=False)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_index_dtypes(dtype, mode):
    indices = np.array([[1], [100], [np.iinfo(dtype).max]], dtype)
    ours, theirs = gather_of("rows", mode)
    agree(ours, theirs, draw(4, 5), indices)


# ------------------------------------------------------------- scatter
def scatter_of(kind, name, mode, unique=False):
    numbers = ops.ScatterDimensionNumbers(*WINDOWS[name][2])
    model_numbers = lax.ScatterDimensionNumbers(*WINDOWS[name][2])
    flags = {"unique_indices": unique, "indices_are_sorted": False}
    ours, theirs = getattr(ops, kind), getattr(lax, kind)
    model_mode = "drop" if mode == "drop" else mode
    return (
        lambda x, i, u: ours(x, i, u, dimension_numbers=numbers, mode=mode, **flags),
        lambda x, i, u: theirs(x, i, u, model_numbers, mode=model_mode, **flags),
    )


def scatter_args(name, dtype=np.float64, unique=False):
    shape, _, fields, sizes = WINDOWS[name]
    indices = indices_of(name)
    if unique and name == "rows":
        indices = indices[:4]
    numbers = ops.GatherDimensionNumbers(*fields)
    type = ops.gather.type(
        TensorType(shape, np.dtype(dtype)),
        TensorType(indices.shape, indices.dtype),
        dimension_numbers=numbers,
        slice_sizes=sizes,
        mode="clip",
        fill_value=None,
    )
    return draw(*shape, dtype=dtype), indices, draw(*type.shape, dtype=dtype)


@pytest.mark.parametrize("mode", ["clip", "drop"])
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("kind", ["scatter", "scatter_add", "scatter_min", "scatter_max"])
def test_scatter(kind, name, mode):
    ours, theirs = scatter_of(kind, name, mode)
    x, indices, updates = scatter_args(name)
    extreme = kind in ("scatter_min", "scatter_max")
    if extreme:
        # JAX's derivative is NaN where an index points outside
        indices = np.clip(indices, 0, 2)
        x, updates = np.asarray(np.round(x)), np.asarray(np.round(updates))
    agree(ours, theirs, x, indices, updates)


@pytest.mark.parametrize("name", ["columns", "along", "rows", "paired"])
def test_scatter_with_unique_indices(name):
    for kind in ("scatter", "scatter_mul"):
        ours, theirs = scatter_of(kind, name, "drop", unique=True)
        x, indices, updates = scatter_args(name, unique=True)
        indices[..., 0] = [0, 2, 3, 9][: len(indices)] if indices.ndim == 2 else indices[..., 0]
        if name == "along":
            indices, updates = indices[:1], updates[:1]
        agree(ours, theirs, x, indices, updates)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max"])
def test_scatter_takes_every_dtype(kind, dtype):
    if kind in ("scatter_min", "scatter_max") and dtype.kind == "c":
        pytest.skip("complex numbers have no order")
    if kind in ("scatter_add", "scatter_mul") and dtype.kind == "b":
        pytest.skip("JAX does not add truth values")
    ours, theirs = scatter_of(kind, "rows", "drop")
    args = scatter_args("rows", dtype)
    agree(ours, theirs, *args, derivatives=False)


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("kind", ["scatter", "scatter_add", "scatter_max"])
def test_vmap_of_scatter(kind, name):
    ours, _ = scatter_of(kind, name, "drop")
    x, indices, updates = scatter_args(name)
    for axes in itertools.product((0, None), repeat=3):
        if any(a is not None for a in axes):
            loop_equals_vmap(ours, [x, indices, updates], axes)


def test_the_last_of_equal_indices_stays():
    ours, _ = scatter_of("scatter", "rows", "clip")
    x, updates = np.zeros((4, 5)), draw(3, 5)
    equal(ours(x, np.array([[1], [1], [1]]), updates), np.stack([x[0], updates[2], x[0], x[0]]))


def test_scatter_into_nothing_drops():
    numbers = ops.ScatterDimensionNumbers((), (0,), (0,))
    flags = {"unique_indices": False, "indices_are_sorted": False}
    agree(
        lambda x, i, u: ops.scatter(x, i, u, dimension_numbers=numbers, mode="drop", **flags),
        lambda x, i, u: x,
        np.zeros(0),
        np.array([[0], [1]]),
        draw(2),
        derivatives=False,
    )


def test_derivative_of_an_extreme_scatter_ignores_what_it_drops():
    ours, _ = scatter_of("scatter_max", "rows", "drop")
    x = np.zeros((4, 5))
    updates = np.ones((5, 5))
    _, pull = vjp(lambda x, u: ours(x, indices_of("rows"), u), x, updates)
    ct_x, ct_updates = pull(np.ones((4, 5)))
    equal(ct_x, np.array([[0.0], [1], [0], [1]]) * np.ones(5))
    equal(ct_updates, np.array([[0.5], [1], [0], [0], [0.5]]) * np.ones(5))


# ------------------------------------------------------------- dynamic slices
@pytest.mark.parametrize("starts", [(1, 2), (-3, 4), (9, 0)])
@pytest.mark.parametrize("sizes", [(2, 2), (4, 5), (0, 3), (1, 5)])
def test_dynamic_slice(starts, sizes):
    at = [np.array(starts[0], np.int32), np.array(starts[1], np.int64)]
    agree(
        lambda x, i, j: ops.dynamic_slice(x, i, j, sizes=sizes),
        lambda x, i, j: lax.slice(x, *clamped(starts, (4, 5), sizes)),
        draw(4, 5),
        *at,
    )
    agree(
        lambda x, u, i, j: ops.dynamic_update_slice(x, u, i, j),
        lambda x, u, i, j: (
            x.at[tuple(slice(a, b) for a, b in zip(*clamped(starts, (4, 5), sizes), strict=True))].set(u)
            if hasattr(x, "at")
            else lax.dynamic_update_slice(x, u, [max(0, k) for k in starts])
        ),
        draw(4, 5),
        draw(*sizes),
        *at,
    )


def clamped(starts, shape, sizes):
    first = [min(max(0, i), d - n) for i, d, n in zip(starts, shape, sizes, strict=True)]
    return first, [i + n for i, n in zip(first, sizes, strict=True)]


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int64"])
def test_starts_of_any_integer_dtype(dtype):
    start = np.array(np.iinfo(dtype).max, dtype)
    agree(lambda x, i: ops.dynamic_slice(x, i, sizes=(2,)), lambda x, i: x[3:], draw(5), start)


@pytest.mark.parametrize("axes", [a for a in itertools.product((0, None), repeat=3) if any(d == 0 for d in a)])
def test_vmap_of_dynamic_slices(axes):
    x, update, i = draw(4, 5), draw(2, 3), np.array([1, -1, 3])
    x_axis, update_axis, start_axis = axes

    def slicing(x, at):
        i, j = (ops.dynamic_slice(at, n, sizes=(1,)) for n in (0, 1))
        i, j = (reshape(k, shape=()) for k in (i, j))
        return ops.dynamic_slice(x, i, j, sizes=(2, 3))

    def updating(x, update, at):
        i, j = (reshape(ops.dynamic_slice(at, n, sizes=(1,)), shape=()) for n in (0, 1))
        return ops.dynamic_update_slice(x, update, i, j)

    if x_axis == 0 or start_axis == 0:
        loop_equals_vmap(slicing, [x, i], (x_axis, start_axis))
    loop_equals_vmap(updating, [x, update, i], axes)


# ------------------------------------------------------------- errors
def types(*parts):
    return [TensorType(shape, np.dtype(dtype)) for shape, dtype in parts]


@pytest.mark.parametrize(
    ("fields", "sizes", "indices", "error"),
    [
        (((1,), (0,), (0,)), (2, 5), ((3, 1), "i4"), ShapeError),
        (((1,), (0,), (0,)), (1, 6), ((3, 1), "i4"), ShapeError),
        (((1,), (0,), (0,)), (1, 5), ((3, 2), "i4"), ShapeError),
        (((1,), (0,), (0,)), (1, 5), ((3, 1), "f4"), DtypeError),
        (((1,), (), (1,), (0,), (0,)), (1, 2), ((3, 1), "i4"), ShapeError),
        (((1, 2), (0,), (0,)), (1, 5), ((3, 1), "i4"), ShapeError),
    ],
)
def test_gathers_that_do_not_fit_are_refused(fields, sizes, indices, error):
    numbers = ops.GatherDimensionNumbers(*fields)
    with pytest.raises(error):
        trace_program(
            lambda x, i: [ops.gather(x, i, dimension_numbers=numbers, slice_sizes=sizes, mode="clip", fill_value=None)],
            types(((4, 5), "f4"), indices),
        )


def test_scatters_that_do_not_fit_are_refused():
    ours, _ = scatter_of("scatter", "rows", "drop")
    for updates in [((3, 4), "f4"), ((2, 5), "f4"), ((3, 6), "f4")]:
        good = updates == ((3, 4), "f4")
        if not good:
            with pytest.raises(ShapeError):
                trace_program(lambda *a: [ours(*a)], types(((4, 5), "f4"), ((3, 1), "i4"), updates))
    with pytest.raises(DtypeError):
        trace_program(lambda *a: [ours(*a)], types(((4, 5), "f4"), ((3, 1), "i4"), ((3, 5), "f8")))
    with pytest.raises(UnsupportedError):
        wrong, _ = scatter_of("scatter", "rows", "wrap")
        trace_program(lambda *a: [wrong(*a)], types(((4, 5), "f4"), ((3, 1), "i4"), ((3, 5), "f4")))


def test_scatter_mul_needs_unique_indices_for_a_derivative():
    ours, _ = scatter_of("scatter_mul", "rows", "drop")
    x, indices, updates = scatter_args("rows")
    with pytest.raises(UnsupportedError):
        vjp(lambda u: ours(x, indices, u), updates)


COMPUTED = {
    "arange": lambda i: rlx.numpy.arange(10**7)[i],
    "scaled": lambda i: (2.0 * rlx.numpy.arange(10**7))[i] + 1,
    "reversed": lambda i: rlx.numpy.arange(10**7)[::-1][i],
    "rows": lambda i: rlx.lax.broadcasted_iota("int32", (10**6, 9), 0)[i],
    "identity": lambda i: rlx.numpy.eye(3000)[i, i],
}


@pytest.mark.parametrize("name", COMPUTED)
def test_elements_that_follow_from_their_position_need_no_array(name: str) -> None:
    """An iota, or cheap arithmetic on one, is computed at the gathered positions."""
    places = np.array([-1, 5, 3], "i4")
    compiled = rlx.jit(COMPUTED[name]).lower(places).compile()
    assert compiled.memory_analysis().temp_size_in_bytes == 0
    np.testing.assert_array_equal(compiled(places), COMPUTED[name](rlx.numpy.asarray(places)))
