"""A driver that is none, under the part of CuPy's interface that rlx uses: it keeps a log, and knows what is freed.

Memory is addresses without contents: copies from and to the host move the bytes of numbered blocks, kernels write
nothing. Routines of libraries are computed (fake_libraries.py).

It is as strict as the real one. Only names of the table of signatures are there, arguments are checked as Cython does
(cupy_signatures.py); compilers check their options (fake_compiler.py), code is loaded on its own architecture only.
Launches keep to the limits of the device and of the kernel, and vectors are loaded at addresses that are multiples of
them (kernel_texts.py). What uses an address outside of living memory, or a handle that was given back, fails. A device
that is lost (`lose`) answers every call with its error.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
from cupy_signatures import NUMBERS, strict
from fake_compiler import MARK, FakeCompiler
from fake_cublas_lt import FakeCublasLt
from fake_libraries import add_libraries
from kernel_texts import KernelText, kernel_texts, parameters_of

import rlx
from rlx import backends
from rlx.backends.cuda import nvrtc
from rlx.backends.gpu import runtime_compiler
from rlx.backends.rocm import hiprtc

STREAM = 77  # rlx's own on the first device, then on the next ones
COPIES = 1077  # likewise, of copies
MOST_SHARED = 48 << 10  # bytes that a kernel may declare
NOT_READY, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 600, 2, 700
ILLEGAL = "cudaErrorIllegalAddress: an illegal memory access was encountered"


class CUDARuntimeError(RuntimeError):
    """CuPy's."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class CUDADriverError(RuntimeError):
    """CuPy's, of what loads and launches kernels."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class OutOfMemoryError(MemoryError):
    """CuPy's."""


class CompileException(Exception):
    """CuPy's, of its own kernels."""


class FakeCupy:
    """The module: `log` has every call in order, `sources` what was loaded, `compiler` the runtime compiler."""

    def __init__(self, devices: int = 1, capacity: int = 1 << 28, is_hip: bool = False) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.sources: list[str] = []
        self.compiler = FakeCompiler("hiprtc" if is_hip else "nvrtc")
        self.capacity, self.used, self.next = capacity, 0, 1 << 20
        self.blocks: dict[int, np.ndarray] = {}
        self.stream_devices: list[int] = []
        # the order of the two streams: the number of operations of each, those of a block, those that events stand for,
        # and those of one stream that the other one, or the host, knows to be over
        self.operations = {"work": 0, "copies": 0}
        self.touched: dict[tuple[int, str, bool], int] = {}
        self.passed: dict[int, tuple[str, int]] = {}
        self.known: dict[tuple[str, str], int] = defaultdict(int)
        self.peers: set[tuple[int, int]] = set()
        self.pinned: dict[int, np.ndarray] = {}
        self.broken: set[str] = set()  # what fails from now on
        self.lost = 0  # the error that every call answers with
        self.calls, self.lose_at = 0, -1  # how many there were, and the one that loses the device
        self.events: dict[int, int] = {}  # handle -> place in the order of all that were recorded
        self.untimed: set[int] = set()
        self.now = self.done = 0  # events that were recorded, and those that the device has come to
        self.captured: list[tuple[Any, ...]] | None = None  # by the graph that is being made
        self.devices: list[int] = [0]  # that are current, innermost last
        self.owners: dict[int, int] = {}  # address of a block -> number of its device
        self.cublas_lt = FakeCublasLt(self)
        self.functions: WeakValueDictionary[int, Any] = WeakValueDictionary()  # of modules that are loaded
        self.handles = count(1000)
        self.modules_loaded = 0
        self.resident = 3  # groups of a kernel that run at the same time on a multiprocessor
        self.current: list[Any] = []
        self.properties = {
            "gcnArchName": b"gfx90a:sramecc+:xnack-", "cooperativeLaunch": 1, "multiProcessorCount": 132, "major": 9,
            "minor": 0,
        }  # fmt: skip
        driver = {
            "occupancyMaxActiveBlocksPerMultiprocessor": self.occupancy, "launchKernel": self.launch_packed,
        }  # fmt: skip
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(is_hip=is_hip, **NUMBERS, **self._all("cuda.runtime", self._runtime(devices))),
            driver=SimpleNamespace(**self._all("cuda.driver", driver)),
            function=SimpleNamespace(Module=self._modules()), Device=self._device_class(devices),
            Stream=self._streams(), compiler=SimpleNamespace(CompileException=CompileException),
        )  # fmt: skip
        add_libraries(self)

    # ------------------------------------------------------------------ calls
    def called(self, path: str) -> None:
        """Count a call; a device that is lost answers it with its error."""
        self.calls += 1
        if self.calls == self.lose_at:
            self.lose()
        if self.lost and path != "cuda.runtime.eventQuery":
            raise CUDARuntimeError(self.lost, ILLEGAL)

    def lose(self) -> None:
        """From now on, until the end of the process."""
        self.lost = ILLEGAL_ADDRESS

    def _all(self, path: str, functions: dict[str, Callable[..., Any]]) -> dict[str, Any]:
        return {name: strict(f"{path}.{name}", function, self.called) for name, function in functions.items()}

    def _runtime(self, devices: int) -> dict[str, Callable[..., Any]]:
        return {
            "getDeviceCount": lambda: self.count(devices), "getDeviceProperties": lambda device: dict(self.properties),
            "deviceGetPCIBusId": lambda device: f"0000:{device:02x}:00.0", "malloc": self.malloc, "free": self.free,
            "deviceCanAccessPeer": lambda device, peerDevice: int(device != peerDevice),
            "deviceEnablePeerAccess": self.enable_peer, "hostAlloc": self.host_alloc, "freeHost": self.free_host,
            "memcpyAsync": self.memcpy, "memcpyPeerAsync": self.memcpy_peer, "memsetAsync": self.memset,
            "eventCreateWithFlags": self.event, "eventDestroy": self.destroy, "eventRecord": self.record,
            "eventQuery": self.query, "eventSynchronize": self.synchronize_event, "eventElapsedTime": self.elapsed,
            "streamWaitEvent": self.wait_for, "pointerGetAttributes": self.attributes_of,
        }  # fmt: skip

    def method(self, path: str, function: Callable[..., Any]) -> Any:
        """A method that takes what CuPy's takes."""
        return strict(path, function, self.called)

    # ------------------------------------------------------------------ classes
    def _device_class(self, devices: int) -> type:
        fake = self

        class Device:
            def __init__(self, number: int) -> None:
                assert 0 <= number < devices
                self.id = number

            def enter(self) -> None:
                fake.devices.append(self.id)

            def __exit__(self, *error: object) -> None:
                fake.devices.pop()

            __enter__ = self.method("cuda.Device.__enter__", enter)

        return Device

    def _streams(self) -> type:
        fake = self

        class Graph:
            def __init__(self, operations: list[tuple[Any, ...]]) -> None:
                self.operations = operations

            def launched(self, stream: Any = None) -> None:
                fake.check("launch")
                fake.log.append(("graph", len(self.operations)))
                for again, *arguments in self.operations:
                    with stream:
                        again(*arguments)

            launch = self.method("cuda.Graph.launch", launched)

        class Stream:
            def created(self, null: bool = False, non_blocking: bool = False) -> None:
                assert non_blocking and not null
                self.device_id = fake.devices[-1]
                # the first stream of a device is the one of its work, the next one of copies
                number = sum(device == self.device_id for device in fake.stream_devices)
                fake.stream_devices.append(self.device_id)
                self.ptr = (STREAM if not number else COPIES) + self.device_id

            def __enter__(self) -> None:
                if self.device_id != fake.devices[-1]:
                    raise RuntimeError("The device that the stream is created on does not match the current device")
                fake.current.append(self)

            def __exit__(self, *error: object) -> None:
                fake.current.pop()

            def synchronized(self) -> None:
                fake.check("synchronize")
                assert fake.captured is None, "a stream that is captured is waited for"
                fake.log.append(("synchronize",))
                fake.done = fake.now
                kind = fake.kind_of(self.ptr)
                fake.known["host", kind] = fake.operations[kind]

            def begun(self) -> None:
                fake.check("capture")
                assert fake.captured is None
                fake.captured = []

            def ended(self) -> Graph:
                found, fake.captured = fake.captured, None
                assert found is not None
                return Graph(found)

            __init__ = self.method("cuda.Stream.__init__", created)
            synchronize = self.method("cuda.Stream.synchronize", synchronized)
            begin_capture = self.method("cuda.Stream.begin_capture", begun)
            end_capture = self.method("cuda.Stream.end_capture", ended)

        return Stream

    def _modules(self) -> type:
        fake = self

        class Function:
            """What the driver launches; together, if groups of the kernel wait for one another."""

            def __init__(self, module: Any, name: str, text: KernelText) -> None:
                self.name, self.text, self.ptr = name, text, next(fake.handles)
                self.module, self.waits = module, text.waits
                self.parameters = parameters_of(module.source, name)
                fake.functions[self.ptr] = self

            def called(self, grid: Any, block: Any, args: Any, enable_cooperative_groups: bool = False) -> None:
                assert enable_cooperative_groups == self.waits, "groups that wait have to be launched together"
                fake.launch(self, grid, block, args, self.waits)

            __call__ = self.method("cuda.function.Function.__call__", called)

        class Module:
            def loaded(self, cubin: bytes) -> None:
                head, _, text = cubin.removeprefix(MARK).partition(b"\n")
                if "load" in fake.broken or head.decode() != fake.architecture:
                    words = "no kernel image is available for execution on the device"
                    raise CUDADriverError(209, f"CUDA_ERROR_NO_BINARY_FOR_GPU: {words}")
                self.source = text.decode()
                fake.modules_loaded += 1
                if self.source not in fake.sources:
                    fake.sources.append(self.source)

            def __del__(self) -> None:
                if hasattr(self, "source"):
                    fake.modules_loaded -= 1
                    assert not fake.captured, "a module is unloaded while a graph is captured"

            def function(self, name: str) -> Function:
                if f" {name}(" not in self.source:
                    raise CUDADriverError(500, "CUDA_ERROR_NOT_FOUND: named symbol not found")
                return Function(self, name, kernel_texts(self.source).get(name, KernelText()))

            load = self.method("cuda.function.Module.load", loaded)
            get_function = self.method("cuda.function.Module.get_function", function)

        return Module

    @property
    def architecture(self) -> str:
        """The code that the device runs."""
        if self.cuda.runtime.is_hip:
            return self.properties["gcnArchName"].decode().partition(":")[0]
        return f"sm_{self.properties['major']}{self.properties['minor']}"

    # ------------------------------------------------------------------ memory
    def malloc(self, size: int) -> int:
        """A block of the current device."""
        assert self.captured is None, "memory is taken while a graph is captured"
        if self.used + size > self.capacity:
            raise CUDARuntimeError(OUT_OF_MEMORY, "cudaErrorMemoryAllocation: out of memory")
        self.used += size
        address = self.next
        self.next += -(-size // 256) * 256 + 4096
        self.blocks[address] = np.full(size, 0xA5, np.uint8)
        self.owners[address] = self.devices[-1]
        return address

    def free(self, ptr: int) -> None:
        """A block's end."""
        self.used -= len(self.blocks.pop(ptr))
        del self.owners[ptr]

    def enable_peer(self, peerDevice: int) -> None:
        """Once for each pair."""
        pair = (self.devices[-1], peerDevice)
        if pair in self.peers:
            raise CUDARuntimeError(704, "cudaErrorPeerAccessAlreadyEnabled: peer access is already enabled")
        self.peers.add(pair)

    def host_alloc(self, size: int, flags: int) -> int:
        """Page-locked memory."""
        assert flags == 0 and self.captured is None
        block = np.full(size, 0x5A, np.uint8)
        self.pinned[block.ctypes.data] = block
        return block.ctypes.data

    def free_host(self, ptr: int) -> None:
        del self.pinned[ptr]

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
            raise CUDARuntimeError(ILLEGAL_ADDRESS, ILLEGAL)

    def attributes_of(self, ptr: int) -> Any:
        found = (self.owners[at] for at, block in self.blocks.items() if at <= ptr < at + len(block))
        return SimpleNamespace(device=next(found))

    def at(self, address: int, nbytes: int, stream: str = "work", writes: bool = False) -> np.ndarray:
        """Living memory of the current device from an address on, for an operation of a stream."""
        for start, block in self.blocks.items():
            if start <= address and address + nbytes <= start + len(block):
                assert self.owners[start] == self.devices[-1], "memory of another device"
                if self.captured is None:
                    self.touch(start, stream, writes)
                return block[address - start : address - start + nbytes]
        raise AssertionError(f"{nbytes} bytes at {address} are nobody's: used after they were freed")

    def touch(self, block: int, stream: str, writes: bool) -> None:
        """Operations of different streams on a block, one of which writes it, need an order: an event that one of them,
        or the host, has waited for."""
        other = "copies" if stream == "work" else "work"
        known = max(self.known[stream, other], self.known["host", other])
        last = max(self.touched.get((block, other, kind), 0) for kind in ((True, False) if writes else (True,)))
        assert last <= known, f"{stream} and {other} use a block at the same time"
        self.operations[stream] += 1
        self.touched[block, stream, writes] = self.operations[stream]

    def learn(self, who: str, event: int) -> None:
        """A stream, or the host, knows that what is before an event is over."""
        stream, number = self.passed.get(event, ("work", 0))
        self.known[who, stream] = max(self.known[who, stream], number)

    def kind_of(self, stream: int) -> str:
        """Which of the current device's streams it is."""
        assert stream in (self.own_stream, COPIES + self.devices[-1]), "a stream of another device"
        return "work" if stream == self.own_stream else "copies"

    # ------------------------------------------------------------------ events
    def event(self, flags: int) -> int:
        """One that was never recorded."""
        assert flags in (NUMBERS["eventDefault"], NUMBERS["eventDisableTiming"])
        handle = len(self.events) + len(self.untimed) + self.next
        self.next += 1 << 12
        self.events[handle] = 0
        if flags:
            self.untimed.add(handle)
        return handle

    def destroy(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int, stream: int) -> None:
        assert self.captured is None, "an event is recorded into a graph"
        self.log.append(("record", stream))
        self.now += 1
        assert event in self.events, "an event that was given back"
        self.events[event] = self.now
        kind = "copies" if stream >= COPIES else "work"
        self.passed[event] = kind, self.operations[kind]

    def query(self, event: int) -> int:
        """A status, which CuPy does not look at."""
        if not self.lost and self.events[event] <= self.done:
            self.learn("host", event)
        return self.lost or (0 if self.events[event] <= self.done else NOT_READY)

    def synchronize_event(self, event: int) -> None:
        self.check("synchronize")
        self.log.append(("wait",))
        self.done = max(self.done, self.events[event])
        self.learn("host", event)

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds: a quarter from each event to the next."""
        assert not {start, end} & self.untimed and max(self.events[start], self.events[end]) <= self.done
        return 0.25 * (self.events[end] - self.events[start])

    def wait_for(self, stream: int, event: int) -> None:
        assert self.events[event], "an event that was never recorded"
        self.log.append(("wait for", stream))
        if stream in (self.own_stream, COPIES + self.devices[-1]):
            self.learn(self.kind_of(stream), event)

    # ------------------------------------------------------------------ kernels
    def occupancy(self, func: int, blockSize: int, dynamicSMemSize: int) -> int:
        """For CUDA; HIP's stands in HIP's library."""
        assert not self.cuda.runtime.is_hip and self.functions[func].waits and blockSize == 256 and dynamicSMemSize == 0
        assert self.captured is None
        return self.resident

    def launch_packed(
        self, f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, params: int,
        extra: int,
    ) -> None:
        """As the driver does: the types of a kernel's parameters say how many bytes are read at each pointer."""
        function = self.functions.get(f)
        assert function is not None, "a kernel whose module is unloaded, or none"
        assert shared == extra == 0 and stream == self.own_stream, "a stream of another device"
        assert not function.waits, "groups that wait have to be launched together"
        assert function.parameters is not None, f"{function.name} has no parameters to read"
        pointers = (ctypes.c_void_p * len(function.parameters)).from_address(params)
        args = tuple(
            (np.uint64 if kind is ctypes.c_void_p else np.dtype(kind).type)(kind.from_address(at).value or 0)
            for kind, at in zip(function.parameters, pointers, strict=True)
        )
        self.launch(function, (gx, gy, gz), (bx, by, bz), args, checked=True)

    def launch(
        self, function: Any, grid: tuple[int], block: tuple[int], args: tuple[Any, ...], together: bool = False,
        checked: bool = False,
    ) -> None:
        if "launch" in self.broken:
            raise CUDADriverError(ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")
        assert checked or (self.current and self.current[-1].ptr == self.own_stream), "a stream of another device"
        self.check_limits(function.text, grid, block)
        assert not together or grid[0] <= self.resident * 132, "groups that are not there would be waited for"
        places = self.places(function, args)
        for number, place in enumerate(places):
            self.at(place, 1, writes=number in function.text.written)
        for number, nbytes in function.text.aligned:
            assert places[number] % nbytes == 0, f"{function.name} loads {nbytes} bytes at {places[number]:#x}"
        if self.captured is not None:
            self.captured.append((self.launch, function, grid, block, args, together))
            return
        kind = "launch together" if together else "launch"
        self.log.append((kind, function.name, grid[0], block[0], args, tuple(places)))

    def places(self, function: Any, args: tuple[Any, ...]) -> list[int]:
        """The addresses among the arguments, with the offsets of rlx's kernels. They have the parameters' types."""
        if function.parameters is None:  # a user's kernel, whose parameters this test does not read
            assert all(type(a) is np.uint64 for a in args), args
            return [int(a) for a in args]
        kinds = [np.uint64 if kind is ctypes.c_void_p else np.dtype(kind).type for kind in function.parameters]
        assert [type(a) for a in args] == kinds, f"{function.name} takes {kinds}, and is given {args}"
        numbers = [n for n, kind in enumerate(function.parameters) if kind is ctypes.c_void_p]
        starts = [int(args[n + 1]) if kinds[n + 1 : n + 2] == [np.int64] else 0 for n in numbers]
        return [self.place(int(args[n]), start) for n, start in zip(numbers, starts, strict=True)]

    def place(self, address: int, start: int) -> int:
        """Where an array begins. A negative offset says that the address is in memory; a graph reads it at each run."""
        if start >= 0:
            return address + start
        held = self.at(address, 8)
        return address if self.captured is not None else int(held.view(np.uint64)[0]) + ~start

    def check_limits(self, text: KernelText, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Those of devices, and of the kernel."""
        sizes, items = (*grid, 1, 1)[:3], int(np.prod(block))
        assert 0 < sizes[0] < 1 << 31 and all(0 < size < 1 << 16 for size in sizes[1:]), sizes
        assert 0 < items <= (text.items or 1024) <= 1024, f"{items} items in a group of at most {text.items}"
        assert text.shared <= MOST_SHARED, f"{text.shared} bytes of shared memory"
        assert not self.cuda.runtime.is_hip or sizes[0] * items < 1 << 32, "HIP counts items in 32 bits"

    # ------------------------------------------------------------------ copies
    def memcpy(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        self.check("memcpy")
        place = self.kind_of(stream)
        if self.captured is not None and place == "work":
            assert kind == 3, "the host's memory is copied into a graph"
            self.captured.append((self.memcpy, dst, src, size, kind, stream))
            return
        if kind == 1:
            ctypes.memmove(self.at(dst, size, place, writes=True).ctypes.data, src, size)
        elif kind == 2:
            ctypes.memmove(dst, self.at(src, size, place).ctypes.data, size)
        else:
            self.at(dst, size, writes=True)[:] = self.at(src, size)
        self.log.append(("copy", kind, size))

    def memcpy_peer(self, dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int) -> None:
        self.check("memcpy")
        assert stream == self.own_stream == STREAM + dstDevice and self.captured is None
        self.devices.append(srcDevice)
        found = self.at(src, size).copy()
        self.devices.pop()
        self.at(dst, size)[:] = found
        self.log.append(("copy from", srcDevice, size))

    def memset(self, ptr: int, value: int, size: int, stream: int) -> None:
        assert stream == self.own_stream and self.captured is None
        self.at(ptr, size)[:] = value
        self.log.append(("set", size))

    def launched(self) -> list[str]:
        """The names of kernels in the order in which they were queued."""
        gc.collect()
        return [entry[1] for entry in self.log if entry[0] == "launch"]


def installed(monkeypatch: pytest.MonkeyPatch, fake: Any) -> Iterator[Any]:
    """Put a driver and its runtime compiler in the place of CuPy's and the vendor's, for backends of its own."""
    with monkeypatch.context() as changes:
        changes.setitem(sys.modules, "cupy", fake)
        changes.setitem(sys.modules, "nvmath.bindings.cublasLt", getattr(fake, "cublas_lt", None))
        for name, module in getattr(fake, "modules", {}).items():
            changes.setitem(sys.modules, name, module)
        if fake is not None:
            changes.setattr(runtime_compiler, "user_folder", lambda: None)
            made = hiprtc if fake.cuda.runtime.is_hip else nvrtc
            changes.setitem(vars(made.COMPILER), "_library", fake.compiler)
        _forget_devices()
        yield fake
        _forget_devices()


def _forget_devices() -> None:
    for name in [name for name in backends._loaded if name.partition(":")[0] in ("cuda", "rocm")]:
        del backends._loaded[name]
    rlx.clear_caches()
    nvrtc.code_of.cache_clear()
    hiprtc.code_of.cache_clear()
