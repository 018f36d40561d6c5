"""Sizes and indices: an axis that its indices' dtype does not hold is no obstacle, and positions on it are int64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors, lax

HUGE = 2**31 + 10
NARROW = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
# functions of an array and of an index of some dtype: what becomes of them on an axis that the dtype does not hold
BY_INDEX: dict[str, Callable[[Any, Any], Any]] = {
    "x[i]": lambda x, i: x[i],
    "x[i0]": lambda x, i: x[i[0]],
    "x.at.set": lambda x, i: x.at[i].set(1),
    "x.at.add": lambda x, i: x.at[i].add(1, mode="clip"),
    "x.at.get wrap": lambda x, i: x.at[i].get(mode="wrap"),
    "x.at.get fill": lambda x, i: x.at[i].get(mode="fill", fill_value=0),
    "x[ds]": lambda x, i: x[rlx.ds(i[0], 3)],
    "x.at[ds]": lambda x, i: x.at[rlx.ds(i[0], 3)].add(1),
    "take clip": lambda x, i: jnp.take(x, i, mode="clip"),
    "take wrap": lambda x, i: jnp.take(x, i, mode="wrap"),
    "take fill": lambda x, i: jnp.take(x, i, mode="fill", fill_value=0),
    "take_along_axis": lambda x, i: jnp.take_along_axis(x, i, 0),
    "put_along_axis": lambda x, i: jnp.put_along_axis(x, i, 1, 0, inplace=False),
    "put": lambda x, i: jnp.put(x, i, 1, mode="clip", inplace=False),
    "roll": lambda x, i: jnp.roll(x, i[0]),
    "unravel_index": lambda x, i: jnp.unravel_index(i, x.shape)[0],
    "insert": lambda x, i: jnp.insert(x, i[0], 1),
    "dynamic_slice": lambda x, i: lax.dynamic_slice(x, (i[0],), (3,)),
    "dynamic_update_slice": lambda x, i: lax.dynamic_update_slice(x, x[:3], (i[0],)),
    "dynamic_index_in_dim": lambda x, i: lax.dynamic_index_in_dim(x, i[0]),
    "vmap": lambda x, i: rlx.vmap(lambda k: x[k])(i),
    "grad": lambda x, i: rlx.grad(lambda v: v[i].sum())(x.astype("float32")),
    "segment_sum": lambda x, i: rlx.ops.segment_sum(x[: i.size], i, x.size),
}
# functions that return positions or counts, and those that have to number elements
POSITIONS: dict[str, Callable[[Any], Any]] = {
    "argmax": jnp.argmax,
    "argmin axis": lambda x: jnp.argmin(x, axis=0),
    "nanargmax": lambda x: jnp.nanargmax(x.astype("float16")),
    "argsort": jnp.argsort,
    "lexsort": lambda x: jnp.lexsort((x, x)),
    "nonzero": lambda x: jnp.nonzero(x, size=4)[0],
    "flatnonzero": lambda x: jnp.flatnonzero(x, size=4),
    "argwhere": lambda x: jnp.argwhere(x, size=4),
    "count_nonzero": jnp.count_nonzero,
    "searchsorted": lambda x: jnp.searchsorted(x, 3),
}
NUMBERING: dict[str, Callable[[Any], Any]] = {
    "top_k": lambda x: jnp.top_k(x, 2, mode="smallest") if hasattr(jnp, "top_k") else x,
    "place": lambda x: jnp.place(x, x > 1, x[:2], inplace=False),
    "quantile": lambda x: jnp.quantile(x.astype("float32"), 0.5, method="nearest"),
    "unique": lambda x: jnp.unique(x, size=3, return_index=True)[1],
    "reduceat": lambda x: jnp.add.reduceat(x, np.array([0, 5])),
    "ufunc at": lambda x: jnp.add.at(x, np.array([0, 5]), 1, inplace=False),
    "repeat": lambda x: x[x.size - 3 :],
}


@pytest.mark.parametrize("name", BY_INDEX)
def test_indices_of_huge_axes(name: str) -> None:
    """Traced on types alone: an int32 index counts from the end of an axis that it cannot name the end of."""
    x = rlx.ShapeDtypeStruct((HUGE,), np.int8)
    for dtype in ("int8", "int32", "uint32", "int64"):
        rlx.eval_shape(BY_INDEX[name], x, rlx.ShapeDtypeStruct((3,), np.dtype(dtype)))


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_on_huge_axes_are_long(name: str) -> None:
    """int64 where the default integer does not hold the size."""
    for size, dtype in ((HUGE, np.int64), (2**31 - 1, np.int32), (7, np.int32)):
        found = rlx.eval_shape(POSITIONS[name], rlx.ShapeDtypeStruct((size,), np.int8))
        assert found.dtype == dtype, (size, found)


@pytest.mark.parametrize("name", NUMBERING)
def test_numbering_huge_axes(name: str) -> None:
    """Functions that number elements inside."""
    rlx.eval_shape(NUMBERING[name], rlx.ShapeDtypeStruct((HUGE,), np.int8))


@pytest.mark.parametrize("function", [lax.argmax, lax.argmin])
def test_positions_that_do_not_fit_are_refused(function: Any) -> None:
    """An index_dtype that does not hold the positions."""
    x = np.arange(300.0)
    with pytest.raises(errors.DtypeOverflowError, match="index_dtype=int8"):
        function(x, 0, "int8")
    with pytest.raises(errors.DtypeOverflowError, match="index_dtype=int32"):
        rlx.eval_shape(lambda x: function(x, 0, "int32"), rlx.ShapeDtypeStruct((HUGE,), np.int8))
    assert function(x[:256], 0, "uint8").dtype == np.uint8 and function(x[:128], 0, "int8").dtype == np.int8


@pytest.mark.parametrize("way", [lambda f: f, rlx.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", BY_INDEX)
def test_narrow_indices(name: str, dtype: str, way: Any) -> None:
    """On an axis of 300 an index of any dtype means what the same int64 means."""
    x = jnp.arange(300, dtype="i4")
    numbers = jnp.array([3, 0, 100] if dtype.startswith("u") else [-1, 7, -100], dtype)
    found, expected = way(BY_INDEX[name])(x, numbers), BY_INDEX[name](x, numbers.astype("i8"))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.thorough
def test_huge_arrays() -> None:
    """Values on an axis of more than 2**31 elements."""
    x = np.zeros(HUGE, np.int8)
    x[-1], x[5], x[2**31 - 1], x[2**31] = 3, 1, 2, -1
    x.flags.writeable = False
    ends = rlx.jit(lambda x: (jnp.argmax(x), jnp.argmin(x)))(x)
    assert [int(v) for v in ends] == [HUGE - 1, 2**31] and ends[0].dtype == np.int64
    places = np.array([-1, 5, 2**31 - 1], "i4")
    assert rlx.jit(lambda x, i: x[i])(x, places).tolist() == [3, 1, 2]
    sliced = rlx.jit(lambda x, i: lax.dynamic_slice(x, (i,), (3,)))(x, np.int32(2**31 - 1))
    assert sliced.tolist() == [2, -1, 0]
    assert jnp.argmax(jnp.asarray(x)).item() == HUGE - 1
