"""A driver that is none, under the part of CuPy's interface that rlx uses: it keeps a log, and knows what is freed.

Memory is addresses without contents: copies from and to the host move the bytes of numbered blocks, kernels write
nothing. What uses an address outside of living memory fails. Routines of libraries are computed (fake_libraries.py).
"""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cublas_lt import FakeCublasLt
from fake_libraries import add_libraries

import rlx
from rlx import backends

STREAM = 77  # rlx's own on the first device, then on the next ones


class CUDARuntimeError(RuntimeError):
    """CuPy's."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class CUDADriverError(RuntimeError):
    """CuPy's, of what loads and launches kernels."""


class OutOfMemoryError(MemoryError):
    """CuPy's."""


class CompileException(Exception):
    """CuPy's."""


class FakeCupy:
    """The module: `log` has every call in order, `sources` what was compiled."""

    def __init__(self, devices: int = 1, capacity: int = 1 << 28, is_hip: bool = False) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.sources: list[str] = []
        self.capacity, self.used, self.next = capacity, 0, 1 << 20
        self.blocks: dict[int, np.ndarray] = {}
        self.broken: set[str] = set()  # what fails from now on
        self.now = self.done = 0  # events that were recorded, and those that the device has come to
        self.captured: list[tuple[Any, ...]] | None = None  # by the graph that is being made
        self.devices: list[int] = [0]  # that are current, innermost last
        self.owners: dict[int, int] = {}  # address of a block -> number of its device
        self.cublas_lt = FakeCublasLt(self)
        fake = self

        class Memory:
            def __init__(self, size: int) -> None:
                assert fake.captured is None, "memory is taken while a graph is captured"
                if fake.used + size > fake.capacity:
                    raise OutOfMemoryError(f"{size} bytes")
                fake.used += size
                self.ptr, self.size = fake.next, size
                fake.next += size + 4096
                fake.blocks[self.ptr] = np.full(size, 0xA5, np.uint8)
                fake.owners[self.ptr] = fake.devices[-1]
                # as CuPy's, it is freed with its last reference, not with garbage that gives it back to a pool
                self.held = np.empty(0)
                weakref.finalize(self.held, fake.free, self.ptr).atexit = False

        class Device:
            def __init__(self, number: int) -> None:
                assert 0 <= number < devices
                self.id, self.compute_capability = number, "90"
                self.attributes = {"MultiProcessorCount": 132}

            def __enter__(self) -> None:
                fake.devices.append(self.id)

            def __exit__(self, *error: object) -> None:
                fake.devices.pop()

        class Stream:
            def __init__(self, non_blocking: bool) -> None:
                assert non_blocking
                self.ptr = STREAM + fake.devices[-1]

            def __enter__(self) -> None:
                fake.current.append(self)

            def __exit__(self, *error: object) -> None:
                fake.current.pop()

            def synchronize(self) -> None:
                fake.check("synchronize")
                assert fake.captured is None, "a stream that is captured is waited for"
                fake.log.append(("synchronize",))
                fake.done = fake.now

            def begin_capture(self) -> None:
                fake.check("capture")
                assert fake.captured is None
                fake.captured = []

            def end_capture(self) -> Graph:
                found, fake.captured = fake.captured, None
                assert found is not None
                return Graph(found)

        class Graph:
            def __init__(self, operations: list[tuple[Any, ...]]) -> None:
                self.operations = operations

            def launch(self, stream: Stream) -> None:
                fake.check("launch")
                fake.log.append(("graph", len(self.operations)))
                for again, *arguments in self.operations:
                    with stream:
                        again(*arguments)

        class Event:
            def __init__(self, disable_timing: bool = False) -> None:
                self.place, self.disable_timing = 0, disable_timing
                self.ptr = id(self)
                fake.events[self.ptr] = self

            def record(self, stream: Stream) -> None:
                fake.record(self.ptr, stream.ptr)

            @property
            def done(self) -> bool:
                return self.place <= fake.done

            def synchronize(self) -> None:
                fake.check("synchronize")
                fake.log.append(("wait",))
                fake.done = max(fake.done, self.place)

        class RawModule:
            def __init__(self, code: str, options: tuple[str, ...], backend: str) -> None:
                assert backend == "nvrtc" and isinstance(options, tuple)
                self.code = code

            def get_function(self, name: str) -> Any:
                if "load" in fake.broken:
                    raise CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available")
                if "architecture" in fake.broken:
                    raise CompileException("nvrtc: error: invalid value for --gpu-architecture (-arch)")
                if "compile" in fake.broken:
                    raise CompileException("rlx.cu(7): error: what is this")
                if self.code not in fake.sources:
                    fake.sources.append(self.code)
                return RawKernel(name, self.code.split(f" {name}(")[1].split("\n}")[0])

        class Function:
            """What the driver launches; together, if groups of the kernel wait for one another."""

            def __init__(self, name: str, waits: bool) -> None:
                self.name, self.waits, self.ptr = name, waits, 1000 + len(fake.functions)
                fake.functions[self.ptr] = self

            def __call__(self, grid: Any, block: Any, args: Any, enable_cooperative_groups: bool = False) -> None:
                assert enable_cooperative_groups == self.waits, "groups that wait have to be launched together"
                fake.launch(self.name, grid, block, args, self.waits)

        class RawKernel:
            def __init__(self, name: str, text: str) -> None:
                self.kernel = Function(name, "awaited" in text)

            def __call__(self, grid: Any, block: Any, args: Any) -> None:
                self.kernel(grid, block, args)

        self.functions: dict[int, Function] = {}
        self.resident = 3  # groups of a kernel that run at the same time on a multiprocessor
        self.current: list[Stream] = []
        self.events: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()
        self.RawModule = RawModule
        runtime = SimpleNamespace(
            is_hip=is_hip, CUDARuntimeError=CUDARuntimeError, getDeviceCount=lambda: self.count(devices),
            memcpyAsync=self.memcpy, memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyDeviceToDevice=3,
            memsetAsync=self.memset, deviceGetPCIBusId=lambda number: f"0000:{number:02x}:00.0",
            memcpyPeerAsync=self.memcpy_peer, eventRecord=self.record, streamWaitEvent=self.wait_for,
            pointerGetAttributes=self.attributes_of,
            getDeviceProperties=lambda number: {"gcnArchName": b"gfx90a:sramecc+:xnack-", "cooperativeLaunch": 1},
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            runtime=runtime, Device=Device, Stream=Stream, Event=Event,
            get_elapsed_time=self.elapsed, driver=SimpleNamespace(
                CUDADriverError=CUDADriverError, occupancyMaxActiveBlocksPerMultiprocessor=self.occupancy,
            ),
            memory=SimpleNamespace(Memory=Memory, OutOfMemoryError=OutOfMemoryError),
            compiler=SimpleNamespace(CompileException=CompileException),
        )  # fmt: skip
        add_libraries(self)

    def free(self, address: int) -> None:
        """A block's end."""
        self.used -= len(self.blocks.pop(address))
        del self.owners[address]

    @property
    def own_stream(self) -> int:
        """The number of rlx's stream on the current device."""
        return STREAM + self.devices[-1]

    def count(self, devices: int) -> int:
        if "old" in self.broken:
            words = "CUDA driver version is insufficient for CUDA runtime version"
            raise CUDARuntimeError(35, f"cudaErrorInsufficientDriver: {words}")
        if not devices:
            raise CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
        return devices

    def check(self, what: str) -> None:
        if what in self.broken:
            raise CUDARuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access was encountered")

    def elapsed(self, begin: Any, end: Any) -> float:
        """Milliseconds: a quarter from each event to the next."""
        assert not begin.disable_timing and not end.disable_timing and max(begin.place, end.place) <= self.done
        return 0.25 * (end.place - begin.place)

    def record(self, event: int, stream: int) -> None:
        assert self.captured is None, "an event is recorded into a graph"
        self.log.append(("record", stream))
        self.now += 1
        self.events[event].place = self.now

    def wait_for(self, stream: int, event: int) -> None:
        assert self.events[event].place, "an event that was never recorded"
        self.log.append(("wait for", stream))

    def attributes_of(self, address: int) -> Any:
        found = (self.owners[at] for at, block in self.blocks.items() if at <= address < at + len(block))
        return SimpleNamespace(device=next(found))

    def at(self, address: int, nbytes: int) -> np.ndarray:
        """Living memory of the current device from an address on."""
        for start, block in self.blocks.items():
            if start <= address and address + nbytes <= start + len(block):
                assert self.owners[start] == self.devices[-1], "memory of another device"
                return block[address - start : address - start + nbytes]
        raise AssertionError(f"{nbytes} bytes at {address} are nobody's: used after they were freed")

    def occupancy(self, function: int, items: int, shared: int) -> int:
        """For CUDA; HIP's stands in HIP's library."""
        assert not self.cuda.runtime.is_hip and self.functions[function].waits and items == 256 and shared == 0
        assert self.captured is None
        return self.resident

    def launch(
        self, name: str, grid: tuple[int], block: tuple[int], args: tuple[Any, ...], together: bool = False
    ) -> None:
        if "launch" in self.broken:
            raise CUDADriverError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
        assert self.current and self.current[-1].ptr == STREAM + self.devices[-1], "a stream of another device"
        assert 0 < grid[0] < 1 << 31 and 0 < block[0] <= 1024
        assert not together or grid[0] <= self.resident * 132, "groups that are not there would be waited for"
        assert [type(a) for a in args] == [np.uint64, np.int64] * (len(args) // 2)
        for pointer, start in zip(args[::2], args[1::2], strict=True):
            self.at(int(pointer) + int(start), 1)
        if self.captured is not None:
            self.captured.append((self.launch, name, grid, block, args, together))
            return
        self.log.append(("launch together" if together else "launch", name, grid[0], block[0], args))

    def memcpy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        self.check("memcpy")
        assert stream == STREAM + self.devices[-1]
        if self.captured is not None:
            assert kind == 3, "the host's memory is copied into a graph"
            self.captured.append((self.memcpy, target, source, nbytes, kind, stream))
        elif kind == 1:
            ctypes.memmove(self.at(target, nbytes).ctypes.data, source, nbytes)
        elif kind == 2:
            ctypes.memmove(target, self.at(source, nbytes).ctypes.data, nbytes)
        else:
            self.at(target, nbytes)[:] = self.at(source, nbytes)
        if self.captured is None:
            self.log.append(("copy", kind, nbytes))

    def memcpy_peer(self, target: int, to: int, source: int, of: int, nbytes: int, stream: int) -> None:
        self.check("memcpy")
        assert stream == STREAM + self.devices[-1] == STREAM + to and self.captured is None
        with self.cuda.Device(of):
            found = self.at(source, nbytes).copy()
        self.at(target, nbytes)[:] = found
        self.log.append(("copy from", of, nbytes))

    def memset(self, target: int, value: int, nbytes: int, stream: int) -> None:
        assert stream == STREAM + self.devices[-1] and self.captured is None
        self.at(target, nbytes)[:] = value
        self.log.append(("set", nbytes))

    def launched(self) -> list[str]:
        """The names of kernels in the order in which they were queued."""
        gc.collect()
        return [entry[1] for entry in self.log if entry[0] == "launch"]


def installed(monkeypatch: pytest.MonkeyPatch, fake: Any) -> Iterator[Any]:
    """Put a driver in CuPy's place, for backends of its own."""
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublasLt", getattr(fake, "cublas_lt", None))
    for name, module in getattr(fake, "modules", {}).items():
        monkeypatch.setitem(sys.modules, name, module)
    _forget_devices()
    yield fake
    _forget_devices()


def _forget_devices() -> None:
    for name in [name for name in backends._loaded if name.partition(":")[0] in ("cuda", "rocm")]:
        del backends._loaded[name]
    rlx.clear_caches()
