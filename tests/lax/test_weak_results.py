"""Python numbers in loops and branches stay weak: what comes out promotes as in jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import rlx
import rlx.numpy

HALF, SINGLE = np.float16(1.5), np.float32(1.5)
SINGLES, HALVES = np.ones(3, np.float32), np.ones(3, np.float16)
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "fori": lambda J, L: L.fori_loop(0, 2, lambda i, c: c * 2.0, 1.0),
    "fori of ints": lambda J, L: L.fori_loop(0, 2, lambda i, c: c + i, 1),
    "fori to floats": lambda J, L: L.fori_loop(0, 2, lambda i, c: c * 2.0, 1),
    "fori to strong": lambda J, L: L.fori_loop(0, 2, lambda i, c: c * SINGLE, 1.0),
    "fori to half": lambda J, L: L.fori_loop(0, 2, lambda i, c: c * HALF, 1.0),
    "fori of strong": lambda J, L: L.fori_loop(0, 2, lambda i, c: c * 2.0, SINGLE),
    "traced bound": lambda J, L: J.jit(lambda n: L.fori_loop(0, n, lambda i, c: c * 2.0, 1.0))(3),
    "while": lambda J, L: L.while_loop(lambda c: c < 5, lambda c: c * 2.0, 1.0),
    "while of two": lambda J, L: L.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * SINGLE), (0, 1.0)),
    "scan": lambda J, L: L.scan(lambda c, x: (c * 2.0, c), 1.0, None, length=3),
    "scan of results": lambda J, L: L.scan(lambda c, x: (c * 2.0, 1.0), 1.0, SINGLES),
    "scan to strong": lambda J, L: L.scan(lambda c, x: (c + x, c), 1.0, SINGLES),
    "scan to half": lambda J, L: L.scan(lambda c, x: (c + x, c), 1.0, HALVES),
    "late strength": lambda J, L: L.scan(lambda c, x: ((c[1], c[0]), HALF * c[0]), (1.0, SINGLE), None, length=2),
    "swapped": lambda J, L: L.scan(lambda c, x: ((c[1], c[0] * 2.0), None), (1.0, SINGLE), None, length=2),
    "map": lambda J, L: L.map(lambda x: 1.0, SINGLES),
    "cond": lambda J, L: L.cond(True, lambda: 1.0, lambda: 2.0),
    "cond of both": lambda J, L: L.cond(True, lambda: 1.0, lambda: SINGLE),
    "traced cond": lambda J, L: J.jit(lambda p: L.cond(p, lambda: 1.0, lambda: 2.0))(True),
    "traced cond of both": lambda J, L: J.jit(lambda p: L.cond(p, lambda: 1.0, lambda: SINGLE))(True),
    "switch": lambda J, L: L.switch(1, [lambda x: x, lambda x: x * 2.0], 1.0),
    "mapped": lambda J, L: J.vmap(lambda x: L.fori_loop(0, 2, lambda i, c: c * 2.0, 1.0) * x)(HALVES),
    "derivative": lambda J, L: J.grad(lambda x: L.fori_loop(0, 2, lambda i, c: c * x, 1.0))(2.0),
    "nested": lambda J, L: L.fori_loop(0, 2, lambda i, c: L.scan(lambda d, _: (d * 2.0, None), c, None, 2)[0], 1.0),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
@pytest.mark.parametrize("compiled", [False, True])
def test_weakness_is_jaxs(program: Callable[[Any, Any], Any], compiled: bool) -> None:
    """Values, dtypes and weakness, also of products with narrower arrays."""
    with jax.enable_x64(False):
        found, expected = (
            J.tree.leaves((J.jit(lambda J=J: program(J, J.lax)) if compiled else lambda J=J: program(J, J.lax))())
            for J in (rlx, jax)
        )
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
            assert (ours * HALVES[:1]).dtype == (theirs * HALVES[:1]).dtype
            np.testing.assert_array_equal(ours, theirs)
