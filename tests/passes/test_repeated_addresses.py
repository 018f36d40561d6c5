"""Accumulations at computed addresses that repeat: each element of the updates counts, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.numpy as jnp

CELLS = 4
Index = Callable[[Any, Any], Any]  # (rlx.numpy or numpy, a vector of integers) -> indices

# every way in which an index repeats along some axis of the updates
PATTERNS: dict[str, Index] = {
    "repeat": lambda np, i: np.repeat(i % CELLS, 2),
    "repeat five times": lambda np, i: np.repeat(i % CELLS, 5),
    "tile": lambda np, i: np.tile(i % CELLS, 3),
    "columns": lambda np, i: np.broadcast_to((i % CELLS)[:, None], (i.shape[0], 6)),
    "rows": lambda np, i: np.broadcast_to((i % CELLS)[None], (6, i.shape[0])),
    "middle": lambda np, i: np.broadcast_to((i[:, None, None] + np.arange(2)[:, None]) % CELLS, (i.shape[0], 2, 3)),
    "division": lambda np, i: (np.arange(3 * i.shape[0]) // 3 + i[0]) % CELLS,
    "one cell": lambda np, i: np.broadcast_to(i[0] % CELLS, (i.shape[0], 4)),
    "twice": lambda np, i: np.repeat(np.repeat(i % CELLS, 2), 3),
    "straight": lambda np, i: i % CELLS,
}
REDUCERS = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def updates_of(kind: str, shape: tuple[int, ...], np: Any, data: Any) -> Any:
    """Updates of a shape: the same for all, of the row, or of the element."""
    if kind == "constant":
        return np.full(shape, 1.5, "float64")
    if kind == "row":
        column = np.broadcast_to(data[: shape[0]].reshape((shape[0],) + (1,) * (len(shape) - 1)), shape)
        return column * 2.0
    if kind == "row sum" and len(shape) > 1:
        return np.broadcast_to(data[: shape[0], None].sum(axis=1).reshape((shape[0],) + (1,) * (len(shape) - 1)), shape)
    return data[: int(np.prod(np.asarray(shape)))].reshape(shape) + 0.5


def expected(pattern: str, reducer: str, kind: str, i: np.ndarray, data: np.ndarray) -> np.ndarray:
    index = PATTERNS[pattern](np, i)
    cells = np.ones(CELLS)
    REDUCERS[reducer].at(cells, index, updates_of(kind, index.shape, np, data))
    return cells


def scattered(pattern: str, reducer: str, kind: str, i: Any, data: Any, shape: tuple[int, ...]) -> Any:
    """`shape` is the updates': known, as any program's shapes are."""
    index = PATTERNS[pattern](jnp, i)
    place = jnp.ones(CELLS, "float64").at[index]
    return getattr(place, reducer)(updates_of(kind, shape, np if kind == "constant" else jnp, data))


@pytest.mark.thorough
@settings(deadline=None, max_examples=60)
@given(
    pattern=st.sampled_from(sorted(PATTERNS)),
    reducer=st.sampled_from(sorted(REDUCERS)),
    kind=st.sampled_from(["constant", "row", "row sum", "element"]),
    within=st.sampled_from(["jit", "vmap", "vmap, one index", "scan", "fused with a sum"]),
    count=st.sampled_from([1, 3, 4, 17]),
    seed=st.integers(0, 2**31),
)
def test_every_update_counts_once(pattern, reducer, kind, within, count, seed):
    random = np.random.default_rng(seed)
    i = random.integers(0, 50, count).astype("int32")
    data = random.uniform(0.5, 1.5, 400)
    shape = PATTERNS[pattern](np, i).shape

    def function(i: Any, data: Any) -> Any:
        return scattered(pattern, reducer, kind, i, data, shape)

    want = expected(pattern, reducer, kind, i, data)
    if within == "jit":
        found = rlx.jit(function)(i, data)
    elif within == "vmap":
        others = np.stack([i, (i * 7 + 1) % 50, i[::-1]])
        many = rlx.jit(rlx.vmap(function, in_axes=(0, None)))(others, data)
        for one, row in zip(many, others, strict=True):
            np.testing.assert_allclose(one, expected(pattern, reducer, kind, row, data), rtol=1e-12)
        return
    elif within == "vmap, one index":
        datas = np.stack([data, data[::-1]])
        many = rlx.jit(rlx.vmap(function, in_axes=(None, 0)))(i, datas)
        for one, row in zip(many, datas, strict=True):
            np.testing.assert_allclose(one, expected(pattern, reducer, kind, i, row), rtol=1e-12)
        return
    elif within == "scan":

        def step(cells: Any, offset: Any) -> Any:
            return cells, function(i + offset, data)

        _, many = rlx.jit(lambda i: rlx.lax.scan(step, 0.0, jnp.arange(3, dtype="int32")))(i)
        for offset, one in enumerate(many):
            np.testing.assert_allclose(one, expected(pattern, reducer, kind, i + np.int32(offset), data), rtol=1e-12)
        return
    else:
        found, total = rlx.jit(lambda i, data: (function(i, data), (data * 2).sum() + i.sum()))(i, data)
        assert np.isclose(total, (data * 2).sum() + i.sum())
    np.testing.assert_allclose(found, want, rtol=1e-12)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_gradients_of_gathers_add_up(pattern):
    i = np.array([0, 2, 1, 2, 3, 6, 6], "int32")
    index = PATTERNS[pattern](np, i)
    want = np.zeros(CELLS)
    np.add.at(want, index, 3.0)

    def gathered(x: Any) -> Any:
        return (3.0 * x[PATTERNS[pattern](jnp, i)]).sum()

    np.testing.assert_allclose(rlx.jit(rlx.grad(gathered))(np.ones(CELLS)), want)

    @rlx.jit
    def slope(i: Any, x: Any) -> Any:
        return rlx.grad(lambda x: (3.0 * x[PATTERNS[pattern](jnp, i)]).sum())(x)

    np.testing.assert_allclose(slope(i, np.ones(CELLS)), want)


@pytest.mark.parametrize("pattern", [p for p, index in PATTERNS.items() if index(np, np.arange(5)).ndim == 1])
def test_counts_and_segments(pattern):
    i = np.array([0, 2, 1, 2, 9], "int32")
    index = PATTERNS[pattern](np, i)
    counts = np.bincount(index, minlength=CELLS)
    np.testing.assert_array_equal(rlx.jit(lambda i: jnp.bincount(PATTERNS[pattern](jnp, i), length=CELLS))(i), counts)
    total = rlx.jit(lambda i: rlx.ops.segment_sum(jnp.ones(index.size), PATTERNS[pattern](jnp, i), CELLS))(i)
    np.testing.assert_array_equal(total, counts)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16", "complex64", "bool"])
def test_every_dtype(dtype):
    i = np.array([0, 2, 1, 2], "int32")
    index = np.repeat(i % 3, 2)
    found = rlx.jit(lambda i: jnp.zeros(3, dtype).at[jnp.repeat(i % 3, 2)].add(jnp.ones((), dtype)))(i)
    want = np.zeros(3, dtype)
    np.add.at(want, index, np.ones((), dtype))
    np.testing.assert_array_equal(found, want)
