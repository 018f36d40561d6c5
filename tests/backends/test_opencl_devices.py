"""OpenCL with two devices, which are halves of the processor here; and buffers that change hands by DLPack."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import backends, lax
from rlx.backends.gpu import dlpack
from rlx.errors import DeviceError

if os.environ.get("RLX_TEST_OPENCL") != "1":
    pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")

from rlx.backends import opencl
from rlx.backends.opencl import engine

X = np.random.default_rng(0).normal(size=(33, 70)).astype(np.float32)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The first device as two, each of a part of its units."""
    cl = pytest.importorskip("pyopencl")
    whole = engine.devices()[0]
    parts = whole.create_sub_devices([cl.device_partition_property.BY_COUNTS, 1, 1])
    for module in (engine, opencl):
        monkeypatch.setattr(module, "devices", lambda: parts)
    forget()
    yield parts
    forget()


def forget() -> None:
    """Forget the backends."""
    for name in [name for name in backends._loaded if name.partition(":")[0] == "opencl"]:
        del backends._loaded[name]
    rlx.clear_caches()


def test_both_compute(halves: list[Any]) -> None:
    first, second = rlx.devices("opencl")
    assert (first, second) == ("opencl", "opencl:1")

    def f(x: Any) -> Any:
        return lax.scan(lambda c, r: (c + jnp.tanh(r), c.sum()), x[0], x), jnp.sort(x, axis=1) @ x.T

    expected = rlx.tree.leaves(rlx.jit(f, device="cpu")(X))
    for device in (first, second):
        found = rlx.tree.leaves(rlx.jit(f)(rlx.device_put(X, device)))
        for x, y in zip(expected, found, strict=True):
            assert y.device == device
            np.testing.assert_allclose(np.asarray(y), np.asarray(x), rtol=2e-5, atol=1e-5)
    assert backends.backend_named("opencl:1").engine._context != backends.backend_named("opencl").engine._context


def test_they_are_not_mixed(halves: list[Any]) -> None:
    x, y = rlx.device_put(X, "opencl:0"), rlx.device_put(X, "opencl:1")
    with pytest.raises(DeviceError, match="different devices"):
        x + y
    z = x + rlx.device_put(y, x.device)
    np.testing.assert_array_equal(np.asarray(z), 2 * X)
    with pytest.raises(DeviceError, match="no device 'opencl:2'; here are: opencl:0, opencl:1"):
        rlx.device_put(X, "opencl:2")


class Lender:
    """Another library's array over the buffer of an array of rlx's."""

    def __init__(self, array: Any, device: tuple[int, int] | None = None) -> None:
        self.array, self.device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device or self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


def test_a_buffer_changes_hands(halves: list[Any]) -> None:
    """What DLPack holds is the handle; the array that comes back reads the same buffer."""
    x = jnp.sin(rlx.device_put(X, "opencl"))
    assert x.__dlpack_device__() == (4, 0)
    before = len(dlpack._lent)
    y = jnp.from_dlpack(Lender(x))
    assert y.storage().pointer == x.storage().pointer and len(dlpack._lent) == before + 1
    values = np.asarray(x)
    del x
    np.testing.assert_array_equal(np.asarray(y + 0), values)
    del y
    backends.memory_named("opencl").clear_pool()
    assert len(dlpack._lent) == before
    assert jnp.asarray(Lender(rlx.device_put(X, "opencl"))).tolist() == X.tolist()


def test_what_opencl_cannot_share(halves: list[Any]) -> None:
    x = rlx.device_put(X, "opencl")
    with pytest.raises(BufferError, match="no streams for OpenCL: pass None"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"another OpenCL context.*np.asarray"):
        jnp.from_dlpack(Lender(x, (4, 1)))
    assert not hasattr(x, "__cuda_array_interface__")
