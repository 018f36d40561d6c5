"""The peaks of this machine: measured, kept in the user's folder, and raised by what surpasses them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlx.backends.cpu.runtime.folder import Folder
from rlx.backends.cpu.runtime.store import user_folder
from rlx.backends.cpu.runtime.threads import get_num_threads
from rlx.config import config
from rlx.forks import reopen_after_fork
from rlx.profiling.probes import measure_peaks
from rlx.profiling.roofline import Evidence, Peaks, Rates, front
from rlx.version import __version__

__all__ = ["Peaks", "machine_peaks", "measure_peaks", "peaks_for"]

_known: dict[tuple[str, int], Peaks] = {}
_doubted: set[tuple[str, int]] = set()  # those measured again, in this process, since a kernel beat them
_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])


def machine_peaks(threads: int | None = None, again: bool = False) -> Peaks:
    """The peaks of the default device with `threads` threads (None: as many as are in use).

    They are the best of several tries, which take one or two seconds, and kept in the folder of rlx's
    cache; each process that finds them there tries once more, and keeps what is better. RLX_CACHE=0
    keeps them for this process only. `again` measures now, and keeps the better numbers.

    >>> import rlx
    >>> peaks = rlx.profiling.machine_peaks()
    >>> peaks.device, peaks.threads == rlx.get_num_threads()
    ('cpu', True)
    """
    count = get_num_threads() if threads is None else threads
    key = (config.device, count)
    with _lock:
        known = _known.get(key)
        if known is not None and not again:
            return known
        kept = _load(_file(*key)) if known is None else known
        measured = measure_peaks(count, None if kept is None or again else 1)
        return _keep(measured if kept is None else kept.or_better(measured))


def peaks_for(evidence: Sequence[Evidence]) -> Peaks:
    """The peaks of the default device, none of which was certainly surpassed.

    Where more work is counted than they allow, they are measured again, but for work that is not certain once in
    a process. What still surpasses them and was certainly done raises them: it shows what the machine can do.
    """
    peaks = machine_peaks()
    key = (peaks.device, peaks.threads)
    beaten = [e for e in evidence if not peaks.allow(e)]
    proved = any(peaks.raised_to(e) != peaks for e in beaten)
    if proved or (beaten and key not in _doubted):
        _doubted.add(key)
        peaks = machine_peaks(again=True)
        raised = reduce(Peaks.raised_to, beaten, peaks)
        if raised != peaks:
            with _lock:
                peaks = _keep(raised.or_better(_known[key]))
    return peaks


# ------------------------------------------------------------------ the file
_LARGEST = 1 << 16  # bytes that peaks take
# what files of peaks are called, and those that are still being written
FILES = re.compile(r"peaks-[0-9a-f]{24}\.json"), re.compile(r"\.peaks-[0-9a-f]{24}\.json\.[0-9a-f]+")


class _Place(NamedTuple):
    """A file of this user's folder."""

    folder: Folder
    name: str


def _file(device: str, threads: int) -> _Place | None:
    """Where the peaks of a device are kept; None without a folder that nobody else can change."""
    folder = user_folder()
    if folder is None:
        return None
    told = (_processor(), platform.machine(), str(os.cpu_count()), np.__version__, __version__, device, str(threads))
    name = f"peaks-{hashlib.blake2b(repr(told).encode(), digest_size=12).hexdigest()}.json"
    try:
        return _Place(Folder(folder.parent), name)
    except OSError:
        return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _load(file: _Place | None) -> Peaks | None:
    """What a file holds; None if it is not there, or holds something else."""
    content = file.folder.read(file.name) if file is not None else None
    if content is None or len(content) > _LARGEST:
        return None
    try:
        fields = json.loads(content)
        copies, reads = (_read_rates(fields.pop(name)) for name in ("copies", "reads"))
        found = Peaks(copies=copies, reads=reads, **fields)
        products = (found.float32_products, found.float64_products)
        return found if all(0 < rate < math.inf for rate in products) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _read_rates(points: Iterable[tuple[int, float]]) -> Rates:
    """Rates as a file holds them. Raises ValueError if they are none."""
    rates = front((int(size), float(rate)) for size, rate in points)
    if not rates or not all(size > 0 and 0 < rate < math.inf for size, rate in rates):
        raise ValueError("no rates")
    return rates


def _keep(peaks: Peaks) -> Peaks:
    """Remember them, here and in the file, where another process may have left better ones; -> the best of all."""
    key = (peaks.device, peaks.threads)
    file = _file(*key)
    there = _load(file)
    best = _known[key] = peaks if there is None else peaks.or_better(there)
    if best != there:
        _save(file, best)
    return best


def _save(file: _Place | None, peaks: Peaks) -> None:
    """Write atomically, readable by this user only; without a place to write, nothing is kept."""
    if file is not None:
        with contextlib.suppress(OSError):
            file.folder.write(file.name, json.dumps(asdict(peaks)).encode())
