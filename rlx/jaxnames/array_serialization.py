"""jax.experimental.array_serialization.serialization: arrays on disk in pieces of several hosts (flax, orbax).

flax and orbax import the names; for arrays of one process they write and read by themselves.
"""

from __future__ import annotations

from typing import Any

from rlx.errors import UnsupportedError

__all__ = ["GlobalAsyncCheckpointManager", "GlobalAsyncCheckpointManagerBase", "get_tensorstore_spec"]


def _refuse(*_: Any, **__: Any) -> Any:
    raise UnsupportedError(
        "jax.experimental.array_serialization is not part of rlx.",
        "Write arrays of one process with orbax.checkpoint, flax.serialization or rlx.save.",
    )


class GlobalAsyncCheckpointManagerBase:
    """What manages checkpoints of several hosts."""


class GlobalAsyncCheckpointManager(GlobalAsyncCheckpointManagerBase):
    """As its base; refuses to be made."""

    __new__ = _refuse


get_tensorstore_spec = _refuse
