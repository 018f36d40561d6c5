"""jax.extend.backend: the devices of a platform as one object, and the caches of compiled functions (jax-md, brax)."""

from __future__ import annotations

from typing import Any

import rlx
from rlx.array import Device

__all__ = [
    "Backend",
    "backend_xla_version",
    "backends",
    "clear_backends",
    "clear_in_memory_compilation_cache",
    "get_backend",
    "get_default_device",
    "register_backend_cache",
]


class Backend:
    """A platform: its name, and its devices.

    >>> from rlx.jaxnames.backend import get_backend
    >>> get_backend().platform, get_backend().device_count()
    ('cpu', 1)
    """

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.platform_version = f"rlx {rlx.__version__}"
        self.runtime_type = "rlx"

    def devices(self) -> list[Device]:
        """All devices of the platform."""
        return rlx.devices(self.platform)

    def local_devices(self) -> list[Device]:
        """The devices of this process."""
        return rlx.local_devices(backend=self.platform)

    def device_count(self) -> int:
        """The number of devices."""
        return len(self.devices())

    def local_device_count(self) -> int:
        """The number of devices of this process."""
        return len(self.local_devices())

    def process_index(self) -> int:
        """The number of this process."""
        return rlx.process_index()

    def live_arrays(self) -> list[Any]:
        """Live arrays."""
        return rlx.live_arrays(self.platform)

    def __repr__(self) -> str:
        return f"<Backend {self.platform}>"


def get_backend(platform: str | Backend | None = None) -> Backend:
    """The platform of this name, or the default one. Raises DeviceError if there is none."""
    if isinstance(platform, Backend):
        return platform
    return Backend(rlx.devices(platform)[0].platform)


def backends() -> dict[str, Backend]:
    """The platforms of the available devices, by name."""
    return {device.platform: Backend(device.platform) for device in rlx.devices()}


def backend_xla_version(platform: str | None = None) -> int | None:
    """The version of XLA: None, as on every platform without it."""
    return None


def get_default_device() -> Device:
    """The device of operations on NumPy arrays and numbers."""
    return rlx.devices()[0]


def clear_backends() -> None:
    """Clear the caches of compiled functions."""
    rlx.clear_caches()


clear_in_memory_compilation_cache = clear_backends


def register_backend_cache(cache: Any, for_what: str = "") -> None:
    """Accepted: a process's devices do not change, so there is no cache of devices to clear."""
