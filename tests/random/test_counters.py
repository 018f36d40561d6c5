"""The switch threefry_partitionable: both orders of counters give jax's bits, and programs follow the switch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import jax
import numpy as np
import pytest
from jax.extend.random import threefry_2x32 as jax_threefry

import rlx
from rlx.jaxnames.extend_random import threefry_2x32


@pytest.fixture(params=[True, False], ids=["partitionable", "original"])
def _both(request: pytest.FixtureRequest) -> Iterator[None]:
    with ExitStack() as scopes:
        scopes.enter_context(jax.threefry_partitionable(request.param))
        scopes.enter_context(rlx.threefry_partitionable(request.param))
        scopes.enter_context(jax.enable_x64(True))
        scopes.enter_context(rlx.enable_x64())
        yield


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("shape", [(), (7,), (0,)], ids=str)
@pytest.mark.selected(1)
def test_bits_and_keys_are_jax_s(shape: tuple[int, ...]) -> None:
    key, theirs = rlx.random.key(3), jax.random.key(3)
    for dtype in ("uint8", "uint16", "uint32", "uint64"):
        wanted = np.asarray(jax.random.bits(theirs, shape, dtype))
        np.testing.assert_array_equal(np.asarray(rlx.random.bits(key, shape, dtype)), wanted)
    for impl in ("threefry2x32", "rbg"):
        key, theirs = rlx.random.key(3, impl=impl), jax.random.key(3, impl=impl)
        wanted = jax.random.key_data(jax.random.split(theirs, shape))
        np.testing.assert_array_equal(np.asarray(rlx.random.key_data(rlx.random.split(key, shape))), wanted)
        folded = jax.random.key_data(jax.random.fold_in(theirs, 5))
        np.testing.assert_array_equal(np.asarray(rlx.random.key_data(rlx.random.fold_in(key, 5))), folded)


@pytest.mark.usefixtures("_both")
def test_vmapped_and_jitted_keys_draw_what_each_draws() -> None:
    keys = rlx.random.split(rlx.random.key(1), 3)
    rows = rlx.jit(rlx.vmap(lambda k: rlx.random.bits(k, (5,), "uint16")))(keys)
    assert rows.tolist() == [rlx.random.bits(k, (5,), "uint16").tolist() for k in keys]


@pytest.mark.parametrize("size", [3, 5000])
def test_functions_follow_the_switch(size: int) -> None:
    key = rlx.random.key(0)
    drawn = rlx.jit(lambda k: rlx.random.normal(k, (size,)))
    for draw in (drawn, lambda k: rlx.random.normal(k, (size,))):
        first = draw(key)
        with rlx.threefry_partitionable(False):
            other = draw(key)
        assert first.tolist() != other.tolist() and draw(key).tolist() == first.tolist()


@pytest.mark.parametrize("count", [1, 4, 5])
def test_the_hash_of_counters_is_jax_s(count: int) -> None:
    pair, counts = np.array([1, 2], np.uint32), np.arange(count, dtype=np.uint32)
    assert threefry_2x32(pair, counts).tolist() == np.asarray(jax_threefry(pair, counts)).tolist()
