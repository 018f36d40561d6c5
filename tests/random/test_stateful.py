"""rlx.experimental.random: JAX's numbers, drawn through jit, vmap and scan."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.experimental.random import stateful_rng as jax_stateful_rng

import rlx
import rlx.numpy as jnp
from rlx.errors import ShapeError
from rlx.experimental.random import StatefulPRNG, stateful_rng


@pytest.mark.thorough
def test_draws_are_those_of_jax() -> None:
    ours, theirs = stateful_rng(42), jax_stateful_rng(42)
    for draw in (
        lambda rng: rng.random((2, 3), "float32"),
        lambda rng: rng.uniform(np.zeros(2), 5.0, dtype="float32"),
        lambda rng: rng.normal(1.0, 2.0, 4, dtype="float32"),
        lambda rng: rng.integers(100, size=3, dtype="int32"),
        lambda rng: rng.integers(-3, 3, (2,), dtype="int32"),
        lambda rng: rng.spawn(2)[1].uniform(dtype="float32"),
    ):
        np.testing.assert_allclose(draw(ours), draw(theirs), rtol=1e-6)
    mapped = [
        m.vmap(lambda rng, x: x + rng.random(dtype="float32"))(g.split(3), np.arange(3, dtype=np.float32))
        for m, g in ((rlx, ours), (jax, theirs))
    ]
    np.testing.assert_allclose(*mapped, rtol=1e-6)


def test_functions_that_draw_go_on_from_where_others_were() -> None:
    plain, traced = stateful_rng(7), stateful_rng(7)
    expected = [plain.uniform().item() for _ in range(4)]
    found = [rlx.jit(traced.uniform)().item(), rlx.jit(lambda rng: rng.uniform())(traced).item()]
    _, drawn = rlx.lax.scan(lambda c, _: (c, traced.uniform()), None, length=2)
    assert [*found, *drawn.tolist()] == expected
    assert stateful_rng().key() != stateful_rng().key()


def test_a_split_generator_is_mapped_over() -> None:
    many = stateful_rng(0).split((2, 3))
    with pytest.raises(ShapeError, match="split into"):
        many.uniform()
    draws = rlx.vmap(rlx.vmap(StatefulPRNG.random))(many)
    assert draws.shape == (2, 3) and len(jnp.unique(draws)) == 6
