"""Programs written once for rlx and for jax, and the comparison of what they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import rlx
import rlx.lax
import rlx.numpy

__all__ = ["Build", "assert_same", "assert_twins", "to_array"]

# build(library) returns a function; library is rlx or jax, with .numpy, .lax, .tree below it
Build = Callable[[Any], Callable[..., Any]]


def to_array(x: Any) -> np.ndarray:
    """A leaf as NumPy."""
    return x.concrete().numpy() if isinstance(x, rlx.Array) else np.asarray(x)


def assert_same(ours: Any, theirs: Any, rtol: float = 0.0, atol: float = 0.0, what: str = "") -> None:
    """Assert equal leaves in order, shapes and dtypes, and values that are equal or close.

    The default tolerance follows from the dtype: 1e-10 for 64 bits, 2e-5 for 32.
    """
    first, second = rlx.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(first) == len(second), f"{what}: {len(first)} leaves, expected {len(second)}"
    for x, y in zip(first, second, strict=True):
        a, b = to_array(x), to_array(y)
        assert a.shape == b.shape, f"{what}: shape {a.shape}, expected {b.shape}"
        assert a.dtype == b.dtype, f"{what}: dtype {a.dtype}, expected {b.dtype}"
        if b.dtype == jax.dtypes.float0:
            continue
        default = 1e-10 if b.dtype.itemsize >= 8 and b.dtype != np.complex64 else 2e-5
        np.testing.assert_allclose(a, b, rtol=rtol or default, atol=atol or default, err_msg=what)


def assert_twins(build: Build, *args: Any, rtol: float = 0.0, jit: bool = True) -> None:
    """Assert that build(rlx) and build(jax) agree on `args`, eagerly and jitted."""
    expected = jax.jit(build(jax))(*args)
    assert_same(build(rlx)(*args), expected, rtol, rtol, "eager")
    if jit:
        assert_same(rlx.jit(build(rlx))(*args), expected, rtol, rtol, "jit")
