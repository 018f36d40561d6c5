"""CuPy's arrays, and its functions that call libraries, under the driver that is none: NumPy and SciPy compute.

Arrays refuse what CuPy's refuse: NumPy's functions, and operations with arrays of the host. Libraries do what CuPy 14.2
lets them do: a matrix that is not positive definite leaves half a factor and an error that has to be asked for,
iterations need finite matrices, a real transform needs a real signal's spectrum.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.linalg
from cupy_signatures import strict


class DeviceArray:
    """cupy.ndarray."""

    __array_ufunc__ = None  # NumPy's arrays and functions are refused

    def __init__(self, host: np.ndarray) -> None:
        self.host = host

    shape = property(lambda self: self.host.shape)
    ndim = property(lambda self: self.host.ndim)
    dtype = property(lambda self: self.host.dtype)
    size = property(lambda self: self.host.size)

    def __array__(self, *_: object) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getitem__(self, place: Any) -> DeviceArray:
        return DeviceArray(self.host[place] if place != () else self.host.view())

    def __setitem__(self, place: Any, value: Any) -> None:
        assert isinstance(value, DeviceArray), "arrays of the host are not assigned to those of a device"
        assert value.dtype == self.dtype, "a value of another dtype is converted, which is not meant"
        self.host[place] = value.host

    @property
    def imag(self) -> DeviceArray:
        """A view."""
        return DeviceArray(self.host.imag)

    @imag.setter
    def imag(self, value: float) -> None:
        self.host.imag = value

    def conj(self) -> DeviceArray:
        return DeviceArray(self.host.conj())

    def copy(self) -> DeviceArray:
        return DeviceArray(self.host.copy())

    def swapaxes(self, first: int, second: int) -> DeviceArray:
        return DeviceArray(self.host.swapaxes(first, second))

    def all(self, axis: Any) -> DeviceArray:
        return DeviceArray(np.asarray(self.host.all(axis=axis)))

    def any(self, axis: Any) -> DeviceArray:
        return DeviceArray(np.asarray(self.host.any(axis=axis)))


def on_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's for arrays of the device."""

    def called(*arguments: Any, **options: Any) -> Any:
        assert not any(isinstance(x, np.ndarray) for x in arguments), "an array of the host"
        given = [x.host if isinstance(x, DeviceArray) else x for x in arguments]
        found = function(*given, **options)
        return tuple(map(DeviceArray, found)) if isinstance(found, tuple) else DeviceArray(np.asarray(found))

    return called


class _State(threading.local):
    linalg = "ignore"


def add_libraries(fake: Any) -> None:
    """Give the module arrays, functions and libraries; `fake.modules` are those that are imported by other names."""
    state = _State()

    def called(name: str, *arrays: DeviceArray) -> None:
        """A library is called on the current stream, not into a graph, for numbers that it takes."""
        fake.check("library")
        if name in fake.broken:
            raise ImportError(f"Failure finding lib{name}.so.13")
        assert fake.current and fake.captured is None, "a library is called without a stream, or into a graph"
        assert all(a.size for a in arrays) and all(a.dtype.name in NUMBERS for a in arrays)
        fake.log.append(("library", name, fake.current[-1].ptr, *(a.host.ctypes.data for a in arrays)))

    def failed(matrices: int) -> None:
        if state.linalg == "raise" and matrices:
            raise np.linalg.LinAlgError("Error reported by potrf in cuSOLVER.")

    def cholesky(a: DeviceArray) -> DeviceArray:
        called("cusolver", a)
        factor, failures = np.empty_like(a.host), 0
        for place in np.ndindex(a.shape[:-2]):
            potrf = scipy.linalg.get_lapack_funcs("potrf", (a.host,))
            factor[place], info = potrf(a.host[place], lower=True, clean=True)
            failures += info > 0
        failed(failures)
        return DeviceArray(factor)

    def qr(a: DeviceArray, mode: str = "reduced") -> tuple[DeviceArray, ...]:
        called("cusolver", a)
        return tuple(map(DeviceArray, np.linalg.qr(a.host, mode=mode)))

    def eigh(a: DeviceArray, UPLO: str = "L") -> tuple[DeviceArray, ...]:
        called("cusolver", a)
        assert np.isfinite(a.host).all(), "iterations that need not end"
        return tuple(map(DeviceArray, np.linalg.eigh(a.host, UPLO=UPLO)))

    def svd(a: DeviceArray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
        called("cusolver", a)
        assert np.isfinite(a.host).all(), "iterations that need not end"
        found = np.linalg.svd(a.host, full_matrices=full_matrices, compute_uv=compute_uv)
        return tuple(map(DeviceArray, found)) if compute_uv else DeviceArray(found)

    def lu_factor(a: DeviceArray, overwrite_a: bool = False, check_finite: bool = True) -> tuple[DeviceArray, ...]:
        called("cusolver", a)
        assert a.ndim == 2 and not overwrite_a and not check_finite
        getrf = scipy.linalg.get_lapack_funcs("getrf", (a.host,))
        packed, pivots, _ = getrf(a.host)
        return DeviceArray(packed), DeviceArray(pivots.astype(np.int32))

    def solve_triangular(
        a: DeviceArray, b: DeviceArray, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
    ) -> DeviceArray:
        called("cublas", a, b)
        assert a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2] and trans in ("N", "T")
        trsm = scipy.linalg.get_blas_funcs("trsm", (a.host, b.host))
        solution = np.empty_like(b.host)
        for place in np.ndindex(b.shape[:-2]):
            found = (a.host[place], b.host[place])
            solution[place] = trsm(1, *found, lower=lower, trans_a=trans == "T", diag=unit_diagonal)
        return DeviceArray(solution)

    def transform(name: str) -> Callable[..., DeviceArray]:
        def transformed(a: DeviceArray, s: Sequence[int], axes: Sequence[int]) -> DeviceArray:
            called("cufft", a)
            return DeviceArray(getattr(np.fft, name)(a.host, s=s, axes=axes))

        return transformed

    def irfft(a: DeviceArray, n: int, axis: int) -> DeviceArray:
        called("cufft", a)
        real = a.host[..., [0, n // 2] if n % 2 == 0 else [0]]
        assert not real.imag.any(), "this is no spectrum of a real signal"
        return DeviceArray(np.fft.irfft(a.host, n=n, axis=axis))

    @contextmanager
    def errstate(linalg: str) -> Generator[None]:
        before, state.linalg = state.linalg, linalg
        try:
            yield
        finally:
            state.linalg = before

    def unowned(pointer: int, size: int, owner: object, device: int) -> Any:
        assert owner is None and device == fake.devices[-1]
        return SimpleNamespace(bytes=fake.at(pointer, size))

    def array(shape: tuple[int, ...], dtype: np.dtype, memory: Any) -> DeviceArray:
        return DeviceArray(memory.bytes.view(dtype).reshape(shape))

    def gemm(number: np.dtype) -> Callable[..., None]:
        """Of matrices that lie column by column."""
        def memory(address: int, rows: int, columns: int, apart: int, batch: int, batches: int) -> np.ndarray:
            last = (batches - 1) * batch + (columns - 1) * apart + rows
            block = fake.at(address, last * number.itemsize).view(number)
            strides = (batch * number.itemsize, number.itemsize, apart * number.itemsize)
            return np.lib.stride_tricks.as_strided(block, (batches, rows, columns), strides)

        def multiply(
            handle: int, turn_left: int, turn_right: int, m: int, n: int, k: int, scale: int,
            left: int, left_apart: int, left_batch: int, right: int, right_apart: int, right_batch: int,
            share: int, out: int, apart: int, batch: int, batches: int,
        ) -> None:  # fmt: skip
            called("hipblas")
            assert handle == HANDLE and {turn_left, turn_right} <= {0, 1}
            sides = []
            for turned, rows, columns, at, by, step in (
                (turn_left, m, k, left, left_apart, left_batch), (turn_right, k, n, right, right_apart, right_batch)
            ):  # fmt: skip
                shape = (columns, rows) if turned else (rows, columns)
                assert by >= shape[0]
                found = memory(at, *shape, by, step, batches)
                sides.append(found.mT if turned else found)
            result = memory(out, m, n, apart, batch, batches)
            one, before = (
                np.frombuffer(ctypes.string_at(at, number.itemsize), number)[0] for at in (scale, share)
            )
            result[...] = one * (sides[0] @ sides[1]) + (before * result if before else 0)

        return multiply

    def taken(path: str, function: Callable[..., Any]) -> Any:
        return strict(path, function, fake.called)

    for name in """where zeros_like empty_like full_like full isfinite isnan tril triu diagonal broadcast_to argsort
            take_along_axis""".split():
        setattr(fake, name, taken(name, on_device(getattr(np, name))))
    fake.ndarray, fake.asarray = array, taken("asarray", lambda a: DeviceArray(np.array(a)))
    fake.asnumpy = taken("asnumpy", lambda a: a.host.copy())
    factorisations = {"cholesky": cholesky, "qr": qr, "eigh": eigh, "svd": svd}
    fake.linalg = SimpleNamespace(**{name: taken(f"linalg.{name}", f) for name, f in factorisations.items()})
    transforms = {"irfft": irfft, **{name: transform(name) for name in ("fftn", "ifftn", "rfftn")}}
    fake.fft = SimpleNamespace(**{name: taken(f"fft.{name}", f) for name, f in transforms.items()})
    fake.cuda.UnownedMemory = taken("cuda.UnownedMemory", unowned)
    fake.cuda.MemoryPointer = taken("cuda.MemoryPointer", lambda memory, offset: memory)
    pool = SimpleNamespace(free_all_blocks=lambda: fake.log.append(("free",)))
    fake.get_default_memory_pool = taken("get_default_memory_pool", lambda: pool)
    letters = dict(zip("sdcz", map(np.dtype, NUMBERS), strict=True))
    products = {f"{letter}gemmStridedBatched": gemm(t) for letter, t in letters.items()}
    fake.cuda.cublas = SimpleNamespace(**{n: taken("cuda.cublas.gemmStridedBatched", f) for n, f in products.items()})
    fake.cuda.device = SimpleNamespace(get_cublas_handle=taken("cuda.device.get_cublas_handle", lambda: HANDLE))
    solving = SimpleNamespace(
        lu_factor=taken("lu_factor", lu_factor), solve_triangular=taken("solve_triangular", solve_triangular)
    )
    fake.modules = {
        "cupyx": SimpleNamespace(errstate=taken("errstate", errstate)), "cupyx.scipy": SimpleNamespace(linalg=solving),
        "cupyx.scipy.linalg": solving,
    }  # fmt: skip


HANDLE = 5  # of BLAS
NUMBERS = ("float32", "float64", "complex64", "complex128")
