"""Backends: each compiles LIR plans for one kind of device."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from rlx.config import computes_on_host, config, settled
from rlx.device_memory import Memory, host_memory
from rlx.errors import DeviceError
from rlx.forks import reopen_after_fork, unforked
from rlx.installation import install_command
from rlx.interrupts import uninterrupted
from rlx.ir.collectives import communicator
from rlx.storage import Device

if TYPE_CHECKING:
    from rlx.backends.base import Backend

__all__ = [
    "backend_named", "backend_of", "default_devices", "device_named", "device_names", "loaded_backends", "meant_device",
    "memories",
    "devices_of", "memory_named", "memory_of_foreign", "own_devices", "register_backend",
]  # fmt: skip

# device name -> module:class, imported on first use
_BACKENDS: dict[str, str | Callable[[], Backend]] = {
    "cpu": "rlx.backends.cpu:CpuBackend",
    "c": "rlx.backends.c:CBackend",
    "cuda": "rlx.backends.cuda:CudaBackend",
    "mlx": "rlx.backends.mlx:MlxBackend",
    "numba": "rlx.backends.numba:NumbaBackend",
    "opencl": "rlx.backends.opencl:OpenCLBackend",
    "reference": "rlx.backends.reference:ReferenceBackend",
    "rocm": "rlx.backends.rocm:RocmBackend",
    "tpu": "rlx.xla:tpu_backend",
    "wgpu": "rlx.backends.wgpu:WgpuBackend",
    "gpu": "rlx.backends.wgpu.names:gpu",
    "vulkan": "rlx.backends.wgpu.names:vulkan",
    "webgpu": "rlx.backends.wgpu.names:webgpu",
    "directx": "rlx.backends.wgpu.names:directx",
    "xla": "rlx.xla:XlaBackend",
}
# other names of devices, and names of hardware that rlx has no backend for, with the device that comes closest
_ALIASES = {"metal": "mlx"}
_ABSENT = {
    "ane": "Apple's Neural Engine has no public compiler: use the GPU, device 'mlx'.",
    "coreml": "Use the GPU of a Mac, device 'mlx'.",
    "opengl": "Use 'opencl' or 'gpu' for such GPUs.",
    "fpga": "Export a circuit for it instead: rlx.fpga.export.",
    "cortexm": "Export firmware for it instead: rlx.cortexm.export.",
}
_SECOND_NAMES = frozenset(("gpu", "vulkan", "webgpu", "directx"))
# device name -> the package that it needs in addition to those installed with rlx
_PACKAGES = {"mlx": "mlx"}
# module that arrays of another library are defined in -> the device of their memory
_FOREIGN = {"mlx.core": "mlx"}
_OF_DLPACK = {2: "cuda", 4: "opencl", 10: "rocm", 13: "cuda"}  # by DLPack's device type; 13: CUDA's managed memory
_DEVICE_OPTIONS = "Use one of these in jit(device=...), rlx.default_device(...) or RLX_DEVICE."
_GPUS = "A GPU is named by its library: 'cuda' (NVIDIA), 'rocm' (AMD), 'mlx' (Apple) or 'opencl'."
_MORE_DEVICES = "Set RLX_NUM_CPU_DEVICES, or use one of rlx.devices()."
_loaded: dict[str, Backend] = {}
_lock = threading.RLock()
reopen_after_fork(sys.modules[__name__])
_GROUP = "rlx.backends"  # the entry points with which installed packages add backends: name = module:class


def register_backend(name: str, backend: str | Callable[[], Backend]) -> None:
    """Add a backend: its device is then known by `name` to jit(device=), rlx.devices, rlx.device_put and RLX_DEVICE.

    Args: backend: its class, or "module:class", which is imported when the device is first used. A function that
        returns a backend of another name makes a second name of that device.
      An installed package need not call this: an entry point of the group "rlx.backends" does the same.

    Raises: DeviceError if there is another backend of this name.

    >>> from rlx.backends import register_backend
    >>> register_backend("reference", "rlx.backends.reference:ReferenceBackend")
    """
    with _lock:
        if _BACKENDS.setdefault(name, backend) != backend:
            raise DeviceError(f"There is a device {name!r} already: {_BACKENDS[name]}.", "Give it another name.")


def device_names() -> list[str]:
    """The names of devices for `device=` and RLX_DEVICE, without second names of one device.

    >>> from rlx.backends import device_names
    >>> "cpu" in device_names()
    True
    """
    return [name for name in _BACKENDS if name not in _SECOND_NAMES]


def meant_device(name: str) -> str:
    """The device that an alias means ("metal" is "mlx"); another name itself.

    >>> from rlx.backends import meant_device
    >>> meant_device("metal"), meant_device("cpu")
    ('mlx', 'cpu')
    """
    platform, colon, unit = name.partition(":")
    return f"{_ALIASES[platform]}{colon}{unit}" if platform in _ALIASES and platform not in _BACKENDS else name


def backend_named(name: str | None) -> Backend:
    """The backend of a device; None means the default device. Raises DeviceError."""
    name = name or config.device
    found = _loaded.get(name)
    if found is not None:
        return found
    name = meant_device(name)
    platform = name.partition(":")[0]
    if platform not in _BACKENDS:
        from importlib.metadata import entry_points  # a tenth of the time of `import rlx`

        for point in entry_points(group=_GROUP):
            register_backend(point.name, point.value)
    if platform in _ABSENT and platform not in _BACKENDS:
        raise DeviceError(f"rlx has no backend for {platform!r}.", _ABSENT[platform])
    if platform not in _BACKENDS:
        raise DeviceError(
            f"There is no device {name!r}; rlx has backends for: {', '.join(device_names())}.",
            (_GPUS if platform == "gpu" else _DEVICE_OPTIONS)
            + " The command rlx info says which are usable on this machine.",
        )
    backend = _load(name)
    if backend.memory.host:
        computes_on_host(name)
    return backend


@uninterrupted
def _load(name: str) -> Backend:
    platform, _, unit = name.partition(":")
    if unit:
        with _lock:
            _loaded[name] = backend_named(platform).on(unit)
        return _loaded[name]
    package = _PACKAGES.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise DeviceError(
            f"The device {name!r} needs the package {package}, which is not installed.",
            f"Install it with: {install_command(name)}",
        )
    with unforked(), _lock:
        if name not in _loaded:
            found = _BACKENDS[name]
            if isinstance(found, str):
                module, _, cls = found.partition(":")
                found = getattr(importlib.import_module(module), cls)
            _loaded[name] = found()
    return _loaded[name]


def memory_named(name: str | None) -> Memory:
    """The memory of a device; None means the default device. Raises DeviceError."""
    # the CPU's memory is known without its compiler
    return host_memory if (name or config.device) == "cpu" else backend_named(name).memory


def memory_of_foreign(value: object) -> Memory | None:
    """The memory of the device that holds an array of another library; None if it is not such an array."""
    device = _FOREIGN.get(type(value).__module__)
    if device is not None:
        return memory_named(device) if type(value).__name__ == "array" else None
    if hasattr(value, "__dlpack_device__"):
        kind, number = _place_by_dlpack(value)
        return memory_named(f"{_OF_DLPACK[kind]}:{number}") if kind in _OF_DLPACK else None
    described = getattr(value, "__cuda_array_interface__", None)
    if described is None:
        return None
    return memory_named(f"cuda:{memory_named('cuda').number_at(described['data'][0])}")


def _place_by_dlpack(value: Any) -> tuple[int, int]:
    """DLPack's (device type, device number); the host's if the array does not report it, for NumPy to try."""
    try:
        kind, number = value.__dlpack_device__()
    except (BufferError, TypeError, ValueError):
        return (1, 0)
    return int(kind), number


def memories() -> list[Memory]:
    """The memories of the devices that were used, or whose package is installed."""
    installed = [name for name, package in _PACKAGES.items() if importlib.util.find_spec(package) is not None]
    names = dict.fromkeys((*_loaded, *installed))
    return list(dict.fromkeys(memory_named(name) for name in names))


def loaded_backends() -> list[Backend]:
    """The backends that have run something."""
    return list(_loaded.values())


@cache
def cpu_devices() -> tuple[Device, ...]:
    """The CPU's devices: RLX_NUM_CPU_DEVICES of them, with one memory. Raises DeviceError."""
    said = settled("num_cpu_devices")
    if not str(said).isdecimal() or int(said) < 1:
        raise DeviceError(f"RLX_NUM_CPU_DEVICES must be a positive integer, not {said!r}.")
    return tuple(Device("cpu", number) for number in range(int(said)))


def default_devices() -> list[Device]:
    """The devices of all processes on which programs run, and arrays are created, by default."""
    device = memory_named(None).device
    # the CPU's devices stand for those of a mesh that programs are compiled for, but not run on
    several = device.platform == "cpu" or backend_named(None).divides
    return _of_all(list(cpu_devices()) if several else [device])


def devices_of(platform: str | None) -> list[Device]:
    """The devices of a platform in all processes; None means the default platform.

    Raises DeviceError if there is none.
    """
    name = platform or config.device.partition(":")[0]
    if name == "cpu":  # known without its compiler
        return _of_all(list(cpu_devices()))
    units = () if ":" in name else backend_named(name).units
    if units:
        return _of_all([device_named(f"{name}:{unit}") for unit in units])
    return default_devices() if platform is None else _of_all([device_named(platform)])


def own_devices(devices: list[Device]) -> list[Device]:
    """The devices that belong to this process."""
    own = communicator().rank
    return [device for device in devices if device.process_index == own]


def _of_all(devices: list[Device]) -> list[Device]:
    """The devices of all processes, if each has these."""
    processes = communicator().size
    if processes == 1:
        return devices
    return [device.of_process(rank, len(devices)) for rank in range(processes) for device in devices]


def device_named(device: str | Device) -> Device:
    """A device by its name, such as "cpu", "cpu:0" or "mlx:gpu". Raises DeviceError if there is none."""
    if isinstance(device, Device):
        device = device.name if device.unit else f"{device.platform}:{device.id}"
    platform, _, number = device.partition(":")
    if platform == "cpu":
        known = devices_of(platform)
        found = [d for d in known if str(d.id) == number] if number else own_devices(known)
        if not found:
            raise DeviceError(f"There is no device {device!r}: the CPU has {len(known)}.", _MORE_DEVICES)
        if found[0].process_index != communicator().rank:
            what = f"The device {device!r} belongs to process {found[0].process_index}."
            raise DeviceError(what, "Put arrays on one of rlx.local_devices(), or shard them over a mesh.")
        return found[0]
    memory = memory_named(platform if number in ("", "0") else device)
    own = memory.device
    return own if own.unit or platform in _SECOND_NAMES else Device(platform)


def backend_of(memory: Memory) -> Backend:
    """The backend that computes on a memory: the default device's, if it is one of them."""
    default = backend_named(None)
    return default if default.memory is memory else backend_named(memory.device.name)
