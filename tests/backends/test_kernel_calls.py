"""Users' kernels: opencl_call, run; cuda_call, under a driver that is none."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy
from test_cuda import installed

import rlx
import rlx.numpy as jnp
from rlx.errors import CallbackTransformError, DeviceError, UnsupportedError

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


@needs_opencl
def test_a_batch_is_a_launch_for_each() -> None:
    x, factors = np.stack([X, X + 1, X + 2]), np.array([1, 2, 3], np.float32)
    f = rlx.jit(rlx.vmap(lambda x, factor: scaled(x, factor)[0]), device="opencl")
    np.testing.assert_array_equal(f(x, factors), x * factors[:, None])
    g = rlx.jit(rlx.vmap(rlx.vmap(lambda x, f: scaled(x, f)[0], (None, 0)), (0, None)), device="opencl")
    np.testing.assert_array_equal(g(x, factors), x[:, None] * factors[:, None])


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
        assert launch[1:4] == ("twice", (2,), (64,)) and [type(a) for a in launch[4]] == [np.uint64] * 2
        assert text in cupy.sources
