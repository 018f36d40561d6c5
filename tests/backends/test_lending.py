"""Arrays that other libraries read on the device, and theirs that rlx reads: DLPack and the CUDA array interface.

Capsules are exchanged with NumPy, which knows those of the host's memory; for a GPU with the driver that is none.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cupy import STREAM, FakeCupy, installed

import rlx
import rlx.numpy as jnp
from rlx import backends
from rlx.backends.cuda.handles import Handle
from rlx.backends.gpu import dlpack

X = np.arange(12, dtype=np.float32).reshape(3, 4)
CUDA, ROCM = 2, 10


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with two devices."""
    yield from installed(monkeypatch, FakeCupy(devices=2))


class Capsule:
    """What another library sees of an array: a capsule of rlx's over the host's memory."""

    def __init__(self, array: np.ndarray, newest: bool, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.newest, self.device = array, newest, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, max_version: Any = None, **_: Any) -> Any:
        a = self.array
        return dlpack.lend(self, a.ctypes.data, 0, a.shape, a.dtype, self.device, max_version if self.newest else None)


# ------------------------------------------------------------------ the structures, against NumPy's
@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "complex128"])
def test_numpy_reads_our_capsules(dtype: str, newest: bool) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    before = len(dlpack._lent)
    found = np.from_dlpack(Capsule(values, newest))
    np.testing.assert_array_equal(found, values)
    assert found.dtype == values.dtype and np.shares_memory(found, values)
    assert not found.flags.writeable  # the new structure says so, and of the old one NumPy assumes it
    assert len(dlpack._lent) == before + 1
    del found
    assert len(dlpack._lent) == before


def test_a_capsule_that_nobody_takes_keeps_nothing() -> None:
    before = len(dlpack._lent)
    for newest in (False, True):
        capsule = Capsule(X, newest).__dlpack__(max_version=(1, 0))
        assert len(dlpack._lent) == before + 1
        del capsule
    assert len(dlpack._lent) == before


@pytest.mark.parametrize("newest", [False, True])
def test_a_capsule_that_is_refused_keeps_the_error(newest: bool) -> None:
    """NumPy drops it while its error is set, and its own error is what is raised."""
    before = len(dlpack._lent)
    with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
        np.from_dlpack(Capsule(X, newest, (dlpack.KINDS["opencl"], 0)))
    assert len(dlpack._lent) == before


@pytest.mark.parametrize("newest", [False, True])
def test_we_read_numpys_capsules(newest: bool) -> None:
    class Owned(np.ndarray):
        """An array that can be watched."""

    array = np.arange(6, dtype=np.int16).reshape(2, 3).view(Owned)
    capsule = array.__dlpack__(max_version=(1, 0)) if newest else array.__dlpack__()
    lent = dlpack._held(capsule)
    assert (lent.pointer + lent.offset, lent.shape, lent.dtype) == (array.ctypes.data, (2, 3), np.dtype(np.int16))
    with pytest.raises(BufferError, match="once"):
        dlpack._held(capsule)
    gone: list[int] = []
    weakref.finalize(array, gone.append, 1)
    del array, capsule
    gc.collect()
    assert not gone
    lent.release()
    gc.collect()
    assert gone == [1]


def test_what_is_not_dense_is_refused() -> None:
    with pytest.raises(BufferError, match=r"strides \(1, 2\).*ascontiguousarray"):
        dlpack._held(np.zeros((3, 2)).T.__dlpack__())
    with pytest.raises(BufferError, match="no int4"):
        dlpack.lend(X, 0, 0, (1,), np.dtype(ml_dtypes.int4), (1, 0), None)
    assert dlpack._held(np.zeros((1, 3))[:, :3].__dlpack__()).shape == (1, 3)


# ------------------------------------------------------------------ from rlx to others
def test_an_array_is_lent_where_it_lies(cupy: FakeCupy) -> None:
    """The consumer's stream waits for rlx's; the memory is kept as long as the capsule's tensor."""
    x = rlx.device_put(X, "cuda")
    pointer = x.storage().pointer
    assert x.__dlpack_device__() == (CUDA, 0)
    del cupy.log[:]
    capsule = x.__dlpack__(stream=1234, max_version=(1, 1))
    assert cupy.log == [("wait for", STREAM), ("record", STREAM), ("wait for", 1234)]  # for the upload, first
    tensor = dlpack._held(capsule)
    assert (tensor.pointer, tensor.offset, tensor.shape) == (pointer, 0, (3, 4))
    del x
    backends.memory_named("cuda").clear_pool()
    cupy.at(pointer, X.nbytes)
    tensor.release()
    backends.memory_named("cuda").clear_pool()
    assert cupy.used == 0


def test_memory_that_was_lent_is_not_used_again(cupy: FakeCupy) -> None:
    """Its reader may not be done: the block goes back to the driver, which waits for that."""
    x = rlx.device_put(X, "cuda")
    capsule = x.__dlpack__(stream=1234)
    pointer, held = x.storage().pointer, cupy.used
    del x, capsule
    y = rlx.device_put(X, "cuda")
    assert y.storage().pointer != pointer and cupy.used == held == backends.memory_named("cuda").pool_bytes()


def test_streams_are_numbered_as_the_standard_says(cupy: FakeCupy) -> None:
    x = rlx.device_put(X, "cuda")
    x.__dlpack__(stream=-1)
    for stream, expected in ((None, [1]), (1, [1]), (2, [2]), (-1, []), (STREAM, [])):
        del cupy.log[:]
        x.__dlpack__(stream=stream)
        assert [entry[1] for entry in cupy.log if entry[0] == "wait for"] == expected
    for stream in (0, -2, "1"):
        with pytest.raises(BufferError, match="stream of number"):
            x.__dlpack__(stream=stream)


def test_streams_of_hip(monkeypatch: pytest.MonkeyPatch) -> None:
    for cupy in installed(monkeypatch, FakeCupy(is_hip=True)):
        x = rlx.device_put(X, "rocm")
        assert x.__dlpack_device__() == (ROCM, 0)
        x.__dlpack__()
        assert cupy.log[-1] == ("wait for", 0)
        with pytest.raises(BufferError, match="stream of number 1"):
            x.__dlpack__(stream=1)


def test_the_cuda_array_interface(cupy: FakeCupy) -> None:
    x = rlx.device_put(X, "cuda")
    assert x.__cuda_array_interface__ == {
        "shape": (3, 4), "typestr": "<f4", "data": (x.storage().pointer, False), "strides": None, "version": 3,
        "stream": STREAM,
    }  # fmt: skip
    assert rlx.device_put(np.zeros((0, 2)), "cuda").__cuda_array_interface__["data"] == (0, False)
    assert rlx.device_put(X > 3, "cuda").__cuda_array_interface__["typestr"] == "|b1"
    for other in (jnp.asarray(X), rlx.device_put(X.astype(ml_dtypes.bfloat16), "cuda")):
        assert not hasattr(other, "__cuda_array_interface__")


# ------------------------------------------------------------------ from others to rlx
class Foreign:
    """An array of another library in the driver's memory, some bytes from the beginning of a block."""

    ahead = 0

    def __init__(self, cupy: FakeCupy, array: np.ndarray, device: int = 0) -> None:
        with cupy.cuda.Device(device):
            self.memory = Handle(cupy.cuda.runtime.malloc(array.nbytes + self.ahead), cupy.cuda.runtime.free)
            cupy.at(self.pointer, array.nbytes)[:] = array.reshape(-1).view(np.uint8)
        self.shape, self.dtype, self.device = array.shape, array.dtype, device

    @property
    def pointer(self) -> int:
        """Its address."""
        return self.memory.ptr + self.ahead


class ByDLPack(Foreign):
    """One that speaks DLPack, and remembers the stream that it was asked for."""

    stream: Any = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self.device)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.stream = stream
        return dlpack.lend(self, self.pointer, 0, self.shape, self.dtype, (CUDA, self.device), max_version)


class OldDLPack(ByDLPack):
    """From before version 1.0."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # ty: ignore[invalid-method-override]
        return super().__dlpack__(stream=stream)


class ByInterface(Foreign):
    """One that only describes itself."""

    strides: tuple[int, ...] | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False), "version": 3,
            "strides": self.strides, "stream": 55,
        }  # fmt: skip


@pytest.mark.parametrize("kind", [ByDLPack, OldDLPack, ByInterface])
@pytest.mark.parametrize("device", [0, 1])
def test_an_array_of_another_library_is_borrowed(kind: type[Foreign], device: int, cupy: FakeCupy) -> None:
    """No copy; its work comes first; it is kept until rlx's work is done, and let go once."""
    given = kind(cupy, X, device)
    x = jnp.from_dlpack(given)
    assert x.device == f"cuda:{device}" and x.storage().pointer == given.memory.ptr
    if isinstance(given, ByDLPack):
        assert given.stream == STREAM + device
    else:
        assert cupy.log == [("record", 55), ("wait for", STREAM + device), ("record", STREAM + device)]
    np.testing.assert_array_equal(np.asarray(x), X)
    y = jnp.sin(x)
    pointer = given.memory.ptr
    del x, given
    gc.collect()
    z = jnp.sin(y)  # takes memory: rlx's work up to here may still read what was borrowed
    assert pointer in cupy.blocks
    z.block_until_ready()
    jnp.sin(z)
    gc.collect()
    assert pointer not in cupy.blocks


def test_arguments_are_copied_on_the_device(cupy: FakeCupy) -> None:
    """Whoever called may write to them at once."""
    given = ByDLPack(cupy, X)
    x = jnp.asarray(given)
    assert x.storage().pointer != given.memory.ptr and ("copy", 3, X.nbytes) in cupy.log
    assert cupy.log[-1] == ("synchronize",)
    np.testing.assert_array_equal(np.asarray(x), X)
    assert jnp.from_dlpack(given, copy=True).storage().pointer != given.memory.ptr
    y = rlx.jit(lambda x: x + 1)(given)
    assert y.device == "cuda"


def test_what_cannot_be_borrowed(cupy: FakeCupy) -> None:
    given = ByInterface(cupy, X)
    given.strides = (4, 12)
    with pytest.raises(BufferError, match="not contiguous"):
        jnp.from_dlpack(given)
    given.strides = (16, 4)
    assert jnp.from_dlpack(given).shape == (3, 4)
    given.dtype = np.dtype(">f4")
    with pytest.raises(BufferError, match="swapped byte order"):
        jnp.from_dlpack(given)


def test_arrays_of_rlx_itself(cupy: FakeCupy) -> None:
    x = rlx.device_put(X, "cuda:1")
    assert jnp.from_dlpack(x) is x
    assert jnp.from_dlpack(x, copy=True).device == "cuda:1"
    assert x.__dlpack_device__() == (CUDA, 1)
    assert np.from_dlpack(_OnHost(x)).tolist() == X.tolist()


class _OnHost:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__(dl_device=(1, 0))
