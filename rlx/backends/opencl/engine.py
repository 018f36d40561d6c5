"""The OpenCL engine: one device with one in-order queue, through pyopencl."""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from rlx.backends.drivers import finish_at_exit
from rlx.backends.gpu.dlpack import KINDS, Lent, taken
from rlx.backends.gpu.engine import Engine, View
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.limits import Limits
from rlx.backends.opencl.clblast import Clblast, chosen
from rlx.errors import DeviceError
from rlx.installation import install_command
from rlx.interrupts import abandonable
from rlx.ir.kernels import Buffer
from rlx.storage import AllocationError

__all__ = ["OpenCLEngine", "devices"]

_SHUFFLES = {"cl_intel_required_subgroup_size", "cl_khr_subgroup_shuffle"}


def _module() -> Any:
    try:
        return importlib.import_module("pyopencl")
    except ImportError:
        raise DeviceError("The device 'opencl' needs the package pyopencl.", install_command("opencl")) from None


def _show_runtime_of_pip() -> None:
    """If the system registers no runtime, point OpenCL's loader to Intel's, if pip has installed it here."""
    runtime = Path(sys.prefix) / "lib" / "libintelocl.so"
    if "OCL_ICD_VENDORS" in os.environ or any(Path("/etc/OpenCL/vendors").glob("*.icd")) or not runtime.exists():
        return
    folder = tempfile.mkdtemp(prefix="rlx-opencl-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / "intel.icd").write_text(f"{runtime}\n", encoding="utf-8")
    os.environ["OCL_ICD_VENDORS"] = folder


def devices() -> list[Any]:
    """The OpenCL devices of this machine, GPUs first. Raises DeviceError if there is none."""
    cl = _module()
    _show_runtime_of_pip()
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:
        found = []
    if not found:
        raise DeviceError(
            "There is no OpenCL device.",
            f"Install an OpenCL runtime: your GPU's driver brings one; for processors, {install_command('opencl-cpu')}"
            " (Intel's), or your system's package of PoCL.",
        )
    return sorted(found, key=lambda device: not device.type & cl.device_type.GPU)


def _items(grid: tuple[int, ...], block: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The global and the local size: OpenCL counts all work-items, and the work-items of a group."""
    sizes = [*zip_longest(grid, block, fillvalue=1)]
    return tuple(n * size for n, size in sizes), tuple(size for _, size in sizes)


class OpenCLEngine(Engine):
    """An OpenCL device."""

    def __init__(self, device: Any, number: int = 0) -> None:
        super().__init__()
        self._cl = _module()
        self.device = device
        self.number = number
        self._context = self._cl.Context([device])
        self._queue = self._cl.CommandQueue(self._context)
        self._copies = self._cl.CommandQueue(self._context)
        finish_at_exit(self, OpenCLEngine.finish)
        most = 1 << (device.max_work_group_size.bit_length() - 1)  # reductions halve groups repeatedly
        least = Limits()
        units = 2 * device.max_compute_units
        self.has_doubles = bool(device.double_fp_config)
        self.shuffles = _SHUFFLES <= set(device.extensions.split())
        # a processor has caches for its rows, and takes seconds to compile unrolled loops
        held = 0 if device.type & self._cl.device_type.CPU else least.held
        self.limits = replace(
            least, group=min(least.group, most), large_group=min(least.large_group, most),
            units=min(least.units, units), held=held,
        )  # fmt: skip
        self.has_clblast = chosen(bool(device.type & self._cl.device_type.GPU))
        self._clblast = Clblast(self._clear)

    @property
    def hardware(self) -> str:
        """The names of the device and its driver."""
        return f"{self.device.name} {self.device.driver_version}"

    def capacity(self) -> int | None:
        """The bytes of the device's memory."""
        return int(self.device.global_mem_size)

    def count(self) -> int:
        """The number of devices of all platforms."""
        return len(devices())

    def kernels(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """As other devices; compilers print messages on success. Filters of warnings are the process's: threads that
        compile do not change them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._cl.CompilerWarning)
            return super().kernels(sources)

    def compile(self, source: str) -> Any:
        """A program, built by the device's compiler."""
        program = self._cl.Program(self._context, source)
        try:
            return program.build(options=["-cl-std=CL3.0" if self.shuffles else "-cl-std=CL1.2"], cache_dir=False)
        except self._cl.RuntimeError as error:
            raise DeviceError(
                f"The OpenCL compiler of {self.device.name} refused a kernel: {error}",
                "Please report it with the program; the CPU runs it: rlx.default_device('cpu').",
            ) from None

    def load(self, code: Any, name: str) -> Any:
        """A kernel of a program."""
        return self._cl.Kernel(code, name)

    def launch(self, prepared: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Each array is passed as a buffer and an offset."""
        kernel, numbers = prepared
        arguments: list[Any] = []
        for view in views:
            arguments += [view.memory, np.int64(view.start)]
        kernel(self._queue, *_items(grid, block), *arguments, *numbers)

    def resident(self, kernel: Any, items: int) -> int:
        """`limits.together`: OpenCL guarantees none, so that this is 0 unless a test sets it."""
        return self.limits.together

    def launch_together(self, prepared: Any, views: Sequence[View], groups: int, items: int) -> None:
        """An ordinary launch."""
        self.launch(prepared, views, (groups,), (items,))

    def multiply(self, product: LibraryProduct, memory: Mapping[Buffer, View]) -> None:
        """CLBlast."""
        kernel = product.contract
        views = (memory[operand.buffer] for operand in (kernel.lhs, kernel.rhs, kernel.out))
        self._clblast.multiply(self._queue.int_ptr, kernel, *views)

    def _clear(self, memory: Any, start: int, nbytes: int) -> None:
        """Queue a fill with zeros."""
        self._cl.enqueue_fill_buffer(self._queue, memory, np.zeros(1, np.uint32), start, nbytes)

    def call(self, kernel: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Each array is passed as a buffer."""
        assert not any(view.start for view in views)
        kernel(self._queue, *_items(grid, block), *(view.memory for view in views))

    def allocate(self, nbytes: int) -> View:
        """A new buffer."""
        try:
            return View(self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, nbytes), 0, nbytes)
        except self._cl.Error:  # too large for one buffer, or for the device
            raise AllocationError(nbytes) from None

    def address(self, view: View) -> int:
        """The handle of the buffer: OpenCL has no addresses."""
        return view.memory.int_ptr + view.start

    def copy(self, target: View, source: View) -> None:
        """Queue the copy."""
        if source.nbytes and target.nbytes:
            self._cl.enqueue_copy(
                self._queue, target.memory, source.memory,
                byte_count=min(source.nbytes, target.nbytes), src_offset=source.start, dst_offset=target.start,
            )  # fmt: skip

    def read(self, view: View, array: np.ndarray) -> None:
        """Copy, and wait."""
        if array.nbytes:
            self._await(
                self._cl.enqueue_copy(self._queue, array, view.memory, src_offset=view.start, is_blocking=False)
            )

    def download(self, view: View, array: np.ndarray) -> None:
        """Copy in a queue of its own, beside kernels that are queued."""
        if array.nbytes:
            self._await(
                self._cl.enqueue_copy(self._copies, array, view.memory, src_offset=view.start, is_blocking=False)
            )

    def write(self, view: View, array: np.ndarray) -> None:
        """Copy, and wait."""
        if array.nbytes:
            self._await(
                self._cl.enqueue_copy(self._queue, view.memory, array, dst_offset=view.start, is_blocking=False)
            )

    def mark(self) -> Any:
        """A marker in the queue, which is flushed."""
        mark = self._cl.enqueue_marker(self._queue)
        self._queue.flush()
        return mark

    def is_done(self, mark: Any) -> bool:
        """Whether the marker was reached."""
        return mark.command_execution_status <= self._cl.command_execution_status.COMPLETE

    def wait(self, mark: Any) -> None:
        """Wait until the marker is reached."""
        try:
            self._await(mark)
        except self._cl.Error as error:
            raise DeviceError(
                f"{self.device.name} stopped: {error}.", "Arrays on other devices are not affected."
            ) from None

    def finish(self) -> None:
        """Wait until the queue is empty."""
        self._await(self.mark())

    def _await(self, event: Any) -> None:
        """Wait for an event of the queue. Ctrl-C ends the wait, not the work; the process ends after both."""
        if not self.is_done(event):
            abandonable(event.wait)

    # ------------------------------------------------------------------ time
    @contextmanager
    def stamping(self) -> Generator[None]:
        """Use another queue, which records times: the usual queue is faster without."""
        usual = self._queue
        usual.finish()
        self._queue = self._cl.CommandQueue(
            self._context, properties=self._cl.command_queue_properties.PROFILING_ENABLE
        )
        try:
            yield
        finally:
            self._queue.finish()
            self._queue = usual

    def stamp(self) -> Any:
        """A marker."""
        return self._cl.enqueue_marker(self._queue)

    def nanoseconds(self, begin: Any, end: Any) -> float:
        """The time between the ends of two markers."""
        return float(end.profile.end - begin.profile.end)

    # ------------------------------------------------------------------ other libraries
    @property
    def dlpack_device(self) -> tuple[int, int]:
        """kDLOpenCL; the number is rlx's own, since OpenCL has none."""
        return KINDS["opencl"], self.number

    def order_behind(self, stream: Any) -> None:
        """DLPack has no numbers for OpenCL's queues: the host waits."""
        if stream is not None:
            raise BufferError(f"DLPack has no streams for OpenCL: pass None, not {stream!r}")
        self.finish()

    def taken(self, value: Any) -> Lent:
        """Nothing to do: other libraries' memory is ready when they export it."""
        return taken(value, None)

    def borrowed(self, pointer: int) -> Any:
        """The buffer of a handle. Raises BufferError for another context's buffer, which this device cannot read."""
        memory = self._cl.MemoryObject.from_int_ptr(pointer)
        if memory.context != self._context:
            raise BufferError("the buffer belongs to another OpenCL context: copy it through the host, np.asarray(x)")
        return memory
