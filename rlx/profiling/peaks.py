"""What a machine can do at its best: bytes copied and products computed in a second, measured."""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import json
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.backends.cpu.store import user_folder
from rlx.backends.cpu.threads import get_num_threads, set_num_threads
from rlx.config import config, scoped
from rlx.forks import reopen_after_fork
from rlx.ir.work import Work
from rlx.profiling.timed_call import TimedCall
from rlx.version import __version__

__all__ = ["Peaks", "machine_peaks", "measure_peaks"]

# a transcendental function counts as so many products: about what its polynomial takes
TRANSCENDENTAL_FLOPS = 12.0
COPY_SIZES = tuple(1 << n for n in range(14, 28, 2))  # bytes of an array
ORDER = 1024  # of the matrices whose product is timed
LEAST_SECONDS = 3e-3  # that a measurement takes, unless it has taken enough runs
MOST_RUNS = 200
LEAST_RUNS = 6


@dataclass(frozen=True)
class Peaks:
    """Peaks of a device with a number of threads.

    copies: pairs of the bytes that a copy reads and writes, and bytes in a second at that size, which
    falls from cache to cache. products: floating-point operations in a second of a large matrix
    product, float32 and float64.

    >>> import rlx
    >>> peaks = rlx.profiling.machine_peaks()
    >>> peaks.bandwidth(10**6) > 0, peaks.float32_products > 0
    (True, True)
    """

    device: str
    threads: int
    copies: tuple[tuple[int, float], ...]
    float32_products: float
    float64_products: float

    def bandwidth(self, nbytes: int) -> float:
        """Bytes in a second of a copy that moves so many, between measurements by its logarithm."""
        sizes = [size for size, _ in self.copies]
        at = bisect.bisect_left(sizes, nbytes)
        if at == 0 or at == len(sizes):
            return self.copies[min(at, len(sizes) - 1)][1]
        (low, slow), (high, fast) = self.copies[at - 1], self.copies[at]
        part = math.log(nbytes / low) / math.log(high / low)
        return slow + part * (fast - slow)

    def seconds(self, work: Work, itemsize: int = 4) -> tuple[float, float]:
        """The least time for the operations of some work, and for its bytes; the larger one is the roofline."""
        products = self.float64_products if itemsize >= 8 else self.float32_products
        operations = work.flops + TRANSCENDENTAL_FLOPS * work.transcendentals
        return operations / products, work.bytes / self.bandwidth(work.bytes)

    def or_better(self, other: Peaks) -> Peaks:
        """The better of two measurements of one machine, number by number."""
        copies = tuple(
            (size, max(rate, again)) for (size, rate), (_, again) in zip(self.copies, other.copies, strict=True)
        )
        single = max(self.float32_products, other.float32_products)
        return Peaks(self.device, self.threads, copies, single, max(self.float64_products, other.float64_products))

    def __str__(self) -> str:
        large, fastest = self.copies[-1][1], max(rate for _, rate in self.copies)
        return (
            f"{self.device}, {self.threads} threads: copies {large / 1e9:.0f} GB/s ({fastest / 1e9:.0f} in cache),"
            f" products {self.float32_products / 1e9:.0f} GFLOP/s in float32,"
            f" {self.float64_products / 1e9:.0f} in float64"
        )


_known: dict[tuple[str, int], Peaks] = {}
_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])


def machine_peaks(threads: int | None = None, again: bool = False) -> Peaks:
    """The peaks of the default device with `threads` threads (None: as many as are in use).

    They are measured once for each machine, which takes about a second, and kept in the folder of
    rlx's cache; RLX_CACHE=0 keeps them for this process only. `again` measures now, and keeps the better
    numbers: for a machine that was busy the first time.

    >>> import rlx
    >>> peaks = rlx.profiling.machine_peaks()
    >>> peaks.device, peaks.threads == rlx.get_num_threads()
    ('cpu', True)
    """
    count = get_num_threads() if threads is None else threads
    key = (config.device, count)
    with _lock:
        found = _known.get(key)
        if found is not None and not again:
            return found
        file = _file(*key)
        found = found or _load(file)
        if found is None or again:
            measured = measure_peaks(count)
            found = measured if found is None else found.or_better(measured)
            _save(file, found)
        _known[key] = found
        return found


def measure_peaks(threads: int | None = None) -> Peaks:
    """Measure, whatever is kept. While it measures, all of this process uses `threads` threads.

    >>> import rlx
    >>> rlx.profiling.measure_peaks(threads=1).threads
    1
    """
    before = get_num_threads()
    count = before if threads is None else threads
    set_num_threads(count)
    try:
        with scoped(disable_jit=False):
            copies = tuple((2 * size, 2 * size / _copy_seconds(size)) for size in COPY_SIZES)
            single, double = (2.0 * ORDER**3 / _product_seconds(dtype) for dtype in ("float32", "float64"))
    finally:
        set_num_threads(before)
    return Peaks(config.device, count, copies, single, double)


def _copy_seconds(size: int) -> float:
    """The least time of a kernel that reads and writes `size` bytes each."""
    return _least_seconds(jnp.negative, np.ones(size // 4, np.float32))


def _product_seconds(dtype: str) -> float:
    matrix = np.full((ORDER, ORDER), 1.0 / ORDER, dtype)
    return _least_seconds(jnp.matmul, matrix, matrix)


def _least_seconds(function: Callable[..., Any], *args: Any) -> float:
    call = TimedCall(function, args, {})
    call.run()
    start, times = time.perf_counter(), []
    while len(times) < LEAST_RUNS or (time.perf_counter() - start < LEAST_SECONDS and len(times) < MOST_RUNS):
        times.append(sum(step.nanoseconds for step in call.run().times))
    return max(min(times), 1.0) / 1e9


# ------------------------------------------------------------------ the file
def _file(device: str, threads: int) -> Path | None:
    folder = user_folder()
    if folder is None:
        return None
    told = (_processor(), platform.machine(), str(os.cpu_count()), np.__version__, __version__, device, str(threads))
    return folder.parent / f"peaks-{hashlib.blake2b(repr(told).encode(), digest_size=12).hexdigest()}.json"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _load(file: Path | None) -> Peaks | None:
    """What a file holds; None if it is not there, or holds something else."""
    if file is None:
        return None
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        copies = tuple((int(size), float(rate)) for size, rate in fields.pop("copies"))
        return Peaks(copies=copies, **fields) if copies else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _save(file: Path | None, peaks: Peaks) -> None:
    """Write atomically, readable by this user only; without a place to write, nothing is kept."""
    if file is None:
        return
    temporary = file.with_name(f".{file.stem}.{os.getpid()}.{threading.get_ident()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump(asdict(peaks), opened)
        os.replace(temporary, file)
