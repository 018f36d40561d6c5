"""The compiled kernels of a device, by their source: programs share them, and those used last stay loaded."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["KernelCache"]

_KEPT = 1024  # kernels that stay loaded when no program uses them
_MOST_THREADS = 8


class KernelCache:
    """Kernels by name and source.

    >>> cache = KernelCache()
    >>> cache.kernels({"f": "text of f"}, str.upper, lambda code, name: (code, name))
    {'f': ('TEXT OF F', 'f')}
    """

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._kernels: OrderedDict[tuple[str, bytes], Any] = OrderedDict()
        self._lock = threading.Lock()

    def kernels(
        self, sources: Mapping[str, str], compiled: Callable[[str], Any], loaded: Callable[[Any, str], Any]
    ) -> dict[str, Any]:
        """The kernels of sources by name. Sources that are not loaded are compiled at the same time.

        compiled: the code of a source, computed in any thread. loaded: the kernel of a name in code.

        Raises: DeviceError with the compiler's message.
        """
        keys = {name: (name, hashlib.blake2b(s.encode(), digest_size=32).digest()) for name, s in sources.items()}
        with self._lock:
            found = {name: self._kernels[key] for name, key in keys.items() if key in self._kernels}
            for name in found:
                self._kernels.move_to_end(keys[name])
        missing = [name for name in sources if name not in found]
        codes = _at_once(compiled, [sources[name] for name in missing])
        made = {name: loaded(code, name) for name, code in zip(missing, codes, strict=True)}
        with self._lock:
            for name, kernel in made.items():
                self._kernels[keys[name]] = kernel
            while len(self._kernels) > self._most:
                self._kernels.popitem(last=False)
        return {name: found[name] if name in found else made[name] for name in sources}

    def clear(self) -> None:
        """Unload kernels that no program uses."""
        with self._lock:
            self._kernels.clear()


def _at_once(function: Callable[[str], Any], sources: list[str]) -> list[Any]:
    """The results of a function that releases the interpreter's lock, computed by several threads."""
    if len(sources) < 2:
        return [*map(function, sources)]
    with ThreadPoolExecutor(min(len(sources), os.cpu_count() or 1, _MOST_THREADS)) as threads:
        return [*threads.map(function, sources)]
