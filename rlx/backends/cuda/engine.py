"""CUDA's and HIP's runtimes as an engine, through CuPy: one device, one stream, modules compiled from source."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from rlx.backends.cuda.cublas_lt import CublasLt
from rlx.backends.cuda.failures import FAILURES, device_error, is_out_of_memory
from rlx.backends.cuda.handles import Handle
from rlx.backends.cuda.library import run_routine
from rlx.backends.cuda.nccl import NcclGroups
from rlx.backends.cuda.packed_launch import PackedLaunch
from rlx.backends.cuda.staging import StagingMemory
from rlx.backends.gpu.dlpack import KINDS, Lent, borrowed_by_interface, taken
from rlx.backends.gpu.engine import Engine, FollowedView, View, is_present
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.runtime_compiler import DeviceCode
from rlx.errors import DeviceError
from rlx.forks import cached_property
from rlx.installation import install_command
from rlx.ir.kernels import Buffer, Collective, Library
from rlx.storage import AllocationError

__all__ = ["CupyEngine"]

_NOT_READY, _ALREADY_ENABLED = 600, 704  # the numbers of these errors in CUDA and in HIP
# stream numbers in DLPack: the default streams of CUDA and HIP; "none" requests no ordering
_DEFAULT_STREAM = {"cuda": 1, "rocm": 0}
_NO_STREAM = -1
_NOT_STREAMS = {"cuda": (0,), "rocm": (1, 2)}

class CupyEngine(Engine):
    """A device of CuPy. It is not accessed before a program runs: programs can be shown without one.

    name: of the device, and of the extra that installs its package. platform: its readable name.
    code_of: the compiler for an architecture. default: the limits until the device is accessed.
    """

    pointers = True

    def __init__(
        self, name: str, platform: str, code_of: Callable[[str], DeviceCode], default: Limits, number: int = 0
    ) -> None:
        super().__init__()
        self.name = name
        self.platform = platform
        self.number = number
        self._code_of = code_of
        self._default = default
        self._limits: Limits | None = None
        self._module: Any = None
        self._peers: set[int] = set()  # devices whose memory this one was given access to, if possible

    # ------------------------------------------------------------------ the device
    @property
    def _cupy(self) -> Any:
        if self._module is None:
            self._module = self._connected()
        return self._module

    def _connected(self) -> Any:
        """CuPy, if it has this device."""
        try:
            cupy = importlib.import_module("cupy")
        except ModuleNotFoundError:
            raise DeviceError(
                f"The device {self.name!r} needs CuPy for {self.platform}.", install_command(self.name)
            ) from None
        except FAILURES as error:  # of libraries that it needs
            raise device_error(error, self.name, self.platform, "CuPy's import") from None
        if cupy.cuda.runtime.is_hip != (self.name == "rocm"):
            raise DeviceError(
                f"The CuPy that is installed is not the one for {self.platform}.", install_command(self.name)
            )
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except RuntimeError as error:
            raise DeviceError(
                f"{self.platform} has no device here: {error}.",
                "Install a driver that is new enough for the package, or compute on the CPU: device='cpu'.",
            ) from None
        if self.number >= count:
            raise DeviceError(
                f"There are {count} devices of {self.platform}, none of number {self.number}.", "Ask rlx.devices()."
            )
        return cupy

    @property
    def present(self) -> bool:
        """Whether there is a device."""
        return is_present(lambda: self._cupy)

    def count(self) -> int:
        """The number of devices that the runtime counts."""
        return int(self._checked(self._cupy.cuda.runtime.getDeviceCount)) if self.present else 0

    @cached_property
    def _device(self) -> Any:
        return self._cupy.cuda.Device(self.number)

    @cached_property
    def _streams(self) -> tuple[Any, Any]:
        """The stream of work, and the stream of copies between arrays and the host."""
        first, second = (self._checked(lambda: self._cupy.cuda.Stream(non_blocking=True)) for _ in range(2))
        return first, second

    @cached_property
    def _stream(self) -> Any:
        return self._streams[0]

    @property
    def limits(self) -> Limits:
        """The limits: two groups for each multiprocessor keep the device busy."""
        if self._limits is None and self.present:
            units = 2 * self._multiprocessors
            self._limits = replace(self._default, units=units, together=units if self._waits else 0)
        return self._limits or self._default

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits

    @cached_property
    def _properties(self) -> Mapping[str, Any]:
        return self._checked(self._cupy.cuda.runtime.getDeviceProperties, self.number)

    @property
    def hardware(self) -> str:
        """The name of the device; "" if the library does not report it."""
        name = self._properties.get("name", b"") if self.present else b""
        return name.decode() if isinstance(name, bytes) else str(name)

    def capacity(self) -> int | None:
        """The bytes of the device's memory."""
        return int(self._properties.get("totalGlobalMem", 0)) or None if self.present else None

    @property
    def _multiprocessors(self) -> int:
        return int(self._properties["multiProcessorCount"])

    @property
    def _waits(self) -> bool:
        """Whether groups of a launch may wait for one another."""
        return bool(self._properties.get("cooperativeLaunch", 0))

    @property
    def architecture(self) -> str:
        """The compiler's name of the device."""
        if self.name == "rocm":
            # optional features follow the name
            return self._properties["gcnArchName"].decode().partition(":")[0]
        return f"sm_{self._properties['major']}{self._properties['minor']}"

    def _checked(self, function: Any, *arguments: Any, doing: str = "") -> Any:
        """Call a function of CuPy with this device as the current one. Raises DeviceError with a remedy."""
        try:
            with self._device:
                return function(*arguments)
        except (*FAILURES, self._cupy.cuda.compiler.CompileException) as error:
            raise device_error(error, self.name, self.platform, doing) from None

    def _on_stream(self, function: Any, *arguments: Any) -> None:
        with self._stream:
            function(*arguments)

    # ------------------------------------------------------------------ kernels
    def compile(self, source: str) -> bytes:
        """The code, which rlx compiles and keeps on disk: CuPy would append further options."""
        return self._code_of(self.architecture).of(source)

    def load(self, code: bytes, name: str) -> Any:
        """A function of a module of its own, which is unloaded with it."""
        module = self._cupy.cuda.function.Module()
        self._checked(module.load, code)
        return self._checked(module.get_function, name)

    @contextmanager
    def current(self) -> Generator[None]:
        """CuPy's device. Raises DeviceError if the device has failed."""
        try:
            with self._device:
                yield
        except FAILURES as error:
            raise device_error(error, self.name, self.platform, "") from None

    def prepared(self, kernel: Any, arrays: int, numbers: Sequence[np.generic] = ()) -> PackedLaunch:
        """The kernel with its arguments in memory."""
        return PackedLaunch(kernel, arrays, numbers)

    def launch(self, prepared: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Launch on the stream: the driver copies the arguments."""
        prepared.places[:] = [part for view in views for part in (view.memory.ptr, view.start)]
        try:
            self._driver.launchKernel(prepared.function, *grid, *block, 0, self._stream.ptr, prepared.address, 0)
        except FAILURES as error:
            raise device_error(error, self.name, self.platform) from None

    @cached_property
    def _driver(self) -> Any:
        return self._cupy.cuda.driver

    def resident(self, kernel: Any, items: int) -> int:
        """The number that the driver reports per multiprocessor: it knows the kernel's registers and shared memory."""
        return int(self._checked(self._resident_of_one, kernel.ptr, items)) * self._multiprocessors

    def _resident_of_one(self, function: int, items: int) -> int:
        return self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function, items, 0)

    def launch_together(self, prepared: Any, views: Sequence[View], groups: int, items: int) -> None:
        """A cooperative launch; streams that are being captured also accept it."""
        arrays = (part for view in views for part in (np.uint64(view.memory.ptr), np.int64(view.start)))
        self._checked(self._cooperate, prepared.kernel, groups, items, (*arrays, *prepared.numbers))

    def _cooperate(self, function: Any, groups: int, items: int, arguments: tuple[Any, ...]) -> None:
        with self._stream:
            function((groups,), (items,), arguments, enable_cooperative_groups=True)

    def call(self, kernel: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Launch on the stream."""
        addresses = tuple(np.uint64(self.address(view)) for view in views)
        self._checked(self._on_stream, kernel, grid, block, addresses)

    @cached_property
    def _products(self) -> CublasLt:
        return CublasLt(self.allocate, self.address)

    def makes(self, product: LibraryProduct) -> bool:
        """Whether cuBLASLt computes a product on this device."""
        with self.lock:
            return self._checked(self._products.makes, product)

    def multiply(self, product: LibraryProduct, memory: Mapping[Buffer, View]) -> None:
        """Call cuBLASLt on the stream."""
        starts = {operand.buffer: self.address(memory[operand.buffer]) for operand in product.operands}
        self._checked(self._products.multiply, product, starts, self._stream.ptr)

    def compute(self, kernel: Library, inputs: Sequence[View], outputs: Sequence[View]) -> None:
        """Call cuSOLVER, cuBLAS, cuFFT, or ROCm's libraries with CuPy's functions, whose workspaces CuPy allocates."""
        given, found = ([self.address(view) for view in views] for views in (inputs, outputs))
        routine = (run_routine, self._cupy, self.number, kernel, given, found)
        try:
            self._checked(self._on_stream, *routine, doing=kernel.routine)
        except MemoryError:
            raise AllocationError(sum(view.nbytes for view in outputs)) from None

    # ------------------------------------------------------------------ other processes
    @cached_property
    def _groups(self) -> NcclGroups:
        runtime = self._cupy.cuda.runtime
        device = self._checked(runtime.deviceGetPCIBusId, self.number)
        return NcclGroups(_nccl(), device, lambda at, nbytes, stream: runtime.memsetAsync(at, 0, nbytes, stream))

    def exchange(self, kernel: Collective, source: View, target: View) -> bool:
        """Collectives run on NCCL, on the stream; HIP devices use the host."""
        if self.name != "cuda":
            return False
        addresses = map(self.address, (source, target))
        return self._checked(self._groups.carry_out, kernel, *addresses, self._stream.ptr)

    # ------------------------------------------------------------------ graphs
    @property
    def records(self) -> bool:
        """CUDA has graphs; CuPy has none for HIP."""
        return self.name == "cuda"

    def followed(self, table: View, nbytes: int) -> FollowedView:
        """Kernels load the address from the table."""
        return FollowedView(SimpleNamespace(ptr=self.address(table)), -1, nbytes)

    def stage(self, view: View, array: np.ndarray) -> None:
        """Copy through page-locked memory, on the stream."""
        self._staging.write(self.address(view), array, self._stream.ptr)

    @cached_property
    def _staging(self) -> StagingMemory:
        return StagingMemory(self._cupy.cuda.runtime, self._checked)

    def begin_graph(self) -> None:
        """Capture the stream; CuPy's default lets other threads allocate meanwhile."""
        self._checked(self._stream.begin_capture)

    def end_graph(self) -> Any:
        """The instantiated graph."""
        return self._checked(self._stream.end_capture)

    def launch_graph(self, graph: Any) -> None:
        """Launch it on the stream."""
        self._checked(graph.launch, self._stream)

    # ------------------------------------------------------------------ memory
    def allocate(self, nbytes: int) -> View:
        """cudaMalloc; if memory runs out, the free memory in CuPy's pool, left by routines, is returned first."""
        with suppress(AllocationError):
            return self._allocated(nbytes)
        self._checked(self._cupy.get_default_memory_pool().free_all_blocks)
        return self._allocated(nbytes)

    def _allocated(self, nbytes: int) -> View:
        runtime = self._cupy.cuda.runtime
        try:
            with self._device:
                return View(Handle(runtime.malloc(nbytes), runtime.free), 0, nbytes)
        except FAILURES as error:
            if is_out_of_memory(error):
                raise AllocationError(nbytes) from None
            raise device_error(error, self.name, self.platform) from None

    def address(self, view: View) -> int:
        """A pointer."""
        assert view.start >= 0, "only kernels follow addresses in memory"
        return view.memory.ptr + view.start

    def _move(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if nbytes:
            self._checked(self._cupy.cuda.runtime.memcpyAsync, target, source, nbytes, kind, self._stream.ptr)

    def copy(self, target: View, source: View) -> None:
        """Queue the copy on the stream."""
        kind = self._cupy.cuda.runtime.memcpyDeviceToDevice
        self._move(self.address(target), self.address(source), source.nbytes, kind)

    def reaches(self, other: Engine) -> bool:
        """The runtime copies between all of its devices, through the host's memory if necessary."""
        return isinstance(other, CupyEngine) and other.name == self.name

    def copy_from(self, other: Engine, target: View, source: View) -> None:
        """Queue the copy on this device's stream."""
        assert isinstance(other, CupyEngine)
        self._reach(other.number)
        other._reach(self.number)
        other.order_behind(self._stream.ptr)
        devices = (self.address(target), self.number, other.address(source), other.number)
        self._checked(self._cupy.cuda.runtime.memcpyPeerAsync, *devices, source.nbytes, self._stream.ptr)
        self.order_behind(other._stream.ptr)

    def _reach(self, other: int) -> None:
        """Let this device read another one's memory without the host, if they are connected."""
        if other in self._peers:
            return
        self._peers.add(other)
        runtime = self._cupy.cuda.runtime
        if not self._checked(runtime.deviceCanAccessPeer, self.number, other):
            return
        try:
            with self._device:
                runtime.deviceEnablePeerAccess(other)
        except FAILURES as error:
            if getattr(error, "status", None) != _ALREADY_ENABLED:
                raise device_error(error, self.name, self.platform) from None

    def read(self, view: View, array: np.ndarray) -> None:
        """Copy on the stream, and wait."""
        self._move(array.ctypes.data, self.address(view), array.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost)
        self.finish()

    def write(self, view: View, array: np.ndarray) -> None:
        """Copy on the stream, and wait."""
        self._move(self.address(view), array.ctypes.data, array.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice)
        self.finish()

    def upload(self, view: View, array: np.ndarray) -> Handle:
        """Copy on the stream of copies."""
        self._staging.write(self.address(view), array, self._streams[1].ptr)
        return self._event(self._cupy.cuda.runtime.eventDisableTiming, self._streams[1].ptr)

    def download(self, view: View, array: np.ndarray) -> None:
        """Copy on the stream of copies."""
        with self.lock:
            self._staging.read(self.address(view), array, self._streams[1].ptr)

    def follow(self, mark: Any) -> None:
        """The stream waits for the event."""
        self._checked(self._cupy.cuda.runtime.streamWaitEvent, self._stream.ptr, mark.ptr)

    # ------------------------------------------------------------------ order
    def _event(self, flags: int, stream: int) -> Handle:
        """An event recorded on a stream."""
        runtime = self._cupy.cuda.runtime
        event = Handle(self._checked(runtime.eventCreateWithFlags, flags), runtime.eventDestroy)
        self._checked(runtime.eventRecord, event.ptr, stream)
        return event

    def mark(self) -> Handle:
        """An event."""
        return self._event(self._cupy.cuda.runtime.eventDisableTiming, self._stream.ptr)

    def is_done(self, mark: Any) -> bool:
        """Whether the stream has reached the event, or the device has failed: the query then returns an error."""
        return self._cupy.cuda.runtime.eventQuery(mark.ptr) != _NOT_READY

    def wait(self, mark: Any) -> None:
        """Wait until the stream has reached the event."""
        self._checked(self._cupy.cuda.runtime.eventSynchronize, mark.ptr)

    def finish(self) -> None:
        """Wait until the stream is empty."""
        self._checked(self._stream.synchronize)

    # ------------------------------------------------------------------ time
    def stamp(self) -> Handle:
        """An event with timing."""
        return self._event(self._cupy.cuda.runtime.eventDefault, self._stream.ptr)

    def nanoseconds(self, begin: Any, end: Any) -> float:
        """The time between two events; CUDA returns milliseconds."""
        return 1e6 * float(self._checked(self._cupy.cuda.runtime.eventElapsedTime, begin.ptr, end.ptr))

    # ------------------------------------------------------------------ other libraries
    @property
    def dlpack_device(self) -> tuple[int, int]:
        """kDLCUDA or kDLROCM."""
        return KINDS[self.name], self.number

    @property
    def stream_number(self) -> int | None:
        """The stream's handle."""
        return self._stream.ptr

    def order_behind(self, stream: Any) -> None:
        """The other stream waits for an event on this one."""
        number = _DEFAULT_STREAM[self.name] if stream is None else stream
        if not isinstance(number, int) or number < _NO_STREAM or number in _NOT_STREAMS[self.name]:
            raise BufferError(f"DLPack has no {self.platform} stream of number {stream!r}")
        if number not in (_NO_STREAM, self._stream.ptr):
            event = self.mark()  # the driver owns the handle until the event is freed
            self._checked(self._cupy.cuda.runtime.streamWaitEvent, number, event.ptr)

    def taken(self, value: Any) -> Lent:
        """By DLPack, or by the CUDA array interface for arrays without DLPack."""
        if hasattr(value, "__dlpack__"):
            return taken(value, self._stream.ptr)
        lent = borrowed_by_interface(value)
        stream = value.__cuda_array_interface__.get("stream")
        if stream is not None:
            event = self._event(self._cupy.cuda.runtime.eventDisableTiming, stream)
            self._checked(self._cupy.cuda.runtime.streamWaitEvent, self._stream.ptr, event.ptr)
        return lent

    def borrowed(self, pointer: int) -> Any:
        """The address."""
        return SimpleNamespace(ptr=pointer)

    def number_at(self, pointer: int) -> int:
        """The driver reports it; an array without elements may have no address."""
        if not pointer:
            return self.number
        return int(self._checked(self._cupy.cuda.runtime.pointerGetAttributes, pointer).device)


def _nccl() -> Any:
    """CuPy's module, or None if NCCL is not installed: CuPy then warns, and has a module without functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            nccl = importlib.import_module("cupy.cuda.nccl")
        except ImportError:
            return None
    return nccl if nccl.available else None
