"""Products of the OpenCL device by CLBlast, where the system has it (Debian's libclblast1)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import backends
from rlx.backends.gpu.engine import View
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.opencl import clblast
from rlx.backends.reference.kernels import run_kernel
from rlx.errors import DeviceError
from rlx.ir.kernels import Buffer, Contract, Operand

if os.environ.get("RLX_TEST_OPENCL") != "1":
    pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")

from rlx.backends.opencl import OpenCLBackend

executed = pytest.mark.skipif(not clblast.installed(), reason="CLBlast is not installed: apt install libclblast1")


@pytest.fixture(scope="module")
def backend() -> Iterator[OpenCLBackend]:
    """One for all tests: CLBlast compiles its kernels once for each context and dtype, which takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CLBLAST", "1")
        backends._loaded.pop("opencl", None)
        rlx.clear_caches()
        found = backends.backend_named("opencl")
        assert isinstance(found, OpenCLBackend)
        yield found
    backends._loaded.pop("opencl", None)
    rlx.clear_caches()


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Normal numbers, with an imaginary part where there is one."""
    generator = np.random.default_rng(sum(shape))
    values = generator.normal(size=shape)
    return (values + 1j * generator.normal(size=shape) if dtype[0] == "c" else values).astype(dtype)


def operand(
    dtype: str, batch: int, rows: int, columns: int, turned: bool = False, apart: int = 0, count: int = 3
) -> Operand:
    """Matrices in a buffer of their own, behind three elements; `apart` more elements between rows (or columns).

    batch: how many there are, `count` or one for all of them.
    """
    wide = apart + (rows if turned else columns)
    each = wide * (columns if turned else rows)
    strides = (each if batch > 1 else 0, *((1, wide) if turned else (wide, 1)))
    return Operand(Buffer(np.dtype(dtype), 3 + batch * each), (count, rows, columns), strides, 3)


def multiplied(backend: OpenCLBackend, kernel: Contract, memory: dict[Any, np.ndarray]) -> np.ndarray:
    """What CLBlast writes; each buffer begins inside of a block."""
    engine, views = backend.engine, {}
    for buffer, array in memory.items():
        view = engine.allocate(array.nbytes + 192)
        views[buffer] = View(view.memory, 64, array.nbytes)
        engine.write(views[buffer], array.view(np.uint8))
    engine.multiply(LibraryProduct("CLBlast", kernel), views)
    found = np.empty_like(memory[kernel.out.buffer])
    engine.read(views[kernel.out.buffer], found.view(np.uint8))
    return found


SIZES = [(5, 9, 7), (33, 64, 20), (1, 3, 70), (3, 1, 9), (4, 5, 1), (1, 1, 1)]
WAYS = list(product((False, True), (False, True), ((3, 3), (3, 1), (1, 3)), (0, 2)))[::3]


@executed
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_products(dtype: str, backend: OpenCLBackend) -> None:
    """Either way round, batches, one operand for all of a batch, gaps; over NaN, and added to numbers."""
    tolerance = 1e-5 if dtype in ("float32", "complex64") else 1e-13
    for m, n, k in SIZES:
        for left_turned, right_turned, (left, right), apart in WAYS:
            lhs, rhs = operand(dtype, left, m, k, left_turned, apart), operand(dtype, right, k, n, right_turned, apart)
            check(backend, lhs, rhs, operand(dtype, 3, m, n), tolerance)


@executed
@pytest.mark.parametrize("count", [1, 2])
def test_large_products(count: int, backend: OpenCLBackend) -> None:
    """CLBlast has other kernels for them; where its tiles fit, it reads what the result held before."""
    x, y, out = (operand("float32", count, 640, 640, count=count) for _ in range(3))
    check(backend, x, y, out, 1e-5)


def check(backend: OpenCLBackend, lhs: Operand, rhs: Operand, out: Operand, tolerance: float) -> None:
    """CLBlast's product over NaN, and added to numbers, is the reference's."""
    dtype = out.buffer.dtype.name
    given = {o.buffer: numbers(o.buffer.size, dtype=dtype) for o in (lhs, rhs)}
    for added in (False, True):
        kernel = Contract(lhs, rhs, out, added)
        assert clblast.is_clblast_product(kernel)
        before = numbers(out.buffer.size, dtype=dtype) if added else np.full(out.buffer.size, np.nan, dtype)
        expected = before.copy()
        run_kernel(kernel, {**given, out.buffer: expected}, lambda *_: None)
        found = multiplied(backend, kernel, {**given, out.buffer: before})
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected[3:]).max())


def test_what_is_left_to_other_kernels() -> None:
    """Results with gaps, which would be cleared; integers; sums of float16, which CLBlast makes in float16."""
    x, y = operand("float32", 3, 4, 5), operand("float32", 3, 5, 6)
    assert clblast.is_clblast_product(Contract(x, y, operand("float32", 3, 4, 6)))
    assert not clblast.is_clblast_product(Contract(x, y, operand("float32", 3, 4, 6, apart=1)))
    for dtype, summed in (("int32", None), ("float16", np.dtype("float32"))):
        operands = (operand(dtype, 3, *shape) for shape in ((4, 5), (5, 6), (4, 6)))
        assert not clblast.is_clblast_product(Contract(*operands, accumulator=summed))


@executed
def test_infinities_and_nan_stay_in_their_rows(backend: OpenCLBackend) -> None:
    x, y = numbers(40, 30), numbers(30, 50)
    x[3, 4], x[7, 0] = np.nan, np.inf
    found = np.asarray(rlx.jit(jnp.matmul, device="opencl")(x, y))
    expected = x @ y
    assert np.isnan(found[3]).all() and np.array_equal(np.isinf(found), np.isinf(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@executed
def test_parts_of_arrays_and_sizes_of_zero(backend: OpenCLBackend) -> None:
    """Operands that begin inside of an array; what has no elements is nobody's product."""
    x = numbers(3, 20, 30)
    f = rlx.jit(lambda x: x[1] @ x[2].T + (x[0, 2:12] @ x[1, :10].T).sum(), device="opencl")
    np.testing.assert_allclose(f(x), x[1] @ x[2].T + (x[0, 2:12] @ x[1, :10].T).sum(), rtol=1e-4, atol=1e-4)
    for m, n, k in [(0, 3, 4), (3, 0, 4), (3, 4, 0)]:
        found = rlx.jit(jnp.matmul, device="opencl")(np.ones((m, k), "f4"), np.ones((k, n), "f4"))
        np.testing.assert_array_equal(found, np.zeros((m, n), "f4"))


@executed
def test_reports_say_who_multiplies(backend: OpenCLBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*arguments: np.ndarray) -> list[str]:
        report = rlx.inspect(rlx.jit(jnp.matmul, device="opencl"))(*arguments).dispatch
        return [row.reason for row in report if row.how == "library"]

    x = numbers(40, 40)
    assert said(x, x) == ["CLBlast"]
    monkeypatch.setattr(backend.engine, "has_clblast", False)
    assert said(x[:32], x) == ["rlx's own kernel"]


@executed
def test_a_call_that_fails_says_what_to_do(backend: OpenCLBackend) -> None:
    """A buffer that is too small, and positions beyond 32 bits."""
    kernel = Contract(*(operand("float32", 3, 40, 40) for _ in range(3)), accumulate=True)
    product, small = LibraryProduct("CLBlast", kernel), backend.engine.allocate(64)
    buffers = [o.buffer for o in product.operands]
    with pytest.raises(DeviceError, match=r"(?s)error -\d+.*RLX_CLBLAST=0"):
        backend.engine.multiply(product, dict.fromkeys(buffers, small))
    far = View(small.memory, 4 << 31, 64)
    with pytest.raises(DeviceError, match="32 bits"):
        backend.engine.multiply(product, {**dict.fromkeys(buffers, small), buffers[0]: far})


def test_it_is_chosen_for_gpus_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in (object(), None):
        monkeypatch.setattr(clblast, "_library", lambda library=library: library)
        monkeypatch.delenv("RLX_CLBLAST", raising=False)
        assert not clblast.chosen(is_gpu=False) and clblast.chosen(is_gpu=True) == (library is not None)
        monkeypatch.setenv("RLX_CLBLAST", "0")
        assert not clblast.chosen(is_gpu=True)
        monkeypatch.setenv("RLX_CLBLAST", "1")
        if library is not None:
            assert clblast.chosen(is_gpu=False)
    with pytest.raises(DeviceError, match="(?s)not installed.*apt install libclblast1"):
        clblast.chosen(is_gpu=True)
