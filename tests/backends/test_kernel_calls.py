"""Users' kernels: opencl_call, run; cuda_call, under a driver that is none."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy
from test_cuda import installed

import rlx
import rlx.numpy as jnp
from rlx.backends.cuda import nvrtc
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.gpu.batched_calls import BatchedCall
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.errors import CallbackTransformError, DeviceError, UnsupportedError
from rlx.passes.pipeline import lower_to_plan

needs_opencl = pytest.mark.skipif(
    importlib.util.find_spec("pyopencl") is None, reason="pyopencl is not installed: make test-opencl"
)
SCALED = """
__kernel void scaled(__global float *y, __global int *place, __global const float *x, __global const float *factor) {
    const int i = get_global_id(0) + get_global_size(0) * get_global_id(1);
    y[i] = x[i] * factor[0];
    place[i] = i;
}
"""
X = np.sin(np.arange(128, dtype=np.float32))


def scaled(x: Any, factor: Any) -> Any:
    """Twice 32 x 2 items."""
    types = (rlx.ShapeDtypeStruct((128,), "float32"), rlx.ShapeDtypeStruct((128,), "int32"))
    return rlx.opencl_call(SCALED, "scaled", types, x, factor, grid=(2, 1), block=(32, 2))


@needs_opencl
def test_a_kernel_in_a_program() -> None:
    """Between operations of rlx's own, on parts of arrays, too."""
    y, place = rlx.jit(lambda x: scaled(jnp.exp(x[1]) + 1, jnp.float32(3.0)), device="opencl")(np.stack([X, X]))
    np.testing.assert_allclose(y, (np.exp(X) + 1) * 3, rtol=1e-6)
    np.testing.assert_array_equal(place, np.arange(128))
    z = rlx.jit(lambda x: scaled(x * 2, jnp.float32(0.5))[0].sum() + scaled(x, x[1])[0], device="opencl")(X)
    np.testing.assert_allclose(z, X.sum() + X[1] * X, rtol=1e-4, atol=1e-5)


@needs_opencl
def test_eagerly_on_the_device() -> None:
    x = rlx.device_put(X, "opencl")
    np.testing.assert_array_equal(scaled(x, rlx.device_put(np.float32(2), "opencl"))[0], X * 2)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are launched, by how."""
    engine = importlib.import_module("rlx.backends.opencl.engine").OpenCLEngine
    log: list[str] = []
    for how in ("launch", "call"):
        usual = getattr(engine, how)
        monkeypatch.setattr(
            engine, how, lambda self, *given, how=how, usual=usual: (log.append(how), usual(self, *given))
        )
    return log


@needs_opencl
def test_a_batch_is_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is mapped twice, too; an operand that no level maps is read by all."""
    log = counted(monkeypatch)
    x, factors = (
        rlx.device_put(np.stack([X, X + 1, X + 2]), "opencl"),
        rlx.device_put(np.array([1, 2, 3, 4], "f4"), "opencl"),
    )
    f = rlx.jit(rlx.vmap(rlx.vmap(lambda x, f: scaled(x, f), (None, 0)), (0, None)), device="opencl")
    y, places = f(x, factors)
    assert log == ["launch"]
    np.testing.assert_array_equal(y, np.asarray(x)[:, None] * np.asarray(factors)[:, None])
    np.testing.assert_array_equal(places, np.broadcast_to(np.arange(128), (3, 4, 128)))
    deep = rlx.vmap(rlx.vmap(rlx.vmap(lambda x, f: scaled(x, f)[0], (None, 0)), (0, None)), (None, 0))
    z = rlx.jit(deep, device="opencl")(x, np.stack([factors, factors + 5]))
    np.testing.assert_array_equal(z[1], np.asarray(x)[:, None] * (np.asarray(factors) + 5)[:, None])


PLAIN = "__kernel void plain(__global int *y, __global const int *x) { y[get_local_id(0)] = x[0]; }"
THIRD = PLAIN.replace("plain", "third").replace("x[0]", "x[0] + (int)get_global_id(2)")
LOCAL = """__kernel void own(__global int *y, __global const int *x) {
    __local int kept[8];
    kept[get_local_id(0)] = x[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    y[get_local_id(0)] = kept[7 - get_local_id(0)];
}"""


@needs_opencl
@pytest.mark.parametrize(
    ("source", "name", "grid"), [(THIRD, "third", 1), (LOCAL, "own", 1), (PLAIN, "plain", (1, 1, 2))]
)
def test_kernels_that_are_launched_for_each(source: str, name: str, grid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = counted(monkeypatch)
    out = rlx.ShapeDtypeStruct((8,), "int32")
    x = np.arange(5, dtype=np.int32)[:, None]
    f = rlx.vmap(lambda x: rlx.opencl_call(source, name, out, x, grid=grid, block=8))
    np.testing.assert_array_equal(rlx.jit(f, device="opencl")(x), np.broadcast_to(x, (5, 8)))
    assert log == ["call"] * 5


@needs_opencl
def test_a_rule_gives_the_derivative() -> None:
    @rlx.custom_jvp
    def twice(x: Any) -> Any:
        return scaled(x, np.float32(2))[0]

    twice.defjvp(lambda primals, tangents: (twice(*primals), 2 * tangents[0]))
    f = rlx.jit(rlx.grad(lambda x: (twice(x) ** 2).sum()), device="opencl")
    np.testing.assert_allclose(f(X), 8 * X, rtol=1e-6)
    with pytest.raises(CallbackTransformError, match="no derivative"):
        rlx.jit(rlx.grad(lambda x: scaled(x, np.float32(2))[0].sum()), device="opencl")(X)


@needs_opencl
def test_what_does_not_compile() -> None:
    with pytest.raises(DeviceError, match="refused"):
        rlx.jit(lambda x: rlx.opencl_call("__kernel void f(", "f", x, x, grid=1, block=1), device="opencl")(X)


def test_on_the_host() -> None:
    with pytest.raises(DeviceError, match=r"jit\(device='opencl'\)"):
        scaled(X, np.float32(2))


@pytest.mark.parametrize("sizes", [{"grid": 0, "block": 1}, {"grid": 1, "block": 2048}, {"grid": (1,) * 4, "block": 1}])
def test_sizes_that_no_device_has(sizes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="one to three positive sizes"):
        rlx.opencl_call(SCALED, "scaled", X, X, **sizes)


def test_cuda_call_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the addresses of outputs, then inputs."""
    text = 'extern "C" __global__ void twice(float *y, const float *x) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
    for cupy in installed(monkeypatch, FakeCupy()):
        monkeypatch.setattr(cupy, "launch", lambda *call, log=cupy.log: log.append(("launch", *call)))
        rlx.jit(lambda x: rlx.cuda_call(text, "twice", x, x, grid=2, block=64), device="cuda")(X)
        (launch,) = (entry for entry in cupy.log if entry[0] == "launch")
        assert (launch[1].name, *launch[2:4]) == ("twice", (2,), (64,))
        assert [type(a) for a in launch[4]] == [np.uint64] * 2
        assert text in cupy.sources


REVERSED = """extern "C" __global__ void __launch_bounds__(32) reversed(float4 *__restrict__ y, const float4 *x) {
    __shared__ float4 kept[32];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = kept[31 - threadIdx.x];
}"""


def of_a_batch(source: str, grid: int | tuple[int, ...] = 1, batch: int = 3) -> BatchedCall | None:
    """What launches a kernel for a batch of a batch, of which the inner level is not mapped over x."""
    x = rlx.ShapeDtypeStruct((2, 128), "float32")

    def call(x: Any, n: Any) -> Any:
        return rlx.cuda_call(source, "reversed", x, x, n, grid=grid, block=32)

    f = rlx.vmap(rlx.vmap(call, (None, 0)), (0, None))
    plan = lower_to_plan(rlx.make_program(f)(rlx.ShapeDtypeStruct((2, *x.shape), x.dtype), np.arange(batch)), None)
    (found,) = DeviceProgram(plan, CudaDialect(), Limits()).calls.values()
    return found


def test_a_batch_is_one_launch_on_cuda() -> None:
    found = of_a_batch(REVERSED)
    assert found is not None and (found.grid, found.block) == ((1, 1, 6), (32, 1, 1))
    assert "memory1 + start1 + (element / 3 % 2 * 1) * 1024" in found.source


@pytest.mark.skipif(not nvrtc.COMPILER.present, reason="there is no NVRTC: make test-gpu-compile")
def test_the_kernel_of_a_batch_compiles() -> None:
    """Shared memory, bounds, vectors and restricted pointers of the user's kernel included."""
    found = of_a_batch(REVERSED.replace("const float4 *x", "const float4 *x, const int *n"))
    assert found is not None
    for architecture in ("sm_75", "sm_90"):
        assert f".entry {found.name}(" in nvrtc.compile_program(found.source, architecture).ptx


@pytest.mark.parametrize("change", ["blockIdx.z", "gridDim", "cooperative_groups::this_grid()", "%ctaid"])
def test_what_knows_the_grid_is_launched_for_each_on_cuda(change: str) -> None:
    assert of_a_batch(REVERSED.replace("threadIdx.x", f"threadIdx.x + {change}", 1)) is None


def test_batches_that_are_launched_for_each_on_cuda() -> None:
    assert of_a_batch(REVERSED, grid=(1, 1, 2)) is None
    assert of_a_batch(REVERSED, batch=40_000) is None
