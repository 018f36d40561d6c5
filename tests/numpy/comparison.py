"""Call one function of rlx.numpy and of jax.numpy, eagerly and traced, and compare everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import rlx
import rlx.numpy as rnp
from rlx import tree
from rlx.config import scoped
from rlx.trace.interpret import interpret
from rlx.trace.tracing import close_over, trace_program

__all__ = ["agree", "agree_in_type", "agree_on", "draw", "same", "wide"]

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "complex64": 2e-5}


def wide() -> Any:
    """The defaults of jax with jax_enable_x64."""
    return scoped(default_float=np.dtype("f8"), default_int=np.dtype("i8"))


def draw(shape: tuple[int, ...], dtype: Any = "f4", low: float = -3.0, high: float = 3.0, seed: int = 0) -> np.ndarray:
    """Deterministic values of any dtype."""
    generator = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return generator.integers(max(int(low), 0 if dtype.kind == "u" else -100), int(high) + 1, shape).astype(dtype)
    values = generator.uniform(low, high, shape)
    if dtype.kind == "c":
        return np.asarray(values + 1j * generator.uniform(low, high, shape)).astype(dtype)
    return np.asarray(values).astype(dtype)


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "OSUM"


def _leaves(value: Any) -> list[Any]:
    return [x for x in tree.leaves(value) if x is not None]


def same(ours: Any, theirs: Any, exact: bool = False, weak: bool = True, context: str = "") -> None:
    """Equal structure, shapes, dtypes, weakness and values."""
    left, right = _leaves(ours), _leaves(theirs)
    assert len(left) == len(right), f"{context}: {len(left)} results, expected {len(right)}"
    for mine, other in zip(left, right, strict=True):
        if not hasattr(other, "dtype"):
            assert mine == other, f"{context}: {mine} != {other}"
            continue
        a, b = np.asarray(mine), np.asarray(other)
        assert a.shape == b.shape, f"{context}: shape {a.shape}, expected {b.shape}"
        assert a.dtype == b.dtype, f"{context}: dtype {a.dtype}, expected {b.dtype}"
        if weak and isinstance(other, jax.Array) and isinstance(mine, rlx.Array):
            assert mine.weak_type == other.weak_type, f"{context}: weak {mine.weak_type}, expected {other.weak_type}"
        if exact or a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b, err_msg=context)
            continue
        tolerance = TOLERANCE.get(a.dtype.name, 1e-12)
        work = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(work), b.astype(work), tolerance, tolerance, err_msg=context)


def agree_on(
    ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any, weak: bool = True, traced: bool = True,
    exact: bool = False, context: str = "", **kwargs: Any,
) -> None:  # fmt: skip
    """Compare two functions on NumPy arrays, and the first one traced with itself."""
    arrays = [i for i, a in enumerate(args) if _is_array(a)]

    def run(function: Callable[..., Any], convert: Callable[[Any], Any], values: Any) -> Any:
        full = list(args)
        for i, value in zip(arrays, values, strict=True):
            full[i] = convert(value)
        return function(*full, **kwargs)

    given = [args[i] for i in arrays]
    expected = run(theirs, jnp.asarray, given)
    with wide():
        found = run(ours, rnp.asarray, given)
        same(found, expected, exact, weak, context)
        if not (traced and arrays):
            return
        flat: list[Any] = []

        def staged(*tracers: Any) -> list[Any]:
            nonlocal flat
            flat = _leaves(run(ours, lambda x: x, tracers))
            return [x if isinstance(x, rlx.Array) else rnp.asarray(x) for x in flat]

        concrete = [rnp.asarray(x) for x in given]
        program, captured = trace_program(staged, [x.type for x in concrete])
        results = interpret(close_over(program, captured), concrete)
        for eager, result in zip(_leaves(found), results, strict=True):
            if hasattr(eager, "dtype"):
                same(result, eager, exact=exact, weak=weak, context=f"{context} traced")
                assert result.weak_type == eager.weak_type, f"{context} traced: weak {result.weak_type}"


def agree(name: str, *args: Any, **options: Any) -> None:
    """Compare rlx.numpy.<name> with jax.numpy.<name>."""
    ours: Any = rnp
    theirs: Any = jnp
    for part in name.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    described = ", ".join(f"{a.dtype}{a.shape}" if _is_array(a) else repr(a)[:40] for a in args)
    agree_on(ours, theirs, *args, context=f"{name}({described})", **options)


def agree_in_type(name: str, *args: Any, **kwargs: Any) -> None:
    """Compare shapes, dtypes and weakness only: jax need not compile anything."""
    given = [jnp.asarray(a) for a in args if _is_array(a)]

    def theirs(*arrays: Any) -> Any:
        rest = iter(arrays)
        return getattr(jnp, name)(*[next(rest) if _is_array(a) else a for a in args], **kwargs)

    expected = jax.eval_shape(theirs, *given)
    with wide():
        found = getattr(rnp, name)(*[rnp.asarray(a) if _is_array(a) else a for a in args], **kwargs)
    for mine, other in zip(_leaves(found), jax.tree.leaves(expected), strict=True):
        described = f"{name}({', '.join(str(getattr(a, 'dtype', a)) for a in args)})"
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype), f"{described}: {mine.dtype}, expected {other}"
        assert mine.weak_type == other.weak_type, f"{described}: weak {mine.weak_type}"


bfloat16 = np.dtype(ml_dtypes.bfloat16)
