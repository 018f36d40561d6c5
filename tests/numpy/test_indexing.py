"""Indexing and x.at[...]: every kind of index, read and written, compared with jax, eagerly and traced."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from comparison import agree_on, draw

import rlx
import rlx.numpy as rnp
from rlx import errors
from rlx.trace.interpret import interpret
from rlx.trace.tracing import close_over, trace_program

X = draw((4, 5, 6))
MASK = X > 0
ROWS, COLUMNS = np.array([0, 3, -1]), np.array([[1], [-2]])

STATIC: list[Any] = [
    0,
    -1,
    (1, 2, 3),
    slice(None),
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(3, 0, -2),
    slice(5, 2),
    (slice(1, None), slice(None, -1), slice(None, None, -3)),
    ...,
    (..., 0),
    (0, ..., slice(1, 3)),
    None,
    (slice(None), None, 1),
    (None, ..., None),
    (slice(1, 2), -1, slice(None, None, -1)),
    np.int64(2),
    (),
]
ADVANCED: list[Any] = [
    ROWS,
    COLUMNS,
    (ROWS, np.array([0, 1, 2])),
    (ROWS, slice(1, 4)),
    (slice(None), ROWS),
    (slice(None), ROWS, np.array([5, 0, 1])),
    (ROWS, slice(None), np.array([0, 1, 2])),
    (ROWS, COLUMNS),
    (0, slice(None), ROWS),
    (slice(None, None, -1), ROWS, slice(None, None, 2)),
    (ROWS, None, np.array([0, 1, 2])),
    (None, ROWS, 1),
    (..., ROWS),
    (np.zeros((0,), np.int32),),
    (np.array([1, 2], np.uint8), slice(0, 2)),
    (np.array(2), ROWS),
]
MASKS: list[Any] = [
    MASK,
    MASK[:, 0, 0],
    (slice(None), MASK[0, :, 0]),
    (MASK[..., 0], 1),
    (MASK[:, 0, 0], ..., None),
    True,
    False,
    (True, 0),
]


def name(index: Any) -> str:
    """A short name for an index."""
    return str(index).replace("\n", "")[:40]


@pytest.mark.parametrize("index", STATIC + ADVANCED + MASKS, ids=name)
def test_reading(index: Any) -> None:
    """x[index] is NumPy's."""
    found = rnp.asarray(X)[index]
    np.testing.assert_array_equal(np.asarray(found), X[index])
    program, captured = trace_program(lambda x: [x[index]], [rnp.asarray(X).type])
    (traced,) = interpret(close_over(program, captured), [rnp.asarray(X)])
    np.testing.assert_array_equal(np.asarray(traced), X[index])


UPDATES: dict[str, Any] = {
    "set": None,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "power": np.power,
}


def updated(index: Any, method: str, value: Any) -> np.ndarray:
    """What NumPy makes of an update."""
    result = np.abs(X)
    if method == "set":
        result[index] = value
    else:
        UPDATES[method].at(result, index, value)
    return result


@pytest.mark.parametrize("index", STATIC + ADVANCED, ids=name)
@pytest.mark.parametrize("method", UPDATES)
def test_writing(index: Any, method: str) -> None:
    """x.at[index].method(values): broadcast values, scalars, repeated indices; eagerly and traced."""
    shape = X[index].shape
    values = draw(shape, "f4", 1, 2, seed=9)
    for value in (values, values[..., :1] if shape else values, np.float32(0.5)):
        expected = updated(index, method, value)
        operands = [rnp.asarray(np.abs(X)), rnp.asarray(value)]
        found = getattr(operands[0].at[index], method)(operands[1])
        np.testing.assert_allclose(np.asarray(found), expected, 1e-5)
        program, captured = trace_program(lambda x, v: [getattr(x.at[index], method)(v)], [x.type for x in operands])
        (traced,) = interpret(close_over(program, captured), operands)
        np.testing.assert_allclose(np.asarray(traced), expected, 1e-5)


@pytest.mark.parametrize("index", MASKS, ids=name)
def test_writing_through_masks(index: Any) -> None:
    """Known masks name elements."""
    expected = X.copy()
    expected[index] = 7.0
    np.testing.assert_array_equal(np.asarray(rnp.asarray(X).at[index].set(7.0)), expected)


OUTSIDE = np.array([7, -9, 2, -1, 2])


@pytest.mark.parametrize("mode", [None, "clip", "fill", "drop", "promise_in_bounds"])
def test_modes(mode: str | None) -> None:
    """Indices outside are filled, clipped or dropped."""
    x = draw((4, 3))
    values = draw((5, 3), seed=2)
    if mode != "promise_in_bounds":
        agree_on(lambda x: x.at[OUTSIDE].get(mode=mode), lambda x: x.at[OUTSIDE].get(mode=mode), x)
        for method in ("add", "min"):
            agree_on(
                lambda x, v, method=method: getattr(x.at[OUTSIDE, :2], method)(v[:, :2], mode=mode),
                lambda x, v, method=method: getattr(x.at[OUTSIDE, :2], method)(v[:, :2], mode=mode),
                x,
                values,
            )
    agree_on(
        lambda x: x.at[OUTSIDE].get(mode="fill", fill_value=3.0),
        lambda x: x.at[OUTSIDE].get(mode="fill", fill_value=3.0),
        x,
    )
    agree_on(lambda x: x[OUTSIDE], lambda x: x[OUTSIDE], x)
    agree_on(lambda x: x.at[2].get(mode=mode), lambda x: x.at[2].get(mode=mode), x)


@pytest.mark.parametrize("number", [0, 2, -1, 9, -9])
def test_traced_scalars(number: int) -> None:
    """A traced index reads clamped and writes nothing outside."""
    i = np.int32(number)
    for read in (
        lambda x, i: x[i],
        lambda x, i: x[:, i, ::-1],
        lambda x, i: x[i, None, 1:3],
        lambda x, i: x[i, i],
        lambda x, i: x[0, i, ROWS],
        lambda x, i: x.at[i, 1].set(5.0),
        lambda x, i: x.at[1:3, i].add(2.0),
        lambda x, i: x.at[i].get(mode="fill", fill_value=0.0),
    ):
        agree_on(read, read, X, i)


def test_shape_depends_on_a_traced_mask() -> None:
    """The error names where()."""
    with pytest.raises(errors.NonConcreteBooleanIndexError, match="where"):
        trace_program(lambda x: [x[x > 0]], [rnp.asarray(X).type])


def test_static_indices_outside_raise() -> None:
    """An int outside is a mistake, unless a mode says what to do."""
    x = rnp.arange(3)
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        x[3]
    with pytest.raises(IndexError, match="-4"):
        trace_program(lambda x: [x[-4]], [x.type])
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0]
    with pytest.raises(IndexError, match="5"):
        x.at[5].set(1)
    assert x.at[5].set(1, mode="drop").tolist() == [0, 1, 2]
    with pytest.raises(errors.DtypeError, match="float32"):
        x[rnp.ones(2)]


def test_traced_slice_bounds_are_explained() -> None:
    """dynamic_slice is named."""
    with pytest.raises(errors.TracerIntegerConversionError, match="dynamic_slice"):
        trace_program(lambda x, i: [x[i:]], [rnp.arange(5).type, rnp.int32(1).type])


def test_apply_and_lists() -> None:
    """apply replaces what it reads; lists work as index arrays."""
    x = rnp.arange(4.0)
    assert x.at[1:3].apply(lambda v: v * 10).tolist() == [0, 10, 20, 3]
    assert x[[3, 0]].tolist() == [3, 0]


def test_gradients_flow_through_reads_and_writes() -> None:
    """grad of a composition of reads and writes."""

    def function(x: Any) -> Any:
        return (x[rnp.array([0, 0, 2])] * x.at[1].set(5.0)[:3]).sum()

    found = rlx.grad(function)(rnp.array([1.0, 2.0, 3.0]))
    # x0*x0 + x0*5 + x2*x2
    np.testing.assert_allclose(np.asarray(found), [2 * 1 + 5, 0, 6])


def test_updates_of_another_kind_warn() -> None:
    """A float into an integer array is probably a mistake."""
    with pytest.warns(FutureWarning, match="float"):
        rnp.arange(3).at[0].set(1.5)


# ------------------------------------------------------------------ slices from a traced start
DS_VECTOR, DS_MATRIX = np.arange(10.0, dtype=np.float32), np.arange(24, dtype=np.int32).reshape(4, 6)
DS_READS: list[Any] = [
    (DS_VECTOR, lambda ds, i: ds(i, 3)),
    (DS_VECTOR, lambda ds, i: ds(i % 5, 3, 2)),
    (DS_VECTOR, lambda ds, i: (None, ds(i, 4))),
    (DS_MATRIX, lambda ds, i: (ds(i, 2), ds(i, 3))),
    (DS_MATRIX, lambda ds, i: (ds(i, 2), slice(None, None, 2))),
    (DS_MATRIX, lambda ds, i: (ds(i, 2), slice(None, None, -1))),
    (DS_MATRIX, lambda ds, i: (ds(i, 2), 1, None)),
    (DS_MATRIX, lambda ds, i: (np.array([0, 3]), ds(i, 2))),
    (DS_MATRIX, lambda ds, i: (i, ds(i, 2))),
    (DS_MATRIX, lambda ds, i: (..., ds(i, 0))),
]


@pytest.mark.parametrize("array, index", DS_READS)
@pytest.mark.parametrize("start", [0, 1, 9])
def test_slices_from_a_traced_start(array: np.ndarray, index: Any, start: int) -> None:
    def outcome(module: Any) -> Any:
        read = module.jit(lambda x, i: x[index(module.ds, i)])
        return np.asarray(read(array, start))

    expected = outcome(jax)
    np.testing.assert_array_equal(outcome(rlx), expected)
    traced = rlx.vmap(lambda x, i: x[index(rlx.ds, i)], (None, 0))(array, np.array([start]))
    np.testing.assert_array_equal(traced[0], expected)
    slope = rlx.grad(lambda x, i: x[index(rlx.ds, i)].sum())(array.astype(np.float32), rnp.asarray(start))
    assert slope.sum() == expected.size


def test_slices_from_a_traced_negative_start_count_from_the_end() -> None:
    for x, read in ((DS_VECTOR, lambda x, i: x[rlx.ds(i, 2)]), (DS_MATRIX, lambda x, i: x[rlx.ds(i, 2), ::2])):
        np.testing.assert_array_equal(rlx.jit(read)(x, -3), read(rnp.asarray(x), x.shape[0] - 3))
        np.testing.assert_array_equal(rlx.jit(read)(x, -3), read(rnp.asarray(x), -3))


@pytest.mark.parametrize("start", [1, 8, 9])
def test_updates_through_slices_from_a_traced_start(start: int) -> None:
    def outcome(module: Any) -> Any:
        change = module.jit(lambda x, i: x.at[module.ds(i, 3)].set(0.5))
        return np.asarray(change(module.numpy.asarray(DS_VECTOR), start))

    np.testing.assert_array_equal(outcome(rlx), outcome(jax))


def test_slices_from_a_start_refuse_what_they_cannot_do() -> None:
    with pytest.raises(TypeError, match="has 10"):
        rnp.asarray(DS_VECTOR)[rlx.ds(0, 11)]
    with pytest.raises(TypeError, match="must be an integer"):
        rlx.jit(lambda n: rlx.ds(0, n).start)(3)
    assert rlx.ds(None) == slice(None) and rlx.ds(3).size == 3
    assert rlx.jit(lambda x, s: x[s])(rnp.asarray(DS_VECTOR), rlx.ds(rnp.asarray(1), 2)).tolist() == [1.0, 2.0]


VECTOR, OUTSIDE = np.arange(1.0, 4.0), np.array([0, 2, 5, -9, 2])
DERIVATIVES: dict[str, Any] = {
    "an index": lambda J, N, i: lambda x: N.sum(x[i] ** 2),
    "a row": lambda J, N, i: lambda x: N.sum((x[:, None] * x)[i] ** 2),
    "two indices": lambda J, N, i: lambda x: N.sum((x[:, None] * x)[i, i] ** 2),
    "a broadcast index": lambda J, N, i: lambda x: N.sum((x[:, None] * x)[i[:, None], i] ** 2),
    "beside a slice": lambda J, N, i: lambda x: N.sum((x[:, None] * x)[i, 1:] ** 2),
    "a scalar": lambda J, N, i: lambda x: x[i[2]] + x[i[3]],
    "mapped": lambda J, N, i: lambda x: N.sum(J.vmap(lambda j: x[j])(i) ** 2),
    "at.get": lambda J, N, i: lambda x: N.sum(x.at[i].get() ** 2),
    "clip": lambda J, N, i: lambda x: N.sum(x.at[i].get(mode="clip") ** 2),
    "fill": lambda J, N, i: lambda x: N.nansum(x.at[i].get(mode="fill") ** 2),
    "promise": lambda J, N, i: lambda x: N.sum(x.at[i].get(mode="promise_in_bounds") ** 2),
    "take": lambda J, N, i: lambda x: N.nansum(N.take(x, i) ** 2),
    "take_along_axis": lambda J, N, i: lambda x: N.nansum(N.take_along_axis(x, i, 0) ** 2),
    "dynamic_index": lambda J, N, i: lambda x: J.lax.dynamic_index_in_dim(x, i[2], 0, False) ** 2,
    "index_take": lambda J, N, i: lambda x: N.sum(J.lax.index_take(x, (i,), (0,)) ** 2),
}


@pytest.mark.parametrize("read", DERIVATIVES.values(), ids=DERIVATIVES.keys())
@pytest.mark.selected(1)
def test_derivatives_of_what_is_outside_are_jaxs(read: Any) -> None:
    """Values, first and second derivatives of reads of which some lie outside; indices traced and known."""
    for order in range(3):

        def known(J: Any, N: Any, depth: int = order) -> Any:
            program = read(J, N, N.asarray(OUTSIDE))
            for _ in range(depth):
                program = J.grad(lambda x, before=program: N.sum(before(x)))
            return program(N.asarray(VECTOR))

        def traced(J: Any, N: Any, depth: int = order) -> Any:
            def program(x: Any, i: Any) -> Any:
                return read(J, N, i)(x)

            for _ in range(depth):
                program = J.grad(lambda x, i, before=program: N.sum(before(x, i)))
            return J.jit(program)(N.asarray(VECTOR), N.asarray(OUTSIDE))

        for run in (known, traced):
            np.testing.assert_allclose(np.asarray(run(rlx, rnp)), np.asarray(run(jax, jax.numpy)), rtol=1e-12)


MIXED: list[Any] = [True, 2, -1, 0.75, np.int32(3), np.float32(0.75), np.array([3, 0]), np.array([0.75, 2.5], "f4")]


@pytest.mark.parametrize("dtype", ["?", "i4", "u1", "f2", "f4", "i8"])
@pytest.mark.parametrize("method", ["add", "subtract", "multiply", "min", "max"])
@pytest.mark.parametrize("index", [1, np.array([1, 1]), np.array([0, 3]), slice(1, 3)], ids=str)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_updates_of_another_dtype_are_combined_in_a_common_one(dtype: str, method: str, index: Any) -> None:
    """As in jax: the result is brought back to the array's dtype in the end; un-jitted and compiled."""
    x = np.array([2, 1, 0, 3]).astype(dtype)
    for update in MIXED:
        if (np.ndim(update) and isinstance(index, int)) or (dtype == "u1" and isinstance(update, int) and update < 0):
            continue

        def outcome(J: Any, N: Any, compiled: bool, value: Any = update) -> Any:
            change = lambda v: getattr(v.at[index], method)(value)  # noqa: E731
            return (J.jit(change) if compiled else change)(N.asarray(x))

        try:
            expected = outcome(jax, jax.numpy, False)
        except TypeError:  # jax adds no bools to bools
            continue
        for compiled in (False, True):
            found = outcome(rlx, rnp, compiled)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_bools_added_to_bools() -> None:
    """add is or, multiply is and, wherever the index comes from."""
    x = np.array([True, False])
    for index in (1, np.array([1]), slice(1, 2)):
        for value in (True, False):
            np.testing.assert_array_equal(rnp.asarray(x).at[index].add(value), [True, value])
            np.testing.assert_array_equal(rnp.asarray(x).at[index].multiply(value), [True, False])


def test_a_warning_of_an_update_points_here() -> None:
    """At the line that updates, for a method that combines and for one that does not."""
    for method in ("set", "add"):
        with pytest.warns(FutureWarning) as caught:
            getattr(rnp.arange(3).at[np.array([0])], method)(1.5)
        assert caught[0].filename == __file__


@pytest.mark.parametrize("method", ["set", "add", "subtract", "multiply", "divide", "power", "min", "max"])
@pytest.mark.parametrize("values", [[2.0, 3.0], (2, 3), [2.0, np.float32(3.0)], [[2.0], [3.0]]])
@pytest.mark.parametrize("way", [lambda f: f, rlx.jit], ids=["eager", "jit"])
def test_lists_as_updates(method: str, values: Any, way: Any) -> None:
    """Lists and tuples are arrays there, as in JAX."""
    x = np.arange(1.0, 7.0, dtype="f4").reshape(3, 2)
    index = np.array([0, 2])
    update = lambda x: getattr(x.at[index], method)(values)  # noqa: E731
    with jax.enable_x64(False):
        expected = update(jax.numpy.asarray(x))
    found = way(update)(rnp.asarray(x))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


def test_lists_of_traced_values_as_updates() -> None:
    """A list may have traced values in it."""
    found = rlx.jit(lambda x, v: x.at[1:].set([v, 2 * v]))(np.zeros(3, "f4"), 4.0)
    assert found.tolist() == [0.0, 4.0, 8.0]
