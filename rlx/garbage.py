"""Work during which Python's garbage collector rests: it makes many objects that live on, and hardly any garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["collector_rests"]


@contextmanager
def collector_rests() -> Generator[None, None, None]:
    """Without automatic collections in a block; each would visit all objects of the process.

    >>> import gc
    >>> from rlx.garbage import collector_rests
    >>> with collector_rests():
    ...     gc.isenabled()
    False
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
