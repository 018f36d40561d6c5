"""Names of adapters of wgpu: by the interface that they are reached through, or any."""

from __future__ import annotations

from rlx.backends import backend_named
from rlx.backends.base import Backend
from rlx.backends.wgpu.engine import adapters
from rlx.errors import DeviceError

__all__ = ["directx", "gpu", "vulkan", "webgpu"]


def gpu() -> Backend:
    """The first adapter."""
    return backend_named("wgpu")


webgpu = gpu


def _through(interface: str, name: str) -> Backend:
    """The first adapter that is reached through an interface. Raises DeviceError if there is none."""
    numbers = [n for n, a in enumerate(adapters()) if a.info["backend_type"] == interface]
    if not numbers:
        raise DeviceError(f"wgpu finds no adapter of {name} here.", "Use the device 'wgpu': any adapter.")
    return backend_named(f"wgpu:{numbers[0]}")


def vulkan() -> Backend:
    """The first adapter of Vulkan."""
    return _through("Vulkan", "Vulkan")


def directx() -> Backend:
    """The first adapter of DirectX 12."""
    return _through("D3D12", "DirectX 12")
