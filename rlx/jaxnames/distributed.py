"""Several processes that compute together, as far as there are any: one."""

from __future__ import annotations

from typing import Any

from rlx.errors import ShardingError, UnsupportedError

__all__ = ["initialize", "is_initialized", "shutdown"]

_initialized = False


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: Any = None,
    **options: Any,
) -> None:
    """Take part in a computation of several processes: of one, this.

    Args:
      coordinator_address: where the processes meet; one process does not look there.
      num_processes: how many there are: 1, or None. process_id: the number of this one: 0, or None.
      local_device_ids: numbers of its devices: 0, [0] or None.
      options: further options of jax.distributed.initialize, which are about connections.

    Raises: UnsupportedError for more processes or devices; ShardingError for a process number that there is not.

    >>> import rlx
    >>> rlx.distributed.initialize(num_processes=1, process_id=0)
    >>> rlx.distributed.is_initialized()
    True
    >>> rlx.distributed.shutdown()
    """
    global _initialized
    if num_processes not in (None, 1):
        raise UnsupportedError(
            f"distributed.initialize was asked for {num_processes} processes, but rlx computes in one.",
            "Start one process, or call it with num_processes=1.",
        )
    if process_id not in (None, 0):
        raise ShardingError(f"distributed.initialize got process_id={process_id}.", "The one process has number 0.")
    if local_device_ids not in (None, 0) and list(local_device_ids) != [0]:
        raise UnsupportedError(f"distributed.initialize got local_device_ids={local_device_ids}.", "There is device 0.")
    _initialized = True


def is_initialized() -> bool:
    """Whether `initialize` has been called, and `shutdown` not since.

    >>> import rlx
    >>> rlx.distributed.is_initialized()
    False
    """
    return _initialized


def shutdown() -> None:
    """Leave the computation of several processes.

    >>> import rlx
    >>> rlx.distributed.shutdown()
    """
    global _initialized
    _initialized = False
