"""Every transform and loop inside every other: values compared with jax's."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import pytest
from nestings import ALL, MORE, POINT, WRAPPERS, nest
from twins import assert_same

import rlx


def expected(names: tuple[str, ...]) -> Any:
    """jax's value."""
    return jax.jit(nest(jax, names))(POINT)


@pytest.mark.parametrize("names", list(itertools.product(WRAPPERS, WRAPPERS)), ids="-".join)
def test_pair(names: tuple[str, ...]) -> None:
    """Compiled as a whole, and op by op."""
    value = expected(names)
    assert_same(rlx.jit(nest(rlx, names))(POINT), value, what="jit")
    with rlx.disable_jit():
        assert_same(nest(rlx, names)(POINT), value, what="op by op")


OTHER_PAIRS = ([(a, b) for a in MORE for b in ALL] + [(a, b) for a in WRAPPERS for b in MORE])[::2]


@pytest.mark.parametrize("names", OTHER_PAIRS, ids="-".join)
def test_pair_with_a_rule(names: tuple[str, ...]) -> None:
    """Checkpoints, custom rules and linearize inside and around the others."""
    with rlx.disable_jit():
        assert_same(nest(rlx, names)(POINT), expected(names))


TRIPLES = list(itertools.product(WRAPPERS, WRAPPERS, WRAPPERS))[::11]


@pytest.mark.parametrize("names", TRIPLES, ids="-".join)
def test_triple(names: tuple[str, ...]) -> None:
    """Three deep, on the reference backend."""
    with rlx.default_device("reference"):
        assert_same(rlx.jit(nest(rlx, names))(POINT), expected(names))
