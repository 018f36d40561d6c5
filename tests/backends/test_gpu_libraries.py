"""Routines of CUDA's and ROCm's libraries, called through CuPy's functions under a driver that is none.

SciPy computes what libraries would: values, streams, addresses and what fails are tested, not the libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from fake_cupy import STREAM, FakeCupy, OutOfMemoryError, installed
from primitive_cases import cases

import rlx
import rlx.numpy as jnp
from rlx.backends.cuda.library import ROUTINES
from rlx.errors import DeviceError
from rlx.installation import install_command
from rlx.ops.solves import lu_solve
from rlx.routines import LIBRARY_ROUTINES
from rlx.testing import assert_close

SAMPLES = [case for case in cases() if getattr(case.primitive, "routine", None) in ROUTINES]


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with two devices."""
    yield from installed(monkeypatch, FakeCupy(devices=2))


def run(case: Any, device: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """What a program of one primitive computes on a device."""
    return [np.asarray(x) for x in rlx.jit(case.bind, device=device)(*arrays)]


OTHER = {"float32": "float64", "float64": "float32", "complex64": "complex128", "complex128": "complex64"}


@pytest.mark.parametrize("name", sorted(ROUTINES.keys() - {"lu_solve"}))  # which has no samples
def test_a_routine_computes_what_the_processor_does(name: str, cupy: FakeCupy) -> None:
    """Every sample in single and double precision, on the second device: its stream, its memory."""
    dtypes = set()
    for case in (case for case in SAMPLES if case.primitive.routine == name):
        for arrays in (case.arrays, [a.astype(OTHER.get(a.dtype.name, a.dtype)) for a in case.arrays]):
            del cupy.log[:]
            found = run(case, "cuda:1", *arrays)
            calls = [entry for entry in cupy.log if entry[0] == "library"]
            assert all(stream == STREAM + 1 for _, _, stream, *_ in calls)
            assert bool(calls) == all(t.size for t in (*case.types, *case.result_types)), case
            dtypes |= {a.dtype.name for a in arrays if calls}
            for x, expected in zip(found, LIBRARY_ROUTINES[name](arrays, dict(case.sample.params)), strict=True):
                assert x.dtype == expected.dtype
                assert_close(x, expected, message=repr(case))
    assert dtypes >= OTHER.keys()


def same(name: str, attributes: dict[str, Any], *arrays: np.ndarray, expected: Any = None) -> None:
    """The device's results are the routine's meaning, or what is expected."""
    primitive = next(case.primitive for case in SAMPLES if case.primitive.routine == name)
    found = rlx.jit(lambda *x: primitive.bind(*x, **attributes), device="cuda")(*arrays)
    if expected is None:
        expected = LIBRARY_ROUTINES[name](arrays, attributes)
    for x, y in zip(rlx.tree.leaves(found), expected, strict=True):
        assert_close(np.asarray(x), y, message=name)


def spoilt(*places: tuple[int, ...], value: float = np.nan, dtype: str = "float64") -> np.ndarray:
    """Four positive definite matrices, some of which have a number that is none."""
    x = np.random.default_rng(0).normal(size=(4, 3, 3))
    a = (x @ x.swapaxes(-1, -2) + 3 * np.eye(3)).astype(dtype)
    for place in places:
        a[place] = value
    return a


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_matrices_that_fail_are_nan_and_others_are_not(dtype: str, cupy: FakeCupy) -> None:
    """Of a batch, and alone; what is above the diagonal is not read."""
    for value in (-9.0, np.nan):
        broken = spoilt((1, 2, 2), (2, 0, 1), value=value, dtype=dtype)
        same("cholesky", {}, broken)
        same("cholesky", {}, broken[1])
    for value in (np.nan, np.inf):
        broken = spoilt((1, 2, 0), value=value, dtype=dtype)
        for lower in (True, False):
            same("eigh", {"lower": lower}, broken)
        # NumPy's is not asked: on some of these it does not return
        for vectors in (True, False):
            attributes = {"full_matrices": False, "compute_uv": vectors}
            expected = [part.copy() for part in LIBRARY_ROUTINES["svd"]([spoilt(dtype=dtype)], attributes)]
            for part in expected:
                part[1] = np.nan
            same("svd", attributes, broken, expected=expected)
            same("svd", attributes, broken[1], expected=[part[1] for part in expected])


@pytest.mark.parametrize("dtype", sorted(OTHER))
def test_systems_are_solved_with_factors(dtype: str, cupy: FakeCupy) -> None:
    generator = np.random.default_rng(0)
    for batch in ((), (2, 3)):
        a = generator.normal(size=(*batch, 4, 4)) + 1j * generator.normal(size=(*batch, 4, 4))
        a, b = (x.astype(dtype) if dtype[0] == "c" else x.real.astype(dtype) for x in (a, a[..., :2] + 1))
        factors, _, permutation = LIBRARY_ROUTINES["lu"]([a], {})
        for transposed, conjugate in product((False, True), (False, True)):
            params = {"transpose_a": transposed, "conjugate_a": conjugate}
            found = rlx.jit(partial(lu_solve.bind, **params), device="cuda")(a, factors, permutation, b)
            assert_close(np.asarray(found), LIBRARY_ROUTINES["lu_solve"]([factors, permutation, b], params)[0])
    assert {entry[1] for entry in cupy.log if entry[0] == "library"} == {"cublas"}


def test_a_singular_matrix_is_factored_without_a_warning(cupy: FakeCupy, recwarn: pytest.WarningsRecorder) -> None:
    same("lu", {}, np.ones((2, 3, 3)))
    assert not recwarn.list


def test_a_spectrum_of_no_real_signal(cupy: FakeCupy) -> None:
    """What would be imaginary counts for nothing, as on the processor; the argument stays as it is."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, 4, 5)) + 1j * generator.normal(size=(2, 4, 5))
    kept = x.copy()
    for lengths in ((8,), (9,), (4, 8), (2, 4, 9)):
        same("fft", {"kind": "irfft", "lengths": lengths}, x)
    np.testing.assert_array_equal(x, kept)


def test_reports_say_who_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a GPU; what CuPy has not is the host's, by name."""

    def f(x: Any) -> Any:
        return jnp.linalg.cholesky(x), jnp.linalg.solve(x, x), jnp.fft.fft(x), jnp.linalg.eig(x)[0]

    expected = {"cuda": ["cuSOLVER", "cuBLAS", "cuFFT"], "rocm": ["rocSOLVER", "hipBLAS", "hipFFT"]}
    for _ in installed(monkeypatch, None):
        for device, names in expected.items():
            found = rlx.inspect(f, device=device)(np.eye(4, dtype="float32"))
            makers = {row.reason for row in found.dispatch if row.how == "library"}
            assert makers == {*names} and "CuPy has no eig" in str(found.dispatch)
            assert found.kernels.texts["host"].count("CuPy has no") == 1


def test_a_library_lies_between_graphs(cupy: FakeCupy) -> None:
    """It is never recorded; what is before and behind it is, and computes from where it wrote."""

    def f(x: Any) -> Any:
        for _ in range(4):
            x = jnp.sort(jnp.cumsum(jnp.sin(x), axis=1), axis=1).T.copy()
        x = jnp.fft.irfft(jnp.fft.rfft(x), n=x.shape[-1])
        for _ in range(4):
            x = jnp.sort(jnp.cumsum(jnp.sin(x), axis=1), axis=1).T.copy()
        return x

    x = rlx.device_put(np.zeros((40, 40), np.float32), "cuda")
    g = rlx.jit(f)
    for _ in range(4):
        del cupy.log[:]
        g(x)
    kinds = [entry[0] for entry in cupy.log if entry[0] in ("graph", "library")]
    assert kinds == ["graph", "library", "library", "graph"]


def test_what_may_go_wrong_with_a_library(cupy: FakeCupy) -> None:
    """Not there, failing, or without memory: errors that teach; the device goes on."""
    f = rlx.jit(jnp.fft.fft, device="cuda")
    x = np.ones((3, 4), np.complex64)
    cupy.broken.add("cufft")
    remedy = re.escape(install_command("cuda"))
    with pytest.raises(DeviceError, match=f"(?s)CUDA, fft: Failure finding libcufft.so.13.*{remedy}"):
        f(x)
    cupy.broken.clear()
    kept = cupy.fft.fftn

    def failing(kind: type[Exception], words: str) -> None:
        def fftn(*_: Any, **__: Any) -> Any:
            raise kind(words)

        cupy.fft.fftn = fftn

    failing(RuntimeError, "CUFFT_EXEC_FAILED")
    with pytest.raises(DeviceError, match="CUDA, fft: CUFFT_EXEC_FAILED"):
        f(x)
    failing(OutOfMemoryError, "no memory")
    with pytest.raises(MemoryError):
        f(x)
    cupy.fft.fftn = kept
    np.testing.assert_allclose(f(x), np.fft.fft(x))


def test_memory_that_cupy_keeps_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for fake in installed(monkeypatch, FakeCupy(capacity=1 << 20)):
        with pytest.raises(MemoryError):
            rlx.device_put(np.zeros(1 << 21, np.uint8), "cuda")
        assert ("free",) in fake.log


def test_rocm_calls_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for fake in installed(monkeypatch, FakeCupy(is_hip=True)):
        x = spoilt(dtype="complex64")
        np.testing.assert_allclose(rlx.jit(jnp.fft.fft2, device="rocm")(x), np.fft.fft2(x), rtol=1e-5, atol=1e-5)
        assert [entry[1] for entry in fake.log if entry[0] == "library"] == ["cufft"]


SPECS = ["mk,kn->mn", "km,kn->mn", "mk,nk->mn", "bmk,bkn->bmn", "bkm,bnk->bmn", "bmk,kn->bmn"]


@pytest.mark.parametrize("dtype", sorted(OTHER))
def test_rocm_multiplies_by_hipblas(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However operands lie: one call, no launch."""
    sizes = {"b": 3, "m": 5, "k": 4, "n": 6}
    for spec in SPECS:
        left, right = spec.partition("->")[0].split(",")
        draws = np.random.default_rng(7)
        x, y = (draws.normal(size=[sizes[c] for c in side]).astype(dtype) for side in (left, right))
        if dtype.startswith("complex"):
            x = x * np.array(1 + 2j, dtype)
        for fake in installed(monkeypatch, FakeCupy(is_hip=True)):
            found = rlx.jit(lambda x, y, spec=spec: jnp.einsum(spec, x, y), device="rocm")(x, y)
            np.testing.assert_allclose(found, np.einsum(spec, x, y), rtol=1e-5, atol=1e-5)
            assert [entry[0] for entry in fake.log if entry[0] in ("library", "launch")] == ["library"]


def test_what_hipblas_does_not_make_is_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow numbers are the matrix cores'; a reader is a launch behind the product; reports name who multiplies."""
    x = np.ones((64, 64), "float32")
    for fake in installed(monkeypatch, FakeCupy(is_hip=True)):
        rlx.jit(lambda x: jnp.maximum(x @ x, 0), device="rocm")(x)
        assert [entry[0] for entry in fake.log if entry[0] in ("library", "launch")] == ["library", "launch"]
        del fake.log[:]
        rlx.jit(lambda x: x @ x, device="rocm")(x.astype("int8"))
        assert not [entry for entry in fake.log if entry[0] == "library"]
        found = rlx.inspect(lambda x: x @ x, device="rocm")(x)
        assert [row.reason for row in found.dispatch if row.how == "library"] == ["hipBLAS"]
        fake.broken.add("hipblas")
        with pytest.raises(DeviceError, match="(?s)ROCm, hipBLAS: Failure finding libhipblas.*test_gpu_lib.*ROCM_HOME"):
            rlx.jit(lambda x: x @ x + 1, device="rocm")(x)
