"""Python's buffer protocol: `memoryview(x)`, `bytes(x)`."""

from __future__ import annotations

import sys
from typing import Any

from rlx.array import ConcreteArray
from rlx.ir.types import is_key

__all__ = ["install_buffers"]


def buffer(self: Any, flags: int) -> memoryview:
    """The values as a read-only memoryview. Raises: BufferError for dtypes that the protocol has no format for."""
    if not is_key(self.dtype):
        view = self.numpy().view()
        view.flags.writeable = False
        try:
            return memoryview(view)
        except ValueError:
            pass
    raise BufferError(f"The buffer protocol has no format for {self.dtype.name}: take x.view(...) or np.asarray(x).")


def install_buffers() -> None:
    """Let arrays with values be buffers (PEP 688). Before Python 3.12 only classes written in C can be buffers."""
    array_class: Any = ConcreteArray
    if sys.version_info >= (3, 12):
        array_class.__buffer__ = buffer
    else:
        array_class.__bytes__ = lambda self: bytes(buffer(self, 0))
