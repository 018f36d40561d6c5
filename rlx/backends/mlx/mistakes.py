"""Errors of MLX as errors of rlx."""

from __future__ import annotations

import re

from rlx.backends.mlx.library import mx
from rlx.errors import OutOfMemoryError

__all__ = ["described", "gigabytes", "memory_in_use", "memory_limits"]

# messages of MLX and Metal for exhausted memory
_EXHAUSTED = re.compile(r"malloc|insufficient memory|out of memory|maximum allowed buffer size", re.IGNORECASE)
_LIMITS = {
    "max_recommended_working_set_size": "the working set that Metal recommends",
    "max_buffer_length": "the largest array",
}


def memory_limits() -> list[str]:
    """The limits of memory, in words."""
    found = [f"{_LIMITS[name]} has {gigabytes(size)}" for name, size in mx.device_info().items() if name in _LIMITS]
    return [*found, f"MLX's own limit is {gigabytes(mx.get_memory_limit())}"]


def memory_in_use() -> str:
    """The memory in use, in words."""
    return f"{gigabytes(mx.get_active_memory())} in use, {gigabytes(mx.get_cache_memory())} kept for reuse"


def described(error: BaseException) -> BaseException:
    """An error of MLX as one of rlx, if it reports exhausted memory; else the error itself."""
    if not isinstance(error, (RuntimeError, MemoryError)) or not _EXHAUSTED.search(str(error)):
        return error
    return OutOfMemoryError(
        f"MLX ran out of memory: {error}. There are {memory_in_use()}; {', '.join(memory_limits())}.",
        "Compute less at once, donate arguments (donate_argnums), or drop arrays that are no longer needed.",
    )


def gigabytes(size: int) -> str:
    """A number of bytes, in words."""
    return f"{size / 2**30:.2f} GiB"
