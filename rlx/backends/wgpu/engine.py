"""The engine of wgpu: one adapter, one queue, through wgpu-py. Launches are encoded, and submitted many at a time."""

from __future__ import annotations

import importlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlx.backends.drivers import finish_at_exit
from rlx.backends.gpu.batched_calls import BatchedCall
from rlx.backends.gpu.dlpack import Lent
from rlx.backends.gpu.engine import Engine, View, is_present
from rlx.backends.gpu.limits import Limits
from rlx.backends.wgpu.dialect import WgslDialect
from rlx.backends.wgpu.helpers import Features
from rlx.backends.wgpu.memory_text import KernelModule, Windows, modules_of
from rlx.errors import DeviceError
from rlx.forks import cached_property
from rlx.installation import install_command
from rlx.interrupts import abandonable
from rlx.ir.user_functions import KernelCall
from rlx.storage import AllocationError

__all__ = ["LIMITS", "WgpuEngine", "adapters", "grid_of_groups"]

# WebGPU guarantees these sizes; loads are of words
LIMITS = Limits(vector_points=1 << 62, group_bytes=16 << 10, held_bytes=128, large_group=0, wide=False)
_MOST_GROUPS = 65535  # along a dimension
_LLVMPIPE_TURNS = 60000  # Mesa's llvmpipe ends all loops of a launch after 65535 iterations, silently
_WINDOW_UNIT = 256  # the largest min-storage-buffer-offset-alignment
_BATCH = 64  # launches that are submitted at once
_MOST_PIPELINES = 1024  # that are kept for later programs
_MOST_LAUNCHES = 4096  # whose sizes and bindings are kept
_LONGS, _DOUBLES, _STAMPS = ("shader-int64", "shader-int64-atomic-all-ops"), "shader-f64", "timestamp-query"
_SIZES = (
    "max-storage-buffer-binding-size", "max-buffer-size", "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size", "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x",
)  # fmt: skip
_PROBE = """@group(0) @binding(1) var<storage, read_write> memory: array<u32>;
@compute @workgroup_size(1) fn probe() {
    let x = bitcast<f32>(memory[0]);
    memory[1] = bitcast<u32>(fma(x, x, -1.0f));
}
"""
_HELP = "Please report it with the program; the CPU runs it: rlx.default_device('cpu')."
_YOURS = (
    "Outputs, then inputs, are the bindings 0, 1, ... of group 0: @group(0) @binding(0) var<storage, read_write> y:"
    " array<f32>, and var<storage, read> for inputs."
)
_COPY = "// kernel copy: to given\n// code\n" + "\n".join([
    "@compute @workgroup_size(64)",
    "fn copy(@builtin(global_invocation_id) place: vec3<u32>) {",
    "    if (place.x < launch[0].x) { to_put8(launch[0].y + place.x, given_get8(launch[0].z + place.x)); }",
    "}",
])  # fmt: skip


def _module() -> Any:
    try:
        return importlib.import_module("wgpu")
    except ImportError:
        raise DeviceError("The device 'wgpu' needs the package wgpu.", install_command("wgpu")) from None


def adapters() -> list[Any]:
    """The adapters of this machine that compute, GPUs first. Raises DeviceError if there is none."""
    found = [a for a in _module().gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]
    if not found:
        raise DeviceError(
            "wgpu finds no adapter here.",
            "Install the driver of your GPU (for Vulkan, Metal or DirectX 12), or a Vulkan driver for processors"
            " (Debian: apt install mesa-vulkan-drivers).",
        )
    return sorted(found, key=lambda adapter: adapter.info["adapter_type"] == "CPU")


def grid_of_groups(groups: int) -> tuple[int, int]:
    """The grid of this many groups: beyond 65535, they continue along a second dimension, the last row in excess."""
    across = max(1, min(groups, _MOST_GROUPS))
    return across, -(-groups // across)


@dataclass(slots=True)
class _WgpuKernel:
    """A kernel: its module, and its pipelines by how its arrays share memory and by the windows of each memory."""

    module: KernelModule
    pipelines: dict[tuple[tuple[int, ...], tuple[int, ...]], Any] = field(default_factory=dict)
    bound: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _UserKernel:
    """A user's kernel: its pipeline, the layout of its bindings, and their sizes in bytes."""

    pipeline: Any
    layout: Any
    sizes: Sequence[int]


def _kinds(memories: int) -> list[str]:
    """The bindings of rlx's kernels: the sizes of a launch, and as many buffers."""
    return ["uniform", *["storage"] * memories]


class WgpuEngine(Engine):
    """An adapter. It is not accessed before a program runs: programs can be shown without one."""

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number
        self._own_limits: Limits | None = None
        self._numbers = itertools.count(1)
        self._buffers: dict[int, int] = {}
        self._encoder: Any = None
        self._pass: Any = None
        self._queued = self._submitted = self._over = 0
        self._waiting: threading.Thread | None = None
        self._copied = _WgpuKernel(KernelModule.read(_COPY))
        self._launch_buffers: dict[bytes, Any] = {}
        self._layouts: dict[tuple[str, ...], Any] = {}
        self._pipelines: dict[tuple[str, str, int], Any] = {}  # by text, name and layout

    # ------------------------------------------------------------------ the device
    @cached_property
    def _adapter(self) -> Any:
        return adapters()[self.number]

    @property
    def present(self) -> bool:
        """Whether there is an adapter."""
        return is_present(lambda: self._adapter)

    def count(self) -> int:
        """The number of adapters."""
        return len(adapters()) if self.present else 0

    @property
    def named(self) -> str:
        """The adapter's name."""
        return self._adapter.info["device"]

    @cached_property
    def _device(self) -> Any:
        features = [f for f in (*_LONGS, _DOUBLES, _STAMPS) if f in self._adapter.features]
        limits = {name: self._adapter.limits[name] for name in _SIZES} | {_SIZES[0]: self.window}
        device = self._adapter.request_device_sync(required_features=features, required_limits=limits)
        finish_at_exit(self, WgpuEngine.finish)
        return device

    @cached_property
    def window(self) -> int:
        """The bytes that are bound at once: larger buffers are bound as windows, one after another."""
        return self._adapter.limits[_SIZES[0]] // _WINDOW_UNIT * _WINDOW_UNIT

    @property
    def limits(self) -> Limits:
        """The limits: of WebGPU, and more memory of a group if the adapter has it."""
        if self._own_limits is None and self.present:
            sizes = self._adapter.limits
            group = min(LIMITS.group, sizes["max-compute-invocations-per-workgroup"])
            held = 0 if self._adapter.info["adapter_type"] == "CPU" else LIMITS.held
            turns = _LLVMPIPE_TURNS if self._adapter.info["device"].startswith("llvmpipe") else 0
            self._own_limits = replace(
                LIMITS, group=group, group_bytes=sizes["max-compute-workgroup-storage-size"], held=held, turns=turns
            )
        return self._own_limits or LIMITS

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._own_limits = limits

    @cached_property
    def features(self) -> Features:
        """What the adapter has beyond WGSL; what its `fma` rounds is measured."""
        if not self.present:
            return Features()
        known = self._adapter.features
        longs = all(name in known for name in _LONGS)
        return Features(longs, longs and _DOUBLES in known, self._is_fused())

    def _is_fused(self) -> bool:
        """Whether (1 + 2^-12)^2 - 1 keeps its last part."""
        pipeline = self._pipeline(_PROBE, "probe", self._layout(_kinds(1)))
        x = np.array([1 + 2.0**-12, 0], np.float32)
        view = self.allocate(x.nbytes)
        self.write(view, x.view(np.uint8))
        group = self._group([view.memory], self._launch_buffer(bytes(16)))
        self._dispatch(pipeline, group, (1, 1))
        self.read(view.part(0, x.nbytes), x.view(np.uint8))
        return float(x[1]) == 2.0**-11 + 2.0**-24

    def _checked(self, action: Callable[[], Any], what: str, hint: str = _HELP) -> Any:
        """The result of a call of wgpu, whose errors become DeviceError."""
        try:
            return action()
        except (_module().GPUError, RuntimeError) as error:
            raise DeviceError(f"wgpu refused {what} on {self.named}: {error}", hint) from None

    # ------------------------------------------------------------------ kernels
    def compile(self, source: str) -> _WgpuKernel:
        """The kernel; its pipelines are made for the memory that its arrays turn out to share."""
        (module,) = modules_of(source)
        return _WgpuKernel(module)

    def load(self, code: _WgpuKernel, name: str) -> _WgpuKernel:
        """The kernel, with its first pipeline: mistakes are found now."""
        count, most = len(code.module.arrays), self._adapter.limits["max-storage-buffers-per-shader-stage"]
        sharing = tuple(range(count)) if count <= most else (0,) * count
        self._pipeline_of(code, sharing, (1,) * len(set(sharing)))
        return code

    def kernels(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """The kernels of a program alone: they keep groups of its buffers."""
        return {name: self.load(self.compile(source), name) for name, source in sources.items()}

    def _pipeline_of(self, kernel: _WgpuKernel, sharing: tuple[int, ...], counts: tuple[int, ...]) -> Any:
        """A kernel's pipeline. counts: the number of windows of each memory."""
        key = sharing, counts
        if key not in kernel.pipelines:
            bindings, most = sum(counts), self._adapter.limits["max-storage-buffers-per-shader-stage"]
            if bindings > most:
                raise DeviceError(
                    f"The kernel {kernel.module.name!r} needs {bindings} bindings of at most {self.window:,} bytes for"
                    f" its arrays; the adapter has {most} (max-storage-buffers-per-shader-stage).",
                    "Compute less at once, or on another device.",
                )
            windows = Windows(self.window, counts) if bindings > len(counts) else None
            text = WgslDialect(self.features).declared(kernel.module, sharing, windows)
            kernel.pipelines[key] = self._pipeline(text, kernel.module.name, self._layout(_kinds(bindings)))
        return kernel.pipelines[key]

    def _pipeline(self, text: str, name: str, layout: Any, hint: str = _HELP) -> Any:
        """The pipeline of an entry point: programs with equal kernels share it."""

        def make() -> Any:
            module = self._device.create_shader_module(label=name, code=text)
            layouts = self._device.create_pipeline_layout(bind_group_layouts=[layout])
            return self._device.create_compute_pipeline(
                label=name, layout=layouts, compute={"module": module, "entry_point": name}
            )

        key = text, name, id(layout)
        found = self._pipelines.pop(key, None) or self._checked(make, f"the kernel {name!r}", hint)
        self._pipelines[key] = found
        while len(self._pipelines) > _MOST_PIPELINES:
            self._pipelines.pop(next(iter(self._pipelines)), None)
        return found

    def _layout(self, kinds: Sequence[str]) -> Any:
        """The layout of bindings of these kinds."""
        if tuple(kinds) not in self._layouts:
            visible = _module().ShaderStage.COMPUTE
            entries = [{"binding": n, "visibility": visible, "buffer": {"type": kind}} for n, kind in enumerate(kinds)]
            self._layouts[tuple(kinds)] = self._device.create_bind_group_layout(entries=entries)
        return self._layouts[tuple(kinds)]

    def _group(self, buffers: Sequence[Any], launch: Any) -> Any:
        """The bindings of a launch: its sizes, then the windows of each buffer."""
        resources = [{"buffer": launch}]
        for buffer in buffers:
            starts = range(0, buffer.size, self.window)
            resources += [{"buffer": buffer, "offset": at, "size": min(self.window, buffer.size - at)} for at in starts]
        entries = [{"binding": n, "resource": resource} for n, resource in enumerate(resources)]
        return self._device.create_bind_group(layout=self._layout(_kinds(len(entries) - 1)), entries=entries)

    def launch(self, prepared: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Encode a dispatch."""
        kernel, _ = prepared
        del block
        groups = grid[0]
        self._launch(kernel, views, [groups, *(view.start for view in views)], grid_of_groups(groups))

    def _launch(self, kernel: _WgpuKernel, views: Sequence[View], sizes: Sequence[int], grid: tuple[int, int]) -> None:
        memories = list(dict.fromkeys(id(view.memory) for view in views))
        sharing = tuple(memories.index(id(view.memory)) for view in views)
        words = np.array([*sizes, *[0] * (-len(sizes) % 4)], np.uint32).tobytes()
        key = (sharing, words, tuple(memories))
        if key not in kernel.bound:
            if len(kernel.bound) >= _MOST_LAUNCHES:
                kernel.bound.clear()
            buffers = list({id(view.memory): view.memory for view in views}.values())
            pipeline = self._pipeline_of(kernel, sharing, tuple(-(-b.size // self.window) for b in buffers))
            group = self._checked(
                lambda: self._group(buffers, self._launch_buffer(words)), f"arrays of {kernel.module.name!r}"
            )
            kernel.bound[key] = pipeline, group, buffers
        pipeline, group, _ = kernel.bound[key]
        self._dispatch(pipeline, group, grid)

    def _launch_buffer(self, words: bytes) -> Any:
        """A buffer with the sizes of a launch, which never changes: launches of a batch run after all writes."""
        if words not in self._launch_buffers:
            if len(self._launch_buffers) >= _MOST_LAUNCHES:
                self._launch_buffers.clear()
            usage = _module().BufferUsage.UNIFORM
            self._launch_buffers[words] = self._device.create_buffer_with_data(data=words, usage=usage)
        return self._launch_buffers[words]

    def _dispatch(self, pipeline: Any, group: Any, grid: tuple[int, ...]) -> None:
        if self._pass is None:
            self._pass = self._encoding().begin_compute_pass()
        self._pass.set_pipeline(pipeline)
        self._pass.set_bind_group(0, group)
        self._pass.dispatch_workgroups(*grid)
        self._count()

    def _encoding(self) -> Any:
        if self._encoder is None:
            self._encoder = self._device.create_command_encoder()
        return self._encoder

    def _count(self) -> None:
        self._queued += 1
        if self._queued >= _BATCH:
            self._submit()

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.end()
            self._pass = None

    def _submit(self) -> None:
        """Submit the encoded work."""
        self._end_pass()
        if self._encoder is not None:
            encoder, self._encoder, self._queued = self._encoder, None, 0
            self._submitted += 1
            self._checked(lambda: self._device.queue.submit([encoder.finish()]), "a batch of launches")

    def compile_call(self, call: KernelCall | BatchedCall) -> Any:
        """A user's kernel: its outputs, then its inputs, are bindings."""
        assert isinstance(call, KernelCall)
        kinds = [*["storage"] * len(call.outputs), *["read-only-storage"] * len(call.inputs)]
        sizes = [max(4, -(-t.size * t.dtype.itemsize // 4) * 4) for t in (*call.outputs, *call.inputs)]
        layout = self._layout(kinds)
        return _UserKernel(self._pipeline(call.source, call.name, layout, _YOURS), layout, sizes)

    def call(self, kernel: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Encode a dispatch; each array is a binding of its own."""
        del block
        entries = [
            {"binding": n, "resource": {"buffer": view.memory, "offset": view.start, "size": size}}
            for n, (view, size) in enumerate(zip(views, kernel.sizes, strict=True))
        ]
        group = self._checked(
            lambda: self._device.create_bind_group(layout=kernel.layout, entries=entries), "a kernel's arrays", _YOURS
        )
        self._dispatch(kernel.pipeline, group, grid)

    # ------------------------------------------------------------------ memory
    def allocate(self, nbytes: int) -> View:
        """A new buffer. Raises DeviceError if it is larger than the adapter allows."""
        most = self._adapter.limits["max-buffer-size"]
        if nbytes > most:
            raise DeviceError(
                f"An array or a program's memory of {nbytes:,} bytes is larger than {most:,}, the adapter's"
                " max-buffer-size.", "Compute less at once, or on another device.",
            )  # fmt: skip
        usage = _module().BufferUsage
        try:
            buffer = self._device.create_buffer(size=nbytes, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        except _module().GPUError:
            raise AllocationError(nbytes) from None
        self._buffers[id(buffer)] = next(self._numbers) << 32
        return View(buffer, 0, nbytes)

    def address(self, view: View) -> int:
        """A number that no other byte of the device has: wgpu has no addresses."""
        return self._buffers[id(view.memory)] + view.start

    def copy(self, target: View, source: View) -> None:
        """Encode the copy: by a kernel within a buffer, or if places or sizes are not whole words."""
        nbytes = min(source.nbytes, target.nbytes)
        if not nbytes:
            return
        if source.memory is target.memory or (source.start | target.start | nbytes) % 4:
            for at in range(0, nbytes, _MOST_GROUPS * 64):
                part = min(nbytes - at, _MOST_GROUPS * 64)
                sizes = [part, target.start + at, source.start + at]
                self._launch(self._copied, [target, source], sizes, (-(-part // 64), 1))
            return
        self._end_pass()
        self._encoding().copy_buffer_to_buffer(source.memory, source.start, target.memory, target.start, nbytes)
        self._count()

    def read(self, view: View, array: np.ndarray) -> None:
        """Submit, copy whole words, and wait."""
        if not array.nbytes:
            return
        self._submit()
        first, last = view.start // 4 * 4, -(-(view.start + array.nbytes) // 4) * 4
        words = self._checked(
            lambda: self._device.queue.read_buffer(view.memory, first, last - first), "to read an array"
        )
        array[:] = np.frombuffer(words, np.uint8)[view.start - first :][: array.nbytes]

    def write(self, view: View, array: np.ndarray) -> None:
        """Submit earlier work, then copy; words that belong to others in part are read first."""
        if not array.nbytes:
            return
        first, last = view.start // 4 * 4, -(-(view.start + array.nbytes) // 4) * 4
        if last - first != array.nbytes:
            whole = np.empty(last - first, np.uint8)
            self.read(View(view.memory, first, last - first), whole)
            whole[view.start - first :][: array.nbytes] = array
            array = whole
        self._submit()
        self._checked(lambda: self._device.queue.write_buffer(view.memory, first, array), "an array")

    # ------------------------------------------------------------------ time
    def mark(self) -> int:
        """The number of batches submitted so far."""
        self._submit()
        return self._submitted

    def is_done(self, mark: int) -> bool:
        """Whether a batch is over: a thread waits for it, since wgpu-py has no question that does not wait."""
        if mark > self._over and (self._waiting is None or not self._waiting.is_alive()):
            self._waiting = threading.Thread(target=self._await, args=(self._end(), self._submitted), daemon=True)
            self._waiting.start()
        return mark <= self._over

    def wait(self, mark: int) -> None:
        """Wait for a batch, and those submitted after it."""
        if mark > self._over:
            number = self._submitted
            self._checked(lambda: abandonable(lambda: self._await(self._end(), number)), "to wait for its work")

    def _end(self) -> Any:
        """A promise that wgpu keeps when all submitted work is over: it maps a buffer that the last work writes."""
        usage = _module().BufferUsage
        last = self._device.create_buffer(size=4, usage=usage.MAP_READ | usage.COPY_DST)
        encoder = self._device.create_command_encoder()
        encoder.clear_buffer(last)
        self._device.queue.submit([encoder.finish()])
        return last.map_async("READ")

    def _await(self, end: Any, number: int) -> None:
        end.sync_wait()
        self._over = max(self._over, number)

    def finish(self) -> None:
        """Wait for all work."""
        if "_device" in self.__dict__:
            self.wait(self.mark())

    def stamp(self) -> Any:
        """A pass that does nothing but write the time, and a buffer for it."""
        if _STAMPS not in self._adapter.features:
            raise DeviceError(f"{self.named} has no clock that kernels can be timed by ({_STAMPS}).")
        usage = _module().BufferUsage
        times = self._device.create_query_set(type="timestamp", count=1)
        buffer = self._device.create_buffer(size=256, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        self._end_pass()
        encoder = self._encoding()
        encoder.begin_compute_pass(timestamp_writes={"query_set": times, "beginning_of_pass_write_index": 0}).end()
        encoder.resolve_query_set(times, 0, 1, buffer, 0)
        self._count()
        return buffer

    def nanoseconds(self, begin: Any, end: Any) -> float:
        """The time between two passes, in the units of the queue."""
        first, last = (int(np.frombuffer(self._device.queue.read_buffer(b, 0, 8), np.uint64)[0]) for b in (begin, end))
        native = importlib.import_module("wgpu.backends.wgpu_native")  # WebGPU's units are nanoseconds
        return float(last - first) * native.lib.wgpuQueueGetTimestampPeriod(self._device.queue._internal)

    # ------------------------------------------------------------------ other libraries
    @property
    def dlpack_device(self) -> tuple[int, int]:
        """kDLWebGPU, as which no library takes memory of wgpu."""
        return 15, self.number

    def order_behind(self, stream: Any) -> None:
        """Raises BufferError."""
        raise BufferError("other libraries cannot read the memory of wgpu: copy it through the host, np.asarray(x)")

    def taken(self, value: Any) -> Lent:
        """Raises BufferError."""
        raise BufferError("wgpu cannot read the memory of other libraries: copy it through the host, np.asarray(x)")

    def borrowed(self, pointer: int) -> Any:
        """Raises BufferError."""
        raise BufferError("wgpu cannot read the memory of other libraries")
