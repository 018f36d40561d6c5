"""Backends: each compiles LIR plans for one kind of device."""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.metadata import entry_points

from rlx.backends.base import Backend
from rlx.config import computes_on_host, config
from rlx.device_memory import Memory, host_memory
from rlx.errors import DeviceError
from rlx.forks import reopen_after_fork, unforked
from rlx.interrupts import uninterrupted
from rlx.storage import Device

__all__ = [
    "backend_named", "backend_of", "default_devices", "device_named", "device_names", "loaded_backends",
    "memory_named", "register_backend",
]  # fmt: skip

# device name -> module:class, imported on first use
_BACKENDS: dict[str, str | type[Backend]] = {
    "cpu": "rlx.backends.cpu:CpuBackend",
    "c": "rlx.backends.c:CBackend",
    "cuda": "rlx.backends.cuda:CudaBackend",
    "numba": "rlx.backends.numba:NumbaBackend",
    "opencl": "rlx.backends.opencl:OpenCLBackend",
    "reference": "rlx.backends.reference:ReferenceBackend",
    "rocm": "rlx.backends.rocm:RocmBackend",
}
_loaded: dict[str, Backend] = {}
_lock = threading.RLock()
reopen_after_fork(sys.modules[__name__])
_GROUP = "rlx.backends"  # of entry points, by which installed packages add backends: name = module:class


def register_backend(name: str, backend: str | type[Backend]) -> None:
    """Add a backend: its device is then known by `name` to jit(device=), rlx.devices, rlx.device_put and RLX_DEVICE.

    Args: backend: its class, or where that is, "module:class", which is imported when the device is first asked for.
      A package that is installed need not call this: an entry point of the group "rlx.backends" does the same.

    Raises: DeviceError if there is another backend of this name.

    >>> from rlx.backends import register_backend
    >>> register_backend("reference", "rlx.backends.reference:ReferenceBackend")
    """
    with _lock:
        if _BACKENDS.setdefault(name, backend) != backend:
            raise DeviceError(f"There is a device {name!r} already: {_BACKENDS[name]}.", "Give it another name.")


def device_names() -> list[str]:
    """Names that `device=` and RLX_DEVICE take."""
    return list(_BACKENDS)


def backend_named(name: str | None) -> Backend:
    """The backend of a device; None means the default device. Raises DeviceError."""
    name = name or config.device
    found = _loaded.get(name)
    if found is not None:
        return found
    if name not in _BACKENDS:
        for point in entry_points(group=_GROUP):
            register_backend(point.name, point.value)
    if name not in _BACKENDS:
        raise DeviceError(
            f"There is no device {name!r}; this installation has: {', '.join(_BACKENDS)}.",
            "Use one of those in jit(device=...), rlx.default_device(...) or RLX_DEVICE.",
        )
    backend = _load(name)
    if backend.memory.host:
        computes_on_host(name)
    return backend


@uninterrupted
def _load(name: str) -> Backend:
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
    # that of the CPU is known without its compiler
    return host_memory if (name or config.device) == "cpu" else backend_named(name).memory


def loaded_backends() -> list[Backend]:
    """The backends that something has run on."""
    return list(_loaded.values())


def default_devices() -> list[Device]:
    """The devices that programs run on and arrays are made on where nobody says otherwise: one."""
    return [memory_named(None).device]


def device_named(device: str | Device) -> Device:
    """A device by its name, such as "cpu" or "cpu:0". Raises DeviceError if there is none."""
    text = device if isinstance(device, str) else f"{device.platform}:{device.id}"
    platform, _, number = text.partition(":")
    if number not in ("", "0"):
        raise DeviceError(f"There is no device {text!r}.", f"{platform} has one, of number 0.")
    memory_named(platform)
    return Device(platform)


def backend_of(memory: Memory) -> Backend:
    """The backend that computes on a memory: the default device's, if it is one of them."""
    default = backend_named(None)
    return default if default.memory is memory else backend_named(memory.device.platform)
