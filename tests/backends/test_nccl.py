"""Exchanges from GPU to GPU: values by a fake NCCL among threads, order by the driver that is none."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cupy import STREAM, FakeCupy, installed
from fake_nccl import FakeNccl

import rlx
import rlx.numpy as jnp
from rlx.backends.cuda.nccl import NcclGroup, NcclGroups, takes
from rlx.distributed import threads
from rlx.errors import CollectiveError
from rlx.installation import install_command
from rlx.ir.collectives import WORLD, Alone, Exchange, Members, communicator, exchange, members

DTYPES = "bool int8 int16 int32 int64 bfloat16 float16 float32 float64 complex64".split()
RING = {2: ((0, 1), (1, 0)), 3: ((0, 1), (1, 2), (2, 0))}


def exchanges(count: int, dtype: str) -> list[Exchange]:
    """What members do with arrays of a dtype, of shape (count, 4)."""
    op = "or" if dtype == "bool" else "sum"
    found = [Exchange(kind, WORLD, count, op, root=1) for kind in ("all_reduce", "reduce_scatter", "reduce")]
    found += [Exchange(kind, WORLD, count, root=1) for kind in ("all_gather", "all_to_all", "broadcast")]
    found += [Exchange("permute", WORLD, count, pairs=pairs) for pairs in (RING[count], ((0, 1),), ((1, 1),), ())]
    if dtype == "bool":
        return [*found, Exchange("all_reduce", WORLD, count, "and")]
    extrema = () if dtype == "complex64" else ("max", "min", "prod")
    return [*found, *(Exchange("all_reduce", WORLD, count, other) for other in extrema)]


def clear(address: int, nbytes: int, stream: int) -> None:
    ctypes.memset(address, 0, nbytes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3])
def test_exchanges_are_those_of_the_host(count: int, dtype: str) -> None:
    """Of small whole numbers, of which every sum is exact."""
    fake = FakeNccl()
    made = np.random.default_rng(count).integers(0, 2 if dtype == "bool" else 5, (count, count, 4))

    def work() -> int:
        host, done = communicator(), 0
        group = NcclGroup(fake, host, clear)
        given = made[host.rank].astype(jnp.dtype(dtype))
        for what in exchanges(count, dtype):
            if not takes(what, given.dtype):
                continue
            expected, found = (np.full(what.result(given.shape), 1, given.dtype) for _ in range(2))
            exchange(what, what.mark(given.shape, given.dtype), given, expected)
            group.carry_out(what, given.shape, given.dtype, given.ctypes.data, found.ctypes.data, 5)
            np.testing.assert_array_equal(found, expected, err_msg=str(what))
            done += 1
        return done

    assert set(threads.run(count, work)) == {7 if dtype == "int16" else len(exchanges(count, dtype))}
    assert [entry for entry in fake.log if entry == ("id",)] == [("id",)]


def test_what_nccl_has_no_words_for_is_the_hosts() -> None:
    for what, dtype in (
        (Exchange("all_reduce", WORLD, 2, "sum"), "int16"),
        (Exchange("all_reduce", WORLD, 2, "xor"), "int32"),
        (Exchange("all_reduce", WORLD, 2, "prod"), "complex64"),
        (Exchange("all_reduce", WORLD, 2, "sum", "deterministic"), "float32"),
    ):
        assert not takes(what, np.dtype(dtype))
        assert takes(Exchange("all_gather", WORLD, 2), np.dtype(dtype))


@pytest.mark.parametrize(("names", "expected"), [(("a", "b"), True), (("a", "a"), False)])
def test_every_process_has_a_gpu_of_its_own(names: tuple[str, str], expected: bool) -> None:
    fake = FakeNccl()

    def work() -> bool:
        groups = NcclGroups(fake, names[rlx.process_index()], clear)
        return groups._joined(communicator(), "an exchange") is not None

    assert threads.run(2, work) == [expected] * 2


@pytest.mark.parametrize("lacking", [(1,), (0, 2), (0, 1, 2)])
def test_all_processes_learn_that_some_have_no_nccl(lacking: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before NCCL is asked for anything: those that have it would wait for the others."""
    monkeypatch.setattr(sys, "platform", "linux")
    fake = FakeNccl()

    def work() -> str:
        rank = rlx.process_index()
        groups = NcclGroups(None if rank in lacking else fake, f"gpu {rank}", clear)
        with pytest.raises(CollectiveError) as caught:
            groups._joined(communicator(), "an exchange")
        return str(caught.value)

    ranks = ", ".join(map(str, lacking))
    for words in threads.run(3, work):
        assert f"rank{'s' * (len(lacking) > 1)} {ranks} of 3" in words and install_command("cuda") in words
    assert not fake.log


def test_a_module_without_nccl_is_none(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's module is imported where the library is missing, too."""
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", SimpleNamespace(available=False))
    x = rlx.device_put(np.ones((4, 4), np.float32), "cuda")
    with pytest.raises(CollectiveError, match="is not installed for rank 0 of 2") as caught:
        rlx.jit(lambda x: rlx.distributed.all_gather(x))(x)
    assert "test_nccl.py" in str(caught.value)


class Pair(Alone):
    """One of two members, of whom the other does the same."""

    size = 2

    def all_gather(self, array: np.ndarray, out: np.ndarray) -> None:
        out[0], out[1] = array, array + 1


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with one device and NCCL, of a process of two."""
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", FakeNccl(alone=True, log=fake.log))
    before = members.value
    members.set_global(Members({WORLD: Pair()}))
    yield from installed(monkeypatch, fake)
    members.set_global(before)


def chain(x: Any) -> Any:
    """Some launches."""
    y = jnp.cumsum(jnp.sort(x, axis=1), axis=0)
    return jnp.sort(y.T, axis=1) + jnp.cumsum(y.T, axis=1)


def test_exchanges_lie_between_graphs_on_the_same_stream(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fake_nccl.at", lambda address, count, number: cupy.at(address, count).view(np.uint8))
    f = rlx.jit(lambda x: chain(rlx.distributed.all_gather(chain(x))[0]))
    x = rlx.device_put(np.ones((40, 40), np.float32), "cuda")
    orders = []
    for _ in range(3):
        del cupy.log[:]
        f(x).block_until_ready()
        gc.collect()
        orders.append([entry[0] for entry in cupy.log if entry[0] in ("launch", "graph", "nccl", "copy")])
        assert [entry for entry in cupy.log if entry[0] == "nccl"] == [("nccl", "allGather", STREAM)]
    first, _, third = orders
    assert first.count("nccl") == 1 and first[0] == first[-1] == "launch"
    assert "copy" not in first  # nothing goes by way of the host
    assert [kind for kind in third if kind != "launch"] == ["copy", "graph", "nccl", "graph"]


def test_what_goes_wrong_names_the_line(cupy: FakeCupy) -> None:
    sys.modules["cupy.cuda.nccl"].broken = True
    x = rlx.device_put(np.ones((4, 4), np.float32), "cuda")
    with pytest.raises(CollectiveError, match="NCCL failed in the group 'world': NCCL_ERROR_SYSTEM_ERROR") as caught:
        rlx.jit(lambda x: rlx.distributed.all_gather(x))(x)
    assert "test_nccl.py" in str(caught.value)


@pytest.mark.parametrize("device", ["opencl", "cuda", "rocm"])
def test_the_report_says_what_goes_by_way_of_the_host(device: str) -> None:
    """Programs are shown without a device, too."""
    if device == "opencl":
        pytest.importorskip("pyopencl")
    x = np.ones((4, 4), np.int32)
    for op, by_nccl in (("sum", device == "cuda"), ("xor", False)):
        function = rlx.jit(lambda x, op=op: rlx.distributed.all_reduce(x, op), device=device)
        host = rlx.inspect(function)(x).kernels.texts["host"]
        assert ("copied to the host" in host) != by_nccl, host
