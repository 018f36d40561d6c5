"""Several GPUs of a kind, with the driver that is none: each has its own stream, memory and programs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fake_cupy import STREAM, FakeCupy, installed

import rlx
import rlx.numpy as jnp
from rlx import backends
from rlx.errors import DeviceError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with two devices, which refuses memory and streams of the other one."""
    yield from installed(monkeypatch, FakeCupy(devices=2))


def test_all_devices_are_listed(cupy: FakeCupy) -> None:
    first, second = rlx.devices("cuda")
    assert (first, second) == ("cuda:0", "cuda:1") and first == "cuda" and second != "cuda"
    assert (second.id, second.platform, repr(second)) == (1, "cuda", "Device(cuda:1)")
    with rlx.default_device("cuda"):
        assert rlx.devices() == [first, second]


def test_one_device_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in installed(monkeypatch, FakeCupy()):
        assert [*map(repr, rlx.devices("cuda"))] == ["Device(cuda:0)"]
        with pytest.raises(DeviceError, match="There is no device 'cuda:1'; here are: cuda:0"):
            rlx.device_put(X, "cuda:1")
    for _ in installed(monkeypatch, None):
        with pytest.raises(DeviceError, match="There is no device 'cuda:1'; here are: none"):
            rlx.jit(jnp.sin, device="cuda:1")(X)


def test_the_first_has_two_names(cupy: FakeCupy) -> None:
    x = rlx.device_put(X, "cuda:0")
    assert x.device == "cuda" == rlx.device_put(X, "cuda").device
    assert backends.memory_named("cuda:0") is backends.memory_named("cuda")
    x + rlx.device_put(X, "cuda")


def test_programs_run_where_they_are_told(cupy: FakeCupy) -> None:
    """The driver checks each pointer, stream and copy against the device that is current."""
    f = rlx.jit(lambda x: jnp.exp(x) * 2, device="cuda:1")
    y = f(X)
    assert y.device == "cuda:1"
    (launch,) = (entry for entry in cupy.log if entry[0] == "launch")
    assert cupy.owners[int(launch[-1][0])] == 1 and ("record", STREAM + 1) in cupy.log
    z = jnp.sin(y) @ y.T
    assert z.device == "cuda:1" and {d for _, d in cupy.owners.items()} == {1}
    with rlx.default_device("cuda:1"):
        assert jnp.ones(3).device == "cuda:1"
        assert rlx.jit(jnp.sin)(X).device == "cuda:1"
    assert rlx.device_put(X, rlx.devices("cuda")[1]).device == "cuda:1"


def test_each_has_its_programs_and_its_pool(cupy: FakeCupy) -> None:
    f = rlx.jit(lambda x: jnp.exp(x) * 2)
    arrays = [rlx.device_put(X, f"cuda:{n}") for n in range(2)]
    for x in (*arrays, *arrays):
        assert f(x).device == x.device
    assert len(cupy.launched()) == 4 and len(cupy.sources) == 1  # the text is the same; the modules are not
    memories = [backends.memory_named(f"cuda:{n}") for n in range(2)]
    assert memories[0] is not memories[1] and all(m.pool_bytes() > 0 for m in memories)
    assert cupy.used == sum(m.pool_bytes() for m in memories)


def test_values_move_between_them(cupy: FakeCupy) -> None:
    x = rlx.device_put(X, "cuda:1")
    cupy.log.clear()
    y = rlx.device_put(x, "cuda:0")
    assert y.device == "cuda:0"
    assert cupy.peers == {(0, 1), (1, 0)}  # so that bytes do not go by way of the host
    # the copy waits for the upload that writes the array, and what comes to its memory next waits for the copy; the
    # host does not
    assert [entry[:2] for entry in cupy.log if entry[0] != "record"] == [
        ("wait for", STREAM + 1), ("wait for", STREAM), ("copy from", 1), ("wait for", STREAM + 1),
    ]  # fmt: skip
    np.testing.assert_array_equal(np.asarray(y), X)
    assert rlx.jit(jnp.sin, device="cuda:0")(x).device == "cuda:0"  # brought


def test_mixing_is_an_error_that_says_what_to_write(cupy: FakeCupy) -> None:
    x, y = rlx.device_put(X, "cuda:0"), rlx.device_put(X, "cuda:1")
    lesson = r"(?s)different devices.*Device\(cuda:0\).*Device\(cuda:1\).*rlx.device_put\(x, y.device\)"
    with pytest.raises(DeviceError, match=lesson):
        x + y
    with pytest.raises(DeviceError, match=lesson):
        rlx.jit(jnp.add)(x, y)
    x + rlx.device_put(y, x.device)


def test_what_moves_between_them(cupy: FakeCupy) -> None:
    """Keys, nothing, and scalars; an error of the driver names the device; the arrays stay as they were."""
    key = rlx.random.key(3)
    values = (jnp.float32(2), np.zeros((0, 3)), np.arange(3, dtype="int8"))
    for x in values:
        there = rlx.device_put(rlx.device_put(x, "cuda:1"), "cuda:0")
        assert there.device == "cuda:0" and there.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(there), np.asarray(x))
    moved = rlx.device_put(rlx.device_put(key, "cuda:1"), "cuda:0")
    assert rlx.random.key_data(rlx.device_put(moved, "cpu")).tolist() == rlx.random.key_data(key).tolist()
    x = rlx.device_put(X, "cuda:1")
    cupy.broken.add("memcpy")
    with pytest.raises(DeviceError, match="illegal memory access"):
        rlx.device_put(x, "cuda:0")
    cupy.broken.clear()
    np.testing.assert_array_equal(np.asarray(rlx.device_put(x, "cuda:0")), X)
