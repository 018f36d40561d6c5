"""Errors of MLX as errors of rlx."""

from __future__ import annotations

import re

from rlx.backends.mlx.library import mx
from rlx.errors import OutOfMemoryError

__all__ = ["described"]

# what MLX and Metal say where there is no more memory
_EXHAUSTED = re.compile(r"malloc|insufficient memory|out of memory|maximum allowed buffer size", re.IGNORECASE)
_LIMITS = {
    "max_recommended_working_set_size": "the working set that Metal recommends",
    "max_buffer_length": "the largest array",
}


def described(error: BaseException) -> BaseException:
    """An error of MLX as one of rlx, if it says that memory ran out; else itself."""
    if not isinstance(error, (RuntimeError, MemoryError)) or not _EXHAUSTED.search(str(error)):
        return error
    limits = [f"{_LIMITS[name]} has {_gigabytes(size)}" for name, size in mx.device_info().items() if name in _LIMITS]
    limits.append(f"MLX's own limit is {_gigabytes(mx.get_memory_limit())}")
    in_use = f"{_gigabytes(mx.get_active_memory())} are in use"
    return OutOfMemoryError(
        f"MLX ran out of memory: {error}. {in_use[0].upper()}{in_use[1:]}; {', '.join(limits)}.",
        "Compute less at once, donate arguments (donate_argnums), or drop arrays that are not needed any more.",
    )


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
