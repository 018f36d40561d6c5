"""rlx.custom_batching: functions with a rule of their own for vmap."""

from __future__ import annotations

from rlx.transforms.custom_batching import custom_vmap, sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
