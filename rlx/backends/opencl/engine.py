"""OpenCL as an engine: one device, one queue in order, through pyopencl."""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.backends.gpu.engine import Engine, View
from rlx.errors import DeviceError

__all__ = ["OpenCLEngine", "devices"]

_GROUP = 256  # work-items that share a row, where the device has so many
_NONE = (
    "There is no OpenCL device.",
    "Install an OpenCL runtime: your GPU's driver brings one; for processors, pip install 'rlx[opencl-cpu]' (Intel's),"
    " or your system's package of PoCL.",
)


def _module() -> Any:
    try:
        return importlib.import_module("pyopencl")
    except ImportError:
        raise DeviceError("The device 'opencl' needs the package pyopencl.", "pip install 'rlx[opencl]'") from None


def _show_runtime_of_pip() -> None:
    """Where the system registers no runtime, tell OpenCL's loader of Intel's, if pip has installed it here."""
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
        raise DeviceError(*_NONE)
    return sorted(found, key=lambda device: not device.type & cl.device_type.GPU)


class OpenCLEngine(Engine):
    """A device of OpenCL's."""

    def __init__(self, device: Any) -> None:
        self._cl = _module()
        self.device = device
        self._context = self._cl.Context([device])
        self._queue = self._cl.CommandQueue(self._context)
        self.group = min(_GROUP, 1 << (device.max_work_group_size.bit_length() - 1))  # halved again and again

    def compile(self, source: str, names: Sequence[str]) -> dict[str, Any]:
        """Built by the device's own compiler."""
        program = self._cl.Program(self._context, source)
        try:
            with warnings.catch_warnings():  # compilers say that they are done
                warnings.simplefilter("ignore", self._cl.CompilerWarning)
                built = program.build(options=["-cl-std=CL1.2"], cache_dir=False)
        except self._cl.RuntimeError as error:
            raise DeviceError(
                f"The OpenCL compiler of {self.device.name} refused a kernel: {error}",
                "Please report it with the program; the CPU runs it: rlx.default_device('cpu').",
            ) from None
        return {name: self._cl.Kernel(built, name) for name in names}

    def launch(self, kernel: Any, views: Sequence[View], groups: int, items: int) -> None:
        """One dimension of work-items; single items come in groups of the device's choice."""
        arguments: list[Any] = []
        for view in views:
            arguments += [view.memory, np.int64(view.start)]
        kernel(self._queue, (groups * items,), (items,) if items > 1 else None, *arguments)

    def allocate(self, nbytes: int) -> View:
        """A buffer of its own."""
        size = max(nbytes, 1)
        return View(self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size), 0, size)

    def borrow(self, array: np.ndarray) -> View:
        """A buffer over the host's memory, where the device reads that directly."""
        if not array.nbytes:
            return self.allocate(0)
        flags = self._cl.mem_flags.READ_ONLY | self._cl.mem_flags.USE_HOST_PTR
        return View(self._cl.Buffer(self._context, flags, hostbuf=array.view(np.uint8)), 0, array.nbytes)

    def copy(self, target: View, source: View) -> None:
        """Queued."""
        if source.nbytes and target.nbytes:
            self._cl.enqueue_copy(
                self._queue, target.memory, source.memory,
                byte_count=min(source.nbytes, target.nbytes), src_offset=source.start, dst_offset=target.start,
            )  # fmt: skip

    def read(self, view: View, array: np.ndarray) -> None:
        """A copy that is waited for."""
        if array.nbytes:
            self._cl.enqueue_copy(self._queue, array, view.memory, src_offset=view.start, is_blocking=True)

    def write(self, view: View, array: np.ndarray) -> None:
        """A copy that is waited for."""
        if array.nbytes:
            self._cl.enqueue_copy(self._queue, view.memory, array, dst_offset=view.start, is_blocking=True)

    def finish(self) -> None:
        """Until the queue is empty."""
        self._queue.finish()
