"""The CUDA backend's host side under a driver that is none: modules, grids, arguments, order, memory, errors.

It has never run on a GPU here: what kernels compute is tested by OpenCL, that they compile by test_gpu_compile.py.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_cupy import STREAM, FakeCupy, installed

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import backends, lax
from rlx.backends.cuda import CudaBackend, nvrtc
from rlx.backends.rocm.hip import Hip
from rlx.errors import DeviceError
from rlx.installation import install_command
from rlx.passes.pipeline import lower_to_plan


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with one device."""
    yield from installed(monkeypatch, FakeCupy())


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_values_go_there_and_come_back(cupy: FakeCupy) -> None:
    x = rlx.device_put(X, "cuda")
    assert x.device == "cuda"
    np.testing.assert_array_equal(np.asarray(x), X)
    assert [entry[:2] for entry in cupy.log if entry[0] == "copy"] == [("copy", 1), ("copy", 2)]
    np.testing.assert_array_equal(rlx.device_put(x, "cpu"), X)


def test_a_call_is_one_launch_and_is_not_waited_for(cupy: FakeCupy) -> None:
    x = rlx.device_put(np.zeros(1 << 20, np.float32), "cuda")
    f = rlx.jit(lambda x: jnp.exp(x) * 2)
    f(x)
    del cupy.log[:]
    y = f(x)
    assert [entry[0] for entry in cupy.log] == ["launch", "record"]
    (launch,) = (entry for entry in cupy.log if entry[0] == "launch")
    assert launch[2:4] == (1024, 256)  # vectors of four
    assert not y.is_ready()
    y.block_until_ready()
    assert y.is_ready() and cupy.log[-1] == ("wait",)


def test_programs_are_queued_in_order(cupy: FakeCupy) -> None:
    """Partial sums, then their sum; a loop's steps one after the other."""
    f = rlx.jit(jnp.sum, device="cuda")
    f(np.zeros((512, 2048), np.float32))
    assert len(cupy.launched()) == 2 and cupy.launched()[1].startswith("combine")
    del cupy.log[:]
    x = np.zeros((3, 200, 200), np.float32)
    rlx.jit(lambda x: lax.scan(lambda c, r: (c + jnp.tanh(r), c.sum()), x[0], x), device="cuda")(x)
    assert len(cupy.launched()) >= 2 * len(x)


def shrunk(x: Any) -> Any:
    """A loop whose end depends on values, with steps of several launches: a product, a sort, a sum of all."""
    return lax.while_loop(lambda c: (c * c).sum() > 1, lambda c: jnp.sort(jnp.tanh(c @ c) / 3), x)


BIG = np.ones((300, 300), np.float32)
NOT_PROMISED = "the host queues each step: the device does not guarantee that groups run at the same time"


def host_steps(device: str) -> str:
    """What the host does of the loop, and why. It is not run: what memory holds here would go on for ever."""
    return rlx.inspect(rlx.jit(shrunk, device=device))(BIG).kernels.texts["host"]


@pytest.mark.parametrize(("resident", "groups"), [(3, 264), (1, 132)])
def test_groups_of_a_loop_run_at_the_same_time(resident: int, groups: int, cupy: FakeCupy) -> None:
    """No more are launched than the driver has room for; products are theirs, and the host reads no condition."""
    cupy.resident = resident
    f, x = rlx.jit(shrunk), rlx.device_put(BIG, "cuda")
    f(x)
    del cupy.log[:]
    f(x)
    start, loop = (entry for entry in cupy.log if entry[0] != "record")
    assert (start[0], *loop[:1], *loop[2:4]) == ("launch", "launch together", groups, 256)
    counter = start[-1][0]
    assert counter in loop[-1][::2]


def test_loops_of_devices_that_promise_nothing_are_queued(cupy: FakeCupy) -> None:
    cupy.properties["cooperativeLaunch"] = 0
    assert host_steps("cuda") == NOT_PROMISED


def test_a_loop_that_the_device_has_no_room_for(cupy: FakeCupy) -> None:
    cupy.resident = 0
    with pytest.raises(DeviceError, match="cannot run a group of 256 work-items of the loop 'while_loop"):
        rlx.jit(shrunk, device="cuda")(BIG)


class HipLibrary:
    """Stands in the place of libamdhip64."""

    def __init__(self, fake: FakeCupy) -> None:
        self.fake = fake

    def hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(self, found: Any, function: Any, items: Any, *_: Any) -> int:
        assert self.fake.functions[function.value].waits and items.value == 256
        found._obj.value = self.fake.resident
        return 0

    def hipModuleLaunchCooperativeKernel(self, function: Any, *sizes: Any) -> int:
        *numbers, stream, places = sizes
        groups, *ones, items, _, _, shared = (number.value for number in numbers)
        assert ones == [1, 1] and shared == 0 and stream.value == STREAM
        values = [ctypes.cast(place, ctypes.POINTER(ctypes.c_int64)).contents.value for place in places]
        args = tuple((np.int64 if n % 2 else np.uint64)(value) for n, value in enumerate(values))
        self.fake.launch(self.fake.functions[function.value], (groups,), (items,), args, True, checked=True)
        return 0


def returning(value: Any) -> Callable[[], Any]:
    """A function that returns a value."""
    return lambda: value


def test_hip_launches_groups_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own library: CuPy's call fails there. Without the library the host queues steps."""
    for fake in installed(monkeypatch, FakeCupy(is_hip=True)):
        library = Hip(HipLibrary(fake))
        monkeypatch.setattr(Hip, "loaded", staticmethod(returning(library)))
        rlx.jit(shrunk, device="rocm")(BIG)
        assert [entry[2:4] for entry in fake.log if entry[0] == "launch together"] == [(264, 256)]
    for _ in installed(monkeypatch, FakeCupy(is_hip=True)):
        monkeypatch.setattr(Hip, "loaded", staticmethod(returning(None)))
        assert host_steps("rocm") == NOT_PROMISED


def test_programs_are_compiled_once(cupy: FakeCupy) -> None:
    f = rlx.jit(nn.softmax, device="cuda")
    for _ in range(3):
        f(X)
    assert len(cupy.sources) == 1 and 'extern "C" __global__' in cupy.sources[0]


def test_memory_is_given_back(cupy: FakeCupy) -> None:
    memory = backends.memory_named("cuda")
    x = rlx.device_put(np.zeros(1 << 16, np.float32), "cuda")
    for _ in range(5):
        x = jnp.sin(x)
    held = cupy.used
    for _ in range(20):
        x = jnp.sin(x)
    assert cupy.used == held == memory.pool_bytes()
    del x
    memory.clear_pool()
    assert cupy.used == 0


def test_use_after_free_is_noticed(cupy: FakeCupy) -> None:
    """The driver of these tests would fail."""
    x = rlx.device_put(X, "cuda")
    pointer = x.storage().pointer
    del x
    backends.memory_named("cuda").clear_pool()
    with pytest.raises(AssertionError, match="freed"):
        cupy.at(pointer, 4)


def test_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free is given back first; then an error that says so. Other arrays stay."""
    for cupy in installed(monkeypatch, FakeCupy(capacity=1 << 20)):
        x = rlx.device_put(X, "cuda")
        big = [rlx.device_put(np.zeros(1 << 19, np.uint8), "cuda")]
        big.pop()
        rlx.device_put(np.zeros(700_000, np.uint8), "cuda")  # only if the pool is emptied
        with pytest.raises(MemoryError):
            rlx.jit(lambda x: jnp.zeros(1 << 20) + x[0, 0], device="cuda")(x)
        np.testing.assert_array_equal(np.asarray(x), X)
        assert cupy.used < 1 << 20


def deep(x: Any, w: Any) -> Any:
    """Temporaries that live long, and are cheap to compute again."""
    kept, y = [], x
    for _ in range(8):
        y = jnp.exp(jnp.sin(y) * 0.1) @ w
        kept.append(jnp.tanh(y))
    for z in reversed(kept):
        y = (y * z) @ w
    return y


def test_a_program_that_needs_too_much_computes_some_of_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of its temporaries; where that is too much, too, its largest values are named with their lines."""
    x = np.zeros((256, 256), np.float32)
    plan = lower_to_plan(rlx.make_program(deep)(x, x), None, CudaBackend().lowering)
    room = plan.arena - 1
    assert room > 8 * x.nbytes
    for cupy in installed(monkeypatch, FakeCupy(capacity=room)):
        arrays = [rlx.device_put(x, "cuda") for _ in range(2)]
        assert rlx.jit(deep)(*arrays).shape == x.shape and cupy.used <= room
        assert [entry[0] for entry in cupy.log].count("matmul") > 16  # some are computed again
    for _ in installed(monkeypatch, FakeCupy(capacity=4 * x.nbytes)):
        arrays = [rlx.device_put(x, "cuda") for _ in range(2)]
        with pytest.raises(rlx.errors.OutOfMemoryError, match=r"(?s)largest values: float32\[256,256\].*test_cuda.py"):
            rlx.jit(deep)(*arrays)
        np.testing.assert_array_equal(np.asarray(arrays[0]), x)


# ------------------------------------------------------------------ bad input
def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in installed(monkeypatch, None):
        with pytest.raises(DeviceError, match=re.escape(install_command("cuda"))):
            rlx.jit(jnp.sin, device="cuda")(X)
        with pytest.raises(DeviceError, match=re.escape(install_command("rocm"))):
            rlx.device_put(X, "rocm")


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in installed(monkeypatch, FakeCupy(devices=0)):
        with pytest.raises(DeviceError, match="(?s)no CUDA-capable device.*driver"):
            rlx.device_put(X, "cuda")


def test_a_driver_that_is_too_old(cupy: FakeCupy) -> None:
    cupy.broken.add("old")
    with pytest.raises(DeviceError, match="(?s)driver version is insufficient.*Install a driver that is new enough"):
        rlx.device_put(X, "cuda")


def test_the_other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in installed(monkeypatch, FakeCupy(is_hip=True)):
        with pytest.raises(DeviceError, match="not the one for CUDA"):
            rlx.device_put(X, "cuda")
        assert rlx.device_put(X, "rocm").device == "rocm"


@pytest.mark.parametrize(
    ("name", "unit"), [(b"gfx90a:sramecc+:xnack-", "mfma_f16"), (b"gfx1100", "wmma_f16"), (b"gfx1030", "")]
)
def test_matrix_cores_are_those_of_the_gpu(name: bytes, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver says which GPU it is; one without them multiplies in float32, as other narrow floats are."""
    fake = FakeCupy(is_hip=True)
    fake.properties["gcnArchName"] = name
    for _ in installed(monkeypatch, fake):
        x = np.ones((64, 64), "float16")
        rlx.jit(lambda x: x @ x, device="rocm")(x)
        (source,) = fake.sources
        assert ("fragment_product_" in source) == bool(unit)
        assert f"fragment_product_{unit}(" in source or not unit


def test_a_program_that_does_not_compile(cupy: FakeCupy) -> None:
    cupy.compiler.words = "rlx.cu(7): error: what is this"
    with pytest.raises(DeviceError, match="error: what is this"):
        rlx.jit(jnp.sin, device="cuda")(X)


@pytest.mark.parametrize(
    ("broken", "lesson"),
    [
        ("architecture", "(?s)does not compile for this GPU, sm_90.*gpu-architecture.*Install a newer release"),
        ("load", f"(?s)no kernel image.*{re.escape(install_command('cuda', upgrade=True))}"),
        ("launch", "(?s)illegal memory access.*test_cuda.py.*start a new one.*the CPU runs the program"),
        ("cublas", f"(?s)cuBLASLt is not installed.*{re.escape(install_command('cuda'))}"),
        ("matmul", "(?s)cuBLASLt: CUBLAS_STATUS 14.*The CPU runs the program"),
    ],
)
def test_what_may_be_wrong_with_an_installation(broken: str, lesson: str, cupy: FakeCupy) -> None:
    """Each is an error that says what to do; the CPU goes on, and so does the device when it is over."""
    cupy.broken.add(broken)
    cupy.compiler.words = "nvrtc: error: invalid value for --gpu-architecture (-arch)" * (broken == "architecture")
    f = rlx.jit(lambda x: jnp.sin(x) @ x.T, device="cuda")
    with pytest.raises(DeviceError, match=lesson):
        f(X)
    assert float(jnp.sin(0.0)) == 0.0
    cupy.broken.clear()
    cupy.compiler.words = ""
    assert f(X).shape == (3, 3)


def test_a_lost_device(cupy: FakeCupy) -> None:
    """Whoever waits hears of it, with a line of the program; the CPU goes on."""
    x = rlx.device_put(X, "cuda")
    y = rlx.jit(lambda x: jnp.sin(x) + 1)(x)
    cupy.broken.add("synchronize")
    with pytest.raises(DeviceError, match="illegal memory access") as caught:
        y.block_until_ready()
    assert "test_cuda.py" in str(caught.value)
    assert float(jnp.sin(0.0)) == 0.0


def test_devices_are_not_mixed(cupy: FakeCupy) -> None:
    x, y = rlx.device_put(X, "cuda"), rlx.device_put(X, "cpu")
    with pytest.raises(DeviceError, match="device"):
        x + y


def test_programs_are_shown_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in installed(monkeypatch, None):
        shape = rlx.ShapeDtypeStruct((4096, 1000), "float32")
        found = rlx.inspect(nn.softmax, device="cuda")(shape)
        assert "__global__" in found.kernels.texts["cuda"]
        assert found.kernels.texts["launches"].endswith("warps, 512 x 256")
        assert found.kernels.texts["predicted"].startswith("H100: 0.013 ms, 1 launch, 32.8 MB moved")
        assert "hip" in rlx.inspect(nn.softmax, device="rocm")(shape).kernels.texts
        if nvrtc.COMPILER.present:
            assert "0 bytes spilled" in found.kernels.texts["registers"] and ".entry" in found.kernels.texts["ptx"]

