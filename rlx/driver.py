"""Devices: their names and aliases, and the registry of backends."""

from __future__ import annotations

from rlx.backends import device_names, meant_device, register_backend
from rlx.call.device import default_device, devices
from rlx.offered_names import offer_names
from rlx.placement.estimate import usable_devices
from rlx.storage import Device

__all__ = [
    "Device",
    "default_device",
    "device_names",
    "devices",
    "meant_device",
    "register_backend",
    "usable_devices",
]

offer_names(globals())
