"""segment_sum and its kin against jax.ops: values, derivatives, ids outside."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rlx
from rlx.testing import check_grads

IDS = np.array([0, 2, 2, -1, 5, 0, 1], np.int32)
NAMES = ("segment_sum", "segment_prod", "segment_max", "segment_min")


def data(dtype: Any, *rest: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, (7, *rest)).astype(dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bfloat16"])
@pytest.mark.parametrize("count", [None, 4, 8, 0])
def test_against_jax(name: str, dtype: str, count: int | None) -> None:
    x = data(jax.numpy.dtype(dtype), 2)
    with jax.enable_x64(True):
        expected = np.asarray(getattr(jax.ops, name)(x, IDS, count))
    for function in (getattr(rlx.ops, name), rlx.jit(getattr(rlx.ops, name), static_argnums=2)):
        found = function(x, IDS, max(IDS) + 1 if count is None else count)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found).astype(float), expected.astype(float))
    assert getattr(rlx.ops, name)(x, IDS).shape == (6, 2)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "segment_prod"])
def test_derivatives(name: str) -> None:
    x = np.linspace(0.5, 2.0, 14).reshape(7, 2)
    # empty segments hold infinities, which have no finite differences: pick the others
    check_grads(lambda v: getattr(rlx.ops, name)(v, IDS, 6)[:3], (x,), order=2)


def test_batches_and_bad_input() -> None:
    x = data("float32", 3)
    found = rlx.vmap(lambda v: rlx.ops.segment_sum(v, IDS, 6), 1, 1)(x)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(rlx.ops.segment_sum(x, IDS, 6)))
    clipped = rlx.ops.segment_sum(np.ones(3, np.float32), np.array([-5, 1, 9]), 2, mode="clip")
    assert clipped.tolist() == [1.0, 2.0]
    assert rlx.ops.segment_max(np.array([True, False]), np.array([0, 2]), 3).tolist() == [True, False, False]
    with pytest.raises(rlx.errors.DtypeError):
        rlx.ops.segment_sum(x, IDS.astype(float))
    with pytest.raises(rlx.errors.ShapeError):
        rlx.ops.segment_sum(x, IDS[:3])
    with pytest.raises(rlx.errors.ShapeError):
        rlx.ops.segment_sum(x, IDS, -1)
    with pytest.raises(rlx.errors.DtypeError, match="order"):
        rlx.ops.segment_max(x.astype(complex), IDS)
    with pytest.raises(AttributeError):
        rlx.ops.segment_mean  # noqa: B018


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_min", "segment_max"])
def test_scalars_count_for_every_id(name: str) -> None:
    """As in JAX."""
    ids = np.array([0, 1, 1])
    for data in (2.0, np.float32(2.0), np.array(3)):
        found, expected = getattr(rlx.ops, name)(data, ids, 3), getattr(jax.ops, name)(data, ids, 3)
        assert np.asarray(found).tolist() == np.asarray(expected).tolist()
