"""Backends: each compiles LIR plans for one kind of device."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading

from rlx.backends.base import Backend
from rlx.config import config
from rlx.errors import DeviceError
from rlx.forks import reopen_after_fork, unforked
from rlx.interrupts import uninterrupted

__all__ = ["backend_named", "device_names"]

# device name -> module and class; imported on first use
_BACKENDS = {
    "cpu": ("rlx.backends.cpu", "CpuBackend"),
    "mlx": ("rlx.backends.mlx", "MlxBackend"),
    "numba": ("rlx.backends.numba", "NumbaBackend"),
    "reference": ("rlx.backends.reference", "ReferenceBackend"),
}
# device name -> the package that it needs beyond what is installed with rlx
_PACKAGES = {"mlx": "mlx"}
_loaded: dict[str, Backend] = {}
_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])


def device_names() -> list[str]:
    """Names that `device=` and RLX_DEVICE take: of the devices whose packages are installed."""
    return [n for n in _BACKENDS if n not in _PACKAGES or importlib.util.find_spec(_PACKAGES[n]) is not None]


def backend_named(name: str | None) -> Backend:
    """The backend of a device; None means the default device. Raises DeviceError."""
    name = name or config.device
    found = _loaded.get(name)
    if found is not None:
        return found
    if name not in _BACKENDS:
        raise DeviceError(
            f"There is no device {name!r}; this installation has: {', '.join(device_names())}.",
            "Use one of those in jit(device=...), rlx.default_device(...) or RLX_DEVICE.",
        )
    return _load(name)


@uninterrupted
def _load(name: str) -> Backend:
    module, cls = _BACKENDS[name]
    package = _PACKAGES.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise DeviceError(
            f"The device {name!r} needs the package {package}, which is not installed.",
            f"Install it with: pip install 'rlx[{name}]'.",
        )
    with unforked(), _lock:
        if name not in _loaded:
            _loaded[name] = getattr(importlib.import_module(module), cls)()
    return _loaded[name]
