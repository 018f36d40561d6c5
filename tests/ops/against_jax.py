"""Compare operations with JAX: values, derivatives both ways, and compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from rlx.backends.reference import ReferenceBackend
from rlx.ir.types import TensorType, is_inexact
from rlx.passes.pipeline import lower_program
from rlx.storage import from_numpy
from rlx.trace.primitive import to_numpy
from rlx.trace.tracing import close_over, trace_program
from rlx.transforms.forward import jvp
from rlx.transforms.reverse import vjp
from rlx.transforms.vmap import vmap

__all__ = ["agree", "draw", "equal", "loop_equals_vmap"]

generator = np.random.default_rng(11)


def draw(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Random numbers of any dtype, with ties for integers."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return generator.integers(0, 7, shape).astype(dtype)
    values = generator.normal(size=shape)
    if dtype.kind == "c":
        return (values + 1j * generator.normal(size=shape)).astype(dtype)
    return np.asarray(values).astype(dtype)


def flat(values: Any) -> list[Any]:
    """A list of results, for one result or several."""
    return list(values) if isinstance(values, (tuple, list)) else [values]


def equal(result: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Same shape, dtype and values up to a tolerance for floats of 32 bits or more."""
    result = result.numpy() if hasattr(result, "numpy") else np.asarray(result)
    expected = np.asarray(expected)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    narrow = {1: 0.2, 2: 0.03, 4: 3e-5}
    part = expected.dtype.itemsize // (2 if expected.dtype.kind == "c" else 1)
    tolerance = max(tolerance, narrow.get(part, 0)) if is_inexact(expected.dtype) else 0
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)


def lowered(function: Callable[..., Any], args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a function through kernels on the reference backend."""
    types = [TensorType(a.shape, a.dtype) for a in args]
    program, captured = trace_program(lambda *xs: flat(function(*xs)), types)
    plan = lower_program(close_over(program, [np.asarray(to_numpy(c)) for c in captured]))
    contiguous = [np.ascontiguousarray(a).reshape(a.shape) for a in args]
    storages = ReferenceBackend().compile(plan).run([from_numpy(a) for a in contiguous])
    pairs = zip(storages, program.output_types, strict=True)
    return [storage.view(t.shape, t.dtype) for storage, t in pairs]


def agree(
    function: Callable[..., Any],
    model: Callable[..., Any],
    *args: np.ndarray,
    derivatives: bool = True,
) -> None:
    """`function` on rlx does what `model` does in JAX: eagerly, compiled, and differentiated."""
    with jax.enable_x64(True):
        expected = flat(model(*args))
        for result, value in zip(flat(function(*args)), expected, strict=True):
            equal(result, value)
        for result, value in zip(lowered(function, args), expected, strict=True):
            equal(result, value)
        if derivatives:
            derivatives_agree(function, model, args)


def derivatives_agree(function: Callable[..., Any], model: Callable[..., Any], args: Sequence[np.ndarray]) -> None:
    """Tangents, and cotangents eagerly and compiled, of the float arguments and results."""
    moving = [n for n, a in enumerate(args) if is_inexact(a.dtype)]

    def partial(f: Callable[..., Any]) -> Callable[..., Any]:
        def of_floats(*xs: Any) -> list[Any]:
            operands = list(args)
            for n, x in zip(moving, xs, strict=True):
                operands[n] = x
            return [out for out in flat(f(*operands)) if is_inexact(np.dtype(out.dtype))]

        return of_floats

    primals = [args[n] for n in moving]
    tangents = [draw(*x.shape, dtype=x.dtype) for x in primals]
    _, expected = jax.jvp(partial(model), primals, tangents)
    _, result = jvp(partial(function), tuple(primals), tuple(tangents))
    for got, value in zip(result, expected, strict=True):
        equal(got, value)
    outs, pull = jax.vjp(partial(model), *primals)
    cotangents = [draw(*out.shape, dtype=out.dtype) for out in outs]
    expected_cotangents = pull(cotangents)

    def pulled(*values: Any) -> Any:
        n = len(primals)
        return vjp(partial(function), *values[:n])[1](list(values[n:]))

    results = (pulled(*primals, *cotangents), lowered(pulled, [*primals, *cotangents]))
    for result in results:
        for got, value in zip(result, expected_cotangents, strict=True):
            equal(got, value)


def loop_equals_vmap(function: Callable[..., Any], args: Sequence[np.ndarray], in_axes: Sequence[int | None]) -> None:
    """vmap over stacked copies of the arguments equals a Python loop."""
    versions = [
        [a if d is None else np.roll(a.ravel(), n).reshape(a.shape) for n in range(3)]
        for a, d in zip(args, in_axes, strict=True)
    ]
    stacked = [v[0] if d is None else np.stack(v, d) for v, d in zip(versions, in_axes, strict=True)]
    batched = flat(vmap(function, in_axes=tuple(in_axes))(*stacked))
    looped = [flat(function(*members)) for members in zip(*versions, strict=True)]
    for number, result in enumerate(batched):
        equal(result, np.stack([np.asarray(out[number].numpy()) for out in looped]))
