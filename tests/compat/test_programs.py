"""Programs in the style of JAX's tutorials, unmodified: the results have the shapes, dtypes and values of jax's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from modules import load

import rlx
import rlx.compat

PROGRAMS = sorted((Path(__file__).resolve().parent / "programs").glob("*.py"))


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in rlx.tree.leaves(tree)]


@pytest.mark.selected(2)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_gives_the_results_of_jax(path: Path) -> None:
    with rlx.compat.as_jax():
        program = load(path)
    assert program.jnp.sin is rlx.numpy.sin
    found = leaves(program.run())
    with jax.enable_x64(False):
        original = load(path)
        assert original.jnp.sin is jax.numpy.sin
        wanted = leaves(jax.tree.map(np.asarray, original.run()))
    assert len(found) == len(wanted) > 1
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
