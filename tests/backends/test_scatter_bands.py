"""Scatters of rows on several threads: each thread takes a band of columns, and results have the bits of one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.backends.cpu.emit.tiling import tiled
from rlx.ir.kernels import Loops

generator = np.random.default_rng(0)
ROWS = jnp.asarray(generator.integers(-60, 60, 900))
COLUMNS = jnp.asarray(generator.integers(0, 7, 900))


def numbers(*shape: int, dtype: str = "f4") -> Any:
    return jnp.asarray((generator.standard_normal(shape) * 100).astype(dtype))


def windows(target: Any, starts: Any, updates: Any) -> Any:
    """Add rows at any places of a vector, where they overlap."""
    numbers = rlx.lax.ScatterDimensionNumbers((1,), (), (0,))
    return rlx.lax.scatter_add(target, starts[:, None], updates, numbers)


BANDED = {
    "rows": (lambda x: jnp.zeros((50, 70)).at[ROWS].add(x), numbers(900, 70)),
    "odd columns": (lambda x: jnp.ones((50, 33)).at[ROWS].multiply(1 + x / 1e4), numbers(900, 33)),
    "the last write": (lambda x: jnp.zeros((50, 64)).at[ROWS].set(x), numbers(900, 64)),
    "extrema": (lambda x: jnp.zeros((50, 64)).at[ROWS].max(x), numbers(900, 64)),
    "two indices": (lambda x: jnp.zeros((50, 7, 48)).at[ROWS, COLUMNS].add(x), numbers(900, 48)),
    "whole matrices": (lambda x: jnp.zeros((50, 4, 40)).at[ROWS].add(x), numbers(900, 4, 40)),
    "integers": (lambda x: jnp.zeros((50, 64), int).at[ROWS].add(x), numbers(900, 64, dtype="i4")),
    "computed updates": (lambda x: jnp.zeros((50, 64)).at[ROWS].add(jnp.exp(x / 300)), numbers(900, 64)),
    "gradients": (rlx.grad(lambda e: jnp.sum(jnp.sin(e[ROWS % 50]))), numbers(50, 64)),
}
SERIAL = {
    "overlapping windows": (lambda x: windows(jnp.zeros(3000), ROWS % 60 * 3, x), numbers(900, 64)),
    "short rows": (lambda x: jnp.zeros((50, 20)).at[ROWS].add(x), numbers(900, 20)),
    "one index for each element": (lambda x: jnp.zeros(50).at[ROWS].add(x), numbers(900)),
}


def scatters(function: Callable[..., Any], x: Any) -> list[Loops]:
    kernels = rlx.inspect(function)(x).plan.kernels
    return [k for k in kernels if isinstance(k, Loops) and any(s.address is not None for s in k.stores)]


@pytest.mark.parametrize("name", [*BANDED, *SERIAL])
def test_results_have_the_bits_of_one_thread(name: str) -> None:
    function, x = (BANDED | SERIAL)[name]
    before = rlx.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            rlx.set_num_threads(threads)
            rlx.clear_caches()
            bands = {tiled(kernel).kernel.parallel for kernel in scatters(function, x)}
            assert bands == {int(threads > 1 and name in BANDED)}
            found.append(np.asarray(rlx.jit(function)(x)).tobytes())
    finally:
        rlx.set_num_threads(before)
        rlx.clear_caches()
    expected = rlx.jit(function, device="reference")(x)
    assert found[1:] == found[:1] * 2
    np.testing.assert_allclose(np.asarray(rlx.jit(function)(x)), np.asarray(expected), rtol=1e-5, atol=1e-3)
