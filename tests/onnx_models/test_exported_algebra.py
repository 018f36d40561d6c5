"""Factorisations, Fourier transforms, complex numbers and running products as ONNX models, beside rlx itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import pytest
from onnx_models.test_exporting import check, run

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
    with pytest.raises(UnsupportedError, match="complex numbers"):
        rlx.onnx.export(lambda x: jnp.sort(lax.complex(x, x)).real, A)


def test_complex_arguments_and_results() -> None:
    """A complex array is two inputs, or two outputs: its real and its imaginary part. Also of any size."""

    def function(a: Any, b: Any) -> Any:
        return {"product": a @ a.T * b, "size": jnp.abs(a), "same": a, "spectrum": jnp.fft.fft(a, axis=1)}

    for dtype in (np.complex64, np.complex128):
        z = (BATCH + 1j * BATCH[::-1]).astype(dtype)[0]
        model = check(function, (z, np.float32(2)))
        assert [i.name for i in model.graph.input] == ["x0_real", "x0_imag", "x1"]
        assert [o.name for o in model.graph.output][:3] == ["y0_real", "y0_imag", "y1_real"]
    rows = rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("rows, 3"), "complex64")
    model = rlx.onnx.export(lambda z: (z * z.shape[0]).sum(0), rows)
    for size in (1, 2, 5):
        z = (BATCH[0] * 1j + BATCH[1]).astype(np.complex64)[:size]
        real, imaginary = run(model, [z])
        np.testing.assert_allclose(real + 1j * imaginary, z.sum(0) * size, rtol=1e-5)


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


# ------------------------------------------------------------------ special functions
_special: Any = rlx.scipy.special
_ONE = "gammaln digamma erfinv gamma i0 i0e i1 i1e erfcx log_ndtr ndtri dawsn spence exp1 expi erf erfc"
_TWO = "zeta gammainc gammaincc beta betaln poch owens_t"
_WITH_ORDER = "polygamma expn"
SPECIAL_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(_special, name) for name in _ONE.split()},
    **{name: lambda x, name=name: getattr(_special, name)(x[0], x[1]) for name in _TWO.split()},
    **{name: lambda x, name=name: getattr(_special, name)(x[0].astype(int), x[1]) for name in _WITH_ORDER.split()},
}
HAVE_LIMITS = "gammaln erf erfc erfinv gamma digamma i0e i1e erfcx log_ndtr ndtri dawsn exp1 expi owens_t".split()


@pytest.mark.parametrize("name", SPECIAL_FUNCTIONS)
@pytest.mark.thorough
def test_special_functions(name: str) -> None:
    """They are computed in float64, so that both dtypes have all their digits; at infinity and NaN, too."""
    function = SPECIAL_FUNCTIONS[name]
    x = np.concatenate([RNG.uniform(0.05, 0.95, 30), [0.5, 1.0]]).reshape(2, 16)
    if name in ("zeta", "polygamma", "expn"):
        x = np.stack([np.round(3 * x[0] + 2), 9 * x[1]])
    check(function, (x.astype(np.float32),), 1e-6)
    check(function, (x,), 1e-13)
    if name in HAVE_LIMITS:
        edges = np.array([[0.0, 1.0, np.inf, np.nan, 30.0], [1.0, 0.25, np.inf, 1.0, 30.0]])
        check(function, (edges,), 1e-12)


def test_special_functions_of_any_size() -> None:
    """One model for all batch sizes, read back by rlx."""
    rows = rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("rows, 3"), "float32")
    model = rlx.onnx.export(lambda x: (lax.lgamma(x) / x.shape[0], rlx.scipy.special.erfinv(x - 1)), rows)
    loaded, parameters = rlx.onnx.load(model)
    for size in (1, 4):
        x = RNG.uniform(0.1, 1.9, (size, 3)).astype(np.float32)
        for found in (run(model, [x]), loaded(parameters, x)):
            np.testing.assert_allclose(found[0], rlx.scipy.special.gammaln(x) / size, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(found[1], rlx.scipy.special.erfinv(x - 1), rtol=1e-5)


DOUBLES = "tan arctan arcsin arccos sinh cosh arcsinh arccosh arctanh".split()


@pytest.mark.parametrize("name", DOUBLES)
@pytest.mark.thorough
def test_functions_that_runtimes_lack_in_double_precision(name: str) -> None:
    """All digits, over all magnitudes of the domain, at its ends and outside."""
    sizes = 10.0 ** RNG.uniform(-12, 2.8 if name in ("tan", "sinh", "cosh") else 300, 400)
    x = np.concatenate([sizes, -sizes, [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan]])
    if name in ("arcsin", "arccos", "arctanh"):
        x = np.concatenate([x, RNG.uniform(-1, 1, 400), [1 - 1e-16]])
    (found,) = run(rlx.onnx.export(getattr(jnp, name), x), [x])
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    # onnxruntime's own sines and cosines of large numbers lose two digits
    np.testing.assert_allclose(found, expected, rtol=1e-13 if name == "tan" else 2e-15, atol=0)


@pytest.mark.parametrize("dtype", "i1 i2 i4 i8 u1 u2 u4 u8".split())
@pytest.mark.thorough
def test_bits(dtype: str) -> None:
    """Counts and shifts of bits, and reductions of them, along an empty axis, too."""
    limits = np.iinfo(dtype)
    x = np.array([[0, 1, 2, limits.max, limits.min, 77]], dtype)
    shifts = np.array([0, 1, 3, 7, 8 * x.itemsize, 2], dtype)

    def function(x: Any, by: Any) -> Any:
        reduced = [f(x.T, axes=axes) for f in (lax.reduce_and, lax.reduce_or, lax.reduce_xor) for axes in ((0,), (1,))]
        return (
            lax.population_count(x), lax.clz(x), lax.shift_right_arithmetic(x, by), lax.shift_right_logical(x, by),
            lax.shift_left(x, by), reduced, lax.reduce_and(x[:0], axes=(0,)), lax.reduce_xor(x > 0, axes=(1,)),
        )  # fmt: skip

    check(lambda x, by: function(x, jnp.broadcast_to(by, x.shape)), (x, shifts))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_of_floats(dtype: Any) -> None:
    """nextafter needs BitCast, which opset 26 has."""
    x = np.array([0.0, -0.0, 1.0, -1.0, 1e-45, np.inf, -np.inf, np.nan, 3.0, 0.0], dtype)
    y = np.array([1.0, -1.0, 2.0, 2.0, -1.0, 0.0, -np.inf, 1.0, np.nan, -0.0], dtype)
    (found,) = run(rlx.onnx.export(jnp.nextafter, x, y, opset=26), [x, y])
    np.testing.assert_array_equal(found, np.nextafter(x, y))
    with pytest.raises(UnsupportedError, match="needs BitCast, which opset 21 lacks; write opset=26"):
        rlx.onnx.export(jnp.nextafter, x, y)
