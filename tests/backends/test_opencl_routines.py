"""Routines of linear algebra and Fourier transforms as kernels of the OpenCL device, where no library computes them."""

from __future__ import annotations

import os
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from primitive_cases import cases, cases_of

import rlx
import rlx.numpy as jnp
from rlx.ops.solves import lu_solve
from rlx.routines import LIBRARY_ROUTINES

if os.environ.get("RLX_TEST_OPENCL") != "1":
    pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")

DTYPES = ["float64", "complex64"]
PRIMITIVES = {case.primitive.routine: case.primitive for case in cases() if hasattr(case.primitive, "routine")}
TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12}


def normal(*shape: int, dtype: str) -> np.ndarray:
    """Normal numbers, with an imaginary part where there is one."""
    generator = np.random.default_rng(sum(shape))
    x = generator.normal(size=shape) + 1j * generator.normal(size=shape)
    return x.astype(dtype) if dtype[0] == "c" else x.real.astype(dtype)


def positive(*shape: int, dtype: str) -> np.ndarray:
    """Positive definite matrices."""
    x = normal(*shape, dtype=dtype)
    return (x @ x.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def check(name: str, attributes: dict[str, Any], *arrays: np.ndarray, launches: int = 1) -> None:
    """A routine's results on the device are its meaning, with no step on the host."""
    primitive = PRIMITIVES[name] if name in PRIMITIVES else lu_solve
    given = (arrays[0], *arrays) if primitive is lu_solve else arrays
    f = rlx.jit(partial(primitive.bind, **attributes), device="opencl")
    texts = rlx.inspect(f)(*given).kernels.texts
    assert not texts["host"] and len(texts["launches"].splitlines()) == launches
    expected = LIBRARY_ROUTINES[name](arrays, attributes)
    for found, wanted in zip(rlx.tree.leaves(f(*given)), expected, strict=True):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        tolerance = TOLERANCE.get(wanted.dtype.name, TOLERANCE[arrays[0].dtype.name])
        scale = max(np.abs(wanted[np.isfinite(wanted)]).max(initial=0), 1)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=tolerance * scale, err_msg=name)


# ------------------------------------------------------------------ transforms
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [1, 26, 1000])
def test_transforms_of_rows(length: int, dtype: str) -> None:
    """One launch: relative to the largest result 1e-6, and 1e-13 in double precision."""
    wide = "complex64" if dtype == "float32" else "complex128"
    x, z = normal(33, length, dtype=dtype), normal(33, length, dtype=wide)
    half = z[:, : length // 2 + 1]
    for name, given in (("fft", z), ("ifft", z), ("rfft", x), ("irfft", half)):
        f = rlx.jit(partial(getattr(jnp.fft, name), n=length), device="opencl")
        exact = given.astype("complex128" if given.dtype.kind == "c" else "float64")
        found, expected = np.asarray(f(given)), getattr(np.fft, name)(exact, n=length)
        assert found.dtype == (dtype if name == "irfft" else wide)
        assert np.abs(found - expected).max() <= (1e-6 if dtype == "float32" else 1e-13) * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.selected(1)
def test_transforms_over_several_axes(dtype: str) -> None:
    """A launch for each axis; half spectra of no real signal, too."""
    x = normal(3, 4, 5, 6, dtype=dtype)
    for lengths, kind, last in (((5, 6), "fft", 10), ((4, 5, 6), "ifft", 11)):
        check("fft", {"kind": kind, "lengths": lengths}, x, launches=len(lengths))
        check("fft", {"kind": "irfft", "lengths": (*lengths[:-1], last)}, x, launches=len(lengths))
        check("fft", {"kind": "rfft", "lengths": lengths}, np.ascontiguousarray(x.real), launches=len(lengths))


def test_what_is_not_finite_stays_in_its_row() -> None:
    x = normal(3, 12, dtype="complex64")
    x[0, 3], x[1, 2] = np.nan, np.inf
    found = np.asarray(rlx.jit(jnp.fft.fft, device="opencl")(x))
    assert np.isnan(found[0]).all() and not np.isfinite(found[1]).any()
    np.testing.assert_allclose(found[2], np.fft.fft(x[2]), rtol=1e-4, atol=1e-5)
    assert found[1, 0].real == np.inf


def test_long_rows_and_large_primes_are_the_hosts() -> None:
    for length, where in ((2048, ""), (2049, "no fft"), (4096, "no fft"), (17, "no fft")):
        x = normal(2, length, dtype="complex64")
        f = rlx.jit(jnp.fft.fft, device="opencl")
        assert where in rlx.inspect(f)(x).kernels.texts["host"]
        assert bool(where) == bool(rlx.inspect(f)(x).kernels.texts["host"])
        np.testing.assert_allclose(f(x), np.fft.fft(x), rtol=1e-3, atol=1e-3)


# ------------------------------------------------------------------ matrices
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky(dtype: str) -> None:
    """Failures are NaN and alone; what is above the diagonal is not read."""
    for shape in ((1, 1), (3, 2, 7, 7), (2, 40, 40)):
        check("cholesky", {}, positive(*shape, dtype=dtype))
    a = positive(4, 6, 6, dtype=dtype)
    a[1] *= -1
    a[2, 5, 4] = np.nan
    a[3, 0, 4] = np.nan
    check("cholesky", {}, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.selected(1)
def test_lu(dtype: str) -> None:
    for shape in ((1, 1), (2, 3, 4, 9), (3, 9, 4), (2, 40, 40)):
        check("lu", {}, normal(*shape, dtype=dtype))
    check("lu", {}, np.ones((2, 3, 3), dtype))
    if dtype[0] == "f":  # of complex ones LAPACKs choose different rows
        a = normal(3, 4, 4, dtype=dtype)
        a[1, :, 0] = np.nan
        check("lu", {}, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.selected(1)
def test_triangular_systems(dtype: str) -> None:
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    a, b = positive(3, 5, 5, dtype=dtype), normal(3, 5, 5, dtype=dtype)
    several = [*product((False, True), repeat=5)][::5]
    for values in several:
        check("triangular_solve", dict(zip(names, values, strict=True)), a, b)
    attributes = dict.fromkeys(names, False)
    large = positive(60, 60, dtype=dtype), normal(60, 37, dtype=dtype)
    check("triangular_solve", attributes | {"left_side": True}, *large)
    check("triangular_solve", attributes, positive(2, 9, 9, dtype=dtype), normal(2, 1, 9, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.selected(1)
def test_systems_with_factors(dtype: str) -> None:
    for shape, sides in (((4, 4), 1), ((3, 6, 6), 40)):
        factors, _, permutation = LIBRARY_ROUTINES["lu"]([positive(*shape, dtype=dtype)[..., ::-1, :].copy()], {})
        b = normal(*shape[:-1], sides, dtype=dtype)
        for turned, conjugate in product((False, True), repeat=2):
            check("lu_solve", {"transpose_a": turned, "conjugate_a": conjugate}, factors, permutation, b)


def on_device(function: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of a program that has no step on the host."""
    f = rlx.jit(function, device="opencl")
    assert not rlx.inspect(f)(*arrays).kernels.texts["host"]
    return [np.asarray(x) for x in rlx.tree.leaves(f(*arrays))]


@pytest.mark.thorough
def test_small_matrices_are_factored_in_loops() -> None:
    """What they are factors of."""
    close = {"rtol": 0, "atol": 1e-4}
    a = normal(2, 6, 4, dtype="float32")
    q, r = on_device(jnp.linalg.qr, a)
    np.testing.assert_allclose(q @ r, a, **close)
    np.testing.assert_allclose(q.mT @ q, np.eye(4) + np.zeros((2, 1, 1)), **close)
    u, s, vh = on_device(partial(jnp.linalg.svd, full_matrices=False), a)
    np.testing.assert_allclose(u * s[..., None, :] @ vh, a, **close)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), **close)
    a = positive(3, 6, 6, dtype="float32")
    w, v = on_device(jnp.linalg.eigh, a)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), rtol=1e-4)
    np.testing.assert_allclose(a @ v, v * w[..., None, :], rtol=0, atol=1e-2)


LOOPS = ("householder_product", "tridiagonal_solve", "pivots_to_permutation")


@pytest.mark.parametrize("name", LOOPS)
def test_other_small_routines_are_loops(name: str) -> None:
    for case in cases_of(name)[:1]:
        for found, expected in zip(on_device(case.bind, *case.arrays), case.reference(*case.arrays), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_pivoted_factors_on_the_device() -> None:
    a = normal(2, 6, 4, dtype="float64")
    q, r, order = on_device(partial(PRIMITIVES["pivoted_qr"].bind, full_matrices=False), a)
    np.testing.assert_allclose(q @ r, np.take_along_axis(a, order[:, None, :], -1), rtol=0, atol=1e-12)
    assert (np.diff(np.abs(np.diagonal(r, axis1=-2, axis2=-1))) <= 0).all()


@pytest.mark.parametrize("name", ["qr", "eigh"])
@pytest.mark.selected(1)
def test_a_matrix_with_nan_is_alone_in_loops(name: str) -> None:
    a = positive(3, 5, 5, dtype="float64")
    a[1, 3, 2] = np.nan
    for part in on_device(getattr(jnp.linalg, name), a):
        assert np.isfinite(part[[0, 2]]).all()
        assert np.isnan(part[1]).any()


@pytest.mark.thorough
def test_inverses_and_gradients_stay_on_the_device() -> None:
    """What users call, and what a gradient makes of it."""

    def f(x: Any) -> Any:
        return jnp.linalg.inv(x).sum() + jnp.log(jnp.linalg.det(x)).sum() + jnp.linalg.cholesky(x @ x.mT).sum()

    x = positive(5, 4, 4, dtype="float64")
    g = rlx.jit(rlx.grad(f), device="opencl")
    assert not rlx.inspect(g)(x).kernels.texts["host"]
    np.testing.assert_allclose(g(x), rlx.jit(rlx.grad(f), device="cpu")(x), rtol=1e-9)


def test_matrices_that_a_group_cannot_hold_are_the_hosts() -> None:
    x = positive(100, 100, dtype="float32")
    f = rlx.jit(lambda x: jnp.linalg.cholesky(x), device="opencl")
    assert "no cholesky" in rlx.inspect(f)(x).kernels.texts["host"]
    np.testing.assert_allclose(f(x), np.linalg.cholesky(x), rtol=1e-3, atol=1e-3)
