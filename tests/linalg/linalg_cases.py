"""Compare functions of matrices with JAX: eagerly, compiled, differentiated both ways and batched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import rlx
from rlx.ir.types import is_inexact

__all__ = ["DTYPES", "agree", "batch_is_a_loop", "close", "matrix", "positive", "second_order_agrees"]

DTYPES = ("f4", "f8", "c8", "c16")


def matrix(*shape: int, dtype: Any = "f8", seed: int = 0) -> np.ndarray:
    """Well-conditioned matrices (or vectors) without structure."""
    generator = np.random.default_rng((seed, *shape))
    values = generator.normal(size=shape)
    if len(shape) > 1:
        values = values + 3 * np.eye(*shape[-2:])
    if np.dtype(dtype).kind == "c":
        values = values + 1j * generator.normal(size=shape)
    return np.asarray(values).astype(dtype)


def positive(*shape: int, dtype: Any = "f8", seed: int = 0) -> np.ndarray:
    """Hermitian positive definite matrices with eigenvalues far apart."""
    x = matrix(*shape, dtype=dtype, seed=seed)
    return (x @ x.conj().swapaxes(-1, -2) + np.diag(1.0 + np.arange(shape[-1]))).astype(dtype)


def flat(values: Any) -> list[Any]:
    """Results as a list of arrays."""
    return [v for v in jax.tree.leaves(values if not hasattr(values, "_fields") else tuple(values))]


def leaves(values: Any) -> list[np.ndarray]:
    """Results of rlx as NumPy arrays."""
    return [np.asarray(v) for v in rlx.tree.leaves(values)]


def close(result: Any, expected: Any, factor: float = 1.0, what: str = "") -> None:
    """Equal shapes and dtypes, values up to a few rounding errors of the larger ones."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert (result.shape, result.dtype.kind) == (expected.shape, expected.dtype.kind), what
    if not is_inexact(expected.dtype):
        # the width of integers follows rlx's default, not the 64 bits of these tests
        np.testing.assert_array_equal(result, expected, err_msg=what)
        return
    single = expected.dtype in (np.float32, np.complex64)
    assert result.dtype == expected.dtype, what
    tolerance = factor * (2e-4 if single else 1e-9)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def agree(
    function: Callable[..., Any],
    model: Callable[..., Any],
    *args: np.ndarray,
    derivatives: bool = True,
    factor: float = 1.0,
    compiled: bool = False,
) -> None:
    """`function` on rlx does what `model` does in JAX: eagerly, differentiated, and compiled if so asked."""
    expected = flat(model(*args))
    results = leaves(function(*args))
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        close(result, value, factor, "eager")
    if compiled:
        for result, value in zip(leaves(rlx.jit(function)(*args)), expected, strict=True):
            close(result, value, factor, "jit")
    if derivatives:
        _derivatives_agree(function, model, args, factor, compiled)


def _inexact_only(function: Callable[..., Any], collect: Any, args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The function of its inexact arguments, with its inexact results."""
    moving = [n for n, a in enumerate(args) if is_inexact(a.dtype)]

    def partial(*xs: Any) -> list[Any]:
        operands = list(args)
        for n, x in zip(moving, xs, strict=True):
            operands[n] = x
        return [out for out in collect(function(*operands)) if is_inexact(np.dtype(out.dtype))]

    return partial, [args[n] for n in moving]


def _derivatives_agree(function: Any, model: Any, args: Sequence[np.ndarray], factor: float, compiled: bool) -> None:
    ours, primals = _inexact_only(function, rlx.tree.leaves, args)
    theirs, _ = _inexact_only(model, flat, args)
    tangents = [matrix(*x.shape, dtype=x.dtype, seed=7) for x in primals]
    _, expected = jax.jvp(theirs, tuple(primals), tuple(tangents))
    _, result = rlx.jvp(ours, tuple(primals), tuple(tangents))
    for got, value in zip(result, expected, strict=True):
        close(got, value, 10 * factor, "jvp")
    outs, pull = jax.vjp(theirs, *primals)
    cotangents = [matrix(*out.shape, dtype=out.dtype, seed=9) for out in outs]
    expected_cotangents = pull(cotangents)

    def pulled(*values: Any) -> Any:
        n = len(primals)
        return rlx.vjp(ours, *values[:n])[1](list(values[n:]))

    for run in (pulled, rlx.jit(pulled)) if compiled else (pulled,):
        for got, value in zip(run(*primals, *cotangents), expected_cotangents, strict=True):
            close(got, value, 10 * factor, "vjp")


def second_order_agrees(function: Any, model: Any, x: np.ndarray, factor: float = 100.0) -> None:
    """Forward over reverse, of a sum that weighs all real parts and imaginary parts."""

    def total(module: Any, f: Any, collect: Any) -> Any:
        def run(v: Any) -> Any:
            result = 0.0
            for out in collect(f(v)):
                weights = np.cos(np.arange(out.size)).reshape(out.shape).astype(np.float64)
                result = (
                    result + module.sum(module.real(out) * weights) + module.sum(module.imag(out) * (weights - 0.3))
                )
            return result

        return run

    direction = matrix(*x.shape, dtype=x.dtype, seed=3)
    gradient = rlx.grad(total(rlx.numpy, function, rlx.tree.leaves))
    model_gradient = jax.grad(total(jax.numpy, model, flat))
    _, result = rlx.jvp(gradient, (x,), (direction,))
    _, expected = jax.jvp(model_gradient, (x,), (direction,))
    close(result, expected, factor, "second order")


def batch_is_a_loop(function: Callable[..., Any], args: Sequence[np.ndarray], in_axes: Sequence[int | None]) -> None:
    """vmap equals a Python loop over the mapped axes."""
    versions = [[a if d is None else a + 0.1 * n for n in range(3)] for a, d in zip(args, in_axes, strict=True)]
    stacked = [v[0] if d is None else np.stack(v, d) for v, d in zip(versions, in_axes, strict=True)]
    batched = leaves(rlx.vmap(function, in_axes=tuple(in_axes))(*stacked))
    looped = [leaves(function(*members)) for members in zip(*versions, strict=True)]
    for number, result in enumerate(batched):
        close(result, np.stack([out[number] for out in looped]), 10.0)
