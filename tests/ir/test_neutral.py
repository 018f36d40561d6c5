"""Neutral elements of reducers: one function states them, and everything that begins with nothing uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.ir.scalar import REDUCERS, neutral
from rlx.ir.types import bits_of, compute_dtype, dtype_kind, is_narrow, supported_dtypes

DTYPES = sorted(supported_dtypes, key=lambda d: d.name)
UFUNCS = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
KINDS = {"add": "iufc", "mul": "iufc", "min": "biuf", "max": "biuf", "and": "biu", "or": "biu", "xor": "biu"}
WITHOUT = {("add", np.dtype(ml_dtypes.float8_e8m0fnu))}  # powers of two: there is no zero
CASES = [(r, d) for r in REDUCERS for d in DTYPES if dtype_kind(d) in KINDS[r] and (r, d) not in WITHOUT]
named = pytest.mark.parametrize(("reducer", "dtype"), CASES, ids=lambda v: str(v))


def some_of(dtype: np.dtype) -> np.ndarray:
    """Every number of a small dtype; of others the special ones and some more."""
    if dtype_kind(dtype) == "b":
        return np.array([False, True])
    if bits_of(dtype) <= 8:
        if dtype_kind(dtype) in "iu":
            info = ml_dtypes.iinfo(dtype)
            return np.arange(int(info.min), int(info.max) + 1).astype(dtype)
        return np.arange(2 ** bits_of(dtype), dtype=np.uint8).view(dtype)
    if dtype_kind(dtype) in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.min + 1, 0, 1, 5, info.max - 1, info.max], dtype)
    if dtype.kind == "c":
        return np.array([0, 1.5 - 2j, -1e9j], dtype)
    limits = ml_dtypes.finfo(dtype)
    return np.array([-np.inf, limits.min, -1.5, -0.0, limits.tiny, 1.5, limits.max, np.inf, np.nan]).astype(dtype)


@named
def test_a_neutral_element_changes_nothing(reducer: str, dtype: np.dtype) -> None:
    """On both sides, for every number of small dtypes; the dtype has it exactly."""
    start, values = neutral(reducer, dtype), some_of(dtype)
    wide = compute_dtype(dtype) if is_narrow(dtype) else dtype
    element = np.asarray(start).astype(dtype)
    if dtype.name != "int1":  # 1 is -1 there
        assert element.astype(wide) == start
    numbers = values.astype(wide)
    with np.errstate(all="ignore"):
        for pair in ((numbers, element.astype(wide)), (element.astype(wide), numbers)):
            np.testing.assert_array_equal(UFUNCS[reducer](*pair).astype(dtype).astype(wide), numbers)


REDUCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("reduce_sum", lax.reduce_sum),
    "mul": ("reduce_prod", lax.reduce_prod),
    "min": ("reduce_min", lax.reduce_min),
    "max": ("reduce_max", lax.reduce_max),
    "and": ("reduce_and", lax.reduce_and),
    "or": ("reduce_or", lax.reduce_or),
    "xor": ("reduce_xor", lax.reduce_xor),
}


JAX_HAS = {d for d in DTYPES if d.kind in "biufc"} | {np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)}


@named
def test_an_empty_reduction_is_the_neutral_element(reducer: str, dtype: np.dtype) -> None:
    """Eagerly and compiled; as jax, where jax has the reduction and its result is a number."""
    name, reduce = REDUCTIONS[reducer]
    x = np.zeros((0, 2), dtype)
    expected = np.full(2, neutral(reducer, dtype)).astype(dtype)
    for found in (reduce(x, (0,)), rlx.jit(lambda v: reduce(v, (0,)))(x)):
        np.testing.assert_array_equal(as_numbers(found), as_numbers(expected))
    if dtype in JAX_HAS:
        other = getattr(jax.lax, name)(jax.numpy.asarray(x), (0,))
        np.testing.assert_array_equal(as_numbers(other), as_numbers(expected))


def as_numbers(x: Any) -> np.ndarray:
    """In a dtype that NumPy compares."""
    array = np.asarray(x)
    return array if array.dtype.kind != "V" else array.astype(np.float64)


FLOATS = [d for d in DTYPES if dtype_kind(d) == "f"]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@settings(max_examples=5)
@given(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=6), st.data())
@pytest.mark.selected(1)
def test_what_begins_with_nothing(dtype: np.dtype, codes: list[int], data: st.DataObject) -> None:
    """Masked and NaN-ignoring extrema, windows, running extrema and scatters of narrow floats, compiled and not."""
    pool = some_of(dtype)
    x = pool[np.array(codes) % len(pool)]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x))))
    numbers = x.astype(np.float64)
    least, greatest = neutral("max", dtype), neutral("min", dtype)
    present = numbers[~np.isnan(numbers)]
    window = np.lib.stride_tricks.sliding_window_view(np.pad(numbers, 2, constant_values=least), 2)
    programs: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda v: jnp.max(v, where=mask, initial=least), np.max(numbers[mask], initial=least)),
        (lambda v: jnp.min(v, where=mask, initial=greatest), np.min(numbers[mask], initial=greatest)),
        (jnp.nanmax, np.max(present) if len(present) else np.nan),
        (jnp.nanmin, np.min(present) if len(present) else np.nan),
        (lambda v: lax.reduce_window(v, np.asarray(least, dtype), lax.max, (2,), (1,), ((2, 2),)), window.max(axis=1)),
        (lambda v: rlx.segments.segment_max(v, np.ones(len(x), int), 2), [least, np.max(numbers)]),
        (lambda v: rlx.segments.segment_min(v, np.ones(len(x), int), 2), [greatest, np.min(numbers)]),
        (lax.cummax, np.maximum.accumulate(numbers)),
        (lambda v: jnp.full(1, least, dtype).at[np.zeros(len(x), int)].max(v), np.max(numbers, keepdims=True)),
    ]
    for program, expected in programs:
        for run in (program, rlx.jit(program)):
            np.testing.assert_array_equal(np.asarray(run(x)).astype(np.float64), expected)
