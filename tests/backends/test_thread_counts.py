"""With `deterministic`, results have the same bits for any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.backends.cpu.routines.gemm import BLOCK_THREADS
from rlx.backends.cpu.runtime.threads import STABLE_THREADS, dividing_threads

generator = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return jnp.asarray(generator.standard_normal(shape, np.float32))


def loss(w: Any, v: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w) @ v)


PROGRAMS = {
    "a product": (lambda x, y: x @ y, (normal(301, 100), normal(100, 100))),
    "products in a batch": (lambda x, y: x @ y, (normal(3, 257, 90), normal(3, 90, 100))),
    "a matrix and a vector": (lambda x, y: x @ y, (normal(1000, 333), normal(333))),
    "row tiles": (lambda w, v, x: jnp.tanh(jnp.tanh(x @ w) @ v), (normal(64, 100), normal(100, 70), normal(3000, 64))),
    "gradients": (rlx.grad(loss, (0, 1)), (normal(64, 100), normal(100, 70), normal(3000, 64))),
    "sums": (lambda x: (x.sum(), x.sum(0), jnp.var(x, 1)), (normal(3001, 100),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_of_results(name: str) -> None:
    function, arguments = PROGRAMS[name]
    before, found = rlx.get_num_threads(), set()
    try:
        with rlx.scoped(deterministic=True):
            for threads in (1, 2, 3, 8):
                rlx.set_num_threads(threads)
                rlx.clear_caches()
                results = rlx.jit(function)(*arguments)
                found.add(tuple(np.asarray(x).tobytes() for x in rlx.tree.leaves(results)))
    finally:
        rlx.set_num_threads(before)
        rlx.clear_caches()
    assert len(found) == 1


def test_products_are_cut_for_a_constant_number_of_threads() -> None:
    with rlx.scoped(deterministic=True):
        assert dividing_threads() == STABLE_THREADS
        assert _block_threads() == STABLE_THREADS
    assert dividing_threads() == rlx.get_num_threads()
    assert _block_threads() == 0


def _block_threads() -> int:
    """The field of a product's row."""
    from rlx.backends.cpu.routines.blas import gemm_fields  # loads BLAS
    from rlx.backends.cpu.runtime.frame import STEP_HEAD

    (kernel,) = rlx.inspect(lambda x, y: x @ y)(*PROGRAMS["a product"][1]).plan.kernels
    return gemm_fields(kernel, lambda buffer: 0, 1)[BLOCK_THREADS - STEP_HEAD]
