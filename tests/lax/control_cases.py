"""Control flow written once for rlx and for jax, and a comparison of all their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import rlx
import rlx.lax

__all__ = ["check", "check_forward_only", "compare"]

Build = Callable[[Any], Callable[..., Any]]


def compare(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    """Assert that two trees have equal structure, shapes, dtypes, and close values."""
    ours_leaves, theirs_leaves = rlx.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours_leaves) == len(theirs_leaves)
    for a, b in zip(ours_leaves, theirs_leaves, strict=True):
        a, b = (a.concrete().numpy() if isinstance(a, rlx.Array) else np.asarray(a)), np.asarray(b)
        assert a.shape == b.shape
        if b.dtype == jax.dtypes.float0:
            continue
        assert a.dtype == b.dtype
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


def _scalar(library: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A number that depends on every floating result."""
    lax = library.lax

    def total(*args: Any) -> Any:
        result = None
        for leaf in library.tree.leaves(function(*args)):
            if leaf.dtype.kind == "f":
                part = lax.reduce_sum(lax.sin(leaf), tuple(range(leaf.ndim)))
                result = part if result is None else lax.add(result, part)
        return result

    return total


def _stacked(args: Any) -> Any:
    return jax.tree.map(lambda x: np.stack([np.asarray(x), np.asarray(x) * np.asarray(0.5, np.asarray(x).dtype)]), args)


def _derivatives(library: Any, build: Build, args: Any, second: bool) -> dict[str, Any]:
    function = build(library)
    total = _scalar(library, function)
    ones = jax.tree.map(lambda x: np.ones_like(np.asarray(x)), args)
    gradient = library.grad(total, argnums=tuple(range(len(args))))
    found = {
        "value": function(*args),
        "jit": library.jit(function)(*args),
        "jvp": library.jvp(function, args, ones)[1],
        "grad": gradient(*args),
        "jit grad": library.jit(gradient)(*args),
        "vmap": library.vmap(function)(*_stacked(args)),
        "vmap grad": library.vmap(gradient)(*_stacked(args)),
    }
    if second:
        found["jvp of grad"] = library.jvp(gradient, args, ones)[1]
        norm = _scalar(library, gradient)
        found["grad of grad"] = library.grad(norm, argnums=tuple(range(len(args))))(*args)
    return found


def check(build: Build, *args: Any, second: bool = True, tolerance: float = 2e-5) -> None:
    """Compare `build(library)` of rlx and jax: values, jit, jvp, grad, vmap, second derivatives."""
    theirs = _derivatives(jax, build, args, second)
    ours = _derivatives(rlx, build, args, second)
    for what, value in theirs.items():
        try:
            compare(ours[what], value, tolerance)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error


def check_forward_only(build: Build, *args: Any) -> None:
    """Compare values, jit and vmap."""
    for transform in ("identity", "jit", "vmap"):
        inputs = _stacked(args) if transform == "vmap" else args
        results = [
            (build(library) if transform == "identity" else getattr(library, transform)(build(library)))(*inputs)
            for library in (rlx, jax)
        ]
        compare(*results)
