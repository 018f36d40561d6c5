"""rlx.custom_batching: functions and types with custom vmap rules."""

from __future__ import annotations

from rlx.offered_names import offer_names
from rlx.transforms.custom_batching import custom_vmap, sequential_vmap
from rlx.transforms.vmappable import register_vmappable, unregister_vmappable

__all__ = ["custom_vmap", "register_vmappable", "sequential_vmap", "unregister_vmappable"]

offer_names(globals())
