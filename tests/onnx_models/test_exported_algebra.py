"""Factorisations, Fourier transforms, complex numbers and running products as ONNX models, beside rlx itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import pytest
from onnx_models.test_exporting import check

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.errors import UnsupportedError

RNG = np.random.default_rng(0)
A = RNG.standard_normal((4, 4)).astype(np.float32)
SPD = (A @ A.T + 4 * np.eye(4)).astype(np.float32)
BATCH = RNG.standard_normal((2, 5, 3)).astype(np.float32)


def parts(x: Any) -> Any:
    """Real and imaginary parts in one array: one of them may be rounding only."""
    return jnp.stack([x.real, x.imag])


def rebuilt(factors: Any) -> Any:
    """The matrix of its eigenvalues and eigenvectors, whose signs are arbitrary."""
    values, vectors = factors
    return (vectors * values[..., None, :]) @ vectors.mT


def from_parts(factors: Any) -> Any:
    left, values, right = factors
    return (left * values[..., None, :]) @ right


ALGEBRA: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (jnp.linalg.cholesky, (SPD,)),
    "cholesky of others": (jnp.linalg.cholesky, (-SPD,)),
    "lu": (lax.linalg.lu, (A,)),
    "qr": (jnp.linalg.qr, (BATCH,)),
    "whole qr": (lambda a: jnp.linalg.qr(a, mode="complete"), (BATCH,)),
    "eigh": (lambda a: (rebuilt(jnp.linalg.eigh(a)), jnp.linalg.eigvalsh(a)), (SPD,)),
    "svd": (
        lambda a: (from_parts(jnp.linalg.svd(a, full_matrices=False)), jnp.linalg.svd(a, compute_uv=False)),
        (BATCH,),
    ),
    "solve": (jnp.linalg.solve, (A, A[:, :2])),
    "triangular": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), (SPD, A)),
    "tridiagonal": (lambda a, b: lax.linalg.tridiagonal_solve(a[0], a[1] + 4, a[2], b), (A, A)),
    "inverse": (lambda a: (jnp.linalg.inv(a), jnp.linalg.det(a), jnp.linalg.slogdet(a)), (A,)),
    "least squares": (lambda a: (jnp.linalg.pinv(a), jnp.linalg.lstsq(a[0], a[0, :, 0])[0]), (BATCH,)),
    "gradient": (rlx.grad(lambda a: jnp.linalg.cholesky(a @ a.T + 4 * jnp.eye(4)).sum()), (A,)),
    "batched": (rlx.vmap(jnp.linalg.solve), (np.stack([A, SPD]), np.stack([SPD, A]))),
    "doubles": (jnp.linalg.cholesky, (SPD.astype(np.float64),)),
    "complex": (
        lambda a, b: (
            parts(jnp.linalg.cholesky(lax.complex(a @ a.T + 9 * jnp.eye(4), b - b.T))),
            parts(jnp.linalg.solve(lax.complex(a, b), lax.complex(b, a))),
            jnp.linalg.eigvalsh(lax.complex(a + a.T, b - b.T)),
        ),
        (A, SPD),
    ),
    "no rows": (lambda a: (jnp.linalg.cholesky(a[:0, :0]), jnp.linalg.qr(a[:0]), jnp.linalg.solve(a, a[:, :0])), (A,)),
    "no matrices": (lambda a: jnp.linalg.cholesky(a[:0]), (np.stack([SPD, SPD]),)),
}


@pytest.mark.parametrize("name", ALGEBRA)
@pytest.mark.thorough
def test_factorisations(name: str) -> None:
    """They are loops over columns: the number of nodes does not depend on the order."""
    function, arguments = ALGEBRA[name]
    check(function, arguments, 1e-4)


def test_nodes_do_not_grow() -> None:
    """A large matrix has as many nodes as a small one."""
    counts = {
        n: len(rlx.onnx.export(jnp.linalg.cholesky, rlx.ShapeDtypeStruct((n, n), "float32")).graph.node)
        for n in (5, 500)
    }
    assert counts[5] == counts[500] < 60


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "fft": lambda x: parts(jnp.fft.fft(x)),
    "rfft": lambda x: parts(jnp.fft.rfft(x)),
    "irfft": lambda x: jnp.fft.irfft(jnp.fft.rfft(x[::-1]) * x[0, 0], x.shape[-1]),
    "ifft": lambda x: parts(jnp.fft.ifft(lax.complex(x, x[::-1]))),
    "fft2": lambda x: (parts(jnp.fft.fft2(x)), parts(jnp.fft.rfft2(x)), jnp.fft.irfft2(jnp.fft.rfft2(x), s=x.shape)),
    "gradient": rlx.grad(lambda x: (jnp.abs(jnp.fft.fft(x)) ** 2).sum()),
}


@pytest.mark.parametrize("length", [1, 2, 3, 8, 12, 67, 97, 128])
@pytest.mark.thorough
def test_transforms(length: int) -> None:
    """Powers of two, other products of small numbers, and large primes; both dtypes."""
    for dtype in (np.float32, np.float64):
        x = RNG.standard_normal((2, length)).astype(dtype)
        for function in TRANSFORMS.values():
            check(function, (x,), 1e-4)


@pytest.mark.thorough
def test_signals() -> None:
    """Functions around the transforms."""
    x = RNG.standard_normal(64).astype(np.float32)
    check(lambda x: (parts(rlx.scipy.signal.stft(x, nperseg=8)[2]), rlx.scipy.fft.dct(x)), (x,), 1e-4)
    check(lambda x: (rlx.scipy.signal.fftconvolve(x, x[:5]), jnp.fft.fftshift(jnp.abs(jnp.fft.fft(x)))), (x,), 1e-4)
    check(rlx.grad(lambda x: (rlx.scipy.signal.welch(x, nperseg=16)[1] ** 2).sum()), (x,), 1e-4)
    check(lambda x: parts(jnp.fft.fft(x[:0])), (x.reshape(8, 8),))


def test_complex_numbers() -> None:
    """Arithmetic, moves, products, loops and branches on both parts."""

    def function(a: Any, b: Any) -> Any:
        c = lax.complex(a, b)
        found = [
            c * c, jnp.exp(c), c / (c + 1), jnp.sqrt(c), jnp.conj(c), c.sum(0), c.T[::-1], jnp.where(a > 0, c, 0),
            c @ c.T, c @ a, a @ c, c[1:, ::2], c[jnp.array([1, 0])], c.at[0].add(1), jnp.concatenate([c, c]),
            jnp.cumsum(c, 0), jnp.cumprod(c, 0), jnp.pad(c, 1), lax.fori_loop(0, 3, lambda i, v: v * c, c),
            lax.cond(a[0, 0] > 0, lambda v: v, lambda v: -v, c), lax.scan(lambda s, v: (s + v, s * v), c[0], c)[1],
            lax.while_loop(lambda v: jnp.abs(v).sum() < 100, lambda v: v * 2, c), c.mean(), c[:0], jnp.float32(2) * c,
        ]  # fmt: skip
        return [*map(parts, found), jnp.abs(c), jnp.angle(c), c == c.T]

    check(function, (A, SPD))
    for refused in (lambda x: lax.complex(x, x), lambda x: jnp.sort(lax.complex(x, x)).real):
        with pytest.raises(UnsupportedError, match="complex numbers"):
            rlx.onnx.export(refused, A)


RUNNING = {"cumsum": lax.cumsum, "cumprod": lax.cumprod, "cummax": lax.cummax, "cummin": lax.cummin}


@pytest.mark.parametrize("name", [*RUNNING, "cumlogsumexp"])
@pytest.mark.thorough
def test_running(name: str) -> None:
    """Every dtype, both directions, NaN and infinities, no elements; with CumProd where the operator set has it."""
    function: Any = getattr(lax, name)
    both = lambda x: (function(x, axis=1), function(x, axis=0, reverse=True))  # noqa: E731
    values = 3 * RNG.standard_normal((3, 5))
    for dtype in "f4 f8 f2 i1 i2 i4 i8 u1 u2 u4".split():
        if name != "cumlogsumexp" or dtype[0] == "f":
            x = (np.abs(values) if dtype[0] == "u" else values).astype(dtype)
            check(both, (x,), 1e-3 if dtype == "f2" else 1e-5)
    edges = np.array([[-np.inf, -np.inf, 1], [1, np.nan, 2], [np.inf, 3, -np.inf]], np.float32)
    check(both, (edges,))
    check(both, (edges,), opset=26)
    for shape in ((0, 3), (3, 0), (1, 1)):
        check(both, (np.ones(shape, np.float32),))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
def test_running_in_few_bits(name: str) -> None:
    """onnxruntime takes no bfloat16: onnx's own evaluator."""
    x = RNG.uniform(0.5, 2, 7).astype(ml_dtypes.bfloat16)
    model = rlx.onnx.export(RUNNING[name], x)
    (found,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x0": x})
    expected = np.asarray(rlx.jit(RUNNING[name])(x))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=2**-7)
