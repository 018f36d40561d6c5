"""CUDA's and HIP's runtimes as an engine, through CuPy: one device, one stream, modules compiled from text."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from rlx.backends.cuda.cublas_lt import CublasLt
from rlx.backends.cuda.library import run_routine
from rlx.backends.cuda.nccl import NcclGroups
from rlx.backends.gpu.dlpack import KINDS, Lent, borrowed_by_interface, taken
from rlx.backends.gpu.engine import Engine, View
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.limits import Limits
from rlx.errors import DeviceError
from rlx.ir.kernels import Buffer, Collective, Library
from rlx.storage import AllocationError

__all__ = ["CupyEngine"]

_OUT_OF_MEMORY = 2  # the number of that error, in CUDA and in HIP
_SHOWN_LINES = 12
# of what compilers and drivers say of a GPU that they do not know
_OF_ARCHITECTURES = ("gpu-architecture", "NO_BINARY_FOR_GPU")
# numbers of streams in DLPack: the default one of CUDA's, and of HIP's; "none" asks for no order
_DEFAULT_STREAM = {"cuda": 1, "rocm": 0}
_NO_STREAM = -1
_NOT_STREAMS = {"cuda": (0,), "rocm": (1, 2)}
_ELSEWHERE = "Arrays on other devices stay as they are; the CPU runs the program: rlx.default_device('cpu')."


class CupyEngine(Engine):
    """A device of CuPy's, which is asked for nothing before something runs: programs are shown without one, too.

    name: of the device, and of the extra that installs its package. platform: how people call it.
    flags: the compiler's. default: limits as long as no device is asked.
    """

    pointers = True

    def __init__(self, name: str, platform: str, flags: Sequence[str], default: Limits, number: int = 0) -> None:
        super().__init__()
        self.name = name
        self.platform = platform
        self.number = number
        self._flags = tuple(flags)
        self._default = default
        self._limits: Limits | None = None
        self._module: Any = None

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
        except ImportError:
            raise DeviceError(
                f"The device {self.name!r} needs CuPy for {self.platform}.", f"pip install 'rlx[{self.name}]'"
            ) from None
        if cupy.cuda.runtime.is_hip != (self.name == "rocm"):
            raise DeviceError(
                f"The CuPy that is installed is not the one for {self.platform}.", f"pip install 'rlx[{self.name}]'"
            )
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
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
        try:
            return self._cupy is not None
        except DeviceError:
            return False

    def count(self) -> int:
        """What the runtime says."""
        return int(self._cupy.cuda.runtime.getDeviceCount()) if self.present else 0

    @cached_property
    def _device(self) -> Any:
        return self._cupy.cuda.Device(self.number)

    @cached_property
    def _stream(self) -> Any:
        return self._checked(lambda: self._cupy.cuda.Stream(non_blocking=True))

    @property
    def limits(self) -> Limits:
        """Twice as many groups as there are multiprocessors keep the device busy."""
        if self._limits is None and self.present:
            units = 2 * int(self._device.attributes["MultiProcessorCount"])
            self._limits = replace(self._default, units=units, together=units if self._waits else 0)
        return self._limits or self._default

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits

    @property
    def _waits(self) -> bool:
        """Whether groups of a launch may wait for one another."""
        return bool(self._cupy.cuda.runtime.getDeviceProperties(self.number).get("cooperativeLaunch", 0))

    @property
    def architecture(self) -> str:
        """What its compiler calls the device."""
        if self.name == "rocm":
            found = self._cupy.cuda.runtime.getDeviceProperties(self.number)["gcnArchName"]
            return found.decode().partition(":")[0]  # what follows are features that may be on or off
        return f"sm_{self._device.compute_capability}"

    @cached_property
    def _errors(self) -> tuple[type[Exception], ...]:
        """CuPy's: of the runtime, and of the driver, which loads and launches kernels."""
        return self._cupy.cuda.runtime.CUDARuntimeError, self._cupy.cuda.driver.CUDADriverError

    def _checked(self, function: Any, *arguments: Any) -> Any:
        try:
            with self._device:
                return function(*arguments)
        except self._errors as error:
            raise DeviceError(f"{self.platform}: {error}.", _ELSEWHERE) from None

    def _on_stream(self, function: Any, *arguments: Any) -> None:
        with self._stream:
            function(*arguments)

    # ------------------------------------------------------------------ kernels
    def compile(self, source: str, names: Sequence[str]) -> dict[str, Any]:
        """A module, by the runtime's compiler; CuPy keeps it on disk."""
        module = self._cupy.RawModule(code=source, options=self._flags, backend="nvrtc")
        try:
            with self._device:
                return {name: module.get_function(name) for name in names}
        except (self._cupy.cuda.compiler.CompileException, *self._errors) as error:
            refusal = error
        words = "\n".join(str(refusal).splitlines()[:_SHOWN_LINES])
        if any(said in words for said in _OF_ARCHITECTURES):
            raise DeviceError(
                f"What is installed of {self.platform} does not compile for this GPU: {words}",
                f"Install a release that knows it: pip install -U 'rlx[{self.name}]'. {_ELSEWHERE}",
            )
        raise DeviceError(f"The compiler of {self.platform} refused a program:\n{words}", _ELSEWHERE)

    def launch(self, kernel: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """On the stream."""
        self._checked(self._on_stream, kernel, grid, block, self._arguments(views))

    def _arguments(self, views: Sequence[View]) -> tuple[Any, ...]:
        """Each array is an address and where it begins."""
        return tuple(part for view in views for part in (np.uint64(view.memory.ptr), np.int64(view.start)))

    def resident(self, kernel: Any, items: int) -> int:
        """As many as the driver says of a multiprocessor: it knows the kernel's registers and shared memory."""
        each = self._checked(self._resident_of_one, kernel.kernel.ptr, items)
        return int(each) * int(self._device.attributes["MultiProcessorCount"])

    def _resident_of_one(self, function: int, items: int) -> int:
        return self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function, items, 0)

    def launch_together(self, kernel: Any, views: Sequence[View], groups: int, items: int) -> None:
        """A cooperative launch; streams that are captured take it, too."""
        self._checked(self._cooperate, kernel.kernel, groups, items, self._arguments(views))

    def _cooperate(self, function: Any, groups: int, items: int, arguments: tuple[Any, ...]) -> None:
        with self._stream:
            function((groups,), (items,), arguments, enable_cooperative_groups=True)

    def call(self, kernel: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """On the stream."""
        addresses = tuple(np.uint64(self.address(view)) for view in views)
        self._checked(self._on_stream, kernel, grid, block, addresses)

    @cached_property
    def _products(self) -> CublasLt:
        return CublasLt(self.allocate, self.address)

    def makes(self, product: LibraryProduct) -> bool:
        """Whether cuBLASLt makes a product on this device."""
        with self.lock:
            return self._checked(self._products.makes, product)

    def multiply(self, product: LibraryProduct, memory: Mapping[Buffer, View]) -> None:
        """cuBLASLt, on the stream."""
        starts = {operand.buffer: self.address(memory[operand.buffer]) for operand in product.operands}
        self._checked(self._products.multiply, product, starts, self._stream.ptr)

    def compute(self, kernel: Library, inputs: Sequence[View], outputs: Sequence[View]) -> None:
        """cuSOLVER, cuBLAS, cuFFT, and ROCm's, by CuPy's functions, which have memory of CuPy's for what they need."""
        given, found = ([self.address(view) for view in views] for views in (inputs, outputs))
        try:
            self._checked(self._on_stream, run_routine, self._cupy, self.number, kernel, given, found)
        except ImportError as error:  # CuPy looks for its libraries when they are asked for
            raise DeviceError(
                f"The library for {kernel.routine} is not installed: {error}",
                f"pip install 'rlx[{self.name}]' brings it.",
            ) from None
        except self._cupy.cuda.memory.OutOfMemoryError:
            raise AllocationError(sum(view.nbytes for view in outputs)) from None
        except DeviceError:
            raise
        except RuntimeError as error:  # of a library
            raise DeviceError(f"{self.platform}: {kernel.routine} failed: {error}.", _ELSEWHERE) from None

    # ------------------------------------------------------------------ other processes
    @cached_property
    def _groups(self) -> NcclGroups:
        runtime = self._cupy.cuda.runtime
        try:
            nccl = importlib.import_module("cupy.cuda.nccl")
        except ImportError:  # a CuPy for machines that have none
            nccl = None
        device = self._checked(runtime.deviceGetPCIBusId, self.number)
        return NcclGroups(nccl, device, lambda at, nbytes, stream: runtime.memsetAsync(at, 0, nbytes, stream))

    def exchange(self, kernel: Collective, source: View, target: View) -> bool:
        """By NCCL, on the stream; HIP's devices go by way of the host."""
        if self.name != "cuda":
            return False
        addresses = map(self.address, (source, target))
        return self._checked(self._groups.carry_out, kernel, *addresses, self._stream.ptr)

    # ------------------------------------------------------------------ graphs
    @property
    def records(self) -> bool:
        """CUDA's; CuPy has none of HIP's."""
        return self.name == "cuda"

    def begin_graph(self) -> None:
        """The stream is captured; CuPy's default lets other threads allocate meanwhile."""
        self._checked(self._stream.begin_capture)

    def end_graph(self) -> Any:
        """Instantiated."""
        return self._checked(self._stream.end_capture)

    def launch_graph(self, graph: Any) -> None:
        """On the stream."""
        self._checked(graph.launch, self._stream)

    # ------------------------------------------------------------------ memory
    def allocate(self, nbytes: int) -> View:
        """cudaMalloc; what CuPy keeps, of routines that are done, is given back if there is no memory."""
        with suppress(AllocationError):
            return self._allocated(nbytes)
        self._checked(self._cupy.get_default_memory_pool().free_all_blocks)
        return self._allocated(nbytes)

    def _allocated(self, nbytes: int) -> View:
        errors = self._cupy.cuda.runtime.CUDARuntimeError, self._cupy.cuda.memory.OutOfMemoryError
        try:
            with self._device:
                return View(self._cupy.cuda.memory.Memory(nbytes), 0, nbytes)
        except errors as error:
            if getattr(error, "status", _OUT_OF_MEMORY) != _OUT_OF_MEMORY:
                raise DeviceError(f"{self.platform}: {error}.", _ELSEWHERE) from None
            raise AllocationError(nbytes) from None

    def address(self, view: View) -> int:
        """A pointer."""
        return view.memory.ptr + view.start

    def _move(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if nbytes:
            self._checked(self._cupy.cuda.runtime.memcpyAsync, target, source, nbytes, kind, self._stream.ptr)

    def copy(self, target: View, source: View) -> None:
        """On the stream."""
        kind = self._cupy.cuda.runtime.memcpyDeviceToDevice
        self._move(self.address(target), self.address(source), source.nbytes, kind)

    def reaches(self, other: Engine) -> bool:
        """The runtime copies between all devices of its own, over the host's memory where there is no other way."""
        return isinstance(other, CupyEngine) and other.name == self.name

    def copy_from(self, other: Engine, target: View, source: View) -> None:
        """On this device's stream."""
        assert isinstance(other, CupyEngine)
        other.order_behind(self._stream.ptr)
        devices = (self.address(target), self.number, other.address(source), other.number)
        self._checked(self._cupy.cuda.runtime.memcpyPeerAsync, *devices, source.nbytes, self._stream.ptr)
        self.order_behind(other._stream.ptr)

    def read(self, view: View, array: np.ndarray) -> None:
        """On the stream, which is waited for."""
        self._move(array.ctypes.data, self.address(view), array.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost)
        self.finish()

    def write(self, view: View, array: np.ndarray) -> None:
        """On the stream, which is waited for."""
        self._move(self.address(view), array.ctypes.data, array.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice)
        self.finish()

    # ------------------------------------------------------------------ order
    def mark(self) -> Any:
        """An event."""
        with self._device:
            event = self._cupy.cuda.Event(disable_timing=True)
            self._checked(event.record, self._stream)
            return event

    def is_done(self, mark: Any) -> bool:
        """Whether the stream has come to the event."""
        return bool(self._checked(lambda: mark.done))

    def wait(self, mark: Any) -> None:
        """Until the stream has come to the event."""
        self._checked(mark.synchronize)

    def finish(self) -> None:
        """Until the stream is empty."""
        self._checked(self._stream.synchronize)

    # ------------------------------------------------------------------ time
    def stamp(self) -> Any:
        """An event that keeps its time."""
        with self._device:
            event = self._cupy.cuda.Event()
        self._checked(event.record, self._stream)
        return event

    def nanoseconds(self, begin: Any, end: Any) -> float:
        """CUDA counts in milliseconds."""
        return 1e6 * float(self._checked(self._cupy.cuda.get_elapsed_time, begin, end))

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
            raise BufferError(f"DLPack's streams of {self.platform} are none of number {stream!r}")
        if number not in (_NO_STREAM, self._stream.ptr):
            event = self.mark()  # its handle is the driver's until the event goes
            self._checked(self._cupy.cuda.runtime.streamWaitEvent, number, event.ptr)

    def taken(self, value: Any) -> Lent:
        """By DLPack, or by the CUDA array interface of what has no DLPack."""
        if hasattr(value, "__dlpack__"):
            return taken(value, self._stream.ptr)
        lent = borrowed_by_interface(value)
        stream = value.__cuda_array_interface__.get("stream")
        if stream is not None:
            with self._device:
                event = self._cupy.cuda.Event(disable_timing=True)
            self._checked(self._cupy.cuda.runtime.eventRecord, event.ptr, stream)
            self._checked(self._cupy.cuda.runtime.streamWaitEvent, self._stream.ptr, event.ptr)
        return lent

    def borrowed(self, pointer: int) -> Any:
        """The address."""
        return SimpleNamespace(ptr=pointer)

    def number_at(self, pointer: int) -> int:
        """The driver knows; an array without elements may have no address."""
        if not pointer:
            return self.number
        return int(self._checked(self._cupy.cuda.runtime.pointerGetAttributes, pointer).device)
