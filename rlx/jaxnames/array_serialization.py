"""jax.experimental.array_serialization.serialization: arrays on disk in parts from several hosts (flax, orbax).

flax and orbax import the names; they write and read arrays of one process themselves.
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
    """A manager of checkpoints from several hosts."""


class GlobalAsyncCheckpointManager(GlobalAsyncCheckpointManagerBase):
    """As its base; cannot be instantiated."""

    __new__ = _refuse


get_tensorstore_spec = _refuse
